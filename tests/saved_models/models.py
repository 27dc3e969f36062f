"""Shared helpers for export tests: models with random weights, and inputs."""

import numpy as np

from bert_tf.config import BertConfig
from bert_tf.inference.exported_model import INPUTS
from bert_tf.modeling import BertClassifier, BertModel, BertSpanLabeler, BertTokenClassifier
from bert_tf.tasks.multiple_choice.model import BertMultipleChoice

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
CONFIG = BertConfig(vocab_size=50, intermediate_size=24, **SIZES)
MODELS = {
    "encoder": BertModel,
    "classification": lambda config: BertClassifier(config, 3),
    "regression": lambda config: BertClassifier(config, 1),
    "tokens": lambda config: BertTokenClassifier(config, 5),
    "spans": BertSpanLabeler,
    "multiple_choice": BertMultipleChoice,
}
# Names of exported outputs -> the model's, where they differ.
_OUTPUT_NAMES = {"last_hidden_state": "sequence_output", "pooler_output": "pooled_output"}


def make_random_model(make_model, config=CONFIG):
    """Returns a model with random weights."""
    model, rng = make_model(config), np.random.default_rng(1)
    for variable in model.trainable_variables:
        variable.assign(rng.normal(0, 0.3, variable.shape))
    return model


def make_random_inputs(shape, seed):
    """Returns random inputs of an exported model, with padding."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, shape[-1] + 1, (*shape[:-1], 1))
    mask = (np.arange(shape[-1]) < lengths).astype(np.int64)
    ids = rng.integers(0, CONFIG.vocab_size, shape)
    return dict(zip(INPUTS, (ids, mask, rng.integers(0, 2, shape)), strict=True))


def to_model_inputs(inputs):
    """Converts inputs of an exported model to those of our model."""
    names = ("input_ids", "input_mask", "segment_ids")
    return {
        name: value.astype(np.int32) for name, value in zip(names, inputs.values(), strict=True)
    }


def make_cases(model):
    """Yields inputs of several shapes, and a function that returns an output by name."""
    for batch, length in ((1, 2), (2, 512), (33, 7)):
        shape = (batch, length) if model.input_rank == 2 else (batch, 4, length)
        inputs = make_random_inputs(shape, batch)
        outputs = model(to_model_inputs(inputs))
        yield inputs, lambda name, outputs=outputs: outputs[_OUTPUT_NAMES.get(name, name)]


def check_activation(hidden_act, run):
    """Asserts that `run(model, inputs)` computes an encoder with this activation."""
    config = BertConfig(vocab_size=50, intermediate_size=24, hidden_act=hidden_act, **SIZES)
    model, inputs = make_random_model(BertModel, config), make_random_inputs((3, 9), 0)
    expected = model(to_model_inputs(inputs))["sequence_output"]
    np.testing.assert_allclose(run(model, inputs)["last_hidden_state"], expected, atol=1e-4)


def check_pooling(pooling, run):
    """Asserts that the pooling of `run(model, inputs)` ignores padding."""
    model, inputs = make_random_model(BertModel), make_random_inputs((5, 9), 3)
    values = np.array(model(to_model_inputs(inputs))["sequence_output"])
    rows = [row[:count] for row, count in zip(values, inputs["attention_mask"].sum(1), strict=True)]
    pool = {"mean": lambda row: row.mean(0), "max": lambda row: row.max(0), "cls": lambda r: r[0]}
    expected = [pool[pooling](row) for row in rows]
    np.testing.assert_allclose(run(model, inputs)["sentence_embedding"], expected, atol=1e-4)


def assert_close(a, b):
    """Asserts that the outputs of a quantized model are close to the exact ones, but not equal."""
    a, b = (x.reshape(len(x), -1) for x in (a, b))
    cosines = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    assert cosines.min() > 0.99
    assert not np.array_equal(a, b)
