"""Options of `run_classifier.py`."""

import dataclasses

from bert_tf.errors import UserError
from bert_tf.options.fields import option
from bert_tf.options.fine_tuning import FineTuningOptions

# The task of a user's own files.
OWN_TABLES = "tsv"
# Room for some words of each text of a pair.
_SHORTEST_WINDOW = 8
# What only that task has.
_OF_OWN_TABLES = (
    "text_column",
    "text_pair_column",
    "label_column",
    "id_column",
    "has_header",
    "quoted",
    "problem_type",
    "labels",
    "label_separator",
    "dev_fraction",
    "train_file",
    "eval_file",
    "predict_file",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierOptions(FineTuningOptions):
    """Options of `run_classifier.py`."""

    data_dir: str | None = option(None, "Folder with the TSV files of the task.", required=True)
    task_name: str | None = option(
        None,
        "Name of the task, in any case: cola, mnli, mrpc or xnli; new are sst-2, sts-b (numbers), "
        "qqp, qnli, rte, wnli, mnli-mm (evaluated on the mismatched sets), ax (the diagnostic "
        "set, prediction only), and tsv for your own TSV, CSV and JSON-lines files.",
        required=True,
    )
    eval_batch_size: int = option(8, "Examples in a batch of the evaluation.")
    text_column: str | None = option(
        None,
        "Column of the text: its name, or its number from 1 on. For --task_name=tsv.",
        new=True,
    )
    text_pair_column: str | None = option(None, "Column of the second text of a pair.", new=True)
    label_column: str | None = option(
        None, "Column of the label; a file to predict may lack it.", new=True
    )
    id_column: str | None = option(
        None, "Column of names of the rows, for test_predictions.tsv.", new=True
    )
    has_header: str = option(
        "auto",
        "Whether the first row has the names of the columns. auto: yes where columns are given by "
        "name; otherwise it looks whether the first label comes up again.",
        new=True,
        choices=("auto", "yes", "no"),
    )
    quoted: str = option(
        "auto",
        'Whether quotes (") enclose cells, which may have line ends and separators in them. auto: '
        "in CSV files they do, in TSV files they are part of the text.",
        new=True,
        choices=("auto", "yes", "no"),
    )
    problem_type: str = option(
        "auto",
        "classification: one label for each text; multilabel: any number of them; regression: a "
        "number. auto: lists of labels (JSON) mean multilabel, numbers that are not whole "
        "regression, all else classification.",
        new=True,
        choices=("auto", "classification", "multilabel", "regression"),
    )
    labels: str | None = option(
        None,
        "All labels, separated by commas, in the order of the model's outputs; by default those of "
        "the training file, in order of numbers or of the alphabet.",
        new=True,
    )
    label_separator: str = option(
        ",", "What separates the labels of a cell (multilabel).", new=True
    )
    dev_fraction: float = option(
        0.2,
        "Part of the training file that is kept for the evaluation where there is no dev file; "
        "always the same rows. 0: none.",
        new=True,
        limits=(0, 0.9),
    )
    train_file: str | None = option(
        None,
        "File to train on; by default train.tsv (or .csv, .jsonl) in --data_dir, or the only file "
        "there.",
        new=True,
    )
    eval_file: str | None = option(
        None, "File to evaluate on; by default dev.tsv, valid.tsv or the like.", new=True
    )
    predict_file: str | None = option(
        None, "File to predict; by default test.tsv or the like.", new=True
    )
    task_module: str | None = option(
        None,
        "Python file with a class that reads your data, in place of --task_name: "
        "get_train_examples(data_dir), get_dev_examples, get_test_examples and get_labels.",
        new=True,
    )
    class_weights: str | None = option(
        None,
        "Weights of the labels in the loss of the training: balanced (rare labels count more), or "
        "label:weight,label:weight; labels that are not named have the weight 1.",
        new=True,
    )
    long_text: str = option(
        "truncate",
        "Texts longer than --max_seq_length. truncate: cut, as the original does; windows: read in "
        "windows that overlap by half, whose probabilities are averaged.",
        new=True,
        choices=("truncate", "windows"),
    )
    glue_submission: bool = option(
        False, "With --do_predict, also write the file that gluebenchmark.com takes.", new=True
    )

    @property
    def is_own_tables(self) -> bool:
        """Whether the data are a user's own files."""
        return (self.task_name or "").lower() == OWN_TABLES

    def check(self) -> None:
        """Checks what can be checked without reading a file, in the original's order.

        Raises:
            UserError: a required option is missing, nothing is to be done, options do not go
                together, or a value makes no sense; the message names the flag.
        """
        super().check()
        if self.task_module and self.task_name:
            raise UserError("--task_module and --task_name exclude each other: pass one of them")
        if self.is_own_tables:
            self._check_own_tables()
        else:
            self._refuse_options_of_own_tables()
        if self.class_weights and not self.do_train:
            raise UserError("--class_weights needs --do_train=true")
        if self.long_text == "windows" and self.max_seq_length < _SHORTEST_WINDOW:
            raise UserError(
                f"--long_text=windows needs --max_seq_length={_SHORTEST_WINDOW} or more. Received: "
                f"{self.max_seq_length}"
            )
        if self.glue_submission and not self.do_predict:
            raise UserError("--glue_submission needs --do_predict=true")

    def _not_needed(self) -> set[str]:
        named_files = self.is_own_tables and (
            self.train_file or self.eval_file or self.predict_file
        )
        found = super()._not_needed() | ({"task_name"} if self.task_module else set())
        return found | ({"data_dir"} if self.task_module or named_files else set())

    def _check_own_tables(self) -> None:
        if not self.text_column:
            raise UserError(
                "--task_name=tsv needs --text_column, the name of a column or its number from 1 on"
            )

    def _refuse_options_of_own_tables(self) -> None:
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        for name in _OF_OWN_TABLES:
            if getattr(self, name) != defaults[name]:
                raise UserError(f"--{name} is for --task_name=tsv, your own files")
