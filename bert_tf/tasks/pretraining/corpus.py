"""Reads documents from text files: one sentence per line, blank lines between documents.

For whole word masking in languages written without spaces, a segmenter groups characters into
words (Cui et al. 2019, "Pre-Training with Whole Word Masking for Chinese BERT"). Without one, whole
word masking has no effect there: to the tokenizer, every Chinese character is a separate word.
"""

import functools
import importlib
import itertools
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import numpy as np

from bert_tf.base import files
from bert_tf.base.errors import UserError
from bert_tf.tasks.pretraining.instances import Document, VocabInfo
from bert_tf.tasks.pretraining.options import PretrainingDataOptions
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.fast import BatchTokenizer
from bert_tf.tokenization.ragged_ids import RaggedIds

Segmenter = Callable[[str], Sequence[str]]

_BATCH_LINES = 1 << 14
# A reference to a Python function: `jieba:lcut`, but not `gs://words.txt` or `C:\words.txt`.
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


class LineEncoder:
    """Converts lines to lists of token ids.

    For whole word masking, a segmenter or else `##` prefixes tell which tokens form a word.
    """

    def __init__(self, tokenizer: FullTokenizer, segmenter: Segmenter | None = None) -> None:
        self.tokenizer = BatchTokenizer(tokenizer)
        self.vocab = VocabInfo(tokenizer.vocab)
        self._segmenter = segmenter

    def __call__(self, lines: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each line; with a segmenter, marked by `mark_inner_pieces`."""
        tokens = self.tokenizer.encode(lines, with_spans=self._segmenter is not None)
        ids = tokens.ids
        if self._segmenter:
            ids = mark_inner_pieces(tokens, lines, self._segmenter, self.vocab.size)
        all_ids = ids.tolist()
        return [all_ids[a:b] for a, b in itertools.pairwise(tokens.row_splits.tolist())]


def load_encoder(options: PretrainingDataOptions) -> LineEncoder:
    """Makes an encoder with the options' vocabulary and segmenter, if one is set."""
    name = options.whole_word_segments
    segmenter = load_segmenter(name) if name else None
    return LineEncoder(options.tokenizer(), segmenter)


def read_documents(paths: Iterable[str], encode: LineEncoder) -> list[Document]:
    """Reads all documents of text files, as the original BERT code does.

    Only a blank line ends a document: the end of a file does not, nor does a line that is not blank
    but has no tokens, such as a line of control characters.
    """
    documents: list[Document] = [[]]
    lines = (line.strip() for path in paths for line in files.read_lines(path))
    while batch := list(itertools.islice(lines, _BATCH_LINES)):
        for line, ids in zip(batch, encode(batch), strict=True):
            if not line:
                documents.append([])
            elif ids:
                documents[-1].append(ids)
    return [document for document in documents if document]


def load_segmenter(name: str) -> Segmenter:
    """Loads a segmenter from a Python function or a word list.

    `name` is either `module:function`, where the module is installed or in the current folder, and
    the function takes a line and returns its words in order, with or without spaces; or a file with
    one word per line, for greedy longest-match segmentation from left to right.
    """
    if not _FUNCTION.fullmatch(name):
        words = {line.strip() for line in files.read_lines(name)}
        return functools.partial(_longest_match, words, max(map(len, words), default=0))
    module, _, function = name.partition(":")
    if os.getcwd() not in sys.path:  # Python adds only the script's own folder.
        sys.path.append(os.getcwd())
    try:
        return getattr(importlib.import_module(module), function)
    except Exception as error:
        raise UserError(f"--whole_word_segments={name} cannot be used: {error}") from error


def mark_inner_pieces(
    tokens: RaggedIds, texts: Sequence[str], segmenter: Segmenter, vocab_size: int
) -> np.ndarray:
    """Returns the ids of `tokens`, with `vocab_size` added to each id that continues a word."""
    starts = tokens.spans[:, 0]
    is_inner = np.zeros(len(tokens.ids), bool)
    for row, text in enumerate(texts):
        first, stop = tokens.row_splits[row], tokens.row_splits[row + 1]
        is_inner_char = np.zeros(len(text) + 1, bool)
        for start, end in _find_word_spans(text, segmenter):
            is_inner_char[start + 1 : end] = True
        is_inner[first:stop] = is_inner_char[starts[first:stop]]
    return tokens.ids + np.where(is_inner, vocab_size, 0).astype(np.int32)


def _find_word_spans(text: str, segmenter: Segmenter) -> Iterator[tuple[int, int]]:
    end = 0
    try:
        for word in segmenter(text):
            start = text.index(word, end)
            end = start + len(word)
            yield start, end
    except Exception as error:
        raise UserError(f"--whole_word_segments failed on {text!r:.80}: {error!r}") from error


def _longest_match(words: Collection[str], max_length: int, text: str) -> list[str]:
    """Splits a text, from left to right, into the longest known words or single characters."""
    segments, start = [], 0
    while start < len(text):
        ends = range(min(start + max_length, len(text)), start + 1, -1)
        end = next((end for end in ends if text[start:end] in words), start + 1)
        segments.append(text[start:end])
        start = end
    return segments
