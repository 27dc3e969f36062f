"""A byte for each character of the texts that `WordTable` can do, which are most of the English.

Letters and digits are those of ASCII, in lower case where the vocabulary is. What ends a word has
a byte of its own from 128 on: all white space the same, and each punctuation character another.
"""

import itertools
import string
import threading
from collections.abc import Callable

import numpy as np

from bert_tf.character_table import depends_on_neighbours, is_surrogate
from bert_tf.token_ids import TokenIds
from bert_tf.tokenization import BasicTokenizer, is_punctuation

SPACE, BORDER, FIRST_SIGN = 128, 129, 130
# What stands between texts that are joined; no byte of a text.
BETWEEN = 0xFF
# Characters that are left out.
DROPPED = bytes({*range(32), 127} - {*b"\t\n\r"})

_DROPPED, _OTHER, _UNKNOWN = DROPPED[-1], 0xFE, 0xFF
_CODES = 0x110000


class Alphabet:
    """Bytes of characters.

    Args:
        reference: decides what becomes of each character.
        encode_words: gives the ids of single punctuation characters, in UTF-8.

    Attributes:
        ascii: for `bytes.translate`: bytes of the ASCII characters. Bytes of others, which
            `simplify` gave, stay what they are; `BETWEEN` becomes `BORDER`.
        sign_ids: int32 [256]; the id of each byte from `FIRST_SIGN` on.
    """

    def __init__(
        self, reference: BasicTokenizer, encode_words: Callable[[list[bytes]], TokenIds]
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
        codes[BETWEEN] = BORDER
        self.ascii = bytes(codes)
        self.sign_ids = np.zeros(256, np.int32)
        self.sign_ids[FIRST_SIGN : self._next] = encode_words([bytes([sign]) for sign in signs]).ids
        self._bytes = np.full(_CODES, _UNKNOWN, np.uint8)
        self._bytes[:128] = np.frombuffer(self.ascii, np.uint8, 128)
        self._bytes[[*DROPPED]] = _DROPPED
        self._lock = threading.Lock()

    def simplify(self, texts: list[str]) -> list[str | None]:
        """Texts whose characters are their bytes; None for a text with another character."""
        joined = "".join(texts).encode("utf-32-le", "surrogatepass")
        codes = np.frombuffer(joined, np.uint32)
        found = self._bytes[codes]
        unknown = found == _UNKNOWN
        if unknown.any():
            with self._lock:
                self._add(np.unique(codes[unknown]))
            found = self._bytes[codes]
        borders = np.concatenate([[0], np.cumsum([*map(len, texts)])])
        others = np.concatenate([[0], np.cumsum(found == _OTHER, dtype=np.int32)])
        is_other = np.diff(others[borders]) > 0
        if is_other.all():
            return [None] * len(texts)
        simple = found.tobytes().decode("latin-1")
        places = zip(is_other.tolist(), itertools.pairwise(borders.tolist()), strict=True)
        return [None if other else simple[begin:end] for other, (begin, end) in places]

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
            case [word] if len(word) == 3 and word.isascii():
                return ord(word[1])
            case ["a", sign, "b"] if is_punctuation(sign):
                return self._sign(sign)
        return _OTHER

    def _sign(self, sign: str) -> int:
        if sign.isascii():
            return int(self._bytes[ord(sign)])
        if self._next >= _OTHER:
            return _OTHER
        (self.sign_ids[self._next],) = self._encode_words([sign.encode()]).ids
        self._next += 1
        return self._next - 1
