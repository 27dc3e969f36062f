"""A forward pass of BERT-base beside the limit of the machine, and beside PyTorch.

usage: python benchmarks/forward.py [--precision=bfloat16] [--rounds=5]

8 full rows of 128 tokens, random weights, all cores. The limit is what the matrix products alone
take (see limit.py), by the fastest of TensorFlow, XLA and PyTorch for each shape, measured in the
same rounds. Ours are the default and `--jit_compile=true`; each has its own process. Outputs of
all are compared. Needs torch and transformers.
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

from benchmarks import limit, timing

BATCH, LENGTH = 8, 128
OURS = {"bert_tf": False, "bert_tf, --jit_compile=true": True}
PEER = "transformers"


def ours(folder: Path, precision: str, name: str) -> Callable[[], Any]:
    """The pooled output by bert_tf, as prediction computes it."""
    from bert_tf.quiet import import_tensorflow

    import_tensorflow()
    import tensorflow as tf

    from bert_tf import checkpoint, training
    from bert_tf.config import BertConfig
    from bert_tf.modeling import BertModel

    training.set_precision(precision)
    model = BertModel(BertConfig.from_json_file(str(folder / "bert_config.json")))
    checkpoint.restore(model, str(folder / "bert_model.ckpt"))
    model = training.cast_once(model, precision)
    batch = {key: tf.constant(value) for key, value in np.load(folder / "rows.npz").items()}
    step = training.make_inference_step(
        model,
        lambda outputs, batch: {"pooled": outputs["pooled_output"]},
        {name: tf.TensorSpec(value.shape, value.dtype) for name, value in batch.items()},
        tf.distribute.get_strategy(),
        OURS[name],
    )
    np.save(folder / f"{name}.npy", tf.cast(step(batch)["pooled"], tf.float32).numpy())
    return lambda: _seconds(lambda: step(batch)["pooled"].numpy())


def theirs(folder: Path, precision: str) -> Callable[[], Any]:
    """The same by the peer, its weights in the type that is computed in."""
    import torch

    from benchmarks.fine_tuning_torch import inputs, peer_of

    model = peer_of(folder).bert.eval().to(getattr(torch, precision))
    rows = dict(np.load(folder / "rows.npz"))
    batch = inputs({**rows, "label_ids": rows["input_ids"][:, 0]}, np.arange(BATCH), padded=True)
    del batch["labels"]

    def work() -> Any:
        with torch.inference_mode():
            return model(**batch).pooler_output

    np.save(folder / f"{PEER}.npy", work().float().numpy())
    return lambda: _seconds(work)


def _seconds(work: Callable[[], Any]) -> list[float]:
    start = time.perf_counter()
    work()
    return [time.perf_counter() - start]


def write_inputs(folder: Path) -> None:
    """Writes full rows, weights and configuration for both."""
    import keras

    from bert_tf import checkpoint
    from bert_tf.config import BertConfig
    from bert_tf.modeling import BertModel

    config = BertConfig(vocab_size=30522)
    (folder / "bert_config.json").write_text(config.to_json_string())
    keras.utils.set_random_seed(1)
    variables = checkpoint.named_variables(BertModel(config))
    values = {name: variable.numpy() for name, variable in variables.items()}
    checkpoint.write(str(folder / "bert_model.ckpt"), values)
    np.savez(folder / "weights.npz", **values)
    rng, shape = np.random.default_rng(1), (BATCH, LENGTH)
    ids = rng.integers(config.vocab_size, size=shape, dtype="int32")
    ones = np.ones(shape, "int32")
    np.savez(folder / "rows.npz", input_ids=ids, input_mask=ones, segment_ids=ones * 0)


def main() -> None:
    """Compares, times, prints and writes the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    shape, precision = (BATCH, LENGTH), args.precision
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        timing.in_a_process(write_inputs, folder)
        makers: dict[str, Callable[[], Any]] = {
            name: functools.partial(ours, folder, precision, name) for name in OURS
        }
        makers[PEER] = functools.partial(theirs, folder, precision)
        limits: dict[str, Callable[[], Any]] = {
            "TensorFlow": functools.partial(limit.by_tensorflow, *shape, precision, False),
            "XLA": functools.partial(limit.by_tensorflow, *shape, precision, True),
            "PyTorch": functools.partial(limit.by_torch, *shape, precision),
        }
        found = timing.interleaved_figures({**makers, **limits}, args.rounds)
        outputs = [np.load(folder / f"{name}.npy") for name in makers]
    difference = max(float(np.abs(outputs[0] - other).max()) for other in outputs[1:])
    same = difference < (1e-4 if precision == "float32" else 0.1)
    timing.require(same, f"outputs are the same ({difference})")
    counts = list(limit.products(*shape).values())
    # [rounds]: what the products of a pass take at best.
    bounds = np.array([found[name] for name in limits]).min(axis=0) @ counts
    share = {name: bounds / np.array(found[name])[:, 0] for name in makers}
    figures = {
        "rows": BATCH,
        "tokens of a row": LENGTH,
        "precision": precision,
        "largest difference of outputs": difference,
        "seconds of the products": round(float(np.median(bounds)), 3),
        "seconds": {name: round(float(np.median(found[name])), 3) for name in makers},
        "% of the limit": {
            name: round(100 * float(np.median(shares))) for name, shares in share.items()
        },
    }
    print(figures)
    timing.write_results(
        f"forward_{precision}", figures, "tensorflow", "keras", "torch", "transformers"
    )


if __name__ == "__main__":
    main()
