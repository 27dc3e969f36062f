"""Options of `run_multiple_choice.py`."""

import dataclasses

from bert_tf.data.split_files import LayoutOptions, SplitFileOptions
from bert_tf.finetuning.options import FineTuningOptions
from bert_tf.options.declare import DATA, MODEL, RESULTS, option, value_for


@dataclasses.dataclass(frozen=True, kw_only=True)
class MultipleChoiceOptions(SplitFileOptions, LayoutOptions, FineTuningOptions, affects=DATA):
    """Options of `run_multiple_choice.py`. By default, the columns are those of SWAG's files."""

    context_column: str = option(
        "sent1", "Column of the text before the endings; in JSON, also a path: question.stem."
    )
    question_column: str | None = option(
        "sent2",
        "Column of a question or sentence start, put before each ending. Empty: no column.",
        affects=DATA | MODEL,
    )
    ending_columns: str = option(
        "ending0,ending1,ending2,ending3",
        "Columns of the endings, separated by commas; or, in JSON, one key with a list or object. "
        "A question may have fewer than others.",
        affects=DATA | MODEL,
    )
    label_column: str = option(
        "label",
        "Column of the label: the correct ending, by 0-based index, letter, column name, or label "
        "in JSON.",
    )
    eval_batch_size: int = option(8, "Evaluation batch size, in questions.", affects=RESULTS)

    def columns(self, split: str) -> dict[str, str]:
        """Returns purpose -> column in the file of a split, see `find_positions`."""
        endings = value_for(self.ending_columns, split)
        # The path of the texts is that of choices that may also have labels.
        endings = endings if "," in endings else endings.removesuffix(".text")
        question = value_for(self.question_column or "", split)
        return {
            "context": value_for(self.context_column, split),
            **({"question": question} if question else {}),
            **({"ending_columns": endings} if endings else {}),
            **({"label": value_for(self.label_column, split)} if split != "predict" else {}),
        }
