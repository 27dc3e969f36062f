"""Imports TensorFlow quickly, without its log messages, and with the scripts' settings."""

import contextlib
import gc
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator

from bert_tf.base import xla_cache

# Optional dependencies of Keras and TensorFlow that no script needs at startup. Importing them
# would nearly double TensorFlow's startup time.
_UNUSED_PACKAGES = ("jax", "matplotlib", "scipy", "sklearn")


def select_backend() -> None:
    """Makes TensorFlow the backend of Keras, unless Keras has been imported already."""
    if "keras" not in sys.modules:
        os.environ["KERAS_BACKEND"] = "tensorflow"
        # Remove modules of a failed import, which used the old setting.
        for name in [name for name in sys.modules if name.startswith("keras.")]:
            del sys.modules[name]


def import_tensorflow(for_script: bool = True) -> None:
    """Imports TensorFlow as the backend of Keras, unless they have been imported already.

    Silences TensorFlow's log and enables oneDNN for matrix products, unless the user's environment
    variables say otherwise. By default, TensorFlow uses oneDNN only on newer processors; with AVX2,
    a training step of BERT-base takes 50% longer without it.

    Args:
        for_script: whether to also hide packages that no script needs, and to ignore `keras.json`.
    """
    select_backend()
    if "tensorflow" in sys.modules:
        return
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    xla_cache.enable()
    if for_script:
        # A folder that cannot exist, so that Keras finds no keras.json there: it could change
        # dtypes or, if invalid, keep TensorFlow from starting.
        os.environ["KERAS_HOME"] = os.path.join(os.devnull, "keras")
    hidden = _UNUSED_PACKAGES if for_script else ()
    with pause_gc(), _hide(hidden), hidden_log():
        import tensorflow  # noqa: F401

        gc.freeze()  # Never traverse the many objects of the imported modules.


def hidden_log() -> contextlib.AbstractContextManager[None]:
    """Returns a context for importing TensorFlow that hides its log, unless the user wants it."""
    wants_log = os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3") == "0"
    # TensorFlow writes some lines of level 0 before it reads its log level.
    return contextlib.nullcontext() if wants_log else hide_stderr(show_on_error=True)


@contextlib.contextmanager
def pause_gc() -> Iterator[None]:
    """Disables cyclic garbage collection in a block that creates many objects but no garbage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def _hide(packages: Iterable[str]) -> Iterator[None]:
    """Makes packages that are not imported yet look as if they were not installed."""
    hidden = [package for package in packages if package not in sys.modules]
    # An entry of None makes `import` fail.
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for package in hidden:
            del sys.modules[package]


@contextlib.contextmanager
def hide_stderr(show_on_error: bool = False) -> Iterator[None]:
    """Hides stderr, including C++ output; shows it after an exception if `show_on_error`."""
    if sys.stderr is None:  # as in pythonw.exe, and in some services
        yield
        return
    sys.stderr.flush()
    original = os.dup(2)
    with tempfile.TemporaryFile() as buffer:
        os.dup2(buffer.fileno(), 2)
        try:
            yield
        except Exception:
            buffer.seek(0)
            os.write(original, buffer.read() if show_on_error else b"")
            raise
        finally:
            sys.stderr.flush()
            os.dup2(original, 2)
            os.close(original)
