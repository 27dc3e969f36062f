"""Times a `Predictor` on single texts, against Hugging Face's BERT on PyTorch.

usage: python benchmarks/predictor.py --model_dir=DIR --texts=FILE [--count=1000] [--rounds=5]

FILE has a text on each line. Each model runs in a separate process, loads the same weights once,
and encodes one text at a time, in float32 on all cores. The vectors are compared. Memory is that
of the process after the first and the last round. Needs torch, transformers and the extra
`benchmark`. --model_dir contains bert_model.ckpt, bert_config.json and vocab.txt.
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

from benchmarks import sentences, timing


def make_bert_tf_encoder(model_dir: Path, lines: list[str], folder: Path) -> Callable[[], Any]:
    """Returns a function that encodes all lines one by one with bert_tf."""
    from bert_tf.predictor import Predictor

    flags = {"layers": "-1", "pooling": "mean", "max_seq_length": sentences.MAX_SEQ_LENGTH}
    predictor = Predictor.from_output_dir(str(model_dir), "extract_features", **flags)
    encode = lambda text: predictor(text).values[0]  # noqa: E731
    return functools.partial(encode_one_by_one, encode, lines, folder / "ours")


def make_torch_encoder(model_dir: Path, lines: list[str], folder: Path) -> Callable[[], Any]:
    """Returns a function that encodes all lines one by one with Hugging Face's model."""
    encode_batch = sentences.make_torch_encoder(model_dir, folder, batch_size=1)
    encode = lambda text: encode_batch([text])[0]  # noqa: E731
    return functools.partial(encode_one_by_one, encode, lines, folder / "theirs")


def encode_one_by_one(encode: Callable[[str], np.ndarray], lines: list[str], path: Path) -> None:
    """Encodes the lines; saves the vectors, the time of each, and the memory of the process."""
    vectors, seconds = [], []
    for line in lines:
        start = time.perf_counter()
        vectors.append(encode(line))
        seconds.append(time.perf_counter() - start)
    megabytes = int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6
    file = path.with_suffix(".npz")
    previous = dict(np.load(file)) if file.exists() else {"seconds": [], "megabytes": []}
    np.savez(
        file,
        vectors=np.array(vectors),
        seconds=[*previous["seconds"], seconds],
        megabytes=[*previous["megabytes"], megabytes],
    )


def main() -> None:
    """Compares and times both models; prints and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model_dir", type=Path, required=True)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    lines = args.texts.read_text(encoding="utf-8").splitlines()[: args.count]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sentences.write_weights(args.model_dir, folder)
        makers = {
            "ours": functools.partial(make_bert_tf_encoder, args.model_dir, lines, folder),
            "theirs": functools.partial(make_torch_encoder, args.model_dir, lines, folder),
        }
        totals = timing.time_in_processes(makers, args.rounds)
        measured = {name: dict(np.load(folder / f"{name}.npz")) for name in makers}
    vectors = [measured[name]["vectors"] for name in makers]
    vectors = [values / np.linalg.norm(values, axis=1, keepdims=True) for values in vectors]
    cosine = float((vectors[0] * vectors[1]).sum(1).min())
    timing.require(cosine > 0.9999, f"the vectors differ (min cosine {cosine})")
    results: dict[str, Any] = {"texts": len(lines)}
    for name, values in measured.items():
        # The first round is a warm-up.
        p50, p99 = np.percentile(1000 * values["seconds"][1:], [50, 99]).round(2).tolist()
        first, last = values["megabytes"][[0, -1]].round().tolist()
        results[name] = {"p50 ms": p50, "p99 ms": p99, "MB": [first, last]}
    results["times faster"] = round(timing.median_speedup(totals["theirs"], totals["ours"]), 2)
    print(results)
    timing.write_results(
        "predictor", results, "tensorflow", "torch", "transformers", "tokenizers", "numpy"
    )


if __name__ == "__main__":
    main()
