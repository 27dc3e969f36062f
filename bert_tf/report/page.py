"""Renders the report of an evaluation as one HTML page that loads nothing and needs no script."""

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np

from bert_tf.base import files
from bert_tf.base.charts import Limits, Panel, Series, draw, to_svg
from bert_tf.base.errors import UserError
from bert_tf.checkpoints.run_folder import RunFolder
from bert_tf.report import statistics
from bert_tf.report.evaluation import EvaluationReport
from bert_tf.training.curve import CURVE, read_table, training_figure
from bert_tf.training.evaluation import EVALUATIONS

_NUM_MISTAKES, _MAX_CHARS, _MAX_UNFOLDED, _LONG, _MAX_PROBABILITIES = 25, 2000, 160, 30, 3
_MAX_ROWS, _MAX_MATRIX, _NUM_BARS, _NUM_POINTS = 200, 40, 32, 150
_PROBABILITY = "probability_"
_STYLE = """
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 1100px; margin: auto; padding: 0 16px }
h1, .text { overflow-wrap: anywhere } h1 { font-size: 1.5em } nav a { margin-right: 16px }
h2 { font-size: 1.2em; margin: 0; padding: 1.5em 0 .8em } section { break-inside: avoid }
.columns { columns: 2 440px; column-gap: 32px } #run { font-size: .9em }
#mistakes, #spread-of-the-metrics { column-span: all } .scroll { overflow-x: auto }
p, svg text { opacity: .75 } .headline { font-size: 1.25em; opacity: 1 }
.headline::first-letter { text-transform: uppercase } table { border-collapse: collapse }
figure { margin: 0 0 24px; max-width: 560px } svg { width: 100%; display: block }
summary { list-style: none; cursor: pointer } details:not([open]) summary::after { content: "…" }
th, td { padding: 4px 8px; border-bottom: 1px solid #8884; text-align: left }
td { vertical-align: top; white-space: nowrap } .number { text-align: right }
.text { white-space: pre-line; min-width: 11em } svg text { font-family: inherit }
@media print { nav { display: none } .scroll { overflow: visible } td { white-space: normal }
  body { font-size: 12px; print-color-adjust: exact } tr, figure { break-inside: avoid } }
"""


class Data(NamedTuple):
    """What a run counted in a split.

    `counts` are numbers by description, and `lengths` numbers of rows with 0, 1, 2, ... tokens;
    `problems` are sentences about what looks wrong.
    """

    name: str
    counts: Mapping[str, Any]
    lengths: Sequence[int] = ()
    problems: Sequence[str] = ()


class _Html(str):
    """Text that is HTML already."""


def evaluation_page(
    title: str,
    run: Mapping[str, Any],
    data: Sequence[Data],
    folder: RunFolder,
    epoch: float | None,
    metrics: Mapping[str, Any],
    report: EvaluationReport,
    table: str,
) -> str:
    """Renders a report.

    Args:
        title: heading of the page.
        run: what was run, by description.
        data: the splits of the run.
        folder: the folder of the training curve and its evaluations, if the model was trained.
        epoch: number of steps in an epoch; None if it is unknown.
        metrics: metrics of the evaluation by name, in the order in which they are shown.
        report: what the task says about the rows.
        table: name of the file with all rows, next to the page.
    """
    ends, resamples = statistics.intervals(report) if len(report) else ({}, 0)
    return _page(
        title,
        {
            "Metrics": _metrics(metrics, ends, resamples),
            "By label": _by_label(report, ends),
            "Confusion matrix": _matrix(report),
            "Predicted and true numbers": _scatter(report),
            "Calibration": _calibration(report),
            **{heading: _by_group(report, names) for heading, names in report.groups.items()},
            "Mistakes": _mistakes(report, table),
            "Training": _curve(folder, epoch),
            "Data": _data(data),
            "Run": _table(["", ""], run.items(), "The command, and what it ran on."),
        },
        headline=statistics.headline(report, ends) if ends else "",
    )


def summary_page(title: str, run: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    """Renders the spread of the metrics in `summary`, the content of `runs.json`."""
    runs, mean, deviation = summary["runs"], summary["mean"], summary["deviation"]
    names = [entry["folder"] for entry in runs]
    rows = [(name, mean[name], deviation[name], *(r[name] for r in runs)) for name in mean]
    rows.append(("seed", "", "", *(entry["random_seed"] for entry in runs)))
    links = (f'<a href="{name}/report.html">{name}</a>' for name in map(escape, names))
    best = f"The best run is {escape(summary['best']['folder'])}. Reports: {', '.join(links)}"
    spread = _table(["metric", "mean", "deviation", *names], rows, _Html(best))
    return _page(title, {"Spread of the metrics": spread, "Run": _table(["", ""], run.items())})


def _page(title: str, sections: Mapping[str, str], headline: str = "") -> str:
    parts, links = [], []
    for name, html in [item for item in sections.items() if item[1]]:
        heading = escape(name)
        key = heading.lower().replace(" ", "-")
        links.append(f'<a href="#{key}">{heading}</a>')
        parts.append(f'<section id="{key}">\n<h2>{heading}</h2>\n{html}\n</section>\n')
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{escape(title)}</title>'
        '\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{_STYLE}</style>\n<h1>{escape(title)}</h1>\n"
        f'<p class="headline">{escape(headline).replace(" %", "&nbsp;%")}</p>\n'
        f'<nav>{" ".join(links)}</nav>\n<div class="columns">\n{"".join(parts)}</div></html>\n'
    )


def _cell(value: Any) -> str:
    if isinstance(value, bool | int | np.integer):
        return f'<td class="number">{value:,}</td>'
    if isinstance(value, float | np.floating):
        return f'<td class="number">{_round(value)}</td>'
    text = str(value)
    kind = "text" if len(text) > _LONG else ""
    return f'<td class="{kind}">{value if isinstance(value, _Html) else escape(text)}</td>'


def _fold(cell: Any) -> Any:
    """Shows the beginning of a long text, and the rest after a click."""
    if len(text := str(cell)) <= _MAX_UNFOLDED:
        return cell
    first, rest = escape(text[:_MAX_UNFOLDED]), escape(text[_MAX_UNFOLDED:_MAX_CHARS])
    rest += "…" * (len(text) > _MAX_CHARS)
    return _Html(f"<details><summary>{first}</summary>{rest}</details>")


def _round(value: Any) -> str:
    """Formats a number with three significant digits, or more if it has them before its point."""
    return f"{value:#.3g}".rstrip(".") if 0 < abs(value) < 999.5 else f"{value:,.0f}"


def _table(header: Sequence[str], rows: Iterable[Iterable[Any]], note: str = "") -> str:
    """Renders a table, which scrolls in its own box, and a note below it."""
    rows = list(rows)
    if len(rows) > _MAX_ROWS:
        note = f"The first {_MAX_ROWS} of {len(rows):,} rows. {note}"
    cells = ["".join(f"<th>{escape(name)}</th>" for name in header)]
    cells += ["".join(map(_cell, row)) for row in rows[:_MAX_ROWS]]
    return _scroll(cells, note) if rows else ""


def _scroll(rows: Iterable[str], note: str) -> str:
    lines = "\n".join(f"<tr>{row}</tr>" for row in rows)
    below = note if isinstance(note, _Html) else escape(note)
    return f'<div class="scroll"><table>\n{lines}\n</table></div>\n<p>{below}</p>'


def _interval(ends: Mapping[str, np.ndarray], name: str, index: Any = ...) -> str:
    if name not in ends:
        return ""
    low, high = ends[name][(slice(None), index)]
    return f"{_round(low)}–{_round(high)}"


def _metrics(metrics: Mapping[str, Any], ends: Mapping[str, np.ndarray], num_resamples: int) -> str:
    rows: dict[Any, list[str]] = defaultdict(list)
    for key, value in metrics.items():
        # Of two losses, that over batches is for comparison with the original.
        if f"eval_{key}" not in metrics:
            name = key.removeprefix("eval_")
            interval = _interval(ends, name)
            # Some are the same by definition, such as the accuracy and the micro averages.
            rows[value, interval, interval or name].append(name)
    note = f"An interval holds 95 % of {num_resamples:,} bootstrap resamples of the rows."
    cells = [(", ".join(names), *key[:2]) for key, names in rows.items()]
    return _table(["metric", "value", "95% interval"], cells, note if ends else "")


def _by_label(report: EvaluationReport, ends: Mapping[str, np.ndarray]) -> str:
    if not report.counts:
        return ""
    scores = statistics.label_metrics(report, np.ones(len(report)))
    names = ["precision", "recall", "f1"]
    rows = []
    for index, label in enumerate(report.labels):
        support = int(scores["label_support"][index])
        if support or scores["label_predicted"][index]:
            ratios = (float(scores[f"label_{name}"][index]) for name in names)
            rows.append((label, *ratios, _interval(ends, "label_f1", index), support))
    note = "Precision: the share of predictions that are right. Recall: the share of labels found."
    return _table(["label", *names, "95% interval", "support"], rows, note)


def _matrix(report: EvaluationReport) -> str:
    size = len(report.labels)
    if report.confusion is None or size > _MAX_MATRIX:
        return ""
    true, predicted = report.confusion
    matrix = np.bincount(size * true + predicted, minlength=size**2).reshape(size, size)
    names = [f"<th>{escape(label)}</th>" for label in report.labels]
    rows = ["".join(["<th>true \\ predicted</th>", *names])]
    for name, counts in zip(names, matrix, strict=True):
        # The square root makes errors of a few percent visible.
        shades = 0.7 * np.sqrt(counts / max(counts.sum(), 1))
        cells = (
            f'<td class="number" style="background: rgba(59, 130, 196, {shade:.2f})">{count:,}</td>'
            for count, shade in zip(counts.tolist(), shades, strict=True)
        )
        rows.append("".join([name, *cells]))
    return _scroll(rows, "Colors show shares: each row adds up to 100 %.")


def _figure(panel: Panel, x_label: str, x_limits: Limits | None = None) -> str:
    return f"<figure>{to_svg(draw([panel], x_label, x_limits), panel.label)}</figure>"


def _scatter(report: EvaluationReport) -> str:
    figures = []
    for index, (x, y) in enumerate(zip(*(n.T for n in report.numbers or ()), strict=True)):
        ends, name = [x.min(), x.max()], report.labels[index] if report.labels else "number"
        series = [Series("", x, y, "dots"), Series("", ends, ends, "guide")]
        figures.append(_figure(Panel(f"predicted {name}", series), f"true {name}"))
    note = "<p>Each dot is a row; on the dashed line, the prediction is the true number.</p>"
    return "".join(figures) + note * bool(figures)


def _calibration(report: EvaluationReport) -> str:
    if not report.confidence:
        return ""
    bins, error = statistics.calibration(*report.confidence)
    points = Series("model", *bins[:, :2].T, texts=[f"{count:,.0f}" for count in bins[:, 2]])
    series = [points, Series("ideal", [0, 1], [0, 1], "guide")]
    figure = _figure(Panel("share that is right", series, (0, 1)), "mean probability", (0, 1))
    note = "Below the dashed line, the model is too sure. Each number counts a dot's predictions."
    return f"{figure}<p>{note} Expected calibration error: {_round(error)}</p>"


def _by_group(report: EvaluationReport, names: Sequence[str]) -> str:
    groups, inverse = np.unique(np.array(names), return_inverse=True)
    if len(groups) < 2:
        return ""
    counts = np.bincount(inverse)
    columns = [counts, *(np.bincount(inverse, x) / counts for x in report.values.values())]
    rows = ((str(groups[i]), *(x[i] for x in columns)) for i in np.argsort(-counts, kind="stable"))
    return _table(["", "rows", *report.values], rows, "Each row has the mean metrics of a group.")


def _mistakes(report: EvaluationReport, table: str) -> str:
    order = report.order if report.is_wrong is None else report.order[report.is_wrong[report.order]]
    probabilities = [name for name in report.columns if name.startswith(_PROBABILITY)]
    names = [name for name in report.columns if name not in {*probabilities, *report.values}]
    header = [*names, *["probabilities"][: len(probabilities)]]
    header += ["loss"] * (report.losses is not None) + ["text"] * bool(report.context)
    rows = []
    for index in order[:_NUM_MISTAKES].tolist():
        row = [_fold(report.columns[name][index]) for name in names]
        if probabilities:
            pairs = sorted((-report.columns[name][index], name) for name in probabilities)
            best = (f"{name.removeprefix(_PROBABILITY)} {-p:.3f}" for p, name in pairs)
            row.append(", ".join([*best][:_MAX_PROBABILITIES]))
        if report.losses is not None:
            row.append(report.losses[index])
        if report.context:
            row.append(_fold(report.context(index)))
        rows.append(row)
    kind = "rows" if report.is_wrong is None else "wrong rows"
    note = f"{len(rows)} of {len(order):,} {kind}, the worst first" if rows else "No row is wrong"
    link = f'<a href="{escape(quote(table))}">{escape(table)}</a>'
    note = _Html(f"{note}. All rows are in {link}.")
    return _table(header, rows, note) or f"<p>{note}</p>" * bool(len(report))


def _curve(folder: RunFolder, epoch: float | None) -> str:
    table = read_table(folder.file(CURVE))
    if not table:
        return ""
    steps, losses = np.array(table, np.float64)[:, :2].T
    # Means of neighboring steps: a curve instead of noise.
    size = -(-len(steps) // _NUM_POINTS)
    starts = np.arange(0, len(steps), size)
    counts = np.diff(np.append(starts, len(steps)))
    x, y = (np.add.reduceat(values, starts) / counts for values in (steps, losses))

    def place(step: float) -> str:
        return f"step {step:,.0f}" + (f", epoch {step / epoch:.3g}" if epoch else "")

    means = f" (means of {size} steps)" * (size > 1)
    texts = [f"The training loss{means} and evaluations, by step. Last: {place(steps[-1])}"]
    content, metrics = {}, {}
    if folder.best:
        with contextlib.suppress(UserError):  # damaged
            content = files.read_json(folder.file(EVALUATIONS))
    if {"metric", "best", "evaluations"} <= content.keys():
        metric, best, evaluations = (content[key] for key in ("metric", "best", "evaluations"))
        name = f"eval_{metric}" if f"eval_{metric}" in best else metric
        loss = "eval_loss" if "eval_loss" in best else "loss"
        for shown in dict.fromkeys([loss, name]).keys() & best.keys():
            metrics[shown] = [(e["step"], e[shown]) for e in evaluations]
        texts.append(f"best {name}: {_round(best[name])} at {place(best['step'])}")
    svg = to_svg(training_figure(x, y, dict(sorted(metrics.items()))), "loss and evaluations")
    return f"<p>{escape('; '.join(texts))}</p><figure>{svg}</figure>"


def _data(splits: Sequence[Data]) -> str:
    names = dict.fromkeys(name for split in splits for name in split.counts)
    rows = [(name, *(split.counts.get(name, "") for split in splits)) for name in names]
    if any(split.problems for split in splits):
        rows.append(("looks wrong", *("\n".join(split.problems) for split in splits)))
    figures = [_histogram(s.name, np.array(s.lengths)) for s in splits if any(s.lengths)]
    note = "What the run counted in its data; the bars show the lengths of the rows."
    return _table(["", *(split.name for split in splits)], rows, note) + "".join(figures)


def _histogram(name: str, counts: np.ndarray) -> str:
    longest = len(counts) - 1  # max_seq_length
    edges = np.unique(np.linspace(1, longest + 1, _NUM_BARS + 1).astype(int))
    bars = np.add.reduceat(counts, edges[:-1])
    series = [Series("", (edges[:-1] + edges[1:] - 1) / 2, bars, "bars")]
    label, limits = f"tokens, up to max_seq_length={longest}", (0.5, longest + 0.5)
    return _figure(Panel(f"{name} rows", series), label, limits)
