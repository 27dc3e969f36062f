"""Builds TensorFlow Text's `FastWordpieceTokenizer`, which tokenizes normalized texts.

It implements Song et al. 2021, "Fast WordPiece Tokenization". TensorFlow is imported only when the
first tokenizer is built.
"""

import functools
from collections.abc import Sequence
from typing import Any

from bert_tf.base.errors import reason, warn
from bert_tf.tokenization import is_control, is_punctuation

# Fixed settings of `FullTokenizer`: longer words become the unknown token.
UNKNOWN = "[UNK]"
MAX_WORD_CHARS = 200


def vocab_lines(vocab: dict[str, int]) -> list[str]:
    """Lists a vocabulary by id, for the compiled tokenizer.

    Placeholders replace pieces that cannot be in a normalized word, and fill the ids of duplicate
    tokens, of which only the last counts. They never match, because normalization splits words at
    brackets.
    """
    lines = [f"[{index}]" for index in range(max(vocab.values(), default=-1) + 1)]
    for token, index in vocab.items():
        body = token.removeprefix("##")
        is_single = len(token) == 1 or token == UNKNOWN
        if body and (is_single or body.isalnum() or not any(map(_cannot_be_in_word, body))):
            lines[index] = token
    return lines


def _cannot_be_in_word(char: str) -> bool:
    # Normalization drops these characters or splits words at them.
    return char.isspace() or is_punctuation(char) or is_control(char) or char == "\ufffd"


@functools.lru_cache(maxsize=1)
def tensorflow_text() -> Any:
    """Imports TensorFlow Text; warns and returns None if it is missing or of another version."""
    import tensorflow as tf

    try:
        import tensorflow_text
    except (ImportError, AttributeError, tf.errors.OpError) as error:
        warn(f"Cannot import TensorFlow Text, so tokenizing in Python: {reason(error)}")
        return None
    return tensorflow_text


def try_build(lines: Sequence[str]) -> Any:
    """Builds the compiled tokenizer of a vocabulary; warns and returns None if that fails."""
    import tensorflow as tf

    if not (text := tensorflow_text()):
        return None
    try:
        return text.FastWordpieceTokenizer(
            vocab=list(lines),
            token_out_type=tf.int32,
            unknown_token=UNKNOWN,
            # Limits bytes, not characters, of which each has at most 4 bytes in UTF-8.
            max_bytes_per_word=4 * MAX_WORD_CHARS,
        )
    except RuntimeError as error:  # no vocabulary, or a piece of more than 256 bytes
        warn(f"Tokenizing in Python, because the vocabulary is unusual: {reason(error)}")
        return None
