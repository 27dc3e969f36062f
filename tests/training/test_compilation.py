"""When XLA compiles steps, and to which lengths it pads."""

import dataclasses
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import training
from bert_tf.data import records
from bert_tf.data.features import sequence_features
from bert_tf.modeling import BertClassifier, BertConfig
from bert_tf.modeling.losses import cross_entropy
from bert_tf.options import ClassifierOptions, DeviceOptions, TrainingOptions
from bert_tf.tasks import classification
from bert_tf.training import Lengths, precision
from tests.conftest import SIZES
from tests.training.helpers import NO_STOP, ONE_DEVICE, STRATEGY, make_state

CONFIG = BertConfig(99, **{**SIZES, "max_position_embeddings": 32})


class SimpleDevices(training.Devices):
    replicas = 2


UNDECIDED = dataclasses.replace(ONE_DEVICE, jit_compile=None, precision="bfloat16")


def normal_lengths(mean, deviation, longest, max_length=128, num_rows=10_000):
    """Returns normally distributed lengths, one of them `longest`."""
    rng = np.random.default_rng(1)
    values = np.clip(rng.normal(mean, deviation, num_rows), 3, longest).astype(int)
    values[0] = longest
    return Lengths(max_length, np.bincount(values).tolist())


SST2 = normal_lengths(13, 9, 66)
MRPC = normal_lengths(53, 15, 104)
OUTLIER = normal_lengths(20, 8, 512, max_length=512)


def test_longest_is_rounded_up():
    assert MRPC.longest == 104
    assert SST2.longest == 72
    assert Lengths(70, [0] * 66 + [1]).longest == 70
    assert Lengths(128).longest == Lengths(128, [0, 0]).longest == 128


@pytest.mark.parametrize("lengths", [SST2, MRPC, OUTLIER])
@pytest.mark.parametrize("num_rows", [1, 32])
def test_mean_longest_equals_the_mean_of_random_batches(lengths, num_rows):
    rng = np.random.default_rng(2)
    shares = np.array(lengths.counts) / np.sum(lengths.counts)
    batches = rng.choice(len(shares), (20_000, num_rows), p=shares)
    expected = batches.max(axis=1).mean()
    assert lengths.mean_longest(num_rows) == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize(
    ("lengths", "num_steps", "flags", "length"),
    [
        (MRPC, 2500, {}, 104),
        (MRPC, 2499, {}, None),
        (SST2, 6300, {}, 72),
        (SST2, 6300, {"train_batch_size": 256}, 72),
        # Without XLA, batches would have 50 tokens per row rather than 512.
        (OUTLIER, 100_000, {}, None),
        (OUTLIER, 100_000, {"train_batch_size": 512}, None),
        # Small batches take the same time with and without padding.
        (OUTLIER, 100_000, {"train_batch_size": 16}, 512),
        (OUTLIER, 100_000, {"gradient_accumulation_steps": 2}, 512),
        # Two micro-batches are padded to the longest text of both.
        (OUTLIER, 100_000, {"train_batch_size": 64, "gradient_accumulation_steps": 2}, None),
        (SST2, 6300, {"train_batch_size": 256, "length_grouping": True}, None),
        (Lengths(384), 2500, {}, 384),
    ],
)
def test_training_compiles_if_it_pays_off(lengths, num_steps, flags, length, run_log):
    options = TrainingOptions(**flags)
    devices = training.for_training(UNDECIDED, options, num_steps, lengths)
    assert devices.jit_compile == devices.fixed_shapes == (length is not None)
    assert devices.length == length
    expected = "XLA compiles the training step first" if length else "Training without XLA: "
    assert expected in run_log.text


def test_float32_compiles_less_often():
    """Exact products take so long that padding costs more than XLA saves."""
    devices = dataclasses.replace(UNDECIDED, precision="float32")
    for lengths, num_steps, batch_size, expected in [
        (MRPC, 2500, 32, False),
        (MRPC, 4000, 32, True),  # 104 tokens instead of 86 on average
        (Lengths(384), 4000, 32, True),
        (OUTLIER, 100_000, 16, False),
        (SST2, 100_000, 16, True),
    ]:
        options = TrainingOptions(train_batch_size=batch_size)
        decided = training.for_training(devices, options, num_steps, lengths)
        assert decided.jit_compile is expected, (lengths.longest, num_steps, batch_size)


def test_fixed_shapes_pad_to_max_seq_length():
    devices = dataclasses.replace(UNDECIDED, fixed_shapes=True)
    long = training.for_training(devices, TrainingOptions(), 2500, OUTLIER)
    assert (long.jit_compile, long.length) == (True, 512)
    short = training.for_training(devices, TrainingOptions(), 100, OUTLIER)
    assert (short.jit_compile, short.fixed_shapes) == (False, True)


def test_flag_overrides_the_rule():
    for choice in (True, False):
        devices = dataclasses.replace(ONE_DEVICE, jit_compile=choice)
        for num_steps in (1, 10_000):
            decided = training.for_training(devices, TrainingOptions(), num_steps, MRPC)
            assert decided.jit_compile is choice
            assert decided.length == (104 if choice else None)


@pytest.mark.parametrize(
    ("lengths", "num_rows", "expected"),
    [
        (MRPC, 1_000, ()),
        (MRPC, 200_000, [104]),
        (OUTLIER, 1_000_000, ()),
        (OUTLIER, 2_000_000, [128, 256, 512]),
        (Lengths(128), 900_000, ()),
        (Lengths(128), 1_000_000, [32, 64, 128]),
        (Lengths(50), 10_000_000, [16, 32, 50]),
        (SST2, 10_000_000, [24, 40, 72]),
    ],
)
def test_inference_compiles_many_rows(lengths, num_rows, expected):
    devices = training.for_inference(UNDECIDED, num_rows, lengths)
    assert devices.jit_compile == bool(expected)
    if expected:
        assert devices.padded_lengths(lengths.max_length) == expected


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({}, (False, None)),
        ({"fixed_shapes": True}, (False, None)),
        ({"jit_compile": "true"}, (True, True)),
        ({"jit_compile": "false", "fixed_shapes": True}, (False, False)),
        ({"distribution_strategy": "mirrored"}, (False, False)),
        ({"distribution_strategy": "mirrored", "fixed_shapes": True}, (False, True)),
    ],
)
def test_auto_depends_on_the_work_only_on_one_gpu(flags, expected, monkeypatch):
    decisions = []
    for has_gpus in (False, True):
        monkeypatch.setattr(training.Devices, "has_gpus", has_gpus)
        decisions.append(training.open_devices(DeviceOptions(**flags)).jit_compile)
    assert tuple(decisions) == expected


def test_several_devices_pad_to_one_length():
    """Only the chief knows the lengths, and all workers must make the same decision."""
    devices = SimpleDevices(STRATEGY, "mirrored", "", jit_compile=True)
    for lengths in (SST2, Lengths(128)):
        decided = training.for_inference(devices, 100, lengths)
        assert decided.padded_lengths(128) == [128]


def test_advice_on_precision_in_long_float32_trainings_on_gpus(monkeypatch, run_log):
    options = TrainingOptions()
    monkeypatch.setattr(training.Devices, "has_tf32", False)
    training.for_training(ONE_DEVICE, options, 1000, MRPC)
    monkeypatch.setattr(training.Devices, "has_tf32", True)
    training.for_training(ONE_DEVICE, options, 999, MRPC)
    training.for_training(dataclasses.replace(ONE_DEVICE, precision="tf32"), options, 1000, MRPC)
    assert "--precision=tf32" not in run_log.text
    training.for_training(ONE_DEVICE, options, 1000, MRPC)
    assert "--precision=tf32 is faster" in run_log.text


@pytest.mark.parametrize("name", ["float32", "tf32", "bfloat16"])
def test_only_float32_turns_tf32_off(name, monkeypatch):
    calls = []
    monkeypatch.setattr(tf.config.experimental, "enable_tensor_float_32_execution", calls.append)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: [])
    precision.set_precision(name)
    assert calls == []
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: [kind])
    precision.set_precision(name)
    assert calls == [name != "float32"]
    precision.set_precision("float32")


def _write_records(path, lengths, max_length):
    rng = np.random.default_rng(3)
    mask = (np.arange(max_length) < np.array(lengths)[:, None]).astype(np.int32)
    rows = {"input_mask": mask, "segment_ids": 0 * mask}
    rows["input_ids"] = rng.integers(1, 90, mask.shape) * mask
    records.write_records(str(path), sequence_features(max_length), [rows])


def test_a_training_has_one_shape(tmp_path):
    """XLA compiles a function once for each shape."""
    max_length, longest = 32, 19
    _write_records(tmp_path / "x.tf_record", [3, 5, 19, 4, 7, 9, 3], max_length)
    options = TrainingOptions(train_batch_size=2)
    compiled = dataclasses.replace(ONE_DEVICE, jit_compile=True)
    counts = np.bincount([longest]).tolist()
    devices = training.for_training(compiled, options, 8, Lengths(max_length, counts))
    batches = training.training_batches(
        str(tmp_path / "x.tf_record"),
        sequence_features(max_length),
        options,
        devices,
        num_records=7,
        skip_batches=0,
    )
    assert {tuple(spec.shape) for spec in batches.element_spec.values()} == {(2, 24)}
    model = BertClassifier(CONFIG, 2)
    state = make_state(model, 1e-3, 8, 1)
    loss = training.mean_loss(
        lambda o, batch: cross_entropy(o["logits"], batch["segment_ids"][:, 0])
    )
    step = training.make_train_step(state, loss, options, devices, batches.element_spec)
    for batch, _ in zip(batches, range(8), strict=False):
        assert np.isfinite(step(batch, NO_STOP)["gradient_norm"])


@pytest.mark.slow
def test_xla_draws_the_same_masks_again():
    """With XLA, too, recomputed layers draw the same masks, which depend on the seed."""
    batch = {name: tf.ones([4, 8], tf.int32) for name in ("input_ids", "input_mask")}
    batch["label_ids"] = tf.constant([0, 1, 1, 0])
    devices = dataclasses.replace(ONE_DEVICE, jit_compile=True, fixed_shapes=True)
    loss = training.mean_loss(lambda o, batch: cross_entropy(o["logits"], batch["label_ids"]))

    def norm(seed, recompute_layers=False):
        keras.utils.set_random_seed(1)
        model = BertClassifier(CONFIG, 2, recompute_layers=recompute_layers)
        state = make_state(model, 1e-3, 8, 1)
        options = TrainingOptions(random_seed=seed)
        step = training.make_train_step(state, loss, options, devices)
        return float(step(batch, NO_STOP)["gradient_norm"])

    assert norm(1, recompute_layers=True) == pytest.approx(norm(1), rel=1e-5)
    assert norm(2**32 - 1) != pytest.approx(norm(1), rel=1e-3)


@pytest.mark.parametrize("compile_now", [False, True])
def test_predictors_compile_all_lengths_at_construction(compile_now, monkeypatch):
    sizes, compute = [], training.Inference._compute

    def record(self, batch):
        sizes.append(batch["input_ids"].shape)
        return compute(self, batch)

    monkeypatch.setattr(training.Inference, "_compute", record)
    model, features = BertClassifier(CONFIG, 2), sequence_features(32)
    devices = dataclasses.replace(ONE_DEVICE, jit_compile=True)

    def fetch(outputs, batch):
        return {"probabilities": outputs["probabilities"]}

    inference = training.Inference(model, fetch, features, devices, 4, compile_now=compile_now)
    assert sizes == [(4, 8), (4, 16), (4, 32)] * compile_now
    sizes.clear()
    rows = {feature.name: np.ones((6, 32), np.int32) for feature in features}
    rows["input_ids"] *= np.arange(1, 7)[:, None]
    rows["input_mask"][1:, 3:] = 0
    actual = inference.predict(rows)["probabilities"]
    # Two threads may compute batches at the same time, so their order is not fixed.
    assert sorted(sizes) == [(4, 8), (4, 32)]
    np.testing.assert_allclose(actual, model(rows)["probabilities"], atol=1e-6)


def test_records_of_older_versions_have_no_lengths(tiny, tmp_path, run_log):
    """Lengths are stored with the records, and found again by the next run."""
    options = ClassifierOptions(
        **tiny.flags,
        task_name="cola",
        data_dir=str(tiny.folder / "cola"),
        init_checkpoint=tiny.checkpoint,
        output_dir=str(tmp_path),
        do_eval=True,
        jit_compile="true",
    )
    classification.run(options)
    stored = json.loads((tmp_path / "records.json").read_text())
    about = stored["eval.tf_record"]["about"]
    counts = [about.pop(f"length_{length}", 0) for length in range(25)]
    assert sum(counts) == about["records"] == 11
    padded = Lengths(24, counts).longest
    assert f" {padded} tokens" in run_log.text
    (tmp_path / "records.json").write_text(json.dumps(stored))
    run_log.clear()
    classification.run(options)
    assert "Reusing" in run_log.text
    assert "padding to 8 or 16 or 24 tokens" in run_log.text
