"""Runs the speed benchmarks of README.md and docs/ on this machine, and writes their tables.

usage: python benchmarks/run_all.py --vocab_dir=DIR --glue_dir=DIR --model_dir=DIR --books=DIR \
         --squad_file=FILE

--vocab_dir contains the published vocabularies, --glue_dir the folders MRPC and SST-2, --model_dir
an encoder in the original's format, and --books text files; --squad_file is dev-v1.1.json. Takes
about an hour on 2 cores, which should do nothing else. Needs the extras `onnx`, `litert` and
`benchmark`, torch, transformers, keras-hub and openvino. A benchmark that fails does not stop the
others.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
COMMANDS = (
    "inference.py --model_dir={model_dir} --texts={folder}/sst2.txt",
    "fine_tuning.py --vocab_file={vocab} --data_dir={mrpc} --rows=96 --rounds=3",
    "fine_tuning.py --vocab_file={vocab} --data_dir={mrpc} --rows=96 --rounds=3 "
    "--precision=bfloat16",
    "keras_hub_step.py --vocab_file={vocab} --data_dir={mrpc} --rows=32 --rounds=3",
    "keras_hub_step.py --vocab_file={vocab} --data_dir={mrpc} --rows=32 --rounds=3 --full_rows",
    "startup.py --vocab_file={vocab} --data_dir={mrpc} --rounds=5",
    "forward.py --rounds=5",
    "forward.py --rounds=5 --precision=bfloat16",
    "tokenizer.py --vocab_dir={vocab_dir} --books={books} --rounds=3",
    "features.py --vocab_file={vocab} --data_dir={sst2}",
    "input_pipeline.py --rounds=3",
    "squad.py --vocab_file={vocab} --predict_file={squad_file}",
    "long_run.py",
    "memory.py",
    "pretraining_data.py --books={books} --vocab_file={vocab} --rounds=2",
)
NUM_TEXTS = 4000


def write_texts(data_dir: Path, path: Path) -> None:
    """Writes the first sentences of SST-2's training set, one per line."""
    lines = (data_dir / "train.tsv").read_text(encoding="utf-8").splitlines()[1 : NUM_TEXTS + 1]
    path.write_text("\n".join(line.split("\t")[0] for line in lines) + "\n", encoding="utf-8")


def main() -> None:
    """Runs all benchmarks, then writes the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("vocab_dir", "glue_dir", "model_dir", "books", "squad_file"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    args = parser.parse_args()
    paths = {
        **vars(args),
        "vocab": args.vocab_dir / "uncased_en_vocab.txt",
        "mrpc": args.glue_dir / "MRPC",
        "sst2": args.glue_dir / "SST-2",
    }
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        write_texts(paths["sst2"], Path(folder) / "sst2.txt")
        for command in COMMANDS:
            print(f"== {command}", flush=True)
            arguments = command.format(**paths, folder=folder).split()
            if subprocess.run([sys.executable, FOLDER / arguments[0], *arguments[1:]]).returncode:
                failed.append(command)
    if failed:
        sys.exit("Failed: " + ", ".join(failed))
    subprocess.run([sys.executable, FOLDER / "tables.py"], check=True)


if __name__ == "__main__":
    main()
