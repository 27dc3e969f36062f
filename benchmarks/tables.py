"""Writes the results in benchmarks/results to the tables of README.md and docs/, and plots them.

usage: python benchmarks/tables.py

run_all.py calls this. A test checks that the tables are up to date.
"""

import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PLOT = ROOT / "docs" / "speed.png"
PAGES = ("README.md", "docs/distributed.md", "docs/engines.md", "docs/performance.md")
_TABLE = re.compile(r"<!-- table: (\w+) -->\n.*?<!-- end of table -->", re.S)


class Comparison(NamedTuple):
    """Compares our speed or memory with that of another library; `keys` lead to the ratio."""

    task: str
    flags: str
    peer: str
    file: str
    keys: tuple[str, ...]


_BATCHES = "bert_tf than transformers, dynamic"
_PADDED = "bert_tf than transformers, padded"
_KERAS_HUB = ("times faster than", "keras_hub")
_KERAS_HUB_ONEDNN = ("times faster than", "keras_hub with oneDNN")
_FASTER, _LESS = "times faster", "times less memory"
_TUNING, _BFLOAT16 = "fine_tuning_float32", "fine_tuning_bfloat16"
_BASE = "fine-tuning BERT-Base on MRPC"
_DYNAMIC = "transformers, dynamic padding"

COMPARISONS = (
    Comparison(_BASE, "", "transformers, padded to 128", _TUNING, (_PADDED, _FASTER)),
    Comparison(_BASE, "", _DYNAMIC, _TUNING, (_BATCHES, _FASTER)),
    Comparison(
        f"{_BASE}, bfloat16", "`--precision=bfloat16`", _DYNAMIC, _BFLOAT16, (_BATCHES, _FASTER)
    ),
    Comparison(f"{_BASE}, padded to 128", "", "KerasHub", "keras_hub", _KERAS_HUB),
    Comparison(
        "fine-tuning BERT-Base, rows of 128 tokens",
        "",
        "KerasHub",
        "keras_hub_full_rows",
        _KERAS_HUB,
    ),
    Comparison(
        "fine-tuning BERT-Base, rows of 128 tokens",
        "",
        "KerasHub, oneDNN enabled",
        "keras_hub_full_rows",
        _KERAS_HUB_ONEDNN,
    ),
    Comparison("ten predictions, including startup", "", "transformers", "startup", (_FASTER,)),
    Comparison("memory of fine-tuning BERT-Base", "", _DYNAMIC, _TUNING, (_BATCHES, _LESS)),
)
# Rows from inference.json: task, single texts or bulk, our flags, our method and the peer.
_VECTOR, _SINGLE = "sentence vectors", "sentence vectors, one at a time"
_INT8_FLAGS, _DEFAULT_INT8 = "`--engine=litert --precision=int8`", "ONNX Runtime, default int8"
_BFLOAT16_FLAG, _OUR_BFLOAT16 = "`--precision=bfloat16`", "bert_tf, tensorflow bfloat16"
_VECTORS = (
    (_VECTOR, "bulk", "", "bert_tf, tensorflow", "transformers"),
    (_VECTOR, "bulk", "", "bert_tf, tensorflow", "OpenVINO"),
    (_VECTOR, "bulk", _BFLOAT16_FLAG, _OUR_BFLOAT16, "transformers, bfloat16"),
    (_VECTOR, "bulk", _BFLOAT16_FLAG, _OUR_BFLOAT16, "OpenVINO, bfloat16"),
    (_VECTOR, "bulk", _INT8_FLAGS, "bert_tf, litert int8", _DEFAULT_INT8),
    (_SINGLE, "single", "", "bert_tf, tensorflow", "transformers"),
    (_SINGLE, "single", "`--engine=onnx`", "bert_tf, onnx", "ONNX Runtime"),
    (_SINGLE, "single", _INT8_FLAGS, "bert_tf, litert int8", _DEFAULT_INT8),
)

# Task, our flags and peer of the rows in the README: some for, some against us.
HIGHLIGHTS = (
    (_BASE, "", _DYNAMIC),
    (f"{_BASE}, padded to 128", "", "KerasHub"),
    ("fine-tuning BERT-Base, rows of 128 tokens", "", "KerasHub"),
    ("memory of fine-tuning BERT-Base", "", _DYNAMIC),
    (_VECTOR, "", "transformers"),
    (_SINGLE, "", "transformers"),
)


def read(name: str) -> dict[str, Any]:
    """Reads a file of results."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def comparisons() -> list[tuple[str, str, str, float]]:
    """Returns the task, our flags, the other library, and the ratio of each comparison."""
    rows = []
    for task, flags, peer, name, keys in COMPARISONS:
        ratio: Any = read(name)
        for key in keys:
            ratio = ratio[key]
        rows.append((task, flags, peer, float(ratio)))
    inference = read("inference")
    for task, kind, flags, ours, peer in _VECTORS:
        times = {name: row["relative time"] for name, row in inference[kind].items()}
        if ours in times and peer in times:
            rows.append((task, flags, peer, times[peer] / times[ours]))
    return rows


def format_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Returns a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)


def format_comparisons() -> str:
    """Returns the table of ratios."""
    rows = [(task, flags, peer, f"{ratio:.2f}") for task, flags, peer, ratio in comparisons()]
    return format_table(("task", "bert_tf flags", "compared with", "ratio"), rows)


def format_highlights() -> str:
    """Returns the ratios in the README, with machine and date in the header."""
    ratios = {(task, flags, peer): ratio for task, flags, peer, ratio in comparisons()}
    rows = [(row[0], row[2], f"{ratios[row]:.2f}") for row in HIGHLIGHTS]
    results = read(_TUNING)
    machine = f"{results['cores']} cores ({results['cpu']}), {results['date']}"
    return format_table(("task", "compared with", f"ratio on {machine}"), rows)


def format_machine() -> str:
    """Returns a sentence on date, machine and versions."""
    results: dict[str, Any] = {}
    dates = set()
    for name in ("inference", *(row.file for row in COMPARISONS)):
        results |= read(name)
        dates.add(results["date"])
    packages = ("tensorflow", "keras", "torch", "transformers", "keras-hub", "onnxruntime")
    packages += ("ai-edge-litert", "openvino", "tokenizers")
    versions = ", ".join(f"{name} {results[name]}" for name in packages if name in results)
    cores, cpu = results["cores"], results["cpu"]
    return f"Measured on {' and '.join(sorted(dates))} on {cores} cores ({cpu}), with {versions}.\n"


def format_inference(kind: str, unit: str) -> str:
    """Returns the table of engines and peers, for single texts or in bulk."""
    rows = [
        (name, row[unit], f"{row['relative time']:.2f}", row["mean cosine"], row["min cosine"])
        for name, row in read("inference")[kind].items()
    ]
    time = "time relative to ONNX Runtime's"
    return format_table(("", unit, time, "mean cosine", "min cosine"), rows)


def format_limit() -> str:
    """Returns the table of the percentage of the hardware limit."""
    results = {precision: read(f"forward_{precision}") for precision in ("float32", "bfloat16")}
    names = list(results["float32"]["% of the limit"])
    rows = [
        (precision, *(result["% of the limit"][name] for name in names))
        for precision, result in results.items()
    ]
    return format_table(("% of the limit", *names), rows)


def format_data() -> str:
    """Returns the table of tokenization, records and answers."""
    rows = []

    def add(task: str, results: Mapping[str, Any], ours: str, others: str) -> None:
        rows.append((task, ours, others, f"{results['date']}, {results['cpu']}"))

    texts = read("tokenizer")
    for name, label in (("English books", "English books"), ("many scripts", "many languages")):
        rates = texts[name]["MB/s"]
        others = f"`tokenizers` {rates['tokenizers']}, the original {rates['original']} MB/s"
        add(f"tokenizing on one core: {label}", texts, f"{rates['bert_tf']} MB/s", others)
    for task, name, ours in (
        ("SST-2 to TFRecords", "features", "bert_tf"),
        ("reading and shuffling records", "input_pipeline", "shuffled"),
    ):
        results = read(name)
        rates = results["rows/s"]
        add(task, results, f"{rates[ours]:,} rows/s", f"the original {rates['original']:,} rows/s")
    squad = read("squad")
    for task, name in (("questions of SQuAD to rows", "convert"), ("logits to answers", "decode")):
        seconds = squad["seconds"]
        add(task, squad, f"{seconds[name]} s", f"the original {seconds[f'{name}, original']} s")
    pretraining = read("pretraining_data")
    seconds, size = pretraining["seconds"], pretraining["MB"]
    ours = f"{seconds['identical']} s; {seconds['two workers']} s with `--num_workers=2`"
    others = f"the original {seconds['baseline']} s"
    add(f"{size} MB of books to pre-training records", pretraining, ours, others)
    return format_table(("task", "bert_tf", "compared with", "measured"), rows)


def format_memory() -> str:
    """Returns the table of peak memory and time per step of training, by flags and precision."""
    results = read("memory")
    cells = results["cells"]
    precisions = list(dict.fromkeys(cell["precision"] for cell in cells))
    rows: dict[str, list[str]] = {}
    for cell in cells:
        flags = f"`{cell['row']}`" if cell["row"].startswith("--") else cell["row"]
        peak, seconds = cell["peak_bytes"] / 1e9, cell["seconds_per_step"]
        rows.setdefault(flags, [flags]).append(f"{peak:.1f} GB, {seconds:.1f} s")
    machine = f"Measured on {results['date']} on {results['cores']} cores ({results['cpu']}):\n\n"
    header = ("BERT-Base, batch 32, 128 tokens", *precisions)
    return machine + format_table(header, list(rows.values()))


TABLES: Mapping[str, Callable[[], str]] = {
    "machine": format_machine,
    "comparisons": format_comparisons,
    "highlights": format_highlights,
    "single": lambda: format_inference("single", "ms"),
    "bulk": lambda: format_inference("bulk", "texts/s"),
    "limit": format_limit,
    "memory": format_memory,
    "data": format_data,
}


def update(page: str) -> str:
    """Returns the text of a page with tables made from the results."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return _TABLE.sub(
        lambda match: f"<!-- table: {match[1]} -->\n{TABLES[match[1]]()}<!-- end of table -->", text
    )


def plot() -> bytes:
    """Plots the ratios as a bar chart, where 1 means equal; returns PNG bytes."""
    from matplotlib.figure import Figure

    rows = comparisons()[::-1]
    figure = Figure(figsize=(9, 0.4 * len(rows) + 1.2), layout="constrained")
    axes = figure.add_subplot()
    names = [
        f"{task}{' ' if flags else ''}{flags.replace('`', '')}\n{peer}"
        for task, flags, peer, _ in rows
    ]
    ratios = [row[-1] for row in rows]
    # Bars begin at 1: equal is no bar.
    gains = [ratio - 1 for ratio in ratios]
    colors = ["#4878a8" if gain >= 0 else "#c8743a" for gain in gains]
    bars = axes.barh(range(len(rows)), gains, left=1, color=colors, height=0.6)
    axes.set_yticks(range(len(rows)), names, fontsize=7)
    axes.bar_label(bars, [f"{ratio:.2f}" for ratio in ratios], padding=3, fontsize=8)
    axes.axvline(1.0, color="#404040", linewidth=1)
    axes.set_xscale("log")
    axes.set_xticks([0.5, 1, 2, 4], ["0.5", "1", "2", "4"])
    axes.minorticks_off()
    axes.set_xlabel("ratio of time or memory (above 1: bert_tf is better)")
    axes.spines[["top", "right"]].set_visible(False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130, metadata={"Software": None})
    return buffer.getvalue()


def main() -> None:
    """Writes the tables and the plot."""
    for page in PAGES:
        (ROOT / page).write_text(update(page), encoding="utf-8")
    PLOT.write_bytes(plot())


if __name__ == "__main__":
    main()
