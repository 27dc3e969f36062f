"""Times embedding one sentence at a time: our engines, ONNX Runtime and transformers.

usage: python benchmarks/latency.py --model_dir=DIR --texts=FILE [--count=300] [--rounds=5]

FILE has a text on each line. Each method tokenizes a text and computes the mean of the last layer,
on all cores, in a separate process. The methods alternate over the same texts; ratios are medians
over the rounds. Cosines compare the vectors with TensorFlow's. The rows "ONNX Runtime" use only
tokenizers and onnxruntime, with the same exported files. Needs the extras `onnx` and `benchmark`;
transformers is skipped if torch is missing. --model_dir contains bert_model.ckpt, bert_config.json
and vocab.txt.
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

Encoder = Callable[[str], np.ndarray]

LENGTH = sentences.MAX_SEQ_LENGTH
# Name of a method -> flags of `Predictor`.
ENGINES = {
    "bert_tf, tensorflow": {},
    "bert_tf, onnx": {"engine": "onnx"},
    "bert_tf, onnx int8": {"engine": "onnx", "precision": "int8"},
}
# Name of a method -> precision.
ONNX_RUNTIME = {"ONNX Runtime": "float32", "ONNX Runtime, our int8": "int8"}
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


def make_bert_tf_encoder(model_dir: Path, folder: Path, name: str) -> Encoder:
    """Returns a function from a text to its vector, with one of our engines."""
    from bert_tf import Predictor

    flags: dict[str, Any] = {"layers": "-1", "pooling": "mean", "max_seq_length": LENGTH}
    flags |= ENGINES[name]
    if "engine" in flags:
        model_dir = folder / flags.get("precision", "float32")
    predictor = Predictor.from_output_dir(model_dir, "extract_features", **flags)
    return lambda text: predictor(text).values[0]


def make_onnx_runtime_encoder(folder: Path, precision: str) -> Encoder:
    """Returns the same function, with only tokenizers and onnxruntime."""
    import onnxruntime
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / precision / "tokenizer.json"))
    session = onnxruntime.InferenceSession(str(folder / precision / "model.onnx"))

    def encode(text: str) -> np.ndarray:
        encoding = tokenizer.encode(text)
        inputs = {
            "input_ids": np.array([encoding.ids]),
            "attention_mask": np.array([encoding.attention_mask]),
            "token_type_ids": np.array([encoding.type_ids]),
        }
        return session.run(["sentence_embedding"], inputs)[0][0]

    return encode


def make_torch_encoder(model_dir: Path, folder: Path) -> Encoder:
    """Returns the same function, with transformers on PyTorch."""
    encode = sentences.make_torch_encoder(model_dir, folder, batch_size=1)
    return lambda text: encode([text])[0]


def make_workload(
    make_encoder: Callable[[], Encoder], lines: list[str], path: Path
) -> Callable[[], Any]:
    """Returns a function that encodes the lines one at a time, and saves the vectors."""
    encode = make_encoder()
    return lambda: np.save(path, np.stack([encode(line) for line in lines]))


def main() -> None:
    """Times all methods; prints and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model_dir", type=Path, required=True)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    lines = args.texts.read_text(encoding="utf-8").splitlines()[: args.count]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        timing.run_in_process(export, args.model_dir, folder)
        methods: dict[str, Callable[[], Encoder]] = {
            name: functools.partial(make_bert_tf_encoder, args.model_dir, folder, name)
            for name in ENGINES
        }
        methods |= {
            name: functools.partial(make_onnx_runtime_encoder, folder, precision)
            for name, precision in ONNX_RUNTIME.items()
        }
        if importlib.util.find_spec("torch"):
            timing.run_in_process(sentences.write_weights, args.model_dir, folder)
            methods[PEER] = functools.partial(make_torch_encoder, args.model_dir, folder)
        makers = {
            name: functools.partial(make_workload, make, lines, folder / f"{number}.npy")
            for number, (name, make) in enumerate(methods.items())
        }
        seconds = timing.time_in_processes(makers, args.rounds)
        vectors = [np.load(folder / f"{number}.npy") for number in range(len(methods))]
    rows = {}
    for (name, times), outputs in zip(seconds.items(), vectors, strict=True):
        cosines = (outputs * vectors[0]).sum(1) / np.linalg.norm(outputs, axis=1)
        cosines /= np.linalg.norm(vectors[0], axis=1)
        rows[name] = {
            "milliseconds": round(1000 * statistics.median(times) / len(lines), 3),
            "relative to ONNX Runtime": round(
                timing.median_speedup(times, seconds["ONNX Runtime"]), 3
            ),
            "mean cosine": round(float(cosines.mean()), 5),
            "min cosine": round(float(cosines.min()), 5),
        }
        print(name, rows[name])
    timing.require(rows["bert_tf, onnx"]["min cosine"] > 0.9999, "the vectors differ")
    timing.write_results("latency", {"texts": len(lines), "rows": rows}, "onnxruntime")


if __name__ == "__main__":
    main()
