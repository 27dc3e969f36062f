"""Times fine-tuning, in rows/s, against KerasHub's BertTextClassifier on TensorFlow.

usage: python benchmarks/keras_hub_step.py --vocab_file=FILE --data_dir=MRPC
           [--release=uncased_L-12_H-768_A-12] [--rows=96] [--full_rows] [--rounds=5]

Both train the same weights on rows of MRPC in batches of 32. KerasHub's preprocessor pads to 128
tokens; with --full_rows, tokens replace the padding, so that bert_tf has no padding to skip.
KerasHub runs `train_on_batch` of a classifier with its default `compile()`, both with TensorFlow's
default settings and with oneDNN, which bert_tf's scripts enable. bert_tf runs with default flags.
The methods alternate in separate processes; the logits of the first batch are compared. Needs
keras-hub.
"""

import functools
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from benchmarks import fine_tuning, timing

BATCH_SIZE = fine_tuning.BATCH_SIZE
# Name of a method -> environment variables.
THEIRS = {"keras_hub": {}, "keras_hub with oneDNN": {"TF_ENABLE_ONEDNN_OPTS": "1"}}

# Parts of KerasHub's variable names -> parts of the names in original BERT checkpoints.
_NAME_PARTS = {
    "token_embedding/embeddings": "bert/embeddings/word_embeddings",
    "position_embedding/embeddings": "bert/embeddings/position_embeddings",
    "segment_embedding/embeddings": "bert/embeddings/token_type_embeddings",
    "embeddings_layer_norm": "bert/embeddings/LayerNorm",
    "transformer_layer_": "bert/encoder/layer_",
    "self_attention_layer/attention_output": "attention/output/dense",
    "self_attention_layer_norm": "attention/output/LayerNorm",
    "self_attention_layer": "attention/self",
    "feedforward_layer_norm": "output/LayerNorm",
    "feedforward_intermediate_dense": "intermediate/dense",
    "feedforward_output_dense": "output/dense",
    "pooled_dense": "bert/pooler/dense",
    "logits/kernel": "output_weights",
    "logits/bias": "output_bias",
}


def make_keras_hub_trainer(folder: Path, name: str) -> Callable[[], Any]:
    """Returns a function that trains on all rows once with KerasHub."""
    os.environ.update(THEIRS[name], KERAS_BACKEND="tensorflow")
    import keras_hub

    from bert_tf.config import BertConfig

    config = BertConfig.from_json_file(str(folder / "bert_config.json"))
    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=config.vocab_size,
        num_layers=config.num_hidden_layers,
        num_heads=config.num_attention_heads,
        hidden_dim=config.hidden_size,
        intermediate_dim=config.intermediate_size,
        dropout=config.hidden_dropout_prob,
        max_sequence_length=config.max_position_embeddings,
        num_segments=config.type_vocab_size,
    )
    model = keras_hub.models.BertTextClassifier(backbone, num_classes=2, preprocessor=None)
    load_weights(model, folder / "weights.npz")
    rows = dict(np.load(folder / "rows.npz"))
    inputs = {
        "token_ids": rows["input_ids"],
        "padding_mask": rows["input_mask"],
        "segment_ids": rows["segment_ids"],
    }
    slices = [slice(i, i + BATCH_SIZE) for i in range(0, len(rows["input_ids"]), BATCH_SIZE)]
    batches = [
        ({key: value[part] for key, value in inputs.items()}, rows["label_ids"][part])
        for part in slices
    ]
    first_inputs, _ = batches[0]
    np.save(folder / f"{name}.npy", np.asarray(model(first_inputs, training=False)))

    def train() -> None:
        for batch in batches:
            model.train_on_batch(*batch)

    return train


def load_weights(model: Any, path: Path) -> None:
    """Loads the arrays of a .npz file, named as in original checkpoints, into the classifier."""
    values = np.load(path)
    for variable in model.trainable_variables:
        name = variable.path
        for keras_part, original_part in _NAME_PARTS.items():
            name = name.replace(keras_part, original_part)
        value = values[name].T if name == "output_weights" else values[name]
        variable.assign(value.reshape(variable.shape))


def main() -> None:
    """Compares and times both models; prints and writes the results."""
    parser = fine_tuning.make_parser(__doc__.splitlines()[0])
    parser.set_defaults(rows=96)
    args = parser.parse_args()
    our_name = "bert_tf"
    rows_per_second: dict[str, dict[str, float]] = {}
    ratios, differences = {}, []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        timing.run_in_process(fine_tuning.write_inputs, folder, args)
        for their_name in THEIRS:
            makers: dict[str, Callable[[], Any]] = {
                our_name: functools.partial(
                    fine_tuning.make_bert_tf_trainer, folder, "float32", our_name
                ),
                their_name: functools.partial(make_keras_hub_trainer, folder, their_name),
            }
            seconds = timing.time_in_processes(makers, args.rounds)
            rows_per_second[f"alternating with {their_name}"] = {
                name: round(args.rows / statistics.median(times), 2)
                for name, times in seconds.items()
            }
            ratio = timing.median_ratio(seconds[their_name], seconds[our_name])
            ratios[their_name] = round(ratio, 2)
            logits = [np.load(folder / f"{name}.npy") for name in makers]
            differences.append(float(np.abs(logits[0] - logits[1]).max()))
        tokens = float(np.load(folder / "rows.npz")["input_mask"].sum(1).mean())
    timing.require(max(differences) < 1e-4, f"the logits differ by {differences}")
    results = {
        "release": args.release,
        "rows": args.rows,
        "mean tokens per row": round(tokens, 1),
        "max_seq_length": args.max_seq_length,
        "batch_size": BATCH_SIZE,
        "max logit difference": max(differences),
        "rows/s": rows_per_second,
        "times faster than": ratios,
    }
    print(results)
    name = "keras_hub_full_rows" if args.full_rows else "keras_hub"
    timing.write_results(name, results, "tensorflow", "keras", "keras-hub")


if __name__ == "__main__":
    main()
