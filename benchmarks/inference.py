"""Times sentence vectors, one text at a time and in bulk: our engines and other libraries.

usage: python benchmarks/inference.py --model_dir=DIR --texts=FILE [--count=4000] [--single=200]
           [--rounds=5]

FILE has a text on each line. Each method tokenizes texts and averages the last layer over all
tokens, on all cores, in a separate process; the methods take turns, and ratios are medians over
rounds. `--count` texts are processed in one call, the first `--single` of them also one at a time.
Libraries other than ours sort the texts by length and form batches of 32. "ONNX Runtime" and
"OpenVINO" run our exported files with the package tokenizers; "default int8" is ONNX Runtime's
dynamic quantization with its default settings. bfloat16 is measured on processors that have
instructions for it. Cosine similarities compare the vectors with
TensorFlow's. Needs the extras `onnx`, `litert` and `benchmark`; skips OpenVINO and transformers if
they are not installed. DIR contains bert_model.ckpt, bert_config.json and vocab.txt.
"""

import argparse
import functools
import importlib.util
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from benchmarks import timing

Encoder = Callable[[list[str]], np.ndarray]

LENGTH, BATCH_SIZE = 128, 32
TENSORFLOW, ONNX_RUNTIME = "bert_tf, tensorflow", "ONNX Runtime"
# Name of a method -> engine and precision.
ENGINES = {
    TENSORFLOW: ("tensorflow", "float32"),
    "bert_tf, onnx": ("onnx", "float32"),
    "bert_tf, onnx int8": ("onnx", "int8"),
    "bert_tf, litert": ("litert", "float32"),
    "bert_tf, litert int8": ("litert", "int8"),
    "transformers": ("torch", "float32"),
}
# Measured on processors with bfloat16 instructions.
BFLOAT16 = {
    "bert_tf, tensorflow bfloat16": ("tensorflow", "bfloat16"),
    "transformers, bfloat16": ("torch", "bfloat16"),
}
# Name of a method -> folder of the model.
SESSIONS = {
    ONNX_RUNTIME: "onnx-float32",
    "ONNX Runtime, our int8": "onnx-int8",
    "ONNX Runtime, default int8": "default-int8",
}


def write_models(model_dir: Path, folder: Path) -> None:
    """Writes the encoder for all methods."""
    from onnxruntime.quantization import quantize_dynamic

    from bert_tf import checkpoints
    from bert_tf.commands import export_model
    from bert_tf.options import ExportOptions

    prefix = str(model_dir / "bert_model.ckpt")
    np.savez(folder / "weights.npz", **dict(checkpoints.read(prefix, checkpoints.shapes(prefix))))
    shutil.copy(model_dir / "bert_config.json", folder / "config.json")
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


def make_bert_tf_encoder(
    model_dir: Path, folder: Path, engine: str, precision: str, count: int
) -> Encoder:
    """Returns a function from `count` texts to their vectors, with one of our engines."""
    from bert_tf.base.quiet import import_tensorflow

    if engine == "tensorflow":
        import_tensorflow()
    else:
        model_dir = folder / f"{engine}-{precision}"
    from bert_tf.data.texts import Text
    from bert_tf.options import ExtractionOptions
    from bert_tf.tasks.feature_extraction.extraction import Extractor

    options = ExtractionOptions(
        init_checkpoint=str(model_dir),
        engine=engine,
        precision=precision,
        layers="-1",
        pooling="mean",
        max_seq_length=LENGTH,
        batch_size=BATCH_SIZE,
    )
    extractor = Extractor(options, total=count)

    def encode(texts: list[str]) -> np.ndarray:
        features = extractor.features([Text(text) for text in texts])
        return np.stack([values[0] for _, values in features])

    return encode


def open_model(
    path: str, openvino_precision: str | None
) -> Callable[[dict[str, np.ndarray]], np.ndarray]:
    """Returns a function from the inputs of an ONNX model to `sentence_embedding`."""
    if openvino_precision:
        import openvino

        # By default, OpenVINO computes in bfloat16 on processors that have instructions for it.
        settings = {"INFERENCE_PRECISION_HINT": openvino_precision}
        compiled = openvino.Core().compile_model(path, "CPU", settings)
        return lambda inputs: compiled(inputs)["sentence_embedding"]
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    return lambda inputs: session.run(["sentence_embedding"], inputs)[0]


def make_session_encoder(folder: Path, openvino_precision: str | None = None) -> Encoder:
    """Returns the same function, with tokenizers and ONNX Runtime or OpenVINO."""
    from tokenizers import Tokenizer

    run = open_model(str(folder / "model.onnx"), openvino_precision)
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


def make_torch_encoder(model_dir: Path, folder: Path, precision: str) -> Encoder:
    """Returns the same function, with Hugging Face's model on PyTorch and our weights."""
    import torch
    from tokenizers import BertWordPieceTokenizer

    from benchmarks.squad_torch import build_model

    dtype = getattr(torch, precision)
    model = build_model(folder).bert.eval().to(dtype)
    tokenizer = BertWordPieceTokenizer(str(model_dir / "vocab.txt"))
    tokenizer.enable_truncation(LENGTH)

    def encode(texts: list[str]) -> np.ndarray:
        token_ids = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
        order = sorted(range(len(texts)), key=lambda row: -len(token_ids[row]))
        vectors = np.empty((len(texts), model.config.hidden_size), np.float32)
        with torch.inference_mode():
            for first in range(0, len(order), BATCH_SIZE):
                rows = order[first : first + BATCH_SIZE]
                length = len(token_ids[rows[0]])
                padded = [token_ids[row] + [0] * (length - len(token_ids[row])) for row in rows]
                ids = torch.tensor(padded)
                lengths = torch.tensor([[len(token_ids[row])] for row in rows])
                mask = (torch.arange(length) < lengths).to(dtype)
                hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state
                sums = (hidden.float() * mask.float()[:, :, None]).sum(1)
                vectors[rows] = (sums / lengths).numpy()
        return vectors

    return encode


def make_workload(
    make_encoder: Callable[[], Encoder], texts: list[str], path: Path, one_by_one: bool
) -> Callable[[], Any]:
    """Returns a function that encodes the texts and saves the vectors."""
    encode = make_encoder()
    if one_by_one:
        return lambda: np.save(path, np.concatenate([encode([text]) for text in texts]))
    return lambda: np.save(path, encode(texts))


def make_methods(model_dir: Path, folder: Path, count: int) -> dict[str, Callable[[], Encoder]]:
    """Returns a function that makes an encoder of `count` texts at a time, for each method."""
    methods: dict[str, Callable[[], Encoder]] = {}
    engines = {**ENGINES, **(BFLOAT16 if "bfloat16" in timing.processor_name() else {})}
    for name, (engine, precision) in engines.items():
        if engine == "torch":
            if importlib.util.find_spec("torch"):
                methods[name] = functools.partial(make_torch_encoder, model_dir, folder, precision)
        else:
            methods[name] = functools.partial(
                make_bert_tf_encoder, model_dir, folder, engine, precision, count
            )
    for name, subfolder in SESSIONS.items():
        methods[name] = functools.partial(make_session_encoder, folder / subfolder)
    if importlib.util.find_spec("openvino"):
        precisions = {"OpenVINO": "f32"}
        if "bfloat16" in timing.processor_name():
            precisions["OpenVINO, bfloat16"] = "bf16"
        for name, precision in precisions.items():
            methods[name] = functools.partial(
                make_session_encoder, folder / "onnx-float32", precision
            )
    return methods


def measure(
    methods: dict[str, Callable[[], Encoder]], texts: list[str], rounds: int, one_by_one: bool
) -> dict[str, dict[str, float]]:
    """Times all methods; returns a row of figures for each."""
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
            "relative time": round(timing.median_ratio(times, seconds[ONNX_RUNTIME]), 3),
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
        folder = Path(temporary)
        timing.run_in_process(write_models, args.model_dir, folder)
        methods = make_methods(args.model_dir, folder, 1)
        single = measure(methods, texts[: args.single], args.rounds, one_by_one=True)
        methods = make_methods(args.model_dir, folder, len(texts))
        bulk = measure(methods, texts, args.rounds, one_by_one=False)
    packages = ["tensorflow", "onnxruntime", "ai-edge-litert", "tokenizers"]
    optional = ("openvino", "torch", "transformers")
    packages += [package for package in optional if importlib.util.find_spec(package)]
    results = {"texts": len(texts), "single": single, "bulk": bulk}
    timing.write_results("inference", results, *packages)


if __name__ == "__main__":
    main()
