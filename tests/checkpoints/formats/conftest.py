"""Fixtures: an original checkpoint of a tiny model for each head, with config and vocabulary."""

import shutil

import keras
import numpy as np
import pytest

from bert_tf import checkpoint, checkpoints
from bert_tf.checkpoints.formats import convert, find_source, heads
from bert_tf.checkpoints.formats.keras_files import build
from bert_tf.options import ConversionOptions

NAMES = ("pretraining", "classification", "span", "token", "encoder")
LABELS = ["O", "B-PER", "I-PER"]


@pytest.fixture(scope="session")
def tiny(tiny_of_two_layers):
    return tiny_of_two_layers


def convert_path(source, output, **flags):
    """Converts the model at the path `source`."""
    convert(find_source(str(source)), ConversionOptions(output=str(output), **flags))


def values_of(prefix):
    return dict(checkpoint.read(prefix, checkpoint.shapes(prefix)))


def assert_same(actual, expected):
    """Asserts that two checkpoints are bitwise identical."""
    actual, expected = values_of(actual), values_of(expected)
    assert actual.keys() == expected.keys()
    for name, value in actual.items():
        assert value.dtype == expected[name].dtype, name
        assert value.tobytes() == expected[name].tobytes(), name


def write_model(folder, tiny, name, config=None, **extra):
    """Writes an original checkpoint with random weights, including biases."""
    folder.mkdir()
    config = config or tiny.config
    rng = np.random.default_rng(7)
    variables = checkpoints.named_variables(build(heads.registered()[name], config, 3))
    values = {
        key: rng.normal(0, 0.3, variable.shape).astype("float32")
        for key, variable in variables.items()
    }
    prefix = str(folder / "bert_model.ckpt")
    checkpoint.write(prefix, {**values, **extra})
    (folder / "bert_config.json").write_text(config.to_json_string())
    shutil.copyfile(tiny.folder / "vocab.txt", folder / "vocab.txt")
    return folder


@pytest.fixture(scope="session")
def models(tiny, tmp_path_factory):
    """Maps head names to model directories."""
    keras.utils.set_random_seed(3)
    root = tmp_path_factory.mktemp("models")
    folders = {name: write_model(root / name, tiny, name) for name in NAMES}
    (folders["token"] / "labels.txt").write_text("\n".join(LABELS) + "\n")
    return folders
