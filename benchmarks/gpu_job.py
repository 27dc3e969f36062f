"""Measures a job of gpu.py in this process.

usage: python benchmarks/gpu_job.py ROW CONTESTANT FOLDER [--size=tiny] [--seconds=4]
       python benchmarks/gpu_job.py --versions

Prepares the job, which includes imports and compilation, creates FOLDER/ready, waits for FOLDER/go,
measures for about --seconds, and writes FOLDER/result.json. --versions prints the versions of
packages and libraries as JSON.
"""

import argparse
import contextlib
import ctypes
import functools
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from benchmarks import gpu_steps
from benchmarks.gpu_rows import MAX_SENTENCE_LENGTH, NUM_BATCHES, SIZES, TORCH, VOCAB_SIZE, Row

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("tensorflow", "keras", "keras-hub", "torch", "transformers", "triton")
RESULT = "result.json"
NUM_WINDOWS = 5
NUM_LOSSES = 20
# Number of batches in the training file of a `loop` row, and epochs that suffice to choose XLA.
LOOP_BATCHES, LOOP_EPOCHS = 100, 26
_SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_RATE = re.compile(r"([\d,.]+) seq/s")

Measure = Callable[[], dict[str, Any]]


def prepare_steps(row: Row, contestant: str, folder: Path, seconds: float) -> Measure:
    """Prepares a bare step, which is measured in several windows."""
    programs: dict[str, Callable[[Row], gpu_steps.Program]] = {
        "torch": functools.partial(gpu_steps.make_torch_program, compiled=False),
        "torch-compile": functools.partial(gpu_steps.make_torch_program, compiled=True),
        "keras_hub": gpu_steps.make_keras_hub_program,
        "bert_tf-no-xla": functools.partial(gpu_steps.make_bert_tf_program, jit_compile=False),
    }
    # The other contestants only have different environment variables.
    make_with_xla = functools.partial(gpu_steps.make_bert_tf_program, jit_compile=True)
    program = programs.get(contestant, make_with_xla)(row)
    first_seconds = _time_steps(program, 1)
    _time_steps(program, NUM_BATCHES)  # compiles for other lengths, if necessary
    program.release()

    def measure() -> dict[str, Any]:
        step_seconds = min(_time_steps(program, 5), _time_steps(program, 5)) / 5
        count = max(1, round(seconds / NUM_WINDOWS / step_seconds))
        if row.is_like_mrpc:  # Every window has the same lengths.
            count = -(-count // NUM_BATCHES) * NUM_BATCHES
        times = [_time_steps(program, count) / count for _ in range(NUM_WINDOWS)]
        step_seconds, peak_bytes = statistics.median(times), program.peak_bytes()
        return {
            "seq/s": round(row.batch_size / step_seconds, 1),
            "ms/step": round(1000 * step_seconds, 2),
            "spread %": round(100 * (max(times) - min(times)) / step_seconds, 1),
            "TFLOP/s": round(row.flops / step_seconds / 1e12, 2),
            "peak GB": peak_bytes and round(peak_bytes / 1e9, 2),
            "first step s": round(first_seconds, 1),
        }

    return measure


def _time_steps(program: gpu_steps.Program, count: int) -> float:
    """Returns the seconds of `count` steps in all."""
    start = time.perf_counter()
    for index in range(count):
        program.start(index)
    program.wait()
    return time.perf_counter() - start


def prepare_sentence(row: Row, contestant: str, folder: Path, seconds: float) -> Measure:
    """Prepares the classification of one text, given as a string."""
    start = time.perf_counter()
    write_vocab(folder)
    if contestant in TORCH:
        classify = gpu_steps.make_torch_classify(row, contestant == "torch-compile", folder)
    else:
        write_model(row, folder)
        from bert_tf.api.predictor import Predictor

        classify = Predictor(
            folder,
            "run_classifier",
            task_name="cola",
            max_seq_length=MAX_SENTENCE_LENGTH,
            predict_batch_size=1,
            precision=row.precision,
            jit_compile="true" if contestant == "bert_tf" else "false",
        )
    texts = make_texts(row, NUM_BATCHES)

    def time_call(index: int) -> float:
        start = time.perf_counter()
        classify(texts[index % len(texts)])
        return time.perf_counter() - start

    time_call(0)
    load_seconds = time.perf_counter() - start

    def measure() -> dict[str, Any]:
        for index in range(NUM_BATCHES):
            time_call(index)
        times: list[float] = []
        while sum(times) < seconds or len(times) < NUM_BATCHES:
            times.append(time_call(len(times)))
        return {
            "ms": round(1000 * statistics.median(times), 3),
            "95th percentile ms": round(1000 * float(np.percentile(times, 95)), 3),
            "load and first call s": round(load_seconds, 1),
        }

    return measure


def prepare_losses(row: Row, contestant: str, folder: Path, seconds: float) -> Measure:
    """Compares the losses of a training without dropout, with and without XLA."""

    def train(jit_compile: bool) -> list[float]:
        program = gpu_steps.make_bert_tf_program(row, jit_compile, dropout=0.0, warmup_steps=0)
        return [float(program.start(index)) for index in range(NUM_LOSSES)]

    def measure() -> dict[str, Any]:
        losses, losses_with_xla = train(jit_compile=False), train(jit_compile=True)
        differences = np.abs(np.subtract(losses_with_xla, losses)) / np.abs(losses)
        difference = float(differences.max())
        return {
            "max relative difference": difference,
            "losses": losses,
            "losses with XLA": losses_with_xla,
        }

    return measure


def prepare_loop(row: Row, contestant: str, folder: Path, seconds: float) -> Measure:
    """Prepares run_classifier.py, which trains until its log shows the throughput."""
    write_vocab(folder)
    write_model(row, folder)
    texts = make_texts(row, LOOP_BATCHES * row.batch_size)
    lines = ["text\tlabel", *(f"{text}\t{index % 2}" for index, text in enumerate(texts))]
    (folder / "train.tsv").write_text("\n".join(lines) + "\n")
    flags = (
        "--task_name=tsv --text_column=text --label_column=label --dev_fraction=0 --do_train=true "
        f"--data_dir={folder} --init_checkpoint={folder}/bert_model.ckpt "
        f"--output_dir={folder}/output --precision={row.precision} "
        f"--train_batch_size={row.batch_size} --max_seq_length={row.length} "
        f"--num_train_epochs={1 if row.size == 'tiny' else LOOP_EPOCHS}"
    )

    def measure() -> dict[str, Any]:
        log = folder / "run_classifier.log"
        with open(log, "w") as file:
            command = [sys.executable, str(ROOT / "run_classifier.py"), *flags.split()]
            process = subprocess.Popen(command, stdout=file, stderr=file)
        # The log shows the throughput every 15 seconds, without the first steps.
        while process.poll() is None and not _RATE.search(log.read_text()):
            time.sleep(0.2)
        process.terminate()  # The script saves a checkpoint and stops.
        process.wait()
        text = log.read_text()
        rates = _RATE.findall(text)
        if not rates:
            raise RuntimeError(f"run_classifier.py: {text[-1000:]}")
        return {
            "seq/s": float(rates[-1].replace(",", "")),
            "chose XLA": "XLA compiles" in text,
            "log": [line for line in text.splitlines() if "XLA" in line or "seq/s" in line],
        }

    return measure


def write_vocab(folder: Path) -> None:
    """Writes vocab.txt, as large as the published ones."""
    words = map(_word, range(len(_SPECIAL_TOKENS), VOCAB_SIZE))
    (folder / "vocab.txt").write_text("\n".join([*_SPECIAL_TOKENS, *words]) + "\n")


def make_texts(row: Row, count: int) -> list[str]:
    """Returns texts that have `row.length` tokens with [CLS] and [SEP]."""
    rng = np.random.default_rng(1)
    ids = rng.integers(len(_SPECIAL_TOKENS), VOCAB_SIZE, (count, row.length - 2))
    return [" ".join(map(_word, text)) for text in ids]


def _word(token_id: int) -> str:
    return f"word{token_id}"


def write_model(row: Row, folder: Path) -> None:
    """Writes a classifier with random weights and its configuration."""
    from bert_tf.base.quiet import import_tensorflow

    import_tensorflow()
    import keras

    from bert_tf import checkpoints
    from bert_tf.config import BertConfig
    from bert_tf.modeling import BertClassifier

    keras.utils.set_random_seed(1)
    config = BertConfig(**row.config)
    (folder / "bert_config.json").write_text(config.to_json_string())
    variables = checkpoints.named_variables(BertClassifier(config, 2))
    values = {name: variable.numpy() for name, variable in variables.items()}
    checkpoints.write(str(folder / "bert_model.ckpt"), values)


def versions() -> dict[str, str]:
    """Returns the versions of Python, packages, cuBLAS, and CUDA as supported by the driver."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    spec = importlib.util.find_spec("nvidia")
    names = ["libcublas.so.12", "libcublas.so.13"]
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        names += map(str, Path(folder).glob("*/lib/libcublas.so.*"))
    number = ctypes.c_int()
    for name in names:
        with contextlib.suppress(OSError):
            library, parts = ctypes.CDLL(name), []
            for part in range(3):
                library.cublasGetProperty(part, ctypes.byref(number))
                parts.append(str(number.value))
            found["cublas"] = ".".join(parts)
            break
    with contextlib.suppress(OSError):
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(number))
        found["cuda"] = f"{number.value // 1000}.{number.value % 1000 // 10}"
    return found


PREPARE = {"sentence": prepare_sentence, "losses": prepare_losses, "loop": prepare_loop}


def run(row: Row, contestant: str, folder: Path, seconds: float) -> dict[str, Any]:
    """Prepares a job, waits, and measures it; returns the result or a description of the error."""
    parent = os.getppid()
    try:
        measure = PREPARE.get(row.kind, prepare_steps)(row, contestant, folder, seconds)
        (folder / "ready").touch()
        while not (folder / "go").exists():
            if os.getppid() != parent:
                sys.exit("gpu.py has ended")
            time.sleep(0.02)
        return measure()
    except ModuleNotFoundError as error:
        return {"error": f"not installed: {error.name}"}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {str(error)[:1000]}"}


def main() -> None:
    """Measures a job, or prints versions."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("row", nargs="?")
    parser.add_argument("contestant", nargs="?")
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--size", choices=SIZES)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--versions", action="store_true")
    args = parser.parse_args()
    if args.versions:
        print(json.dumps(versions()))
        return
    result = run(Row.parse(args.row, args.size), args.contestant, args.folder, args.seconds)
    (args.folder / RESULT).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
