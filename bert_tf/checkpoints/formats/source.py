"""The interface for reading models of any file format."""

import abc
import atexit
import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from bert_tf import files
from bert_tf.config import BertConfig
from bert_tf.data.cell_values import excerpt
from bert_tf.errors import UserError

CONFIG_FILE = "bert_config.json"
VOCAB_FILE = "vocab.txt"
LABELS_FILE = "labels.txt"
# Metadata of a bert_tf training run.
RUN_FILE = "run.json"
# Folder and prefix of the best checkpoint of a training run with evaluations.
BEST_FOLDER, BEST_NAME = "best", "model.ckpt"

# Training script -> head, for the heads whose variables have the same names.
_HEADS = {
    "run_classifier": "classification",
    "run_multiple_choice": "multiple_choice",
    "run_ner": "token",
}


class Source(abc.ABC):
    """A model in some file format; its variables have the names of the original BERT.

    By default, `folder` contains configuration, vocabulary and labels under their usual names:
    `bert_config.json`, `vocab.txt` and `labels.txt`.

    Attributes:
        kind: `original`, `hugging_face`, `keras`, `model_garden` or `saved_model`.
        path: path of the model; for an archive, the path of the unpacked model.
        config_file: path of the configuration, in the source's format; None if missing.
        vocab_file: path of the vocabulary; None if missing.
        head: a key of `heads.HEADS`, if metadata declare the model's head; otherwise None.
        labels: labels of the head's outputs; None if unknown.
        do_lower_case: whether texts must be lower-cased; None if unknown.
        has_run: whether `do_lower_case` is from the `run.json` of a bert_tf training run.
        unknown: names of tensors in the file that are not part of BERT.
        notes: messages to show to the user.
    """

    kind = ""

    def __init__(self, path: str, folder: str) -> None:
        self.path = path
        self.config_file = find_file(folder, CONFIG_FILE)
        self.vocab_file = find_file(folder, VOCAB_FILE)
        self.head: str | None = None
        self.labels: list[str] | None = None
        # Ignore errors: an unrelated labels.txt must not make the model unreadable.
        with contextlib.suppress(UserError):
            self.labels = labels_in(folder)
        self.do_lower_case: bool | None = None
        self.has_run = False
        self.unknown: list[str] = []
        self.notes: list[str] = []

    def read_run(self, folder: str) -> None:
        """Sets head and casing from the `run.json` of a bert_tf training run."""
        try:
            run = files.read_json(os.path.join(folder, RUN_FILE))
            self.head = _HEADS.get(run.get("script", ""), self.head)
            if self.head == "multiple_choice":
                self.labels = None  # They number the endings, not the outputs.
            lower = run.get("flags", {}).get("do_lower_case")
        except (UserError, ValueError, AttributeError, TypeError):
            return  # The file is optional: users can set casing and head with flags.
        if self.do_lower_case is None and isinstance(lower, bool):
            self.do_lower_case, self.has_run = lower, True

    def config(self) -> BertConfig | None:
        """Returns the configuration; None if it is missing."""
        return BertConfig.from_json_file(self.config_file) if self.config_file else None

    @abc.abstractmethod
    def variables(self) -> dict[str, tuple[list[int], str]]:
        """Returns the shapes and stored dtypes of all variables by name."""

    def shapes(self) -> dict[str, list[int]]:
        """Returns the shapes of all variables by name."""
        return {name: shape for name, (shape, _) in self.variables().items()}

    @abc.abstractmethod
    def read(self, names: Iterable[str]) -> Iterator[tuple[str, np.ndarray]]:
        """Yields the names and values of variables, one at a time."""


def find_file(folder: str, name: str) -> str | None:
    """Returns the path of a file in a folder; None if there is no such file."""
    path = os.path.join(folder, name)
    return path if files.exists(path) else None


def read_run_string(folder: str, *names: str) -> str | None:
    """Returns the string at nested keys of `run.json`; None if there is no such file or string."""
    try:
        value: Any = files.read_json(os.path.join(folder, RUN_FILE))
        for name in names:
            value = value[name]
    except (UserError, KeyError, TypeError):
        return None
    return value if isinstance(value, str) else None


def best_prefix(folder: str) -> str | None:
    """Returns the prefix of the best weights; None if the last run had no `--eval_every`."""
    prefix = os.path.join(folder, BEST_FOLDER, BEST_NAME)
    eval_every = read_run_string(folder, "flags", "eval_every")
    return prefix if eval_every and files.exists(f"{prefix}.index") else None


def labels_in(folder: str) -> list[str] | None:
    """Reads the `labels.txt` in a folder; returns None if there is none."""
    path = find_file(folder, LABELS_FILE)
    return read_labels(path) if path else None


def read_labels(path: str, is_label: Callable[[str], object] = str.strip) -> list[str]:
    """Reads a model's labels, one per line in the order of its outputs; `is_label` checks a line.

    Raises:
        UserError: the file cannot be read, is empty, or contains a duplicate or invalid label.
    """
    labels = files.read_small_file_lines(path)
    for index, line in enumerate(labels):
        if not is_label(line):
            problem = f"invalid label {excerpt(line)}"
        elif line in labels[:index]:
            problem = f"duplicate label {line}"
        else:
            continue
        raise UserError(f"{path}:{index + 1}: {problem}. Use the file that the training run wrote")
    if not labels:
        raise UserError(f"{path} contains no labels. Use the file that the training run wrote")
    return labels


def labels_file(labels: Iterable[str] | None) -> dict[str, str]:
    """Returns file name -> text for `labels.txt`; empty without labels."""
    return {LABELS_FILE: "".join(f"{label}\n" for label in labels)} if labels else {}


def temporary_folder() -> str:
    """Creates a folder that is removed when the program ends."""
    folder = tempfile.mkdtemp(prefix="bert_tf_")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
