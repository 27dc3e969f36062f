"""Options of `run_ner.py`."""

import dataclasses

from bert_tf.data.split_files import SplitFileOptions
from bert_tf.finetuning.options import FineTuningOptions
from bert_tf.options.declare import DATA, MODEL, RESULTS, ROWS, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class NerOptions(SplitFileOptions, FineTuningOptions, affects=DATA):
    """Options of `run_ner.py`."""

    token_column: int | str = option(
        1,
        "Column of the words: a number, counting from 1, a name in the first line, or a JSON key.",
        affects=DATA | MODEL,
        limits=(1, 2**31 - 1),
    )
    label_column: int | str = option(
        -1,
        "Column of the labels, like --token_column; -1 for the last one. A test file may omit it.",
    )
    label_scheme: str = option(
        "auto",
        "entities: labels in BIO or a similar scheme, scored as entities; plain: other labels, "
        "such as parts of speech, scored by accuracy. auto: entities if the labels fit a scheme.",
        affects=DATA | MODEL,
        choices=("auto", "entities", "plain"),
    )
    labels: str | None = option(
        None,
        "All labels for training, separated by commas, in the order of the model's outputs; by "
        "default, those in the training file. To continue from a model: those in its labels.txt.",
        new=True,
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
