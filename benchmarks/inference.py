"""Times sentence embeddings, one text at a time and in bulk: our engines and other libraries.

usage: python benchmarks/inference.py --model_dir=DIR --texts=FILE [--count=4000] [--single=200]
           [--rounds=5]

FILE has a text on each line. Each method tokenizes texts and averages the last layer over all
tokens, on all cores, in a separate process; the methods alternate, and ratios are medians over
rounds. `--count` texts are processed in one call, the first `--single` of them also one at a time.
Libraries other than ours sort the texts by length and form batches of 32. "ONNX Runtime" and
"OpenVINO" run our exported files with the package tokenizers; "default int8" is ONNX Runtime's
dynamic quantization with its default settings. Cosine similarities compare the vectors with
TensorFlow's. Needs the extras `onnx`, `litert` and `benchmark`; skips OpenVINO and transformers if
they are not installed. DIR contains bert_model.ckpt, bert_config.json and vocab.txt.
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

Encoder = Callable[[list[str]], np.ndarray]

LENGTH, BATCH_SIZE = sentences.MAX_SEQ_LENGTH, 32
TENSORFLOW, ONNX_RUNTIME = "bert_tf, tensorflow", "ONNX Runtime"
# Name of a method -> engine and precision of `Predictor`.
ENGINES = {
    TENSORFLOW: ("tensorflow", "float32"),
    "bert_tf, onnx": ("onnx", "float32"),
    "bert_tf, onnx int8": ("onnx", "int8"),
    "bert_tf, litert": ("litert", "float32"),
    "bert_tf, litert int8": ("litert", "int8"),
}
# Name of a method -> folder of the model.
SESSIONS = {
    ONNX_RUNTIME: "onnx-float32",
    "ONNX Runtime, our int8": "onnx-int8",
    "ONNX Runtime, default int8": "default-int8",
}


def export(model_dir: Path, folder: Path) -> None:
    """Exports the encoder in both formats and precisions, and quantizes it with the defaults."""
    from onnxruntime.quantization import quantize_dynamic

    from bert_tf.options import ExportOptions
    from bert_tf.tasks.export_model import export_model

    for engine in ("onnx", "litert"):
        for precision in ("float32", "int8"):
            options = ExportOptions(
                model_dir=str(model_dir),
                export_dir=str(folder / f"{engine}-{precision}"),
                format=engine,
                form="encoder",
                pooling="mean",
                precision=precision,
                max_seq_length=LENGTH,
            )
            export_model.run(options)
    source, target = folder / "onnx-float32", folder / "default-int8"
    target.mkdir()
    quantize_dynamic(source / "model.onnx", target / "model.onnx")
    (target / "tokenizer.json").write_bytes((source / "tokenizer.json").read_bytes())


def make_bert_tf_encoder(model_dir: Path, folder: Path, name: str) -> Encoder:
    """Returns a function from texts to vectors, with one of our engines."""
    from bert_tf import Predictor

    engine, precision = ENGINES[name]
    if engine != "tensorflow":
        model_dir = folder / f"{engine}-{precision}"
    predictor = Predictor.from_output_dir(
        model_dir,
        "extract_features",
        engine=engine,
        precision=precision,
        layers="-1",
        pooling="mean",
        max_seq_length=LENGTH,
    )
    return lambda texts: np.stack([features.values[0] for features in predictor(texts)])


def open_model(path: str, use_openvino: bool) -> Callable[[dict[str, np.ndarray]], np.ndarray]:
    """Returns a function from the inputs of an ONNX model to `sentence_embedding`."""
    if use_openvino:
        import openvino

        compiled = openvino.Core().compile_model(path, "CPU")
        return lambda inputs: compiled(inputs)["sentence_embedding"]
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    return lambda inputs: session.run(["sentence_embedding"], inputs)[0]


def make_session_encoder(folder: Path, use_openvino: bool = False) -> Encoder:
    """Returns the same function, with tokenizers and ONNX Runtime or OpenVINO."""
    from tokenizers import Tokenizer

    run = open_model(str(folder / "model.onnx"), use_openvino)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_padding()

    def encode(texts: list[str]) -> np.ndarray:
        order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
        vectors: dict[int, np.ndarray] = {}
        for first in range(0, len(order), BATCH_SIZE):
            rows = order[first : first + BATCH_SIZE]
            encodings = tokenizer.encode_batch([texts[row] for row in rows])
            inputs = {
                "input_ids": np.array([encoding.ids for encoding in encodings]),
                "attention_mask": np.array([encoding.attention_mask for encoding in encodings]),
                "token_type_ids": np.array([encoding.type_ids for encoding in encodings]),
            }
            vectors.update(zip(rows, run(inputs), strict=True))
        return np.stack([vectors[row] for row in range(len(texts))])

    return encode


def make_workload(
    make_encoder: Callable[[], Encoder], texts: list[str], path: Path, one_by_one: bool
) -> Callable[[], Any]:
    """Returns a function that encodes the texts and saves the vectors."""
    encode = make_encoder()
    if one_by_one:
        return lambda: np.save(path, np.concatenate([encode([text]) for text in texts]))
    return lambda: np.save(path, encode(texts))


def make_methods(model_dir: Path, folder: Path) -> dict[str, Callable[[], Encoder]]:
    """Exports the model, and returns a function that makes an encoder for each method."""
    timing.run_in_process(export, model_dir, folder)
    methods: dict[str, Callable[[], Encoder]] = {
        name: functools.partial(make_bert_tf_encoder, model_dir, folder, name) for name in ENGINES
    }
    for name, subfolder in SESSIONS.items():
        methods[name] = functools.partial(make_session_encoder, folder / subfolder)
    if importlib.util.find_spec("openvino"):
        methods["OpenVINO"] = functools.partial(
            make_session_encoder, folder / "onnx-float32", use_openvino=True
        )
    if importlib.util.find_spec("torch"):
        timing.run_in_process(sentences.write_weights, model_dir, folder)
        methods["transformers"] = functools.partial(
            sentences.make_torch_encoder, model_dir, folder, BATCH_SIZE
        )
    return methods


def measure(
    methods: dict[str, Callable[[], Encoder]], texts: list[str], rounds: int, one_by_one: bool
) -> dict[str, dict[str, float]]:
    """Times all methods; returns the metrics of each."""
    with tempfile.TemporaryDirectory() as temporary:
        paths = {name: Path(temporary) / f"{n}.npy" for n, name in enumerate(methods)}
        makers = {
            name: functools.partial(make_workload, make, texts, paths[name], one_by_one)
            for name, make in methods.items()
        }
        seconds = timing.time_in_processes(makers, rounds)
        vectors = {name: np.load(path) for name, path in paths.items()}
    expected, rows = vectors[TENSORFLOW], {}
    for name, times in seconds.items():
        norms = np.linalg.norm(vectors[name], axis=1) * np.linalg.norm(expected, axis=1)
        cosines = (vectors[name] * expected).sum(1) / norms
        per_text = statistics.median(times) / len(texts)
        rows[name] = {
            **(
                {"ms": round(1000 * per_text, 2)}
                if one_by_one
                else {"texts/s": round(1 / per_text)}
            ),
            "time / ONNX Runtime's": round(timing.median_ratio(times, seconds[ONNX_RUNTIME]), 3),
            "mean cosine": round(float(cosines.mean()), 4),
            "min cosine": round(float(cosines.min()), 4),
        }
        print(name, rows[name], flush=True)
    timing.require(rows["bert_tf, onnx"]["min cosine"] > 0.9999, "the vectors differ")
    return rows


def main() -> None:
    """Times all methods; prints and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model_dir", type=Path, required=True)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--count", type=int, default=4000)
    parser.add_argument("--single", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    texts = args.texts.read_text(encoding="utf-8").splitlines()[: args.count]
    with tempfile.TemporaryDirectory() as temporary:
        methods = make_methods(args.model_dir, Path(temporary))
        single = measure(methods, texts[: args.single], args.rounds, one_by_one=True)
        bulk = measure(methods, texts, args.rounds, one_by_one=False)
    packages = ["tensorflow", "onnxruntime", "ai-edge-litert", "tokenizers"]
    optional = ("openvino", "torch", "transformers")
    packages += [package for package in optional if importlib.util.find_spec(package)]
    results = {"texts": len(texts), "one text at a time": single, "bulk": bulk}
    timing.write_results("inference", results, *packages)


if __name__ == "__main__":
    main()
