"""Distillation: teacher logits in the loss, and students initialized from some layers."""

import dataclasses
import json
import os
import random
import shutil

import numpy as np
import pytest

from bert_tf import checkpoint, checkpoints
from bert_tf.api.predictor import Predictor
from bert_tf.base.errors import UserError
from bert_tf.checkpoints.formats import convert, find_source
from bert_tf.checkpoints.run_folder import RunFolder
from bert_tf.data.records import Feature, count_records, read_chunks
from bert_tf.finetuning.distillation import open_teacher, row_loss
from bert_tf.finetuning.model_files import read_model_files
from bert_tf.finetuning.records import hash_texts
from bert_tf.finetuning.run_checks import give_schema
from bert_tf.finetuning.task import Traits
from bert_tf.modeling import BertModel
from bert_tf.options import ConversionOptions
from bert_tf.tasks import classification, multiple_choice, ner, squad
from bert_tf.tasks.classification.task import Classification
from tests.checkpoints.formats.conftest import values_of
from tests.finetuning.helpers import write_json_lines
from tests.tasks.classification.test_task import options
from tests.tasks.multiple_choice import test_task as choice_task
from tests.tasks.question_answering import test_task as squad_task
from tests.tasks.token_classification import test_task as ner_task
from tests.tasks.two_devices import run_on_two_devices
from tests.training.helpers import ONE_DEVICE

TRAINING = {"do_train": True, "num_train_epochs": 2.0, "learning_rate": 1e-2}


def read_weights(folder, step=None):
    return values_of(
        f"{folder}/model.ckpt-{step}" if step is not None else checkpoint.latest(str(folder))
    )


def read_train_records(folder, features):
    path = f"{folder}/train.tf_record"
    (rows,) = read_chunks(path, features, 1000, count_records(path))
    return rows


def assert_weights_equal(actual, expected):
    assert actual.keys() == expected.keys()
    for name, value in actual.items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)


def weights_differ(actual, expected):
    return any(not np.array_equal(value, expected[name]) for name, value in actual.items())


@pytest.fixture(scope="module")
def teacher(tiny_of_two_layers, tmp_path_factory):
    """Output directory of a two-layer model trained on MRPC."""
    folder = tmp_path_factory.mktemp("teacher")
    data = folder / "data"
    shutil.copytree(tiny_of_two_layers.folder / "mrpc", data)
    flags = {**TRAINING, "eval_every": "3", "best_metric": "loss"}
    classification.run(options(tiny_of_two_layers, folder, **flags, data_dir=str(data)))
    # Neither students nor a Predictor need the teacher's data.
    shutil.rmtree(data)
    return folder / "out"


@pytest.fixture
def teacher_copy(teacher, tmp_path):
    """A copy of the teacher that a test may change."""
    return shutil.copytree(teacher, tmp_path / "teacher")


def student_options(tiny, teacher_dir, folder, **changes):
    return options(tiny, folder, **{**TRAINING, "teacher": str(teacher_dir), **changes})


def softmax(logits):
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def sigmoid(logits):
    return 1 / (1 + np.exp(-logits))


def kl_divergence(p, q):
    return np.sum(p * np.log(p / q), axis=-1)


def random_logits(*shape):
    return np.random.default_rng(len(shape)).normal(0, 2, (2, *shape)).astype(np.float32)


MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 1, 1]])


def compute_loss(kind, student, teacher, temperature=2.0):
    return np.asarray(row_loss(kind, student, teacher, MASK, temperature))


def test_classes_loss():
    student, teacher = random_logits(3, 4)
    expected = 9 * kl_divergence(softmax(teacher / 3), softmax(student / 3))
    np.testing.assert_allclose(compute_loss("classes", student, teacher, 3.0), expected, rtol=1e-4)
    # Teacher probabilities are 1/2 and 1/2, student probabilities 3/4 and 1/4.
    teacher_logits, student_logits = np.zeros((1, 2), np.float32), np.log(np.float32([[3, 1]]))
    expected = 0.5 * np.log(0.5 / 0.75) + 0.5 * np.log(0.5 / 0.25)
    actual = row_loss("classes", student_logits, teacher_logits, MASK[:1], 1.0)
    np.testing.assert_allclose(actual, [expected], rtol=1e-5)


def test_labels_and_number_losses():
    student, teacher = random_logits(3, 4)
    p, q = sigmoid(teacher / 2), sigmoid(student / 2)
    divergences = p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))
    actual = compute_loss("labels", student, teacher)
    np.testing.assert_allclose(actual, 4 * divergences.mean(axis=1), rtol=1e-4)
    student, teacher = np.float32([[1], [2], [3]]), np.float32([[3], [2.5], [3]])
    np.testing.assert_allclose(compute_loss("number", student, teacher), [4, 0.25, 0])


def test_vectors_loss_is_the_distance_of_directions():
    student, teacher = random_logits(3, 5), random_logits(3, 5)[::-1]
    expected = []
    for a, b in zip(student, teacher, strict=True):
        a, b = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (a, b))
        expected.append(np.square(a - b).sum(axis=-1).mean())
    np.testing.assert_allclose(compute_loss("vectors", student, teacher), expected, rtol=1e-5)
    opposite = np.float32([[3, 0], [0, 2]]), np.float32([[-1, 0], [0, 5]])
    np.testing.assert_allclose(compute_loss("vectors", *opposite), [4, 0], atol=1e-6)


def test_positions_loss_ignores_padding():
    student, teacher = random_logits(3, 5)
    expected = []
    for row, length in enumerate(MASK.sum(axis=1)):
        p, q = (softmax(x[row, :length] / 2) for x in (teacher, student))
        expected.append(4 * kl_divergence(p, q))
    np.testing.assert_allclose(compute_loss("positions", student, teacher), expected, rtol=1e-4)


def test_tokens_loss_ignores_padding():
    student, teacher = random_logits(3, 5, 4)
    divergences = 4 * kl_divergence(softmax(teacher / 2), softmax(student / 2))
    expected = (divergences * MASK).sum(axis=1) / MASK.sum(axis=1)
    actual = compute_loss("tokens", student, teacher.swapaxes(1, 2))
    np.testing.assert_allclose(actual, expected, rtol=1e-4)


def test_records_contain_the_teacher_logits(tiny, teacher, tmp_path):
    run = student_options(tiny, teacher, tmp_path)
    classification.run(run)
    ids, feature = Feature("input_ids", 24), Feature("teacher_logits", 2, "float32")
    rows = read_train_records(tmp_path / "out", [ids, feature])
    lines = (tiny.folder / "mrpc" / "train.tsv").read_text().splitlines()[1:]
    pairs = [tuple(line.split("\t")[3:]) for line in lines]
    predictions = Predictor.from_output_dir(teacher)(pairs)
    expected = [[*prediction.probabilities.values()] for prediction in predictions]
    np.testing.assert_allclose(softmax(rows["teacher_logits"]), expected, atol=1e-6)
    # Predicting with the student does not need the teacher.
    assert len(Predictor.from_output_dir(tmp_path / "out")(pairs)) == len(pairs)


@pytest.mark.slow
def test_teacher_weight_0_ignores_the_teacher(tiny, teacher, tmp_path):
    classification.run(options(tiny, tmp_path, **TRAINING, output_dir=str(tmp_path / "plain")))
    for weight in (0.0, 0.5):
        run = student_options(tiny, teacher, tmp_path, teacher_weight=weight)
        classification.run(dataclasses.replace(run, output_dir=str(tmp_path / str(weight))))
    assert_weights_equal(read_weights(tmp_path / "0.0"), read_weights(tmp_path / "plain"))
    assert weights_differ(read_weights(tmp_path / "0.5"), read_weights(tmp_path / "plain"))


def test_teacher_weight_1_ignores_the_labels(tiny, teacher, tmp_path):
    folder = shutil.copytree(tiny.folder / "mrpc", tmp_path / "flipped")
    header, *lines = (folder / "train.tsv").read_text().splitlines()
    flipped = [f"{1 - int(line[0])}{line[1:]}" for line in lines]
    (folder / "train.tsv").write_text("\n".join([header, *flipped]) + "\n")
    student_weights = []
    for data in (tiny.folder / "mrpc", folder):
        run = student_options(tiny, teacher, tmp_path, data_dir=str(data), teacher_weight=1.0)
        classification.run(dataclasses.replace(run, output_dir=f"{tmp_path}/{data.name}"))
        student_weights.append(read_weights(tmp_path / data.name))
    assert_weights_equal(*student_weights)


@pytest.mark.slow
def test_student_approaches_the_teacher(tiny, teacher, tmp_path):
    pairs = [("the good film", "a bad plot"), ("it was slow", "the story"), ("fast", "not good")]
    (tmp_path / "plain").mkdir()
    classification.run(options(tiny, tmp_path / "plain", **TRAINING))
    run = student_options(tiny, teacher, tmp_path, teacher_weight=1.0, num_train_epochs=30.0)
    classification.run(run)
    output_dirs = teacher, tmp_path / "out", tmp_path / "plain" / "out"
    teacher_outputs, distilled, plain = (
        np.array([[*row.probabilities.values()] for row in Predictor.from_output_dir(out)(pairs)])
        for out in output_dirs
    )
    assert np.abs(distilled - teacher_outputs).max() < np.abs(plain - teacher_outputs).max()


def test_resumed_run_equals_an_uninterrupted_run(tiny, teacher, tmp_path, run_log):
    run = student_options(tiny, teacher, tmp_path, save_checkpoints_steps=3)
    classification.run(run)
    expected = read_weights(tmp_path / "out")
    for path in (tmp_path / "out").glob("model.ckpt-[69].*"):
        path.unlink()
    run_log.clear()
    classification.run(run)
    assert "Resuming from" in run_log.text
    assert "Reusing" in run_log.text
    assert "computing the logits" not in run_log.text
    assert_weights_equal(read_weights(tmp_path / "out"), expected)


@pytest.mark.slow
def test_changed_teacher_rebuilds_the_records(
    tiny, teacher_copy, tiny_of_two_layers, tmp_path, run_log
):
    run = student_options(tiny, teacher_copy, tmp_path)
    classification.run(run)
    longer = {**TRAINING, "num_train_epochs": 3.0, "output_dir": str(teacher_copy)}
    classification.run(options(tiny_of_two_layers, tmp_path, **longer))
    run_log.clear()
    classification.run(dataclasses.replace(run, num_train_epochs=3.0))
    assert "Reusing" not in run_log.text
    assert "computing the logits of" in run_log.text


@pytest.mark.slow
def test_teacher_logits_match_on_two_devices(tiny, teacher, tmp_path):
    run = student_options(tiny, teacher, tmp_path)
    classification.run(run)
    run_on_two_devices("run_classifier", dataclasses.replace(run, output_dir=f"{tmp_path}/two"))
    logits = []
    for out in ("out", "two"):
        rows = read_train_records(tmp_path / out, [Feature("teacher_logits", 2, "float32")])
        logits.append(rows["teacher_logits"])
    np.testing.assert_allclose(*logits, atol=1e-5)


@pytest.mark.slow
def test_several_runs_share_the_teacher_logits(tiny, teacher, tmp_path, run_log):
    run = student_options(tiny, teacher, tmp_path, num_runs=2, do_eval=True, eval_every="1epoch")
    classification.run(run)
    assert run_log.text.count("computing the logits") == 1
    student_weights = [read_weights(tmp_path / "out" / name) for name in ("run_1", "run_2")]
    assert weights_differ(*student_weights)


@pytest.mark.parametrize(
    "problem_type",
    [
        "classification",
        *(pytest.param(p, marks=pytest.mark.slow) for p in ("regression", "multilabel")),
    ],
)
def test_training_file_without_labels(tiny, tiny_of_two_layers, tmp_path, run_log, problem_type):
    texts = ["good film", "bad plot", "slow story", "fast", "it was not good", "the film", "a", "b"]
    labels = {
        "classification": lambda n: "yn"[n % 2],
        "regression": lambda n: n / 10,
        "multilabel": lambda n: [["x", "y"], ["x"], []][n % 3],
    }[problem_type]
    train = [{"text": text, "label": labels(n)} for n, text in enumerate(texts)]
    dev = [{**row, "text": f"the {row['text']}"} for row in train]
    for name, rows in (("train", train), ("dev", dev), ("texts", [{"text": t} for t in texts])):
        write_json_lines(tmp_path / f"{name}.jsonl", rows)
    flags = {"task_name": "tsv", "data_dir": str(tmp_path), "text_column": "text"}
    flags |= {"label_column": "label", **TRAINING}
    teacher = tmp_path / "teacher"
    classification.run(options(tiny_of_two_layers, tmp_path, **flags, output_dir=str(teacher)))
    run_log.clear()
    predictions = []
    num_logits = {"classification": 2, "regression": 1, "multilabel": 2}[problem_type]
    # The first student also learns from the labels.
    for name, weight in (("train", 0.5), ("train", 1.0), ("texts", 1.0)):
        flags |= {"train_file": f"{name}.jsonl", "eval_file": "dev.jsonl", "teacher_weight": weight}
        # Only files to predict have ids.
        flags["id_column"] = "id"
        out = str(tmp_path / f"{name}_{weight}")
        run = student_options(tiny, teacher, tmp_path, **flags, do_eval=True, output_dir=out)
        assert np.isfinite(classification.run(run).metrics["loss"])
        rows = read_train_records(out, [Feature("teacher_logits", num_logits, "float32")])
        assert rows["teacher_logits"].shape == (8, num_logits)
        predictions.append(Predictor.from_output_dir(out)(texts))
    assert predictions[1] == predictions[2]
    # After a few steps, the tiny model predicts almost the same number for all texts.
    warnings = [line for line in run_log.text.splitlines() if line.startswith("WARNING")]
    assert all("all predictions are from" in line for line in warnings)
    assert problem_type == "regression" or not warnings
    # Rows held out for evaluation need labels.
    flags |= {"train_file": "texts.jsonl", "eval_file": None, "data_dir": None}
    flags["train_file"] = str(tmp_path / "texts.jsonl")
    with pytest.raises(UserError, match="label"):
        classification.run(student_options(tiny, teacher, tmp_path, **flags))


def _assert_student_learns(run_task, make_options, tiny, larger, folder, features):
    """Trains a teacher, and students with and without it; returns the teacher's logits."""
    outs = {name: str(folder / name) for name in ("teacher", "plain", "student")}
    run_task(make_options(larger, output_dir=outs["teacher"]))
    run_task(make_options(tiny, output_dir=outs["plain"]))
    run_task(make_options(tiny, output_dir=outs["student"], teacher=outs["teacher"]))
    assert weights_differ(read_weights(outs["student"]), read_weights(outs["plain"]))
    rows = read_train_records(outs["student"], features)
    assert all(np.isfinite(values).all() and values.any() for values in rows.values())
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("fixed_shapes", [True, False])
def test_question_answering_student(tiny, tiny_of_two_layers, tmp_path, fixed_shapes):
    questions = [squad_task.question(name, "fast story") for name in ("good", "fast", "bad")] * 4
    paragraphs = [{"context": squad_task.TEXT, "qas": questions}]
    content = json.dumps({"data": [{"paragraphs": paragraphs}]})
    (tmp_path / "train.json").write_text(content)

    def make_options(model, **changes):
        return squad_task.options(model, tmp_path, **TRAINING, fixed_shapes=fixed_shapes, **changes)

    features = [Feature(f"teacher_{name}_logits", 24, "float32") for name in ("start", "end")]
    _assert_student_learns(squad.run, make_options, tiny, tiny_of_two_layers, tmp_path, features)


@pytest.mark.slow
def test_multiple_choice_student(tiny, tiny_of_two_layers, tmp_path):
    data = tmp_path / "data"
    choice_task.write_csv(data / "train.csv", choice_task.random_questions(32, 1))
    flags = {"do_train": True, "num_train_epochs": 1.0}

    def make_options(model, **changes):
        return choice_task.options(model, tmp_path, data, **flags, **changes)

    features = [Feature("teacher_logits", 4, "float32")]
    run = multiple_choice.run
    _assert_student_learns(run, make_options, tiny, tiny_of_two_layers, tmp_path, features)


@pytest.mark.slow
def test_token_classification_student(tiny, tiny_of_two_layers, tmp_path):
    rng = random.Random(3)
    sentences = [ner_task.sentence(rng) for _ in range(20)]
    (tmp_path / "train.txt").write_text(ner_task.text_of(sentences))

    def make_options(model, **changes):
        return ner_task.options(model, tmp_path, **ner_task.TRAINING, **changes)

    features = [Feature("teacher_logits", (4, 24), "float32")]
    _assert_student_learns(ner.run, make_options, tiny, tiny_of_two_layers, tmp_path, features)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"do_train": False, "do_eval": True}, "--teacher needs --do_train=true"),
        ({"teacher": "{out}"}, "--teacher and --output_dir must be different folders"),
        ({"teacher": "{tmp}/absent"}, r"No such file: .*/absent/run.json"),
        ({"task_name": "CoLA"}, "was trained with task=MRPC, not CoLA"),
        ({"max_seq_length": 20}, "was trained with max_seq_length=24, not 20"),
        ({"do_lower_case": False}, "trained with do_lower_case=True, not False"),
        ({"vocab_file": "{tmp}/vocab.txt"}, "was trained with vocabulary=.*vocab.txt, not"),
    ],
)
def test_invalid_teacher_flags(tiny, teacher, tmp_path, changes, message):
    vocab = (tiny.folder / "vocab.txt").read_text()
    (tmp_path / "vocab.txt").write_text(vocab.replace("slow\nfast", "fast\nslow"))
    for name, value in changes.items():
        if isinstance(value, str):
            value = value.replace("{tmp}", str(tmp_path)).replace("{out}", f"{tmp_path}/out")
            changes = {**changes, name: value}
    _assert_rejected(student_options(tiny, teacher, tmp_path, **changes), message)


def _assert_rejected(run, message):
    with pytest.raises(UserError, match=message) as error:
        classification.run(run)
    assert "\n" not in str(error.value)
    assert not os.path.exists(f"{run.output_dir}/run.json")


def test_incompatible_teacher_is_rejected(tiny, teacher_copy, tmp_path):
    (teacher_copy / "labels.txt").write_text("1\n0\n")
    run = student_options(tiny, teacher_copy, tmp_path)
    _assert_rejected(run, r"labels=\['1', '0'\], not \['0',")
    metadata = json.loads((teacher_copy / "run.json").read_text())
    (teacher_copy / "run.json").write_text(json.dumps({**metadata, "script": "run_squad"}))
    _assert_rejected(run, "was trained with script=run_squad, not run_classifier")
    several = tmp_path / "several"
    several.mkdir()
    (several / "runs.json").write_text('{"best": {"folder": "run_2"}}')
    message = f"contains several runs: pass one of them; the best is {several}/run_2"
    _assert_rejected(student_options(tiny, several, tmp_path), message)


def test_teacher_with_other_inputs_warns(tiny, teacher_copy, tmp_path, run_log):
    run = json.loads((teacher_copy / "run.json").read_text())
    run["flags"]["long_text"] = "windows"
    (teacher_copy / "run.json").write_text(json.dumps(run))
    run_options = student_options(tiny, teacher_copy, tmp_path)
    task = give_schema(Classification(*read_model_files(run_options)))
    open_teacher(Classification, task, ONE_DEVICE)
    assert "teacher was trained with --long_text='windows', not 'truncate'" in run_log.text


def test_teacher_trained_on_evaluation_examples_is_reported(tiny, teacher_copy, tmp_path, run_log):
    dev = (tiny.folder / "mrpc" / "dev.tsv").read_text().splitlines()[1:]
    dev_hashes = hash_texts(line.split("\t")[3:5] for line in dev)
    RunFolder(str(teacher_copy)).write_text_hashes(dev_hashes)
    flags = {"do_eval": True, "num_train_epochs": 1.0}
    classification.run(student_options(tiny, teacher_copy, tmp_path, **flags))
    assert "evaluation examples (100.0%) were also used to train the model or its t" in run_log.text


def test_task_without_distillation_is_rejected(tiny, teacher, tmp_path, monkeypatch):
    monkeypatch.setattr(Classification, "traits", Traits())
    run = student_options(tiny, teacher, tmp_path)
    _assert_rejected(run, "Classification does not support distillation")


LAYER_FLAGS = {"init_layers": "2,0", "bert_config_file": None}


@pytest.fixture(scope="module")
def three_layer_model(tiny, tmp_path_factory):
    """A folder with a checkpoint of three layers."""
    folder = tmp_path_factory.mktemp("three_layer_model")
    config = dataclasses.replace(tiny.config, num_hidden_layers=3)
    (folder / "bert_config.json").write_text(config.to_json_string())
    shutil.copy(tiny.folder / "vocab.txt", folder)
    variables = checkpoints.named_variables(BertModel(config))
    values = {name: variable.value for name, variable in variables.items()}
    checkpoint.write(str(folder / "bert_model.ckpt"), values)
    return folder


def test_student_is_initialized_from_selected_layers(tiny, three_layer_model, tmp_path, run_log):
    run = options(tiny, tmp_path, **TRAINING, **LAYER_FLAGS, init_checkpoint=str(three_layer_model))
    classification.run(run)
    assert ": 2, 0, counting from 0" in run_log.text
    config = json.loads((tmp_path / "out" / "bert_config.json").read_text())
    assert config["num_hidden_layers"] == 2
    source_weights = values_of(str(three_layer_model / "bert_model.ckpt"))
    student_weights = read_weights(tmp_path / "out", step=0)
    source_layers = {"layer_0": "layer_2", "layer_1": "layer_0"}
    encoder = {name for name in student_weights if name.startswith("bert/") and "adam" not in name}
    assert len(encoder) == len(source_weights) - 16
    for name in encoder:
        layer = next((layer for layer in source_layers if f"/{layer}/" in name), None)
        source = name.replace(f"/{layer}/", f"/{source_layers[layer]}/") if layer else name
        np.testing.assert_array_equal(student_weights[name], source_weights[source], err_msg=name)
    # A resumed run has the same configuration; a Predictor does not need --init_layers.
    classification.run(dataclasses.replace(run, num_train_epochs=3.0))
    assert "init_layers was" not in run_log.text
    classification.run(dataclasses.replace(run, num_train_epochs=3.0, init_layers="0,1"))
    assert "init_layers was 2,0, now 0,1" in run_log.text
    assert Predictor.from_output_dir(tmp_path / "out")(("a film", "a plot")).label in "01"


def test_layers_from_other_checkpoint_formats(tiny, three_layer_model, tmp_path):
    folder = str(tmp_path / "hugging_face")
    request = {"output": folder, "to": "hugging_face", "head": "encoder", "do_lower_case": True}
    convert(find_source(str(three_layer_model)), ConversionOptions(**request))
    classification.run(options(tiny, tmp_path, **TRAINING, **LAYER_FLAGS, init_checkpoint=folder))
    student_weights = read_weights(tmp_path / "out", step=0)
    name = "bert/encoder/layer_{}/output/dense/kernel"
    source_weights = values_of(str(three_layer_model / "bert_model.ckpt"))
    for layer, source_layer in ((0, 2), (1, 0)):
        np.testing.assert_array_equal(
            student_weights[name.format(layer)], source_weights[name.format(source_layer)]
        )


def test_init_layers_with_teacher(tiny, tiny_of_two_layers, teacher, tmp_path):
    run = student_options(tiny, teacher, tmp_path, init_layers="1", init_checkpoint=str(teacher))
    classification.run(run)
    ours, theirs = read_weights(tmp_path / "out", step=0), read_weights(teacher)
    for name in ("output_weights", "bert/pooler/dense/kernel"):
        np.testing.assert_array_equal(ours[name], theirs[name])
    name = "bert/encoder/layer_{}/output/dense/kernel"
    np.testing.assert_array_equal(ours[name.format(0)], theirs[name.format(1)])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"init_layers": "0,x"}, "--init_layers must be distinct layer numbers.* Received: 0,x"),
        ({"init_layers": "1,1"}, "--init_layers must be distinct layer numbers.* Received: 1,1"),
        ({"init_layers": "0,3"}, "no layer 3: they are 0 to 2"),
        (
            {"bert_config_file": "{tiny}/bert_config.json"},
            "bert_config.json: has 1 layer, but --init_layers 2",
        ),
    ],
)
def test_invalid_init_layers(tiny, three_layer_model, tmp_path, changes, message):
    config = changes.get("bert_config_file")
    if config:
        changes = {"bert_config_file": config.replace("{tiny}", str(tiny.folder))}
    changes = {**TRAINING, **LAYER_FLAGS, "init_checkpoint": str(three_layer_model), **changes}
    _assert_rejected(options(tiny, tmp_path, **changes), message)


def test_different_hidden_size_is_rejected(tiny, three_layer_model, tmp_path):
    config = dataclasses.replace(tiny.config, hidden_size=8)
    (tmp_path / "narrow.json").write_text(config.to_json_string())
    flags = {**TRAINING, "init_checkpoint": str(three_layer_model)}
    flags["bert_config_file"] = str(tmp_path / "narrow.json")
    message = r"word_embeddings \(checkpoint \[\d+, 16\], model \[\d+, 8\]\)"
    for layers in (None, "1"):
        _assert_rejected(options(tiny, tmp_path, **flags, init_layers=layers), message)
