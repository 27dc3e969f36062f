"""The figures of benchmarks/results as tables, and those of one machine as a picture.

usage: python benchmarks/picture.py

Writes docs/speed.png and the tables in docs/performance.md and README.md, between their two marks.
Run after the benchmarks; in each folder, what another machine has run than fine_tuning_float32 is
left out. Needs matplotlib.
"""

import json
from pathlib import Path
from typing import Any

from matplotlib import pyplot

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "speed.png"
# The folder of an older processor, whose results are kept beside those of the benchmarks.
OLDER = "avx2"
TABLES = (("README.md", ""), ("docs/performance.md", ""), ("docs/performance.md", OLDER))
END = "<!-- end of figures -->\n"

# What is compared: file of results, keys of the figure in it, our side and its flags, the other.
ROWS = (
    (
        "fine-tuning BERT-base, MRPC rows",
        "fine_tuning_float32",
        ("bert_tf than transformers, padded", "times faster"),
        "default flags",
        "transformers, padded to 128",
    ),
    (
        "fine-tuning BERT-base, MRPC rows",
        "fine_tuning_float32",
        ("bert_tf, best flags than transformers, dynamic", "times faster"),
        "--length_grouping=true",
        "transformers, dynamic padding",
    ),
    (
        "fine-tuning BERT-base, MRPC rows",
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
        "fine-tuning BERT-base, MRPC rows in 128",
        "keras_hub",
        ("times faster than", "keras_hub"),
        "default flags",
        "KerasHub as it compiles itself",
    ),
    (
        "fine-tuning, full rows of 128",
        "keras_hub_full_rows",
        ("times faster than", "keras_hub"),
        "default flags",
        "KerasHub as it compiles itself",
    ),
    (
        "fine-tuning, full rows of 128",
        "keras_hub_full_rows",
        ("times faster than", "keras_hub with oneDNN"),
        "default flags",
        "KerasHub with oneDNN switched on",
    ),
    (
        "sentences to vectors",
        "sentences",
        ("times faster",),
        "--pooling=mean --layers=-1",
        "transformers, sorted by length",
    ),
    (
        "sentences to vectors in bfloat16",
        "sentences_bfloat16",
        ("times faster",),
        "--pooling=mean --layers=-1",
        "transformers, sorted by length",
    ),
    (
        "command to ten predictions",
        "startup",
        ("times faster",),
        "default flags",
        "a pipeline of transformers",
    ),
    (
        "memory of fine-tuning BERT-base",
        "fine_tuning_float32",
        ("bert_tf than transformers, padded", "times less memory"),
        "default flags",
        "transformers, padded to 128",
    ),
    (
        "memory of fine-tuning BERT-base",
        "fine_tuning_float32",
        ("bert_tf, best flags than transformers, dynamic", "times less memory"),
        "--length_grouping=true",
        "transformers, dynamic padding",
    ),
)


def figures(folder: str) -> list[tuple[str, str, str, float, dict[str, Any]]]:
    """Work, our flags, the other side, ratio, and all results, of what one machine has run."""
    found = []
    for work, name, keys, flags, other in ROWS:
        path = ROOT / "benchmarks" / "results" / folder / f"{name}.json"
        if path.exists():
            results = json.loads(path.read_text())
            ratio: Any = results
            for key in keys:
                ratio = ratio[key]
            found.append((work, flags, other, float(ratio), results))
    machine = [found[0][-1][key] for key in ("cpu", "cores")]
    return [row for row in found if [row[-1][key] for key in ("cpu", "cores")] == machine]


def table(folder: str) -> str:
    """The figures as Markdown."""
    lines = ["| work | our flags | beside it | times | command |", "|---|---|---|---|---|"]
    lines += [
        f"| {work} | {flags} | {other} | {ratio:.2f} | `{results['command']}` |"
        for work, flags, other, ratio, results in figures(folder)
    ]
    return "\n".join(lines) + "\n"


def draw() -> None:
    """The figures as bars; at 1 both are equal."""
    rows = figures("")[::-1]
    figure, axes = pyplot.subplots(figsize=(9, 0.45 * len(rows) + 1.2), layout="constrained")
    names = [f"{work}\n{flags} | {other}" for work, flags, other, _, _ in rows]
    bars = axes.barh(names, [ratio for *_, ratio, _ in rows], color="#4878a8", height=0.6)
    axes.bar_label(bars, fmt="%.2f", padding=3, fontsize=8)
    axes.axvline(1.0, color="#404040", linewidth=1)
    axes.tick_params(axis="y", labelsize=7)
    axes.set_xscale("log")
    axes.set_xticks([0.5, 1, 2, 4], ["0.5", "1", "2", "4"])
    axes.minorticks_off()
    axes.set_xlabel("times as fast, or as little memory, as what it is compared with")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(PICTURE, dpi=130)


def main() -> None:
    """Writes picture and tables."""
    for page, folder in TABLES:
        begin = f"<!-- figures {folder} -->\n" if folder else "<!-- figures -->\n"
        before, rest = (ROOT / page).read_text(encoding="utf-8").split(begin)
        after = rest.split(END, maxsplit=1)[1]
        (ROOT / page).write_text(before + begin + table(folder) + END + after, encoding="utf-8")
    draw()


if __name__ == "__main__":
    main()
