"""`BertTokenizer` and `BertTokenizerFast` as in transformers 4: padding, truncation, overflow."""

import functools
import itertools
import operator
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from bert_tf.base.errors import UserError
from bert_tf.compat.transformers.encoding import BatchEncoding, Encoding
from bert_tf.compat.transformers.vocabulary import UNLIMITED, Vocabulary, as_list, is_list, plain

_TRUNCATIONS = ("longest_first", "only_first", "only_second", "do_not_truncate")
_PADDINGS = ("longest", "max_length", "do_not_pad")
# Columns of a batch, in the order of `Encoding`, and what they have for padding.
_COLUMNS: dict[str, Any] = {
    "input_ids": 0,
    "token_type_ids": 0,
    "attention_mask": 0,
    "special_tokens_mask": 1,
    "offset_mapping": (0, 0),
    "word_ids": None,
    "sequence_ids": None,
    "tokens": "[PAD]",
}
# The tokens of a text: the column of ids, maybe with the last four columns.
_Text = list[list[Any]]


class BertTokenizer(Vocabulary):
    """Converts texts to inputs of a model; all arguments are those of transformers."""

    def __call__(self, text: Any = None, text_pair: Any = None, **options: Any) -> BatchEncoding:
        """Converts a text, or a list of texts or pairs, to inputs of a model, see `_build`."""
        text, pairs = plain(text), plain(text_pair)
        if _is_text(text, options):
            return self.encode_plus(text, pairs, **options)
        if pairs is not None:
            if not is_list(pairs) or len(text) != len(pairs):
                raise UserError(f"{len(text)} texts need a list of as many in text_pair")
            text = [*zip(text, pairs, strict=True)]
        return self.batch_encode_plus(text, **options)

    def batch_encode_plus(self, batch_text_or_text_pairs: Any, *args: Any, **options: Any) -> Any:
        """Converts a list of texts or pairs to inputs."""
        samples = plain(batch_text_or_text_pairs)
        samples = [[x] if _is_text(x, options) else x for x in samples]
        return self._encode(samples, True, *args, **options)

    def encode_plus(self, text: Any, text_pair: Any = None, *args: Any, **options: Any) -> Any:
        """Converts a text or pair to inputs; a list has words, tokens or ids."""
        texts = [plain(x) for x in (text, text_pair) if x is not None]
        if _is_text(plain(text), options):
            return self._encode([texts], False, *args, **options)
        ids = [x if x and isinstance(x[0], int) else self.convert_tokens_to_ids(x) for x in texts]
        parts = [_text(x, self.convert_ids_to_tokens(x), kind) for kind, x in enumerate(ids)]
        return self._build([parts], False, *args, **options)

    prepare_for_model = encode_plus

    def encode(self, *args: Any, **options: Any) -> Any:
        """Returns the ids of a text or pair, see `encode_plus`."""
        return self.encode_plus(*args, **options)["input_ids"]

    build_inputs_with_special_tokens = encode

    def create_token_type_ids_from_sequences(self, *ids: list[int]) -> list[int]:
        """Returns the token types of a row with special tokens."""
        return self.encode_plus(*ids)["token_type_ids"]

    def tokenize(self, text: str, pair: str | None = None, **options: Any) -> list[str]:
        """Returns the tokens of a text; special tokens only if `add_special_tokens` is true."""
        ids = self.encode(text, pair, **{"add_special_tokens": False, **options})
        return self.convert_ids_to_tokens(ids)

    def num_special_tokens_to_add(self, pair: bool = False) -> int:
        """Returns how many special tokens a row has."""
        return 3 if pair else 2

    def _encode(self, samples: Any, is_batch: bool, *args: Any, **options: Any) -> BatchEncoding:
        def build(with_offsets: bool) -> BatchEncoding:
            texts = self._tokenize(samples, with_offsets)
            return self._build(texts, is_batch, *args, **options)

        encoding = build(with_offsets := options.get("return_offsets_mapping", False))
        if not with_offsets:
            # They take long to find, and few programs need them.
            encoding.locate = lambda: build(True).encodings
        return encoding

    def _tokenize(self, samples: Sequence[Any], with_offsets: bool) -> list[list[_Text]]:
        """Tokenizes texts and pairs."""
        if bad := [sample for sample in samples if not 1 <= len(sample) <= 2]:
            raise UserError(f"expected a text or a pair of texts. Received: {bad[0]!r:.60}")
        words = [x for sample in samples for text in sample for x in as_list(text)]
        if bad := [word for word in words if not isinstance(word, str | bytes)]:
            raise UserError(f"expected a text. Received: {bad[0]!r:.60}")
        found, tokenized, last = self._batch.encode(words, with_spans=with_offsets), [], 0
        ids, splits = found.ids.tolist(), found.row_splits.tolist()
        for sample in samples:
            tokenized.append([])
            for kind, text in enumerate(sample):
                first, last = last, last + len(as_list(text))
                part = slice(splits[first], splits[last])
                row = [ids[part]]
                if with_offsets:
                    row = _text(ids[part], self.convert_ids_to_tokens(ids[part]), kind)
                    row[1] = [*map(tuple, found.spans[part].tolist())]
                if with_offsets and is_list(text):
                    ends = itertools.pairwise(splits[first : last + 1])
                    row[2] = [number for number, (a, b) in enumerate(ends) for _ in range(a, b)]
                tokenized[-1].append(row)
        return tokenized

    def _build(
        self,
        samples: Sequence[Sequence[_Text]],
        is_batch: bool,
        add_special_tokens: bool = True,
        padding: bool | str = False,
        truncation: bool | str | None = None,
        max_length: int | None = None,
        stride: int = 0,
        is_split_into_words: bool = False,
        pad_to_multiple_of: int | None = None,
        padding_side: str | None = None,
        return_tensors: str | None = None,
        return_token_type_ids: bool | None = None,
        return_attention_mask: bool | None = None,
        return_overflowing_tokens: bool = False,
        return_special_tokens_mask: bool = False,
        return_offsets_mapping: bool = False,
        return_length: bool = False,
        verbose: bool = True,
        pad_to_max_length: bool = False,
        truncation_strategy: str | None = None,
    ) -> BatchEncoding:
        """Converts tokenized texts and pairs to rows; the last arguments are those of version 3."""
        if truncation is None:
            # A length alone truncates.
            truncation = truncation_strategy or (max_length is not None and padding is False)
        truncation = _choose("truncation", truncation, _TRUNCATIONS)
        if padding is False and pad_to_max_length:
            padding = max_length is None or "max_length"
        limit = self.model_max_length if max_length is None else max_length
        rows, data = [], defaultdict(list)
        for index, texts in enumerate(samples):
            lengths = [len(text[0]) for text in texts]
            excess = sum(lengths) + (len(texts) + 1) * add_special_tokens - limit
            step = stride if return_overflowing_tokens and self.is_fast else None
            spans = _truncate(lengths, excess, truncation, step, self.is_fast)
            if return_overflowing_tokens and self.is_fast:
                data["overflow_to_sample_mapping"] += [index] * len(spans)
            elif return_overflowing_tokens:
                if truncation == "longest_first" and len(texts) == 2:
                    raise UserError("longest_first returns no overflowing tokens of a pair")
                pairs = zip(texts, spans[0], strict=True)
                cut = [x[0][max(0, end - stride) :] for x, (_, end) in pairs if end < len(x[0])]
                data["overflowing_tokens"].append(cut[0] if cut else [])
                data["num_truncated_tokens"].append(excess)
            rows += [self._frame(texts, ranges, add_special_tokens) for ranges in spans]
        names = [*_COLUMNS][: len(rows[0]) if rows else None]
        batch = {name: [row[i] for row in rows] for i, name in enumerate(names)}
        batch = self.pad(batch, padding, max_length, pad_to_multiple_of, padding_side)
        wanted = [True, return_token_type_ids is not False, return_attention_mask is not False]
        wanted += [return_special_tokens_mask, return_offsets_mapping]
        data |= {name: batch[name] for name, x in zip(names, wanted, strict=False) if x}
        if return_length:
            data["length"] = [*map(len, batch["input_ids"])]
        if not (is_batch or return_tensors or "overflow_to_sample_mapping" in data):
            # The fast tokenizer of transformers leaves the length in a list.
            data |= {name: x[0] for name, x in data.items() if name != "length" or not self.is_fast}
        rows = zip(*batch.values(), strict=True)
        return BatchEncoding(data, lambda: list(itertools.starmap(Encoding, rows)), return_tensors)

    def _frame(self, texts: Sequence[_Text], ranges: Any, special: bool) -> list[list[Any]]:
        """Returns the columns of a row with ranges of the tokens of a text or pair."""
        cls, sep = ([self.vocab.get(x), 0, 1, 1, (0, 0), None, None, x] for x in ("[CLS]", "[SEP]"))
        parts = [[[x] for x in cls]]
        for number, (text, (start, end)) in enumerate(zip(texts, ranges, strict=True)):
            ids, *places = (column[start:end] for column in text)
            n, sep[1] = len(ids), number if special or self.is_fast else 0
            parts.append([ids, [sep[1]] * n, [1] * n, [0] * n, *places])
            parts.append([[x] for x in sep])
        # Without places, there are four columns.
        columns = zip(*(parts if special else parts[1::2]), strict=False)
        return [functools.reduce(operator.iadd, x, []) for x in columns]

    def pad(
        self,
        encoded_inputs: Any,
        padding: bool | str = True,
        max_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        padding_side: str | None = None,
        **options: Any,
    ) -> BatchEncoding:
        """Pads rows of ids and of labels, a dict of lists or a list of dicts."""
        data, multiple = encoded_inputs, pad_to_multiple_of or 1
        if is_list(data):
            data = {name: [row[name] for row in data] for name in data[0]}
        data = {name: plain(x) for name, x in data.items()}
        is_batch = not data["input_ids"] or is_list(plain(data["input_ids"][0]))
        data = {name: [*map(plain, x)] if is_batch else [x] for name, x in data.items()}
        if options.get("return_attention_mask") is not False:
            data.setdefault("attention_mask", [[1] * len(x) for x in data["input_ids"]])
        padding = _choose("padding", padding, _PADDINGS)
        length = max(map(len, data["input_ids"]), default=0)
        if padding == "max_length":
            length = self.model_max_length if max_length is None else max_length
        length = 0 if padding == "do_not_pad" or length >= UNLIMITED else length
        length = -(-length // multiple) * multiple
        is_left = (padding_side or self.padding_side) == "left"
        values = {**_COLUMNS, "input_ids": self.pad_token_id}
        values["labels"] = options.get("label_pad_token_id", -100)
        for name, value in values.items():
            for index, row in enumerate(data.get(name, ())):
                if not is_list(row):
                    break  # a label of a text
                pads = [value] * (length - len(row))
                data[name][index] = [*pads, *row] if is_left else [*row, *pads]
        tensors = options.get("return_tensors")
        if not is_batch and not tensors:
            data = {name: x[0] for name, x in data.items()}
        return BatchEncoding(data, tensor_type=tensors)


class BertTokenizerFast(BertTokenizer):
    """`BertTokenizer` with the overflow, truncation and decoding of transformers' fast one."""

    is_fast: ClassVar[bool] = True

    def convert_tokens_to_string(self, tokens: Sequence[str]) -> str:
        """Joins tokens to a text, without spaces before punctuation."""
        parts = [f" {token}".removeprefix(" ##") for token in tokens]
        return "".join(map(self.clean_up_tokenization, parts)).removeprefix(" ")


AutoTokenizer = BertTokenizerFast


def _text(ids: list[int], tokens: list[str], kind: int) -> _Text:
    """Returns a text whose offsets are not known."""
    counts = itertools.accumulate(not token.startswith("##") for token in tokens)
    words = [count - 1 for count in counts]
    return [ids, [(0, 0)] * len(ids), words, [kind] * len(ids), tokens]


def _is_text(value: Any, options: Mapping[str, Any]) -> bool:
    """Returns whether a value is a text, maybe as a list of words, and not a list of texts."""
    nested = is_list(value) and len(value) > 0 and is_list(value[0])
    return not (is_list(value) and (nested or not options.get("is_split_into_words")))


def _choose(name: str, value: Any, choices: Sequence[str]) -> str:
    """Returns one of the choices; True is the first, False the last."""
    value = choices[0 if value else -1] if isinstance(value, bool) else value
    if value not in choices:
        raise UserError(f"{name} must be one of {', '.join(choices)}. Received: {value!r}")
    return value


def _truncate(lengths: list, excess: int, strategy: str, stride: int | None, is_fast: bool) -> Any:
    """Returns the ranges of tokens of the rows of a text or pair that is too long by `excess`.

    With a `stride`, tokens that do not fit are in more rows. As in transformers, the slow tokenizer
    leaves a row as it is if a strategy cannot shorten it enough; and if an odd number of tokens is
    left of a pair, the first text keeps one more, but with the fast tokenizer the longer one.
    """
    sizes, index = [*lengths], int(strategy == "only_second")
    if excess > 0 and strategy == "longest_first" and len(lengths) == 2:
        room = max(0, sum(lengths) - excess)
        short = min(*lengths, room // 2)
        first_is_short = lengths[0] <= lengths[1] and (is_fast or short == lengths[0])
        sizes = [short, room - short] if first_is_short else [room - short, short]
    elif excess > 0 and strategy != "do_not_truncate":
        if index < len(lengths) and lengths[index] > excess:
            sizes[index] -= excess
        elif is_fast:
            raise UserError(f"truncation={strategy!r} cannot shorten a text to max_length")
    ranges = [[(0, size)] for size in sizes]
    for found, length, size in zip(ranges, lengths, sizes, strict=True):
        if stride is not None and size < length:
            if stride >= size:
                raise UserError(f"stride must be less than {size}, which fit. Received: {stride}")
            starts = range(size - stride, length - stride, size - stride)
            found += [(start, min(start + size, length)) for start in starts]
    # The first row, then other windows of the first text, then those of the second only.
    first, *others = itertools.product(*ranges)
    return [first, *sorted(others, key=lambda spans: spans[0] == first[0])]
