"""Options of `run_classifier.py`."""

import dataclasses

from bert_tf.errors import UserError
from bert_tf.options.fields import option
from bert_tf.options.fine_tuning import FineTuningOptions

# The task name for a user's own table files, and the options that need it.
CUSTOM_TABLES = "tsv"
_CUSTOM_TABLES_OPTIONS = (
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
# Enough for a few words of both texts of a pair.
_SHORTEST_WINDOW = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierOptions(FineTuningOptions):
    """Options of `run_classifier.py`."""

    data_dir: str | None = option(None, "Folder with the files of the task.", required=True)
    task_name: str | None = option(
        None,
        "Name of the task, case-insensitive: cola, mnli, mrpc or xnli; also sst-2, sts-b "
        "(numbers), qqp, qnli, rte, wnli, mnli-mm (evaluated on the mismatched sets), ax (the "
        "diagnostic set, prediction only), and tsv for your own TSV, CSV and JSON-lines files.",
        required=True,
    )
    eval_batch_size: int = option(8, "Evaluation batch size.")
    text_column: str | None = option(
        None,
        "With --task_name=tsv, column of the text: a name, or a number, counting from 1.",
        new=True,
    )
    text_pair_column: str | None = option(None, "Column of the second text of a pair.", new=True)
    label_column: str | None = option(
        None, "Column of the label; not needed for prediction.", new=True
    )
    id_column: str | None = option(None, "Column of ids for test_predictions.tsv.", new=True)
    has_header: str = option(
        "auto",
        "Whether the first row has column names. auto: if columns are given by name, or the label "
        "in that row differs from all others.",
        new=True,
        choices=("auto", "yes", "no"),
    )
    quoted: str = option(
        "auto",
        'Whether quotes (") enclose cells, which may contain line breaks and delimiters. auto: yes '
        "for CSV; in TSV files quotes are part of the text.",
        new=True,
        choices=("auto", "yes", "no"),
    )
    problem_type: str = option(
        "auto",
        "classification: one label per text; multilabel: any number of labels; regression: a "
        "number. auto: multilabel for lists (JSON), regression for numbers unless all are whole, "
        "otherwise classification.",
        new=True,
        choices=("auto", "classification", "multilabel", "regression"),
    )
    labels: str | None = option(
        None,
        "All labels, separated by commas, in the order of the model's outputs; by default those of "
        "the training file, in numerical or alphabetical order.",
        new=True,
    )
    label_separator: str = option(",", "Separator of the labels in a cell (multilabel).", new=True)
    dev_fraction: float = option(
        0.2,
        "Fraction of the training file to hold out for evaluation if there is no dev file; every "
        "run holds out the same rows. 0: none.",
        new=True,
        limits=(0, 0.9),
    )
    train_file: str | None = option(
        None,
        "Training file; by default train.tsv (or .csv, .jsonl) in --data_dir, or the only file.",
        new=True,
    )
    eval_file: str | None = option(
        None, "Evaluation file; by default dev.tsv, valid.tsv or similar.", new=True
    )
    predict_file: str | None = option(
        None, "File to make predictions for; by default test.tsv or similar.", new=True
    )
    task_module: str | None = option(
        None,
        "Python file with a class that reads your data, instead of --task_name: "
        "get_train_examples(data_dir), get_dev_examples, get_test_examples and get_labels.",
        new=True,
    )
    class_weights: str | None = option(
        None,
        "Weights of labels in the training loss: balanced (rare labels count more), or "
        "label:weight,label:weight; other labels have weight 1.",
        new=True,
    )
    long_text: str = option(
        "truncate",
        "Texts longer than --max_seq_length. truncate: as in the original; windows: split into "
        "windows that overlap by half, and average their probabilities.",
        new=True,
        choices=("truncate", "windows"),
    )
    glue_submission: bool = option(
        False, "With --do_predict, also write the file for gluebenchmark.com.", new=True
    )

    @property
    def uses_custom_tables(self) -> bool:
        """Whether the data comes from a user's own table files."""
        return (self.task_name or "").lower() == CUSTOM_TABLES

    def check(self) -> None:
        """Checks the options without reading any files, in the original's order."""
        super().check()
        if self.task_module and self.task_name:
            raise UserError(
                "--task_module and --task_name are mutually exclusive: pass one of them"
            )
        if self.uses_custom_tables and not self.text_column:
            raise UserError(
                "--task_name=tsv needs --text_column, the name or the number of a column"
            )
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        for name in () if self.uses_custom_tables else _CUSTOM_TABLES_OPTIONS:
            if getattr(self, name) != defaults[name]:
                raise UserError(f"--{name} can only be used with --task_name=tsv, your own files")
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
        paths = self.train_file or self.eval_file or self.predict_file
        task = {"task_name"} if self.task_module else set()
        folder = {"data_dir"} if self.task_module or (self.uses_custom_tables and paths) else set()
        return super()._not_needed() | task | folder
