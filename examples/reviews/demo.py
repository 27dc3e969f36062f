"""Fine-tunes a small BERT on the reviews in this folder, evaluates it, and predicts.

Prints and runs a `run_classifier.py` command, then prints the predictions as a table. The model is
`examples/small_bert`, which was pre-trained on nine books.
"""

import csv
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
OUTPUT = ROOT / "output" / "reviews"
SMALL_BERT = Path("examples/small_bert")

FLAGS = {
    "task_name": "tsv",
    "text_column": "text",
    "label_column": "label",
    "id_column": "id",
    "do_train": "true",
    "do_eval": "true",
    "do_predict": "true",
    "data_dir": HERE.relative_to(ROOT),
    "vocab_file": SMALL_BERT / "vocab.txt",
    "bert_config_file": SMALL_BERT / "bert_config.json",
    "init_checkpoint": SMALL_BERT / "bert_model.ckpt",
    "max_seq_length": 48,
    "train_batch_size": 16,
    "learning_rate": 3e-4,
    "num_train_epochs": 10,
    "random_seed": 5,
    "output_dir": OUTPUT.relative_to(ROOT),
}


def main() -> None:
    """Runs the command and prints its results."""
    print("1. Fine-tune on train.tsv, evaluate on dev.tsv, predict test.tsv:\n", flush=True)
    # Otherwise a second run would resume from the finished run, with no steps left.
    shutil.rmtree(OUTPUT, ignore_errors=True)
    arguments = [f"--{name}={value}" for name, value in FLAGS.items()]
    print("   python run_classifier.py \\")
    print(" \\\n".join(f"     {shlex.quote(argument)}" for argument in arguments), "\n", flush=True)
    subprocess.run([sys.executable, "run_classifier.py", *arguments], cwd=ROOT, check=True)

    print("\n2. Evaluation (eval_results.txt):\n")
    print("   " + (OUTPUT / "eval_results.txt").read_text().replace("\n", "\n   "))
    print("3. Predictions (test_predictions.tsv):\n")
    print_predictions()
    print(
        f"\nAll files are in {OUTPUT.relative_to(ROOT)}/. Next: . .venv/bin/activate, and README.md"
    )


def print_predictions() -> None:
    """Prints each test review with the probability of being positive."""
    with open(OUTPUT / "test_predictions.tsv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    print("   positive  review")
    for row in rows:
        sign = "+" if row["label"] == "positive" else "-"
        print(f"   {float(row['probability_positive']):6.1%} {sign}  {row['text']}")


if __name__ == "__main__":
    main()
