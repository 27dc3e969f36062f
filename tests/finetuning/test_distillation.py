"""A teacher's logits in the loss, and students from some layers of a model."""

import dataclasses
import json
import os
import random
import shutil

import numpy as np
import pytest

from bert_tf import checkpoint, checkpoints
from bert_tf.checkpoints.formats import Request, convert, find_source
from bert_tf.data.records import Feature, read_chunks
from bert_tf.errors import UserError
from bert_tf.finetuning.distillation import row_loss
from bert_tf.modeling import BertModel
from bert_tf.options import ClassifierOptions
from bert_tf.predictor import Predictor
from bert_tf.tasks import classification, multiple_choice, ner, squad
from bert_tf.tasks.classification.task import Classification
from tests.tasks.classification.test_task import options
from tests.tasks.multiple_choice import test_task as choice_task
from tests.tasks.question_answering import test_task as squad_task
from tests.tasks.token_classification import test_task as ner_task
from tests.tasks.two_devices import run_on_two_devices

TRAINING = {"do_train": True, "num_train_epochs": 2.0, "learning_rate": 1e-2}


def weights(folder, step=None):
    prefix = f"{folder}/model.ckpt-{step}" if step is not None else checkpoint.latest(str(folder))
    return dict(checkpoint.read(prefix, checkpoint.shapes(prefix)))


def assert_equal(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        np.testing.assert_array_equal(value, theirs[name], err_msg=name)


def differ(ours, theirs):
    return any(not np.array_equal(value, theirs[name]) for name, value in ours.items())


@pytest.fixture(scope="module")
def teacher(tiny_of_two_layers, tmp_path_factory):
    """MRPC, by a model of two layers."""
    folder = tmp_path_factory.mktemp("teacher")
    data = folder / "data"
    shutil.copytree(tiny_of_two_layers.folder / "mrpc", data)
    flags = {**TRAINING, "eval_every": "3", "best_metric": "loss"}
    classification.run(options(tiny_of_two_layers, folder, **flags, data_dir=str(data)))
    # Neither students nor a Predictor need them.
    shutil.rmtree(data)
    return folder / "out"


def student(tiny, taught_by, folder, **changes):
    return options(tiny, folder, **{**TRAINING, "teacher": str(taught_by), **changes})


def softmax(logits):
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def sigmoid(logits):
    return 1 / (1 + np.exp(-logits))


def divergence(p, q):
    return np.sum(p * np.log(p / q), axis=-1)


def logits(*shape):
    return np.random.default_rng(len(shape)).normal(0, 2, (2, *shape)).astype(np.float32)


MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 1, 1]])


def loss(kind, student, teacher, temperature=2.0):
    return np.asarray(row_loss(kind, student, teacher, MASK, temperature))


def test_loss_of_classes():
    student, teacher = logits(3, 4)
    expected = 9 * divergence(softmax(teacher / 3), softmax(student / 3))
    np.testing.assert_allclose(loss("classes", student, teacher, 3.0), expected, rtol=1e-4)
    # By hand: probabilities of 1/2 and 1/2 against 3/4 and 1/4.
    halves, quarters = np.zeros((1, 2), np.float32), np.log(np.float32([[3, 1]]))
    by_hand = 0.5 * np.log(0.5 / 0.75) + 0.5 * np.log(0.5 / 0.25)
    found = row_loss("classes", quarters, halves, MASK[:1], 1.0)
    np.testing.assert_allclose(found, [by_hand], rtol=1e-5)


def test_loss_of_labels_and_numbers():
    student, teacher = logits(3, 4)
    p, q = sigmoid(teacher / 2), sigmoid(student / 2)
    both = p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))
    found = loss("labels", student, teacher)
    np.testing.assert_allclose(found, 4 * both.mean(axis=1), rtol=1e-4)
    student, teacher = np.float32([[1], [2], [3]]), np.float32([[3], [2.5], [3]])
    np.testing.assert_allclose(loss("number", student, teacher), [4, 0.25, 0])


def test_loss_of_positions_ignores_padding():
    student, teacher = logits(3, 5)
    expected = []
    for row, length in enumerate(MASK.sum(axis=1)):
        p, q = (softmax(x[row, :length] / 2) for x in (teacher, student))
        expected.append(4 * divergence(p, q))
    np.testing.assert_allclose(loss("positions", student, teacher), expected, rtol=1e-4)


def test_loss_of_tokens_is_mean_without_padding():
    student, teacher = logits(3, 5, 4)
    each = 4 * divergence(softmax(teacher / 2), softmax(student / 2))
    expected = (each * MASK).sum(axis=1) / MASK.sum(axis=1)
    found = loss("tokens", student, teacher.swapaxes(1, 2))
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_records_contain_the_teacher_logits(tiny, teacher, tmp_path):
    run = student(tiny, teacher, tmp_path)
    classification.run(run)
    ids, soft = Feature("input_ids", 24), Feature("teacher_logits", 2, "float32")
    (rows,) = read_chunks(str(tmp_path / "out" / "train.tf_record"), [ids, soft], 100)
    lines = (tiny.folder / "mrpc" / "train.tsv").read_text().splitlines()[1:]
    pairs = [tuple(line.split("\t")[3:]) for line in lines]
    predictions = Predictor.from_output_dir(teacher)(pairs)
    expected = [[*prediction.probabilities.values()] for prediction in predictions]
    np.testing.assert_allclose(softmax(rows["teacher_logits"]), expected, atol=1e-6)
    # The student's model does not need them.
    assert len(Predictor.from_output_dir(tmp_path / "out")(pairs)) == len(pairs)


def test_weight_0_equals_training_without_teacher(tiny, teacher, tmp_path):
    classification.run(options(tiny, tmp_path, **TRAINING, output_dir=str(tmp_path / "plain")))
    for weight in (0.0, 0.5):
        run = student(tiny, teacher, tmp_path, teacher_weight=weight)
        classification.run(dataclasses.replace(run, output_dir=str(tmp_path / str(weight))))
    assert_equal(weights(tmp_path / "0.0"), weights(tmp_path / "plain"))
    assert differ(weights(tmp_path / "0.5"), weights(tmp_path / "plain"))


def test_weight_1_ignores_the_labels(tiny, teacher, tmp_path):
    folder = tmp_path / "flipped"
    shutil.copytree(tiny.folder / "mrpc", folder)
    header, *lines = (folder / "train.tsv").read_text().splitlines()
    flipped = [f"{1 - int(line[0])}{line[1:]}" for line in lines]
    (folder / "train.tsv").write_text("\n".join([header, *flipped]) + "\n")
    student_weights = []
    for data in (tiny.folder / "mrpc", folder):
        run = student(tiny, teacher, tmp_path, data_dir=str(data), teacher_weight=1.0)
        classification.run(dataclasses.replace(run, output_dir=f"{tmp_path}/{data.name}"))
        student_weights.append(weights(tmp_path / data.name))
    assert_equal(*student_weights)


def test_student_approaches_the_teacher(tiny, teacher, tmp_path):
    pairs = [("the good film", "a bad plot"), ("it was slow", "the story"), ("fast", "not good")]
    (tmp_path / "plain").mkdir()
    classification.run(options(tiny, tmp_path / "plain", **TRAINING))
    run = student(tiny, teacher, tmp_path, teacher_weight=1.0, num_train_epochs=30.0)
    classification.run(run)
    outs = teacher, tmp_path / "out", tmp_path / "plain" / "out"
    taught, distilled, plain = (
        np.array([[*row.probabilities.values()] for row in Predictor.from_output_dir(out)(pairs)])
        for out in outs
    )
    assert np.abs(distilled - taught).max() < np.abs(plain - taught).max()


def test_resume_equals_an_uninterrupted_run(tiny, teacher, tmp_path, run_log):
    run = student(tiny, teacher, tmp_path, save_checkpoints_steps=3)
    classification.run(run)
    whole = weights(tmp_path / "out")
    for path in (tmp_path / "out").glob("model.ckpt-[69].*"):
        path.unlink()
    run_log.clear()
    classification.run(run)
    assert "Resuming from" in run_log.text
    assert "Reusing" in run_log.text
    assert "computing the logits" not in run_log.text
    assert_equal(weights(tmp_path / "out"), whole)


def test_new_teacher_replaces_the_records(tiny, teacher, tiny_of_two_layers, tmp_path, run_log):
    copy = tmp_path / "copy"
    shutil.copytree(teacher, copy)
    run = student(tiny, copy, tmp_path)
    classification.run(run)
    more = {**TRAINING, "num_train_epochs": 3.0}
    classification.run(options(tiny_of_two_layers, tmp_path, **more, output_dir=str(copy)))
    run_log.clear()
    classification.run(dataclasses.replace(run, num_train_epochs=3.0))
    assert "Reusing" not in run_log.text
    assert "computing the logits of" in run_log.text


def test_logits_are_equal_on_two_devices(tiny, teacher, tmp_path):
    run = student(tiny, teacher, tmp_path)
    classification.run(run)
    run_on_two_devices("run_classifier", dataclasses.replace(run, output_dir=f"{tmp_path}/two"))
    logits = []
    for out in ("out", "two"):
        path, soft = (
            str(tmp_path / out / "train.tf_record"),
            Feature("teacher_logits", 2, "float32"),
        )
        (rows,) = read_chunks(path, [soft], 100)
        logits.append(rows["teacher_logits"])
    np.testing.assert_allclose(*logits, atol=1e-5)


def test_several_seeds_share_the_logits(tiny, teacher, tmp_path, run_log):
    run = student(tiny, teacher, tmp_path, num_runs=2, do_eval=True, eval_every="1epoch")
    classification.run(run)
    assert run_log.text.count("computing the logits") == 1
    run_weights = [weights(tmp_path / "out" / name) for name in ("run_1", "run_2")]
    assert differ(*run_weights)


def test_problem_types_of_custom_tables(tiny, tiny_of_two_layers, tmp_path):
    texts = ["good film", "bad plot", "slow story", "fast", "it was not good", "the film", "a", "b"]
    rows = {
        "regression": [(text, len(text) / 10) for text in texts],
        "multilabel": [(text, [["x", "y"], ["x"], []][n % 3]) for n, text in enumerate(texts)],
    }
    for kind, columns in rows.items():
        folder = tmp_path / kind
        folder.mkdir()
        lines = [json.dumps({"text": text, "label": label}) for text, label in columns]
        for split in ("train", "dev"):
            (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
        flags = {"task_name": "tsv", "data_dir": str(folder), "text_column": "text"}
        flags |= {"label_column": "label", **TRAINING}
        out = folder / "teacher"
        classification.run(options(tiny_of_two_layers, folder, **flags, output_dir=str(out)))
        run = student(tiny, out, folder, **flags, do_eval=True)
        assert np.isfinite(classification.run(run).metrics["loss"])
        count = {"regression": 1, "multilabel": 2}[kind]
        soft = Feature("teacher_logits", count, "float32")
        (rows,) = read_chunks(str(folder / "out" / "train.tf_record"), [soft], 100)
        assert rows["teacher_logits"].shape == (8, count)


def _learns(run_task, make_options, tiny, larger, folder, features):
    """Trains a teacher, and students with and without it; returns the teacher's logits."""
    outs = {name: str(folder / name) for name in ("teacher", "plain", "student")}
    run_task(make_options(larger, output_dir=outs["teacher"]))
    run_task(make_options(tiny, output_dir=outs["plain"]))
    run_task(make_options(tiny, output_dir=outs["student"], teacher=outs["teacher"]))
    assert differ(weights(outs["student"]), weights(outs["plain"]))
    (rows,) = read_chunks(f"{outs['student']}/train.tf_record", features, 1000)
    assert all(np.isfinite(values).all() and values.any() for values in rows.values())
    return rows


@pytest.mark.parametrize("fixed_shapes", [True, False])
def test_answers(tiny, tiny_of_two_layers, tmp_path, fixed_shapes):
    questions = [squad_task.question(name, "fast story") for name in ("good", "fast", "bad")] * 4
    paragraphs = [{"context": squad_task.TEXT, "qas": questions}]
    content = json.dumps({"data": [{"paragraphs": paragraphs}]})
    (tmp_path / "train.json").write_text(content)

    def make(model, **changes):
        return squad_task.options(model, tmp_path, **TRAINING, fixed_shapes=fixed_shapes, **changes)

    soft = [Feature(f"teacher_{name}_logits", 24, "float32") for name in ("start", "end")]
    _learns(squad.run, make, tiny, tiny_of_two_layers, tmp_path, soft)


def test_endings(tiny, tiny_of_two_layers, tmp_path):
    data = tmp_path / "data"
    choice_task.write(data / "train.csv", choice_task.rows(32, 1))
    flags = {"do_train": True, "num_train_epochs": 1.0}

    def make(model, **changes):
        return choice_task.options(model, tmp_path, data, **flags, **changes)

    soft = [Feature("teacher_logits", 4, "float32")]
    _learns(multiple_choice.run, make, tiny, tiny_of_two_layers, tmp_path, soft)


def test_entities(tiny, tiny_of_two_layers, tmp_path):
    rng = random.Random(3)
    sentences = [ner_task.sentence(rng) for _ in range(20)]
    (tmp_path / "train.txt").write_text(ner_task.text_of(sentences))

    def make(model, **changes):
        return ner_task.options(model, tmp_path, **ner_task.TRAINING, **changes)

    soft = [Feature("teacher_logits", (4, 24), "float32")]
    _learns(ner.run, make, tiny, tiny_of_two_layers, tmp_path, soft)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"do_train": False, "do_eval": True}, "--teacher needs --do_train=true"),
        ({"teacher_temperature": 0.0}, "--teacher_temperature must be between 0.1 and 100"),
        ({"teacher_weight": 1.5}, "--teacher_weight must be between 0 and 1"),
        ({"teacher": None, "teacher_weight": 1.0}, "--teacher_weight need --teacher"),
        ({"teacher": "{out}"}, "--teacher and --output_dir must be different folders"),
        ({"teacher": "{tmp}/absent"}, r"is not an output_dir of run_classifier.py \(no run.json"),
        ({"task_name": "CoLA"}, "was trained with task=MRPC, but this run has task=CoLA"),
        ({"max_seq_length": 20}, "was trained with max_seq_length=24, .* has max_seq_length=20"),
        ({"do_lower_case": False}, "trained with do_lower_case=True, .* has do_lower_case=False"),
        (
            {"vocab_file": "{tmp}/vocab.txt"},
            "vocabulary of --teacher, .*, differs from",
        ),
    ],
)
def test_unsuitable_teachers(tiny, teacher, tmp_path, changes, message):
    vocab = (tiny.folder / "vocab.txt").read_text()
    (tmp_path / "vocab.txt").write_text(vocab.replace("slow\nfast", "fast\nslow"))
    places = {"{tmp}": str(tmp_path), "{out}": str(tmp_path / "out")}
    for name, value in changes.items():
        for place, path in places.items():
            if isinstance(value, str):
                value = value.replace(place, path)
        changes = {**changes, name: value}
    _fails(student(tiny, teacher, tmp_path, **changes), message)


def _fails(run, message):
    with pytest.raises(UserError, match=message) as caught:
        classification.run(run)
    assert "\n" not in str(caught.value)
    assert not os.path.exists(f"{run.output_dir}/run.json")


def test_teacher_of_other_labels_or_script(tiny, teacher, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(teacher, copy)
    (copy / "labels.txt").write_text("1\n0\n")
    _fails(student(tiny, copy, tmp_path), r"labels=\['1', '0'\], but this run has labels=\['0',")
    run = json.loads((copy / "run.json").read_text())
    (copy / "run.json").write_text(json.dumps({**run, "script": "run_squad"}))
    message = r"is not an output_dir of run_classifier.py \(run_squad.py trained it\)"
    _fails(student(tiny, copy, tmp_path), message)


def test_task_without_soft_targets(tiny, teacher, tmp_path, monkeypatch):
    monkeypatch.setattr(Classification, "soft_targets", property(lambda task: (), lambda *_: None))
    _fails(student(tiny, teacher, tmp_path), "Classification does not support distillation")


LAYERS = {"init_layers": "2,0", "bert_config_file": None}


@pytest.fixture(scope="module")
def deep(tiny, tmp_path_factory):
    """A folder with a checkpoint of three layers."""
    folder = tmp_path_factory.mktemp("deep")
    config = dataclasses.replace(tiny.config, num_hidden_layers=3)
    (folder / "bert_config.json").write_text(config.to_json_string())
    shutil.copy(tiny.folder / "vocab.txt", folder)
    variables = checkpoints.named_variables(BertModel(config))
    values = {name: variable.value for name, variable in variables.items()}
    checkpoint.write(str(folder / "bert_model.ckpt"), values)
    return folder


def test_student_has_the_selected_layers(tiny, deep, tmp_path, run_log):
    run = options(tiny, tmp_path, **TRAINING, **LAYERS, init_checkpoint=str(deep))
    classification.run(run)
    assert "Initialized from layers 2, 0 of" in run_log.text
    config = json.loads((tmp_path / "out" / "bert_config.json").read_text())
    assert config["num_hidden_layers"] == 2
    before = dict(
        checkpoint.read(
            str(deep / "bert_model.ckpt"), checkpoint.shapes(str(deep / "bert_model.ckpt"))
        )
    )
    after = weights(tmp_path / "out", step=0)
    layers = {"layer_0": "layer_2", "layer_1": "layer_0"}
    encoder = {name for name in after if name.startswith("bert/") and "adam" not in name}
    assert len(encoder) == len(before) - 16
    for name in encoder:
        ours = next((layer for layer in layers if f"/{layer}/" in name), None)
        theirs = name.replace(f"/{ours}/", f"/{layers[ours]}/") if ours else name
        np.testing.assert_array_equal(after[name], before[theirs], err_msg=name)
    # A run that goes on has the same configuration, and a Predictor needs none of it.
    classification.run(dataclasses.replace(run, num_train_epochs=3.0))
    assert Predictor.from_output_dir(tmp_path / "out")(("a film", "a plot")).label in "01"


def test_layers_of_other_formats(tiny, deep, tmp_path):
    folder = str(tmp_path / "hugging_face")
    request = Request(output=folder, to="hugging_face", head="encoder", do_lower_case=True)
    convert(find_source(str(deep)), request)
    classification.run(options(tiny, tmp_path, **TRAINING, **LAYERS, init_checkpoint=folder))
    after, name = weights(tmp_path / "out", step=0), "bert/encoder/layer_{}/output/dense/kernel"
    before = dict(checkpoint.read(str(deep / "bert_model.ckpt"), [name.format(0), name.format(2)]))
    for ours, theirs in ((0, 2), (1, 0)):
        np.testing.assert_array_equal(after[name.format(ours)], before[name.format(theirs)])


def test_layers_and_teacher_together(tiny, tiny_of_two_layers, teacher, tmp_path):
    run = student(tiny, teacher, tmp_path, init_layers="1", init_checkpoint=str(teacher))
    classification.run(run)
    ours, theirs = weights(tmp_path / "out", step=0), weights(teacher)
    for name in ("output_weights", "bert/pooler/dense/kernel"):
        np.testing.assert_array_equal(ours[name], theirs[name])
    name = "bert/encoder/layer_{}/output/dense/kernel"
    np.testing.assert_array_equal(ours[name.format(0)], theirs[name.format(1)])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"init_layers": "0,x"}, "--init_layers must be distinct layer numbers .* Received: 0,x"),
        ({"init_layers": "1,1"}, "--init_layers must be distinct layer numbers .* Received: 1,1"),
        ({"init_layers": "0,-1"}, "--init_layers must be distinct layer numbers .* Received: 0,-1"),
        ({"init_layers": ""}, "--init_layers must be distinct layer numbers"),
        ({"init_layers": "0,3"}, "has no layer 3: its 3 layers are numbered from 0"),
        ({"init_checkpoint": None}, "--init_layers needs --init_checkpoint"),
        ({"do_train": False, "do_eval": True}, "--init_layers needs --do_train=true"),
        (
            {"bert_config_file": "{tiny}/bert_config.json"},
            "--init_layers=2,0 selects 2 layers, but .* has num_hidden_layers=1",
        ),
    ],
)
def test_invalid_layers(tiny, deep, tmp_path, changes, message):
    config = changes.get("bert_config_file")
    if config:
        changes = {"bert_config_file": config.replace("{tiny}", str(tiny.folder))}
    changes = {**TRAINING, **LAYERS, "init_checkpoint": str(deep), **changes}
    if changes["init_checkpoint"] is None:
        changes["bert_config_file"] = str(tiny.folder / "bert_config.json")
    _fails(options(tiny, tmp_path, **changes), message)


def test_different_hidden_size(tiny, deep, tmp_path):
    config = dataclasses.replace(tiny.config, hidden_size=8)
    (tmp_path / "narrow.json").write_text(config.to_json_string())
    changes = {"bert_config_file": str(tmp_path / "narrow.json"), "init_checkpoint": str(deep)}
    message = "hidden_size is 16, and the model's is 8"
    for layers in (None, "1"):
        _fails(options(tiny, tmp_path, **TRAINING, **changes, init_layers=layers), message)


def test_scripts_have_the_options():
    defaults = ClassifierOptions()
    assert (defaults.teacher_temperature, defaults.teacher_weight) == (2.0, 0.5)
    assert defaults.init_layer_numbers == []
