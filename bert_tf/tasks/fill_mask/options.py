"""Options of `predict_masked.py`."""

import dataclasses

from bert_tf.base.errors import UserError
from bert_tf.data.split_files import LayoutOptions
from bert_tf.options.declare import DATA, MODEL, PATH, RESULTS, ROWS, RUN, check_needs, option
from bert_tf.options.shared import DeviceOptions, ModelOptions

# [CLS] and [SEP].
_NUM_SPECIAL_TOKENS = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskedWordsOptions(ModelOptions, DeviceOptions, LayoutOptions, affects=RESULTS):
    """Options of `predict_masked.py`."""

    init_checkpoint: str | None = option(
        None,
        "Checkpoint (prefix or folder) of a model with its masked-LM head: a published "
        "bert_model.ckpt, a model.ckpt-N from run_pretraining.py, or a model from Hugging Face.",
        affects=RUN | PATH,
        required=True,
    )
    max_seq_length: int = option(
        128,
        "Maximum input length in word pieces, including special tokens. If a text is longer, only "
        "the part around each [MASK] is read.",
        affects=ROWS | MODEL,
    )
    input_file: str | None = option(
        None,
        "Texts with [MASK], one per line; blank lines are skipped. `-`: standard input.",
        affects=DATA | PATH,
    )
    text_column: str | None = option(
        None,
        "Column of a table with the texts: name, 1-based number, or path in JSON.",
        affects=DATA,
        needs=("input_file",),
    )
    text: str | None = option(None, "A single text, instead of --input_file.", affects=DATA)
    output_file: str = option(
        "-", "File for the predictions. `-`: standard output.", affects=RUN | PATH
    )
    output_format: str = option(
        "table",
        "table: human-readable; jsonl: a JSON object for each text.",
        choices=("table", "jsonl"),
    )
    top_k: int = option(5, "Number of predictions per [MASK].", limits=(1, 1000))
    whole_word: bool = option(
        False, "Predict whole words of one or more pieces for each [MASK], not single pieces."
    )
    max_word_pieces: int = option(
        3, "With --whole_word: maximum pieces per word.", limits=(1, 10), needs=("whole_word",)
    )
    batch_size: int = option(
        32, "Model inputs per batch; each [MASK] is at least one input.", limits=(1, 2**31 - 1)
    )

    def check(self) -> None:
        """Checks the options without reading any files."""
        self.check_required()
        self.check_model()
        if bool(self.input_file) == bool(self.text):
            raise UserError("Pass either --input_file=FILE or --text='Paris is the [MASK] of ...'")
        self.check_layout()

    def check_model(self) -> None:
        """Checks the options of model and inputs."""
        super().check_model()
        check_needs(self)
        if self.whole_word and self.max_word_pieces > self.max_seq_length - _NUM_SPECIAL_TOKENS:
            pieces = f"--max_word_pieces={self.max_word_pieces}"
            raise UserError(f"--max_seq_length={self.max_seq_length} has no room for {pieces}")
