"""Options of `convert_checkpoint.py`."""

import dataclasses

from bert_tf import registry
from bert_tf.declare import Options, check_required, check_values, option
from bert_tf.errors import UserError

_HEADS = [script.head for script in registry.SCRIPTS.values() if script.head]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConversionOptions(Options):
    """Options of `convert_checkpoint.py`."""

    input: str | None = option(
        None,
        "Model to convert: an original BERT or Model Garden checkpoint (prefix or folder), the zip "
        "of a release, a Hugging Face transformers folder, a TensorFlow Hub SavedModel, or a "
        ".keras or .weights.h5 file.",
        required=True,
    )
    output: str | None = option(
        None, "Output path: a new folder, or a name ending in .ckpt, .keras or .weights.h5."
    )
    to: str = option(
        "auto",
        "Output format. auto: inferred from the extension of --output.",
        choices=("auto", "original", "hugging_face", "keras", "weights_h5"),
    )
    bert_config_file: str | None = option(None, "By default, the configuration next to the model.")
    vocab_file: str | None = option(None, "By default, the vocabulary next to the model.")
    do_lower_case: bool | None = option(
        None,
        "Whether the tokenizer for transformers lower-cases texts. By default, inferred from the "
        "model or its vocabulary.",
    )
    head: str = option(
        "auto",
        "Head to convert with the encoder. auto: the model's head. In original checkpoints, "
        "classification, token and multiple_choice look the same: auto assumes classification, "
        "except for output folders of run_ner.py and run_multiple_choice.py. Values: auto, "
        f"{', '.join(_HEADS)}, or the name of a registered model's head.",
    )
    labels: str | None = option(
        None,
        "Labels in the order of the model's outputs: a file with one label per line, or a "
        "comma-separated list. By default, the labels.txt next to the model.",
    )
    strip_optimizer: bool = option(
        False,
        "Drop Adam slots and step, which take up two thirds of a training checkpoint. Only the "
        "original format can store them.",
    )
    inspect: bool = option(
        False,
        "Print the variables, sizes and head of --input, and the published models of its size; "
        "write nothing.",
    )

    def check(self) -> None:
        """Checks the options without reading any files."""
        check_required(self)
        check_values(self)
        if self.inspect and self.output:
            raise UserError("--inspect writes no output: omit --output or --inspect")
        if not self.inspect and not self.output:
            raise UserError("Missing required flags: --output (or --inspect to write nothing)")
