"""What a model is read from: the same few questions to every kind of file."""

import abc
import atexit
import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator

import numpy as np

from bert_tf import files
from bert_tf.config import BertConfig
from bert_tf.errors import UserError

CONFIG_FILE = "bert_config.json"
VOCAB_FILE = "vocab.txt"
LABELS_FILE = "labels.txt"
# Of the heads whose weights look alike, by the script that trained them.
_HEADS = {"run_ner": "token", "run_classifier": "classification"}
# What a training of this package says about itself.
RUN_FILE = "run.json"
# Where a training with evaluations keeps the best weights.
BEST_FOLDER, BEST_NAME = "best", "model.ckpt"


class Source(abc.ABC):
    """A model in some kind of file. All its variables go by the original's names.

    Args:
        path: prefix, file or folder.
        folder: where to look for what belongs to it.

    Attributes:
        kind: `original`, `hugging_face`, `keras`, `garden` or `saved_model`.
        path: as given; for an archive where it was unpacked.
        config_file: the configuration beside it, in whatever format; None where there is none.
        vocab_file: the vocabulary beside it; None where there is none.
        head: name of the head that the source says it has, see `heads.HEADS`; None where it says
            nothing.
        labels: of the head's outputs, where they are known.
        do_lower_case: whether texts have to be lower-cased, where that is known.
        has_run: whether that is known from a training of this package.
        unknown: tensors that are not BERT's, by the names in the file.
        has_best: whether its training kept the best weights beside the newest.
        notes: sentences about what a user should know of it.
    """

    kind = ""

    def __init__(self, path: str, folder: str) -> None:
        self.path = path
        self.config_file = existing(folder, CONFIG_FILE)
        self.vocab_file = existing(folder, VOCAB_FILE)
        self.head: str | None = None
        self.labels: list[str] | None = None
        # A file of this name that is something else is no reason to refuse the model.
        with contextlib.suppress(UserError):
            self.labels = read_labels(existing(folder, LABELS_FILE))
        self.do_lower_case: bool | None = None
        self.has_run = False
        self.unknown: list[str] = []
        self.notes: list[str] = []
        self.has_best = False

    def take_run(self, folder: str) -> None:
        """Head and casing, where a training of this package has left word of them."""
        path = existing(folder, RUN_FILE)
        try:
            run = json.loads(files.read_text(path) if path else "{}")
            self.head = _HEADS.get(run.get("script"), self.head)
            flags = run.get("flags", {})
            lower, self.has_best = flags.get("do_lower_case"), bool(flags.get("eval_every"))
        except (UserError, ValueError, AttributeError, TypeError):
            # Only hints: what it would have said can be said by flags.
            return
        if self.do_lower_case is None and isinstance(lower, bool):
            self.do_lower_case, self.has_run = lower, True

    def config(self) -> BertConfig | None:
        """The configuration; None where there is none.

        Raises:
            UserError: it is not right.
        """
        return BertConfig.from_json_file(self.config_file) if self.config_file else None

    @abc.abstractmethod
    def shapes(self) -> dict[str, list[int]]:
        """Names and shapes of all variables."""

    @abc.abstractmethod
    def types(self) -> dict[str, str]:
        """Names and types of all variables, as they are stored."""

    @abc.abstractmethod
    def read(self, names: Iterable[str]) -> Iterator[tuple[str, np.ndarray]]:
        """Yields names and values of some variables, one at a time.

        Raises:
            UserError: the file is damaged.
        """


def existing(folder: str, name: str) -> str | None:
    """Path of a file in a folder; None where it is not there."""
    path = os.path.join(folder, name)
    return path if files.exists(path) else None


def read_labels(path: str | None) -> list[str] | None:
    """Labels, one a line.

    Raises:
        UserError: there is none, or one is there twice.
    """
    if path is None:
        return None
    labels = files.read_small_lines(path)
    if not labels or len(set(labels)) < len(labels) or not all(map(str.strip, labels)):
        raise UserError(f"{path} must have a label on each line, and none twice")
    return labels


def temporary_folder() -> str:
    """A folder that is removed when the program ends."""
    folder = tempfile.mkdtemp(prefix="bert_tf_")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def require_local(path: str) -> None:
    """Refuses another file system, for formats whose libraries read local files only.

    Raises:
        UserError: `path` names one.
    """
    if files.is_remote(path):
        raise UserError(
            f"{path}: only checkpoints of TensorFlow are read from there; copy it first"
        )
