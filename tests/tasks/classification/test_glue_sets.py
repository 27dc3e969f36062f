"""All GLUE tasks and XNLI, from data files to submissions: a few steps of a tiny model."""

import json
import random

import pytest

from bert_tf.data import records
from bert_tf.tasks import classification
from tests.conftest import WORDS
from tests.finetuning.helpers import rows_of
from tests.oracle import data
from tests.tasks.classification.test_task import options

ALL_STEPS = {"do_train": True, "do_eval": True, "do_predict": True}
SENTENCE = " ".join(WORDS[3:9])


def run(tiny, tmp_path, task, folder, **changes):
    flags = {**ALL_STEPS, "eval_batch_size": 64, "predict_batch_size": 64, **changes}
    run_options = options(tiny, tmp_path, task_name=task, data_dir=str(folder), **flags)
    return classification.run(run_options).metrics, tmp_path / "out"


def read_submission(out, name):
    lines = rows_of(out / name)
    assert lines[0] == ["index", "prediction"]
    assert [int(line[0]) for line in lines[1:]] == list(range(len(lines) - 1))
    return [line[1] for line in lines[1:]]


# Numbers of train, dev and test rows; submission file; a metric.
PUBLISHED = {
    "CoLA": (8551, 1043, 1063, "CoLA.tsv", "eval_matthews"),
    "MRPC": (3668, 408, 1725, "MRPC.tsv", "eval_f1"),
    "RTE": (2490, 277, 3000, "RTE.tsv", "eval_accuracy"),
    "SST-2": (67349, 872, 1821, "SST-2.tsv", "eval_accuracy"),
    "STS-B": (5749, 1500, 1379, "STS-B.tsv", "eval_pearson"),
    "WNLI": (635, 71, 146, "WNLI.tsv", "eval_accuracy"),
}


# The default test run covers only some tasks.
def _mark_slow_except(tasks, fast):
    return [task if task in fast else pytest.param(task, marks=pytest.mark.slow) for task in tasks]


@pytest.mark.shared
@pytest.mark.parametrize("task", _mark_slow_except(PUBLISHED, ["CoLA", "SST-2", "STS-B"]))
def test_published_datasets(tiny, tmp_path, task):
    folder = data(f"glue/{task}")
    num_train, num_eval, num_test, name, metric = PUBLISHED[task]
    # Three steps.
    epochs = 3.5 * 32 / num_train
    flags = {"train_batch_size": 32, "num_train_epochs": epochs, "glue_submission": True}
    metrics, out = run(tiny, tmp_path, task, folder, **flags)
    assert metrics["global_step"] == 3
    assert -1 <= metrics[metric] <= 1
    assert records.count_records(str(out / "train.tf_record")) == num_train
    assert records.count_records(str(out / "eval.tf_record")) == num_eval
    assert len((out / "test_results.tsv").read_text().splitlines()) == num_test
    answers = read_submission(out, name)
    assert len(answers) == num_test
    rows = rows_of(out / "test_predictions.tsv")
    assert len(rows) == num_test + 1
    if task == "STS-B":
        assert all(0 <= float(answer) <= 5 and len(answer) == 5 for answer in answers)
    else:
        column = rows[0].index("label")
        assert answers == [row[column] for row in rows[1:]]
    if task == "RTE":
        assert set(answers) <= {"entailment", "not_entailment"}


def _make_row(cells, cells_by_column=()):
    row = ["-"] * cells
    for column, value in dict(cells_by_column).items():
        row[column] = value
    return "\t".join(row)


NLI = ("neutral", "entailment", "contradiction")
# Task -> for each file, the number of rows and columns, those of the texts, and whether the last
# one is a label; the labels; the submission.
LAYOUTS = {
    "mnli-mm": (
        {
            "train": (30, 12, (8, 9), True),
            "dev_mismatched": (12, 16, (8, 9), True),
            "test_mismatched": (7, 10, (8, 9), False),
        },
        NLI,
        "MNLI-mm.tsv",
    ),
    "qqp": (
        {
            "train": (30, 6, (3, 4), True),
            "dev": (12, 6, (3, 4), True),
            "test": (7, 3, (1, 2), False),
        },
        ("0", "1"),
        "QQP.tsv",
    ),
}


@pytest.mark.parametrize("task", [*LAYOUTS])
def test_other_layouts(tiny, tmp_path, task):
    files, labels, name = LAYOUTS[task]
    rng, folder = random.Random(2), tmp_path / "data"
    folder.mkdir()
    for stem, (count, width, texts, has_label) in files.items():
        rows = [_make_row(width)]
        for n in range(count):
            cells = {column: " ".join(rng.choices(WORDS, k=6)) for column in texts}
            cells |= {width - 1: labels[n % len(labels)]} if has_label else {}
            rows.append(_make_row(width, cells))
        (folder / f"{stem}.tsv").write_text("\n".join(rows) + "\n")
    metrics, out = run(tiny, tmp_path, task, folder, num_train_epochs=1.0, glue_submission=True)
    assert metrics["global_step"] == 7
    report = json.loads((out / "eval_results.json").read_text())
    # Each label occurs as often as it was written.
    counts = {label: label_metrics["support"] for label, label_metrics in report["labels"].items()}
    assert set(counts.values()) == {12 // len(counts)}
    assert set(read_submission(out, name)) <= set(counts)


def test_xnli_and_glue_diagnostics(tiny, tmp_path):
    folder = tmp_path / "data"
    (folder / "multinli").mkdir(parents=True)
    labels = ("neutral", "entailment", "contradictory")
    rows = ["premise\thypo\tlabel"]
    rows += [f"{SENTENCE}\t{SENTENCE}\t{labels[n % 3]}" for n in range(30)]
    (folder / "multinli" / "multinli.train.zh.tsv").write_text("\n".join(rows) + "\n")
    rows = [_make_row(9)]
    for n in range(12):
        language = "zh" if n % 2 else "en"
        rows.append(_make_row(9, {0: language, 1: NLI[n % 3], 6: SENTENCE, 7: "good"}))
    (folder / "xnli.dev.tsv").write_text("\n".join(rows) + "\n")
    metrics, out = run(tiny, tmp_path, "XNLI", folder, do_predict=False, num_train_epochs=1.0)
    assert metrics["global_step"] == 7
    assert records.count_records(str(out / "eval.tf_record")) == 6
    rows = ["index\tsentence1\tsentence2", *(f"{n}\t{SENTENCE}\tgood" for n in range(5))]
    (folder / "diagnostic.tsv").write_text("\n".join(rows) + "\n")
    flags = {"init_checkpoint": str(out / "model.ckpt-7"), "output_dir": str(tmp_path / "ax")}
    flags |= {"do_predict": True, "glue_submission": True, "data_dir": str(folder)}
    classification.run(options(tiny, tmp_path, task_name="AX", **flags))
    assert set(read_submission(tmp_path / "ax", "AX.tsv")) <= set(NLI)
