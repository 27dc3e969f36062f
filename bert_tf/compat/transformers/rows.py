"""How the tokenizers of transformers make rows of texts: truncation, padding, overflow."""

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.base.errors import UserError
from bert_tf.compat.transformers.arguments import UNLIMITED, Arguments, kept, windows
from bert_tf.compat.transformers.encoding import BatchEncoding, Encoding, Tokens


def plain(value: Any) -> Any:
    """Converts tensors, arrays and columns of tables to lists."""
    value = value.numpy() if hasattr(value, "numpy") else value
    return value.tolist() if hasattr(value, "tolist") else value


def is_list(value: Any) -> bool:
    """Returns whether a value is a list or a tuple."""
    return isinstance(value, list | tuple)


def as_list(value: Any) -> list[Any]:
    """Returns a list; a single value becomes its only entry."""
    return list(value) if is_list(value) else [value]


class EncodesTexts:
    """The methods of a tokenizer that convert texts to rows."""

    # Of the subclass.
    is_fast: Any
    vocab: Any
    ids_to_tokens: Any
    model_max_length: Any
    padding_side: Any
    truncation_side: Any
    _batch: Any
    convert_tokens_to_ids: Any

    def __call__(self, text: Any = None, text_pair: Any = None, **options: Any) -> BatchEncoding:
        """Converts a text, or a list of texts or pairs, to inputs of a model.

        Args:
            text: a text, a list of words with `is_split_into_words`, or a list of these.
            text_pair: the second texts of pairs, as for `text`. Pairs may also be in `text`.
            **options: as in transformers: `padding`, `truncation`, `max_length`, `stride`,
                `return_tensors` (`tf` or `np`), etc.
        """
        text, text_pair = plain(text), plain(text_pair)
        is_split = options.get("is_split_into_words", False)
        is_batch = is_list(text) and (not is_split or is_list(text[0] if text else 0))
        if not is_batch:
            return self.encode_plus(text, text_pair, **options)
        return self.batch_encode_plus(text, text_pair, **options)

    def encode_plus(self, text: Any, text_pair: Any = None, *args: Any, **options: Any) -> Any:
        """Converts a text or pair to inputs; a list has words, tokens or ids."""
        arguments = _arguments(args, options)
        texts = [plain(x) for x in (text, text_pair) if x is not None]
        if texts and is_list(texts[0]) and not arguments.is_split_into_words:
            ids = [
                x if x and isinstance(x[0], int) else self.convert_tokens_to_ids(x) for x in texts
            ]
            return self.prepare_for_model(*ids, **vars(arguments))
        return self._encode([texts], arguments, is_batch=False)

    def batch_encode_plus(
        self, texts: Any, text_pairs: Any = None, *args: Any, **options: Any
    ) -> BatchEncoding:
        """Converts a list of texts or pairs to inputs."""
        arguments = _arguments(args, options)
        texts, text_pairs = plain(texts), plain(text_pairs)
        if text_pairs is not None:
            if not is_list(text_pairs) or len(texts) != len(text_pairs):
                raise UserError(f"{len(texts)} texts need a list of as many in text_pair")
            return self._encode([*zip(texts, text_pairs, strict=True)], arguments)
        words = arguments.is_split_into_words
        samples = [
            x if is_list(x) and not (words and not (x and is_list(x[0]))) else [x] for x in texts
        ]
        return self._encode(samples, arguments)

    def encode(self, text: Any, text_pair: Any = None, *args: Any, **options: Any) -> Any:
        """Returns the ids of a text or pair."""
        return self.encode_plus(text, text_pair, *args, **options)["input_ids"]

    def tokenize(self, text: str, pair: str | None = None, **options: Any) -> list[str]:
        """Returns the tokens of a text; special tokens only if `add_special_tokens` is true."""
        options = {"add_special_tokens": False, **options}
        return [self.ids_to_tokens[i] for i in self.encode(text, pair, **options)]

    def prepare_for_model(
        self, ids: list[int], pair_ids: list[int] | None = None, **options: Any
    ) -> BatchEncoding:
        """Converts the ids of a text or pair to inputs."""
        rows = [x for x in (ids, pair_ids) if x is not None]
        sample = [Tokens(row, functools.partial(_no_places, len(row))) for row in rows]
        return self._build([sample], _arguments((), options), is_batch=False)

    # From texts to tokens.

    def _encode(
        self, samples: Sequence[Sequence[Any]], options: Arguments, is_batch: bool = True
    ) -> BatchEncoding:
        texts = [text for sample in samples for text in sample]
        found = iter(self._tokens(texts, options.return_offsets_mapping))
        split = [[*itertools.islice(found, len(sample))] for sample in samples]
        if bad := [sample for sample in samples if not 1 <= len(sample) <= 2]:
            raise UserError(f"expected a text or a pair of texts. Received: {bad[0]!r:.60}")
        return self._build(split, options, is_batch)

    def _tokens(self, texts: Sequence[Any], with_places: bool) -> list[Tokens]:
        """Tokenizes texts and lists of words."""
        counts = [len(text) if is_list(text) else 1 for text in texts]
        flat = [x for text in texts for x in as_list(text)]
        if bad := [x for x in flat if not isinstance(x, str | bytes)]:
            raise UserError(f"expected a text. Received: {bad[0]!r:.60}")
        found = self._batch.encode(flat, with_spans=with_places)
        ids, splits = found.ids.tolist(), found.row_splits
        ends = splits[np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])].tolist()
        ranges = [*itertools.pairwise(ends)]
        if with_places:
            indices = [i for text in texts for i in (range(len(text)) if is_list(text) else [0])]
            # The words that a text has are counted, and those that were passed are given.
            words = np.repeat(indices, found.lengths)
            starts = np.cumsum(self._starts_word[found.ids])
            for text, (start, end) in zip(texts, ranges, strict=True):
                if not is_list(text) and start < end:
                    words[start:end] = starts[start:end] - starts[start]
            places = [*zip(*found.spans.T.tolist(), words.tolist(), strict=True)]
            return [Tokens(ids[a:b], functools.partial(list, places[a:b])) for a, b in ranges]
        return [
            Tokens(ids[a:b], functools.partial(self._find_places, text))
            for text, (a, b) in zip(texts, ranges, strict=True)
        ]

    def _find_places(self, text: Any) -> list[tuple[int, int, int]]:
        return self._tokens([text], True)[0].places

    @property
    def _starts_word(self) -> np.ndarray:
        """Whether a token begins a word, by id."""
        starts = np.ones(max(self.ids_to_tokens) + 1, bool)
        starts[[i for i, token in self.ids_to_tokens.items() if token.startswith("##")]] = False
        return starts

    # From tokens to rows.

    def _build(
        self, samples: Sequence[Sequence[Tokens]], options: Arguments, is_batch: bool = True
    ) -> BatchEncoding:
        padding, truncation, max_length = options.resolve(self.model_max_length)
        has_special, overflows = options.add_special_tokens, options.return_overflowing_tokens
        special_ids = self.convert_tokens_to_ids(["[CLS]", "[SEP]", "[PAD]"])
        types = (0, int(has_special or self.is_fast))
        rows: list[Encoding] = []
        data: dict[str, list[Any]] = {}
        sources: list[int] = []
        for index, texts in enumerate(samples):
            lengths = [len(text.ids) for text in texts]
            num_special = (len(texts) + 1) * has_special
            room = UNLIMITED if max_length is None else max(0, max_length - num_special)
            sizes = kept(lengths, room, truncation, self.is_fast)
            if overflows and not self.is_fast:
                cut = self._overflowing(texts, sizes, truncation, options.stride)
                data.setdefault("overflowing_tokens", []).append(cut)
                excess = sum(lengths) + num_special - (max_length or 0)
                data.setdefault("num_truncated_tokens", []).append(excess)
            for spans in self._spans(lengths, sizes, options):
                parts = [text.part(*span) for text, span in zip(texts, spans, strict=True)]
                rows.append(Encoding(parts, self.ids_to_tokens, special_ids, has_special, types))
                sources.append(index)
        lengths = [*map(len, rows)]
        target = max_length if padding == "max_length" else max(lengths, default=0)
        if padding != "do_not_pad" and target:
            left = (options.padding_side or self.padding_side) == "left"
            for row in rows:
                row.pad(_round_up(target, options.pad_to_multiple_of), left)
        if self.is_fast or not is_batch:
            lengths = [*map(len, rows)]
        data["input_ids"] = [row.ids for row in rows]
        if options.return_token_type_ids is not False:
            data["token_type_ids"] = [row.type_ids for row in rows]
        if options.return_attention_mask is not False:
            data["attention_mask"] = [row.attention_mask for row in rows]
        if options.return_special_tokens_mask:
            data["special_tokens_mask"] = [row.special_tokens_mask for row in rows]
        if options.return_offsets_mapping:
            data["offset_mapping"] = [row.offsets for row in rows]
        if options.return_length:
            data["length"] = lengths
        if overflows and self.is_fast:
            data["overflow_to_sample_mapping"] = sources
        elif not is_batch and not options.return_tensors:
            # The fast tokenizer of transformers leaves the length in a list.
            of_row = {name: x for name, x in data.items() if name != "length" or not self.is_fast}
            data |= {name: x[0] for name, x in of_row.items()}
        return BatchEncoding(data, rows, options.return_tensors)

    def _spans(
        self, lengths: Sequence[int], sizes: Sequence[int], options: Arguments
    ) -> list[tuple[tuple[int, int], ...]]:
        """Returns the ranges of tokens of each row that a text or pair becomes."""
        ranges = [[(0, size)] for size in sizes]
        if options.return_overflowing_tokens and self.is_fast:
            pairs = zip(lengths, sizes, strict=True)
            ranges = [windows(n, size, options.stride) for n, size in pairs]
        if self.truncation_side == "left":
            pairs = zip(lengths, ranges, strict=True)
            ranges = [[(n - end, n - start) for start, end in found] for n, found in pairs]
        # The first row, then other windows of the first text, then those of the second only.
        first, *others = itertools.product(*ranges)
        return [first, *sorted(others, key=lambda spans: spans[0] == first[0])]

    def _overflowing(
        self, texts: Sequence[Tokens], sizes: Sequence[int], truncation: str, stride: int
    ) -> list[int]:
        """Returns the tokens that do not fit, as the slow tokenizer of transformers does."""
        if truncation == "longest_first" and len(texts) == 2:
            fix = "Use only_first or only_second, or BertTokenizerFast"
            raise UserError("longest_first returns no overflowing tokens of a pair", fix=fix)
        for text, size in zip(texts, sizes, strict=True):
            if size < len(text.ids):
                count = len(text.ids) - size + stride
                return text.ids[:count] if self.truncation_side == "left" else text.ids[-count:]
        return []

    def pad(
        self,
        encoded_inputs: Any,
        padding: bool | str = True,
        max_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        return_attention_mask: bool | None = None,
        return_tensors: str | None = None,
        **_: Any,
    ) -> BatchEncoding:
        """Pads rows of ids, a dict of lists or a list of dicts."""
        if is_list(encoded_inputs):
            encoded_inputs = {key: [x[key] for x in encoded_inputs] for key in encoded_inputs[0]}
        data = {name: plain(x) for name, x in encoded_inputs.items()}
        data = {name: [*map(plain, x)] if is_list(x) else x for name, x in data.items()}
        is_batch = not data["input_ids"] or is_list(data["input_ids"][0])
        rows = {name: x if is_batch else [x] for name, x in data.items()}
        if return_attention_mask is not False:
            rows.setdefault("attention_mask", [[1] * len(x) for x in rows["input_ids"]])
        options = Arguments(padding=padding, max_length=max_length)
        padding, _truncation, max_length = options.resolve(self.model_max_length)
        longest = max((len(x) for x in rows["input_ids"]), default=0)
        length = max_length if padding == "max_length" and max_length else longest
        length = 0 if padding == "do_not_pad" else _round_up(length, pad_to_multiple_of)
        values = {"input_ids": self.convert_tokens_to_ids("[PAD]"), "special_tokens_mask": 1}
        for name in ("input_ids", "attention_mask", "token_type_ids", "special_tokens_mask"):
            for index, row in enumerate(rows.get(name, ())):
                pads = [values.get(name, 0)] * (length - len(row))
                left = self.padding_side == "left"
                rows[name][index] = [*pads, *row] if left else [*row, *pads]
        if not is_batch and not return_tensors:
            rows = {name: x[0] for name, x in rows.items()}
        return BatchEncoding(rows, tensor_type=return_tensors)

    # Special tokens around texts.

    @staticmethod
    def num_special_tokens_to_add(pair: bool = False) -> int:
        """Returns how many special tokens a row has."""
        return 3 if pair else 2

    def build_inputs_with_special_tokens(
        self, token_ids_0: list[int], token_ids_1: list[int] | None = None
    ) -> list[int]:
        """Returns the ids of a row with special tokens."""
        return self.prepare_for_model(token_ids_0, token_ids_1)["input_ids"]

    def create_token_type_ids_from_sequences(
        self, token_ids_0: list[int], token_ids_1: list[int] | None = None
    ) -> list[int]:
        """Returns the token types of a row with special tokens."""
        return self.prepare_for_model(token_ids_0, token_ids_1)["token_type_ids"]


def _arguments(args: Sequence[Any], options: Mapping[str, Any]) -> Arguments:
    names = [field.name for field in dataclasses.fields(Arguments)]
    options = {**dict(zip(names, args, strict=False)), **options}
    if unknown := sorted(options.keys() - names):
        raise UserError(f"unknown arguments: {', '.join(unknown)}")
    return Arguments(**options)


def _no_places(count: int) -> list[tuple[int, int, int]]:
    return [(0, 0, i) for i in range(count)]


def _round_up(length: int, multiple: int | None) -> int:
    return -(-length // multiple) * multiple if multiple else length
