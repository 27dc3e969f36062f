"""Documents for pre-training from text files: a sentence on each line, blank lines in between."""

import itertools
from collections.abc import Iterable, Sequence

from bert_tf import files
from bert_tf.data.pretraining import Document
from bert_tf.data.word_segments import Segmenter, mark_inner_pieces
from bert_tf.tokenization.fast import BatchTokenizer

# Lines that are tokenized together.
_LINES = 1 << 14


class LineEncoder:
    """Turns lines into lists of ids, many at once.

    Args:
        tokenizer: gives the ids.
        vocab_size: above all of them.
        segmenter: of words, for masking them as a whole; None leaves that to the pieces' `##`.
    """

    def __init__(
        self, tokenizer: BatchTokenizer, vocab_size: int, segmenter: Segmenter | None = None
    ) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._segmenter = segmenter

    def __call__(self, lines: Sequence[str]) -> list[list[int]]:
        """Ids of each line, with the marks of `mark_inner_pieces`.

        Raises:
            UserError: the segmenter fails.
        """
        found = self._tokenizer.encode(lines, with_spans=self._segmenter is not None)
        if self._segmenter:
            ids = mark_inner_pieces(found, lines, self._segmenter, self._vocab_size).tolist()
        else:
            ids = found.ids.tolist()
        return [ids[a:b] for a, b in itertools.pairwise(found.row_splits.tolist())]


def read_documents(paths: Iterable[str], encode: LineEncoder) -> list[Document]:
    """Reads all documents of some files, as the original release does.

    The end of a file is no border: a document goes on in the next one. A line without a token
    (of control characters, say) adds nothing and is no border either.

    Args:
        paths: files of UTF-8 text, in the order to read them.
        encode: gives the ids.

    Returns:
        Those that have a sentence.

    Raises:
        UserError: a file cannot be read, or the segmenter fails.
    """
    documents: list[Document] = [[]]
    lines = (line.strip() for path in paths for line in files.read_lines(path))
    while some := list(itertools.islice(lines, _LINES)):
        for line, ids in zip(some, encode(some), strict=True):
            if not line:
                documents.append([])
            elif ids:
                documents[-1].append(ids)
    return [document for document in documents if document]
