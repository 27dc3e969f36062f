"""A byte for each character of the texts that `WordTable` can do, which are most of the English.

Letters and digits of ASCII keep their byte, in lower case where the vocabulary is; the first other
letters that come up get the bytes from `_LETTERS`. What ends a word has a byte behind those: all
white space the same, and each punctuation character another, as long as there are any.
"""

import string
import threading
from collections.abc import Callable

import numpy as np

from bert_tf.character_table import depends_on_neighbours, is_surrogate
from bert_tf.token_ids import TokenIds
from bert_tf.tokenization import BasicTokenizer, is_punctuation

SPACE, BORDER, FIRST_SIGN = 176, 177, 178

# What stands between texts that are joined.
BETWEEN = "\0"

_LETTERS = range(128, SPACE)
# What is left out, and those of ASCII.
_DROPPED = 0x7F
_ASCII_DROPPED = bytes({*range(1, 32), 127} - {*b"\t\n\r"})
# Characters of other texts, and those that were not looked at.
_OTHER, _UNKNOWN = 0xFE, 0xFF
_CODES = 0x10000


class Alphabet:
    """Bytes of characters.

    Args:
        reference: decides what becomes of each character.
        encode_words: gives the ids of single punctuation characters.

    Attributes:
        sign_ids: int32 [256]; the id of each byte from `FIRST_SIGN` on.
    """

    def __init__(
        self, reference: BasicTokenizer, encode_words: Callable[[list[str]], TokenIds]
    ) -> None:
        self._reference = reference
        self._encode_words = encode_words
        codes = bytearray(range(256))
        if reference.do_lower_case:
            codes = codes[:128].lower() + codes[128:]
        for space in b" \t\n\r":
            codes[space] = SPACE
        signs = string.punctuation.encode()
        self._next = FIRST_SIGN + len(signs)
        for code, sign in enumerate(signs, FIRST_SIGN):
            codes[sign] = code
        for dropped in _ASCII_DROPPED:
            codes[dropped] = _DROPPED
        codes[ord(BETWEEN)] = BORDER
        self._of_ascii = bytes(codes)
        self.sign_ids = np.zeros(256, np.int32)
        self.sign_ids[FIRST_SIGN : self._next] = encode_words([*string.punctuation]).ids
        # Letters by their bytes, and the other way round.
        self._letters: dict[int, str] = {}
        self._letter_bytes: dict[str, int] = {}
        self._bytes = np.full(_CODES, _UNKNOWN, np.uint8)
        self._bytes[:128] = np.frombuffer(self._of_ascii, np.uint8, 128)
        self._lock = threading.Lock()

    def encode(self, joined: str) -> tuple[bytes, list[int]]:
        """Bytes of texts, and the numbers of those that have other characters.

        Args:
            joined: texts with `BETWEEN` between them; a text that has it itself counts as several.

        Returns:
            The bytes of the characters of one text after the other, each with `BORDER` behind it,
            and nothing of texts with other characters; the numbers of these.
        """
        if joined.isascii():
            found = joined.encode("ascii").translate(self._of_ascii)
        else:
            found = self._look_up(joined)
        if _DROPPED in found:
            found = found.translate(None, bytes([_DROPPED]))
        others: list[int] = []
        border = bytes([BORDER])
        if _OTHER in found:
            texts = found.split(border)
            others = [row for row, text in enumerate(texts) if _OTHER in text]
            for row in others:
                texts[row] = b""
            found = border.join(texts)
        return found + border, others

    def decode(self, words: list[bytes]) -> list[str]:
        """Words of one character or more, from their bytes."""
        joined = b" ".join(words).decode("latin-1")
        return (joined if joined.isascii() else joined.translate(self._letters)).split(" ")

    def _look_up(self, text: str) -> bytes:
        # A character beyond 16 bits is two surrogates.
        codes = np.frombuffer(text.encode("utf-16-le", "surrogatepass"), "<u2")
        found = self._bytes.take(codes, mode="clip").tobytes()
        if _UNKNOWN in found:
            with self._lock:
                self._add(np.unique(codes[self._bytes[codes] == _UNKNOWN]))
            found = self._bytes.take(codes, mode="clip").tobytes()
        return found

    def _add(self, codes: np.ndarray) -> None:
        # Another thread may have been faster.
        for code in codes[self._bytes[codes] == _UNKNOWN].tolist():
            self._bytes[code] = self._byte(code)

    def _byte(self, code: int) -> int:
        char = chr(code)
        if is_surrogate(code) or depends_on_neighbours(self._reference, code):
            return _OTHER
        match self._reference.tokenize(f"a{char}b"):
            case ["ab"]:
                return _DROPPED
            case ["a", "b"]:
                return SPACE
            case [word] if len(word) == 3:
                return ord(word[1]) if word.isascii() else self._letter(word[1])
            case ["a", sign, "b"] if is_punctuation(sign):
                return self._sign(sign)
        return _OTHER

    def _letter(self, letter: str) -> int:
        if letter not in self._letter_bytes:
            if len(self._letters) == len(_LETTERS):
                return _OTHER
            byte = _LETTERS[len(self._letters)]
            self._letters[byte], self._letter_bytes[letter] = letter, byte
        return self._letter_bytes[letter]

    def _sign(self, sign: str) -> int:
        if sign.isascii():
            return int(self._bytes[ord(sign)])
        if self._next >= _OTHER:
            return _OTHER
        (self.sign_ids[self._next],) = self._encode_words([sign]).ids
        self._next += 1
        return self._next - 1
