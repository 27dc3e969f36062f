"""Reads documents from text files: one sentence per line, blank lines between documents."""

import itertools
from collections.abc import Iterable, Sequence

from bert_tf import files
from bert_tf.batch_tokenization import BatchTokenizer
from bert_tf.tasks.pretraining.instances import Document
from bert_tf.tasks.pretraining.word_segments import Segmenter, mark_inner_pieces

_BATCH_SIZE = 1 << 14


class LineEncoder:
    """Converts lines to lists of token ids.

    Args:
        tokenizer: the tokenizer.
        vocab_size: larger than all ids.
        segmenter: finds words for whole word masking; None for those that `##` marks.
    """

    def __init__(
        self, tokenizer: BatchTokenizer, vocab_size: int, segmenter: Segmenter | None = None
    ) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._segmenter = segmenter

    def __call__(self, lines: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each line, with the marks of `mark_inner_pieces`.

        Raises:
            UserError: the segmenter fails.
        """
        tokens = self._tokenizer.encode(lines, with_spans=self._segmenter is not None)
        if self._segmenter:
            ids = mark_inner_pieces(tokens, lines, self._segmenter, self._vocab_size).tolist()
        else:
            ids = tokens.ids.tolist()
        return [ids[a:b] for a, b in itertools.pairwise(tokens.row_splits.tolist())]


def read_documents(paths: Iterable[str], encode: LineEncoder) -> list[Document]:
    """Reads all documents of text files, as the original does.

    The end of a file does not end a document. A line without tokens, such as one of control
    characters, is ignored and does not end a document either. Documents without sentences are
    dropped.

    Args:
        paths: files of UTF-8 text, in reading order.
        encode: converts lines to ids.

    Raises:
        UserError: a file cannot be read, or the segmenter fails.
    """
    documents: list[Document] = [[]]
    lines = (line.strip() for path in paths for line in files.read_lines(path))
    while batch := list(itertools.islice(lines, _BATCH_SIZE)):
        for line, ids in zip(batch, encode(batch), strict=True):
            if not line:
                documents.append([])
            elif ids:
                documents[-1].append(ids)
    return [document for document in documents if document]
