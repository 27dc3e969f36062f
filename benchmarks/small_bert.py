"""What the pre-training of examples/small_bert brings on a small task, against random weights.

usage: python benchmarks/small_bert.py --data_dir=CONLL2003 [--rows=5000] [--epochs=3] [--seeds=5]

Named entities: a label for the first piece of each word, as in section 5.3 of the paper, on the
first sentences of train.txt, evaluated on valid.txt. Entity F1 from the small BERT and from random
values, with the same seeds; random values as the configuration draws them and with the deviation
of the paper, 0.02.
"""

import argparse
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import keras
import numpy as np
from keras import ops

from benchmarks import timing
from bert_tf.config import BertConfig
from bert_tf.data.records import Feature, sequence_features
from bert_tf.modeling import BertTokenClassifier
from bert_tf.modeling.losses import cross_entropy
from bert_tf.options import ClassifierOptions
from bert_tf.tasks import finetune
from bert_tf.tasks.base import Task
from bert_tf.tokenization import FullTokenizer

SMALL_BERT = Path(__file__).resolve().parents[1] / "examples" / "small_bert"
LABELS = ["O", *(f"{place}-{kind}" for kind in ("LOC", "MISC", "ORG", "PER") for place in "BI")]
NO_LABEL = -1
MAX_SEQ_LENGTH = 64
Sentence = list[tuple[str, str]]


def read_sentences(path: Path) -> list[Sentence]:
    """Words with their labels."""
    found: list[Sentence] = [[]]
    for line in path.read_text(encoding="utf-8").splitlines():
        columns = line.split()
        if not columns or columns[0] == "-DOCSTART-":
            found.append([])
        else:
            found[-1].append((columns[0], columns[-1]))
    return [sentence for sentence in found if sentence]


def entities(labels: Sequence[str]) -> set[tuple[int, int, str]]:
    """Begin, end and kind of each entity; an `I-` that follows nothing of its kind begins one."""
    found, first, kind = set(), 0, ""
    for place, label in enumerate([*labels, "O"]):
        if kind and label != f"I-{kind}":
            found.add((first, place, kind))
            kind = ""
        if label != "O" and not kind:
            first, kind = place, label[2:]
    return found


class NamedEntities(Task):
    """Sentences whose words have labels.

    Args:
        splits: the sentences of `train` and `eval`.
        config: the model.
        tokenizer: fits the model's vocabulary.
    """

    def __init__(
        self,
        splits: Mapping[str, Sequence[Sentence]],
        config: BertConfig,
        tokenizer: FullTokenizer,
    ) -> None:
        self.splits, self.config, self.tokenizer = splits, config, tokenizer

    def features(self, split: str) -> tuple[Feature, ...]:
        """Inputs, and a label for each place."""
        label_ids = Feature("label_ids", MAX_SEQ_LENGTH, per_token=True)
        return (*sequence_features(MAX_SEQ_LENGTH), label_ids)

    def read_examples(self, split: str) -> Sequence[Sentence]:
        """What the constructor was given."""
        return self.splits[split]

    def to_features(self, examples: Sequence[Sentence], split: str) -> dict[str, np.ndarray]:
        """A row for each sentence; what does not fit is cut off."""
        rows = {f.name: np.zeros((len(examples), MAX_SEQ_LENGTH)) for f in self.features(split)}
        rows["label_ids"][:] = NO_LABEL
        for row, sentence in enumerate(examples):
            tokens, labels = ["[CLS]"], [NO_LABEL]
            for word, label in sentence:
                pieces = self.tokenizer.tokenize(word)
                tokens += pieces
                labels += [LABELS.index(label), *[NO_LABEL] * len(pieces)][: len(pieces)]
            tokens = [*tokens[: MAX_SEQ_LENGTH - 1], "[SEP]"]
            labels = labels[: MAX_SEQ_LENGTH - 1]
            rows["input_ids"][row, : len(tokens)] = self.tokenizer.convert_tokens_to_ids(tokens)
            rows["input_mask"][row, : len(tokens)] = 1
            rows["label_ids"][row, : len(labels)] = labels
        return {name: values.astype(np.int32) for name, values in rows.items()}

    def build_model(self, **kwargs: Any) -> keras.Model:
        """Encoder, and a label for each piece."""
        return BertTokenClassifier(self.config, len(LABELS), **kwargs)

    def loss(self, outputs: Any, batch: Mapping[str, Any]) -> Any:
        """Mean over the labels of each row [B]."""
        label_ids = batch["label_ids"]
        weights = ops.cast(label_ids != NO_LABEL, "float32")
        losses = cross_entropy(outputs["logits"], ops.maximum(label_ids, 0))
        return ops.sum(weights * losses, axis=1) / ops.maximum(ops.sum(weights, axis=1), 1.0)

    def eval_outputs(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Labels that were given and found, [B, S] for the longest S."""
        found = ops.cast(ops.argmax(outputs["logits"], axis=-1), "int32")
        pairs = {"label_ids": batch["label_ids"], "found": found}
        missing = [[0, 0], [0, MAX_SEQ_LENGTH - ops.shape(found)[1]]]
        padded = {k: ops.pad(v, missing, constant_values=NO_LABEL) for k, v in pairs.items()}
        return {**padded, "per_example_loss": self.loss(outputs, batch)}

    def metrics(
        self, examples: Sequence[Sentence], results: Mapping[str, np.ndarray]
    ) -> dict[str, Any]:
        """Entity F1."""
        right = count = 0
        for given, found in zip(results["label_ids"], results["found"], strict=True):
            words = given != NO_LABEL
            expected = entities([LABELS[label] for label in given[words]])
            answers = entities([LABELS[label] for label in found[words]])
            right += 2 * len(expected & answers)
            count += len(expected) + len(answers)
        return {"f1": right / max(count, 1)}

    def predict_outputs(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Not needed."""
        raise NotImplementedError

    def write_predictions(self, examples: Any, predictions: Any, output_dir: str) -> list[str]:
        """Not needed."""
        raise NotImplementedError


def main() -> None:
    """Trains, prints and writes the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data_dir", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--epochs", type=float, default=3.0)
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    splits = {
        "train": read_sentences(args.data_dir / "train.txt")[: args.rows],
        "eval": read_sentences(args.data_dir / "valid.txt"),
    }
    config = BertConfig.from_json_file(str(SMALL_BERT / "bert_config.json"))
    tokenizer = FullTokenizer(str(SMALL_BERT / "vocab.txt"))
    paper = BertConfig.from_dict({**config.to_dict(), "initializer_range": 0.02})
    starts = {
        "pre-trained": (config, str(SMALL_BERT / "bert_model.ckpt")),
        "random": (config, None),
        "random, 0.02": (paper, None),
    }
    found: dict[str, list[float]] = {name: [] for name in starts}
    for seed in range(1, args.seeds + 1):
        for name, (start, checkpoint) in starts.items():
            with tempfile.TemporaryDirectory() as folder:
                options = ClassifierOptions(
                    bert_config_file=str(SMALL_BERT / "bert_config.json"),
                    vocab_file=str(SMALL_BERT / "vocab.txt"),
                    init_checkpoint=checkpoint,
                    output_dir=folder,
                    max_seq_length=MAX_SEQ_LENGTH,
                    do_train=True,
                    do_eval=True,
                    train_batch_size=32,
                    learning_rate=1e-3,
                    num_train_epochs=args.epochs,
                    random_seed=seed,
                )
                task = NamedEntities(splits, start, tokenizer)
                found[name].append(finetune.run(task, options).metrics["f1"])
            print(seed, name, found[name][-1], flush=True)
    figures = {"rows": args.rows, "epochs": args.epochs, "entity F1 on the dev set": found}
    for name in list(starts)[1:]:
        gains = [a - b for a, b in zip(found["pre-trained"], found[name], strict=True)]
        error = statistics.stdev(gains) / math.sqrt(len(gains))
        figures[f"gain over {name}"] = {
            "mean": round(statistics.mean(gains), 4),
            "standard error": round(error, 4),
            "in standard errors": round(statistics.mean(gains) / error, 1) if error else None,
        }
    print(json.dumps(figures, indent=1))
    timing.write_results("small_bert", figures, "tensorflow")


if __name__ == "__main__":
    main()
