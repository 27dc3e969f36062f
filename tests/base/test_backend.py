"""Restrictions of the TensorFlow backend: processes, graphs, scopes and backend selection."""

import copy
import multiprocessing
import os
import pickle

import pytest
import tensorflow as tf

from bert_tf.api.predictor import Predictor
from bert_tf.base.errors import UserError
from bert_tf.options import ExtractionOptions
from tests.processes import run_python

_loaded = {}


def _load():
    return Predictor(_loaded["options"])


def _predict():
    return _loaded["predictor"]("good film")


@pytest.fixture(scope="module", autouse=True)
def predictor(tiny):
    flags = {name: tiny.flags[name] for name in ("vocab_file", "bert_config_file")}
    flags |= {"init_checkpoint": tiny.checkpoint, "max_seq_length": 24, "layers": "-1"}
    _loaded["options"] = ExtractionOptions(**flags)
    _loaded["predictor"] = _load()
    return _loaded["predictor"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.parametrize("use", [_predict, _load])
def test_use_after_fork_raises(use):
    """Without the check, TensorFlow would hang."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        prediction = pool.apply_async(use)
        with pytest.raises(UserError, match=r"forked from .*only after the fork.*spawn"):
            prediction.get(timeout=300)
    # The parent process still works.
    assert _predict().tokens == ["[CLS]", "good", "film", "[SEP]"]


@pytest.mark.parametrize("serialize", [pickle.dumps, copy.deepcopy])
def test_predictor_cannot_be_pickled(serialize, predictor):
    with pytest.raises(UserError, match=r"cannot be pickled.*create one in each process"):
        serialize(predictor)


def _in_function(use):
    tf.function(use, autograph=False)()


def _in_graph(use):
    with tf.Graph().as_default():
        use()


def _in_scope(use):
    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        use()


@pytest.mark.parametrize(
    ("context", "use"), [(_in_function, _load), (_in_graph, _predict), (_in_scope, _load)]
)
def test_models_need_eager_execution(context, use):
    with pytest.raises(UserError, match="needs eager execution"):
        context(use)


def test_loaded_model_works_inside_a_strategy_scope():
    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        assert _predict().tokens[1] == "good"


def _run(program, **environment):
    result = run_python("-c", program, **environment)
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


# Makes importing JAX fail.
_NO_JAX = "import sys; sys.modules['jax'] = None\n"
_PRINT_BACKEND = "\nimport keras; print(keras.config.backend())"


@pytest.mark.parametrize(
    "program",
    [
        pytest.param("from bert_tf.modeling import BertModel", marks=pytest.mark.slow),
        pytest.param(
            "from bert_tf import BertModel; BertModel.from_checkpoint('examples/small_bert')",
            marks=pytest.mark.slow,
        ),
        "from bert_tf import Predictor\n"
        "Predictor.from_output_dir('examples/small_bert', 'predict_masked')('a [MASK]')",
    ],
)
def test_tensorflow_log_is_hidden(program):
    result = run_python("-c", program)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize(
    "program",
    [
        pytest.param("from bert_tf import Predictor", marks=pytest.mark.slow),
        pytest.param("import tensorflow; from bert_tf import Predictor", marks=pytest.mark.slow),
        "import bert_tf.checkpoint",
    ],
)
def test_import_selects_the_tensorflow_backend(program, tmp_path):
    (tmp_path / "keras.json").write_text('{"backend": "torch"}')
    environment = {} if program.endswith("checkpoint") else {"KERAS_BACKEND": "jax"}
    actual = _run(
        _NO_JAX + program + _PRINT_BACKEND, **{"KERAS_HOME": str(tmp_path), **environment}
    )
    assert actual == ["tensorflow"]


_USE_JAX_BACKEND = """
import importlib, keras
keras.config.backend = lambda: "jax"
from bert_tf import BertConfig, BertModel, FullTokenizer
for name in ("predictor", "checkpoint", "training", "data.records", "finetuning.run"):
    try:
        importlib.import_module(f"bert_tf.{name}")
    except ValueError as error:
        print(type(error).__name__, "on the jax backend" in str(error), "KERAS_B" in str(error))
"""


def test_error_names_the_active_backend():
    """Importing the model is allowed: it runs on other backends."""
    assert _run(_USE_JAX_BACKEND) == ["UserError", "True", "True"] * 5


def test_package_names_are_imported_lazily():
    program = (
        "import sys, bert_tf\n"
        "print({'keras', 'tensorflow', 'numpy'} & set(sys.modules))\n"
        "print({'BertModel', 'Predictor', '__version__'} <= set(dir(bert_tf)))\n"
        "print(hasattr(bert_tf, 'BertModels'))"
    )
    assert _run(program) == ["set()", "True", "False"]
