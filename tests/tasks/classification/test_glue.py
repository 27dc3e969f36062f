"""GLUE TSV files: parity with the original readers, and errors about invalid files."""

import json
import re
from dataclasses import asdict
from pathlib import Path

import pytest

from bert_tf.base.errors import UserError
from bert_tf.compat.run_classifier import InputExample, convert_examples_to_features
from bert_tf.tables.read import LAST
from bert_tf.tasks.classification.glue import TASKS, GlueDataset, Split, TsvTask, task_named
from tests.data import Words
from tests.oracle import data, golden

ORIGINAL = ("cola", "mnli", "mrpc", "xnli")
SPLITS = [(task, split) for task in ORIGINAL for split in TASKS[task].splits]


def read_examples(task, split, folder):
    return GlueDataset(task, folder).read({"dev": "eval", "test": "predict"}.get(split, split))


@pytest.fixture
def write(tmp_path):
    """Writes the file of a split and returns its folder."""

    def write(task: str, split: str, content: str | bytes) -> str:
        path: Path = tmp_path / TASKS[task].splits[split].file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(tmp_path)

    return write


# ---- Parity with the original --------------------------------------------------------------


@pytest.mark.parametrize(("task", "split"), SPLITS)
def test_examples_match_the_original(task, split):
    expected = json.loads(golden("classifier/examples.json").read_text("utf-8"))[task]
    folder = str(golden(f"classifier/data/{task}"))
    assert list(TASKS[task].labels) == expected["labels"]
    assert [asdict(e) for e in read_examples(TASKS[task], split, folder)] == expected[split]


EDGE_CASES = [
    "too few columns",
    "blank line",
    "empty file",
    "header only",
    "unknown label",
    "label with CR is fine (GFile drops CR)",
    "mnli dash label",
    "invalid utf-8",
    "NUL byte",
    "field larger than 131072",
    "xnli has no test reader",
    "label with trailing space",
    "extra columns",
    "xnli contradictory",
    "quotes are literal and a newline ends the row",
]


def edge_cases() -> dict[str, dict]:
    cases = json.loads(golden("classifier/edge_cases.json").read_text("utf-8"))["errors"]
    return {case["name"]: case for case in cases}


def test_all_edge_cases_are_covered():
    assert set(edge_cases()) <= set(EDGE_CASES)


@pytest.mark.parametrize("name", EDGE_CASES)
def test_edge_cases_match_the_original(write, tmp_path, name):
    case = edge_cases()[name]
    if name == "field larger than 131072":
        content = b"s0\t1\t\t" + b"x" * 140_000 + b"\n"
    else:
        content = bytes.fromhex(case["file_bytes_hex"])
    task = TASKS[case["task"]]
    if case["split"] in task.splits:
        write(task.name, case["split"], content)

    def read_and_convert() -> int:
        examples = read_examples(task, case["split"], str(tmp_path))
        return len(convert_examples_to_features(examples, task.labels, 16, Words()))

    if name == "NUL byte":  # Python 3.11, where the original accepts it too
        assert read_and_convert() == 1
    elif case["result"] == "ok":
        assert read_and_convert() == case["num_examples"]
    else:
        with pytest.raises(UserError):
            read_and_convert()


# ---- Published datasets ----------------------------------------------------------------------


@pytest.mark.shared
@pytest.mark.parametrize(
    ("task", "folder", "counts"),
    [
        ("cola", "CoLA", {"train": 8551, "dev": 1043, "test": 1063}),
        ("mrpc", "MRPC", {"train": 3668, "dev": 408, "test": 1725}),
        ("rte", "RTE", {"train": 2490, "dev": 277, "test": 3000}),
        ("sts-b", "STS-B", {"train": 5749, "dev": 1500, "test": 1379}),
        ("sst-2", "SST-2", {"train": 67349, "dev": 872, "test": 1821}),
        ("wnli", "WNLI", {"train": 635, "dev": 71, "test": 146}),
    ],
)
def test_published_datasets_are_read_completely(task, folder, counts):
    path = str(data(f"glue/{folder}"))
    examples = {split: read_examples(TASKS[task], split, path) for split in counts}
    assert {split: len(rows) for split, rows in examples.items()} == counts
    for rows in examples.values():
        assert len({example.guid for example in rows}) == len(rows)
        assert all(example.text_a.strip() for example in rows)


@pytest.mark.shared
def test_known_rows_of_cola():
    path = str(data("glue/CoLA"))
    train = read_examples(TASKS["cola"], "train", path)
    assert (train[0].guid, train[0].label) == ("train-0", "1")
    assert train[0].text_a.startswith("Our friends won't buy this analysis")
    assert (train[8550].guid, train[8550].label) == ("train-8550", "1")
    assert train[8550].text_a == "What all did you get for Christmas?"
    dev = read_examples(TASKS["cola"], "dev", path)
    assert dev[-1] == InputExample("dev-1042", "John talked to Bill about himself.", None, "1")
    test = read_examples(TASKS["cola"], "test", path)
    assert test[0] == InputExample("test-1", "Bill whistled past the house.", None, "0")


@pytest.mark.shared
def test_known_rows_of_mrpc():
    path = str(data("glue/MRPC"))
    dev = read_examples(TASKS["mrpc"], "dev", path)
    assert (dev[0].guid, dev[0].label) == ("dev-1", "1")
    assert dev[0].text_a.startswith("He said the foodservice pie business")
    assert dev[0].text_b == (
        '"The foodservice pie business does not fit our long-term growth strategy.'
    )
    test = read_examples(TASKS["mrpc"], "test", path)
    assert (test[-1].guid, test[-1].label) == ("test-1725", "0")
    assert test[-1].text_a.startswith("Sobig.F spreads when unsuspecting computer users")


@pytest.mark.shared
def test_known_rows_of_other_datasets():
    sst = str(data("glue/SST-2"))
    text = "it 's a charming and often affecting journey . "
    assert read_examples(TASKS["sst-2"], "dev", sst)[0] == InputExample("dev-1", text, None, "1")
    first = read_examples(TASKS["sst-2"], "test", sst)[0]
    assert first == InputExample("test-0", "uneasy mishmash of styles and genres .", None, "0")
    rte = read_examples(TASKS["rte"], "dev", str(data("glue/RTE")))
    assert (rte[0].guid, rte[0].label) == ("dev-0", "not_entailment")
    assert rte[0].text_b == "Christopher Reeve had an accident."
    assert {example.label for example in rte} == {"entailment", "not_entailment"}
    wnli = read_examples(TASKS["wnli"], "train", str(data("glue/WNLI")))
    assert (wnli[0].text_b, wnli[0].label) == ("The carrot had a hole.", "1")


# Small files in the layout of the GLUE datasets that tests do not read.
OTHER_LAYOUTS = [
    ("qqp", "train", "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n7\t1\t2\ta?\tb?\t1\n"),
    ("qqp", "test", "id\tquestion1\tquestion2\n7\ta?\tb?\n"),
    ("qnli", "dev", "index\tquestion\tsentence\tlabel\n7\ta?\tb?\tnot_entailment\n"),
    ("qnli", "test", "index\tquestion\tsentence\n7\ta?\tb?\n"),
    ("mnli-mm", "dev", "h\n7" + "\t-" * 7 + "\ta?\tb?" + "\t-" * 5 + "\tneutral\n"),
    ("mnli-mm", "test", "h\n7" + "\t-" * 7 + "\ta?\tb?\n"),
    ("ax", "test", "index\tsentence1\tsentence2\n7\ta?\tb?\n"),
]


@pytest.mark.parametrize(("task", "split", "content"), OTHER_LAYOUTS)
def test_glue_layouts(write, task, split, content):
    (example,) = read_examples(TASKS[task], split, write(task, split, content))
    assert (example.text_a, example.text_b) == ("a?", "b?")
    assert example.guid.endswith("-7")
    labels = {"qqp": "1", "qnli": "not_entailment", "mnli-mm": "neutral"}
    assert example.label == (TASKS[task].labels[0] if split == "test" else labels[task])


def test_mismatched_datasets_have_separate_files():
    files = {split: columns.file for split, columns in TASKS["mnli-mm"].splits.items()}
    expected = {"dev": "dev_mismatched.tsv", "test": "test_mismatched.tsv"}
    assert files == {"train": "train.tsv", **expected}


@pytest.mark.shared
def test_regression_datasets_are_registered():
    sts = TASKS["sts-b"]
    examples = read_examples(sts, "dev", str(data("glue/STS-B")))
    features = convert_examples_to_features(examples, sts.labels, 32, Words())
    scores = [feature.label_id for feature in features]
    assert len(scores) == 1500
    assert min(scores) == 0.0
    assert max(scores) == 5.0


# ---- Errors that the original does not report ----------------------------------------------


@pytest.mark.parametrize("name", ["cola", "CoLA", "COLA"])
def test_task_names_are_case_insensitive(name):
    assert task_named(name) is TASKS["cola"]


def test_unknown_task_error_lists_known_tasks():
    with pytest.raises(UserError, match=rf"--task_name .*{', '.join(sorted(TASKS))}.*'sst'"):
        task_named("sst")


def test_missing_folder_or_file(write, tmp_path):
    path = str(write("cola", "train", "s\t1\t\tx\n"))
    for task, split, folder, message in [
        ("cola", "train", f"{path}/CoLA", rf"{path}/CoLA.*has: train\.tsv\)"),
        ("cola", "train", f"{path}/train.tsv", rf"no folder {path}/train.tsv; .* has: train"),
        ("mnli", "dev", path, r"No such file: .*dev_matched\.tsv .*has: train\.tsv\)"),
    ]:
        with pytest.raises(UserError, match=message):
            read_examples(TASKS[task], split, folder)


def test_error_messages_keep_paths_as_passed(write, monkeypatch):
    monkeypatch.chdir(write("cola", "train", "s\t1\t\tfine\nnot a row\n"))
    with pytest.raises(UserError, match=r"^\./train\.tsv:2: task cola"):
        read_examples(TASKS["cola"], "train", ".")


@pytest.mark.parametrize(
    ("task", "split", "header", "missing_column"),
    [
        ("mrpc", "train", "1\t7\t8\ta\tb\n", "#1 String"),
        ("sst-2", "test", "0\tfine\n", "sentence"),
        ("ax", "test", "0\ta\tb\n", "sentence1"),
        ("xnli", "train", "a\tb\tcontradictory\n", "premise"),
        ("qnli", "train", "index\tsentence1\tsentence2\tlabel\n", "question"),
        ("qqp", "train", "id\tqid1\tqid2\tsentence1\tsentence2\tlabel\n", "question1"),
        ("rte", "train", "index\tsentence1\tsentence2\tlabel\n", None),
        ("mrpc", "test", "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n", None),
        ("qnli", "train", "index\tquestion\tSentence \tlabel\n", None),
        ("rte", "train", "\n", None),
    ],
)
def test_header_of_another_task_or_none_warns(write, caplog, task, split, header, missing_column):
    assert read_examples(TASKS[task], split, write(task, split, header)) == []
    message = f"tsv:1: expected a header with {missing_column!r} as column "
    assert len(caplog.messages) == bool(missing_column)
    assert all(message in text for text in caplog.messages)


def test_xnli_has_no_test_set(tmp_path):
    with pytest.raises(UserError, match=r"no test set, only train, dev"):
        read_examples(TASKS["xnli"], "test", str(tmp_path))


@pytest.mark.parametrize(
    ("task", "split", "content", "message"),
    [
        ("cola", "train", "s\t1\t\tx\ns\t2\t\tx\n", "2: label '2' of task cola is not one of 0, 1"),
        ("cola", "dev", "s\t1 \t\tx\n", "1: label '1 ' of task cola is not one of 0, 1"),
        (
            "cola",
            "train",
            "source\tlabel\tx\tsentence\n",
            "1: label 'label' of task cola is not one of",
        ),
        (
            "mrpc",
            "train",
            "Quality\nQuality\ta\tb\tc\td\n",
            "2: label 'Quality' of task mrpc is not one",
        ),
        ("mrpc", "train", "header\n1\ta\tb\tc\n", "(label: 1, first text: 4, second"),
        ("mnli", "test", "header\n1\ta\n", "(id: 1, first text: 9, second text: 10)"),
        ("xnli", "dev", "header\nzh\tneutral\n", "task xnli needs 8 columns"),
        ("rte", "dev", "h\na,b\n", "(id: 1, label: last, first text: 2, second text: 3)"),
        ("xnli", "dev", "h\nzh\tcontradictory" + "\t" * 6 + "\n", "2: label 'contradictory'"),
    ],
)
def test_invalid_lines(write, task, split, content, message):
    folder = write(task, split, content)
    with pytest.raises(UserError, match=re.escape(message)):
        read_examples(TASKS[task], split, folder)


def test_regression_labels_must_be_numbers(tmp_path):
    split = Split(file="dev.tsv", text_a=0, label=LAST, guid_prefix="dev")
    sts = TsvTask("sts-b", (), {"dev": split})
    for label in ("high", "nan", ""):
        (tmp_path / "dev.tsv").write_text(f"text\tscore\na\t3.5\nb\t{label}\n")
        with pytest.raises(UserError, match=f"dev.tsv:3: label '{label}' .* is not a number"):
            read_examples(sts, "dev", str(tmp_path))


def test_rows_in_other_languages_are_not_validated(write):
    folder = write("xnli", "dev", "header\nen\nfr\tx\n\nzh\tneutral\t\t\t\t\ta\tb\nde\n")
    examples = read_examples(TASKS["xnli"], "dev", folder)
    assert examples == [InputExample("dev-4", "a", "b", "neutral")]


@pytest.mark.parametrize(("task", "split"), SPLITS)
def test_line_endings_boms_and_blank_lines_are_ignored(tmp_path, task, split):
    original = golden(f"classifier/data/{task}") / TASKS[task].splits[split].file
    clean = original.read_bytes().replace(b"\r", b"").removeprefix(b"\xef\xbb\xbf")
    variants = {
        "plain": clean,
        "bom": b"\xef\xbb\xbf" + clean,
        "crlf": clean.replace(b"\n", b"\r\n"),
        "blank lines": clean + b"\n\n\r\n",
        "no line end": clean.removesuffix(b"\n"),
    }
    expected = read_examples(TASKS[task], split, str(golden(f"classifier/data/{task}")))
    for name, content in variants.items():
        path = tmp_path / name / TASKS[task].splits[split].file
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
        assert read_examples(TASKS[task], split, str(tmp_path / name)) == expected, name


@pytest.mark.shared
@pytest.mark.parametrize("folder", ["CoLA", "MRPC", "RTE", "SST-2", "STS-B", "WNLI"])
def test_published_headers_do_not_warn(caplog, folder):
    task = task_named(folder)
    for split in task.splits:
        read_examples(task, split, str(data(f"glue/{folder}")))
    assert not caplog.messages
