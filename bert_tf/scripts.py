"""The scripts: `from bert_tf.scripts import run_classifier` gives what `run_classifier.py` runs.

Imports next to nothing, so that Ctrl-C and SIGTERM end a script with one line from its beginning,
also while the rest is imported. A signal handler is changed when a script starts, and not before.
"""

import importlib
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

# The module of `bert_tf.tasks` that does the work, and a description for `--help`.
_SCRIPTS = {
    "run_classifier": (
        "classification",
        "Fine-tunes, evaluates and predicts classes of texts and of pairs of texts.",
    ),
    "run_classifier_with_tfhub": (
        "hub_classification",
        "Fine-tunes an encoder in the form of TensorFlow Hub on texts and pairs of texts.",
    ),
    "run_squad": (
        "squad",
        "Fine-tunes on questions about texts, answers them, and scores the answers (SQuAD).",
    ),
    "run_ner": (
        "ner",
        "Fine-tunes on words with labels, named entities say, and labels words (CoNLL files).",
    ),
    "convert_checkpoint": (
        "conversion",
        "Writes a model in another format: the original's, Hugging Face's, or Keras'.",
    ),
    "create_pretraining_data": (
        "pretraining_data",
        "Makes records for pre-training, with masked tokens and pairs of segments, from texts.",
    ),
    "create_vocab": ("vocabulary", "Learns a WordPiece vocabulary from texts."),
    "run_pretraining": (
        "pretraining",
        "Trains a model on masked words and next sentences, and evaluates it.",
    ),
    "extract_features": (
        "extraction",
        "Writes what a trained encoder makes of texts: vectors of tokens, or of whole texts.",
    ),
    "export_model": (
        "export_model",
        "Writes a trained model as a SavedModel, for TensorFlow Serving and other programs.",
    ),
    "predict_masked": (
        "masked_words",
        "Fills [MASK] in texts with the words that a trained model expects there.",
    ),
}


def __getattr__(name: str) -> Callable[[], None]:
    if name not in _SCRIPTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return lambda: _run(name, *_SCRIPTS[name])


def _run(name: str, task: str, description: str) -> None:
    _end_on_signals()
    if name in ("convert_checkpoint", "create_pretraining_data"):
        # Neither computes on a GPU, and each worker of the second would take all of its memory.
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    if name == "create_pretraining_data":
        # NumPy's matrix products are not needed; without their threads workers can be copies of
        # this process (see `do_by_processes`).
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from bert_tf import cli, options

    def run(given: Any) -> None:
        importlib.import_module(f"bert_tf.tasks.{task}").run(given)

    cli.main(options.SCRIPTS[name], run, sys.argv, description)


def _end_on_signals() -> None:
    # Importing TensorFlow redirects file descriptor 2.
    stderr = os.dup(2)

    def end(number: int, frame: FrameType | None) -> None:
        # An exception could be swallowed by whatever is being imported.
        os.write(stderr, b"Interrupted.\n" if number == signal.SIGINT else b"Terminated.\n")
        os._exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        # A shell has programs in the background ignore Ctrl-C.
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, end)
