"""Options of `convert_checkpoint.py`."""

import dataclasses

from bert_tf.errors import UserError
from bert_tf.options.fields import check_required, check_values, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConversionOptions:
    """Options of `convert_checkpoint.py`."""

    input: str | None = option(
        None,
        "Model to convert: a checkpoint of the original or of the Model Garden's BERT (prefix or "
        "folder), the zip of a release, a folder of Hugging Face's transformers, a SavedModel of "
        "TensorFlow Hub, or a .keras or .weights.h5 file.",
        required=True,
    )
    output: str | None = option(
        None, "Where to write it: a new folder, or a name ending in .ckpt, .keras or .weights.h5."
    )
    to: str = option(
        "auto",
        "Format to write. auto: by the extension of --output.",
        choices=("auto", "original", "hugging_face", "keras", "weights_h5"),
    )
    bert_config_file: str | None = option(None, "Configuration, if none is beside the model.")
    vocab_file: str | None = option(None, "Vocabulary, if none is beside the model.")
    do_lower_case: bool | None = option(
        None,
        "Whether the tokenizer for transformers lower-cases texts. By default as the model or its "
        "vocabulary says.",
    )
    head: str = option(
        "auto",
        "Head to convert with the encoder. auto: the one of the model. Original checkpoints do not "
        "say whether they label texts (classification) or words (token): auto takes "
        "classification, except for a folder of run_ner.py.",
        choices=("auto", "pretraining", "classification", "span", "token", "encoder"),
    )
    labels: str | None = option(
        None,
        "Labels in the order of the model's outputs: a file with one per line, or a list "
        "separated by commas. By default those of a labels.txt beside the model.",
    )
    strip_optimizer: bool = option(
        False,
        "Leave out Adam slots and step, two thirds of a training checkpoint; other formats than "
        "the original's never have them.",
    )
    inspect: bool = option(
        False, "Write nothing; print names, shapes, sizes, head and release of --input."
    )

    def check(self) -> None:
        """Checks what can be checked without reading a file."""
        check_required(self)
        check_values(self)
        if self.inspect and self.output:
            raise UserError("--inspect writes nothing: leave out --output, or --inspect")
        if not self.inspect and not self.output:
            raise UserError("Required, but missing: --output (or --inspect to only look)")
