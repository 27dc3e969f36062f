"""Ids of the tokens of many texts at once: the reference's ids, at the speed of compiled code.

`tokenization.FullTokenizer` is the reference. Texts of an `Alphabet`, which is most of the English,
go to a `WordTable`. Others are cleaned by NumPy and cut, as the words that are new to the table, by
TensorFlow Text's `FastWordpieceTokenizer` (Song et al. 2021, "Fast WordPiece Tokenization"). A
text with something that these would not do in the same way is found and handed to the reference.
Where TensorFlow Text is not installed, all texts are.
"""

import functools
import itertools
import logging
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bert_tf.alphabet import BETWEEN, Alphabet
from bert_tf.character_table import BREAKS, CHANGES, ODD, CharacterTable
from bert_tf.fast_wordpiece import LONGEST_WORD, TOO_LONG, UNKNOWN, fast_wordpiece, ids_of, lines_of
from bert_tf.token_ids import TokenIds
from bert_tf.token_offsets import tokenize_with_offsets
from bert_tf.tokenization import FullTokenizer, convert_to_unicode
from bert_tf.word_table import WordTable

_logger = logging.getLogger(__name__)
# For the warning of unknown tokens.
_SAMPLE, _FEWEST_UNKNOWN, _UNKNOWN_SHARE, _WORDS_SHOWN = 2000, 5, 0.05, 5

# Characters and texts that are worked on together, but for a longer text: they fit into the caches.
_TEXTS_TOGETHER = 4096
_CHARS_TOGETHER = 1 << 19

# A portion that has more new words, and more than one for so many characters: it is faster to cut
# all, so the next portions, of whatever text, pass the word table.
_MANY_NEW_WORDS, _CHARS_OF_A_NEW_WORD = 4096, 25
_PORTIONS_PASSED = 16

# About what the compiled code takes to be made, and the reference for a character of a text, with
# spans, and for a new word, by the square of its length: all in nanoseconds.
_TIME_TO_COMPILE = 300_000_000
_TIME_OF_CHARACTER, _TIME_OF_CHARACTER_WITH_SPANS, _TIME_OF_WORD = 200, 2000, 75


@dataclass(frozen=True)
class _Cleaned:
    """Normalized texts.

    Attributes:
        strings: the texts.
        is_odd: bool [B]; these the reference has to do.
        codes: uint32 [M]; the characters of all texts, one text after the other.
        counts: uint8 [N]; how many of them each character of the given texts gave.
        borders: int64 [B + 1]; where the given texts begin and end in `counts`.
    """

    strings: list[Any]
    is_odd: np.ndarray
    codes: np.ndarray
    counts: np.ndarray
    borders: np.ndarray


class BatchTokenizer:
    """Turns texts into ids as a `FullTokenizer` does, many at once.

    The compiled code is made when the reference has worked for about as long as that takes, so for
    few texts never. TensorFlow is not imported before: it must not compute anything before a script
    has chosen its devices.

    Args:
        tokenizer: the reference; its vocabulary must not change any more.

    Attributes:
        texts: how many were turned into ids.
        handed_back: how many of them by the reference.
        warned: files with many unknown tokens.
    """

    def __init__(self, tokenizer: FullTokenizer) -> None:
        self.reference = tokenizer
        self.texts = self.handed_back = 0
        self.warned: set[str] = set()
        # Of counters, clock, compiled code and character table; word tables and the alphabet have
        # ways of their own.
        self._lock = threading.Lock()
        self._portions_to_pass = 0
        # That the reference has worked, in nanoseconds.
        self._time = 0
        # None where words may have no id.
        self._alphabet: Alphabet | None = None
        if UNKNOWN in tokenizer.vocab:
            self._alphabet = Alphabet(tokenizer.basic_tokenizer, self._encode_words)
        # Those that no thread uses now.
        self._word_tables: list[WordTable] = []

    def encode(self, texts: Sequence[str | bytes], *, with_spans: bool = False) -> TokenIds:
        """Ids of the tokens of each text, without special tokens.

        Args:
            texts: any texts.
            with_spans: whether to say which characters each token comes from; takes one and a half
                times the time, in English seven times.

        Raises:
            ValueError: a text is neither str nor bytes.
            KeyError: the vocabulary has no `[UNK]`, and a text needs it.
        """
        # A list of our own, as the caller's may change meanwhile.
        strings: list[Any] = list(texts)
        if not strings:
            return TokenIds.from_lists([], [] if with_spans else None)
        with self._lock:
            self.texts += len(strings)
        parts = self._encode_any if with_spans or not self._alphabet else self._encode_simple
        return TokenIds.concatenate(
            [parts(texts, joined, with_spans) for texts, joined in _portions(strings)]
        )

    def warn_of_unknown(self, name: str, examples: Sequence[Sequence[str]]) -> None:
        """Warns once of a file where more than 5 % of the tokens are `[UNK]`, by a sample of its
        examples, each of which is texts or words."""
        sample = [" ".join(example) for example in examples[:: max(len(examples) // _SAMPLE, 1)]]
        ids, reference = self.encode(sample).ids, self.reference
        unknown = int((ids == reference.vocab.get(UNKNOWN)).sum())
        if unknown < max(_FEWEST_UNKNOWN, _UNKNOWN_SHARE * len(ids)) or name in self.warned:
            return
        self.warned.add(name)
        cut, split = reference.wordpiece_tokenizer.cut, reference.basic_tokenizer.tokenize
        words = Counter(word for text in sample for word in split(text) if cut(word) == [UNKNOWN])
        named = ", ".join(f"{word:.30}" for word, _ in words.most_common(_WORDS_SHOWN))
        share = f"{100 * unknown / len(ids):.1f} % of the tokens ({unknown} of {len(ids)})"
        advice = "Check the vocabulary, --do_lower_case and the encoding of the file"
        _logger.warning("%s: %s are [UNK], most often for %s. %s", name, share, named, advice)

    @functools.cached_property
    def _fast(self) -> Any:
        """From normalized texts to ids; None where the reference has to do everything."""
        vocab = self.reference.vocab
        return fast_wordpiece(lines_of(vocab)) if UNKNOWN in vocab else None

    def _is_compiled(self, time: int) -> bool:
        """Whether compiled code is to do what would take the reference so many nanoseconds."""
        with self._lock:
            self._time += time
            return self._time >= _TIME_TO_COMPILE and self._fast is not None

    @functools.cached_property
    def _table(self) -> CharacterTable:
        fast = fast_wordpiece([UNKNOWN, "a", "b"])
        return CharacterTable(
            self.reference.basic_tokenizer, lambda texts: fast.tokenize(texts).to_list()
        )

    def _encode_simple(self, texts: list[str], joined: str, with_spans: bool = False) -> TokenIds:
        """Ids of texts, by a word table where they are of its alphabet."""
        alphabet = self._alphabet
        if not alphabet or self._passes_the_table():
            return self._encode_any(texts, joined, with_spans)
        simple, others = alphabet.encode(joined)
        if len(others) == len(texts):
            return self._encode_any(texts, joined, with_spans)
        try:
            table = self._word_tables.pop()
        except IndexError:
            size = max(self.reference.vocab.values()) + 1
            table = WordTable(
                alphabet.sign_ids, lambda words: self._encode_words(alphabet.decode(words)), size
            )
        found = table.encode(simple)
        if table.new_words > max(_MANY_NEW_WORDS, len(simple) // _CHARS_OF_A_NEW_WORD):
            with self._lock:
                self._portions_to_pass = _PORTIONS_PASSED
        self._word_tables.append(table)
        if len(found) != len(texts):
            # A text has a NUL, and is taken for several. The tokenizer drops it.
            texts = [text.replace(BETWEEN, "") for text in texts]
            return self._encode_simple(texts, BETWEEN.join(texts))
        if not others:
            return found
        rest = [texts[row] for row in others]
        return _put(found, others, self._encode_any(rest, BETWEEN.join(rest)))

    def _passes_the_table(self) -> bool:
        with self._lock:
            passed = self._portions_to_pass > 0
            self._portions_to_pass -= passed
        return passed

    def _encode_words(self, words: list[str]) -> TokenIds:
        if not self._is_compiled(0):
            work = sum(len(word) ** 2 for word in words if len(word) <= LONGEST_WORD)
            if not self._is_compiled(_TIME_OF_WORD * work):
                return self._cut(words)
        cut = [word if len(word) <= LONGEST_WORD else TOO_LONG for word in words]
        # What are letters beyond ASCII, the compiled code sees in its own way.
        rest = [row for row, word in enumerate(words) if not word.isascii()]
        for row in rest:
            cut[row] = ""
        return _put(ids_of(self._fast, cut), rest, self._cut([words[row] for row in rest]))

    def _cut(self, words: list[str]) -> TokenIds:
        vocab, cut = self.reference.vocab, self.reference.wordpiece_tokenizer.cut
        return TokenIds.from_lists([[vocab[piece] for piece in cut(word)] for word in words])

    def _encode_any(self, texts: list[str], joined: str, with_spans: bool = False) -> TokenIds:
        of_one = _TIME_OF_CHARACTER_WITH_SPANS if with_spans else _TIME_OF_CHARACTER
        if not self._is_compiled(of_one * len(joined)):
            return self._by_reference(texts, with_spans)
        return self._encode_with_spans(texts) if with_spans else self._encode(texts)

    def _encode(self, texts: list[str]) -> TokenIds:
        cleaned = self._clean(texts)
        ids = ids_of(self._fast, _without(cleaned.strings, cleaned.is_odd))
        return self._hand_back(ids, texts, cleaned.is_odd)

    def _encode_with_spans(self, texts: list[str]) -> TokenIds:
        cleaned = self._clean(texts)
        found, *ends = self._fast.tokenize_with_offsets(_without(cleaned.strings, cleaned.is_odd))
        starts, ends = (places.values.numpy() for places in ends)
        row_splits = found.row_splits.numpy()
        spans = _spans(cleaned, np.repeat(np.arange(len(texts)), np.diff(row_splits)), starts, ends)
        ids = TokenIds(found.values.numpy(), row_splits, spans)
        return self._hand_back(ids, texts, cleaned.is_odd)

    def _hand_back(self, ids: TokenIds, texts: list[str], is_odd: np.ndarray) -> TokenIds:
        """Has the reference do what is left to it."""
        rows = np.flatnonzero(is_odd).tolist()
        if not rows:
            return ids
        return _put(ids, rows, self._by_reference([texts[r] for r in rows], ids.spans is not None))

    def _by_reference(self, texts: Sequence[str], with_spans: bool) -> TokenIds:
        with self._lock:
            self.handed_back += len(texts)
        reference = self.reference
        if not with_spans:
            tokens, spans = [reference.tokenize(text) for text in texts], None
        else:
            both = [tokenize_with_offsets(reference, text) for text in texts]
            tokens, spans = [token for token, _ in both], [span for _, span in both]
        return TokenIds.from_lists([reference.convert_tokens_to_ids(row) for row in tokens], spans)

    def _clean(self, texts: list[str]) -> _Cleaned:
        codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), np.uint32)
        with self._lock:
            kinds = self._table.kinds(codes)
        borders = np.concatenate([[0], np.cumsum([len(text) for text in texts])])
        found = np.bitwise_or.reduce(kinds, initial=0)
        is_odd = np.zeros(len(texts), bool)
        if found & ODD:
            is_odd[np.searchsorted(borders, np.flatnonzero(kinds & ODD), "right") - 1] = True
        # In a cased vocabulary most texts are clean as they are.
        strings, ends, counts = list(texts), np.arange(len(codes) + 1), np.ones_like(kinds)
        if found & CHANGES:
            codes, counts = self._table.normalize(codes)
            ends = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
            text = codes.tobytes().decode("utf-32-le")
            strings = [text[a:b] for a, b in itertools.pairwise(ends[borders].tolist())]
        if max(map(len, strings)) > LONGEST_WORD:
            at = np.union1d(np.flatnonzero(kinds & BREAKS), borders[:-1])
            long = np.diff(np.concatenate([ends[at], ends[-1:]])) > LONGEST_WORD
            is_odd[np.searchsorted(borders, at[long], "right") - 1] = True
        return _Cleaned(strings, is_odd, codes, counts, borders)


def _put(ids: TokenIds, rows: list[int], others: TokenIds) -> TokenIds:
    """Puts texts where there are empty ones, in rows that rise."""
    cuts = ids.row_splits[rows].tolist()
    bounds = list(zip([0, *cuts], [*cuts, len(ids.ids)], strict=True))
    ends = others.row_splits.tolist()

    def merged(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
        parts = [ours[begin:end] for begin, end in bounds]
        put = [theirs[begin:end] for begin, end in itertools.pairwise(ends)]
        return np.concatenate([*itertools.chain(*zip(parts, put, strict=False)), parts[-1]])

    lengths = ids.lengths
    lengths[rows] = others.lengths
    return TokenIds(
        merged(ids.ids, others.ids),
        np.concatenate([[0], np.cumsum(lengths)]),
        None if ids.spans is None or others.spans is None else merged(ids.spans, others.spans),
    )


def _without(strings: list[Any], is_odd: np.ndarray) -> list[Any]:
    for row in np.flatnonzero(is_odd):
        strings[row] = ""
    return strings


def _spans(cleaned: _Cleaned, rows: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """From the bytes that tokens come from to characters.

    Args:
        cleaned: the texts.
        rows: int64 [N]; the text of each token.
        starts: int64 [N]; the first byte of each in the UTF-8 of its normalized text.
        ends: int64 [N]; the first byte after it.

    Returns:
        Where the characters begin and end in the texts as they were given, int32 [N, 2].
    """
    # Of every normalized character: where its bytes end, and the character that gave it.
    codes = cleaned.codes
    sizes = 1 + (codes >= 0x80) + (codes >= 0x800) + (codes >= 0x10000)
    last_bytes = np.cumsum(sizes)
    sources = np.repeat(np.arange(len(cleaned.counts)), cleaned.counts)
    places = np.concatenate([[0], np.cumsum(cleaned.counts, dtype=np.int64)])[cleaned.borders[rows]]
    first_bytes = np.concatenate([[0], last_bytes])[places]
    first = sources[np.searchsorted(last_bytes, first_bytes + starts, "right")]
    last = sources[np.searchsorted(last_bytes, first_bytes + ends - 1, "right")]
    spans = np.stack([first, last + 1], axis=1) - cleaned.borders[rows, None]
    return spans.astype(np.int32)


def _portions(texts: list[Any]) -> Iterator[tuple[list[str], str]]:
    """Some texts after the other, and the same joined."""
    for first in range(0, len(texts), _TEXTS_TOGETHER):
        waiting = [texts[first : first + _TEXTS_TOGETHER]]
        while waiting:
            part = waiting.pop()
            try:
                joined = BETWEEN.join(part)
            except TypeError:  # Not all are str.
                part = [*map(convert_to_unicode, part)]
                joined = BETWEEN.join(part)
            if len(joined) > _CHARS_TOGETHER and len(part) > 1:
                waiting += [part[len(part) // 2 :], part[: len(part) // 2]]
            else:
                yield part, joined
