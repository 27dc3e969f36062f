"""Reads documents from text files: one sentence per line, blank lines between documents."""

import itertools
from collections.abc import Iterable, Sequence

from bert_tf import files
from bert_tf.tasks.pretraining.instances import Document, VocabInfo
from bert_tf.tasks.pretraining.options import PretrainingDataOptions
from bert_tf.tasks.pretraining.word_segments import Segmenter, load_segmenter, mark_inner_pieces
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.fast import BatchTokenizer

_BATCH_LINES = 1 << 14


class LineEncoder:
    """Converts lines to lists of token ids.

    For whole word masking, words come from the segmenter, if any, or else from `##` prefixes.
    """

    def __init__(self, tokenizer: FullTokenizer, segmenter: Segmenter | None = None) -> None:
        self.tokenizer = BatchTokenizer(tokenizer)
        self.vocab = VocabInfo(tokenizer.vocab)
        self._segmenter = segmenter

    def __call__(self, lines: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each line, marked by `mark_inner_pieces` if there is a segmenter."""
        tokens = self.tokenizer.encode(lines, with_spans=self._segmenter is not None)
        ids = tokens.ids
        if self._segmenter:
            ids = mark_inner_pieces(tokens, lines, self._segmenter, self.vocab.size)
        values = ids.tolist()
        return [values[a:b] for a, b in itertools.pairwise(tokens.row_splits.tolist())]


def load_encoder(options: PretrainingDataOptions) -> LineEncoder:
    """Loads the vocabulary and the segmenter, if one is set."""
    name = options.whole_word_segments
    segmenter = load_segmenter(name) if name else None
    return LineEncoder(FullTokenizer(options.vocab_file or "", options.do_lower_case), segmenter)


def read_documents(paths: Iterable[str], encode: LineEncoder) -> list[Document]:
    """Reads all documents of text files, as the original does.

    The end of a file does not end a document. A line without tokens that is not blank, such as a
    line of control characters, is ignored and does not end a document either.
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
