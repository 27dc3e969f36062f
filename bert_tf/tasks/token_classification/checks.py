"""What looks wrong in the words and labels of a CoNLL file."""

import re
from collections.abc import Iterator

import numpy as np

from bert_tf.data.cell_values import counted
from bert_tf.tasks.token_classification import conll
from bert_tf.tasks.token_classification.sentences import NO_LABEL, Sentences


def check(examples: Sentences, doc_context: bool) -> Iterator[str]:
    """Yields a sentence for each problem of a file that has been read."""
    file = examples.file
    words, path = file.words, file.path
    numbers = [word for word in words if word.isdecimal()]
    if len(numbers) > len(words) / 2:
        share = f"{len(numbers)} of {len(words)} words are numbers, such as {numbers[0]}"
        yield f"{path}: {share}. Check --token_column"
    # With labels, there is an error, because the label column is missing.
    separated = [word for word in words if len(word) > 1 and re.search("[,;]", word)]
    if file.labels is None and len(separated) > len(words) / 2:
        problem = f"most lines have commas or semicolons, such as {separated[0]}"
        yield f"{path}: {problem}. Separate columns with spaces or tabs"
    quoted = [word for word in words if re.fullmatch('".*"".*"', word)]
    if quoted:
        share = f"{len(quoted)} words are in CSV quotes, such as {quoted[0]}"
        yield f"{path}: {share}. Write the file without quoting"
    if len(examples) == 1 and len(examples.windows) > 1:
        yield f"{path}: no blank lines; reading all words as one sentence"
    if doc_context and not file.docstart_lines:
        line = conll.DOCUMENT
        yield f"--doc_context: {path} has no {line} line; reading it as one document"
    yield from _check_labels(examples)


def _check_labels(examples: Sentences) -> Iterator[str]:
    unknown = np.flatnonzero(examples.label_ids == NO_LABEL)
    if not len(unknown):
        return
    file = examples.file
    labels = conll.to_bio(file.labels or [], file.sentence_starts)
    names = ", ".join(sorted({labels[index] for index in unknown}))
    problem = f"label {labels[unknown[0]]} is not in the training data, so it counts as wrong"
    words = counted(len(unknown), "such word")
    yield f"{file.path}:{file.line_numbers[unknown[0]]}: {problem} ({words}: {names})"
