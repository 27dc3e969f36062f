"""Options of `run_classifier.py` and `run_classifier_with_tfhub.py`."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bert_tf.base.errors import UserError
from bert_tf.data.split_files import LayoutOptions, SplitFileOptions
from bert_tf.finetuning.options import FineTuningOptions
from bert_tf.options.declare import DATA, MODEL, PATH, RESULTS, ROWS, RUN, WEIGHTS, option

# A model trained for one of these tasks may be evaluated on the others.
_MNLI_TASKS = ("mnli", "mnli-mm", "ax", "xnli")
# The task name for a user's own table files.
CUSTOM_TABLES = "tsv"
# Values of --problem_type.
AUTO, CLASSIFICATION = "auto", "classification"
MULTILABEL, REGRESSION = "multilabel", "regression"
# Value of --pooling.
ENTITY_STARTS = "entity_starts"
# Minimum `max_seq_length` of windows: enough for a few words of each text of a pair.
_MIN_WINDOW_LENGTH = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableOptions(LayoutOptions, SplitFileOptions, affects=DATA):
    """Options that only apply to a user's own table files (`--task_name=tsv`)."""

    text_column: str | None = option(
        None,
        "With --task_name=tsv: the column of the text, by name, by number, counting from 1, or in "
        "JSON by path: review.text. Another one for a split: text,predict:review.",
        new=True,
    )
    text_pair_column: str | None = option(None, "Column of the second text of a pair.", new=True)
    label_column: str | None = option(
        None,
        "Column of the label; not needed for prediction. Several columns, toxic,insult, are labels "
        "with 0 or 1, or numbers to predict.",
        new=True,
    )
    id_column: str | None = option(None, "Column of ids, for test_predictions.tsv.", new=True)
    problem_type: str = option(
        "auto",
        "classification: one label per text; multilabel: any number of labels; regression: a "
        "number, or a list of numbers. auto: multilabel for lists of texts (JSON), regression for "
        "numbers unless all are whole, otherwise classification.",
        affects=ROWS | MODEL,
        new=True,
        choices=(AUTO, CLASSIFICATION, MULTILABEL, REGRESSION),
    )
    labels: str | None = option(
        None,
        "All labels, separated by commas, in the order of the model's outputs; by default, the "
        "labels in the training file, in numerical or alphabetical order.",
        new=True,
    )
    skip_labels: str | None = option(
        None,
        "Labels, separated by commas, whose rows are left out of training and evaluation, such as "
        "- for SNLI's pairs without a gold label. Empty: rows without a label.",
        new=True,
    )
    label_separator: str = option(
        ",", "Separator between labels in a multilabel cell; empty: white space.", new=True
    )
    dev_fraction: float = option(
        0.2,
        "Fraction of the training file to hold out for evaluation if there is no dev file; every "
        "run holds out the same rows. 0: hold out nothing.",
        new=True,
        limits=(0, 0.9),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierOptions(TableOptions, FineTuningOptions, affects=DATA):
    """Options of `run_classifier.py`."""

    task_name: str | None = option(
        None,
        "Name of the task, case-insensitive: cola, mnli, mrpc or xnli; also sst-2, sts-b "
        "(regression), qqp, qnli, rte, wnli, mnli-mm (evaluated on the mismatched sets), ax (the "
        "diagnostic set, prediction only), and tsv for your own TSV, CSV and JSON-lines files. Not "
        "needed with --task_module.",
        required=True,
    )
    eval_batch_size: int = option(8, "Evaluation batch size.", affects=RESULTS)
    task_module: str | None = option(
        None,
        "Instead of --task_name: a Python file with a class whose methods read your data: "
        "get_train_examples(data_dir), get_dev_examples, get_test_examples and get_labels.",
        affects=DATA | PATH,
        new=True,
    )
    class_weights: str | None = option(
        None,
        "Weights of labels in the training loss: balanced (rare labels count more), or "
        "label:weight,label:weight; other labels have weight 1.",
        affects=WEIGHTS,
        new=True,
        needs=("do_train",),
    )
    long_text: str = option(
        "truncate",
        "How to read texts longer than --max_seq_length. truncate: only the beginning, as in the "
        "original; windows: in windows that overlap by half, whose probabilities are averaged.",
        affects=ROWS | MODEL,
        new=True,
        choices=("truncate", "windows"),
    )
    pooling: str = option(
        "cls",
        "What the classifier reads. cls: the vector of [CLS]; entity_starts: those of the markers "
        "before two entities, to classify their relation; needs --special_tokens, such as "
        "[E1],[/E1],[E2],[/E2].",
        affects=WEIGHTS | MODEL,
        new=True,
        choices=("cls", ENTITY_STARTS),
    )
    glue_submission: bool = option(
        False,
        "With --do_predict, also write the file for gluebenchmark.com.",
        affects=RESULTS,
        new=True,
        needs=("do_predict",),
    )

    @staticmethod
    def task_of(flags: Mapping[str, Any]) -> str:
        """Returns `task_name` or `task_module`."""
        return flags.get("task_name") or flags.get("task_module") or ""

    @staticmethod
    def is_same_task(one: str, other: str) -> bool:
        """Returns whether the tasks are equal, or have the three labels of MNLI."""
        is_nli = {one.lower(), other.lower()}.issubset(_MNLI_TASKS)
        return is_nli or FineTuningOptions.is_same_task(one, other)

    @classmethod
    def complete(
        cls, flags: dict[str, Any], passed: Mapping[str, Any], folder: Any
    ) -> dict[str, Any]:
        """Keeps only one of `task_name` and `task_module`; a Keras file may have neither."""
        for name, other in (("task_name", "task_module"), ("task_module", "task_name")):
            if passed.get(name):
                flags.pop(other, None)
        is_trained = str(folder.model).endswith(".keras") or folder.labels()
        if is_trained and not passed.get("task_module"):
            flags.setdefault("task_name", CUSTOM_TABLES)
        return super().complete(flags, passed, folder)

    @property
    def uses_custom_tables(self) -> bool:
        """Whether the data comes from a user's own table files."""
        return (self.task_name or "").lower() == CUSTOM_TABLES

    @property
    def skipped_labels(self) -> tuple[str, ...]:
        """The labels in `skip_labels`; "" stands for a missing label."""
        names = [] if self.skip_labels is None else self.skip_labels.split(",")
        return tuple(map(str.strip, names))

    def check(self) -> None:
        """Checks the options in the original's order, without reading any data files."""
        super().check()
        if self.task_module and self.task_name:
            raise UserError("--task_module and --task_name are mutually exclusive: pass one")
        if self.uses_custom_tables and not self.text_column:
            raise UserError("--task_name=tsv needs --text_column, a column's name or number")
        for field in dataclasses.fields(TableOptions):
            is_passed = field.name != "data_dir" and getattr(self, field.name) != field.default
            if is_passed and not self.uses_custom_tables:
                raise UserError(f"--{field.name} only applies to --task_name=tsv (your own files)")
        if self.long_text == "windows" and self.max_seq_length < _MIN_WINDOW_LENGTH:
            needed = f"--max_seq_length={_MIN_WINDOW_LENGTH} or more"
            raise UserError(f"--long_text=windows needs {needed}. Received: {self.max_seq_length}")
        if self.long_text == "windows" and self.pooling == ENTITY_STARTS:
            problem = "windows of a text need not contain its entities"
            raise UserError(f"--pooling={ENTITY_STARTS} excludes --long_text=windows: {problem}")

    def _not_needed(self) -> set[str]:
        return super()._not_needed() | ({"task_name", "data_dir"} if self.task_module else set())


@dataclasses.dataclass(frozen=True, kw_only=True)
class HubClassifierOptions(ClassifierOptions, affects=PATH):
    """Options of `run_classifier.py`, plus the Hub module."""

    bert_hub_module_handle: str | None = option(
        None,
        "Folder with an encoder, as a SavedModel for TensorFlow 2: downloaded from TensorFlow Hub "
        "and unpacked, or written by export_model.py --form=encoder.",
        affects=RUN | PATH,
        required=True,
    )
    bert_config_file: str | None = option(None, "Not used: it is part of the encoder.")
    init_checkpoint: str | None = option(
        None, "Not used: see --bert_hub_module_handle.", affects=RUN | PATH
    )
    vocab_file: str | None = option(None, "Used only if the encoder has no vocabulary.")
    do_lower_case: bool = option(
        True, "Used only if the encoder does not specify it.", affects=ROWS | MODEL
    )
    init_layers: str | None = option(
        None, "Not supported by this script.", affects=RUN | WEIGHTS, new=True
    )

    def check_case(self) -> None:
        """Does nothing, because the encoder determines the casing."""

    def check(self) -> None:
        """Checks the options without reading any data files."""
        if self.init_layers:
            raise UserError("--init_layers is not supported: this script uses the whole encoder")
        super().check()
