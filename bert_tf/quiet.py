"""Imports TensorFlow quietly, quickly, and with the settings of the scripts."""

import contextlib
import gc
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator

# Optional imports of Keras and TensorFlow that no script needs; they nearly double the time that
# TensorFlow takes to start.
_NOT_NEEDED = ("jax", "matplotlib", "scipy", "sklearn")


def import_tensorflow(for_script: bool = True) -> None:
    """Imports TensorFlow as the backend of Keras, unless they have been imported already.

    Silences TensorFlow's own log and turns on oneDNN for matrix products, unless the user has set
    them. By default TensorFlow uses oneDNN on newer processors only; with AVX2, a training step of
    BERT-base takes half as long again without it. For scripts it also hides packages that they do
    not need, and ignores `keras.json`.
    """
    if "keras" not in sys.modules:
        os.environ["KERAS_BACKEND"] = "tensorflow"
        # Left over from an import that failed, with the old setting.
        for name in [name for name in sys.modules if name.startswith("keras.")]:
            del sys.modules[name]
    if "tensorflow" in sys.modules:
        return
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    if for_script:
        # A folder that cannot exist. A keras.json can change number types, and a damaged one keeps
        # TensorFlow from starting.
        os.environ["KERAS_HOME"] = os.path.join(os.devnull, "keras")
    hidden = _NOT_NEEDED if for_script else ()
    wanted = os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3") in ("0", "1", "2")
    # TensorFlow writes some lines before it reads its level.
    held_back = contextlib.nullcontext() if wanted else _stderr_held_back()
    with _without_garbage_collection(), _hidden(hidden), held_back:
        import tensorflow  # noqa: F401


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Keeps the objects of an import out of garbage collection, also at exit; saves a second."""
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
    """Makes packages that are not imported yet look as if they were not installed."""
    hidden = [package for package in packages if package not in sys.modules]
    # A module that is None there cannot be imported.
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for package in hidden:
            del sys.modules[package]


@contextlib.contextmanager
def _stderr_held_back() -> Iterator[None]:
    """Shows what is written to stderr, also by C++, only after an exception."""
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
