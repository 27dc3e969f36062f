"""run_classifier.py on custom datasets: training, predictions and cached records."""

import csv
import dataclasses
import itertools
import json
import random
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoint
from bert_tf.api.predictor import Predictor
from bert_tf.base.errors import UserError
from bert_tf.checkpoints.run_folder import RunFolder
from bert_tf.data import packing, records
from bert_tf.modeling import BertClassifier
from bert_tf.tasks import classification
from bert_tf.tasks.classification import task
from bert_tf.tasks.classification.checks import check_predictions
from bert_tf.tasks.classification.dataset_factory import make_dataset
from bert_tf.tasks.classification.options import ClassifierOptions
from bert_tf.tasks.classification.problem_types import PROBLEM_TYPES, label_weights
from tests.conftest import WORDS
from tests.finetuning.helpers import rows_of, write_json_lines
from tests.oracle import ROOT
from tests.tasks.classification.bad_tables import BAD_FILES, MISSING_FILES, write_files
from tests.tasks.classification.test_task import options

STEPS = {"do_train": True, "do_eval": True, "do_predict": True}
COLUMNS = {"task_name": "tsv", "text_column": "text", "label_column": "label"}
# Enough to learn which words determine the label.
TRAINING = {"num_train_epochs": 20.0, "learning_rate": 2e-3, "max_seq_length": 16}
# With a line break and a tab after them, they need quotes in a table.
ODD_TEXTS = ['"He said', 'so," she "said"', 'a " b', "plain"]


def custom_options(tiny, tmp_path, **changes):
    return options(tiny, tmp_path, **{**COLUMNS, "data_dir": str(tmp_path / "data"), **changes})


def sentences(count, seed=3):
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(3, 8))) for _ in range(count)]


def write(folder, name, rows, header=("label", "text")):
    folder.mkdir(exist_ok=True)
    lines = ["\t".join(header), *("\t".join(map(str, row)) for row in rows)]
    (folder / name).write_text("\n".join(lines) + "\n")


def label_of(text):
    return "praise" if "good" in text.split() else "none of that"


@pytest.fixture(scope="module")
def trained_classifier(tiny, tmp_path_factory):
    """A classifier trained on labels that contain spaces; the test file has no labels."""
    folder = tmp_path_factory.mktemp("praise")
    data = folder / "data"
    write(data, "train.tsv", [(label_of(text), text) for text in sentences(120)])
    write(data, "test.tsv", [[text] for text in sentences(15, seed=9)], header=["text"])
    run = custom_options(tiny, folder, **STEPS, **TRAINING)
    return run, classification.run(run), folder / "out"


def test_results_and_predictions(trained_classifier):
    _, results, out = trained_classifier
    assert (out / "labels.txt").read_text() == "none of that\npraise\n"
    assert BertClassifier.from_checkpoint(out).num_labels == 2
    assert results.metrics["eval_accuracy"] >= 0.9
    metrics = json.loads((out / "eval_results.json").read_text())
    assert set(metrics["labels"]) == {"none of that", "praise"}
    # One fifth of 120 rows is held out.
    assert np.sum(metrics["confusion_matrix"]) == 24
    accuracy = np.trace(metrics["confusion_matrix"]) / 24
    assert metrics["eval_accuracy"] == pytest.approx(accuracy)
    assert (out / "confusion_matrix.png").read_bytes().startswith(b"\x89PNG")
    assert records.count_records(str(out / "train.tf_record")) == 96
    header, *rows = rows_of(out / "test_predictions.tsv")
    assert header == ["id", "text", "label", "probability_none of that", "probability_praise"]
    assert [row[1] for row in rows] == sentences(15, seed=9)
    probabilities = np.float64([row[3:] for row in rows])
    np.testing.assert_array_equal(np.loadtxt(out / "test_results.tsv"), probabilities)
    names = ["none of that", "praise"]
    assert [row[2] for row in rows] == [names[best] for best in probabilities.argmax(axis=1)]
    assert np.mean([row[2] == label_of(row[1]) for row in rows]) >= 0.8
    record = next(iter(tf.data.TFRecordDataset(str(out / "predict.tf_record")))).numpy()
    assert "label_ids" not in tf.train.Example.FromString(record).features.feature


def test_prediction_in_a_different_folder(trained_classifier, tiny, tmp_path):
    run, _, out = trained_classifier
    flags = {"do_predict": True, "do_eval": True, "max_seq_length": 16, "data_dir": run.data_dir}
    flags |= {"init_checkpoint": checkpoint.latest(str(out)), "output_dir": str(tmp_path / "later")}
    metrics = classification.run(custom_options(tiny, tmp_path, **flags)).metrics
    before = json.loads((out / "eval_results.json").read_text())
    assert float(str(metrics["eval_loss"])) == before["eval_loss"]
    name = "test_predictions.tsv"
    assert (tmp_path / "later" / name).read_text() == (out / name).read_text()
    predictor = Predictor.from_output_dir(out)
    _, *rows = rows_of(out / name)
    labels = [prediction.label for prediction in predictor([row[1] for row in rows])]
    assert labels == [row[2] for row in rows]
    with pytest.raises(UserError, match=r"labels\.txt .*Pass --do_train=true"):
        classification.run(custom_options(tiny, tmp_path, do_predict=True, data_dir=run.data_dir))


def test_split_warnings_are_logged_once(tiny, tmp_path, run_log):
    rows = [(label_of(text), text) for text in sentences(20)]
    for name in ("train.tsv", "dev.tsv"):
        write(tmp_path / "data", name, rows)
    flags = {"do_train": True, "do_eval": True, "num_train_epochs": 1.0, "learning_rate": 1e-9}
    classification.run(custom_options(tiny, tmp_path, **flags))
    warnings = [x.getMessage() for x in run_log.records if x.levelname == "WARNING"]
    header, *predicted = rows_of(tmp_path / "out" / "eval_predictions.tsv")
    (answer,) = {row[header.index("prediction")] for row in predicted}
    same = "20 of 20 evaluation examples (100.0%) were also used to train"
    for message in (same, f"all 20 predictions are {answer}"):
        assert [message in text for text in warnings].count(True) == 1


@pytest.mark.parametrize(
    ("count", "true", "warns"), [(19, 2, 0), (20, 2, 1), (20, 1, 0), (20, 0, 1)]
)
def test_one_prediction_for_all_texts_warns(count, true, warns):
    """`true`: the number of distinct labels; 0: they are unknown."""
    data = SimpleNamespace(labels=["a", "b"], primary_metric=None)
    problem = PROBLEM_TYPES["classification"](data, ClassifierOptions())
    values = np.full((count, 2), [0.4, 0.6])
    found = check_predictions(problem, values, np.arange(count) % true if true else None)
    assert [*found] == [f"all {count} predictions are b"] * warns


def test_metrics_of_a_regression_need_numbers(tiny, tmp_path):
    write(tmp_path / "data", "train.tsv", [("0", "good"), ("1", "bad")] * 9)
    flags = {"do_train": True, "do_eval": True, "eval_every": "1", "best_metric": "RMSE"}
    with pytest.raises(UserError, match="--best_metric must be one of accuracy, f1"):
        classification.run(custom_options(tiny, tmp_path, **flags))
    flags["problem_type"] = "regression"
    with pytest.raises(UserError, match="--best_metric must be one of pearson, "):
        classification.run(custom_options(tiny, tmp_path, **flags))


def test_resuming_with_different_labels_is_rejected(trained_classifier, tiny, tmp_path):
    _, _, out = trained_classifier
    write(tmp_path / "data", "train.tsv", [("a", "good"), ("b", "bad")] * 9)
    other = custom_options(tiny, tmp_path, do_train=True, output_dir=str(out))
    with pytest.raises(UserError, match=r"has the labels a, b, .* none of that"):
        classification.run(other)


def test_training_from_a_model_with_other_labels(trained_classifier, tiny, tmp_path):
    _, _, out = trained_classifier
    write(tmp_path / "data", "train.tsv", [("a", "good"), ("b", "bad")] * 9)
    flags = {"init_checkpoint": str(out), "num_train_epochs": 1.0}
    classification.run(custom_options(tiny, tmp_path, do_train=True, **flags))
    assert (tmp_path / "out" / "labels.txt").read_text() == "a\nb\n"


def test_student_of_unlabeled_texts(trained_classifier, tiny, tmp_path):
    _, _, out = trained_classifier
    write(tmp_path / "data", "train.tsv", [[text] for text in sentences(20)], header=["text"])
    flags = {"teacher": str(out), "teacher_weight": 1.0, "label_column": None, "dev_fraction": 0.0}
    flags |= {"num_train_epochs": 1.0, "max_seq_length": 16}
    classification.run(custom_options(tiny, tmp_path, do_train=True, **flags))
    assert (tmp_path / "out" / "run.json").exists()


def test_prediction_with_reordered_labels_is_rejected(trained_classifier, tiny, tmp_path):
    run, _, out = trained_classifier
    flags = {"data_dir": run.data_dir, "max_seq_length": 16, "init_checkpoint": str(out)}
    flags["do_predict"] = True
    swapped = custom_options(tiny, tmp_path, labels="praise,none of that", **flags)
    with pytest.raises(UserError, match="has the labels praise, none of that"):
        classification.run(swapped)
    classification.run(custom_options(tiny, tmp_path, labels="none of that,praise", **flags))


def test_training_rows_to_evaluate_on_are_reported(tiny, tmp_path, run_log):
    message = "were also used to train the model"
    words = ["good", "bad", "film", "story", "plot", "slow", "fast", "not"]
    rows = [("ab"[index % 2], f"{x} {y}") for index, x in enumerate(words) for y in words]
    write(tmp_path / "data", "train.tsv", rows)
    flags = {"num_train_epochs": 1.0, "max_seq_length": 16}
    classification.run(custom_options(tiny, tmp_path, do_train=True, **flags))
    classification.run(custom_options(tiny, tmp_path, do_eval=True, **flags))
    assert message not in run_log.text
    # A further training run, also with the rows that its evaluation held out.
    second = {"init_checkpoint": str(tmp_path / "out"), "output_dir": str(tmp_path / "second")}
    flags["dev_fraction"] = 0.5
    classification.run(custom_options(tiny, tmp_path, do_train=True, **flags, **second))
    assert message not in run_log.text
    run_log.clear()
    # Rows of the first run, after the second, and with another length.
    flags["max_seq_length"] = 8
    classification.run(custom_options(tiny, tmp_path, do_eval=True, **{**flags, **second}))
    assert message in run_log.text


@pytest.mark.slow
def test_several_runs_with_different_labels(tiny, tmp_path):
    write(tmp_path / "data", "train.tsv", [("a", "good"), ("b", "bad")] * 9)
    flags = {"do_train": True, "do_eval": True, "num_runs": 2, "num_train_epochs": 1.0}
    classification.run(custom_options(tiny, tmp_path, **flags))
    write(tmp_path / "data", "train.tsv", [("c", "good"), ("d", "bad")] * 9)
    with pytest.raises(UserError, match=r"run_1/labels\.txt, which .* differs from the labels of"):
        classification.run(custom_options(tiny, tmp_path, **flags))
    assert (tmp_path / "out" / "run_1" / "labels.txt").read_text() == "a\nb\n"


def test_text_pairs_in_csv_with_column_numbers(tiny, tmp_path):
    """Predictions can be read with `csv`."""
    texts = sentences(40)
    rows = [[a, f"{b}, or {a}", int("good" in a)] for a, b in itertools.pairwise(texts)]
    odd = [(f"{text}\n\tx", "b", 0) for text in ODD_TEXTS]
    (tmp_path / "data").mkdir()
    for name, content in (("train", rows), ("test", [*rows[:5], *odd])):
        with open(tmp_path / "data" / f"{name}.csv", "w", newline="") as file:
            csv.writer(file).writerows(content)
    columns = {"text_column": "1", "text_pair_column": "2", "label_column": "3"}
    classification.run(custom_options(tiny, tmp_path, **STEPS, **columns))
    with open(tmp_path / "out" / "test_predictions.tsv", newline="") as file:
        predictions = list(csv.DictReader(file, delimiter="\t"))
    expected = ["id", "text", "text_pair", "label", "probability_0", "probability_1"]
    assert [*predictions[0]] == expected
    assert [*predictions[0].values()][:3] == ["test-0", texts[0], f"{texts[1]}, or {texts[0]}"]
    assert [row["text"] for row in predictions[5:]] == [x[0].replace("\n\t", "  ") for x in odd]
    assert (tmp_path / "out" / "labels.txt").read_text() == "0\n1\n"


def test_multi_label_classification(tiny, tmp_path):
    kinds = ("good", "bad", "slow")
    for name, count in (("train", 150), ("dev", 40), ("test", 10)):
        rows = [
            {"text": text, "label": [kind for kind in kinds if kind in text.split()]}
            for text in sentences(count, seed=count)
        ]
        write_json_lines(tmp_path / "data" / f"{name}.jsonl", rows)
    # Other seeds reach 0.86 to 1.0.
    training_flags = {"num_train_epochs": 60.0, "train_batch_size": 16, "learning_rate": 5e-3}
    run = custom_options(tiny, tmp_path, **STEPS, **{**TRAINING, **training_flags})
    metrics = classification.run(run).metrics
    # Always predicting all three labels gives 0.5.
    assert metrics["eval_f1_micro"] >= 0.7
    out = tmp_path / "out"
    assert (out / "labels.txt").read_text() == "bad\ngood\nslow\n"
    assert json.loads((out / "run.json").read_text())["problem_type"] == "multilabel"
    rows = rows_of(out / "test_predictions.tsv")
    assert rows[0][2:] == ["labels", "probability_bad", "probability_good", "probability_slow"]
    predictor = Predictor.from_output_dir(out)
    for row, prediction in zip(rows[1:], predictor([row[1] for row in rows[1:]]), strict=True):
        assert ",".join(prediction.labels) == row[2]
        above = [kind for kind, x in zip(sorted(kinds), row[3:], strict=True) if float(x) >= 0.5]
        assert row[2] == ",".join(above)
    # Evaluation without training reads the problem type from run.json.
    evaluation = custom_options(tiny, tmp_path, do_eval=True, max_seq_length=16)
    assert classification.run(evaluation).metrics == metrics


TASK = """
from bert_tf.data.features import InputExample


class Films:
    def get_train_examples(self, data_dir):
        with open(f"{data_dir}/films") as file:
            rows = [line.rstrip().split("|") for line in file]
        return [InputExample(str(n), text, None, label) for n, (label, text) in enumerate(rows)]

    get_dev_examples = get_test_examples = get_train_examples

    def get_labels(self):
        return ["none of that", " praise"]
"""


def test_custom_task_module(tiny, tmp_path, run_log):
    (tmp_path / "data").mkdir()
    rows = [f"{label_of(text).replace('praise', ' praise')}|{text}" for text in sentences(30)]
    (tmp_path / "data" / "films").write_text("\n".join(rows) + "\n")
    (tmp_path / "films.py").write_text(TASK)
    changes = {"task_name": None, "text_column": None, "label_column": None}
    run = custom_options(tiny, tmp_path, **STEPS, **changes, task_module=str(tmp_path / "films.py"))
    classification.run(run)
    out = tmp_path / "out"
    assert (out / "labels.txt").read_text() == "none of that\n praise\n"
    assert len((out / "test_predictions.tsv").read_text().splitlines()) == 31
    # The model was trained on single texts.
    pairs = TASK.replace("text, None, label", "text, 'no', label")
    (tmp_path / "films.py").write_text(pairs)
    classification.run(dataclasses.replace(run, do_train=False))
    warning = f"get_dev_examples() of {tmp_path}/films.py: the model was trained on single texts"
    assert warning in run_log.text
    # Prediction does not need the task module.
    (tmp_path / "films.py").unlink()
    predictor = Predictor.from_output_dir(out)
    assert predictor("a good film").label in ("none of that", " praise")
    assert "truncated" not in run_log.text
    predictor(["a good film", ("a " * 30, "no"), "a"])
    predictor("a " * 30)
    assert "1 of 3 inputs has two texts, but the model was trained on single ones" in run_log.text
    warning = "1 of 3 inputs is longer than max_seq_length=24 and was truncated (logged once)"
    assert warning in run_log.text
    assert run_log.text.count("was truncated") == 1


# ---- Long texts ------------------------------------------------------------------------------


def test_windows_cover_long_texts(tiny, tmp_path, run_log):
    rng = random.Random(1)
    for name, count in (("train.tsv", 30), ("dev.tsv", 12), ("test.tsv", 6)):
        texts = [" ".join(rng.choices(WORDS, k=19)) for _ in range(count)]
        write(tmp_path / "data", name, [(label_of(text), text) for text in texts])
    flags = {"max_seq_length": 10, "num_train_epochs": 2.0, "learning_rate": 1e-2}
    run = custom_options(tiny, tmp_path, **STEPS, **flags, long_text="windows")
    metrics = classification.run(run).metrics
    # 8 of 19 words fit: windows start at 0, 4, 8 and 11.
    assert "eval: 12 examples were split into 48 windows" in run_log.text
    assert "were truncated" not in run_log.text
    out = tmp_path / "out"
    assert records.count_records(str(out / "eval.tf_record")) == 48
    # 30 examples of 4 windows each, in batches of 4, for 2 epochs.
    assert metrics["global_step"] == 60
    assert np.sum(json.loads((out / "eval_results.json").read_text())["confusion_matrix"]) == 12
    windows = Predictor.from_output_dir(out, long_text="truncate")
    predictor = Predictor.from_output_dir(out)
    lines = (out / "test_predictions.tsv").read_text().splitlines()
    assert len(lines) == 7
    for line in lines[1:]:
        _, text, label, *values = line.split("\t")
        words = text.split()
        parts = windows([" ".join(words[first : first + 8]) for first in (0, 4, 8, 11)])
        mean = np.mean([list(part.probabilities.values()) for part in parts], axis=0)
        np.testing.assert_allclose(np.float64(values), mean, atol=1e-6)
        prediction = predictor(text)
        assert prediction.label == label
        expected = pytest.approx(np.float64(values), abs=1e-5)
        assert list(prediction.probabilities.values()) == expected


def test_truncation_is_reported(tiny, tmp_path, run_log):
    rows = [("x", "a " * 12), ("y", "b " * 9), ("x", "a"), ("y", "b")]
    write(tmp_path / "data", "train.tsv", rows)
    flags = {"do_train": True, "dev_fraction": 0.0, "max_seq_length": 10}
    expected = "2 of 4 examples (50.0%) are longer than --max_seq_length=10 and were truncated, by"
    # Also when the records of an earlier run are reused.
    for epochs in (1.0, 2.0):
        run_log.clear()
        classification.run(custom_options(tiny, tmp_path, **flags, num_train_epochs=epochs))
        assert f"train: {expected} 2" in run_log.text
        assert "and 4 at most" in run_log.text
    assert "which was written from the same data and flags" in run_log.text


# ---- Records ---------------------------------------------------------------------------------


@pytest.fixture
def conversions(monkeypatch):
    """Counts calls that convert examples to features."""
    counts = []

    def count(examples, *more):
        counts.append(len(examples))
        return packing.convert_examples(examples, *more)

    monkeypatch.setattr(task, "convert_examples", count)
    return counts


def test_records_are_rebuilt_only_after_relevant_changes(tiny, tmp_path, conversions):
    rows = [(label_of(text), text) for text in sentences(30)]
    write(tmp_path / "data", "train.tsv", rows)
    write(tmp_path / "data", "dev.tsv", rows[:8])

    def count_conversions(**changes):
        conversions.clear()
        flags = {"do_eval": True, "labels": "praise,none of that", **changes}
        classification.run(custom_options(tiny, tmp_path, **flags))
        return sum(conversions)

    out = tmp_path / "out"
    assert count_conversions() == 8
    before = (out / "eval.tf_record").read_bytes()
    assert count_conversions() == 0
    # Flags that do not affect the records, and a file with only a newer mtime.
    (tmp_path / "data" / "dev.tsv").touch()
    assert count_conversions(eval_batch_size=3, random_seed=4, init_checkpoint=None) == 0
    assert (out / "eval.tf_record").read_bytes() == before
    assert count_conversions(max_seq_length=12) == 8
    assert count_conversions(max_seq_length=12, do_lower_case=False) == 8
    assert count_conversions() == 8
    assert (out / "eval.tf_record").read_bytes() == before
    write(tmp_path / "data", "dev.tsv", [*rows[:7], (rows[7][0], "good")])
    assert count_conversions() == 8
    assert (out / "eval.tf_record").read_bytes() != before
    write(tmp_path / "data", "dev.tsv", [("praise", text) for _, text in rows[:8]])
    assert count_conversions() == 8
    # A vocabulary with two words swapped.
    vocab = (tiny.folder / "vocab.txt").read_text().replace("good\nbad\n", "bad\ngood\n")
    (tmp_path / "vocab.txt").write_text(vocab)
    assert count_conversions(vocab_file=str(tmp_path / "vocab.txt")) == 8
    assert count_conversions(vocab_file=str(tmp_path / "vocab.txt")) == 0
    # Records of a different run, and damaged or missing files.
    (out / "eval.tf_record").write_bytes(before)
    assert count_conversions(vocab_file=str(tmp_path / "vocab.txt")) == 8
    (out / "records.json").write_text("{")
    assert count_conversions(vocab_file=str(tmp_path / "vocab.txt")) == 8
    (out / "eval.tf_record").unlink()
    assert count_conversions(vocab_file=str(tmp_path / "vocab.txt")) == 8


# ---- Weights ---------------------------------------------------------------------------------


def test_class_weights():
    labels = ["a", "b:c", "d"]
    counts = np.array([6, 3, 0])
    assert label_weights("balanced", labels, counts).tolist() == [0.5, 1, 1]
    assert label_weights("b:c:2.5, d:3", labels, counts).tolist() == [1, 2.5, 3]
    data = SimpleNamespace(labels=[], primary_metric=None, entries={})
    with pytest.raises(UserError, match="--class_weights: the labels are numbers"):
        PROBLEM_TYPES["regression"](data, ClassifierOptions()).set_class_weights([])
    for weights in ("a", "a:", "e:1", "a:0", "a:nan", "a:1,,", "a:1,a:2"):
        with pytest.raises(UserError, match="--class_weights"):
            label_weights(weights, labels, counts)


@pytest.mark.slow
def test_class_weights_favor_rare_labels(tiny, tmp_path):
    rows = [("rare" if n % 6 == 0 else "often", x) for n, x in enumerate(sentences(60))]
    write(tmp_path / "data", "train.tsv", rows)
    recalls = []
    for name, weights in (("plain", None), ("balanced", "balanced"), ("named", "rare:50")):
        run = custom_options(tiny, tmp_path, do_train=True, do_eval=True, class_weights=weights,
                  learning_rate=1e-2, output_dir=str(tmp_path / name))  # fmt: skip
        classification.run(run)
        metrics = json.loads((tmp_path / name / "eval_results.json").read_text())
        predicted = np.sum(metrics["confusion_matrix"], axis=0)
        recalls.append(predicted[1])
    # Labels are independent of the texts, so labels with more weight are predicted more often.
    assert recalls[0] == 0
    assert recalls[2] == 12


# ---- Errors ----------------------------------------------------------------------------------


# Some of each kind, and those that only a run finds; the dataset's test has the others.
@pytest.mark.parametrize("case", [*BAD_FILES[::12], *MISSING_FILES], ids=lambda case: case.message)
def test_invalid_files(tiny, tmp_path, case):
    data, out = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    out.mkdir()
    write_files(data, case.files)
    existing_files = {"notes.txt": "mine", "train.tf_record": "old", "test_results.tsv": "0.1\n"}
    for name, text in existing_files.items():
        (out / name).write_text(text)
    flags = dict(case.flags)
    if "dev_fraction" in flags:
        flags["dev_fraction"] = float(flags["dev_fraction"])
    flag_values = {"task_name": "tsv", "text_column": "text", "label_column": None}
    step = {"train": "do_train", "eval": "do_eval", "predict": "do_predict"}[case.split]
    run = custom_options(tiny, tmp_path, **{**flag_values, **flags, "do_train": True, step: True})
    with pytest.raises(UserError, match=case.message) as caught:
        classification.run(run)
    assert "\n" not in str(caught.value)
    assert {path.name: path.read_text() for path in out.iterdir()} == existing_files


def test_invalid_file_exits_with_a_one_line_error(tiny, tmp_path):
    write(tmp_path / "data", "train.tsv", [("a", "good"), ("b", "bad"), ("a",)])
    flags = {**tiny.flags, **COLUMNS, "data_dir": tmp_path / "data", "do_train": "true"}
    command = [f"--{name}={value}" for name, value in flags.items()]
    command = [sys.executable, "run_classifier.py", *command, f"--output_dir={tmp_path / 'out'}"]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert process.returncode == 1
    assert len(process.stderr.splitlines()) == 1
    assert process.stderr.startswith(f"ERROR: {tmp_path}/data/train.tsv:4: 1 column, but 2")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"text_column": None}, "--task_name=tsv needs --text_column"),
        ({"label_column": None}, "--do_train and --do_eval need --label_column$"),
        (
            {"label_column": None, "do_eval": False, "teacher": ".", "teacher_weight": 1.0},
            "need --label_column, or --dev_fraction=0$",
        ),
        ({"task_name": "cola"}, "--text_column only applies to --task_name=tsv"),
        ({"task_module": "x.py"}, "--task_module and --task_name are mutually exclusive"),
        ({"task_name": None, "text_column": None, "label_column": None}, "required.*--task_name"),
        (
            {"glue_submission": True, "do_predict": True, "predict_file": "train.tsv"},
            "is not a GLUE task",
        ),
        ({"glue_submission": True}, "--glue_submission needs --do_predict"),
        ({"dev_fraction": 1.5}, "--dev_fraction must be between 0 and 0.9"),
        ({"predict_file": "absent.tsv", "do_predict": True}, "--predict_file=absent.tsv: no such"),
        ({"do_predict": True}, "There is no predict file: pass --predict_file"),
    ],
)
def test_invalid_flags(tiny, tmp_path, changes, message):
    write(tmp_path / "data", "train.tsv", [("a", "good"), ("b", "bad")] * 5)
    with pytest.raises(UserError, match=message) as caught:
        classification.run(custom_options(tiny, tmp_path, **{"do_train": True, **changes}))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


TEXTS = {"task_name": "tsv", "text_column": "text"}


@pytest.fixture
def trained_folder(tmp_path):
    """The files of a training run that prediction reads."""
    flags = {**TEXTS, "problem_type": "classification", "text_pair_column": None}
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "labels.txt").write_text("no\nyes\n")
    run = {"script": "run_classifier", "flags": flags}
    (tmp_path / "out" / "run.json").write_text(json.dumps(run))
    return tmp_path


def checkpoint_flags(folder):
    return {"init_checkpoint": str(folder / "out")}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"labels": "yes,no"}, "has the labels yes, no"),
        ({"problem_type": "multilabel"}, "--problem_type=multilabel, but the model .* omit"),
        ({"problem_type": "regression"}, "was trained with classification: omit"),
    ],
)
def test_flags_must_match_the_model(tiny, trained_folder, flags, message):
    write(trained_folder / "data", "test.tsv", [["the film"]], header=["text"])
    flags = {**TEXTS, **flags, **checkpoint_flags(trained_folder)}
    for steps in ({}, {"do_predict": True}):
        run = custom_options(tiny, trained_folder, **flags, **steps)
        with pytest.raises(UserError, match=message):
            make_dataset(run, RunFolder.used_by(run))
    flags |= {"labels": "no,yes", "problem_type": "classification"}
    run = custom_options(tiny, trained_folder, **flags)
    make_dataset(run, RunFolder.used_by(run))


@pytest.mark.parametrize(
    ("flags", "warns"),
    [({}, False), ({"text_column": "id"}, False), ({"text_pair_column": "id"}, True)],
)
@pytest.mark.parametrize("split", ["train", "predict"])  # from a teacher, of a trained model
def test_pairs_for_a_model_of_single_texts_warn(tiny, trained_folder, split, flags, warns, run_log):
    rows = [["the film", "a1", "good"], ["the story", "a2", "bad"]] * 4
    name = {"train": "train.tsv", "predict": "test.tsv"}[split]
    write(trained_folder / "data", name, rows, header=["text", "id", "label"])
    folder = str(trained_folder / "out")
    if split == "train":
        flags = {**TEXTS, **flags, "do_train": True, "teacher": folder, "output_dir": f"{folder}2"}
        make_dataset(custom_options(tiny, trained_folder, **flags), "train")
    else:
        flags = {**TEXTS, **flags, "do_predict": True, **checkpoint_flags(trained_folder)}
        run = custom_options(tiny, trained_folder, **flags)
        make_dataset(run, RunFolder.used_by(run)).read("predict")
    assert (f"{folder}: the model was trained on single texts" in run_log.text) == warns


@pytest.mark.parametrize(
    ("names", "flags", "warns"),
    [
        (("NONE OF THAT", "Praise"), {}, False),
        (("none of that", "praise"), {"labels": "praise,none of that"}, False),
        (("none", "a praise"), {}, True),  # the alphabetical order is the opposite
    ],
)
def test_head_follows_its_labels(trained_classifier, tiny, tmp_path, run_log, names, flags, warns):
    _, _, out = trained_classifier
    new_names = dict(zip(("none of that", "praise"), names, strict=True))
    rows = [(new_names[label_of(text)], text) for text in sentences(40)]
    for name in ("train.tsv", "dev.tsv"):
        write(tmp_path / "data", name, rows)
    flags = {**STEPS, **TRAINING, **flags, "init_checkpoint": str(out), "do_predict": False}
    flags |= {"num_train_epochs": 1.0, "learning_rate": 1e-9}
    results = classification.run(custom_options(tiny, tmp_path, **flags))
    message = "the labels of its head were none of that, praise; now, they are a praise, "
    assert (message in run_log.text) == warns
    # With the same labels, in whatever order, the model is as good as before.
    assert (results.metrics["eval_accuracy"] > 0.9) != warns
