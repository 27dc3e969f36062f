"""TensorFlow as the scripts need it: quiet, fast, and with no other settings than theirs."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator


def import_tensorflow() -> None:
    """Imports TensorFlow as the scripts need it.

    Keras runs on TensorFlow, whatever the environment says, and reads no `keras.json`.
    TensorFlow's own log is silenced, and oneDNN computes matrix products, unless the user has
    set something else. By itself TensorFlow takes oneDNN on newer processors only; on one with
    AVX2 a training step of BERT-base takes a fifth longer without it.
    """
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    os.environ["KERAS_BACKEND"] = "tensorflow"
    # A folder that cannot be: a keras.json in the user's home can change number types, and a
    # damaged one keeps TensorFlow itself from starting.
    os.environ["KERAS_HOME"] = os.path.join(os.devnull, "keras")
    wanted = os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3") in ("0", "1", "2")
    # Some lines are written before TensorFlow has read its level.
    with contextlib.nullcontext() if wanted else _stderr_held_back():
        import tensorflow  # noqa: F401


@contextlib.contextmanager
def _stderr_held_back() -> Iterator[None]:
    """Holds back what is written to stderr, also by C++, and shows it only after an exception."""
    sys.stderr.flush()
    original = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        except Exception:
            held.seek(0)
            os.write(original, held.read())
            raise
        finally:
            sys.stderr.flush()
            os.dup2(original, 2)
            os.close(original)
