"""Label maps in labels.txt: written by a training run, edited by hand, or missing."""

import dataclasses
import json
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from bert_tf.base.errors import UserError
from bert_tf.checkpoints.formats import OriginalSource
from bert_tf.checkpoints.formats.conversion import convert
from bert_tf.checkpoints.formats.detection import find_source
from bert_tf.checkpoints.model import follow_labels
from bert_tf.checkpoints.run_folder import RunFolder, labels_file, read_labels
from bert_tf.finetuning.run_checks import require_same_labels
from bert_tf.options import ClassifierOptions, ConversionOptions
from bert_tf.tasks.classification.dataset_factory import _require_order, make_dataset
from bert_tf.tasks.token_classification.schemes import is_label
from tests.oracle import ROOT


def test_read_label_map(tmp_path):
    path = tmp_path / "labels.txt"
    path.write_text("O\nB-A\nI-A\n")
    assert read_labels(str(path), is_label) == ["O", "B-A", "I-A"]
    for text, message in (
        ("", "labels.txt:1: invalid label ''"),
        ("O\n\nB-A\n", "labels.txt:2: invalid label ''"),
        ("O\nB-A\nO\n", "labels.txt:3: duplicate label 'O'"),
        ("O\n{}\n", "labels.txt:2: invalid label '{}'"),
    ):
        path.write_text(text)
        with pytest.raises(UserError, match=message):
            read_labels(str(path), is_label)
    path.write_text("two words\n{}\n")
    assert read_labels(str(path)) == ["two words", "{}"]
    assert labels_file(["two words", "{}"]) == {"labels.txt": path.read_text()}


@pytest.fixture
def hugging_face(tmp_path):
    """Returns a function that writes a folder whose configuration has labels."""
    folder = tmp_path / "hugging_face"
    source = find_source(str(ROOT / "examples/small_bert"))
    convert(source, ConversionOptions(output=str(folder), to="hugging_face"))
    config = json.loads((folder / "config.json").read_text())

    def write(*labels):
        labels = {"id2label": dict(enumerate(labels))}
        (folder / "config.json").write_text(json.dumps(config | labels))
        return str(folder)

    return write


def test_label_map_from_transformers_config(tmp_path, hugging_face):
    flags = {"task_name": "tsv", "output_dir": str(tmp_path / "output")}
    options = ClassifierOptions(**flags, init_checkpoint=hugging_face("yes", "no"))
    assert RunFolder.used_by(options).require_labels() == ["yes", "no"]
    # transformers' default names do not count as labels.
    hugging_face("LABEL_0", "LABEL_1")
    with pytest.raises(UserError, match="or --labels in the order of the model's outputs"):
        make_dataset(options, RunFolder.used_by(options))


def test_labels_in_another_order_than_in_a_configuration(tmp_path, hugging_face):
    flags = {"init_checkpoint": hugging_face("Positive", "Negative"), "do_predict": True}
    options = ClassifierOptions(task_name="tsv", **flags)
    message = "has the labels negative, positive, but .* with Positive, Negative .in its config"
    with pytest.raises(UserError, match=message):
        require_same_labels(["negative", "positive"], "--labels", options)
    for same in (["positive", "negative"], ["good", "bad"]):
        require_same_labels(same, "--labels", options)
    # Training changes the order in the head instead.
    training = dataclasses.replace(options, do_train=True, output_dir=str(tmp_path / "new"))
    require_same_labels(["negative", "positive"], "--labels", training)


def test_head_follows_the_order_of_the_labels(tmp_path, run_log):
    (tmp_path / "labels.txt").write_text("positive\nnegative\n")
    values = {"output_weights": np.eye(2, 4, dtype="float32"), "output_bias": np.arange(2.0)}
    model = SimpleNamespace(
        variables=[keras.Variable(value, name=name) for name, value in values.items()], name="model"
    )
    source = OriginalSource(str(tmp_path / "model.ckpt"))
    follow_labels(model, source, ["positive", "negative"])
    assert run_log.text == ""
    follow_labels(model, source, ["negative", "positive"])
    for variable, value in zip(model.variables, values.values(), strict=True):
        np.testing.assert_array_equal(variable, value[::-1])
    assert "its head is loaded in a new order" in run_log.text


def test_label_order_must_match_the_published_task(tmp_path, run_log):
    options = ClassifierOptions(task_name="MNLI", do_eval=True, output_dir=str(tmp_path))
    model_labels = ["contradiction", "entailment", "neutral"]
    _require_order(model_labels, RunFolder.used_by(options))
    # The file may belong to something else, and is then no reason to fail.
    for file_labels in (model_labels, ["a", "b", "c"], ["a", "b"], ["a", "a"], []):
        (tmp_path / "labels.txt").write_text("\n".join(file_labels) + "\n")
        run_log.clear()
        _require_order(model_labels, RunFolder.used_by(options))
        warning = "the model names its outputs a, b, c: are they contradiction"
        assert (warning in run_log.text) == (file_labels == ["a", "b", "c"])
    (tmp_path / "labels.txt").write_text("ENTAILMENT\nNEUTRAL\nCONTRADICTION\n")
    with pytest.raises(UserError, match="--task_name=tsv, which takes the order from the model"):
        _require_order(model_labels, RunFolder.used_by(options))


def test_label_map_next_to_a_converted_checkpoint(tmp_path):
    """Uses a folder as written by `convert_checkpoint.py`, which copies the label map."""
    options = ClassifierOptions(task_name="tsv", do_predict=True, output_dir=str(tmp_path))
    assert RunFolder.used_by(options).path == str(tmp_path)
    (tmp_path / "labels.txt").write_text("no\nyes\n")
    assert RunFolder.used_by(options).require_labels() == ["no", "yes"]
