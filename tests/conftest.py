"""Shared fixtures: a tiny model with its vocabulary, and tiny MRPC and CoLA datasets."""

import gc
import logging
import os
import random
import signal
import sys
from types import SimpleNamespace

import hypothesis
import keras
import pytest

from bert_tf import checkpoint, checkpoints
from bert_tf.base.signals import SIGNALS
from bert_tf.config import BertConfig
from bert_tf.modeling import BertModel
from bert_tf.training.precision import set_precision
from tests import oracle

# Exclude imported modules from garbage collection, which took a sixth of the test time.
gc.freeze()
gc.set_threshold(100_000, 50, 100)

# On GPUs, some test modules compute when pytest collects them. By default, the first process of
# pytest-xdist would then allocate all of the memory.
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")

# Tests send SIGINT, which pytest and its child processes ignore if a shell script started pytest in
# the background.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No limits of time, so that tests pass on slow or busy machines.
too_slow = [hypothesis.HealthCheck.too_slow]
hypothesis.settings.register_profile("bert_tf", deadline=None, suppress_health_check=too_slow)
hypothesis.settings.load_profile("bert_tf")


@pytest.fixture(scope="session", autouse=True)
def _signals():
    """With `nohup pytest`, the scripts that tests start would ignore SIGHUP."""
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def _exact_float32():
    """On GPUs, matrix products in TF32 would differ from the golden results by 1e-3."""
    set_precision("float32")


@pytest.fixture(autouse=True)
def _unchanged_process():
    """Fails a test that would change those which happen to run after it in the same process."""
    before = _process_state()
    yield
    assert _process_state() == before


def _process_state():
    logger = logging.getLogger("bert_tf")
    return {
        "logger": (logger.level, logger.propagate, logger.disabled, [*logger.handlers]),
        "level of the root logger": logging.getLogger().level,
        "signal handlers": [signal.getsignal(number) for number in SIGNALS],
        "environment": {**os.environ, "PYTEST_CURRENT_TEST": ""},
        "working directory": os.getcwd(),
        "arguments": [*sys.argv],
        # onnxruntime adds a folder of its own.
        "import path": [path for path in sys.path if "site-packages" not in path],
        "precision": (keras.config.floatx(), keras.config.dtype_policy().name),
    }


def pytest_collection_modifyitems(items):
    """Marks the tests of the model and of training, which are also meant to run on a GPU."""
    for item in items:
        if item.path.parent.name in GPU_FOLDERS:
            item.add_marker(pytest.mark.gpu)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Lets only tests marked `shared`, and their fixtures, read public data."""
    oracle.marked_shared = item.get_closest_marker("shared") is not None


GPU_FOLDERS = ("modeling", "training")
WORDS = ["a", "b", "c", "good", "bad", "film", "story", "the", "was", "not", "it", "plot"]
WORDS += ["slow", "fast"]
SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 24,
    "type_vocab_size": 2,
}


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A one-layer model, which is fast to trace, with tiny datasets."""
    return _write_model(tmp_path_factory.mktemp("tiny"), SIZES)


@pytest.fixture(scope="session")
def tiny_of_two_layers(tmp_path_factory):
    """A two-layer model with tiny datasets; some modules override `tiny` with it."""
    return _write_model(tmp_path_factory.mktemp("tiny"), {**SIZES, "num_hidden_layers": 2})


def _write_model(folder, sizes):
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (folder / "vocab.txt").write_text("\n".join(vocab) + "\n")
    config = BertConfig(len(vocab), **sizes)
    (folder / "bert_config.json").write_text(config.to_json_string())
    # Seed here, so that the model does not depend on the tests that ran before.
    keras.utils.set_random_seed(2)
    variables = checkpoints.named_variables(BertModel(config))
    prefix = str(folder / "bert_model.ckpt")
    checkpoint.write(prefix, {name: variable.value for name, variable in variables.items()})
    rng = random.Random(5)
    random_sentence = lambda: " ".join(rng.choices(WORDS, k=rng.randint(2, 9)))  # noqa: E731
    _write_mrpc(folder / "mrpc", random_sentence)
    _write_cola(folder / "cola", random_sentence)
    return SimpleNamespace(
        folder=folder,
        config=config,
        checkpoint=prefix,
        flags={
            "vocab_file": str(folder / "vocab.txt"),
            "bert_config_file": str(folder / "bert_config.json"),
            "max_seq_length": 24,
            "train_batch_size": 4,
        },
    )


def _write_mrpc(folder, random_sentence):
    folder.mkdir()
    for split, num_rows in (("train", 18), ("dev", 11), ("test", 13)):
        lines = ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"]
        lines += [
            f"{row % 2}\t{row}\t{row}\t{random_sentence()}\t{random_sentence()}"
            for row in range(num_rows)
        ]
        (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n")


def _write_cola(folder, random_sentence):
    folder.mkdir()
    for split, num_rows in (("train", 18), ("dev", 11)):
        lines = [f"{row}\t{row % 2}\ta\t{random_sentence()}" for row in range(num_rows)]
        (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    lines = ["index\tsentence", *(f"{row}\t{random_sentence()}" for row in range(7))]
    (folder / "test.tsv").write_text("\n".join(lines) + "\n")


@pytest.fixture
def run_log(caplog):
    """Captures the log output of a run."""
    caplog.set_level(logging.INFO, "bert_tf")
    return caplog
