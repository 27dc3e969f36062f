"""Tables of predictions: `test_results.tsv`, `test_predictions.tsv`, and GLUE's submissions."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from bert_tf.data.features import InputExample
from bert_tf.tasks.classification.problem_types import ProblemType

TEST_RESULTS = "test_results.tsv"
# With ids, texts and labels; the original has no such file.
TEST_PREDICTIONS = "test_predictions.tsv"


def prediction_files(
    examples: Sequence[InputExample],
    values: np.ndarray,
    problem: ProblemType,
    submission: str | None,
) -> dict[str, str]:
    """Returns the contents of the files by name, for probabilities [E, L] or numbers [E].

    `submission` is the name of the file for GLUE's server; None to omit it.
    """
    rows = values if values.ndim == 2 else values[:, None]
    contents = {
        # As in the original: a line for each example, its values in the order of the labels.
        TEST_RESULTS: "".join("\t".join(str(value) for value in row) + "\n" for row in rows),
        TEST_PREDICTIONS: _format_table(_prediction_rows(examples, values, problem)),
    }
    if submission:
        answers = enumerate(map(problem.answer, values))
        contents[submission] = _format_table([("index", "prediction"), *answers])
    return contents


def _prediction_rows(
    examples: Sequence[InputExample], values: np.ndarray, problem: ProblemType
) -> Iterator[Sequence[Any]]:
    pairs = any(example.text_b for example in examples)
    yield ["id", "text", *(["text_pair"] if pairs else []), *problem.columns]
    for example, value in zip(examples, values, strict=True):
        texts = [example.text_a, example.text_b or ""] if pairs else [example.text_a]
        yield [example.guid, *texts, *problem.row(value)]


def _format_table(rows: Iterable[Sequence[Any]]) -> str:
    """Writes tab-separated lines; cells with quotes are quoted, as most programs expect.

    Tabs and line breaks in texts become spaces, so that each row is a single line.
    """
    text = io.StringIO()
    writer = csv.writer(text, delimiter="\t", lineterminator="\n")
    for row in rows:
        cells = (str(cell) for cell in row)
        writer.writerow([" ".join(cell.replace("\t", " ").splitlines()) for cell in cells])
    return text.getvalue()
