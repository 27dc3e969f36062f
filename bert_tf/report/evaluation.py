"""What a task knows about the rows of an evaluation: the declarative part of a report.

Shapes: N rows, L labels, T numbers per row, M occurrences of labels in all rows.
"""

import csv
import dataclasses
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.data.ranking_metrics import RANKING, Ranking
from bert_tf.tables.columns import parse_number

Column = Sequence[Any] | np.ndarray
_STARTS_OF_FORMULAS = "=+-@\uff1d\uff0b\uff0d\uff20"


class Counts(NamedTuple):
    """Rows and label ids, int [2, M] each, of true, of predicted, and of correct labels."""

    true: np.ndarray
    predicted: np.ndarray
    right: np.ndarray

    @classmethod
    def of_classes(cls, true: np.ndarray, predicted: np.ndarray, rows: np.ndarray) -> "Counts":
        """Counts pairs of a true and a predicted label id, [M] each, in their `rows` [M]."""
        right = np.stack([rows, true])[:, true == predicted]
        return cls(np.stack([rows, true]), np.stack([rows, predicted]), right)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationReport:
    """The rows of an evaluation, and what to show about them; the page omits what is not given.

    ```py
    EvaluationReport(columns={"text": ["good", "bad"], "label": [1, 0]}, losses=np.array([0.1, 2]))
    ```

    Attributes:
        columns: a cell of each row by name of the column, for `eval_predictions.tsv`. The table of
            mistakes shows the highest numbers in `probability_...` in one cell, and no `values`.
        losses: the loss of each row [N], by which rows are sorted, highest first. Without it, the
            rows must be sorted, worst first.
        is_wrong: which rows are mistakes, bool [N]; without it, the worst rows are shown.
        values: values [N] by name of the metric that is their mean; names have no `eval_`.
        labels: names of labels; if there are several numbers per row, their names.
        counts: the occurrences of labels; for their metrics, see `statistics.label_metrics`.
        positive: id of the label that `f1`, `precision` and `recall` are about; None: all labels.
        confusion: pairs of true and of predicted label ids, both [M], for a matrix.
        confidence: probabilities of predictions, and whether these are correct, both [M].
        numbers: true and predicted numbers, both [N, T].
        groups: the group of each row, by heading; the page shows the mean `values` of each group.
        context: returns a longer text about a row, given its index.
        unit: plural noun for what the headline counts: the labels in `counts`, or else the rows.
        baseline: a result without the model, as its name, value and metric, such as ("chance",
            0.25, "mrr@10"). The metric is one of `values` or `numbers`, or "" for the fraction that
            is right. By default, tasks with one label per row have that of the most frequent label.
    """

    columns: Mapping[str, Column] = dataclasses.field(default_factory=dict)
    losses: np.ndarray | None = None
    is_wrong: np.ndarray | None = None
    values: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    labels: Sequence[str] = ()
    counts: Counts | None = None
    positive: int | None = None
    confusion: tuple[np.ndarray, np.ndarray] | None = None
    confidence: tuple[np.ndarray, np.ndarray] | None = None
    numbers: tuple[np.ndarray, np.ndarray] | None = None
    groups: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    context: Callable[[int], str] | None = None
    unit: str = "rows"
    baseline: tuple[str, float, str] | None = None

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    @property
    def order(self) -> np.ndarray:
        """Indices of the rows, worst first."""
        losses = np.zeros(len(self)) if self.losses is None else self.losses
        return np.argsort(-losses, kind="stable")

    def table(self) -> str:
        """Formats the rows, worst first, as the text of `eval_predictions.tsv`."""
        losses = {} if self.losses is None else {"loss": self.losses}
        columns = {**self.columns, **losses}
        rows = ([_as_text(x[index]) for x in columns.values()] for index in self.order)
        return format_table([[*columns], *rows])


def ranking_report(
    ranking: Ranking, texts: Mapping[str, Column], baseline: tuple[str, float, str]
) -> EvaluationReport:
    """Describes queries that are right if the top result is relevant; `texts` are columns."""
    ranks, values = ranking.values["rank"], {name: ranking.values[name] for name in RANKING}
    places = [int(rank) if np.isfinite(rank) else "not found" for rank in ranks]
    columns = {"relevant_at_rank": places, **texts, **values}
    settings = {"values": values, "is_wrong": ranks > 1, "unit": "top results"}
    return EvaluationReport(columns=columns, baseline=baseline, **settings)


def _as_text(cell: Any) -> Any:
    """Adds a space before a text that spreadsheets, for which the table is, take for a formula."""
    is_formula = isinstance(cell, str) and len(cell) > 1 and cell[0] in _STARTS_OF_FORMULAS
    return f" {cell}" if is_formula and parse_number(cell) is None else cell


def format_table(rows: Iterable[Sequence[Any]]) -> str:
    """Formats tab-separated lines; cells with quotes are quoted, as most programs expect.

    Tabs and line breaks in texts become spaces, so that each row is a single line.
    """
    text = io.StringIO()
    writer = csv.writer(text, delimiter="\t", lineterminator="\n")
    for row in rows:
        cells = (str(cell) for cell in row)
        writer.writerow([" ".join(cell.replace("\t", " ").splitlines()) for cell in cells])
    return text.getvalue()
