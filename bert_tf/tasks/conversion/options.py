"""Options of `convert_checkpoint.py`."""

import dataclasses

from bert_tf.errors import UserError
from bert_tf.options.fields import check_required, check_values, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConversionOptions:
    """Options of `convert_checkpoint.py`."""

    input: str | None = option(
        None,
        "Model to convert: a checkpoint (prefix or folder; of the original, or of the Model "
        "Garden's BERT encoder), the zip of a release, a folder of Hugging Face's transformers, a "
        "SavedModel of TensorFlow Hub's, or a .keras or .weights.h5 file.",
        new=True,
        required=True,
    )
    output: str | None = option(
        None,
        "Where to write it: a new folder, or a name that ends in .ckpt, .keras or .weights.h5.",
        new=True,
    )
    to: str = option(
        "auto",
        "What to write. auto: what the ending of --output says.",
        new=True,
        choices=("auto", "original", "hugging_face", "keras", "weights_h5"),
    )
    bert_config_file: str | None = option(
        None, "Sizes of the model, where no configuration lies beside it.", new=True
    )
    vocab_file: str | None = option(
        None, "Vocabulary of the model, where none lies beside it.", new=True
    )
    do_lower_case: bool | None = option(
        None,
        "For the tokenizer in a folder for transformers: whether texts are lower-cased. By default "
        "what is known of the model, or else of its vocabulary.",
        new=True,
    )
    head: str = option(
        "auto",
        "What to convert beside the encoder. auto: the head that is there. An original checkpoint "
        "does not say whether it labels texts (classification) or words (token): auto takes "
        "classification, but for a folder of run_ner.py.",
        new=True,
        choices=("auto", "pretraining", "classification", "span", "token", "encoder"),
    )
    labels: str | None = option(
        None,
        "Labels in the order of the model's outputs: a file with one on each line, or names with "
        "commas. By default those of a labels.txt beside the model.",
        new=True,
    )
    strip_optimizer: bool = option(
        False,
        "Leave out Adam slots and step, two thirds of a checkpoint of a training. Formats other "
        "than the original's have no place for them anyway.",
        new=True,
    )
    inspect: bool = option(
        False, "Write nothing; print names, shapes, sizes, head and release of --input.", new=True
    )

    def check(self) -> None:
        """Checks what can be checked without reading a file."""
        check_required(self)
        check_values(self)
        if self.inspect and self.output:
            raise UserError("--inspect writes nothing: leave out --output, or --inspect")
        if not self.inspect and not self.output:
            raise UserError("Required, but not given: --output (or --inspect to only look)")
