"""Custom datasets: inferred columns and labels, examples, and errors."""

import gzip
import json
import logging
import os
import re

import pytest

from bert_tf.base.errors import UserError
from bert_tf.data.features import InputExample
from bert_tf.options.declare import check_values
from bert_tf.tasks.classification.custom_dataset import CustomDataset
from bert_tf.tasks.classification.options import ClassifierOptions
from tests.oracle import data
from tests.tasks.classification.bad_tables import (
    BAD_FILES,
    BY_NAME,
    BY_NUMBER,
    TRAIN,
    dataset_from_flags,
    split_files,
    write_files,
)

HEADER = "id\tlabel\ttext\n" + "1\tham\tgood\n2\tspam\tbad\n" * 2


TOXIC = "id,comment_text,toxic,insult\n1,you are kind,0,0\n2,you are bad,1,1\n3,bad,1,0\n"
NO_HELD_OUT_ROWS = {"dev_fraction": "0"}
COLUMNS = NO_HELD_OUT_ROWS | {"text_column": "comment_text", "label_column": "toxic,insult"}


@pytest.fixture
def read_dataset(tmp_path, caplog):
    """Writes files, e.g. `train_tsv=...`, and returns the dataset."""
    caplog.set_level(logging.INFO, "bert_tf")

    def read(flags, **contents: str | bytes) -> CustomDataset:
        for name, content in contents.items():
            raw = content.encode() if isinstance(content, str) else content
            (tmp_path / name.replace("_", ".")).write_bytes(raw)
        return dataset_from_flags(tmp_path, flags)

    return read


def json_rows(*labels):
    return "".join(json.dumps({"text": "x", "label": label}) + "\n" for label in labels)


def label_text_pairs(examples):
    return [(example.label, example.text_a) for example in examples]


@pytest.mark.parametrize("case", BAD_FILES, ids=lambda case: case.message)
def test_invalid_files_raise_one_line_errors(tmp_path, case):
    write_files(tmp_path, case.files)
    with pytest.raises(UserError, match=case.message) as caught:
        dataset_from_flags(tmp_path, case.flags).read(case.split)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


# ---- File formats --------------------------------------------------------------------------

EXAMPLES = [("ham", "A good film, it was"), ("spam", 'A "bad" plot'), ("ham", "Not; fast")]
EXAMPLES_TSV = "".join(f"{label}\t{text}\n" for label, text in EXAMPLES)
EXAMPLES_CSV = 'ham,"A good film, it was"\nspam,"A ""bad"" plot"\nham,Not; fast\n'
EXAMPLES_QUOTED = "".join(f'"{x}"\t"{y.replace(chr(34), chr(34) * 2)}"\n' for x, y in EXAMPLES)
EXAMPLES_JSON = "".join(
    json.dumps({"text": text, "label": label}) + "\n" for label, text in EXAMPLES
)


@pytest.mark.parametrize(
    ("flags", "file"),
    [
        (BY_NUMBER, {"train_tsv": EXAMPLES_TSV}),
        (BY_NUMBER | {"has_header": "yes"}, {"train_txt": "\ufeffClass\tText\r\n" + EXAMPLES_TSV}),
        (BY_NUMBER, {"train_csv": EXAMPLES_CSV}),
        (BY_NUMBER | {"has_header": "yes"}, {"train_csv": "label,text\n" + EXAMPLES_CSV}),
        (BY_NAME, {"train_jsonl": EXAMPLES_JSON}),
        (BY_NAME, {"train_ndjson_gz": gzip.compress(EXAMPLES_JSON.encode(), mtime=0)}),
        (BY_NAME, {"train_tsv": "label\ttext\n" + EXAMPLES_QUOTED}),
        (BY_NUMBER, {"train_json": json.dumps({"val": [], "train": EXAMPLES})}),
    ],
)
def test_file_formats(read_dataset, flags, file):
    dataset = read_dataset(flags | NO_HELD_OUT_ROWS, **file)
    assert (dataset.problem_type, dataset.labels) == ("classification", ("ham", "spam"))
    assert label_text_pairs(dataset.read("train")) == EXAMPLES
    assert [example.guid for example in dataset.read("train")] == ["train-0", "train-1", "train-2"]


def test_text_pairs_and_ids(read_dataset):
    flags = {"id_column": "id", "text_column": "a", "text_pair_column": "b", "label_column": "y"}
    train = 'b,a,y\n"two\nlines",one,1\n4,3,0\n'
    dev = "id,b,a,y\nx,4,3,0\nx,6,5,0\n"
    dataset = read_dataset(flags, train_csv=train, dev_csv=dev, test_csv="b,a,id\n4,3,x8\n")
    assert dataset.read("train") == [
        InputExample("train-0", "one", "two\nlines", "1"),
        InputExample("train-1", "3", "4", "0"),
    ]
    # Only predictions use ids, so other splits may repeat them.
    assert [example.guid for example in dataset.read("eval")] == ["dev-0", "dev-1"]
    assert dataset.read("predict") == [InputExample("x8", "3", "4")]


def test_json_values_that_are_not_strings(read_dataset):
    rows = json_rows(True, False).replace('"x"', "1.0")
    dataset = read_dataset(BY_NAME | NO_HELD_OUT_ROWS, train_jsonl=rows)
    assert label_text_pairs(dataset.read("train")) == [("true", "1"), ("false", "1")]


# ---- Column names --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "labels"),
    [
        ("Label\tSMS\n" + TRAIN.decode(), ["Label", "ham", "spam"]),
        ("y\tx\n" + TRAIN.decode(), ["ham", "spam", "y"]),
        (TRAIN.decode(), ["ham", "spam"]),
    ],
)
def test_header_is_data_if_columns_have_numbers(read_dataset, caplog, rows, labels):
    dataset = read_dataset(BY_NUMBER | NO_HELD_OUT_ROWS, train_tsv=rows)
    assert sorted(dataset.labels) == labels
    assert caplog.text.count("train.tsv:1: looks like a header") == len(labels) - 2


# Columns and files of a split, and the id of its only row.
@pytest.mark.parametrize(
    ("flags", "test", "guid"),
    [
        (BY_NUMBER | {"has_header": "yes"}, "?\tx\n?\tc\n", "test-0"),
        (BY_NAME, "text\nc\n", "test-0"),
        (BY_NAME, "id\ttext\n1\tc\n", "test-0"),
        # The label's name says that all files have a header.
        (BY_NUMBER | {"label_column": "label"}, "?\tx\n?\tc\n", "test-0"),
        (BY_NUMBER | {"label_column": "label", "text_column": "2,predict:1"}, "c\n", "test-0"),
        (BY_NAME | {"text_column": "text,predict:body"}, "id\tbody\n1\tc\n", "test-0"),
        (
            {"text_column": "2,predict:3", "label_column": "1", "id_column": "1"}
            | {"has_header": "yes,predict:no"},
            "7\tx\tc\n",
            "7",
        ),
    ],
)
def test_columns_and_header_of_the_test_file(read_dataset, caplog, flags, test, guid):
    dataset = read_dataset(flags, train_tsv=b"label\ttext\n" + TRAIN, test_tsv=test)
    assert dataset.read("predict") == [InputExample(guid, "c")]
    assert "WARNING" not in caplog.text


def test_other_columns_in_one_split(read_dataset):
    message = "there is no column 'text'.* If only this file differs, add ,predict:NAME to the flag"
    train = b"label\ttext\n" + TRAIN
    with pytest.raises(UserError, match=message):
        read_dataset(BY_NAME, train_tsv=train, test_csv="id,body\n1,x\n").read("predict")
    with pytest.raises(UserError, match="--has_header must be one of auto, yes, no"):
        check_values(ClassifierOptions(has_header="auto,predict:maybe"))


# ---- Labels --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cells", "flags", "labels"),
    [
        (["10", "2", "-1", "2"], {}, ("-1", "2", "10")),
        (["1.0", "0.0", "1.0"], {}, ("0.0", "1.0")),
        (["b", " a", "B "], {}, ("B", "a", "b")),
        (["1.5", "2", "-.25e1"], {}, None),  # a regression
        (["1.5", "a", "b"], {}, ("1.5", "a", "b")),
        (["1_0", "2"], {}, ("1_0", "2")),
        (["1", "2", "many"], {}, ("1", "2", "many")),
        (["1,2", "x", "none"], {}, ("1,2", "none", "x")),
        (["0,5", "1.0", "nan"], {"problem_type": "classification"}, ("0,5", "1.0", "nan")),
        (["0.5", "1", "2.5"], {"labels": "2.5,0.5,1"}, ("2.5", "0.5", "1")),
        (["spam", "ham"], {"labels": "spam,eggs,ham"}, ("spam", "eggs", "ham")),
    ],
)
def test_label_inference(read_dataset, cells, flags, labels):
    rows = "".join(f"{cell}\ta\n" for cell in cells)
    dataset = read_dataset(BY_NUMBER | NO_HELD_OUT_ROWS | flags, train_tsv=rows)
    problem_type = "classification" if labels else "regression"
    assert (dataset.problem_type, tuple(dataset.labels)) == (problem_type, labels or ())
    assert [example.label for example in dataset.read("train")] == [c.strip() for c in cells]


@pytest.mark.parametrize(
    ("cells", "line", "fix"),
    [
        *((["1", "2", "3", x], 4, "--problem_type=classification") for x in ("nan", "-inf", "-")),
        (["1", "2", "3", ""], 4, "--skip_labels=,"),
        (["1"] * 20 + ["N/A"], 21, "--problem_type=classification"),
        (["0,5", "1,0", "1,5"], 1, "--problem_type=classification"),
        (["0.5", "1", "0,0"], 3, "--problem_type=classification"),
        (["3", "3,10", "27"], 2, "--problem_type=classification"),
    ],
)
def test_missing_number_or_decimal_comma_is_not_a_class(read_dataset, cells, line, fix):
    rows = "".join(f"{cell}\ta\n" for cell in cells)
    with pytest.raises(UserError, match=rf"train\.tsv:{line}: label .* is not a number") as caught:
        read_dataset(BY_NUMBER, train_tsv=rows)
    assert fix in caught.value.fix


SNLI = "neutral\ta\n-\tb\nentailment\tc\n\td\ncontradiction\te\n"


def test_rows_with_skipped_labels_are_left_out(read_dataset, caplog):
    flags = BY_NUMBER | NO_HELD_OUT_ROWS | {"skip_labels": "-,"}
    dataset = read_dataset(flags, train_tsv=SNLI, dev_tsv="-\tx\nneutral\ty\n-\tz\n")
    assert dataset.labels == ("contradiction", "entailment", "neutral")
    assert [example.text_a for example in dataset.read("train")] == ["a", "c", "e"]
    assert [example.text_a for example in dataset.read("eval")] == ["y"]
    assert "train.tsv: 2 rows left out by --skip_labels=-," in caplog.text
    assert "dev.tsv: 2 rows left out by --skip_labels=-," in caplog.text
    with pytest.raises(UserError, match=r"dev\.tsv: the file has no rows"):
        read_dataset(flags, dev_tsv="-\tx\n").read("eval")


def test_numbers_null_and_lists_are_skipped(read_dataset):
    dataset = read_dataset(BY_NAME | {"skip_labels": "-1,"}, train_jsonl=json_rows(-1, 0, None, 1))
    assert (dataset.labels, dataset.problem_type) == (("0", "1"), "classification")
    flags = BY_NAME | NO_HELD_OUT_ROWS | {"skip_labels": "-"}
    dataset = read_dataset(flags, train_jsonl=json_rows(["x"], ["-"], [], ["x", "y"]))
    assert [example.label for example in dataset.read("train")] == [("x",), (), ("x", "y")]


@pytest.mark.parametrize(
    ("rows", "flags", "message"),
    [
        ("a\tx\n-\ty\n", {"labels": "a,b"}, "2: label '-' is not one of a, b. .* --skip_labels=-$"),
        # A first row without a label is not a header.
        ("-\tx\na\ty\n", {"labels": "a,b"}, "1: label '-' is not one of a, b. .* --skip_labels=-$"),
        ("0\tx\n-1\ty\n", {"labels": "0,1"}, "2: label '-1' is not .* pass --skip_labels=-1$"),
        ("a\tx\n\ty\n", {}, "2: the label is empty.* --skip_labels=,$"),
        ("-\tx\n?\ty\n", {"labels": "a,b", "skip_labels": "-"}, "2: .* --skip_labels=-,\\?$"),
    ],
)
def test_errors_of_missing_labels_name_the_flag(read_dataset, rows, flags, message):
    with pytest.raises(UserError, match=rf"train\.tsv:{message}"):
        read_dataset(BY_NUMBER | NO_HELD_OUT_ROWS | flags, train_tsv=rows)


def test_json_mixes_numbers_and_other_values(read_dataset):
    assert read_dataset(BY_NAME, train_jsonl=json_rows(1, 0, True)).labels == ("0", "1", "true")
    for value in (None, float("nan")):
        with pytest.raises(UserError, match=r"train\.jsonl:3: the label .* Received: '(null|NaN)'"):
            read_dataset(BY_NAME, train_jsonl=json_rows(1, 0, value))


@pytest.mark.parametrize(
    ("flags", "cells", "labels", "first"),
    [
        ({}, ["a, b,,a", "", "b"], ("a", "b"), ("a", "b")),
        ({"labels": "b,a"}, ["a, b,,a", "", "b"], ("b", "a"), ("b", "a")),
        ({"label_separator": ""}, ["a b", "", "b"], ("a", "b"), ("a", "b")),
        # As pandas writes lists.
        ({}, ["['b', \"a'c\"]", "[]", "['d']"], ("a'c", "b", "d"), ("a'c", "b")),
        ({"problem_type": "auto"}, ["['a','b']", "['b']"], ("a", "b"), ("a", "b")),
        ({"problem_type": "auto"}, ["[1, 2]", "[2]"], ("1", "2"), ("1", "2")),
        # As NumPy does.
        ({"problem_type": "auto"}, ["['a' 'b']", "c"], ("['a' 'b']", "c"), "['a' 'b']"),
    ],
)
def test_multi_label_cells(read_dataset, caplog, flags, cells, labels, first):
    flags = BY_NUMBER | NO_HELD_OUT_ROWS | {"problem_type": "multilabel"} | flags
    rows = "".join(f"{cell}\tx\n" for cell in cells)
    dataset = read_dataset(flags, train_tsv=rows, dev_tsv=rows)
    assert dataset.labels == labels
    assert [dataset.read(split)[0].label for split in ("train", "eval")] == [first] * 2
    assert "no row has two labels" not in caplog.text


def test_multi_label_json(read_dataset, caplog):
    flags = BY_NAME | NO_HELD_OUT_ROWS | {"label_separator": "|"}
    rows = json_rows(["b", "a", "b"], [], "c| a", ["c", 1])
    dataset = read_dataset(flags, train_jsonl=rows)
    assert (dataset.problem_type, dataset.labels) == ("multilabel", ("1", "a", "b", "c"))
    labels = [example.label for example in dataset.read("train")]
    assert labels == [("a", "b"), (), ("a", "c"), ("1", "c")]
    assert "4 rows; multilabel with 4 labels: 1 (1), a (2), b (1), c (2)" in caplog.text
    read_dataset(BY_NAME | {"problem_type": "multilabel"}, train_jsonl=json_rows("a;b", "", "b"))
    assert "no row has two labels" in caplog.text


def test_labels_from_a_different_source(read_dataset):
    dataset = read_dataset(BY_NUMBER | {"labels": "ham,spam"}, dev_tsv=TRAIN)
    assert (dataset.labels, len(dataset.read("eval"))) == (("ham", "spam"), 4)
    dataset = read_dataset(BY_NUMBER | {"problem_type": "regression"}, dev_tsv="1\ta\n")
    assert (dataset.labels, dataset.read("eval")[0].label) == ((), "1")


def test_inferred_settings_are_logged(read_dataset, caplog):
    rows = "".join(f"{n}\ta\n" for n in range(1200)) * 2
    read_dataset(BY_NUMBER, train_tsv=rows)
    assert "2,400 rows; classification with 1,200 labels: 0 (2), 1 (2), " in caplog.text
    assert "9 (2) and 1,190 more" in caplog.text
    assert "occur only once" not in caplog.text
    read_dataset(BY_NUMBER, train_tsv="0.5\ta\n1.5\tb\n")
    assert "train.tsv: 2 rows; regression with numbers from 0.5 to 1.5\n" in caplog.text
    read_dataset(BY_NUMBER, train_tsv="0\ta\n1\tb\n1.5\tc\n2\td\n0.5\te\n")
    found = r"regression with numbers from 0 to 2, because of .*train.tsv:3\n"
    assert re.search(found, caplog.text)
    flags = {"text_column": "3", "label_column": "1,2"}
    read_dataset(flags, train_tsv="0\t1\ta\n1\t1\tb\n0\t2\tc\n")
    assert re.search(r"with 2 numbers from 0 to 2, because of .*train.tsv:3\n", caplog.text)


def test_too_many_distinct_labels_warning(read_dataset, caplog):
    read_dataset(BY_NUMBER, train_tsv="".join(f"{n}\ta\n" for n in range(60)) + "3\tb\n")
    assert "59 of 60 labels occur only once" in caplog.text
    # Also for a small file, here with text and label columns swapped.
    read_dataset(BY_NUMBER, train_tsv="".join(f"film {n}\t{'ab'[n % 2]}\n" for n in range(20)))
    assert "20 of 20 labels occur only once" in caplog.text


def test_empty_texts_are_counted(read_dataset, caplog):
    read_dataset(BY_NUMBER, train_tsv="ham\ta\nspam\t\nham\t \n").read("train")
    assert caplog.text.count("train.tsv:2: 2 rows with an empty text") == 1


# ---- Held-out rows -------------------------------------------------------------------------


def test_rows_are_held_out_for_evaluation(read_dataset, caplog):
    rows = "".join(f"{'spam' if n % 5 == 0 else 'ham'}\ttext {n}\n" for n in range(100))
    dataset = read_dataset(BY_NUMBER, train_tsv=rows)
    train, held_out = dataset.read("train"), dataset.read("eval")
    assert (len(train), len(held_out)) == (80, 20)
    assert sum(example.label == "spam" for example in held_out) == 4
    for part in (train, held_out):
        numbers = [int(example.guid.removeprefix("train-")) for example in part]
        assert numbers == sorted(numbers)
    expected = (tuple(x.split("\t")) for x in rows.splitlines())
    assert sorted(label_text_pairs(train + held_out)) == sorted(expected)
    without_eval = read_dataset(BY_NUMBER)
    assert (without_eval.read("eval"), without_eval.read("train")) == (held_out, train)
    message = "no dev set: 20 of the 100 rows of "
    assert caplog.text.count(message) == 2
    message = "train.tsv are held out for evaluation (--dev_fraction=0.2), 80 to train on"
    assert message in caplog.text
    assert without_eval.describe("eval") == without_eval.describe("train")


@pytest.mark.parametrize("content", ["a\tx\nb\ty\n", "0.5\tx\n1\ty\n", "a\tx\na\ty\na\tz\nb\tw\n"])
def test_small_files_are_split(read_dataset, content):
    dataset = read_dataset(BY_NUMBER, train_tsv=content)
    assert len(dataset.read("eval")) == 1
    assert len(dataset.read("train")) == content.count("\n") - 1


def test_no_rows_are_held_out_with_a_dev_file_or_for_prediction(read_dataset, caplog):
    dataset = read_dataset(BY_NUMBER, train_tsv=TRAIN, test_tsv="x\ta\n")
    assert len(dataset.read("predict")) == 1
    dataset = read_dataset(BY_NUMBER, train_tsv=TRAIN, dev_tsv=b"ham\ta\n", test_tsv="x\ta\n")
    assert label_text_pairs(dataset.read("eval")) == [("ham", "a")]
    sizes = [len(dataset.read(split)) for split in ("train", "eval", "predict")]
    assert sizes == [4, 1, 1]
    assert dataset.describe("eval").endswith("dev.tsv")
    flags = BY_NUMBER | NO_HELD_OUT_ROWS | {"eval_file": "train.tsv"}
    assert len(read_dataset(flags).read("eval")) == 4
    assert "no dev set" not in caplog.text


@pytest.mark.shared
def test_sms_spam_collection():
    path = str(data("sms/SMSSpamCollection"))
    options = ClassifierOptions(text_column="2", label_column="1", has_header="yes")
    dataset = CustomDataset(split_files(os.path.dirname(path)), options)
    assert dataset.labels == ("ham", "spam")
    train, held_out = dataset.read("train"), dataset.read("eval")
    assert (len(train), len(held_out)) == (4459, 1115)
    assert sum(example.label == "spam" for example in train + held_out) == 747
    options = ClassifierOptions(text_column="SMS", label_column="Label", dev_fraction=0)
    by_name = CustomDataset({"train": path}, options)
    assert len(by_name.read("train")) == 5574


# ---- Split files ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("existing", "expected_names"),
    [
        (["train.tsv", "dev.csv.gz", "test.json"], ["train.tsv", "dev.csv.gz", "test.json"]),
        (["train.txt", "validation.tsv", "README.md"], ["train.txt", "validation.tsv", None]),
        (["eval.tsv"], [None, "eval.tsv", None]),
        (["Train.CSV"], ["Train.CSV", None, None]),
        (["SMS", ".hidden", "readme", "LICENSE.txt", "a.md"], ["SMS", None, None]),
        (["a.tsv", "b.tsv"], [None, None, None]),
        (["a.tsv", "test.tsv"], [None, None, "test.tsv"]),
        (
            ["ARC-Easy-Train.jsonl", "ARC-Easy-Dev.jsonl", "test_2k.tsv"],
            ["ARC-Easy-Train.jsonl", "ARC-Easy-Dev.jsonl", "test_2k.tsv"],
        ),
        (["train.tsv", "old_train.tsv", "dev_test.tsv"], ["train.tsv", None, None]),
        # Files that a run writes.
        (["train.tsv", "eval_results.txt", "test_results.tsv"], ["train.tsv", None, None]),
        (["web_dev.tsv"], ["web_dev.tsv", None, None]),  # the only file
        ([], [None, None, None]),
    ],
)
def test_split_files_are_found_by_name(tmp_path, existing, expected_names):
    write_files(tmp_path, dict.fromkeys(existing, b"") | {"more": None})
    expected = {
        split: str(tmp_path / name)
        for split, name in zip(("train", "eval", "predict"), expected_names, strict=True)
        if name
    }
    assert split_files(str(tmp_path)) == expected


def test_explicit_split_files(tmp_path, monkeypatch):
    write_files(tmp_path, {"data": None, "here.tsv": b"", "both.tsv": b""})
    write_files(tmp_path / "data", {"both.tsv": b"", "there.tsv": b"", "test.tsv": b""})
    monkeypatch.chdir(tmp_path)
    paths = split_files("data", train_file="there.tsv", eval_file="both.tsv")
    assert paths == {"train": "data/there.tsv", "eval": "both.tsv", "predict": "data/test.tsv"}
    assert split_files("", predict_file="here.tsv") == {"predict": "here.tsv"}
    write_files(tmp_path / "data", {"my-dev.tsv": b""})
    paths = split_files("data", train_file="my-dev.tsv", splits=("train", "eval"))
    assert paths == {"train": "data/my-dev.tsv"}
    assert split_files("data", ("eval",)) == {"eval": "data/my-dev.tsv"}
    absolute = str(tmp_path / "here.tsv")
    assert split_files("", train_file=absolute) == {"train": absolute}
    # The only file of a folder is not the training file if it is the test file.
    write_files(tmp_path, {"pool": None})
    write_files(tmp_path / "pool", {"texts.tsv": b""})
    assert split_files("pool", predict_file="texts.tsv") == {"predict": "pool/texts.tsv"}
    # An explicit file elsewhere does not count, whether or not it is needed.
    write_files(tmp_path / "pool", {"SMS": b""})
    both = {"train": "pool/SMS", "predict": "pool/texts.tsv"}
    assert split_files("pool", predict_file="texts.tsv") == both
    assert split_files("pool", predict_file=str(tmp_path / "pool" / "texts.tsv"))["train"]
    for name in ("texts.tsv", "pool/texts.tsv"):
        assert split_files("pool", predict_file=name, splits=["train"]) == {"train": "pool/SMS"}


def test_only_required_files_are_searched(tmp_path):
    write_files(tmp_path, dict.fromkeys(["train.tsv", "test.csv", "test.tsv"], b""))
    folder, train = str(tmp_path), {"train": str(tmp_path / "train.tsv")}
    with pytest.raises(UserError, match=r"contains test\.csv and test\.tsv\. .*--predict_file"):
        split_files(folder)
    assert split_files(folder, splits=["train", "eval"]) == train
    assert split_files(folder, predict_file="missing.tsv", splits=["train"]) == train
    assert split_files(folder, splits=[]) == split_files("", splits=[]) == {}
    (tmp_path / "pool").mkdir()
    write_files(tmp_path / "pool", {"test.tsv": b""})
    assert split_files(f"{folder}/pool", splits=["train"]) == {}
    # Evaluation uses held-out rows of the training file; no folder is needed.
    assert split_files("", train_file="train.tsv", splits=["eval"]) == {}


def test_invalid_data_dir(tmp_path, monkeypatch):
    write_files(tmp_path, {"a.tsv": b""})
    monkeypatch.chdir(tmp_path)
    for folder, message in {
        "": "Pass --data_dir",
        "missing": "has: a.tsv",
        "a.tsv": "a file",
    }.items():
        with pytest.raises(UserError, match=message):
            split_files(folder)


# ---- Label columns, folders ----------------------------------------------------------------


def test_long_labels_are_shortened(read_dataset, caplog):
    rows = "".join(f"{'Such a text is no label. ' * 9}{n}\tyes\n" for n in range(8))
    flags = {"text_column": "2", "label_column": "1", "dev_fraction": "0"}
    read_dataset(flags, train_tsv=rows).read("train")
    summary = "8 rows; classification with 8 labels: Such a text is no label. Such ... (1), Such a"
    assert summary in caplog.text
    assert max(len(record.getMessage()) for record in caplog.records) < 600
    message = r"is not one of Such a text is no label\. Such \.\.\., "
    with pytest.raises(UserError, match=message) as error:
        read_dataset(flags, train_tsv=rows, dev_tsv="Such\tyes\nNo\tno\n").read("eval")
    assert len(str(error.value)) < 700


@pytest.mark.parametrize(
    ("last", "problem_type", "label"),
    [
        ("1,0", "multilabel", ("toxic",)),
        ("True,False", "multilabel", ("toxic",)),
        ("1.0,0.0", "multilabel", ("toxic",)),
        ("0.5,2", "regression", ("0.5", "2")),
    ],
)
def test_label_columns(read_dataset, last, problem_type, label):
    content = TOXIC.replace("1,0", last)
    dataset = read_dataset(COLUMNS, train_csv=content, dev_csv=content)
    assert (dataset.problem_type, dataset.labels) == (problem_type, ("toxic", "insult"))
    train = [example.label for example in dataset.read("train")]
    is_multilabel = problem_type == "multilabel"
    assert train == [*([(), dataset.labels] if is_multilabel else [("0", "0"), ("1", "1")]), label]
    assert dataset.read("eval")[2].label == label


def test_label_columns_by_number_and_in_json(read_dataset):
    by_number = COLUMNS | {"text_column": "2", "label_column": "3,4", "has_header": "yes"}
    dataset = read_dataset(by_number, train_csv=TOXIC, dev_csv=TOXIC)
    assert dataset.labels == ("toxic", "insult")
    assert dataset.read("eval")[2].label == ("toxic",)
    rows = [{"x": {"text": "a", "y": {"toxic": i % 2, "insult": 1}}} for i in range(4)]
    for column in ("x.y", "x.y.toxic,x.y.insult"):
        flags = COLUMNS | {"text_column": "x.text", "label_column": column}
        dataset = read_dataset(flags, train_csv="".join(json.dumps(row) + "\n" for row in rows))
        assert [len(example.label) for example in dataset.read("train")] == [1, 2, 1, 2]


@pytest.mark.parametrize(
    ("flags", "old", "new", "message"),
    [
        ({}, "3,bad,1,0", "3,bad,x,0", "csv:4: label 'x' is not a number"),
        ({}, "3,bad,1,0", "3,bad,1,", "csv:4: label '' .* pass --skip_labels=,"),
        ({"labels": "a,b"}, "", "", "the label has toxic, insult, but others have a, b"),
        ({}, "3,bad,1,0", "3,bad,-1,-1", "-1, 0, 1 may be labels.*--skip_labels=-1"),
        ({"label_column": "toxic,insul"}, "", "", "Did you mean --label_column=insult"),
        ({"label_column": "toxic,comment_text"}, "", "", "are the same column"),
        ({"problem_type": "classification"}, "", "", "needs problem_type=multilabel"),
        ({"problem_type": "multilabel"}, "1,0", "2,0", "label toxic must be 0 or 1"),
    ],
)
def test_invalid_label_columns(read_dataset, flags, old, new, message):
    with pytest.raises(UserError, match=message):
        read_dataset(COLUMNS | flags, train_csv=TOXIC.replace(old, new) if old else TOXIC)


def test_rows_of_label_columns_can_be_skipped(read_dataset):
    content = TOXIC.replace("1,0", "-1,-1")
    with pytest.raises(UserError, match=r"dev.csv:4: label toxic must be 0.* --skip_labels=-1"):
        read_dataset(COLUMNS, train_csv=TOXIC, dev_csv=content).read("eval")
    flags = COLUMNS | {"skip_labels": "-1"}
    assert len(read_dataset(flags, train_csv=TOXIC, dev_csv=content).read("eval")) == 2


@pytest.mark.parametrize(
    ("train_labels", "label", "advice"),
    [
        ("ab", "c", "If the label is new, pass all labels as --labels"),
        (["good", "bad"], "god", "Did you mean good?"),
        ("01", "2", "If the label is new"),
    ],
)
def test_label_of_dev_set_only(read_dataset, train_labels, label, advice):
    train = "text,label\nx,{}\ny,{}\n".format(*train_labels)
    dataset = read_dataset(BY_NAME, train_csv=train, dev_csv=f"text,label\nz,{label}\n")
    with pytest.raises(UserError, match=f"dev.csv:2: label '{label}' .*{re.escape(advice)}"):
        dataset.read("eval")


def test_folders_of_labels(tmp_path, caplog):
    for split in ("train", "test"):
        for label in ("neg", "pos", "unsup"):
            (tmp_path / split / label).mkdir(parents=True)
            (tmp_path / split / label / "1.txt").write_text(f"a {label} film")
    flags = BY_NAME | NO_HELD_OUT_ROWS | {"skip_labels": "unsup", "id_column": "file"}
    dataset = dataset_from_flags(tmp_path, flags)
    assert label_text_pairs(dataset.read("train")) == [("neg", "a neg film"), ("pos", "a pos film")]
    assert dataset.read("predict")[1].guid == "pos/1.txt"


def test_named_columns_may_be_in_any_order(read_dataset, caplog):
    read_dataset(BY_NAME, train_tsv=HEADER, dev_tsv="text\tlabel\ngood\tham\n").read("eval")
    # A data row may look like a header.
    flags = BY_NUMBER | NO_HELD_OUT_ROWS
    read_dataset(flags, train_tsv=EXAMPLES_TSV, dev_tsv="ham\tspam\n").read("eval")
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
