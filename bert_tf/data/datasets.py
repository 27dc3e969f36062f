"""Where texts with labels come from: what a classification task needs to know about its data."""

import abc
import logging
import os
from collections.abc import Sequence

from bert_tf.data import glue
from bert_tf.data.features import InputExample

_logger = logging.getLogger(__name__)

CLASSIFICATION = "classification"
MULTILABEL = "multilabel"
REGRESSION = "regression"
# Share of a dev set's rows that may be in the training set, too.
_MOST_SHARED = 0.01

# The original calls the set that one evaluates on "dev", the set to predict "test".
_GLUE_SPLITS = {"train": "train", "eval": "dev", "predict": "test"}


class TextDataset(abc.ABC):
    """Texts, or pairs of texts, in splits: `train`, `eval` and `predict`.

    Attributes:
        name: for messages ("task cola").
        problem_type: `CLASSIFICATION`, one label for each text; `MULTILABEL`, any number of them;
            `REGRESSION`, a number.
        labels: in the order of their ids; none for a regression.
        is_published: whether the name says all about labels and files, as of the sets of GLUE.
            Their examples to predict have the first label as a placeholder, as in the original;
            those of other sets have none.
        primary_metric: of an evaluation, without `eval_`; None for that of the problem type.
        has_pairs: whether examples have two texts; None where that is not known.
        submission: name of the file with predictions that GLUE takes; None for other sets.
    """

    name: str
    problem_type: str = CLASSIFICATION
    labels: Sequence[str] = ()
    is_published: bool = False
    primary_metric: str | None = None
    has_pairs: bool | None = None
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


class GlueDataset(TextDataset):
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
        self.primary_metric = task.figure
        self.has_pairs = any(split.text_b is not None for split in task.splits.values())
        self.problem_type = CLASSIFICATION if task.labels else REGRESSION

    def read(self, split: str) -> list[InputExample]:
        """See `glue.read_examples`."""
        return glue.read_examples(self.task, _GLUE_SPLITS[split], self.data_dir)

    def describe(self, split: str) -> str:
        """Path of the split's file."""
        return os.path.join(self.data_dir, self.task.splits[_GLUE_SPLITS[split]].file)


def check_split(
    data: TextDataset,
    split: str,
    examples: Sequence[InputExample],
    training: Sequence[InputExample],
) -> None:
    """Warns of what no single row shows: labels and texts that make a training or figures useless.

    `training` has the examples of the training set, or none if that is not read.
    """
    if split == "predict":
        return
    path, count = data.describe(split), len(examples)
    if 1 < count == sum(example.label == examples[0].label for example in examples):
        message = "%s: all %d rows have the label %r. Check the column of the labels"
        _logger.warning(message, path, count, examples[0].label)
    if split == "train":
        folded = ["".join(label.split()).casefold() for label in data.labels]
        alike = [x for x, y in zip(data.labels, folded, strict=True) if folded.count(y) > 1]
        if alike:
            message = "%s: labels that differ only in case or white space: %s"
            _logger.warning(message, path, ", ".join(map(repr, alike)))
    elif training:
        unseen = _names(examples) - _names(training)
        if unseen and data.labels:
            shown = ", ".join(sorted(unseen))
            _logger.warning("%s: no row of the training set has the label %s", path, shown)
        ours, theirs = ([(e.text_a.strip(), e.text_b) for e in x] for x in (examples, training))
        shared = sum(map(set(theirs).__contains__, ours))
        # Nobody can change a published set; rows that were kept are as the user's file has them.
        is_given = data.is_published or path == data.describe("train")
        if shared > _MOST_SHARED * count:
            _logger.log(
                logging.INFO if is_given else logging.WARNING,
                "%s: %d of %d rows to evaluate on (%.1f %%) have the text of a training row: the "
                "figures are too good for new texts",
                path,
                shared,
                count,
                100 * shared / count,
            )


def _names(examples: Sequence[InputExample]) -> set[str]:
    labels = (example.label or () for example in examples)
    return {name for label in labels for name in ((label,) if isinstance(label, str) else label)}
