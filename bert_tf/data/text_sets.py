"""Where texts with labels come from: what a classification task needs to know about its data."""

import abc
import os
from collections.abc import Sequence

from bert_tf.data import glue
from bert_tf.data.features import InputExample
from bert_tf.errors import UserError

CLASSIFICATION = "classification"
MULTILABEL = "multilabel"
REGRESSION = "regression"


# The original calls the set that one evaluates on "dev", the set to predict "test".
_GLUE_SPLITS = {"train": "train", "eval": "dev", "predict": "test"}


class TextSet(abc.ABC):
    """Texts, or pairs of texts, in splits: `train`, `eval` and `predict`.

    Attributes:
        name: for messages ("task cola").
        problem_type: `CLASSIFICATION`, one label for each text; `MULTILABEL`, any number of them;
            `REGRESSION`, a number.
        labels: in the order of their ids; none for a regression.
        is_published: whether the name says all about labels and files, as of the sets of GLUE.
            Their examples to predict have the first label as a placeholder, as in the original;
            those of other sets have none.
        usual_figure: of an evaluation, without `eval_`; None for that of the problem type.
        has_pairs: whether examples have two texts.
        submission: name of the file with predictions that GLUE takes; None for other sets.
    """

    name: str
    problem_type: str = CLASSIFICATION
    labels: Sequence[str] = ()
    is_published: bool = False
    usual_figure: str | None = None
    has_pairs: bool = False
    submission: str | None = None

    @abc.abstractmethod
    def read(self, split: str) -> list[InputExample]:
        """The examples of a split, in the order of the file; may be none.

        Raises:
            UserError: there is no such split, or its file is not right.
        """

    @abc.abstractmethod
    def describe(self, split: str) -> str:
        """Where the split comes from, the path of a file say, for messages."""


class GlueSet(TextSet):
    """A set of `glue.TASKS` in a folder.

    Args:
        task: files, columns and labels.
        data_dir: the folder.
    """

    is_published = True

    def __init__(self, task: glue.TsvTask, data_dir: str) -> None:
        self.task, self.data_dir = task, data_dir
        self.name = f"task {task.name}"
        self.labels = task.labels
        self.submission = task.submission
        self.usual_figure = task.figure
        self.has_pairs = any(split.text_b is not None for split in task.splits.values())
        self.problem_type = CLASSIFICATION if task.labels else REGRESSION

    def read(self, split: str) -> list[InputExample]:
        """See `glue.read_examples`."""
        return glue.read_examples(self.task, _GLUE_SPLITS[split], self.data_dir)

    def describe(self, split: str) -> str:
        """Path of the split's file."""
        return os.path.join(self.data_dir, self.task.splits[_GLUE_SPLITS[split]].file)


class KnownSet(TextSet):
    """What a model was trained on, as far as is known without its files: for one that is asked.

    Args:
        problem_type: see `TextSet`.
        labels: the same.
    """

    name = "the task of the model"

    def __init__(self, problem_type: str, labels: Sequence[str]) -> None:
        self.problem_type, self.labels = problem_type, tuple(labels)

    def read(self, split: str) -> list[InputExample]:
        """Nothing is to be read."""
        raise UserError(f"{self.describe(split)} cannot be read: only the model is there")

    def describe(self, split: str) -> str:
        """What it would be."""
        return f"the {split} set of {self.name}"
