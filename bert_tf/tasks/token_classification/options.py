"""Options of `run_ner.py`."""

import dataclasses

from bert_tf.errors import UserError
from bert_tf.options.fields import option
from bert_tf.options.fine_tuning import FineTuningOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class NerOptions(FineTuningOptions):
    """Options of `run_ner.py`."""

    data_dir: str | None = option(
        None,
        "Folder with files of words and labels in columns, as those of CoNLL-2003: train.txt, "
        "dev.txt or valid.txt, test.txt.",
        new=True,
        required=True,
    )
    token_column: int = option(
        1, "Column of the words, from 1 on.", new=True, limits=(1, 2**31 - 1)
    )
    label_column: int = option(
        -1,
        "Column of the labels, from 1 on; -1 for the last one. A test file may do without.",
        new=True,
        limits=(-1, 2**31 - 1),
    )
    max_seq_length: int = option(
        128,
        "Longest input in word pieces, special ones included; longer sentences are read in "
        "windows that overlap.",
        new=True,
    )
    doc_context: bool = option(
        False,
        "Fill the input up to --max_seq_length with what stands before and after a sentence in its "
        "document, without labels: more to go by, and more to compute.",
        new=True,
    )
    eval_batch_size: int = option(8, "Sentences in a batch of the evaluation.", new=True)

    def check(self) -> None:
        """Checks all options."""
        super().check()
        if self.label_column == 0:
            raise UserError("--label_column counts from 1 on, or is -1 for the last. Received: 0")
        if self.label_column == self.token_column:
            raise UserError(f"--token_column and --label_column are both {self.token_column}")
