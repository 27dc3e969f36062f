"""Times ten predictions including startup, against Hugging Face's pipeline.

usage: python benchmarks/startup.py --vocab_file=FILE --data_dir=MRPC
           [--release=uncased_L-12_H-768_A-12] [--rounds=5]

`run_classifier.py --do_predict` and a short script with `transformers.pipeline` take turns in
classifying ten pairs of MRPC, each time in a new process, which is timed from start to exit. Both
models have the size of a published model and the same random weights, each in its usual file format
(bert_model.ckpt, safetensors). The probabilities are compared. Needs torch and transformers.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from benchmarks import timing

CLASSIFIER_SCRIPT = Path(__file__).resolve().parents[1] / "run_classifier.py"

PIPELINE_PROGRAM = """
import csv, sys
from transformers import pipeline
folder, table = sys.argv[1:]
rows = list(csv.reader(open(table, encoding="utf-8-sig"), delimiter="\\t", quoting=csv.QUOTE_NONE))
classify = pipeline("text-classification", model=folder, top_k=None)
for row in rows[1:]:
    scores = {entry["label"]: entry["score"] for entry in classify(
        {"text": row[3], "text_pair": row[4]}, truncation=True, max_length=128)}
    print(scores["0"], scores["1"], sep="\\t")
"""


def write_inputs(folder: Path, args: argparse.Namespace) -> None:
    """Writes ten rows, and a model in both formats."""
    # This runs in a separate process, so that its memory is free when the commands are timed.
    import keras

    from bert_tf import checkpoints, releases
    from bert_tf.modeling import BertClassifier
    from bert_tf.options import ConversionOptions, registry

    model_dir, data_dir = folder / "model", folder / "data"
    model_dir.mkdir()
    data_dir.mkdir()
    lines = Path(args.data_dir, "test.tsv").read_text(encoding="utf-8").splitlines(True)
    (data_dir / "test.tsv").write_text("".join(lines[:11]), encoding="utf-8")
    config = releases.named(args.release).config()
    (model_dir / "bert_config.json").write_text(config.to_json_string())
    (model_dir / "vocab.txt").write_bytes(args.vocab_file.read_bytes())
    (model_dir / "labels.txt").write_text("0\n1\n")
    keras.utils.set_random_seed(1)
    variables = checkpoints.named_variables(BertClassifier(config, 2))
    checkpoints.write(
        str(model_dir / "bert_model.ckpt"),
        {name: variable.numpy() for name, variable in variables.items()},
    )
    options = {"input": str(model_dir), "output": str(folder / "theirs"), "to": "hugging_face"}
    registry.run(ConversionOptions(**options))


def make_commands(folder: Path) -> dict[str, list[str]]:
    """Returns the commands to time, by name."""
    model_dir = folder / "model"
    ours = [
        str(CLASSIFIER_SCRIPT),
        "--task_name=MRPC",
        "--do_predict",
        f"--data_dir={folder / 'data'}",
        f"--bert_config_file={model_dir / 'bert_config.json'}",
        f"--vocab_file={model_dir / 'vocab.txt'}",
        f"--init_checkpoint={model_dir / 'bert_model.ckpt'}",
        f"--output_dir={folder / 'out'}",
    ]
    theirs = ["-c", PIPELINE_PROGRAM, str(folder / "theirs"), str(folder / "data" / "test.tsv")]
    return {"bert_tf": ours, "transformers": theirs}


def run_command(arguments: list[str], output: Path) -> None:
    """Deletes the folder of the previous command, runs a command, and saves stdout to `output`."""
    shutil.rmtree(output.parent / "out", ignore_errors=True)
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    process = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env=environment
    )
    timing.require(process.returncode == 0, f"a command failed:\n{process.stderr}")
    output.write_text(process.stdout)


def main() -> None:
    """Compares and times both commands; prints and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vocab_file", type=Path, required=True)
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--release", default="uncased_L-12_H-768_A-12")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        timing.run_in_process(write_inputs, folder, args)
        functions = {
            # bert_tf comes last, so that the folder `out` that it writes is kept.
            name: lambda name=name, command=command: run_command(command, folder / f"{name}.tsv")
            for name, command in reversed(make_commands(folder).items())
        }
        seconds = timing.time_interleaved(functions, args.rounds)
        ours = np.loadtxt(folder / "out" / "test_results.tsv")
        theirs = np.loadtxt(folder / "transformers.tsv")
    difference = float(np.abs(ours - theirs).max())
    timing.require(
        ours.shape == (10, 2) and difference < 1e-4, f"the probabilities differ by {difference}"
    )
    results = {
        "release": args.release,
        "rows": len(ours),
        "max probability difference": difference,
        "seconds": {name: round(statistics.median(times), 2) for name, times in seconds.items()},
        "times faster": round(timing.median_ratio(seconds["transformers"], seconds["bert_tf"]), 2),
    }
    print(results)
    timing.write_results("startup", results, "tensorflow", "keras", "torch", "transformers")


if __name__ == "__main__":
    main()
