"""Original checkpoints: reading, validation, writing, and compatibility with TensorFlow 1."""

import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoint, checkpoints
from bert_tf.base.errors import UserError
from bert_tf.checkpoints.formats import OriginalSource
from bert_tf.config import BertConfig
from bert_tf.modeling import (
    BertClassifier,
    BertModel,
    BertPretrainer,
    BertSpanLabeler,
    checkpoint_name,
)
from bert_tf.optimization import create_optimizer
from bert_tf.training import TrainState
from tests.checkpoints.formats.conftest import values_of
from tests.modeling.helpers import config, load
from tests.oracle import ROOT, data, golden


def _main_prefix() -> str:
    return str(golden("checkpoints/main") / "bert_model.ckpt")


def _make_optimizer(model, step=0):
    optimizer = create_optimizer(1e-3, 10, 2)
    optimizer.build(model.trainable_variables)
    optimizer.iterations.assign(step)
    for index, (_, slots) in enumerate(optimizer.slots()):
        for slot, value in slots.items():
            value.assign(np.full(value.shape, index + len(slot), "float32"))
    return optimizer


def _save(folder, model, optimizer):
    return checkpoints.save_snapshot(str(folder), checkpoints.snapshot(model, optimizer))


@pytest.mark.parametrize("name", ["main", "alt_relu", "alt_linear", "alt_tiny"])
def test_restored_values_match_the_original(name):
    weights = np.load(golden(f"checkpoints/{name}/weights.npz"))
    variables = checkpoints.named_variables(load(BertPretrainer(config(name)), name))
    for key in variables:
        np.testing.assert_array_equal(np.asarray(variables[key]), weights[key], err_msg=key)
    assert len(variables) > 10


def test_restored_names_match_the_original():
    assignment_maps = json.loads(golden("checkpoints/assignment_maps.json").read_text())
    models = {
        "classifier": lambda: BertClassifier(config(), 2),
        "squad": lambda: BertSpanLabeler(config()),
        "pretraining": lambda: BertPretrainer(config()),
    }
    for key, expected in assignment_maps.items():
        kind, path = key.split(" <- ")
        model = models[kind]()
        directory, name = os.path.split(path)
        restored = checkpoint.restore(model, str(golden(directory) / name))
        assert list(restored.restored) == [source for source, _ in expected["assignment_map"]]
        trainable = {name.removesuffix(":0") for name in expected["trainable"]}
        assert set(restored.restored) | set(restored.new) == trainable
    assert len(assignment_maps) == 6


@pytest.mark.shared
def test_public_checkpoints_are_read():
    for folder in ("encoder", "original_tiny_checkpoint"):
        path = data(folder)
        model = BertModel(BertConfig.from_json_file(path / "bert_config.json"))
        restored = checkpoint.restore(model, checkpoint.resolve(str(path)))
        assert restored.new == ()
        assert not any("adam" in name for name in restored.unused)


def test_tf1_saver_reads_written_checkpoints(tmp_path):
    model = load(BertClassifier(config(), 2))
    optimizer = _make_optimizer(model, step=7)
    prefix = _save(tmp_path, model, optimizer)
    expected = values_of(prefix)
    assert expected["global_step"] == 7
    assert expected["global_step"].dtype == np.int64
    with tf.Graph().as_default():
        variables = {
            name: tf.compat.v1.get_variable(name, dtype=value.dtype, shape=value.shape)
            for name, value in expected.items()
        }
        with tf.compat.v1.Session() as session:
            tf.compat.v1.train.Saver().restore(session, prefix)
            values = session.run(variables)
    for name, variable in checkpoints.named_variables(model).items():
        np.testing.assert_array_equal(values[name], np.asarray(variable))
    for variable, slots in optimizer.slots():
        for slot, value in slots.items():
            name = f"{checkpoint_name(variable)}/{slot}"
            np.testing.assert_array_equal(values[name], np.asarray(value))
    assert len(values) == 3 * len(optimizer.slots()) + 1


def test_saved_names_and_shapes_match_the_original(tmp_path):
    expected = json.loads(golden("checkpoint_variables.json").read_text())
    expected_shapes = {name: shape for name, shape, _ in expected["classifier_train/model.ckpt-0"]}
    model = BertClassifier(config(), 2)
    prefix = _save(tmp_path, model, _make_optimizer(model))
    assert checkpoint.shapes(prefix) == expected_shapes


def test_state_file_matches_the_original(tmp_path):
    expected = golden("e2e/classifier_train/checkpoint").read_text()
    model = BertModel(config("alt_tiny"))
    for step in (0, 4, 8, 10):
        _save(tmp_path, model, _make_optimizer(model, step))
    assert (tmp_path / "checkpoint").read_text() == expected


def test_latest_in_a_moved_directory(tmp_path):
    for step in (1, 2):
        checkpoint.write(str(tmp_path / f"model.ckpt-{step}"), {"x": np.float32([step])})
    (tmp_path / "checkpoint").write_text(
        'model_checkpoint_path: "/elsewhere/model.ckpt-3"\n'
        'all_model_checkpoint_paths: "/elsewhere/model.ckpt-1"\n'
        'all_model_checkpoint_paths: "/elsewhere/model.ckpt-2"\n'
        'all_model_checkpoint_paths: "/elsewhere/model.ckpt-3"\n'
    )
    assert checkpoint.latest(str(tmp_path)) == str(tmp_path / "model.ckpt-2")
    assert checkpoint.latest(str(tmp_path / "nowhere")) is None


def test_resolve_path_forms(tmp_path):
    prefix = str(tmp_path / "bert_model.ckpt")
    checkpoint.write(prefix, {"x": np.float32([1])})
    for path in (prefix, f"{prefix}.index", f"{prefix}.data-00000-of-00001", f"{prefix}.meta"):
        assert checkpoint.resolve(path) == prefix
    assert checkpoint.resolve(str(tmp_path)) == prefix
    checkpoint.write(str(tmp_path / "other.ckpt"), {"x": np.float32([1])})
    with pytest.raises(UserError, match=r"2 checkpoints.*bert_model\.ckpt, other\.ckpt"):
        checkpoint.resolve(str(tmp_path))


def test_resolve_error_lists_existing_files(tmp_path):
    (tmp_path / "readme.txt").write_text("")
    for path, problem in (
        ("bert_model.ckpt", r"file bert_model\.ckpt\.index does not exist .*readme\.txt"),
        ("", r"contains no checkpoint .*readme\.txt"),
    ):
        with pytest.raises(UserError, match=problem):
            checkpoint.restore(BertModel(config()), tmp_path / path)
    (tmp_path / "bert_model.ckpt.data-00000-of-00001").write_text("")
    with pytest.raises(UserError, match="contains no checkpoint"):
        checkpoint.resolve(str(tmp_path))
    checkpoint.write(str(tmp_path / "model.ckpt-3"), {"x": np.float32([1])})
    with pytest.raises(UserError, match=r": model\.ckpt-3"):
        checkpoint.resolve(str(tmp_path / "bert_model.ckpt"))


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("bert-base-uncased", "https://.*/2018_10_18/uncased_L-12_H-768_A-12.zip"),
        ("BAAI/bge-base", ""),
    ],
)
def test_hub_name_is_rejected(name, address, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    advice = "Models are not downloaded: pass the folder of an unpacked model"
    rejects = rf"{advice}\. To download it: {address}$" if address else f"{advice}$"
    with pytest.raises(UserError, match=rejects):
        checkpoint.resolve(name)
    (tmp_path / "output").mkdir()
    for path in ("bert_model.ckpt-1000", "output/bert-1", "model"):
        with pytest.raises(UserError) as error:
            checkpoint.resolve(path)
        assert "downloaded" not in str(error.value)


def test_shape_mismatches_and_missing_layers_are_listed():
    wide = BertClassifier(config(intermediate_size=256), 2)
    before = [variable.numpy() for variable in wide.trainable_variables]
    with pytest.raises(
        UserError,
        match=r"layer_0/intermediate/dense/kernel \(checkpoint \[64, 128\], model \[64, 256.*"
        r"\. Pass the --bert_config_file",
    ):
        checkpoint.restore(wide, _main_prefix())
    for variable, value in zip(wide.trainable_variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)
    deep = BertClassifier(config(num_hidden_layers=5), 2)
    with pytest.raises(UserError, match=r"only in the model: bert/encoder/layer_3.* and 28 more"):
        checkpoint.restore(deep, _main_prefix())


def test_head_with_different_labels_is_rejected(tmp_path):
    prefix = str(tmp_path / "model.ckpt-1")
    variables = checkpoints.named_variables(BertClassifier(config(), 3))
    checkpoint.write(prefix, {name: variable.numpy() for name, variable in variables.items()})
    with pytest.raises(UserError, match=r"output_weights .*Its head differs"):
        checkpoint.restore(BertClassifier(config(), 2), prefix)


def test_model_with_fewer_layers_is_restored():
    restored = checkpoint.restore(BertModel(config(num_hidden_layers=2)), _main_prefix())
    assert "bert/encoder/layer_2 (16)" in restored.describe()
    assert restored.new == ()


def test_truncated_files_are_rejected(tmp_path):
    source = golden("checkpoints/main")
    for suffix in ("index", "data-00000-of-00001"):
        folder = tmp_path / suffix
        folder.mkdir()
        for path in source.glob("bert_model.ckpt.*"):
            shutil.copyfile(path, folder / path.name)
        damaged = folder / f"bert_model.ckpt.{suffix}"
        damaged.write_bytes(damaged.read_bytes()[: damaged.stat().st_size // 2])
        with pytest.raises(UserError, match=r"missing, damaged .*TensorFlow says: \w") as error:
            checkpoint.restore(BertClassifier(config(), 2), str(folder / "bert_model.ckpt"))
        assert not re.search(r"\{\{|Op:|name:", str(error.value))  # names of operations


def test_folders_with_brackets(tmp_path, monkeypatch):
    folder = tmp_path / "run[1]"
    folder.mkdir()
    checkpoint.write(str(folder / "x.ckpt"), {"x": np.arange(3, dtype="float32")})
    monkeypatch.chdir(tmp_path)
    for prefix in (str(folder / "x.ckpt"), "run[1]/x.ckpt"):
        assert checkpoint.shapes(prefix) == {"x": [3]}
        ((_, value),) = checkpoint.read(prefix, ["x"])
        assert value.tolist() == [0, 1, 2]
    assert OriginalSource("run[1]/x.ckpt").variables() == {"x": ([3], "float32")}
    # The path is relative to the working directory of the call.
    other = tmp_path / "other" / "run[1]"
    other.mkdir(parents=True)
    checkpoint.write(str(other / "x.ckpt"), {"y": np.zeros(1, "float32")})
    monkeypatch.chdir(tmp_path / "other")
    assert checkpoint.shapes("run[1]/x.ckpt") == {"y": [1]}
    with pytest.raises(UserError, match=r"Cannot read the checkpoint run\[1\]/absent"):
        checkpoint.shapes("run[1]/absent")


def test_checkpoints_without_data_are_reported(tmp_path, run_log):
    for step in (1, 2, 3):
        prefix = str(tmp_path / f"model.ckpt-{step}")
        checkpoint.write(prefix, {"x": np.zeros(1, "float32")})
        checkpoints.add_newest(str(tmp_path), f"model.ckpt-{step}")
    (tmp_path / "model.ckpt-3.data-00000-of-00001").unlink()
    assert checkpoints.newest_readable(str(tmp_path)) == str(tmp_path / "model.ckpt-2")
    assert f"{tmp_path}/model.ckpt-3: damaged, skipping it" in run_log.text
    run_log.clear()
    # Whoever removes all its files wants an earlier one.
    (tmp_path / "model.ckpt-3.index").unlink()
    assert checkpoints.newest_readable(str(tmp_path)) == str(tmp_path / "model.ckpt-2")
    assert run_log.text == ""


def test_step_of_does_not_initialize_devices(tmp_path):
    checkpoint.write(str(tmp_path / "x.ckpt"), {"global_step": np.int64(7)})
    code = (
        "import tensorflow as tf\n"
        "from bert_tf import checkpoint, checkpoints\n"
        f"assert checkpoint.step_of({str(tmp_path / 'x.ckpt')!r}) == 7\n"
        "tf.config.threading.set_intra_op_parallelism_threads(1)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_object_based_checkpoint_is_rejected(tmp_path):
    prefix = tf.train.Checkpoint(x=tf.Variable(1.0)).save(str(tmp_path / "ckpt"))
    with pytest.raises(UserError, match="object-based TensorFlow 2 checkpoint"):
        checkpoint.shapes(prefix)
    with pytest.raises(UserError, match="It contains: Variable"):
        checkpoint.restore(BertModel(config("alt_tiny")), prefix)


def test_missing_slots_are_detected(tmp_path, run_log):
    model = BertPretrainer(config())
    state = TrainState(model, _make_optimizer(model))
    tensors = checkpoints.snapshot(model, state.optimizer)
    checkpoints.restore_training_state(state, _main_prefix())
    assert re.search(r"bert_model\.ckpt lacks (\d+) of \1 Adam slots", run_log.text)
    del tensors["bert/pooler/dense/bias/adam_m"]
    prefix = checkpoints.save_snapshot(str(tmp_path), tensors)
    checkpoints.restore_training_state(state, prefix)
    assert re.search(r"lacks 1 of \d\d+ Adam slots", run_log.text)


def test_unwritable_path_raises_user_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="Cannot write the checkpoint"):
        checkpoint.write(str(tmp_path / "file" / "model.ckpt-0"), {"x": np.float32([1])})


def test_summary_groups_layers():
    names = [f"bert/encoder/layer_{i}/output/dense/{kind}" for i in range(12) for kind in "ab"]
    assert checkpoints.summarize([*names, "output_bias"]) == (
        "bert/encoder/layer_0..11 (24), output_bias"
    )
    assert checkpoints.summarize([]) == "none"


@pytest.mark.parametrize("state", [None, b"\xff\xfe", b'model_checkpoint_path: "x"'])
def test_missing_or_corrupt_state_file(tmp_path, state):
    for step in (5, 10, 100):
        checkpoint.write(str(tmp_path / f"model.ckpt-{step}"), {"x": np.float32([step])})
    if state is not None:
        (tmp_path / "checkpoint").write_bytes(state)
    assert checkpoint.names_in(str(tmp_path)) == [f"model.ckpt-{step}" for step in (5, 10, 100)]
    os.remove(tmp_path / "model.ckpt-100.data-00000-of-00001")
    assert checkpoint.latest(str(tmp_path)) == str(tmp_path / "model.ckpt-10")


def test_frozen_layers_are_restored_and_saved(tmp_path):
    model = BertClassifier(config(), 2)
    model.bert.trainable = False
    assert len(checkpoint.restore(model, _main_prefix()).restored) == 55
    optimizer = create_optimizer(1e-3, 10, 2)
    optimizer.build(model.trainable_variables)
    stored = checkpoint.shapes(_save(tmp_path, model, optimizer))
    assert len([name for name in stored if "adam" not in name]) == 57 + 1
    assert {name for name in stored if "adam_m" in name} == {
        "output_bias/adam_m",
        "output_weights/adam_m",
    }


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.full([64], np.nan, "float32"), "contains NaN or infinity"),
        (np.ones([64], "int32"), "has type int32"),
    ],
)
def test_invalid_values_are_rejected(tmp_path, value, message):
    values = values_of(_main_prefix())
    values["bert/pooler/dense/bias"] = value
    # `checkpoint.write` refuses NaN.
    prefix, tensors = str(tmp_path / "bad.ckpt"), [*values.values()]
    tf.raw_ops.SaveV2(
        prefix=prefix, tensor_names=[*values], shape_and_slices=[""] * len(values), tensors=tensors
    )
    with pytest.raises(UserError, match=message):
        checkpoint.restore(BertModel(config()), prefix)


@pytest.mark.parametrize("dtype", ["float16", "float64", tf.bfloat16.as_numpy_dtype])
def test_other_float_dtypes_are_converted(tmp_path, dtype):
    values, prefix = values_of(_main_prefix()), str(tmp_path / "x.ckpt")
    checkpoint.write(prefix, {name: value.astype(dtype) for name, value in values.items()})
    model = BertModel(config())
    checkpoint.restore(model, prefix)
    kernel = np.asarray(model.pooler.dense.kernel)
    np.testing.assert_allclose(kernel, values["bert/pooler/dense/kernel"], atol=5e-3)


def test_invalid_global_step_is_rejected(tmp_path):
    checkpoint.write(str(tmp_path / "x.ckpt"), {"global_step": b"x"})
    with pytest.raises(UserError, match="damaged or not a checkpoint"):
        checkpoint.step_of(str(tmp_path / "x.ckpt"))


def test_slot_with_a_different_shape_is_rejected(tmp_path):
    model = BertModel(config("alt_tiny"))
    optimizer = _make_optimizer(model)
    prefix = _save(tmp_path, model, optimizer)
    values = values_of(prefix)
    values["bert/pooler/dense/bias/adam_m"] = np.zeros([3], "float32")
    checkpoint.write(prefix, values)
    with pytest.raises(UserError, match=r"bias/adam_m \(checkpoint \[3\], model \[16\]\)"):
        checkpoints.restore_training_state(TrainState(model, optimizer), prefix)


@pytest.mark.parametrize(
    ("max_to_keep", "steps"), [(1, [6]), (5, [2, 3, 4, 5, 6]), (0, [*range(7)])]
)
def test_number_of_checkpoints_kept(tmp_path, max_to_keep, steps):
    for step in range(7):
        tensors = {"w": np.float32(step), "global_step": np.int64(step)}
        prefix = checkpoints.save_snapshot(str(tmp_path), tensors, max_to_keep)
        assert prefix == checkpoint.latest(str(tmp_path)) == f"{tmp_path}/model.ckpt-{step}"
    kept = [f"model.ckpt-{step}" for step in steps]
    assert checkpoints.names_in(str(tmp_path)) == kept
    suffixes = (".index", ".data-00000-of-00001")
    files = {"checkpoint", *(name + suffix for name in kept for suffix in suffixes)}
    assert {path.name for path in tmp_path.iterdir()} == files
    assert (tmp_path / "checkpoint").read_text().splitlines() == [
        'model_checkpoint_path: "model.ckpt-6"',
        *(f'all_model_checkpoint_paths: "{name}"' for name in kept),
    ]
    assert tf.train.latest_checkpoint(str(tmp_path)) == f"{tmp_path}/model.ckpt-6"
