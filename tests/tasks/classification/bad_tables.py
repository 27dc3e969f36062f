"""Invalid data files and the expected errors, shared by the tests of datasets and scripts."""

import gzip
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bert_tf.data.split_files import find_files
from bert_tf.tasks.classification.custom_dataset import CustomDataset
from bert_tf.tasks.classification.options import ClassifierOptions

BY_NUMBER = {"label_column": "1", "text_column": "2"}
BY_NAME = {"label_column": "label", "text_column": "text"}
_FILE_FLAGS = ("train_file", "eval_file", "predict_file")


class BadFile(NamedTuple):
    """An invalid data file and its expected error.

    Attributes:
        message: regular expression that the error matches.
        files: file name in `--data_dir` -> content; None creates a folder.
        flags: flags other than `--data_dir`.
        split: split that cannot be read; the others can be read if their labels are known.
    """

    message: str
    files: Mapping[str, bytes | None]
    flags: Mapping[str, str] = BY_NUMBER
    split: str = "train"


def write_files(folder: Path, files: Mapping[str, bytes | None]) -> None:
    """Writes files to a folder."""
    for name, content in files.items():
        if content is None:
            (folder / name).mkdir()
        else:
            (folder / name).write_bytes(content)


def split_files(
    data_dir: str, splits: Sequence[str] = ("train", "eval", "predict"), **files: str | None
) -> dict[str, str]:
    """Returns the files that are found for file flags."""
    return find_files(ClassifierOptions(data_dir=data_dir, **files), splits)


def dataset_from_flags(folder: Path | str, flags: Mapping[str, str]) -> CustomDataset:
    """Returns the dataset that the script builds from its flags."""
    options: dict = dict(flags)
    paths = split_files(str(folder), **{name: options.pop(name, None) for name in _FILE_FLAGS})
    labels = options.get("labels", "")
    if "dev_fraction" in options:
        options["dev_fraction"] = float(options["dev_fraction"])
    return CustomDataset(paths, ClassifierOptions(**options), labels.split(",") if labels else ())


TRAIN = b"ham\tA good film\nspam\tA bad plot\nham\tNot fast\nspam\tThe story\n"
_SCORES = b"0.5\tA good film\n1\tA bad plot\n2.25\tNot fast\n3\tThe story\n"
_JSON = b'{"label": "ham", "text": "a"}\n{"label": "spam", "text": "b"}\n'
_NUMBERS = BY_NUMBER | {"problem_type": "regression"}

# (content of train.tsv, error, flags)
_TSV = [
    # Rows.
    (TRAIN + b"ham only\n", "5: 1 column, but 2 .*'ham only'", BY_NUMBER),
    (TRAIN + b"ham\ta\tb\n", "5: 3 columns, but 2 ", BY_NUMBER),
    (TRAIN + b"\nham\ta\n", "5: 1 column, but 2", BY_NUMBER),
    (b"DESC How is it\n", "1: --text_column=2, .* 'DESC How", BY_NUMBER),
    (b"\n\r\n\n", " the file has no rows", BY_NUMBER),
    (b"label\ttext\n", " the file has no rows", BY_NAME),
    (TRAIN + b"ham\tcaf\xe9\n", "5: the file is not UTF-8", BY_NUMBER),
    # Columns.
    (b"label\ttext\ttext\nham\ta\tb\n", "1: columns 2 and 3 are both called 'text'", BY_NAME),
    (b"Label\tSMS\nham\ta\n", r"1: there is no column 'text' .*, only 'Label', 'SMS'", BY_NAME),
    (b"Label\tText\nham\ta\n", r"'text' .* Did you mean --text_column=Text\?", BY_NAME),
    (b"label,text\nham,a\nspam,b\n", "1: .* Is this a CSV file", BY_NAME),
    (
        TRAIN,
        "1: --text_column=0, counting from 1, but .* 2 columns",
        BY_NUMBER | {"text_column": "0"},
    ),
    (
        b"0\t1\t2\nham\ta\tb\nspam\tb\tc\n",
        "1: some columns have numbers as names, but none is named 3",
        {"text_column": "1", "label_column": "3", "has_header": "yes"},
    ),
    (
        TRAIN,
        " --text_column and --text_pair_column=2 are the same",
        BY_NUMBER | {"text_pair_column": "2"},
    ),
    (
        b"label\ttext\n" + TRAIN,
        "--text_column and --label_column=2 are the same",
        {"text_column": "text", "label_column": "2"},
    ),
    # Labels.
    (TRAIN + b" \ta\n", "5: the label is empty", BY_NUMBER),
    (b"ham\ta\nham\tb\n", " every row has the label ham", BY_NUMBER),
    (b"\ta\n,\tb\n", " no row has a label", BY_NUMBER | {"problem_type": "multilabel"}),
    (
        TRAIN + b"spma\ta\n",
        r"5: label 'spma' is not one of ham, spam\. Did you mean spam\?",
        BY_NUMBER | {"labels": "ham,spam"},
    ),
    (TRAIN, "--labels: label 2 is a duplicate, .*'ham'", BY_NUMBER | {"labels": "ham,ham"}),
    (TRAIN, "1: label 'ham' is not a number", _NUMBERS),
    (_SCORES + b"\ta\n", "5: label '' is not a number", BY_NUMBER),
    (_SCORES + b"inf\ta\n", "5: label 'inf' is not a number", _NUMBERS),
    (_SCORES + b"1e999\ta\n", "5: label '1e999' is not a number", _NUMBERS),
    (_SCORES, "1: the label has one number, but others have a, b", _NUMBERS | {"labels": "a,b"}),
    # Files.
    (TRAIN, r"--train_file=tran\.tsv: no such file.*: train\.tsv", {"train_file": "tran.tsv"}),
    (b"ham\ta\nspam\tb\n", " 2 rows cannot be split", BY_NUMBER | {"dev_fraction": "0.9"}),
]

# (split, file next to a valid train.tsv, content, error)
_OTHER_SPLITS = [
    ("eval", "dev.tsv", b"ham\ta\nSpam\tb\n", "2: label 'Spam' .* ham, spam. Did you mean spam"),
    ("eval", "dev.tsv.gz", gzip.compress(b"ham\ta\neggs\tb\n"), "2: label 'eggs' is not one of"),
    ("eval", "valid.csv", b"ham,a\n,b\n", "2: the label is empty"),
    ("eval", "dev.tsv", b"ham\ta\nspam\n", "2: 1 column, but 2"),
    ("predict", "test.tsv", b"", " the file has no rows"),
    ("predict", "test.tsv", b"just a text\n", "1: --text_column=2, .* but the row has"),
    ("predict", "test.tsv", b"?\ta\t7\n?\tb\t7\n", "2: the id '7' occurs a second time"),
]

# (third line of train.jsonl, error)
_JSON_LINES = [
    (b"ham\ta", "3: invalid JSON"),
    (b'{"text": "a"}', r"3: there is no column 'label' \(--label_column\), only 'text'"),
    (b'{"label": null, "text": "a"}', "3: the label must be .* Received: 'null'"),
    (b'{"label": NaN, "text": "a"}', "3: the label must be a string or a finite number.*'NaN'"),
    (b'{"label": "ham", "text": {"a": 1}}', r"3: the text must be .*Received: '\{\"a\": 1\}'"),
    (b'{"label": "ham", "text": "\\ud83d"}', "3: the text must be a string"),
]

# Whoever creates a dataset checks that it has the files to read; test_custom_runs has these cases.
MISSING_FILES = [
    BadFile(
        r"no eval file: pass --eval_file, .* or pass --dev_fraction=0\.2",
        {"train.tsv": TRAIN},
        BY_NUMBER | {"dev_fraction": "0"},
        "eval",
    ),
    BadFile(r"There is no predict file: .*test\.tsv", {"train.tsv": TRAIN}, split="predict"),
]
BAD_FILES = [
    *(
        BadFile(
            error if error[:1] in "-'" else rf"train\.tsv:{error}", {"train.tsv": content}, flags
        )
        for content, error, flags in _TSV
    ),
    *(
        BadFile(
            f"{name}:{error}",
            {"train.tsv": TRAIN, name: content},
            BY_NUMBER | {"id_column": "3"} if "the id" in error else BY_NUMBER,
            split,
        )
        for split, name, content, error in _OTHER_SPLITS
    ),
    *(
        BadFile(rf"train\.jsonl:{error}", {"train.jsonl": _JSON + line + b"\n"}, BY_NAME)
        for line, error in _JSON_LINES
    ),
    BadFile(
        r"jsonl:1: there is no column '2' .*only 'label', 'text'",
        {"train.jsonl": _JSON},
        BY_NAME | {"text_column": "2"},
    ),
    BadFile(
        r"train\.jsonl:3: a list of labels needs problem_type=multilabel",
        {"train.jsonl": _JSON + b'{"label": ["ham"], "text": "a"}\n'},
        BY_NAME | {"problem_type": "classification"},
    ),
    BadFile(
        r"train\.json: element 2: there is no column 'text'",
        {"train.json": b'[{"label": "ham", "text": "a"},\n{"label": "spam"}]'},
        BY_NAME,
    ),
    BadFile(r"train\.csv:.*'sp\\nam'", {"train.csv": b'"ham\n",a\n"sp\nam",b\n'}),
    BadFile(r"train\.tsv must be a file, but is a folder", {"train.tsv": None}),
    BadFile(
        r"contains train\.csv and train\.tsv\. .*--train_file",
        {"train.tsv": TRAIN, "train.csv": TRAIN},
    ),
    BadFile(
        r"no training file to take the labels from|labels\.txt|There is no train file",
        {"test.tsv": b"a\tb\n"},
        split="predict",
    ),
    BadFile("--label_column", {"train.tsv": TRAIN}, {"text_column": "2"}),
]
