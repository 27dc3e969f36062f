"""Evaluates sentence embeddings on STS-B with Spearman's rank correlation.

usage: python benchmarks/sts.py --model_dir=DIR --data_dir=STS-B [--pooling=mean] [--layers=-1]

`extract_features.py` encodes the sentences in both columns of dev.tsv; the cosine similarities of
the pairs are correlated with the human scores. --model_dir contains bert_model.ckpt,
bert_config.json and vocab.txt.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from scipy import stats

from benchmarks import timing
from bert_tf.tables.read import read_tsv

ROOT = Path(__file__).resolve().parents[1]


def extract_vectors(args: argparse.Namespace, column: str, folder: str) -> np.ndarray:
    """Encodes the sentences in a column as vectors, [sentences, H]."""
    flags = {
        "input_file": args.data_dir / "dev.tsv",
        "text_column": column,
        "output_file": Path(folder) / f"{column}.npz",
        "output_format": "npz",
        "pooling": args.pooling,
        "layers": args.layers,
        "bert_config_file": args.model_dir / "bert_config.json",
        "vocab_file": args.model_dir / "vocab.txt",
        "init_checkpoint": args.model_dir / "bert_model.ckpt",
    }
    command = [sys.executable, str(ROOT / "extract_features.py")]
    subprocess.run([*command, *(f"--{name}={value}" for name, value in flags.items())], check=True)
    return np.load(flags["output_file"])["features"][:, 0]


def main() -> None:
    """Computes the correlation; prints and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model_dir", type=Path, required=True)
    parser.add_argument("--data_dir", type=Path, required=True)
    parser.add_argument("--pooling", default="mean")
    parser.add_argument("--layers", default="-1")
    args = parser.parse_args()
    header, *rows = read_tsv(str(args.data_dir / "dev.tsv"))
    score_column = header.cells.index("score")
    scores = [float(row.cells[score_column]) for row in rows]
    with tempfile.TemporaryDirectory() as folder:
        a, b = (extract_vectors(args, name, folder) for name in ("sentence1", "sentence2"))
    cosines = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    results = {
        "pairs": len(scores),
        "pooling": args.pooling,
        "layers": args.layers,
        "spearman": round(float(stats.spearmanr(cosines, scores).statistic), 4),
    }
    print(results)
    timing.write_results("sts", results, "tensorflow", "numpy", "scipy")


if __name__ == "__main__":
    main()
