"""Writes the results in benchmarks/results to tables, and plots those of one machine.

usage: python benchmarks/picture.py

Run this after the benchmarks. It writes docs/speed.png, and the tables between the markers in
docs/performance.md and README.md. Results of machines other than that of fine_tuning_float32 are
omitted.
"""

import json
from pathlib import Path
from typing import Any

from matplotlib import pyplot

ROOT = Path(__file__).resolve().parents[1]
PLOT = ROOT / "docs" / "speed.png"
# Folder with the results of an older processor.
OLDER_RESULTS = "avx2"
TABLES = (("README.md", ""), ("docs/performance.md", ""), ("docs/performance.md", OLDER_RESULTS))
END = "<!-- end of results -->\n"

# Task, results file, path of the ratio in that file, our flags, and the alternative.
ROWS = (
    (
        "fine-tuning BERT-base on MRPC",
        "fine_tuning_float32",
        ("bert_tf than transformers, padded", "times faster"),
        "default flags",
        "transformers, padded to 128",
    ),
    (
        "fine-tuning BERT-base on MRPC",
        "fine_tuning_float32",
        ("bert_tf, best flags than transformers, dynamic", "times faster"),
        "--length_grouping=true",
        "transformers, dynamic padding",
    ),
    (
        "fine-tuning BERT-base on MRPC",
        "fine_tuning_float32",
        ("bert_tf than transformers, dynamic", "times faster"),
        "default flags",
        "transformers, dynamic padding",
    ),
    (
        "fine-tuning BERT-base in bfloat16",
        "fine_tuning_bfloat16",
        ("bert_tf, best flags than transformers, dynamic", "times faster"),
        "--length_grouping=true",
        "transformers, autocast, dynamic padding",
    ),
    (
        "fine-tuning BERT-base on MRPC, padded to 128",
        "keras_hub",
        ("times faster than", "keras_hub"),
        "default flags",
        "KerasHub, default compile()",
    ),
    (
        "fine-tuning BERT-base, full rows of 128 tokens",
        "keras_hub_full_rows",
        ("times faster than", "keras_hub"),
        "default flags",
        "KerasHub, default compile()",
    ),
    (
        "fine-tuning BERT-base, full rows of 128 tokens",
        "keras_hub_full_rows",
        ("times faster than", "keras_hub with oneDNN"),
        "default flags",
        "KerasHub with oneDNN enabled",
    ),
    (
        "sentence vectors",
        "sentences",
        ("times faster",),
        "--pooling=mean --layers=-1",
        "transformers, sorted by length",
    ),
    (
        "sentence vectors in bfloat16",
        "sentences_bfloat16",
        ("times faster",),
        "--pooling=mean --layers=-1",
        "transformers, sorted by length",
    ),
    (
        "ten predictions, including startup",
        "startup",
        ("times faster",),
        "default flags",
        "transformers pipeline",
    ),
    (
        "memory for fine-tuning BERT-base",
        "fine_tuning_float32",
        ("bert_tf than transformers, padded", "times less memory"),
        "default flags",
        "transformers, padded to 128",
    ),
    (
        "memory for fine-tuning BERT-base",
        "fine_tuning_float32",
        ("bert_tf, best flags than transformers, dynamic", "times less memory"),
        "--length_grouping=true",
        "transformers, dynamic padding",
    ),
)


def read_results(folder: str) -> list[tuple[str, str, str, float, dict[str, Any]]]:
    """Returns the task, our flags, the alternative, the ratio, and all results of each row."""
    rows = []
    for task, name, keys, flags, alternative in ROWS:
        path = ROOT / "benchmarks" / "results" / folder / f"{name}.json"
        if path.exists():
            results = json.loads(path.read_text())
            ratio: Any = results
            for key in keys:
                ratio = ratio[key]
            rows.append((task, flags, alternative, float(ratio), results))
    machine = [rows[0][-1][key] for key in ("cpu", "cores")]
    return [row for row in rows if [row[-1][key] for key in ("cpu", "cores")] == machine]


def format_table(folder: str) -> str:
    """Returns the results as a Markdown table."""
    lines = ["| task | our flags | alternative | ratio | command |", "|---|---|---|---|---|"]
    lines += [
        f"| {task} | {flags} | {alternative} | {ratio:.2f} | `{results['command']}` |"
        for task, flags, alternative, ratio, results in read_results(folder)
    ]
    return "\n".join(lines) + "\n"


def plot() -> None:
    """Plots the ratios as a bar chart; 1 means equal."""
    rows = read_results("")[::-1]
    figure, axes = pyplot.subplots(figsize=(9, 0.45 * len(rows) + 1.2), layout="constrained")
    names = [f"{task}\n{flags} | {alternative}" for task, flags, alternative, _, _ in rows]
    bars = axes.barh(names, [ratio for *_, ratio, _ in rows], color="#4878a8", height=0.6)
    axes.bar_label(bars, fmt="%.2f", padding=3, fontsize=8)
    axes.axvline(1.0, color="#404040", linewidth=1)
    axes.tick_params(axis="y", labelsize=7)
    axes.set_xscale("log")
    axes.set_xticks([0.5, 1, 2, 4], ["0.5", "1", "2", "4"])
    axes.minorticks_off()
    axes.set_xlabel("ratio of time or memory (above 1: bert_tf is better)")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(PLOT, dpi=130)


def main() -> None:
    """Writes the tables and the plot."""
    for page, folder in TABLES:
        begin = f"<!-- results {folder} -->\n" if folder else "<!-- results -->\n"
        before, rest = (ROOT / page).read_text(encoding="utf-8").split(begin)
        after = rest.split(END, maxsplit=1)[1]
        (ROOT / page).write_text(
            before + begin + format_table(folder) + END + after, encoding="utf-8"
        )
    plot()


if __name__ == "__main__":
    main()
