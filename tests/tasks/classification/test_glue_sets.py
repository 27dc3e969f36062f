"""All GLUE tasks and XNLI, from data files to submissions: a few steps of a tiny model."""

import json
import random

import pytest

from bert_tf.data import records
from bert_tf.tasks import classification
from tests.conftest import WORDS
from tests.oracle import data
from tests.tasks.classification.test_task import options

ALL_STEPS = {"do_train": True, "do_eval": True, "do_predict": True}
SENTENCE = " ".join(WORDS[3:9])


def run(tiny, tmp_path, task, folder, **changes):
    flags = {**ALL_STEPS, "eval_batch_size": 64, "predict_batch_size": 64, **changes}
    run_options = options(tiny, tmp_path, task_name=task, data_dir=str(folder), **flags)
    return classification.run(run_options).metrics, tmp_path / "out"


def read_submission(out, name):
    lines = [line.split("\t") for line in (out / name).read_text().splitlines()]
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
    metrics, out = run(
        tiny,
        tmp_path,
        task,
        folder,
        train_batch_size=32,
        num_train_epochs=epochs,
        glue_submission=True,
    )
    assert metrics["global_step"] == 3
    assert -1 <= metrics[metric] <= 1
    assert records.count_records(str(out / "train.tf_record")) == num_train
    assert records.count_records(str(out / "eval.tf_record")) == num_eval
    assert len((out / "test_results.tsv").read_text().splitlines()) == num_test
    answers = read_submission(out, name)
    assert len(answers) == num_test
    rows = [line.split("\t") for line in (out / "test_predictions.tsv").read_text().splitlines()]
    assert len(rows) == num_test + 1
    if task == "STS-B":
        assert all(0 <= float(answer) <= 5 and len(answer) == 5 for answer in answers)
    else:
        column = rows[0].index("label")
        assert answers == [row[column] for row in rows[1:]]
    if task == "RTE":
        assert set(answers) <= {"entailment", "not_entailment"}


def _make_row(cells, cells_by_column):
    row = ["-"] * cells
    for column, value in cells_by_column.items():
        row[column] = value
    return "\t".join(row)


def _make_files(
    task, cells, texts, label, labels, test_cells, test_texts, header=True, dev="dev", test="test"
):
    """Returns small files in a task's layout.

    Args:
        cells: number of columns.
        texts: columns of the texts.
        label: column of the label; None for the last one.
    """
    rng = random.Random(2)
    words = lambda: " ".join(rng.choices(WORDS, k=6))  # noqa: E731
    contents = {}
    for split, count, size in (("train", 30, cells), (dev, 12, cells + (4 if dev != "dev" else 0))):
        rows = [
            _make_row(
                size,
                {
                    **{p: words() for p in texts},
                    (size - 1 if label is None else label): labels[n % len(labels)],
                },
            )
            for n in range(count)
        ]
        contents[f"{split}.tsv"] = [_make_row(size, {})] * header + rows
    contents[f"{test}.tsv"] = [_make_row(test_cells, {})] + [
        _make_row(test_cells, {p: words() for p in test_texts}) for _ in range(7)
    ]
    return contents


NLI = ("neutral", "entailment", "contradiction")
LAYOUTS = {
    "mnli": (
        _make_files(
            "mnli", 12, (8, 9), None, NLI, 10, (8, 9), dev="dev_matched", test="test_matched"
        ),
        "MNLI-m.tsv",
    ),
    "mnli-mm": (
        _make_files(
            "mnli-mm",
            12,
            (8, 9),
            None,
            NLI,
            10,
            (8, 9),
            dev="dev_mismatched",
            test="test_mismatched",
        ),
        "MNLI-mm.tsv",
    ),
    "qnli": (
        _make_files("qnli", 4, (1, 2), None, ("entailment", "not_entailment"), 3, (1, 2)),
        "QNLI.tsv",
    ),
    "qqp": (_make_files("qqp", 6, (3, 4), None, ("0", "1"), 3, (1, 2)), "QQP.tsv"),
}


@pytest.mark.parametrize("task", _mark_slow_except(LAYOUTS, ["mnli-mm", "qqp"]))
def test_other_layouts(tiny, tmp_path, task):
    files, name = LAYOUTS[task]
    folder = tmp_path / "data"
    folder.mkdir()
    for file, rows in files.items():
        (folder / file).write_text("\n".join(rows) + "\n")
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
    rows = [_make_row(9, {})]
    for n in range(12):
        language = "zh" if n % 2 else "en"
        rows.append(_make_row(9, {0: language, 1: NLI[n % 3], 6: SENTENCE, 7: "good"}))
    (folder / "xnli.dev.tsv").write_text("\n".join(rows) + "\n")
    metrics, out = run(tiny, tmp_path, "XNLI", folder, do_predict=False, num_train_epochs=1.0)
    assert metrics["global_step"] == 7
    assert records.count_records(str(out / "eval.tf_record")) == 6
    rows = ["index\tsentence1\tsentence2", *(f"{n}\t{SENTENCE}\tgood" for n in range(5))]
    (folder / "diagnostic.tsv").write_text("\n".join(rows) + "\n")
    run_options = options(
        tiny,
        tmp_path,
        task_name="AX",
        data_dir=str(folder),
        do_predict=True,
        glue_submission=True,
        init_checkpoint=str(out / "model.ckpt-7"),
        output_dir=str(tmp_path / "ax"),
    )
    classification.run(run_options)
    assert set(read_submission(tmp_path / "ax", "AX.tsv")) <= set(NLI)
