"""Static shapes, which XLA requires on TPUs, and distinct dropout masks of replicas."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest

from bert_tf import training
from bert_tf.data import records
from bert_tf.data.features import Feature, sequence_features
from bert_tf.data.input_pipeline import read_dataset
from bert_tf.modeling import BertClassifier
from bert_tf.modeling.losses import cross_entropy
from bert_tf.options import TrainingOptions
from tests.modeling.helpers import config
from tests.training.helpers import NO_STOP, ONE_DEVICE, STRATEGY, make_state
from tests.training.runs import PROCESS

FEATURES = (*sequence_features(16), Feature("label_ids"), Feature("is_real_example"))


@pytest.fixture
def path(tmp_path):
    rng = np.random.default_rng(1)
    batch = {
        **{name: rng.integers(0, 2, (11, 16)) for name in ("input_mask", "segment_ids")},
        "input_ids": rng.integers(0, 90, (11, 16)),
        "label_ids": np.arange(11) % 2,
        "is_real_example": np.ones(11, np.int32),
    }
    records.write_records(str(tmp_path / "x.tf_record"), FEATURES, [batch])
    return str(tmp_path / "x.tf_record")


def _distributed_dataset(path, **kwargs):
    return STRATEGY.distribute_datasets_from_function(
        lambda context: read_dataset(path, FEATURES, 4, context=context, **kwargs)
    )


def assert_static(function):
    """Asserts that all shapes in a compiled function are static."""
    graphs = [function.graph]
    for graph in graphs:
        graphs += [inner.graph for inner in _inner_functions(graph)]
    for graph in graphs:
        for operation in graph.get_operations():
            # Skip unused inputs of loop conditions.
            if "redundant_placeholder" in operation.name:
                continue
            for tensor in operation.outputs:
                assert tensor.shape.is_fully_defined(), (operation.type, tensor)


def _inner_functions(graph):
    return [inner for inner in graph._functions.values() if hasattr(inner, "graph")]


@pytest.mark.parametrize("accumulation_steps", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_training_step_has_static_shapes(path, accumulation_steps):
    recompute = accumulation_steps > 1
    model = BertClassifier(config(), 2, use_one_hot_embeddings=True, recompute_layers=recompute)
    step = training.make_train_step(
        make_state(model, 1e-3, 5, 2),
        training.mean_loss(lambda o, batch: cross_entropy(o["logits"], batch["label_ids"])),
        TrainingOptions(gradient_accumulation_steps=accumulation_steps),
        dataclasses.replace(ONE_DEVICE, jit_compile=True, fixed_shapes=True),
    )
    batches = _distributed_dataset(path, shuffle_seed=1, repeat=True, drop_remainder=True)
    losses = [
        float(step(batch, NO_STOP)["loss"]) for batch, _ in zip(batches, range(4), strict=False)
    ]
    assert np.isfinite(losses).all()
    # Four batches, which span an epoch boundary, have one signature.
    assert step.experimental_get_tracing_count() == 1
    assert_static(step.get_concrete_function(next(iter(batches)), NO_STOP))


def test_inference_has_static_shapes(path):
    model = BertClassifier(config(), 2, use_one_hot_embeddings=True)

    def fetch(outputs, batch):
        return {"probabilities": outputs["probabilities"], "label_ids": batch["label_ids"]}

    compiled = dataclasses.replace(ONE_DEVICE, jit_compile=True, fixed_shapes=True)
    results = []
    for devices in (compiled, ONE_DEVICE):
        inference = training.Inference(model, fetch, FEATURES, devices, 4)
        if devices is compiled:
            assert_static(inference.step)
        # The last batch is partial.
        results.append(inference.predict_records(path, 11, "eval"))
        np.testing.assert_array_equal(results[-1]["label_ids"], np.arange(11) % 2)
    np.testing.assert_allclose(results[0]["probabilities"], results[1]["probabilities"], atol=1e-6)


def test_assert_static_detects_dynamic_shapes():
    model = BertClassifier(config(), 2)
    inference = training.Inference(model, lambda outputs, _: outputs, FEATURES, ONE_DEVICE, 4)
    with pytest.raises(AssertionError):
        assert_static(inference.step)


RECORD_MASKS = """
import itertools
import json
import tensorflow as tf
from tests.training.logical_devices import split_device
split_device(2)
from bert_tf import training
from bert_tf.modeling import BertClassifier, BertConfig
from bert_tf.optimization import create_optimizer
from bert_tf.options import TrainingOptions

devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
strategy = tf.distribute.MirroredStrategy([device.name for device in devices])
with strategy.scope():
    model = BertClassifier(BertConfig(9, 8, 1, 2, 8), 2)
    optimizer = create_optimizer(1e-3, 9, 0)
    optimizer.build(model.trainable_variables)
masks = []
def loss(outputs, batch, totals):
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    record = lambda r, x: masks.append((int(r), x.numpy().tolist()))
    tf.py_function(record, [replica, dropped[-1]], [])
    return tf.reduce_sum(outputs["logits"])
dropped = []
call = type(model.dropout).call
def spy(self, x, seed=None, training=None):
    y = call(self, x, seed, training=training)
    dropped.append(tf.cast(tf.equal(y, 0), tf.int32))
    return y
type(model.dropout).call = spy
step = training.make_train_step(
    training.TrainState(model, optimizer),
    training.Loss(lambda batch: {}, loss),
    TrainingOptions(random_seed=5),
    training.Devices(strategy, "mirrored", "", fixed_shapes=True),
)
ones = tf.ones([64, 8], tf.int32)
rows = {"input_ids": ones, "input_mask": ones, "segment_ids": ones * 0}
batches = strategy.distribute_datasets_from_function(
    lambda _: tf.data.Dataset.from_tensors(rows).repeat(4)
)
for batch in batches:
    step(batch, tf.constant(0))
print(json.dumps(masks))
"""


@pytest.mark.slow
def test_dropout_masks_differ_across_replicas_and_steps():
    command = [sys.executable, "-c", RECORD_MASKS]
    process = subprocess.run(command, **PROCESS, capture_output=True)
    assert process.returncode == 0, process.stderr
    masks = json.loads(process.stdout)
    assert sorted(replica for replica, _ in masks) == [0, 0, 1, 1]
    masks = [np.array(values) for _, values in masks]
    for one in range(4):
        for other in range(one):
            # Independent masks differ in a fraction 2 x 0.1 x 0.9 of their elements.
            assert np.mean(masks[one] != masks[other]) == pytest.approx(0.18, abs=0.08)
