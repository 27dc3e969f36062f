"""Fine-tunes a small BERT on the reviews in this folder, evaluates it, and predicts.

Runs `run_classifier.py` with the flags in `flags.txt`, and prints what came out. The model is
`examples/small_bert`, which was pre-trained on nine books.
"""

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
OUTPUT = ROOT / "output" / "reviews"
LOG = OUTPUT.with_suffix(".log")
COMMAND = ("run_classifier.py", "--flagfile=examples/reviews/flags.txt")
_NUM_SHOWN = 3


def read(path: Path) -> list[dict[str, str]]:
    """Returns the rows of a table."""
    with open(path, encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def train() -> None:
    """Runs the command; shows its progress bar, and writes its log to a file."""
    # Otherwise a second run would resume from the finished run, with no steps left.
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.parent.mkdir(exist_ok=True)
    command = [sys.executable, *COMMAND]
    settings = {"stderr": subprocess.PIPE, "encoding": "utf-8", "errors": "replace"}
    with (
        open(LOG, "w", encoding="utf-8") as log,
        subprocess.Popen(command, cwd=ROOT, **settings) as process,
    ):
        for line in process.stderr or ():
            log.write(line)
            if line.startswith("train: "):
                print(line.rstrip("\n"), end="\r", flush=True)
    if process.returncode:
        raise SystemExit(f"\nThe command failed. Its log:\n{LOG.read_text(encoding='utf-8')}")


def main() -> None:
    """Runs the command and prints its results."""
    print(f"$ python {' '.join(COMMAND)}")
    counts = [len(read(HERE / f"{name}.tsv")) for name in ("train", "dev", "test")]
    print(
        "Fine-tuning a small BERT on {} reviews, to evaluate it on {} and label {} new ones".format(
            *counts
        )
    )
    train()
    accuracy = json.loads((OUTPUT / "eval_results.json").read_text())["eval_accuracy"]
    print(f"\n{accuracy * counts[1]:.0f} of {counts[1]} reviews are labeled correctly. New ones:")
    rows = read(OUTPUT / "test_predictions.tsv")
    for label in ("positive", "negative"):
        rows.sort(key=lambda row: -float(row[f"probability_{label}"]))
        for row in rows[:_NUM_SHOWN]:
            print(f"  {label} {float(row[f'probability_{label}']):6.1%}  {row['text']}")
    folder = OUTPUT.relative_to(ROOT)
    print(f"See {folder}/report.html, with all mistakes, and {LOG.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
