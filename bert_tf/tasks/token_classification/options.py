"""Options of `run_ner.py`."""

import dataclasses

from bert_tf.declare import DATA, MODEL, PATH, RESULTS, ROWS, option
from bert_tf.options.fine_tuning import FineTuningOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class NerOptions(FineTuningOptions, affects=DATA):
    """Options of `run_ner.py`."""

    data_dir: str | None = option(
        None,
        "Folder with files of words and labels in columns, as in CoNLL-2003: train.txt, "
        "dev.txt or valid.txt, test.txt. Not needed to label a --predict_file.",
        affects=DATA | PATH,
        required=True,
    )
    predict_file: str | None = option(
        None, "File of sentences to label; by default test.txt in --data_dir.", affects=DATA | PATH
    )
    token_column: int = option(
        1, "Column of the words, counting from 1.", affects=DATA | MODEL, limits=(1, 2**31 - 1)
    )
    label_column: int = option(
        -1,
        "Column of the labels, counting from 1; -1 for the last one. A test file may omit it.",
    )
    word_prefix: str | None = option(
        None, "Prefixes to remove from words, separated by commas, such as en: in WikiANN."
    )
    word_suffix: str | None = option(
        None, "Suffixes to remove from words, separated by commas, such as _1,_2."
    )
    max_seq_length: int = option(
        128,
        "Maximum input length in word pieces, including special tokens; longer sentences are "
        "split into overlapping windows.",
        affects=ROWS | MODEL,
    )
    doc_context: bool = option(
        False,
        "Fill the input up to --max_seq_length with the text around a sentence in its document, as "
        "context without labels: more information, but slower.",
        affects=ROWS | MODEL,
    )
    eval_batch_size: int = option(
        8, "Evaluation batch size, in windows of sentences.", affects=RESULTS
    )

    def _not_needed(self) -> set[str]:
        only_predicts = self.predict_file and not (self.do_train or self.do_eval)
        return super()._not_needed() | ({"data_dir"} if only_predicts else set())
