"""WordPiece tokenization, with exactly the tokens of the original BERT release of 2018.

This module has the names of the original's module `tokenization`, and needs no TensorFlow. The
other modules of the package return the same tokens: `fast` tokenizes many texts at once, and maps
tokens to the characters they come from; `graph` is for TensorFlow graphs. As in the original,
character categories and lower case come from Python's Unicode database, so the tokens of recently
added characters may depend on its version (`unicodedata.unidata_version`).
"""

import functools
import hashlib
import itertools
import re
import string
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NoReturn, TypeVar

from bert_tf.base import files
from bert_tf.base.errors import warn
from bert_tf.base.foreign_names import ExplainsNames
from bert_tf.tokenization.casing import (
    validate_case_matches_checkpoint as validate_case_matches_checkpoint,
)
from bert_tf.tokenization.casing import warn_if_cased
from bert_tf.tokenization.special_tokens import place, unmarked

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

# First and last code points of the blocks in which each character is a word by itself. Kana, Hangul
# and extensions after E are not included, as in the original: this would change the tokens.
_CJK_BLOCKS = (
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2CEAF),
    (0x2F800, 0x2FA1F),
)


def convert_to_unicode(text: str | bytes) -> str:
    """Returns a text as a string; decodes bytes as UTF-8, without invalid bytes.

    Raises a ValueError if the text is neither str nor bytes.
    """
    if isinstance(text, str):
        return text
    if isinstance(text, bytes):
        return text.decode("utf-8", "ignore")
    raise ValueError(f"Text must be str or bytes, not {type(text).__name__}: {text!r:.100}")


# In Python 2, the original's two functions differ.
printable_text = convert_to_unicode


def load_vocab(vocab_file: str) -> dict[str, int]:
    """Reads a vocabulary with one token per line; returns token -> id, the line number from 0.

    As in the original, whitespace around a token is stripped, a blank line is the empty token, a
    token on several lines has the id of the last, and a byte order mark is part of the first token.
    """
    lines = files.read_small_file_lines(vocab_file)
    return {line.strip(): index for index, line in enumerate(lines)}


def vocab_digest(vocab: Mapping[str, int]) -> str:
    """Returns a digest of the tokens and ids of a vocabulary."""
    items = sorted(vocab.items(), key=lambda item: item[1])
    lines = [f"{token_id} {token}" for token, token_id in items]
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()


def convert_by_vocab(vocab: Mapping[_Key, _Value], items: Iterable[_Key]) -> list[_Value]:
    """Looks up items in a vocabulary; as in the original, a missing item raises a KeyError."""
    if isinstance(items, str):
        raise TypeError(f"Pass a list of tokens, not a text. Received: {items!r:.100}")
    return [vocab[item] for item in items]


def convert_tokens_to_ids(vocab: Mapping[str, int], tokens: Iterable[str]) -> list[int]:
    """Returns the ids of tokens, see `convert_by_vocab`."""
    return convert_by_vocab(vocab, tokens)


def convert_ids_to_tokens(inv_vocab: Mapping[int, str], ids: Iterable[int]) -> list[str]:
    """Returns the tokens of ids, see `convert_by_vocab`."""
    return convert_by_vocab(inv_vocab, ids)


def whitespace_tokenize(text: str) -> list[str]:
    """Splits at whitespace, as `str.split` does."""
    return text.split()


def is_whitespace(char: str) -> bool:
    """Returns whether cleaning replaces a character with a space; U+2028 and U+2029 are kept."""
    return char in "\t\n\r" or unicodedata.category(char) == "Zs"


def is_control(char: str) -> bool:
    """Returns whether a character is a control or format character other than tab, LF and CR."""
    return char not in "\t\n\r" and unicodedata.category(char) in ("Cc", "Cf")


def is_punctuation(char: str) -> bool:
    """Returns whether a character is punctuation or an ASCII symbol such as `$` and `^`."""
    return char in string.punctuation or unicodedata.category(char).startswith("P")


# The names of these functions in the original.
_is_whitespace, _is_control, _is_punctuation = is_whitespace, is_control, is_punctuation


def is_cjk(char: str) -> bool:
    """Returns whether a character is a CJK ideograph, each of which is a word by itself."""
    code = ord(char)
    return any(first <= code <= last for first, last in _CJK_BLOCKS)


class _TranslationTable(dict[int, str]):
    """A table for `str.translate` that computes the replacement of a character on first use."""

    def __init__(self, replace: Callable[[str], str]) -> None:
        super().__init__()
        self._replace = replace

    def __missing__(self, code: int) -> str:
        self[code] = replacement = self._replace(chr(code))
        return replacement


def clean_char(char: str) -> str:
    """Returns a character after cleaning: "", a space, or itself (between spaces if CJK)."""
    if char in "\0\ufffd" or is_control(char):
        return ""
    if is_whitespace(char):
        return " "
    return f" {char} " if is_cjk(char) else char


def _space_punctuation(char: str) -> str:
    return f" {char} " if is_punctuation(char) else char


def _strip_accents(char: str) -> str:
    return "" if unicodedata.category(char) == "Mn" else _space_punctuation(char)


_CLEAN = _TranslationTable(clean_char)
_SPACE_PUNCTUATION = _TranslationTable(_space_punctuation)
_STRIP_ACCENTS = _TranslationTable(_strip_accents)
# A run with all marks, and perhaps other characters; so many marks in a row are no language.
_MANY_MARKS = re.compile(r"[^\0-\u02ff\w]{16,}")
_nfd = functools.partial(unicodedata.normalize, "NFD")


def decompose(text: str) -> str:
    """Returns the canonical decomposition of a text, `unicodedata.normalize("NFD", text)`."""
    # Python sorts marks by insertion, in quadratic time unless they are sorted already.
    return _nfd(_MANY_MARKS.sub(_sort_marks, text))


def _sort_marks(found: re.Match[str]) -> str:
    chars = "".join(map(_nfd, found[0]))
    runs = itertools.groupby(chars, lambda char: unicodedata.combining(char) > 0)
    sorted_runs = (sorted(run, key=unicodedata.combining) for _, run in runs)
    return "".join(itertools.chain.from_iterable(sorted_runs))


def special_pattern(texts: Collection[str]) -> str:
    """Returns a regular expression that finds the longest special token at a place, in a group."""
    # For thousands of tokens, one branch for each first character is faster.
    branches: dict[str, list[str]] = {}
    for text in sorted(texts, key=len, reverse=True):
        branches.setdefault(re.escape(text[:1]), []).append(re.escape(text[1:]))
    starts = (f"{first}(?:{'|'.join(ends)})" for first, ends in branches.items())
    return f"({'|'.join(starts)})"


class BasicTokenizer:
    """Splits texts into words; punctuation characters and CJK ideographs are words by themselves.

    Args:
        do_lower_case: whether to lower-case words.
        strip_accents: whether to strip accents; by default, as in the original, if `do_lower_case`.
        special_tokens: strings that are kept as words wherever they occur, see `special_tokens`.
        pretokenized: whether to split only at whitespace, and change nothing.
    """

    def __init__(
        self,
        do_lower_case: bool = True,
        strip_accents: bool | None = None,
        special_tokens: Collection[str] = (),
        pretokenized: bool = False,
    ) -> None:
        strip_accents = do_lower_case if strip_accents is None else strip_accents
        self.do_lower_case = do_lower_case and not pretokenized
        self.strip_accents = strip_accents and not pretokenized
        self.pretokenized = pretokenized
        self._folds = _TranslationTable(self._fold)
        self.marked_tokens: list[str] = []
        self.keep(special_tokens)

    def keep(self, special_tokens: Collection[str]) -> None:
        """Adds special tokens."""
        self.marked_tokens = [*dict.fromkeys([*self.marked_tokens, *special_tokens])]
        self.special_tokens = [*map(unmarked, self.marked_tokens)]
        # What is found in a text -> the token; first in texts as they are, then in folded ones.
        exact: dict[str, str] = {}
        folded: dict[str, str] = {}
        for token, text in zip(self.marked_tokens, self.special_tokens, strict=True):
            if token == text:
                exact[text] = text
            elif form := text.translate(self._folds):
                folded[form] = text
        self.special_forms = exact, folded
        self._patterns = [re.compile(special_pattern(forms)) for forms in self.special_forms]

    def _fold(self, char: str) -> str:
        """Returns a character as `(?i)` sees it: normalized, but punctuation is not yet a word."""
        return char if is_punctuation(char) else self._normalize(char)

    def split(self, text: str) -> Iterator[tuple[str, str | None]]:
        """Splits a text at special tokens; yields each part, and which of them it is, if any."""
        exact, folded = self.special_forms
        for index, part in enumerate(self._patterns[0].split(text) if exact else [text]):
            if index % 2:
                yield part, exact[part]
            elif folded:
                yield from self._split_folded(part)
            else:
                yield part, None

    def _split_folded(self, text: str) -> Iterator[tuple[str, str | None]]:
        """Like `split`, for the tokens that are found in any spelling."""
        chars = [self._folds[ord(char)] for char in text]
        # The index in `text` of each character of the folded text.
        sources = [i for i, char in enumerate(chars) for _ in char] + [len(text)]
        last = 0
        for found in self._patterns[1].finditer("".join(chars)):
            start, end = sources[found.start()], sources[found.end()]
            yield text[last:start], None
            yield text[start:end], self.special_forms[1][found[0]]
            last = end
        yield text[last:], None

    def tokenize(self, text: str | bytes) -> list[str]:
        """Returns the words of a text; as in the original, `[MASK]` becomes `[`, `mask`, `]`."""
        return whitespace_tokenize(self.normalize(convert_to_unicode(text)))

    def normalize(self, text: str) -> str:
        """Cleans a text, and separates its words with whitespace; see `tokenize`."""
        parts = self.split(text)
        return "".join(f" {token} " if token else self._normalize(part) for part, token in parts)

    def _normalize(self, text: str) -> str:
        if self.pretokenized:
            return text
        text = text.translate(_CLEAN)
        text = text.lower() if self.do_lower_case else text
        if not self.strip_accents:
            return text.translate(_SPACE_PUNCTUATION)
        # The original first splits the text into words. That gives the same result, as final sigmas
        # and the order of combining characters do not depend on anything beyond whitespace, and no
        # character becomes whitespace here. The result is not composed again: Hangul becomes jamo.
        return decompose(text).translate(_STRIP_ACCENTS)


class WordpieceTokenizer:
    """Splits words greedily into the longest pieces in the vocabulary, from left to right.

    All pieces of a word but the first begin with `##`. A word that cannot be split into known
    pieces, or has more than `max_input_chars_per_word` characters, becomes `unk_token`.
    """

    def __init__(
        self,
        vocab: Mapping[str, int],
        unk_token: str = "[UNK]",
        max_input_chars_per_word: int = 200,
    ) -> None:
        self.vocab = vocab
        self.unk_token = unk_token
        self.max_input_chars_per_word = max_input_chars_per_word

    def tokenize(self, text: str | bytes) -> list[str]:
        """Returns the pieces of all words in a text whose words are separated by whitespace."""
        pieces: list[str] = []
        for word in whitespace_tokenize(convert_to_unicode(text)):
            pieces.extend(self.split_word(word))
        return pieces

    def split_word(self, word: str) -> list[str]:
        """Returns the pieces of a word."""
        if len(word) > self.max_input_chars_per_word:
            return [self.unk_token]
        pieces: list[str] = []
        start, prefix = 0, ""
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = prefix + word[start:end]
                if piece in self.vocab:
                    break
            else:
                # No piece in the vocabulary begins here, which makes the whole word unknown.
                return [self.unk_token]
            pieces.append(piece)
            start, prefix = end, "##"
        return pieces


class FullTokenizer(ExplainsNames):
    """Converts texts to WordPiece tokens, and tokens to ids and back.

    Args:
        vocab_file: path of the vocabulary, see `load_vocab`.
        do_lower_case: must match the model: True if it is uncased, False if it is cased.
        strip_accents: see `BasicTokenizer`.
        special_tokens: strings that stay one piece, a list or as in `special_tokens.place`, whose
            names replace the unused ones in `vocab`.
        pretokenized: see `BasicTokenizer`.

    Raises:
        UserError: the vocabulary cannot be read, or has no place for the special tokens.
        ValueError: `do_lower_case` is a string.
    """

    def __init__(
        self,
        vocab_file: str,
        do_lower_case: bool = True,
        strip_accents: bool | None = None,
        special_tokens: str | Iterable[str] | None = None,
        pretokenized: bool = False,
    ) -> None:
        # Accept other types, because the value of a TensorFlow Hub module is a NumPy bool. A string
        # such as "False" would count as True.
        if isinstance(do_lower_case, str):
            raise ValueError(f"do_lower_case must be True or False. Received: {do_lower_case!r}")
        self.vocab = load_vocab(vocab_file)
        if "[UNK]" not in self.vocab:
            warn(f"{vocab_file} has no [UNK]: is it a BERT vocabulary?")
        kept: list[str] = []
        if special_tokens:
            is_text = isinstance(special_tokens, str)
            listed = special_tokens if is_text else ",".join(special_tokens)
            self.vocab, kept = place(listed, self.vocab)
        if do_lower_case and not pretokenized:
            special = {*map(unmarked, kept)}
            warn_if_cased(vocab_file, [token for token in self.vocab if token not in special])
        self.inv_vocab = {index: token for token, index in self.vocab.items()}
        self.basic_tokenizer = BasicTokenizer(do_lower_case, strip_accents, kept, pretokenized)
        self.wordpiece_tokenizer = WordpieceTokenizer(vocab=self.vocab)

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raises a UserError, as `from_pretrained` does: `bert_tf.encode` returns model inputs."""
        self.from_pretrained()

    def tokenize(self, text: str | bytes) -> list[str]:
        """Returns the WordPiece tokens of a text, as in the original."""
        basic, tokens = self.basic_tokenizer, []
        for part, token in basic.split(convert_to_unicode(text)):
            if token:
                tokens.append(token)
            else:
                tokens += self.wordpiece_tokenizer.tokenize(basic.normalize(part))
        return tokens

    def convert_tokens_to_ids(self, tokens: Iterable[str]) -> list[int]:
        """Returns the ids of tokens; raises a KeyError if one is not in the vocabulary."""
        return convert_by_vocab(self.vocab, tokens)

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """Returns the tokens of ids; raises a KeyError if one is not in the vocabulary."""
        return convert_by_vocab(self.inv_vocab, ids)
