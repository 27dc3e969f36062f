"""Arguments of a tokenizer of transformers: how rows are padded and truncated."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.base.errors import UserError

# The length of a model whose folder does not say it.
UNLIMITED = int(1e30)
_PADDINGS = {
    False: "do_not_pad",
    True: "longest",
    **{name: name for name in ("do_not_pad", "longest", "max_length")},
}
_TRUNCATIONS = {
    False: "do_not_truncate",
    None: "do_not_truncate",
    True: "longest_first",
    **{name: name for name in ("do_not_truncate", "longest_first", "only_first", "only_second")},
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments:
    """Arguments of a call; the last ones are those of version 3."""

    add_special_tokens: bool = True
    padding: bool | str = False
    truncation: bool | str | None = None
    max_length: int | None = None
    stride: int = 0
    is_split_into_words: bool = False
    pad_to_multiple_of: int | None = None
    padding_side: str | None = None
    return_tensors: str | None = None
    return_token_type_ids: bool | None = None
    return_attention_mask: bool | None = None
    return_overflowing_tokens: bool = False
    return_special_tokens_mask: bool = False
    return_offsets_mapping: bool = False
    return_length: bool = False
    verbose: bool = True
    pad_to_max_length: bool = False
    truncation_strategy: str | None = None

    def resolve(self, model_max_length: int) -> tuple[str, str, int | None]:
        """Returns padding, truncation, and the length that they need."""
        length, truncation = self.max_length, self.truncation
        if truncation is None:
            # A length alone truncates.
            cuts = length is not None and self.padding is False
            truncation = self.truncation_strategy or cuts
        padding = self.padding
        if padding is False and self.pad_to_max_length:
            padding = length is None or "max_length"
        padding = _choose("padding", padding, _PADDINGS)
        truncation = _choose("truncation", truncation, _TRUNCATIONS)
        if length is None and model_max_length < UNLIMITED:
            length = model_max_length
        return padding, truncation, length


def _choose(name: str, value: Any, choices: Mapping[Any, str]) -> str:
    if value not in choices:
        listed = ", ".join(map(repr, choices))
        raise UserError(f"{name} must be one of {listed}. Received: {value!r}")
    return choices[value]


def kept(lengths: Sequence[int], room: int, strategy: str, is_fast: bool) -> list[int]:
    """Returns how many tokens of a text or pair remain if `room` tokens fit into a row.

    As in transformers, the slow tokenizer leaves a row as it is if a strategy cannot shorten it
    enough, and of texts of the same length, it shortens the second more.
    """
    excess = sum(lengths) - room
    if excess <= 0 or strategy == "do_not_truncate":
        return list(lengths)
    if is_fast and room == 0:
        return [0] * len(lengths)
    if strategy == "longest_first" and len(lengths) == 2:
        if is_fast:
            short = min(lengths)
            long = max(short, room - short)
            if short + long > room:
                short, long = room // 2, room - room // 2
            return [short, long] if lengths[0] <= lengths[1] else [long, short]
        first = min(abs(lengths[0] - lengths[1]), excess)
        half = (excess - first) // 2
        removed = [half, excess - half]
        if lengths[0] > lengths[1]:
            removed = [first + half, excess - first - half]
        return [max(0, n - r) for n, r in zip(lengths, removed, strict=True)]
    index = int(strategy == "only_second")
    if index < len(lengths) and lengths[index] > excess:
        return [n - excess * (i == index) for i, n in enumerate(lengths)]
    if not is_fast:
        return list(lengths)
    raise UserError(f"truncation={strategy!r} cannot shorten a text to max_length")


def windows(length: int, size: int, stride: int) -> list[tuple[int, int]]:
    """Returns the windows of a text, of `size` tokens, `stride` of which are in the next, too."""
    if size >= length or not size:
        return [(0, size)] + [(0, length)] * (size < length)
    if stride >= size:
        raise UserError(f"stride must be less than the {size} tokens that fit. Received: {stride}")
    starts = itertools.takewhile(
        lambda start: start == 0 or start + stride < length, itertools.count(0, size - stride)
    )
    return [(start, min(start + size, length)) for start in starts]
