"""TensorFlow as the scripts need it: quiet, fast, and with no other settings than theirs."""

import contextlib
import gc
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator

# Keras and TensorFlow import these where they are installed, for wrappers, pictures and converters
# that no script uses: with them TensorFlow takes nearly twice as long to start.
_NOT_NEEDED = ("jax", "matplotlib", "scipy", "sklearn")


def import_tensorflow(for_script: bool = True) -> None:
    """Imports TensorFlow as the scripts need it.

    Keras runs on TensorFlow, whatever `KERAS_BACKEND` or a `keras.json` says, unless it has been
    imported. TensorFlow's own log is silenced, and oneDNN computes matrix products, unless the user
    has set something else. By itself TensorFlow takes oneDNN on newer processors only; on one with
    AVX2 a training step of BERT-base takes half as long again without it.

    Where TensorFlow has been imported, nothing else is changed.

    Args:
        for_script: hides what no script uses, and ignores `keras.json`; a program may want them.
    """
    if "keras" not in sys.modules:
        os.environ["KERAS_BACKEND"] = "tensorflow"
        # TensorFlow imports Keras and passes over a failure; what is left has read the old setting.
        for name in [name for name in sys.modules if name.startswith("keras.")]:
            del sys.modules[name]
    if "tensorflow" in sys.modules:
        # It has read its settings, and programs that this one starts are to have the same.
        return
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    if for_script:
        # A folder that cannot be: a keras.json in the user's home can change number types, and a
        # damaged one keeps TensorFlow itself from starting.
        os.environ["KERAS_HOME"] = os.path.join(os.devnull, "keras")
    hidden = _NOT_NEEDED if for_script else ()
    wanted = os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3") in ("0", "1", "2")
    # Some lines are written before TensorFlow has read its level.
    held_back = contextlib.nullcontext() if wanted else _stderr_held_back()
    with _without_garbage_collection(), _hidden(hidden), held_back:
        import tensorflow  # noqa: F401


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """For an import: what it makes stays, and need not be looked through again and again.

    Nor at the end of the process: both together take a second of TensorFlow.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def _hidden(packages: Iterable[str]) -> Iterator[None]:
    """Lets packages look as if they were not installed, but for those that are imported already."""
    hidden = [package for package in packages if package not in sys.modules]
    # What is None there cannot be imported.
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for package in hidden:
            del sys.modules[package]


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
