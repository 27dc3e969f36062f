"""Compares fine-tuning examples/small_bert with training from random weights.

usage: python benchmarks/small_bert.py --data_dir=CONLL2003 [--rows=5000] [--epochs=3] [--seeds=5]

`run_ner.py` trains on the first --rows sentences of train.txt and evaluates on valid.txt. Entity F1
is compared for models initialized from the small BERT and from random weights, with the same random
seeds. The standard deviation of the random weights is the `initializer_range` of bert_config.json
and, in a third model, 0.02 as in the paper. Needs the `ner` extra of bert_tf.
"""

import argparse
import json
import math
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import timing
from bert_tf.config import BertConfig
from bert_tf.options import NerOptions
from bert_tf.tasks import ner

SMALL_BERT = Path(__file__).resolve().parents[1] / "examples" / "small_bert"


def write_data(data_dir: Path, rows: int, folder: Path) -> None:
    """Writes the first sentences of the training set, and the whole dev set."""
    blocks = (data_dir / "train.txt").read_text(encoding="utf-8").split("\n\n")
    sentences = [block for block in blocks if not block.startswith("-DOCSTART-")][:rows]
    (folder / "train.txt").write_text("\n\n".join(sentences) + "\n", encoding="utf-8")
    shutil.copy(data_dir / "valid.txt", folder / "dev.txt")


def train_and_evaluate(
    folder: Path, config: BertConfig, init_checkpoint: str | None, **flags: object
) -> float:
    """Trains a model and returns its entity F1."""
    config_file = folder / "bert_config.json"
    config_file.write_text(config.to_json_string())
    with tempfile.TemporaryDirectory() as output_dir:
        options = NerOptions(
            bert_config_file=str(config_file),
            vocab_file=str(SMALL_BERT / "vocab.txt"),
            init_checkpoint=init_checkpoint,
            data_dir=str(folder),
            output_dir=output_dir,
            max_seq_length=64,
            do_train=True,
            do_eval=True,
            train_batch_size=32,
            learning_rate=1e-3,
            **flags,
        )
        return ner.run(options).metrics["f1"]


def main() -> None:
    """Trains all models; prints and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data_dir", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--epochs", type=float, default=3.0)
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    config = BertConfig.from_json_file(str(SMALL_BERT / "bert_config.json"))
    paper_config = BertConfig.from_dict({**config.to_dict(), "initializer_range": 0.02})
    initializations = {
        "pre-trained": (config, str(SMALL_BERT / "bert_model.ckpt")),
        "random": (config, None),
        "random, 0.02": (paper_config, None),
    }
    scores: dict[str, list[float]] = {name: [] for name in initializations}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_data(args.data_dir, args.rows, folder)
        for seed in range(1, args.seeds + 1):
            for name, (model_config, init_checkpoint) in initializations.items():
                flags = {"random_seed": seed, "num_train_epochs": args.epochs}
                score = train_and_evaluate(folder, model_config, init_checkpoint, **flags)
                scores[name].append(score)
                print(seed, name, score, flush=True)
    results = {"rows": args.rows, "epochs": args.epochs, "entity F1 on the dev set": scores}
    for name in list(initializations)[1:]:
        gains = [a - b for a, b in zip(scores["pre-trained"], scores[name], strict=True)]
        mean_gain = statistics.mean(gains)
        standard_error = statistics.stdev(gains) / math.sqrt(len(gains))
        results[f"gain over {name}"] = {
            "mean": round(mean_gain, 4),
            "standard error": round(standard_error, 4),
            "in standard errors": round(mean_gain / standard_error, 1) if standard_error else None,
        }
    print(json.dumps(results, indent=1))
    timing.write_results("small_bert", results, "tensorflow")


if __name__ == "__main__":
    main()
