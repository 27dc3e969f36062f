"""`report.html` and `eval_predictions.tsv` of each task: every figure follows from the files."""

import csv
import dataclasses
import json
import re
import shutil

import numpy as np
import pytest

import bert_tf
from bert_tf.checkpoints.run_folder import RunFolder
from bert_tf.report import statistics
from bert_tf.report.evaluation import Counts, EvaluationReport
from bert_tf.report.page import evaluation_page
from tests.finetuning import test_task_contract as contract
from tests.report.pages import Page, read_rows

NASTY = '<script>alert("1")</script> & <img src=x onerror=1> \u2028 \x07 "quoted"'


def targets(flags, folder):
    return contract.table_options(flags, folder, [{"x": n, "y": 20.0 * n} for n in range(5)])


def nasty(flags, folder):
    rows = [{"text": f"{NASTY} {n}", "y": ["<b>", "</table>"][n % 2]} for n in range(6)]
    contract.write_rows(folder, rows)
    columns = {"task_name": "tsv", "text_column": "text", "label_column": "y"}
    return bert_tf.options.ClassifierOptions(**flags, **columns, data_dir=str(folder))


def plain_labels(flags, folder):
    sentence = "the D\nfilm N\nwas V\nit P\n"
    for name in ("train", "dev"):
        (folder / f"{name}.txt").write_text(f"{sentence}\n{sentence}it P\n")
    return bert_tf.options.NerOptions(**flags, data_dir=str(folder), label_scheme="plain")


def entities(flags, folder):
    first, second = "good B-PER\nfilm I-PER\nwas O\nit B-LOC\n", "it B-LOC\nwas O\nfast I-LOC\n"
    for name in ("train", "dev"):
        (folder / f"{name}.txt").write_text("\n".join([first, second] * 4))
    return bert_tf.options.NerOptions(**flags, data_dir=str(folder))


def squad(flags, folder, negative=False):
    words = ("What is it", "who was the film", "it", "How many", "what was")
    options = contract.squad(flags, folder)
    path = folder / "squad.json"
    content = json.loads(path.read_text())
    for number, question in enumerate(content["data"][0]["paragraphs"][0]["qas"]):
        question["question"] = words[number]
        question["is_impossible"] = negative and bool(number % 2)
        if question["is_impossible"]:
            question["answers"] = []
    path.write_text(json.dumps(content))
    return dataclasses.replace(options, version_2_with_negative=negative)


def squad_2(flags, folder):
    return squad(flags, folder, negative=True)


def flags(tiny, out, **more):
    flags = {**tiny.flags, "init_checkpoint": tiny.checkpoint, "output_dir": str(out)}
    return {**flags, "do_train": True, "do_eval": True, **more}


@pytest.fixture(scope="module")
def run(tiny, tmp_path_factory):
    """(function that writes data and returns options, flags) -> output folder, metrics, page."""
    runs = {}

    def run(make_options, **more):
        key = make_options, *more
        if key not in runs:
            folder = tmp_path_factory.mktemp(make_options.__name__)
            out = folder / "out"
            bert_tf.run(make_options(flags(tiny, out, learning_rate=1e-3, **more), folder))
            runs[key] = out
        out = runs[key]
        return out, json.loads((out / "eval_results.json").read_text()), Page(out / "report.html")

    return run


# All tags and attributes: none loads anything, and none runs a script.
TAGS = {"html", "head", "meta", "title", "style", "h1", "h2", "p", "div", "table", "tr", "th", "td"}
TAGS |= {"figure", "svg", "path", "text", "b", "details", "summary", "nav", "section", "a"}
TAGS |= {"lang", "charset", "name", "content", "class", "viewbox", "role", "aria-label"}
TAGS |= {"d", "x", "y", "transform", "href", "id", "style", "width", "height"}
# Of matplotlib; `xlink:href` is that of a marker, or the pixels of many dots.
TAGS |= {"g", "defs", "use", "xlink:href", "clippath", "clip-path", "rect", "image"}

CASES = [
    contract.classification,
    contract.windows,
    contract.multilabel,
    contract.regression,
    targets,
    nasty,
    contract.multiple_choice,
    entities,
    plain_labels,
    squad,
    squad_2,
    contract.own_relations,
    contract.own_retrieval,
]


def close(text, value):
    return float(text.replace(",", "")) == pytest.approx(value, rel=6e-3, abs=1e-9)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_page_is_self_contained_and_its_metrics_are_those_of_the_files(run, case):
    out, results, page = run(case)
    assert page.tags <= TAGS
    assert not re.search(r"url\(|@|http", page.html.partition("</style>")[0].replace("@media", ""))
    assert {*re.findall(r'(?:xlink:href="|url\()(#|data:|.)', page.html)} <= {"#", "data:"}
    numbers = {n: x for n, x in results.items() if isinstance(x, int | float)}
    shown = set()
    for names, text in page.column("Metrics", "value").items():
        interval = page.column("Metrics", "95% interval")[names]
        for name in names.split(", "):  # equal metrics share a row
            key = f"eval_{name}" if f"eval_{name}" in numbers else name
            shown.add(key)
            assert close(text, numbers[key]), name
            if interval:
                low, high = map(float, re.fullmatch(r"(.+?)–(.+)", interval).groups())
                assert low - 6e-3 * abs(low) <= numbers[key] <= high + 6e-3 * abs(high), name
    # Of two losses, the page shows that of the rows.
    assert numbers.keys() - shown == {"global_step", *["loss"][: "eval_loss" in numbers]}
    assert ["step", str(numbers["global_step"])] in page.tables["Run"]
    assert re.findall(r'a href="#(.*?)"', page.html) == re.findall(r'section id="(.*?)"', page.html)
    assert 'All rows are in <a href="eval_predictions.tsv">' in page.html
    rows = read_rows(out / "eval_predictions.tsv")
    losses = [float(row["loss"]) for row in rows if "loss" in row]
    assert losses == sorted(losses, reverse=True)
    data = page.column("Data", "evaluation")
    counts = json.loads((out / "records.json").read_text())["eval.tf_record"]["about"]
    assert close(data["model inputs"], counts["records"])
    assert int(data["rows"]) == len(rows)
    assert close(data["tokens"], counts["tokens"])
    assert close(data["truncated rows"], counts["cut_examples"])


def test_each_metric_has_its_own_interval():
    losses = np.array([1.0, 2.0, 3.0, 9.0])
    report = EvaluationReport(columns={"text": [*"abcd"]}, losses=losses)
    for metrics, name in (({"eval_loss": 3.75, "loss": 5.5}, "eval_loss"), ({"loss": 5}, "loss")):
        html = evaluation_page("", {}, [], RunFolder(""), None, metrics, report, "x.tsv")
        rows = re.findall(r'<td class="">loss</td><td class="number">(.*?)</td>', html)
        assert [float(x) for x in rows] == [metrics[name]]


def test_formulas_are_text_in_spreadsheets():
    formulas = ["=1+1", "+1 for it", "-2+3", "@SUM(1)", "\uff1d1+1", "\t=1"]
    texts = ["good", "", "-", "-5", "+1e3"]
    report = EvaluationReport(columns={"text": [*formulas, *texts], "number": [-1.5] * 11})
    rows = list(csv.reader(report.table().splitlines(), delimiter="\t"))[1:]
    expected = [*(f" {formula.strip()}" for formula in formulas), *texts]
    assert rows == [[text, "-1.5"] for text in expected]


@pytest.mark.parametrize("case", [contract.classification, contract.windows, nasty])
def test_classification(run, case):
    out, results, page = run(case)
    rows = read_rows(out / "eval_predictions.tsv")
    labels = sorted({row["label"] for row in rows})
    _, *matrix = page.tables["Confusion matrix"]
    assert [row[0] for row in matrix] == labels
    assert [[int(cell) for cell in row[1:]] for row in matrix] == results["confusion_matrix"]
    for label, scores in results["labels"].items():
        for name in ("precision", "recall", "f1", "support"):
            assert close(page.column("By label", name)[label], scores[name])
    _check_mistakes(page, _wrong(rows), ["id", "label", "prediction"])
    names = [name for name in rows[0] if name.startswith("probability_")]
    highest = np.max([[float(row[name]) for name in names] for row in rows], axis=1)
    right = np.array([row["label"] == row["prediction"] for row in rows])
    _check_calibration(page, highest, right)
    losses = [-np.log(float(row[f"probability_{row['label']}"])) for row in rows]
    if case is contract.classification:
        assert [float(row["loss"]) for row in rows] == pytest.approx(losses, rel=1e-4)
    counts = page.column("Data", "evaluation")
    for label in labels:
        assert int(counts[f"label {label}"]) == sum(row["label"] == label for row in rows)


def _wrong(rows):
    return [row for row in rows if row["label"] != row["prediction"]]


def _check_mistakes(page, rows, columns):
    header, *shown = page.tables.get("Mistakes", [[]])
    assert len(shown) == min(len(rows), 25)
    for cells, row in zip(shown, rows, strict=False):
        found = dict(zip(header, cells, strict=True))
        for name in columns:
            assert found[name] == row[name]
        if "loss" in row:
            assert close(found["loss"], float(row["loss"]))


def _check_calibration(page, probabilities, right):
    bins = np.minimum((probabilities * 10).astype(int), 9)
    gaps = [
        abs(probabilities[bins == n].mean() - right[bins == n].mean()) * (bins == n).mean()
        for n in set(bins)
    ]
    error = re.search(r"calibration error: ([\d.e-]+)", page.texts["Calibration"])[1]
    assert float(error) == pytest.approx(sum(gaps), rel=1e-3, abs=1e-4)


def test_markup_in_texts_is_text(run):
    out, _, page = run(nasty)
    assert "alert" in page.texts["Mistakes"]
    assert "<script" not in page.html
    assert read_rows(out / "eval_predictions.tsv")[0]["text"].startswith("<script>alert")


def test_multilabel(run):
    out, results, page = run(contract.multilabel)
    rows = read_rows(out / "eval_predictions.tsv")
    labels = [n.removeprefix("probability_") for n in rows[0] if n.startswith("probability_")]
    probabilities = np.array([[float(row[f"probability_{n}"]) for n in labels] for row in rows])
    true = np.array([[n in row["label"].split(",") for n in labels] for row in rows])
    assert results["eval_accuracy"] == ((probabilities >= 0.5) == true).all(axis=1).mean()
    for label, scores in results["labels"].items():
        assert close(page.column("By label", "f1")[label], scores["f1"])
    _check_mistakes(page, _wrong(rows), ["id", "label"])
    _check_calibration(page, probabilities.ravel(), true.ravel())


def test_regression(run):
    for case, suffixes in ((contract.regression, [""]), (targets, ["_x", "_y"])):
        out, results, page = run(case)
        rows = read_rows(out / "eval_predictions.tsv")
        pairs = [(row[f"label{s}"], row[f"prediction{s}"]) for row in rows for s in suffixes]
        errors = [abs(float(label) - float(prediction)) for label, prediction in pairs]
        assert results["eval_mean_absolute_error"] == pytest.approx(np.mean(errors), rel=1e-4)
        _check_mistakes(page, rows, ["id"])
        assert page.html.count(">predicted ") == len(suffixes)


def test_multiple_choice(run):
    out, results, page = run(contract.multiple_choice)
    rows = read_rows(out / "eval_predictions.tsv")
    right = np.array([row["label"] == row["prediction"] for row in rows])
    assert results["eval_accuracy"] == right.mean()
    _check_mistakes(page, _wrong(rows), ["text", "label"])
    _check_calibration(page, np.array([float(row["probability"]) for row in rows]), right)


def test_entities(run):
    out, results, page = run(entities)
    for name, scores in results["entities"].items():
        for column in ("precision", "recall", "f1", "support"):
            assert close(page.column("By label", column)[name], scores[column])
    rows = read_rows(out / "eval_predictions.tsv")
    assert {row["label"] for row in rows} == {"good film (PER); it (LOC)", "it (LOC); fast (LOC)"}
    counts = [[int(cell) for cell in row[1:]] for row in page.tables["Confusion matrix"][1:]]
    assert np.sum(counts) == 28
    assert np.trace(counts) / 28 == pytest.approx(results["words"]["accuracy"])


def test_plain_labels(run):
    out, results, page = run(plain_labels)
    for name, scores in results["words"]["by_label"].items():
        assert close(page.column("By label", "f1")[name], scores["f1"])
    assert read_rows(out / "eval_predictions.tsv")[0]["label"] in (
        "the (D); film (N); was (V); it (P)",
        "the (D); film (N); was (V); it (P); it (P)",
    )


@pytest.mark.parametrize("case", [squad, squad_2])
def test_answers(run, case):
    out, results, page = run(case)
    rows = read_rows(out / "eval_predictions.tsv")
    name = "exact" if case is squad_2 else "exact_match"
    for metric in (name, "f1"):
        assert results[metric] == pytest.approx(np.mean([float(row[metric]) for row in rows]))
    predictions = json.loads((out / "predictions.json").read_text())
    n_best = json.loads((out / "nbest_predictions.json").read_text())
    for row in rows:
        assert row["prediction"] == predictions[row["id"]]
        found = {x["text"]: x["probability"] for x in n_best[row["id"]]}
        assert float(row["probability"]) == pytest.approx(found[row["prediction"]])
    groups = {"what": [0, 4], "who": [1], "other": [2], "how many": [3]}
    by_id = {int(row["id"]): float(row["f1"]) for row in rows}
    header, *table = page.tables["By question word"]
    assert header == ["", "rows", name, "f1"]
    assert {row[0]: int(row[1]) for row in table} == {n: len(x) for n, x in groups.items()}
    for group, _, _, f1 in table:
        assert close(f1, np.mean([by_id[number] for number in groups[group]]))
    assert ("By answer" in page.tables) == (case is squad_2)
    assert ("always no answer" in page.html) == (case is squad_2)
    _check_mistakes(page, [row for row in rows if not float(row[name])], ["id", "answers"])
    assert "the good film was not slow" in page.texts["Mistakes"]


def test_own_tasks_have_a_basic_report(run):
    out, _, page = run(contract.own_relations)
    rows = read_rows(out / "eval_predictions.tsv")
    assert len(rows) == 5
    assert rows[0].keys() >= {"text", "prediction", "loss"}
    _check_mistakes(page, rows, ["prediction"])


def _texts(page):
    """Returns the texts in charts."""
    return {*re.findall(r">([^<>]+)</text>", page.html)}


def test_curve_and_epochs(run):
    out, _, page = run(contract.classification, eval_every="1", num_train_epochs=4.0)
    content = json.loads((out / "evaluations.json").read_text())
    best = content["best"]
    text = page.texts["Training"]
    epoch = best["step"] / (5 / 4)
    expected = f"best eval_accuracy: {best['eval_accuracy']:#.3g} at step {best['step']}"
    assert f"{expected}, epoch {epoch:.3g}" in text
    assert "step 5, epoch 4" in text
    assert {"loss", "running mean", "eval_loss", "eval_accuracy"} <= _texts(page)


def test_losses_share_an_axis_in_tasks_without_eval_loss(run):
    out, _, page = run(entities, eval_every="1", num_train_epochs=2.0)
    best = json.loads((out / "evaluations.json").read_text())["best"]
    assert f"best f1: {best['f1']:#.3g} at step {best['step']}" in page.texts["Training"]
    assert {"loss", "running mean", "f1"} <= _texts(page)


def test_several_runs(tiny, tmp_path):
    out = tmp_path / "out"
    results = bert_tf.run(contract.classification(flags(tiny, out, num_runs=2), tmp_path))
    assert [path.rpartition("/")[2] for path in results.files] == ["runs.json", "report.html"]
    page, summary = Page(out / "report.html"), json.loads((out / "runs.json").read_text())
    heading = "Spread of the metrics"
    for name, mean in summary["mean"].items():
        assert close(page.column(heading, "mean")[name], mean)
        assert close(page.column(heading, "deviation")[name], summary["deviation"][name])
        for run in summary["runs"]:
            assert close(page.column(heading, run["folder"])[name], run[name])
    assert f"The best run is {summary['best']['folder']}" in page.texts[heading]
    assert 'href="run_2/report.html"' in page.html
    assert page.tags <= TAGS | {"a", "href"}
    for run in summary["runs"]:
        values = Page(out / run["folder"] / "report.html").column("Metrics", "value")
        (accuracy,) = (x for names, x in values.items() if "accuracy" in names.split(", "))
        assert close(accuracy, run["eval_accuracy"])


def test_report_can_be_left_out(tiny, tmp_path):
    out = tmp_path / "out"
    results = bert_tf.run(contract.classification(flags(tiny, out, report=False), tmp_path))
    names = {path.rpartition("/")[2] for path in results.files}
    assert names == {"eval_results.txt", "eval_results.json", "confusion_matrix.png"}
    names = {path.name for path in out.iterdir()}
    assert not names & {"report.html", "eval_predictions.tsv"}


def test_size_does_not_grow_with_the_rows(tmp_path):
    rng, size = np.random.default_rng(1), 10_000
    true, predicted = rng.integers(20, size=(2, size))
    report = EvaluationReport(
        columns={"text": [f"{'word ' * 2000}{n}" for n in range(size)], "label": true},
        losses=rng.random(size),
        is_wrong=true != predicted,
        labels=[f"label {n}" for n in range(20)],
        counts=Counts.of_classes(true, predicted, np.arange(size)),
        confusion=(true, predicted),
        confidence=(rng.random(size), true == predicted),
        numbers=(true[:, None], predicted[:, None]),
    )
    (tmp_path / "training_curve.tsv").write_text(
        "step\tloss\tlearning_rate\n" + "".join(f"{n}\t{1 / n}\t0.1\n" for n in range(1, 100_000))
    )
    folder = RunFolder(str(tmp_path))
    html = evaluation_page("10,000 rows", {}, [], folder, None, {"accuracy": 0.05}, report, "x.tsv")
    assert len(html.encode()) < 1e6
    (tmp_path / "report.html").write_text(html)
    assert len(Page(tmp_path / "report.html").tables["Mistakes"]) == 26


TRUE = np.repeat([0, 1], [6, 4])
ROWS = np.arange(10)
NUMBERS = np.arange(10.0)[:, None]


def classes(predicted, **more):
    return {
        "counts": Counts.of_classes(TRUE, predicted, ROWS),
        "labels": ["a", "b"],
        "is_wrong": predicted != TRUE,
        **more,
    }


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        (
            classes(np.repeat([0, 1], [7, 3]), confusion=(TRUE, TRUE)),
            r"9 of 10 rows right \(70 to 100 %\); always the most frequent label: 60 %",
        ),
        (
            classes(np.zeros(10, int), confusion=(TRUE, TRUE)),
            r"6 of 10 rows right \(.*: 60 %\. The model is no better\.",
        ),
        (
            {
                "counts": Counts(*np.zeros((3, 2, 0), int)),
                "labels": ["a"],
                "confusion": (ROWS[:0], ROWS[:0]),
            },
            "0 of 0 rows right",
        ),
        # Of entities, the confusion matrix counts words.
        (
            classes(TRUE, confusion=(np.zeros(30, int),) * 2, unit="entities"),
            "10 of 10 entities right",
        ),
        (
            {
                "counts": Counts(*(np.array([ROWS[:n], TRUE[:n]]) for n in (10, 4, 3))),
                "labels": ["a", "b"],
                "unit": "labels",
            },
            r"3 of 10 labels found \(.*\); 75 % of the 4 predicted ones are right",
        ),
        (
            {"is_wrong": ROWS > 4, "unit": "answers", "baseline": ("always no answer", 0.5, "")},
            r"5 of 10 answers right \(20 to 80 %\); always no answer: 50 %\. The model is .*",
        ),
        (
            {
                "values": {"mean_absolute_error": np.ones(10)},
                "baseline": ("always the mean", 2.5, "mean_absolute_error"),
            },
            r"mean absolute error: 1 \(1 to 1\); always the mean: 2\.5",
        ),
        (
            {"numbers": (NUMBERS, -NUMBERS), "baseline": ("chance", 0.0, "spearman")},
            r"spearman: -1 \(-1 to -1\); chance: 0\. The model is no better\.",
        ),
        (
            {
                "is_wrong": ROWS > 4,
                "unit": "top results",
                "values": {"mrr@10": np.full(10, 0.5)},
                "baseline": ("first stage", 0.25, "mrr@10"),
            },
            r"5 of 10 top results right \(.*\); mrr@10: 0\.5 \(0\.5 to 0\.5\); first stage: 0\.25",
        ),
        ({}, ""),
    ],
)
def test_headline(report, expected):
    report = EvaluationReport(columns={"text": [""] * 10}, **report)
    sentence = statistics.headline(report, statistics.intervals(report)[0])
    assert re.fullmatch(expected, sentence)
    html = evaluation_page("", {}, [], RunFolder(""), None, {}, report, "x.tsv")
    assert sentence.replace(" %", "&nbsp;%") in html


def test_mistakes_name_the_table_and_cut_long_texts():
    texts = ["x" * 2000, "y" * 2001]
    for is_wrong in ([True, True], [False, False]):
        report = EvaluationReport(columns={"text": texts}, is_wrong=np.array(is_wrong))
        html = evaluation_page("", {}, [], RunFolder(""), None, {}, report, "a 'b'.tsv")
        assert html.count("x</details>") == html.count("y…</details>") == is_wrong.count(True) / 2
        assert 'All rows are in <a href="a%20%27b%27.tsv">a &#x27;b&#x27;.tsv</a>' in html
        assert ("No row is wrong" in html) == (not any(is_wrong))


def test_intervals_cover_the_true_value():
    """Of 100 samples of 200 rows with an accuracy of 0.7, about 95 intervals contain 0.7."""
    rng = np.random.default_rng(5)
    covered = 0
    for _ in range(100):
        right = rng.random(200) < 0.7
        report = EvaluationReport(columns={"text": [""] * 200}, values={"accuracy": right})
        low, high = statistics.intervals(report)[0]["accuracy"]
        covered += low <= 0.7 <= high
    assert 88 <= covered <= 100


def test_correlations_of_repeated_rows():
    """Weights have the same effect as repeating rows."""
    from scipy import stats

    rng = np.random.default_rng(2)
    true, predicted = rng.integers(5, size=(2, 50)).astype(float)
    weights = rng.integers(3, size=50)
    report = EvaluationReport(numbers=(true[:, None], predicted[:, None]))
    found = statistics.metrics(report, weights.astype(float))
    repeated = [np.repeat(x, weights) for x in (true, predicted)]
    assert found["pearson"] == pytest.approx(stats.pearsonr(*repeated).statistic)
    assert found["spearman"] == pytest.approx(stats.spearmanr(*repeated).statistic)


def test_label_metrics_are_those_of_scikit_learn():
    from bert_tf.tasks.classification.metrics import classification_metrics

    rng = np.random.default_rng(2)
    for num_labels in (2, 5):
        probabilities = rng.random((60, num_labels))
        true, predicted = rng.integers(num_labels, size=60), probabilities.argmax(axis=1)
        expected = classification_metrics(probabilities, true, np.zeros(60))
        report = EvaluationReport(
            columns={"text": [""] * 60},
            losses=np.zeros(60),
            labels=[*map(str, range(num_labels))],
            counts=Counts.of_classes(true, predicted, np.arange(60)),
            positive=1 if num_labels == 2 else None,
        )
        found = statistics.metrics(report, np.ones(60))
        for name, value in expected.items():
            assert found[name.removeprefix("eval_")] == pytest.approx(value, rel=1e-5, abs=1e-7)


def test_damaged_files_of_the_training(run, tmp_path):
    out, _, _ = run(contract.classification, eval_every="1", num_train_epochs=4.0)
    shutil.copytree(out, tmp_path / "copy")
    for name in ("evaluations.json", "training_curve.tsv"):
        (tmp_path / "copy" / name).write_text("damaged")
        folder = RunFolder(str(tmp_path / "copy"))
        args = [], folder, None, {"loss": 1.0}, EvaluationReport(), "eval_predictions.tsv"
        html = evaluation_page("t", {}, *args)
        assert ("<h2>Training</h2>" in html) == (name == "evaluations.json")
        assert "best eval_accuracy" not in html
