"""Creating models from checkpoints with `from_checkpoint`."""

import numpy as np
import pytest

from bert_tf import BertModel
from bert_tf.checkpoints.formats import Request, convert, find_source
from bert_tf.errors import UserError
from bert_tf.modeling import BertClassifier
from tests.oracle import ROOT

SMALL = ROOT / "examples/small_bert"
IDS = {"input_ids": np.array([[2, 7, 9, 3]], "int32")}


def test_all_checkpoint_path_forms_load_the_same_encoder(tmp_path):
    expected = BertModel.from_checkpoint(SMALL)(IDS)["pooled_output"]
    assert np.abs(expected).max() > 0.01
    convert(find_source(str(SMALL)), Request(output=str(tmp_path / "hub"), to="hugging_face"))
    for path in (f"{SMALL}/bert_model.ckpt", tmp_path / "hub"):
        actual = BertModel.from_checkpoint(path)(IDS)["pooled_output"]
        np.testing.assert_allclose(actual, expected, atol=1e-6)


def test_head_missing_from_checkpoint_is_initialized(caplog):
    caplog.set_level("INFO", "bert_tf")
    model = BertClassifier.from_checkpoint(SMALL, num_labels=3)
    assert model(IDS)["logits"].shape == (1, 3)
    encoder = BertModel.from_checkpoint(SMALL)
    for mine, other in zip(model.bert.weights, encoder.weights, strict=True):
        np.testing.assert_array_equal(mine, other)
    assert "Randomly initialized: output_bias, output_weights" in caplog.text


def test_errors_name_the_file(tmp_path):
    with pytest.raises(UserError, match=r"nowhere"):
        BertModel.from_checkpoint(tmp_path / "nowhere")
    for path in SMALL.glob("bert_model.ckpt*"):
        (tmp_path / path.name).symlink_to(path)
    with pytest.raises(UserError, match=r"No configuration next to .*bert_model\.ckpt"):
        BertModel.from_checkpoint(tmp_path)
