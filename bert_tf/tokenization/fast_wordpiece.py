"""TensorFlow Text's `FastWordpieceTokenizer` for a vocabulary of the original.

Song et al. 2021, "Fast WordPiece Tokenization". It is told to cut words and not to make them, so it
takes texts that are normalized. TensorFlow is imported when the first one is made.
"""

import functools
import logging
from collections.abc import Sequence
from typing import Any

from bert_tf.tokenization.ragged_ids import TokenIds
from bert_tf.tokenization.reference import is_control, is_punctuation

_logger = logging.getLogger(__name__)

# `FullTokenizer` has no others.
UNKNOWN = "[UNK]"
LONGEST_WORD = 200
# 200 characters have no more.
_LONGEST_BYTES = 4 * LONGEST_WORD
# For which it gives `UNKNOWN`.
TOO_LONG = "a" * (_LONGEST_BYTES + 1)


def lines_of(vocab: dict[str, int]) -> list[str]:
    """A vocabulary as a list with every id, without duplicates and what no word can be made of."""
    # Brackets are words of their own, so no word is like this.
    lines = [f"[{index}]" for index in range(max(vocab.values(), default=-1) + 1)]
    for token, index in vocab.items():
        body = token.removeprefix("##")
        single = len(token) == 1 or token == UNKNOWN
        if body and (single or body.isalnum() or not any(map(_ends_word, body))):
            lines[index] = token
    return lines


def _ends_word(char: str) -> bool:
    # Or is never left in a word.
    return char.isspace() or is_punctuation(char) or is_control(char) or char == "\ufffd"


@functools.lru_cache(maxsize=1)
def tensorflow_text() -> Any:
    """The package; None where there is none, or not one of TensorFlow's version."""
    import tensorflow as tf

    try:
        import tensorflow_text
    except (ImportError, AttributeError, tf.errors.OpError) as error:
        _logger.warning(
            "TensorFlow Text cannot be used (%s): texts are tokenized by Python, with the same "
            "result, but more slowly. Install tensorflow-text of TensorFlow's version",
            error,
        )
        return None
    return tensorflow_text


def fast_wordpiece(lines: Sequence[str]) -> Any:
    """From normalized texts to ids; None where there is no TensorFlow Text, or it cannot do it."""
    if not tensorflow_text():
        return None
    import tensorflow as tf

    try:
        return tensorflow_text().FastWordpieceTokenizer(
            vocab=list(lines),
            token_out_type=tf.int32,
            unknown_token=UNKNOWN,
            max_bytes_per_word=_LONGEST_BYTES,
        )
    except RuntimeError as error:  # A piece of more than 256 bytes, or none at all.
        _logger.warning("The vocabulary is too unusual for fast tokenization: %s", error)
        return None


def ids_of(fast: Any, texts: Sequence[str]) -> TokenIds:
    """Ids of normalized texts."""
    found = fast.tokenize(texts)
    return TokenIds(found.values.numpy(), found.row_splits.numpy())
