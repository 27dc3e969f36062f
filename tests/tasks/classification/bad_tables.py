"""Invalid data files and the expected errors, shared by the tests of datasets and scripts.

Each case has the contents of `--data_dir`, flags, and the split that cannot be read.
"""

import gzip
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bert_tf.data.split_files import find_files
from bert_tf.tasks.classification.custom_dataset import CustomDataset
from bert_tf.tasks.classification.options import ClassifierOptions

BY_NUMBER = {"label_column": "1", "text_column": "2"}
BY_NAME = {"label_column": "label", "text_column": "text"}
_FILE_FLAGS = ("train_file", "eval_file", "predict_file")


@dataclass(frozen=True)
class BadFile:
    """An invalid data file and its expected error.

    Attributes:
        name: test id.
        files: file name in `--data_dir` -> content; None creates a folder.
        message: regular expression that the error matches.
        split: split that cannot be read; the others can be read if their labels are known.
        flags: flags other than `--data_dir`.
    """

    name: str
    files: Mapping[str, bytes | None]
    message: str
    split: str = "train"
    flags: Mapping[str, str] = field(default_factory=lambda: BY_NUMBER)


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
NAMED = b"label\ttext\n" + TRAIN
SCORES = b"0.5\tA good film\n1\tA bad plot\n2.25\tNot fast\n3\tThe story\n"
JSON = b'{"label": "ham", "text": "a"}\n{"label": "spam", "text": "b"}\n'
_LONG_TEXT = b"x" * (10 << 20)


def _bad_tsv(name: str, content: bytes, message: str, flags: Mapping = BY_NUMBER) -> BadFile:
    return BadFile(name, {"train.tsv": content}, message, flags=flags)


def _bad_split(
    split: str, name: str, file: str, content: bytes, message: str, **flags: str
) -> BadFile:
    """Returns an invalid file next to a valid training file."""
    return BadFile(name, {"train.tsv": TRAIN, file: content}, message, split, BY_NUMBER | flags)


def _bad_jsonl(name: str, content: bytes, message: str, **flags: str) -> BadFile:
    return BadFile(name, {"train.jsonl": content}, message, flags=BY_NAME | flags)


_ROWS = [
    _bad_tsv("too few cells", TRAIN + b"ham only\n", r"train\.tsv:5: 1 column, but 2 .*'ham only'"),
    _bad_tsv("too many cells", TRAIN + b"ham\ta\tb\n", r"train\.tsv:5: 3 columns, but 2 .*quotes"),
    _bad_tsv("blank line inside the file", TRAIN + b"\nham\ta\n", r"train\.tsv:5: 1 column, but 2"),
    _bad_tsv("no separator", b"DESC How is it\n", r"train\.tsv:1: --text_column=2, .* 'DESC How"),
    _bad_tsv(
        "several labels as numbers",
        b"3\ta\n3,10\tb\n27\tc\n",
        r"train\.tsv:2: label '3,10' is not a number",
    ),
    _bad_tsv(
        "XML",
        b'<?xml version="1.0"?>\n<sentences></sentences>\n',
        r"train\.tsv:1: this is not a text file",
    ),
    _bad_tsv("UTF-16 without BOM", TRAIN.decode().encode("utf-16-le"), r"train\.tsv:1: NUL byte"),
    _bad_tsv(
        "UTF-16 BE without BOM",
        TRAIN.decode().encode("utf-16-be"),
        r"tsv:1: NUL byte",
    ),
    _bad_tsv("latin-1", TRAIN + b"ham\tcaf\xe9\n", r"train\.tsv:5: .* iconv -f windows-1252 -t"),
    _bad_tsv(
        "cp1251",
        TRAIN + "ham\tЭто фильм\n".encode("cp1251"),
        r"tsv:5: .* from its encoding, for inst",
    ),
    _bad_tsv("10 MB in one cell", TRAIN + b"ham\t" + _LONG_TEXT, r"train\.tsv:5: .*131072"),
    _bad_tsv("empty", b"", r"train\.tsv: the file has no rows"),
    _bad_tsv("only blank lines", b"\n\r\n\n", r"train\.tsv: the file has no rows"),
    _bad_tsv("header only", b"label\ttext\n", r"train\.tsv: the file has no rows", BY_NAME),
    BadFile("a folder", {"train.tsv": None}, r"train\.tsv must be a file, but is a folder"),
    BadFile("not gzip", {"train.tsv.gz": TRAIN}, r"train\.tsv\.gz is not a complete gzip file"),
    BadFile(
        "unclosed quote",
        {"train.csv": b'label,text\nham,a\nspam,"b\nham,c\nspam,d\n'},
        r'train\.csv:3: a quote \("\) is not closed',
        flags=BY_NAME,
    ),
    BadFile(
        "comma in a text",
        {"train.csv": b"label,text\nham,a\nspam,b, c\n"},
        r"train\.csv:3: 3 columns, but 2 in the first row: 'spam', 'b', ' c'.* in quotes",
        flags=BY_NAME,
    ),
]

_COLUMNS = [
    _bad_tsv(
        "duplicate column name",
        b"label\ttext\ttext\nham\ta\tb\n",
        r"train\.tsv:1: columns 2 and 3 are both called 'text'",
        BY_NAME,
    ),
    _bad_tsv(
        "unknown column name",
        b"Label\tSMS\nham\ta\n",
        r"train\.tsv:1: there is no column 'text' \(--text_column\), only 'Label', 'SMS'",
        BY_NAME,
    ),
    _bad_tsv(
        "column name in a different case",
        b"Label\tText\nham\ta\n",
        r"'text' .* Did you mean --text_column=Text\?",
        BY_NAME,
    ),
    _bad_tsv(
        "missing label column",
        b"text\tn\na\t1\n",
        r"train\.tsv:1: there is no column 'label'",
        BY_NAME,
    ),
    _bad_tsv(
        "column names, but no header",
        TRAIN,
        r"train\.tsv:1: there is no column 'text'",
        BY_NAME,
    ),
    _bad_tsv(
        "column 0",
        TRAIN,
        r"train\.tsv:1: --text_column=0, counting from 1, but the row has 2 columns",
        {"text_column": "0", "label_column": "1"},
    ),
    _bad_tsv(
        "names that are numbers",
        b"0\t1\t2\nham\ta\tb\nspam\tb\tc\n",
        r"train\.tsv:1: some columns have numbers as names, but none is named 3",
        {"text_column": "1", "label_column": "3", "has_header": "yes"},
    ),
    _bad_tsv(
        "column 3 of 2",
        TRAIN,
        r"train\.tsv:1: --text_pair_column=3, counting from 1, but the row has 2 columns",
        BY_NUMBER | {"text_pair_column": "3"},
    ),
    _bad_tsv(
        "same column number twice",
        TRAIN,
        r"train\.tsv: --text_column and --text_pair_column=2 are the same",
        BY_NUMBER | {"text_pair_column": "2"},
    ),
    _bad_tsv(
        "same column by name and number",
        NAMED,
        r"--text_column and --label_column=2 are the same",
        {"text_column": "text", "label_column": "2"},
    ),
    _bad_tsv(
        "comma-separated TSV",
        b"label,text\nham,a\nspam,b\n",
        r"train\.tsv:1: .* Is this a CSV file",
        BY_NAME,
    ),
    _bad_tsv(
        "semicolon-separated TSV",
        b"ham;a\nspam;b\n",
        r"train\.tsv:1: --text_column=2, .*1 column.*Is this a CSV file",
    ),
    _bad_tsv("no --label_column", TRAIN, r"--label_column", {"text_column": "2"}),
    _bad_split(
        "predict",
        "duplicate ids",
        "test.tsv",
        b"?\ta\t1\n?\tb\t2\n?\tc\t1\n",
        r"test\.tsv:3: duplicate id '1', also at .*test\.tsv:1",
        id_column="3",
    ),
]

_LABELS = [
    _bad_tsv("empty label", TRAIN + b" \ta\n", r"train\.tsv:5: the label is empty"),
    _bad_tsv(
        "only one label",
        b"ham\ta\nham\tb\n",
        r"train\.tsv: every row has the label ham",
    ),
    _bad_tsv(
        "label not in --labels",
        TRAIN + b"spma\ta\n",
        r"train\.tsv:5: label 'spma' is not one of ham, spam\. Did you mean spam\?",
        BY_NUMBER | {"labels": "ham,spam"},
    ),
    _bad_tsv(
        "duplicate label in --labels",
        TRAIN,
        r"--labels: duplicate label 'ham'",
        BY_NUMBER | {"labels": "ham,ham"},
    ),
    _bad_tsv(
        "NaN among scores",
        SCORES + b"nan\ta\n",
        r"train\.tsv:5: label 'nan' is not a number",
    ),
    _bad_tsv("missing score", SCORES + b"\ta\n", r"train\.tsv:5: label '' is not a number"),
    _bad_tsv(
        "infinite score",
        SCORES + b"inf\ta\n",
        r"train\.tsv:5: label 'inf' is not a number",
        BY_NUMBER | {"problem_type": "regression"},
    ),
    _bad_tsv(
        "too large number",
        SCORES + b"1e999\ta\n",
        r"train\.tsv:5: label '1e999' is not a number",
        BY_NUMBER | {"problem_type": "regression"},
    ),
    _bad_tsv(
        "NaN among whole numbers",
        b"0\ta\n1\tb\n" * 20 + b"nan\tc\n",
        r"train\.tsv:41: label 'nan' is not a number.*--problem_type=classification",
    ),
    _bad_tsv(
        "decimal commas",
        b"0,5\ta\n1\tb\n1,5\tc\n",
        r"train\.tsv:1: label '0,5' is not a number, such as 1500\.5",
    ),
    _bad_tsv(
        "regression with label names",
        TRAIN,
        r"train\.tsv:1: label 'ham' is not a number",
        BY_NUMBER | {"problem_type": "regression", "has_header": "no"},
    ),
    _bad_tsv(
        "regression with --labels",
        SCORES,
        r"--problem_type=regression uses numbers, not labels",
        BY_NUMBER | {"problem_type": "regression", "labels": "a,b"},
    ),
    _bad_tsv(
        "no labels at all",
        b"\ta\n,\tb\n",
        r"train\.tsv: no row has a label",
        BY_NUMBER | {"problem_type": "multilabel", "has_header": "no"},
    ),
    _bad_tsv(
        "empty separator",
        TRAIN,
        r"--label_separator",
        BY_NUMBER | {"problem_type": "multilabel", "label_separator": ""},
    ),
    BadFile(
        "line break in a label",
        {"train.csv": b'"ham\n",a\n"sp\nam",b\n'},
        r"train\.csv: label 2 is not one line of text: 'sp\\nam'",
    ),
    _bad_split(
        "eval",
        "unknown label in dev",
        "dev.tsv",
        b"ham\ta\nSpam\tb\n",
        r"dev\.tsv:2: label 'Spam' is not one of ham, spam\. Did you mean spam\?",
    ),
    _bad_split(
        "eval",
        "unknown label in a compressed dev",
        "dev.tsv.gz",
        gzip.compress(b"ham\ta\neggs\tb\n", mtime=0),
        r"dev\.tsv\.gz:2: label 'eggs' is not one of ham, spam\.",
    ),
    _bad_split(
        "eval",
        "empty label in dev",
        "valid.csv",
        b"ham,a\n,b\n",
        r"valid\.csv:2: the label is empty",
    ),
    _bad_split("eval", "ragged dev", "dev.tsv", b"ham\ta\nspam\n", r"dev\.tsv:2: 1 column, but 2"),
]

_JSON = [
    _bad_jsonl("not JSON", JSON + b"ham\ta\n", r"train\.jsonl:3: invalid JSON"),
    _bad_jsonl(
        "missing key",
        JSON + b'\n{"text": "a"}\n',
        r"train\.jsonl:4: there is no column 'label' \(--label_column\), only 'text'",
    ),
    _bad_jsonl(
        "null text",
        JSON + b'{"label": "ham", "text": null}\n',
        r"train\.jsonl:3: the text must be .* Received: 'null'",
    ),
    _bad_jsonl(
        "null label",
        JSON + b'{"label": null, "text": "a"}\n',
        r"train\.jsonl:3: the label must be .* Received: 'null'",
    ),
    _bad_jsonl(
        "object as text",
        JSON + b'{"label": "ham", "text": {"a": 1}}\n',
        r"train\.jsonl:3: the text must be a string or a finite number\. Received: '\{\"a\": 1\}'",
    ),
    _bad_jsonl(
        "NaN as label",
        JSON + b'{"label": NaN, "text": "a"}\n',
        r"train\.jsonl:3: the label must be a string or a finite number\. Received: 'NaN'",
    ),
    _bad_jsonl(
        "Infinity as score",
        b'{"label": 0.5, "text": "a"}\n{"label": 1, "text": ""}\n{"label": Infinity, "text": ""}\n',
        r"train\.jsonl:3: the label must be a string or a finite number\. Received: 'Infinity'",
    ),
    _bad_jsonl(
        "lone surrogate",
        JSON + b'{"label": "ham", "text": "\\ud83d"}\n',
        r"train\.jsonl:3: the text must be a string",
    ),
    _bad_jsonl(
        "column number for JSON",
        JSON,
        r"train\.jsonl:1: there is no column '2' .*only 'label', 'text'",
        text_column="2",
    ),
    _bad_jsonl(
        "label list for classification",
        JSON + b'{"label": ["ham"], "text": "a"}\n',
        r"train\.jsonl:3: a list of labels needs problem_type=multilabel",
        problem_type="classification",
    ),
    BadFile(
        "missing key in a JSON list",
        {"train.json": b'[{"label": "ham", "text": "a"},\n{"label": "spam"}]'},
        r"train\.json: element 2: there is no column 'text'",
        flags=BY_NAME,
    ),
]

_FILES = [
    BadFile(
        "two training files",
        {"train.tsv": TRAIN, "train.csv": TRAIN},
        r"contains train\.csv and train\.tsv\. .*--train_file",
    ),
    BadFile(
        "two dev files",
        {"train.tsv": TRAIN, "dev.tsv": TRAIN, "valid.tsv": TRAIN},
        r"contains dev\.tsv and valid\.tsv\. .*--eval_file",
        "eval",
    ),
    _bad_tsv(
        "missing training file",
        TRAIN,
        r"--train_file=tran\.tsv: no such file, and none in .*has: train\.tsv",
        BY_NUMBER | {"train_file": "tran.tsv"},
    ),
    BadFile(
        "no training file",
        {"test.tsv": b"a\tb\n"},
        r"no training file to take the labels from|labels\.txt|There is no train file",
        "predict",
    ),
    BadFile(
        "no dev file",
        {"train.tsv": TRAIN},
        r"There is no eval file: pass --eval_file, .* or pass --dev_fraction=0\.2",
        "eval",
        BY_NUMBER | {"dev_fraction": "0"},
    ),
    _bad_tsv(
        "--dev_fraction=1",
        TRAIN,
        r"--dev_fraction",
        BY_NUMBER | {"dev_fraction": "1"},
    ),
    _bad_tsv(
        "too few rows to hold out",
        b"ham\ta\nspam\tb\n",
        r"train\.tsv: 2 rows cannot be split",
        BY_NUMBER | {"dev_fraction": "0.9"},
    ),
    _bad_split("predict", "empty test file", "test.tsv", b"", r"test\.tsv: the file has no rows"),
    _bad_split(
        "predict",
        "test file with too few columns",
        "test.tsv",
        b"just a text\n",
        r"test\.tsv:1: --text_column=2, .* but the row has",
    ),
    BadFile(
        "no test file",
        {"train.tsv": TRAIN},
        r"There is no predict file: .*test\.tsv",
        "predict",
    ),
]

# Whoever creates a dataset checks that it has the files to read; test_custom_runs has these cases.
MISSING_FILES = ("no dev file", "no test file")
BAD_FILES = [*_ROWS, *_COLUMNS, *_LABELS, *_JSON, *_FILES]
