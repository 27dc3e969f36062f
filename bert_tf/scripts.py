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

from bert_tf.errors import Terminated

# The module of `bert_tf.tasks` that does the work, and a description for `--help`.
_SCRIPTS = {
    "run_classifier": ("classification", "Fine-tunes and applies classifiers of texts and pairs."),
    "run_classifier_with_tfhub": ("hub_classification", "Fine-tunes encoders of TensorFlow Hub."),
    "run_squad": ("squad", "Fine-tunes and applies models that answer questions on texts (SQuAD)."),
    "run_ner": ("ner", "Fine-tunes and applies models that label words, named entities say."),
    "convert_checkpoint": (
        "conversion",
        "Converts models: the original's, Hugging Face's, Keras'.",
    ),
    "create_pretraining_data": ("pretraining_data", "Makes records for pre-training from texts."),
    "create_vocab": ("vocabulary", "Learns a WordPiece vocabulary from texts."),
    "run_pretraining": ("pretraining", "Trains a model on masked words and next sentences."),
    "extract_features": ("extraction", "Writes an encoder's vectors of tokens or whole texts."),
    "export_model": ("export_model", "Writes a trained model as a SavedModel, to serve it."),
    "predict_masked": ("masked_words", "Fills [MASK] in texts with the words a model expects."),
}


def __getattr__(name: str) -> Callable[[], None]:
    if name not in _SCRIPTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return lambda: _run(name, *_SCRIPTS[name])


def _run(name: str, task: str, description: str) -> None:
    # Importing TensorFlow redirects file descriptor 2.
    stderr = os.dup(2)

    def end(number: int, frame: FrameType | None) -> None:
        # An exception could be swallowed by whatever is being imported.
        os.write(stderr, b"Interrupted.\n" if number == signal.SIGINT else b"Terminated.\n")
        os._exit(128 + number)

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt if number == signal.SIGINT else Terminated

    def run(given: Any) -> None:
        # From here on there are temporary files to remove.
        _handle_signals(stop)
        importlib.import_module(f"bert_tf.tasks.{task}").run(given)

    _handle_signals(end)
    if name in ("convert_checkpoint", "create_pretraining_data"):
        # Neither computes on a GPU, and each worker of the second would take all of its memory.
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    if name == "create_pretraining_data":
        # NumPy's matrix products are not needed; without their threads workers can be copies of
        # this process (see `do_by_processes`).
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from bert_tf import cli, options

    cli.main(options.SCRIPTS[name], run, sys.argv, description)


def _handle_signals(handler: Callable[[int, FrameType | None], None]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        # A shell has programs in the background ignore Ctrl-C.
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)
