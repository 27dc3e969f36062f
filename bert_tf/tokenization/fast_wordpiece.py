"""Builds TensorFlow Text's `FastWordpieceTokenizer` for a vocabulary of the original.

Song et al. 2021, "Fast WordPiece Tokenization". It tokenizes normalized texts. TensorFlow is
imported when the first one is built.
"""

import functools
import logging
from collections.abc import Sequence
from typing import Any

from bert_tf.tokenization.reference import is_control, is_punctuation

_logger = logging.getLogger(__name__)

# Fixed in `FullTokenizer`.
UNKNOWN = "[UNK]"
MAX_WORD_CHARS = 200
# A character has at most 4 bytes.
MAX_WORD_BYTES = 4 * MAX_WORD_CHARS
# A word that becomes `UNKNOWN` because of its length.
TOO_LONG = "a" * (MAX_WORD_BYTES + 1)


def lines_of(vocab: dict[str, int]) -> list[str]:
    """Lists a vocabulary by id, without duplicates and pieces that cannot occur in a word."""
    # Placeholders. Brackets are words of their own, so they cannot match.
    lines = [f"[{index}]" for index in range(max(vocab.values(), default=-1) + 1)]
    for token, index in vocab.items():
        body = token.removeprefix("##")
        single = len(token) == 1 or token == UNKNOWN
        if body and (single or body.isalnum() or not any(map(_cannot_be_in_word, body))):
            lines[index] = token
    return lines


def _cannot_be_in_word(char: str) -> bool:
    # Or is dropped by normalization.
    return char.isspace() or is_punctuation(char) or is_control(char) or char == "\ufffd"


@functools.lru_cache(maxsize=1)
def tensorflow_text() -> Any:
    """Imports TensorFlow Text; None if it is missing or does not fit TensorFlow's version."""
    import tensorflow as tf

    try:
        import tensorflow_text
    except (ImportError, AttributeError, tf.errors.OpError) as error:
        message = (
            "TensorFlow Text cannot be used (%s): texts are tokenized by Python, with the same ids"
        )
        _logger.warning(f"{message}. Install tensorflow-text of TensorFlow's version", error)
        return None
    return tensorflow_text


def build_wordpiece(lines: Sequence[str], **options: Any) -> Any:
    """Builds the compiled tokenizer; RuntimeError for a piece of more than 256 bytes, or none."""
    import tensorflow as tf

    return tensorflow_text().FastWordpieceTokenizer(
        vocab=list(lines),
        token_out_type=tf.int32,
        unknown_token=UNKNOWN,
        max_bytes_per_word=MAX_WORD_BYTES,
        **options,
    )


def fast_wordpiece(lines: Sequence[str]) -> Any:
    """Builds a tokenizer of normalized texts; None if TensorFlow Text cannot do it."""
    try:
        return build_wordpiece(lines) if tensorflow_text() else None
    except RuntimeError as error:
        _logger.warning("The vocabulary is too unusual for fast tokenization: %s", error)
        return None
