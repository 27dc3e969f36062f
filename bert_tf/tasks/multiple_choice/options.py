"""Options of `run_multiple_choice.py`."""

import dataclasses

from bert_tf.declare import DATA, MODEL, PATH, RESULTS, option
from bert_tf.errors import UserError
from bert_tf.options.fine_tuning import FineTuningOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class MultipleChoiceOptions(FineTuningOptions, affects=DATA):
    """Options of `run_multiple_choice.py`. By default, the columns are those of SWAG's files."""

    data_dir: str | None = option(
        None,
        "Folder with train, val (or dev) and test files: .csv, .tsv or .jsonl. Not needed if all "
        "files are passed by name.",
        affects=DATA | PATH,
        required=True,
    )
    train_file: str | None = option(
        None, "Training file; by default the one in --data_dir.", affects=DATA | PATH
    )
    eval_file: str | None = option(
        None, "Evaluation file; by default the one in --data_dir.", affects=DATA | PATH
    )
    predict_file: str | None = option(
        None, "File to make predictions for; by default the one in --data_dir.", affects=DATA | PATH
    )
    context_column: str = option("sent1", "Column of the text before the endings.")
    question_column: str | None = option(
        "sent2",
        "Column of a question or sentence start, put before each ending. Empty: no column.",
        affects=DATA | MODEL,
    )
    ending_columns: str = option(
        "ending0,ending1,ending2,ending3",
        "Columns of the endings, separated by commas; or, in JSON lines, one key with a list.",
        affects=DATA | MODEL,
    )
    label_column: str = option(
        "label", "Column of the label: the correct ending, by 0-based index or by column name."
    )
    eval_batch_size: int = option(8, "Evaluation batch size, in questions.", affects=RESULTS)

    def check(self) -> None:
        """Checks the options without reading any data files."""
        super().check()
        columns = [*self.ending_column_names, self.context_column, self.label_column]
        columns.append(self.question_column or "")
        for name in filter(None, columns):
            if columns.count(name) > 1:
                raise UserError(f"Column {name} is given twice. All columns must be different")

    @property
    def ending_column_names(self) -> list[str]:
        """The names in `ending_columns`."""
        return [name.strip() for name in self.ending_columns.split(",") if name.strip()]

    def _not_needed(self) -> set[str]:
        named_files = self.train_file or self.eval_file or self.predict_file
        return super()._not_needed() | ({"data_dir"} if named_files else set())
