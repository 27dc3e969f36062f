"""WordPiece tokenization, string for string as the original release of 2018 does it.

A text becomes tokens in two steps: `BasicTokenizer` cleans it and cuts it into words and
punctuation, `WordpieceTokenizer` cuts the words into pieces of the vocabulary. `FullTokenizer`
does both and turns the tokens into ids.

Which characters are letters, marks or punctuation, and what their lower case is, comes from the
Unicode database of the running Python (`unicodedata.unidata_version`), as in the original: texts
with characters that are newer than it can come out differently under another Python version.

This module is the reference that faster implementations are compared with. It needs no
TensorFlow.
"""

import re
import string
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

from bert_tf import files, releases
from bert_tf.errors import UserError

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

# First and last code point of the blocks that get spaces around each character. Kana, Hangul and
# the extensions after E are not among them: changing that would change the tokens of the
# published models.
_CJK_BLOCKS = (
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2CEAF),
    (0x2F800, 0x2FA1F),
)

# The folder of a published checkpoint. The unescaped dot matches any character, as in the
# original; a folder of another name is not judged.
_CHECKPOINT_FOLDER = re.compile("([A-Za-z0-9_-]+)/bert_model.ckpt")
# Of a cased vocabulary a quarter has capitals; the Chinese one, which is not, has two.
_CASED_SHARE = 0.01
_CAPITAL = re.compile("[A-Z]")


def validate_case_matches_checkpoint(do_lower_case: bool, init_checkpoint: str | None) -> None:
    """Checks that `do_lower_case` fits the published model that the checkpoint's folder names.

    As the original, it knows models by the folder that holds their `bert_model.ckpt`, and says
    nothing about any other path. The original knows the seven of 2018; here it is all that are
    in `releases`.

    Args:
        do_lower_case: whether the texts will be lower-cased.
        init_checkpoint: path of the checkpoint; None or empty when there is none.

    Raises:
        UserError: when the model was trained with the other setting.
    """
    found = _CHECKPOINT_FOLDER.search(init_checkpoint) if init_checkpoint else None
    if not found:
        return
    folder = found.group(1)
    release = releases.named(folder)
    if release is None or release.cased != do_lower_case:
        return
    if release.cased:
        given, needed, kind = "true", "false", "a cased model"
    else:
        given, needed, kind = "false", "true", "an uncased model"
    raise UserError(
        f"--do_lower_case={given} does not fit --init_checkpoint={init_checkpoint}: by the name "
        f"{folder} this is {kind}, so its texts must be prepared as in its training. Pass "
        f"--do_lower_case={needed}; if the name misleads, rename the folder and no check is made."
    )


def convert_to_unicode(text: str | bytes) -> str:
    """Returns text as a string; bytes are read as UTF-8, and what is not UTF-8 in them is dropped.

    Raises:
        ValueError: for any other type, as the original release.
    """
    if isinstance(text, str):
        return text
    if isinstance(text, bytes):
        return text.decode("utf-8", "ignore")
    raise ValueError(f"Text must be str or bytes, not {type(text).__name__}: {text!r:.100}")


def printable_text(text: str | bytes) -> str:
    """The same as `convert_to_unicode`; the original release has both because of Python 2."""
    return convert_to_unicode(text)


def load_vocab(vocab_file: str) -> dict[str, int]:
    """Reads a vocabulary: one token per line, its id is the number of the line from 0.

    As the original release: space around a token is dropped, a blank line takes an id as the
    empty token, and of a token that comes twice the later id counts while the earlier place in
    the order of iteration stays. A byte order mark is part of the first token.

    Args:
        vocab_file: path of the UTF-8 file.

    Raises:
        UserError: when the file cannot be read, is not UTF-8, is a pipe, or too large.
    """
    vocab: dict[str, int] = {}
    for index, line in enumerate(files.read_small_lines(vocab_file)):
        vocab[line.strip()] = index
    return vocab


def count_capitals(pieces: Iterable[str]) -> int:
    """How many pieces have a capital letter of the Latin alphabet, `[CLS]` and its like aside."""
    with_capitals = filter(_CAPITAL.search, pieces)
    return sum(1 for piece in with_capitals if not (piece[0] == "[" and piece[-1] == "]"))


def is_cased(pieces: Collection[str]) -> bool:
    """Whether a vocabulary is of a cased model, as far as its pieces tell."""
    return count_capitals(pieces) > _CASED_SHARE * len(pieces)


def convert_by_vocab(vocab: Mapping[_Key, _Value], items: Iterable[_Key]) -> list[_Value]:
    """Looks every item up; one that is not there is a KeyError, as in the original release."""
    return [vocab[item] for item in items]


def convert_tokens_to_ids(vocab: Mapping[str, int], tokens: Iterable[str]) -> list[int]:
    """Returns the ids of tokens, as `convert_by_vocab`."""
    return convert_by_vocab(vocab, tokens)


def convert_ids_to_tokens(inv_vocab: Mapping[int, str], ids: Iterable[int]) -> list[str]:
    """Returns the tokens of ids, as `convert_by_vocab`."""
    return convert_by_vocab(inv_vocab, ids)


def whitespace_tokenize(text: str) -> list[str]:
    """Splits at whitespace of any kind, in the sense of `str.split`."""
    return text.split()


def is_whitespace(char: str) -> bool:
    """Whether cleaning turns the character into a space.

    The line and paragraph separators (U+2028, U+2029) are not among them; `whitespace_tokenize`
    splits at them all the same.
    """
    return char in "\t\n\r" or unicodedata.category(char) == "Zs"


def is_control(char: str) -> bool:
    """Whether it is a control or format character other than tab, line feed, carriage return."""
    return char not in "\t\n\r" and unicodedata.category(char) in ("Cc", "Cf")


def is_punctuation(char: str) -> bool:
    """Whether it is punctuation; of ASCII also what Unicode calls a symbol, such as `$` or `^`."""
    return char in string.punctuation or unicodedata.category(char).startswith("P")


# The original's names.
_is_whitespace, _is_control, _is_punctuation = is_whitespace, is_control, is_punctuation


def is_cjk(char: str) -> bool:
    """Whether it is a Chinese ideograph, which becomes a token of its own in every language."""
    code = ord(char)
    return any(first <= code <= last for first, last in _CJK_BLOCKS)


class _Table(dict[int, str]):
    """A table for `str.translate` that asks `replace` about a character when it first comes up."""

    def __init__(self, replace: Callable[[str], str]) -> None:
        super().__init__()
        self._replace = replace

    def __missing__(self, code: int) -> str:
        self[code] = replacement = self._replace(chr(code))
        return replacement


def _clean(char: str) -> str:
    if char in "\0\ufffd" or is_control(char):
        return ""
    if is_whitespace(char):
        return " "
    return f" {char} " if is_cjk(char) else char


def _part(char: str) -> str:
    return f" {char} " if is_punctuation(char) else char


def _strip_and_part(char: str) -> str:
    return "" if unicodedata.category(char) == "Mn" else _part(char)


_CLEAN = _Table(_clean)
_PART = _Table(_part)
_STRIP_AND_PART = _Table(_strip_and_part)


class BasicTokenizer:
    """Cleans a text and cuts it into words, punctuation characters and Chinese ideographs.

    Args:
        do_lower_case: whether to lower-case and to take the accents off.
    """

    def __init__(self, do_lower_case: bool = True) -> None:
        self.do_lower_case = do_lower_case

    def tokenize(self, text: str | bytes) -> list[str]:
        """Returns the words of a text, as the original release.

        Special tokens are not spared: `[MASK]` becomes `[`, `mask`, `]`.

        Raises:
            ValueError: when the text is neither str nor bytes.
        """
        return whitespace_tokenize(self.normalize(convert_to_unicode(text)))

    def normalize(self, text: str) -> str:
        """Cleans a text so far that it only has to be split at whitespace."""
        text = text.translate(_CLEAN)
        if not self.do_lower_case:
            return text.translate(_PART)
        # The original splits into words before this point. It is the same for the whole text at
        # once: neither the choice of the final sigma nor the order of combining characters looks
        # past whitespace, and no character becomes whitespace here.
        # The result stays decomposed: Hangul, for instance, is left as single jamo.
        return unicodedata.normalize("NFD", text.lower()).translate(_STRIP_AND_PART)


class WordpieceTokenizer:
    """Cuts words into the longest pieces that the vocabulary has, from left to right.

    Args:
        vocab: what is looked up in; pieces inside a word begin with `##` there.
        unk_token: stands for a word that cannot be cut into known pieces.
        max_input_chars_per_word: a word of more characters becomes `unk_token`.
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
        """Returns the pieces of all words in a text that needs no cutting but at whitespace."""
        pieces: list[str] = []
        for word in whitespace_tokenize(convert_to_unicode(text)):
            pieces.extend(self.cut(word))
        return pieces

    def cut(self, word: str) -> list[str]:
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
                # One unknown piece makes the whole word unknown.
                return [self.unk_token]
            pieces.append(piece)
            start, prefix = end, "##"
        return pieces


class FullTokenizer:
    """From text to WordPiece tokens, and from tokens to ids and back.

    Args:
        vocab_file: path of the vocabulary, see `load_vocab`.
        do_lower_case: as the vocabulary was made: True for the uncased models.

    Raises:
        UserError: when the vocabulary cannot be read.
    """

    def __init__(self, vocab_file: str, do_lower_case: bool = True) -> None:
        self.vocab = load_vocab(vocab_file)
        self.inv_vocab = {index: token for token, index in self.vocab.items()}
        self.basic_tokenizer = BasicTokenizer(do_lower_case=do_lower_case)
        self.wordpiece_tokenizer = WordpieceTokenizer(vocab=self.vocab)

    def tokenize(self, text: str | bytes) -> list[str]:
        """Returns the WordPiece tokens of a text, as the original release."""
        return self.wordpiece_tokenizer.tokenize(" ".join(self.basic_tokenizer.tokenize(text)))

    def convert_tokens_to_ids(self, tokens: Iterable[str]) -> list[int]:
        """Returns the ids of tokens; a token that the vocabulary lacks is a KeyError."""
        return convert_by_vocab(self.vocab, tokens)

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """Returns the tokens of ids; an id that no token has is a KeyError."""
        return convert_by_vocab(self.inv_vocab, ids)
