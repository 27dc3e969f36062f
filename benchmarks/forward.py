"""Times a forward pass of BERT-base against the hardware limit and against PyTorch.

usage: python benchmarks/forward.py [--precision=bfloat16] [--rounds=5]

The input is 8 full rows of 128 tokens; weights are random; all cores are used. The hardware limit
is the time of the matrix products alone (see matmul_limit.py), each computed by the fastest of
TensorFlow, XLA and PyTorch in the same round. bert_tf runs with default flags and with
`--jit_compile=true`. Each method runs in a separate process; all outputs are compared. Needs torch
and transformers.
"""

import argparse
import functools
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from benchmarks import matmul_limit, timing

BATCH_SIZE, LENGTH = 8, 128
# Name of a method -> value of --jit_compile.
OURS = {"bert_tf": "false", "bert_tf, --jit_compile=true": "true"}
PEER = "transformers"


def make_bert_tf_timer(folder: Path, precision: str, name: str) -> Callable[[], Any]:
    """Returns a function that times how long bert_tf takes to compute the pooled output."""
    from bert_tf.base.quiet import import_tensorflow

    import_tensorflow()
    import tensorflow as tf

    from bert_tf import checkpoints, training
    from bert_tf.config import BertConfig
    from bert_tf.data.features import sequence_features
    from bert_tf.modeling import BertModel
    from bert_tf.options import DeviceOptions

    options = DeviceOptions(precision=precision, jit_compile=OURS[name], fixed_shapes=True)
    devices = training.open_devices(options)
    with devices.scope():
        model = BertModel(BertConfig.from_json_file(str(folder / "bert_config.json")))
    checkpoints.load_weights(model, str(folder / "bert_model.ckpt"))
    step = training.Inference(
        model,
        lambda outputs, batch: {"pooled": outputs["pooled_output"]},
        sequence_features(LENGTH),
        devices,
        BATCH_SIZE,
    ).step
    batch = {key: tf.constant(value) for key, value in np.load(folder / "rows.npz").items()}
    np.save(folder / f"{name}.npy", tf.cast(step(batch)["pooled"], tf.float32).numpy())
    return lambda: _time_call(lambda: step(batch)["pooled"].numpy())


def make_torch_timer(folder: Path, precision: str) -> Callable[[], Any]:
    """Returns a function that times the same with Hugging Face's model, weights in `precision`."""
    import torch

    from benchmarks.fine_tuning_torch import build_model, make_inputs

    model = build_model(folder).bert.eval().to(getattr(torch, precision))
    rows = dict(np.load(folder / "rows.npz"))
    rows["label_ids"] = rows["input_ids"][:, 0]
    batch = make_inputs(rows, np.arange(BATCH_SIZE), pad_to_max=True)
    del batch["labels"]  # required by `make_inputs`, but not by this model

    def predict() -> Any:
        with torch.inference_mode():
            return model(**batch).pooler_output

    np.save(folder / f"{PEER}.npy", predict().float().numpy())
    return lambda: _time_call(predict)


def _time_call(function: Callable[[], Any]) -> list[float]:
    """Returns the seconds of a call, in a list like those of the timers in `matmul_limit`."""
    start = time.perf_counter()
    function()
    return [time.perf_counter() - start]


def write_inputs(folder: Path) -> None:
    """Writes full rows, the weights and the configuration for both models."""
    import keras

    from bert_tf import checkpoints
    from bert_tf.config import BertConfig
    from bert_tf.modeling import BertModel

    config = BertConfig(vocab_size=30522)
    (folder / "bert_config.json").write_text(config.to_json_string())
    keras.utils.set_random_seed(1)
    variables = checkpoints.named_variables(BertModel(config))
    values = {name: variable.numpy() for name, variable in variables.items()}
    checkpoints.write(str(folder / "bert_model.ckpt"), values)
    np.savez(folder / "weights.npz", **values)
    rng, shape = np.random.default_rng(1), (BATCH_SIZE, LENGTH)
    ids = rng.integers(config.vocab_size, size=shape, dtype="int32")
    ones = np.ones(shape, "int32")
    np.savez(folder / "rows.npz", input_ids=ids, input_mask=ones, segment_ids=ones * 0)


def main() -> None:
    """Compares and times all methods; prints and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    shape, precision = (BATCH_SIZE, LENGTH), args.precision
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        timing.run_in_process(write_inputs, folder)
        makers: dict[str, Callable[[], Any]] = {
            name: functools.partial(make_bert_tf_timer, folder, precision, name) for name in OURS
        }
        makers[PEER] = functools.partial(make_torch_timer, folder, precision)
        make_tensorflow_timer = matmul_limit.make_tensorflow_timer
        matmul_makers: dict[str, Callable[[], Any]] = {
            "TensorFlow": functools.partial(
                make_tensorflow_timer, *shape, precision, jit_compile=False
            ),
            "XLA": functools.partial(make_tensorflow_timer, *shape, precision, jit_compile=True),
            "PyTorch": functools.partial(matmul_limit.make_torch_timer, *shape, precision),
        }
        seconds = timing.measure_in_processes({**makers, **matmul_makers}, args.rounds)
        outputs = [np.load(folder / f"{name}.npy") for name in makers]
    difference = max(float(np.abs(outputs[0] - other).max()) for other in outputs[1:])
    is_close = difference < (1e-4 if precision == "float32" else 0.1)
    timing.require(is_close, f"the outputs differ by {difference}")
    counts = list(matmul_limit.count_matmuls(*shape).values())
    # For each round, the seconds of all matrix products of a forward pass.
    matmul_seconds = np.array([seconds[name] for name in matmul_makers]).min(axis=0) @ counts
    fractions = {name: matmul_seconds / np.array(seconds[name])[:, 0] for name in makers}
    results = {
        "rows": BATCH_SIZE,
        "tokens per row": LENGTH,
        "precision": precision,
        "max output difference": difference,
        "seconds of matrix products": round(float(np.median(matmul_seconds)), 3),
        "seconds": {name: round(float(np.median(seconds[name])), 3) for name in makers},
        "% of the limit": {
            name: round(100 * float(np.median(fraction))) for name, fraction in fractions.items()
        },
    }
    print(results)
    timing.write_results(
        f"forward_{precision}", results, "tensorflow", "keras", "torch", "transformers"
    )


if __name__ == "__main__":
    main()
