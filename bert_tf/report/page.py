"""Renders the report of an evaluation as one HTML page that loads nothing and needs no script."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from bert_tf import files
from bert_tf.checkpoints.run_folder import EVALUATIONS, RunFolder
from bert_tf.errors import counted
from bert_tf.report import statistics
from bert_tf.report.evaluation import EvaluationReport
from bert_tf.report.svg import Series, chart
from bert_tf.training.curve import CURVE, metric_limits, read_table

_NUM_MISTAKES, _MAX_CHARS, _MAX_PROBABILITIES = 50, 1000, 3
_MAX_ROWS, _MAX_MATRIX, _MAX_DOTS, _NUM_BARS, _NUM_POINTS = 200, 40, 2000, 32, 150
_PROBABILITY = "probability_"
_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #777 }
@media (prefers-color-scheme: dark) { :root { --soft: #aaa } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 1100px; margin: auto; padding: 0 16px }
h1 { font-size: 1.5em; overflow-wrap: anywhere } h2 { margin-top: 2em; font-size: 1.2em }
p, figcaption { color: var(--soft) } figure { margin: 0; max-width: 560px; flex: 1 1 300px }
.figures { display: flex; flex-wrap: wrap; gap: 24px } svg { width: 100%; display: block }
svg text { font-size: 13px; fill: var(--soft) } path { fill: none; stroke: currentColor }
.scroll { overflow-x: auto; max-width: 100% } table { border-collapse: collapse; margin: 8px 0 }
th, td { padding: 4px 10px; border-bottom: 1px solid var(--line); text-align: left }
td { vertical-align: top; overflow-wrap: anywhere; min-width: 3em } th { font-weight: 600 }
td.text { min-width: 14em } .number { text-align: right; white-space: nowrap }
.grid { stroke: var(--line) } .line { stroke-width: 2 } .guide { stroke-dasharray: 5 4 }
.dots { stroke-width: 5; stroke-linecap: round; opacity: .7 } .bar { fill: currentColor }
.s0 { color: #3b82c4 } .s1 { color: #d9690f } .s2 { color: #1b9e77 } .s3 { color: #b04fa8 }
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Data:
    """A split: what a run counted in it.

    Attributes:
        name: "training" or "evaluation".
        counts: by description, such as "rows".
        lengths: number of rows with 0, 1, 2, ... tokens; empty if unknown.
        labels: number of rows with each label.
        problems: what looks wrong, a sentence each.
    """

    name: str
    counts: Mapping[str, Any]
    lengths: Sequence[int] = ()
    labels: Mapping[str, int] = dataclasses.field(default_factory=dict)
    problems: Sequence[str] = ()


class _Html(str):
    """Text that is HTML already."""


def evaluation_page(
    title: str,
    run: Mapping[str, Any],
    data: Sequence[Data],
    folder: RunFolder,
    metrics: Mapping[str, Any],
    report: EvaluationReport,
) -> str:
    """Renders a report.

    Args:
        title: heading of the page.
        run: what was run, by description.
        data: the splits of the run.
        folder: the folder with the training curve, if the model was trained there.
        metrics: the metrics of the evaluation.
        report: what the task says about the rows.
    """
    measures = bool(report.counts or report.numbers or report.values) and len(report) > 0
    found = statistics.intervals(report) if measures else None
    sections = [
        ("Metrics", _metrics(metrics, found)),
        ("By label", _by_label(report, found)),
        ("Confusion matrix", _matrix(report)),
        ("Predicted and true numbers", _scatter(report)),
        ("Calibration", _calibration(report)),
        *((heading, _by_group(report, names)) for heading, names in report.groups.items()),
        ("Mistakes", _mistakes(report)),
        ("Training", _curve(folder)),
        ("Data", _data(data)),
        ("Run", _table(("", ""), run.items())),
    ]
    return _page(title, sections)


def summary_page(title: str, run: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    """Renders the spread of the metrics in `summary`, the content of `runs.json`."""
    runs, best = summary["runs"], summary["best"]["folder"]
    header = ("metric", "mean", "deviation", "lowest", "highest")
    columns = {name: [entry[name] for entry in runs] for name in summary["mean"]}
    rows = (
        (name, summary["mean"][name], summary["deviation"][name], min(values), max(values))
        for name, values in columns.items()
    )
    numbers = np.arange(1, len(runs) + 1)
    figures = [
        chart([Series("", numbers, values, "dots")], "run", name)
        for name, values in columns.items()
        if name != "global_step"
    ]
    links = (
        (_Html(f'<a href="{escape(r["folder"])}/report.html">{escape(r["folder"])}</a>'), *values)
        for r in runs
        for values in [[r["random_seed"], *(r[name] for name in columns)]]
    )
    text = f"<p>The best run is {escape(best)}.</p>"
    sections = [
        ("Spread of the metrics", _table(header, rows) + _figures(figures)),
        ("Runs", _table(("run", "seed", *columns), links) + text),
        ("Run", _table(("", ""), run.items())),
    ]
    return _page(title, sections)


def _page(title: str, sections: Iterable[tuple[str, str]]) -> str:
    body = "\n".join(f"<h2>{escape(name)}</h2>\n{html}" for name, html in sections if html)
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{escape(title)}</title>'
        '\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{_STYLE}</style>\n<h1>{escape(title)}</h1>\n{body}\n</html>\n"
    )


def _cell(value: Any) -> str:
    if isinstance(value, _Html):
        return f"<td>{value}</td>"
    if isinstance(value, int | float | np.number):
        is_whole = isinstance(value, int | np.integer)
        return f'<td class="number">{f"{value:,}" if is_whole else f"{value:.4g}"}</td>'
    text = str(value)
    is_long, text = len(text) > 30, text[:_MAX_CHARS] + "…" * (len(text) > _MAX_CHARS)
    kind = ' class="text"' if is_long else ""
    return f"<td{kind}>{escape(text)}</td>"


def _table(header: Iterable[Any], rows: Iterable[Iterable[Any]], limit: int = _MAX_ROWS) -> str:
    """Renders a table that scrolls in its own box; says how many rows are beyond the limit."""
    rows = list(rows)
    lines = ["".join(f"<th>{escape(str(name))}</th>" for name in header)]
    lines += ["".join(map(_cell, row)) for row in rows[:limit]]
    table = "\n".join(f"<tr>{line}</tr>" for line in lines)
    more = f"<p>The first {limit} of {len(rows):,} rows.</p>" if len(rows) > limit else ""
    return f'<div class="scroll"><table>\n{table}\n</table></div>{more}' if rows else ""


def _figures(figures: Iterable[str]) -> str:
    joined = "\n".join(figures)
    return f'<div class="figures">{joined}</div>' if joined else ""


def _interval(found: statistics.Intervals | None, name: str, index: Any = ...) -> str:
    if found is None or name not in found.by_name:
        return ""
    low, high = found.by_name[name][(slice(None), index)]
    return f"{low:.4g} – {high:.4g}"


def _metrics(metrics: Mapping[str, Any], found: statistics.Intervals | None) -> str:
    rows = []
    for name, value in metrics.items():
        rows.append((name, value, _interval(found, name.removeprefix("eval_"))))
    text = f"95% intervals of {found.resamples:,} bootstrap resamples of the rows" if found else ""
    return _table(("metric", "value", "95% interval"), rows) + f"<p>{text}.</p>" * bool(text)


def _by_label(report: EvaluationReport, found: statistics.Intervals | None) -> str:
    if not report.counts:
        return ""
    values = statistics.label_metrics(report, np.ones(len(report)))
    names = ("precision", "recall", "f1")
    rows = []
    for index, label in enumerate(report.labels):
        if values["label_support"][index] or values["label_predicted"][index]:
            scores = (float(values[f"label_{name}"][index]) for name in names)
            interval = _interval(found, "label_f1", index)
            rows.append((label, *scores, interval, int(values["label_support"][index])))
    return _table(("label", *names, "95% interval of f1", "support"), rows)


def _matrix(report: EvaluationReport) -> str:
    size = len(report.labels)
    if report.confusion is None or size > _MAX_MATRIX:
        return ""
    true, predicted = report.confusion
    matrix = np.bincount(size * true + predicted, minlength=size**2).reshape(size, size)
    rows = ["<th>true \\ predicted</th>" + "".join(f"<th>{escape(x)}</th>" for x in report.labels)]
    for label, counts in zip(report.labels, matrix, strict=True):
        # The square root makes errors of a few percent visible.
        shades = np.sqrt(counts / max(counts.sum(), 1)) * 0.7
        cells = (
            f'<td class="number" style="background: rgba(59, 130, 196, {shade:.2f})">{count:,}</td>'
            for count, shade in zip(counts.tolist(), shades, strict=True)
        )
        rows.append(f"<th>{escape(label)}</th>{''.join(cells)}")
    table = "\n".join(f"<tr>{row}</tr>" for row in rows)
    text = "Colors show shares of a row, which has all occurrences of a label."
    return f'<div class="scroll"><table>\n{table}\n</table></div><p>{text}</p>'


def _scatter(report: EvaluationReport) -> str:
    if not report.numbers:
        return ""
    true, predicted = report.numbers
    shown = np.linspace(0, len(true) - 1, min(len(true), _MAX_DOTS)).astype(int)
    figures = []
    for index, (x, y) in enumerate(zip(true.T, predicted.T, strict=True)):
        ends = [float(x.min()), float(x.max())]
        name = report.labels[index] if report.labels else "number"
        series = [
            Series("predictions", x[shown], y[shown], "dots"),
            Series("", ends, ends, "guide"),
        ]
        figures.append(chart(series, f"true {name}", f"predicted {name}"))
    return _figures(figures)


def _calibration(report: EvaluationReport) -> str:
    if not report.confidence or not len(report.confidence[0]):
        return ""
    bins = statistics.calibration(*report.confidence)
    series = [
        Series("predictions", bins[:, 1], bins[:, 2], "both"),
        Series("ideal", [0, 1], [0, 1], "guide"),
    ]
    figure = chart(series, "mean probability", "share of correct ones", (0, 1), (0, 1))
    error = statistics.calibration_error(bins)
    text = f"<p>Expected calibration error: {error:.4g}; a probability is off by so much.</p>"
    rows = ((int(count), float(mean), float(share)) for count, mean, share in bins)
    header = ("predictions", "mean probability", "share of correct ones")
    return text + _figures([figure, f"<figure>{_table(header, rows)}</figure>"])


def _by_group(report: EvaluationReport, names: Sequence[str]) -> str:
    groups, inverse = np.unique(np.asarray(names, object).astype(str), return_inverse=True)
    counts = np.bincount(inverse)
    means = [np.bincount(inverse, values) / counts for values in report.values.values()]
    rows = (
        (str(groups[index]), int(counts[index]), *(float(mean[index]) for mean in means))
        for index in np.argsort(-counts, kind="stable")
    )
    return _table(("", "rows", *report.values), rows)


def _mistakes(report: EvaluationReport) -> str:
    order = report.order
    if report.is_wrong is not None:
        order = order[report.is_wrong[order]]
    elif report.losses is None:
        return ""
    text = f"The {min(len(order), _NUM_MISTAKES)} worst of {counted(len(order), 'row')}"
    text += ". All rows are in eval_predictions.tsv, worst first."
    names = [name for name in report.columns if not name.startswith(_PROBABILITY)]
    probabilities = [name for name in report.columns if name.startswith(_PROBABILITY)]
    header = [*names, *["probabilities"][: len(probabilities)]]
    header += ["loss"] * (report.losses is not None) + ["text"] * bool(report.context)
    rows = []
    for index in order[:_NUM_MISTAKES].tolist():
        row = [report.columns[name][index] for name in names]
        if probabilities:
            pairs = sorted((-report.columns[n][index], n) for n in probabilities)
            best = (f"{n.removeprefix(_PROBABILITY)} {-p:.3f}" for p, n in pairs)
            row.append(", ".join([*best][:_MAX_PROBABILITIES]))
        if report.losses is not None:
            row.append(float(report.losses[index]))
        if report.context:
            context = escape(report.context(index)[: 2 * _MAX_CHARS])
            row.append(_Html(f"<details><summary>show</summary>{context}</details>"))
        rows.append(row)
    return f"<p>{text}</p>" + _table(header, rows)


def _curve(folder: RunFolder) -> str:
    table = read_table(folder.file(CURVE))
    if not table:
        return ""
    steps, losses = np.array(table, np.float64)[:, :2].T
    # Means of neighboring steps: a curve instead of noise.
    size = -(-len(steps) // _NUM_POINTS)
    starts = np.arange(0, len(steps), size)
    counts = np.diff([*starts, len(steps)])
    means = [np.add.reduceat(values, starts) / counts for values in (steps, losses)]
    series, limits = [Series("training", *means)], (0.0, float(steps[-1]))
    texts, figures = [f"{int(steps[-1]):,} steps"], []
    if folder.best:
        content = files.read_json(folder.file(EVALUATIONS))
        metric, best, evaluations = (content[x] for x in ("metric", "best", "evaluations"))
        x = [e["step"] for e in evaluations]
        if "eval_loss" in best:
            series.append(Series("evaluation", x, [e["eval_loss"] for e in evaluations], "both"))
        name = next(n for n in (f"eval_{metric}", metric) if n in best)
        y = [e[name] for e in evaluations]
        if metric != "loss":
            metric_series = [Series("", x, y, "both")]
            figures = [chart(metric_series, "step", name, limits, metric_limits(y))]
        texts.append(f"best {name}: {best[name]:.4g} at step {best['step']:,}")
    figures.insert(0, chart(series, "step", "loss", limits))
    return f"<p>{escape('; '.join(texts))}.</p>" + _figures(figures)


def _data(splits: Sequence[Data]) -> str:
    names = list(dict.fromkeys(name for split in splits for name in split.counts))
    rows = [(name, *(split.counts.get(name, "") for split in splits)) for name in names]
    labels = dict.fromkeys(label for split in splits for label in split.labels)
    rows += [
        (f"label {label}", *(split.labels.get(label, 0) for split in splits)) for label in labels
    ]
    figures = [
        _histogram(split.name, np.asarray(split.lengths)) for split in splits if any(split.lengths)
    ]
    problems = "".join(
        f"<li>{escape(problem)}</li>" for split in splits for problem in split.problems
    )
    notes = f"<ul>{problems}</ul>" if problems else ""
    return _table(("", *(split.name for split in splits)), rows) + notes + _figures(figures)


def _histogram(name: str, lengths: np.ndarray) -> str:
    longest = len(lengths) - 1  # max_seq_length
    edges = np.unique(np.linspace(0, longest, _NUM_BARS + 1).astype(int))
    counts = np.add.reduceat(lengths[1:], edges[:-1])
    series = [Series("", (edges[:-1] + edges[1:] + 1) / 2, counts, "bars")]
    label, limits = f"tokens, up to max_seq_length={longest}", (0.0, longest + 0.5)
    return chart(series, label, f"rows, {name}", limits, (0.0, float(counts.max()) or 1.0))
