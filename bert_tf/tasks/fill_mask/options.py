"""Options of `predict_masked.py`."""

import dataclasses

from bert_tf.errors import UserError
from bert_tf.options.fields import check_required, option
from bert_tf.options.shared import DeviceOptions, ModelOptions

_DEFAULT_WORD_PIECES = 3
# [CLS] and [SEP].
_SPECIAL_TOKENS = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskedWordsOptions(ModelOptions, DeviceOptions):
    """Options of `predict_masked.py`."""

    init_checkpoint: str | None = option(
        None,
        "Trained model with its masked-LM head: bert_model.ckpt as published, or a model.ckpt-N of "
        "run_pretraining.py; a prefix or a folder.",
        required=True,
    )
    max_seq_length: int = option(
        128,
        "Word pieces that are read, special ones included; of a longer text, those around each "
        "[MASK].",
    )
    input_file: str | None = option(
        None,
        "Texts with [MASK] in them, one a line; blank lines are left out. `-` is the standard "
        "input.",
        new=True,
    )
    text: str | None = option(None, "A single text, instead of --input_file.", new=True)
    output_file: str = option("-", "File for the words. `-` is the standard output.", new=True)
    output_format: str = option(
        "table",
        "table: to be read by people; jsonl: an object for each text, on a line.",
        new=True,
        choices=("table", "jsonl"),
    )
    top_k: int = option(5, "Words for each [MASK].", new=True, limits=(1, 1000))
    whole_word: bool = option(
        False,
        "Let a [MASK] stand for a whole word, also of several pieces, and not for one piece.",
        new=True,
    )
    max_word_pieces: int = option(
        _DEFAULT_WORD_PIECES,
        "Pieces of the longest word. Used with --whole_word.",
        new=True,
        limits=(1, 10),
    )
    batch_size: int = option(32, "Rows in a batch.", new=True, limits=(1, 2**31 - 1))

    def check(self) -> None:
        """Checks what can be checked without reading a file."""
        check_required(self, self._not_needed())
        self.check_model()
        if bool(self.input_file) == bool(self.text):
            raise UserError(
                "Pass either --input_file=FILE, with a text on each line, or --text='Paris is the "
                "[MASK] of France.'"
            )
        if not self.output_file:
            raise UserError("--output_file is empty: pass a file, or - for the standard output")

    def check_model(self) -> None:
        """Checks the options of model and inputs."""
        super().check_model()
        if not self.whole_word and self.max_word_pieces != _DEFAULT_WORD_PIECES:
            raise UserError("--max_word_pieces needs --whole_word=true")
        if self.whole_word and self.max_word_pieces > self.max_seq_length - _SPECIAL_TOKENS:
            raise UserError(
                f"--max_seq_length={self.max_seq_length} has no room for "
                f"--max_word_pieces={self.max_word_pieces} between [CLS] and [SEP]"
            )
