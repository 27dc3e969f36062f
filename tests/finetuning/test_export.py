"""SavedModel exports: TensorFlow reproduces the outputs of the scripts, without bert_tf."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoint
from bert_tf.base.errors import UserError
from bert_tf.checkpoints.formats import convert, find_source
from bert_tf.commands import export_model
from bert_tf.finetuning import export
from bert_tf.modeling import BertModel
from bert_tf.options import ConversionOptions, ExportOptions
from bert_tf.saved_models import modules
from bert_tf.tasks import classification, ner, squad
from bert_tf.tokenization import FullTokenizer
from tests.finetuning.helpers import rows_of
from tests.oracle import golden
from tests.tasks.classification.test_custom_runs import custom_options, sentences, write
from tests.tasks.classification.test_task import options
from tests.tasks.question_answering import test_task as test_squad
from tests.tasks.token_classification import test_task as test_ner
from tests.tokenization.test_graph import encoded_golden_texts

# Serves an exported model without bert_tf and the operations of TensorFlow Text.
SERVING_PROGRAM = """
import json, sys
sys.modules["tensorflow_text"] = None
import tensorflow as tf
folder, signature, inputs = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
serve = tf.saved_model.load(folder).signatures[signature]
outputs = serve(**{name: tf.constant(value) for name, value in inputs.items()})
assert not [name for name in sys.modules if name.startswith("bert_tf")]
values = {name: value.numpy().tolist() for name, value in outputs.items()}
print(json.dumps({n: [x.decode() for x in v] if n == "label" else v for n, v in values.items()}))
"""


def serve(folder, signature, tmp_path, **inputs):
    command = [sys.executable, "-c", SERVING_PROGRAM, str(folder), signature, json.dumps(inputs)]
    return json.loads(output_of(command, cwd=tmp_path))


def output_of(command, **settings):
    result = subprocess.run(command, capture_output=True, text=True, **settings)
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout


@pytest.fixture(scope="module")
def classifier(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("export")
    rows = [("good" if "good" in text else "so-so", text) for text in sentences(40)]
    write(folder / "data", "train.tsv", rows)
    write(folder / "data", "test.tsv", rows[:9])
    steps = {"do_train": True, "do_predict": True, "do_export": True}
    run = custom_options(tiny, folder, **steps, learning_rate=1e-2)
    results = classification.run(run)
    assert results.files[-1] == str(folder / "out" / "export" / "1")
    return folder / "out", rows_of(folder / "out" / "test_predictions.tsv")[1:]


def test_text_signature(classifier, tmp_path):
    out, rows = classifier
    texts = [row[1] for row in rows]
    outputs = serve(out / "export" / "1", "serving_default", tmp_path, text=texts)
    expected = np.float64([row[3:] for row in rows])
    np.testing.assert_allclose(outputs["probabilities"], expected, atol=1e-5)
    assert outputs["label"] == [row[2] for row in rows]


def test_id_example_and_pair_signatures(classifier):
    out, rows = classifier
    model = tf.saved_model.load(str(out / "export" / "1"))
    assert set(model.signatures) == {"serving_default", "ids", "examples", "pairs"}
    expected = np.float64([row[3:] for row in rows])
    records = [r.numpy() for r in tf.data.TFRecordDataset(str(out / "predict.tf_record"))]
    outputs = model.signatures["examples"](examples=tf.constant(records))
    np.testing.assert_allclose(outputs["probabilities"], expected, atol=1e-5)
    texts = tf.constant([row[1] for row in rows])
    empty_texts = tf.constant([""] * len(rows))
    outputs = model.signatures["pairs"](text=texts, text_pair=empty_texts)
    np.testing.assert_allclose(outputs["probabilities"], expected, atol=1e-5)
    # An empty text, and one longer than max_seq_length.
    extreme_lengths = tf.constant(["", "good " * 500])
    outputs = model.signatures["serving_default"](text=extreme_lengths)
    assert np.isfinite(outputs["probabilities"]).all()
    folder = out / "export" / "1"
    assert (folder / "assets" / "labels.txt").read_text() == "good\nso-so\n"
    assert (folder / "assets" / "vocab.txt").exists()
    run = json.loads((folder / "assets.extra" / "run.json").read_text())
    assert run["flags"]["task_name"] == "tsv"


def test_export_without_text_ops(classifier):
    out, _ = classifier
    command = [sys.executable, "-m", "tensorflow.python.tools.saved_model_cli"]
    folder = str(out / "export" / "1" / "ids")
    ids = ["input_ids=[[2,5,9,3]]", "input_mask=[[1,1,1,1]]", "segment_ids=[[0,0,0,0]]"]
    flags = ["run", "--dir", folder, "--tag_set", "serve", "--signature_def", "ids"]
    output = output_of([*command, *flags, "--input_exprs", ";".join(ids)])
    assert "Result for output key probabilities:" in output
    assert "Result for output key label:" in output


@pytest.mark.slow
def test_export_versions(classifier, tmp_path, monkeypatch):
    out, _ = classifier
    flags = {"model_dir": str(out), "export_dir": str(tmp_path / "served")}
    run = ExportOptions(**flags, text_input=False)
    assert export_model.run(run) == str(tmp_path / "served" / "1")
    assert export_model.run(run) == str(tmp_path / "served" / "2")
    assert not (tmp_path / "served" / "2" / "ids").exists()

    def raise_user_error(*_):
        raise UserError("no")

    monkeypatch.setattr(export.modules, "save_task", raise_user_error)
    with pytest.raises(UserError):
        export_model.run(run)
    assert sorted(path.name for path in (tmp_path / "served").iterdir()) == ["1", "2"]


def test_version_of_another_model_warns(tmp_path, run_log):
    def export_version(labels="no\nyes\n", script="run_classifier", **flags):
        digests = {"labels.txt": labels}
        run = {"script": script, "flags": {"task_name": "tsv", **flags}, "digests": digests}
        with export.new_version(str(tmp_path), {"run.json": json.dumps(run)}):
            pass
        messages = [r.getMessage() for r in run_log.records if r.levelname == "WARNING"]
        run_log.clear()
        return [message.removeprefix(f"{tmp_path}/") for message in messages]

    assert export_version() == export_version() == []
    assert export_version(script="run_ner") == ["2: has another script than the new version"]
    assert export_version(task_name="cola") == ["3: has another script than the new version"]
    assert export_version() == ["4: has another task than the new version"]
    assert export_version("a\nb\n") == ["5: has another labels.txt than the new version"]


@pytest.mark.slow
def test_text_pairs(tiny, tmp_path):
    run = options(tiny, tmp_path, do_train=True, do_predict=True, learning_rate=1e-2)
    classification.run(run)
    out = tmp_path / "out"
    served = export_model.run(ExportOptions(model_dir=str(out), export_dir=str(tmp_path / "s")))
    rows = rows_of(out / "test_predictions.tsv")[1:]
    texts, others = (tf.constant([row[n] for row in rows]) for n in (1, 2))
    pairs = {"text": texts, "text_pair": others}
    outputs = tf.saved_model.load(served).signatures["serving_default"](**pairs)
    probabilities = outputs["probabilities"]
    np.testing.assert_allclose(probabilities, np.float64([r[4:] for r in rows]), atol=1e-5)
    assert [label.decode() for label in outputs["label"].numpy()] == [row[3] for row in rows]
    # With jit_compile, XLA compiles the signatures without string ops.
    compiled = ExportOptions(model_dir=str(out), export_dir=str(tmp_path / "s"), jit_compile=True)
    model = tf.saved_model.load(export_model.run(compiled))
    compiled_outputs = model.signatures["serving_default"](**pairs)
    np.testing.assert_allclose(compiled_outputs["probabilities"], probabilities, atol=1e-5)


def test_export_uses_the_training_run(tiny, tmp_path, run_log):
    """Casing, best weights and head, despite a misleading folder name or stripped weights."""
    flags = {"do_train": True, "do_eval": True, "eval_every": "2", "best_metric": "loss"}
    classification.run(options(tiny, tmp_path, **flags, num_train_epochs=2.0, learning_rate=1e-2))
    folder = (tmp_path / "out").rename(tmp_path / "cased_or_not")
    assert (folder / "labels.txt").read_text() == "0\n1\n"

    def export(model_dir, name, **more):
        folders = {"model_dir": str(model_dir), "export_dir": str(tmp_path / name)}
        return find_source(export_model.run(ExportOptions(**folders, **more)))

    task = export(folder, "task", text_input=False)
    assert task.do_lower_case is True
    assert task.labels == ["0", "1"]
    assert task.vocab_file.endswith("assets/vocab.txt")
    encoder = export(folder, "encoder", form="encoder")
    ((_, best),) = checkpoint.read(str(folder / "best" / "model.ckpt"), ["bert/pooler/dense/bias"])
    ((_, bias),) = encoder.read(["bert/pooler/dense/bias"])
    np.testing.assert_array_equal(bias, best)
    stripped = tmp_path / "stripped"
    stripped.mkdir()
    request = ConversionOptions(output=str(stripped / "model.ckpt"), strip_optimizer=True)
    convert(find_source(str(folder)), request)
    reexported = export(stripped, "reexported", text_input=False)
    assert reexported.shapes()["output_weights"] == [2, 16]
    (stripped / "run.json").unlink()
    with pytest.raises(UserError, match=r"a model of an unknown task, with output_weights"):
        export(stripped, "reexported", max_seq_length=24)
    flags = {"form": "task", "script": "run_classifier", "task_name": "mrpc"}
    named = export(stripped, "named", **flags, max_seq_length=24, text_input=False)
    assert named.labels == ["0", "1"]


def test_empty_batch(classifier):
    served = tf.saved_model.load(str(classifier[0] / "export" / "1"))
    no_texts = tf.constant([], tf.string)
    assert served.signatures["serving_default"](text=no_texts)["probabilities"].shape == (0, 2)
    pairs = served.signatures["pairs"](text=no_texts, text_pair=no_texts)
    assert pairs["label"].shape == (0,)


# Runs an exported model in a session, as TensorFlow Serving does.
SESSION_PROGRAM = """
import json, sys
sys.modules["tensorflow_text"] = None
import tensorflow.compat.v1 as tf
texts = [bytes.fromhex(line) for line in open(sys.argv[2]).read().split(",")]
with tf.Session(graph=tf.Graph()) as session:
    model = tf.saved_model.load(session, ["serve"], sys.argv[1])
    signature = model.signature_def["serving_default"]
    feeds = {signature.inputs["text"].name: texts}
    ids = session.run(signature.outputs["input_word_ids"].name, feeds)
print(json.dumps(ids.tolist()))
"""


def test_exported_tokenizer_needs_only_tensorflow(tmp_path):
    path, length = str(golden("vocab/uncased.txt")), 48
    tokenizer = FullTokenizer(path)
    modules.save_preprocessor(str(tmp_path / "export"), tokenizer, path, length)
    texts = [text for text, _ in encoded_golden_texts()]
    (tmp_path / "texts").write_text(",".join(text.hex() for text in texts))
    command = [sys.executable, "-c", SESSION_PROGRAM, str(tmp_path / "export")]
    found = json.loads(output_of([*command, str(tmp_path / "texts")]))
    for text, ids in zip(texts, found, strict=True):
        tokens = ["[CLS]", *tokenizer.tokenize(text)[: length - 2], "[SEP]"]
        padding = ["[PAD]"] * (length - len(tokens))
        assert ids == tokenizer.convert_tokens_to_ids([*tokens, *padding])


@pytest.fixture
def squad_folder(tiny, tmp_path):
    return test_squad.folder.__wrapped__(tiny, tmp_path)


@pytest.fixture
def ner_folder(tmp_path):
    return test_ner.folder.__wrapped__(tmp_path)


@pytest.mark.slow
def test_question_answering_export(tiny, squad_folder):
    squad.run(test_squad.options(tiny, squad_folder, do_train=True, do_export=True))
    model = tf.saved_model.load(str(squad_folder / "out" / "export" / "1"))
    texts = {"text": tf.constant(["a b"]), "text_pair": tf.constant(["the good film"])}
    outputs = model.signatures["serving_default"](**texts)
    for name in ("start_logits", "end_logits", "input_ids"):
        assert outputs[name].shape == (1, 8)


@pytest.mark.slow
def test_token_classification_export(tiny, ner_folder):
    ner.run(test_ner.options(tiny, ner_folder, do_train=True, do_export=True))
    model = tf.saved_model.load(str(ner_folder / "out" / "export" / "1"))
    outputs = model.signatures["serving_default"](text=tf.constant(["the good film"]))
    labels = (ner_folder / "out" / "labels.txt").read_text().splitlines()
    assert outputs["probabilities"].shape == (1, 5, len(labels))
    assert {label.decode() for label in outputs["labels"].numpy()[0]} <= set(labels)


def test_encoder_and_preprocessor_exports(tiny_of_two_layers, tmp_path):
    tiny = tiny_of_two_layers
    folder = str(tiny.folder)
    exports = {}
    for form in ("encoder", "preprocessor"):
        flags = {"model_dir": folder, "export_dir": str(tmp_path / form), "max_seq_length": 20}
        exports[form] = tf.saved_model.load(export_model.run(ExportOptions(form=form, **flags)))
    encoder, preprocessor = exports["encoder"], exports["preprocessor"]
    texts = tf.constant(["the good film", "a plot, it was not slow"])
    inputs = preprocessor(texts)
    assert {*inputs} == {"input_word_ids", "input_mask", "input_type_ids"}
    assert {value.shape for value in inputs.values()} == {(2, 20)}
    ids = preprocessor.tokenize(texts)
    pairs = preprocessor.bert_pack_inputs([ids, ids], seq_length=9)
    assert pairs["input_word_ids"].shape == (2, 9)
    assert pairs["input_type_ids"].numpy()[0].tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 1]
    model = BertModel(tiny.config)
    checkpoint.restore(model, tiny.checkpoint)
    names = ("input_ids", "input_mask", "segment_ids")
    values = (inputs[name] for name in ("input_word_ids", "input_mask", "input_type_ids"))
    expected = model(dict(zip(names, values, strict=True)))
    outputs = encoder(inputs)
    assert set(outputs) == {"pooled_output", "sequence_output", "encoder_outputs", "default"}
    for name in ("pooled_output", "sequence_output"):
        np.testing.assert_allclose(outputs[name], expected[name], atol=1e-5)
    assert len(outputs["encoder_outputs"]) == 2
    assert encoder.do_lower_case.numpy()
    # The exported encoder is trainable and applies dropout in training mode.
    with tf.GradientTape() as tape:
        first = encoder(inputs, training=True)["pooled_output"]
        loss = tf.reduce_sum(tf.square(first))
    gradients = tape.gradient(loss, encoder.trainable_variables)
    assert len(gradients) == 39
    assert all(gradient is not None for gradient in gradients)
    second = encoder(inputs, training=True)["pooled_output"]
    assert np.abs(first - second).max() > 1e-3


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({}, "Missing required flags: --model_dir"),
        ({"model_dir": "{tmp}/absent", "export_dir": "x"}, "No checkpoint .*absent"),
        (
            {"model_dir": "{tmp}", "export_dir": "x"},
            "contains no checkpoint",
        ),
        (
            {"model_dir": "{tiny}", "export_dir": "x", "text_input": False, "max_seq_length": 9},
            "--text_input does not apply to encoders",
        ),
        ({"model_dir": "{tiny}", "export_dir": "x", "form": "task"}, "run.json"),
        (
            {"model_dir": "{tmp}/run", "export_dir": "x", "form": "task"},
            "needs a fine-tuned model, not one of run_pretraining",
        ),
        ({"model_dir": "{tiny}", "export_dir": "x", "script": "bert"}, "expected --script, one of"),
    ],
)
def test_invalid_options(tiny, tmp_path, monkeypatch, flags, message):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny.folder, tmp_path / "run")
    (tmp_path / "run" / "run.json").write_text('{"script": "run_pretraining", "flags": {}}')
    for name, value in flags.items():
        if isinstance(value, str):
            folder = value.replace("{tmp}", str(tmp_path)).replace("{tiny}", str(tiny.folder))
            flags = {**flags, name: folder}
    with pytest.raises(UserError, match=message) as error:
        export_model.run(ExportOptions(**flags))
    assert "\n" not in str(error.value)
    assert not (tmp_path / "x").exists()
