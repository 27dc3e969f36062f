"""Where the words of a text are, for languages that do not write them apart.

The tokenizer makes every Chinese ideograph a word of its own, so masking whole words means nothing
there (Cui et al. 2019, "Pre-Training with Whole Word Masking for Chinese BERT"). A segmenter says
which of them belong together.
"""

import importlib
import os
import re
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from bert_tf import files
from bert_tf.errors import UserError
from bert_tf.tokenization.ragged_ids import RaggedIds

Segmenter = Callable[[str], Sequence[str]]

# `jieba:lcut`, but not `gs://words.txt` and not `C:\words.txt`.
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def load_segmenter(name: str) -> Segmenter:
    """A segmenter by its name.

    Args:
        name: `module:function`, installed or in the current folder, which takes a line and returns
            its words in order (space may be left out, or be a word); or a file with a word on each
            line, of which the longest that fits is taken, from left to right.

    Raises:
        UserError: there is no such function, or the file cannot be read or is empty.
    """
    if not _FUNCTION.fullmatch(name):
        words = {line.strip() for line in files.read_lines(name)} - {""}
        if not words:
            raise UserError(f"There is not one word in {name}")
        return _WordList(words)
    module, _, function = name.partition(":")
    if os.getcwd() not in sys.path:  # A script looks for modules beside itself only.
        sys.path.append(os.getcwd())
    try:
        found = getattr(importlib.import_module(module), function)
    except Exception as error:
        raise UserError(f"--whole_word_segments={name} cannot be used: {error}") from error
    if not callable(found):
        raise UserError(f"--whole_word_segments={name} is no function")
    return typing.cast(Segmenter, found)


def mark_inner_pieces(
    found: RaggedIds, texts: Sequence[str], segmenter: Segmenter, vocab_size: int
) -> np.ndarray:
    """The ids of texts; `vocab_size` is added to those of pieces inside a word.

    Args:
        found: with spans.
        texts: what it was made of.
        segmenter: finds the words.
        vocab_size: above all ids.

    Returns:
        int32 [N].

    Raises:
        UserError: the segmenter fails, or gives what is not in the text.
    """
    starts = np.zeros(0, np.int32) if found.spans is None else found.spans[:, 0]
    is_inner = np.zeros(len(found.ids), bool)
    for row, text in enumerate(texts):
        first, last = found.row_splits[row], found.row_splits[row + 1]
        inside = np.zeros(len(text) + 1, bool)
        for start, end in _places(text, segmenter):
            inside[start + 1 : end] = True
        is_inner[first:last] = inside[starts[first:last]]
    return found.ids + np.where(is_inner, vocab_size, 0).astype(np.int32)


def _places(text: str, segmenter: Segmenter) -> Iterator[tuple[int, int]]:
    end = 0
    for word in _words(text, segmenter):
        start = text.find(word, end) if isinstance(word, str) else -1
        if start < 0:
            raise UserError(
                f"--whole_word_segments gave {word!r}, which is not in what is left of {text!r:.80}"
            )
        end = start + len(word)
        yield start, end


def _words(text: str, segmenter: Segmenter) -> Iterable[str]:
    try:
        return list(segmenter(text))
    except Exception as error:
        raise UserError(f"--whole_word_segments failed on {text!r:.80}: {error!r}") from error


class _WordList:
    """Finds the longest words of a list, from left to right."""

    def __init__(self, words: Iterable[str]) -> None:
        self._words = set(words)
        self._longest = max(map(len, self._words))

    def __call__(self, text: str) -> list[str]:
        """Splits a text; what is in no word is left as single characters."""
        words = []
        start = 0
        while start < len(text):
            ends = range(min(start + self._longest, len(text)), start + 1, -1)
            end = next((end for end in ends if text[start:end] in self._words), start + 1)
            words.append(text[start:end])
            start = end
        return words
