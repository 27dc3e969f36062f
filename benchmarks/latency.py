"""Times one sentence at a time: this package's engines beside ONNX Runtime and transformers.

usage: python benchmarks/latency.py --model_dir=DIR --texts=FILE [--count=300] [--rounds=5]

FILE has a text on each line. Each method tokenizes a text and computes the mean of the last layer,
on all cores, in a process of its own; the methods take turns, text by text in the same order, and
the ratios are medians over the rounds. Cosines compare the vectors with those of TensorFlow. The
rows "ONNX Runtime" are what a user writes with tokenizers and onnxruntime for the same exported
files. Needs the extras `onnx` and `benchmark`; without torch and transformers, those are left out.
`model_dir` contains bert_model.ckpt, bert_config.json and vocab.txt.
"""

import argparse
import functools
import importlib.util
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from benchmarks import sentences, timing

Vector = Callable[[str], np.ndarray]

LENGTH = sentences.MAX_SEQ_LENGTH
ENGINES = {
    "bert_tf, tensorflow": {},
    "bert_tf, onnx": {"engine": "onnx"},
    "bert_tf, onnx int8": {"engine": "onnx", "precision": "int8"},
}
BARE = {"ONNX Runtime": "float32", "ONNX Runtime, our int8": "int8"}
PEER = "transformers"


def export(model_dir: Path, folder: Path) -> None:
    """Exports the encoder in both precisions."""
    from bert_tf.options import ExportOptions
    from bert_tf.tasks.export_model import export_model

    for precision in ("float32", "int8"):
        options = ExportOptions(
            model_dir=str(model_dir),
            export_dir=str(folder / precision),
            format="onnx",
            form="encoder",
            pooling="mean",
            precision=precision,
            max_seq_length=LENGTH,
        )
        export_model.run(options)


def ours(model_dir: Path, folder: Path, name: str) -> Vector:
    """Returns the function from a text to its vector, by an engine of this package."""
    from bert_tf import Predictor

    flags: dict[str, Any] = {"layers": "-1", "pooling": "mean", "max_seq_length": LENGTH}
    flags |= ENGINES[name]
    if "engine" in flags:
        model_dir = folder / flags.get("precision", "float32")
    predictor = Predictor.from_output_dir(model_dir, "extract_features", **flags)
    return lambda text: predictor(text).values[0]


def bare(folder: Path, precision: str) -> Vector:
    """Returns the same function with tokenizers and onnxruntime alone."""
    import onnxruntime
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / precision / "tokenizer.json"))
    session = onnxruntime.InferenceSession(str(folder / precision / "model.onnx"))

    def vector(text: str) -> np.ndarray:
        encoded = tokenizer.encode(text)
        inputs = {
            "input_ids": np.array([encoded.ids]),
            "attention_mask": np.array([encoded.attention_mask]),
            "token_type_ids": np.array([encoded.type_ids]),
        }
        return session.run(["sentence_embedding"], inputs)[0][0]

    return vector


def peer(model_dir: Path, folder: Path) -> Vector:
    """Returns the same function with transformers on PyTorch."""
    vectors = sentences.torch_encoder(model_dir, folder, batch_size=1)
    return lambda text: vectors([text])[0]


def work(make: Callable[[], Vector], lines: list[str], path: Path) -> Callable[[], Any]:
    """Returns a function that computes line by line, and writes the vectors."""
    vector = make()
    return lambda: np.save(path, np.stack([vector(line) for line in lines]))


def main() -> None:
    """Measures, prints a table and writes `results/latency.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model_dir", type=Path, required=True)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    flags = parser.parse_args()
    lines = flags.texts.read_text(encoding="utf-8").splitlines()[: flags.count]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        timing.run_in_process(export, flags.model_dir, folder)
        methods: dict[str, Callable[[], Vector]] = {
            name: functools.partial(ours, flags.model_dir, folder, name) for name in ENGINES
        }
        methods |= {name: functools.partial(bare, folder, kind) for name, kind in BARE.items()}
        if importlib.util.find_spec("torch"):
            timing.run_in_process(sentences.write_weights, flags.model_dir, folder)
            methods[PEER] = functools.partial(peer, flags.model_dir, folder)
        makers = {
            name: functools.partial(work, make, lines, folder / f"{number}.npy")
            for number, (name, make) in enumerate(methods.items())
        }
        seconds = timing.interleaved_processes(makers, flags.rounds)
        vectors = [np.load(folder / f"{number}.npy") for number in range(len(methods))]
    rows = {}
    for (name, times), found in zip(seconds.items(), vectors, strict=True):
        cosines = (found * vectors[0]).sum(1) / np.linalg.norm(found, axis=1)
        cosines /= np.linalg.norm(vectors[0], axis=1)
        rows[name] = {
            "milliseconds": round(1000 * statistics.median(times) / len(lines), 3),
            "to ONNX Runtime": round(timing.ratio(times, seconds["ONNX Runtime"]), 3),
            "mean cosine": round(float(cosines.mean()), 5),
            "lowest cosine": round(float(cosines.min()), 5),
        }
        print(name, rows[name])
    timing.require(rows["bert_tf, onnx"]["lowest cosine"] > 0.9999, "The vectors differ")
    timing.write_results("latency", {"texts": len(lines), "rows": rows}, "onnxruntime")


if __name__ == "__main__":
    main()
