"""run_classifier_with_tfhub: fine-tunes Hub encoders, Model Garden exports and our exports.

`tests/checkpoints/formats/hub/v2.tar.xz` and `v4.tar.xz` were written by the exporters of
tf-models-official 2.20 (TensorFlow 2.20), `legacy/bert/export_tfhub.py` and
`nlp/tools/export_tfhub_lib.py` (with the masked-LM head): a one-layer BERT with random weights,
whose inputs are lists in the first and dicts in the second. `outputs.npz` contains their outputs.
"""

import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoint
from bert_tf.api.predictor import Predictor
from bert_tf.base.errors import UserError
from bert_tf.checkpoints.formats import find_source
from bert_tf.commands import export_model
from bert_tf.modeling import BertModel
from bert_tf.options import ExportOptions, HubClassifierOptions
from bert_tf.tasks.classification import hub
from tests.checkpoints.formats.conftest import values_of

HUB = Path(__file__).parents[2] / "checkpoints" / "formats" / "hub"


@pytest.fixture(scope="module")
def modules(tiny, tmp_path_factory):
    """Hub modules from three exporters."""
    folder = tmp_path_factory.mktemp("modules")
    for name in ("v2", "v4"):
        with tarfile.open(HUB / f"{name}.tar.xz") as archive:
            # Python 3.11.2, as in Debian 12, has no filters.
            filters = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            archive.extractall(folder / name, **filters)
    flags = {"model_dir": str(tiny.folder), "export_dir": str(folder / "ours")}
    path = export_model.run(ExportOptions(**flags, form="encoder", max_seq_length=24))
    return {"v2": folder / "v2", "v4": folder / "v4", "ours": Path(path)}


def options(tiny, tmp_path, module, **flags):
    files = {"task_name": "MRPC", "data_dir": str(tiny.folder / "mrpc")}
    files |= {"output_dir": str(tmp_path / "output"), "bert_hub_module_handle": str(module)}
    steps = {"max_seq_length": 24, "train_batch_size": 4, "num_train_epochs": 1.0}
    steps |= {"do_train": True, "do_eval": True}
    return HubClassifierOptions(**{**files, **steps, **flags})


@pytest.fixture(scope="module")
def trained(tiny, tmp_path_factory, modules):
    """The folder of a run with our encoder."""
    folder = tmp_path_factory.mktemp("trained")
    hub.run(options(tiny, folder, modules["ours"], do_eval=False))
    return folder


@pytest.mark.parametrize("name", ["v2", "v4"])
def test_outputs_match_the_model_garden(modules, name):
    source = find_source(str(modules[name]))
    assert source.do_lower_case is True
    config = source.config()
    assert (config.num_attention_heads, config.hidden_size) == (2, 16)
    model = BertModel(config)
    restored = checkpoint.restore(model, source)
    assert restored.new == ()
    assert len(restored.unused) == {"v2": 0, "v4": 5}[name]
    expected = np.load(HUB / "outputs.npz")
    outputs = model({key: expected[key] for key in expected.files if "output" not in key})
    mask = expected["input_mask"].astype(bool)
    actual = np.asarray(outputs["sequence_output"])[mask]
    np.testing.assert_allclose(actual, expected["sequence_output"][mask], atol=1e-5)
    np.testing.assert_allclose(outputs["pooled_output"], expected["pooled_output"], atol=1e-5)


@pytest.mark.parametrize("name", ["v2", "v4", "ours"])
def test_module_is_fine_tuned_and_served(tiny, tmp_path, modules, name):
    vocab = (tiny.folder / "vocab.txt").read_text().split()
    run = options(tiny, tmp_path, modules[name], do_predict=True, do_lower_case=False)
    results = hub.run(run)
    assert 0 <= results.metrics["eval_accuracy"] <= 1
    output = tmp_path / "output"
    assert (output / "vocab.txt").read_text().split() == vocab
    assert (output / "test_results.tsv").exists()
    # The output folder suffices for prediction and keeps the module's casing.
    original, lower = Predictor.from_output_dir(output)(["The GOOD film", "the good film"])
    assert original == lower


def test_training_starts_from_the_module_weights(tiny, tmp_path, modules):
    """With a near-zero learning rate, the encoder keeps the module's weights."""
    hub.run(options(tiny, tmp_path, modules["v4"], learning_rate=1e-30))
    trained = values_of(checkpoint.latest(str(tmp_path / "output")))
    source = find_source(str(modules["v4"]))
    names = [name for name in source.shapes() if name.startswith("bert/")]
    assert len(names) == 23
    for name, value in source.read(names):
        np.testing.assert_array_equal(trained[name], value)


def test_module_with_different_outputs_is_rejected(tiny, tmp_path, modules):
    """A different activation changes no variable name or shape, only outputs."""
    source = find_source(str(modules["v4"]))
    config = source.config()
    source.require_same_outputs(config)
    config.hidden_act = "relu"
    with pytest.raises(UserError, match=r"another architecture: its outputs differ"):
        source.require_same_outputs(config)


def test_tensorflow_1_module(tiny, tmp_path):
    """TF1 Hub format: prefixed variable names, and no object graph."""
    folder = tmp_path / "bert_uncased_L-12_H-768_A-12_1"
    graph = tf.Graph()
    with graph.as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.get_variable("bert/embeddings/word_embeddings", [3, 4])
        session.run(tf.compat.v1.global_variables_initializer())
        builder = tf.compat.v1.saved_model.Builder(str(folder))
        builder.add_meta_graph_and_variables(session, [])
        builder.save()
    with pytest.raises(UserError, match="for TensorFlow 1"):
        hub.run(options(tiny, tmp_path, folder))
    assert not (tmp_path / "output").exists()


def test_module_without_a_vocabulary(tiny, tmp_path, modules):
    shutil.copytree(modules["v2"], tmp_path / "bare")
    (tmp_path / "bare" / "assets" / "vocab.txt").unlink()
    without_vocab = options(tiny, tmp_path, tmp_path / "bare")
    with pytest.raises(UserError, match=r"has no vocabulary: pass .* --vocab_file"):
        hub.run(without_vocab)
    with_vocab = options(tiny, tmp_path, tmp_path / "bare", vocab_file=tiny.flags["vocab_file"])
    assert hub.with_module(with_vocab).vocab_file == tiny.flags["vocab_file"]


@pytest.mark.parametrize(
    ("handle", "message"),
    [
        ("https://tfhub.dev/google/bert_uncased_L-12_H-768_A-12/1", "bert_tf downloads nothing"),
        ("module.tar.gz", "is not a folder .* unpack it"),
        ("nowhere", "is not a folder"),
        ("", "Missing required flags: --bert_hub_module_handle"),
    ],
)
def test_invalid_handles(tiny, tmp_path, handle, message):
    with pytest.raises(UserError, match=message):
        hub.run(options(tiny, tmp_path, handle))


def test_encoder_of_another_casing_than_in_training(tiny, tmp_path, trained):
    flags = {"model_dir": str(tiny.folder), "export_dir": str(tmp_path / "cased")}
    flags |= {"form": "encoder", "max_seq_length": 24}
    cased = export_model.run(ExportOptions(**flags, do_lower_case="false"))
    message = "is cased, but the encoder of the run in --output_dir=.* is uncased"
    for do_lower_case in (True, False):
        other = options(tiny, trained, cased, do_train=False, do_lower_case=do_lower_case)
        with pytest.raises(UserError, match=message):
            hub.run(other)
    fresh = options(tiny, tmp_path, cased, output_dir=str(tmp_path / "fresh"))
    assert hub.with_module(fresh).do_lower_case is False


def test_init_layers_is_not_supported(tiny, tmp_path):
    run = options(tiny, tmp_path, "nowhere", init_layers="0")
    with pytest.raises(UserError, match="--init_layers is not supported: this script uses"):
        hub.run(run)


@pytest.mark.parametrize("name", ["saved_model.pb", "variables/variables.index"])
@pytest.mark.parametrize("damage", ["missing", "truncated"])
def test_incomplete_module(tiny, tmp_path, modules, name, damage):
    shutil.copytree(modules["v2"], tmp_path / "module")
    path = tmp_path / "module" / name
    content = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match=r"No such file|damaged|not a checkpoint|Cannot read"):
        hub.run(options(tiny, tmp_path, tmp_path / "module"))
    assert not (tmp_path / "output").exists()


def test_fine_tuned_model_is_not_an_encoder(tiny, tmp_path, trained):
    flags = {"model_dir": str(trained / "output"), "export_dir": str(tmp_path / "export")}
    exported = export_model.run(ExportOptions(**flags, text_input=False))
    again = options(tiny, tmp_path, exported, output_dir=str(tmp_path / "again"))
    with pytest.raises(UserError, match=r"has no encoder.*--form=encoder"):
        hub.run(again)
    # Its weights, including the head, can still be read.
    assert find_source(exported).shapes()["output_weights"] == [2, 16]
