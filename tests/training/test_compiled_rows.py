"""What XLA computes between the products: the same values, and few different numbers of tokens."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.config import BertConfig
from bert_tf.modeling import BertClassifier
from bert_tf.modeling.rows import PaddedRows
from bert_tf.training import compiled_rows
from bert_tf.training.compiled_rows import CompiledRows
from tests.conftest import SIZES


def classifier(**changes):
    keras.utils.set_random_seed(1)
    return BertClassifier(BertConfig(50, **{**SIZES, **changes}), num_labels=2)


def traced(model, training=False):
    """The model as a function of rows of any length, and how many functions XLA compiles in it."""

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)] * 2, autograph=False)
    def run(ids, mask):
        return model.bert({"input_ids": ids, "input_mask": mask}, training=training)

    graph = run.get_concrete_function().graph
    return run, sum(is_compiled(operation) for operation in graph.get_operations())


def is_compiled(operation):
    return operation.type == "PartitionedCall" and operation.get_attr("_XlaMustCompile")


@pytest.mark.parametrize("act", ["gelu", "relu", "gelu_erf"])
@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (5, 24), (7, 19)])
def test_all_outputs_are_those_of_the_model(act, shape):
    model = classifier(hidden_act=act)
    with compiled_rows(model):
        run, _ = traced(model)
    generator = np.random.default_rng(0)
    ids = generator.integers(0, 50, shape).astype(np.int32)
    mask = (np.arange(shape[1]) < generator.integers(1, shape[1] + 1, (shape[0], 1))) + 0
    expected = model.bert({"input_ids": ids, "input_mask": mask}, training=False)
    found = run(ids, mask.astype(np.int32))
    assert found.keys() == expected.keys()
    tf.nest.map_structure(
        lambda a, b: np.testing.assert_allclose(a, b, atol=2e-6), dict(found), dict(expected)
    )


def test_only_what_is_traced_meanwhile_is_compiled():
    model = classifier()
    before = traced(model)[1]
    with compiled_rows(model):
        inside = traced(model)[1]
    after = traced(model)[1]
    layers = model.config.num_hidden_layers
    # One for gelu and two for the ends of the blocks.
    assert (before, inside, after) == (0, 3 * layers, 0)


def test_what_fails_while_it_is_traced_leaves_the_model_as_it_was():
    model = classifier()
    with pytest.raises(ValueError, match="inputs must be a dict"), compiled_rows(model):
        model.bert({})
    assert traced(model)[1] == 0


def test_training_is_not_compiled():
    model = classifier()
    with compiled_rows(model):
        assert traced(model)[1] > 0
        assert traced(model, training=True)[1] == 0


def test_another_form_of_rows_is_there_again():
    model = classifier()
    with compiled_rows(model):
        with compiled_rows(model):
            pass
        assert model.bert.padded_rows is CompiledRows
    assert model.bert.padded_rows is PaddedRows


def filled(tokens):
    rows = CompiledRows(tf.zeros([1, tokens], tf.int32), 1)
    return rows.strip(tf.ones([1, tokens, 1])).shape[0]


@given(st.integers(1, 5000))
def test_no_more_than_an_eighth_is_computed_for_nothing(tokens):
    assert tokens <= filled(tokens) <= max(8, tokens * 9 / 8)


def test_there_are_eight_sizes_from_one_power_of_two_to_the_next():
    assert {filled(tokens) for tokens in range(1025, 2049)} == {128 * n for n in range(9, 17)}
    assert filled(2030) == 2048
