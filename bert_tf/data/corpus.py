"""Documents for pre-training from text files: a sentence on each line, blank lines in between."""

from collections.abc import Iterable, Iterator

from bert_tf import files
from bert_tf.batch_tokenization import BatchTokenizer
from bert_tf.data.pretraining import Document

# Lines that are tokenized together.
_LINES = 1 << 14


def read_documents(paths: Iterable[str], tokenizer: BatchTokenizer) -> list[Document]:
    """Reads all documents of some files, as the original release does.

    The end of a file is no border: a document goes on in the next one. A line without a token
    (of control characters, say) adds nothing and is no border either.

    Args:
        paths: files of UTF-8 text, in the order to read them.
        tokenizer: gives the ids.

    Returns:
        Those that have a sentence.

    Raises:
        UserError: a file cannot be read.
    """
    documents: list[Document] = [[]]
    for line, ids in _tokenized(
        (line for path in paths for line in files.read_lines(path)), tokenizer
    ):
        if not line:
            documents.append([])
        elif ids:
            documents[-1].append(ids)
    return [document for document in documents if document]


def _tokenized(lines: Iterable[str], tokenizer: BatchTokenizer) -> Iterator[tuple[str, list[int]]]:
    """Lines without space around them, and the ids of their tokens."""
    waiting: list[str] = []
    for line in lines:
        waiting.append(line.strip())
        if len(waiting) == _LINES:
            yield from _encoded(waiting, tokenizer)
            waiting = []
    yield from _encoded(waiting, tokenizer)


def _encoded(lines: list[str], tokenizer: BatchTokenizer) -> Iterator[tuple[str, list[int]]]:
    found = tokenizer.encode(lines)
    ids, splits = found.ids.tolist(), found.row_splits.tolist()
    for row, line in enumerate(lines):
        yield line, ids[splits[row] : splits[row + 1]]
