"""Options of `extract_features.py`."""

import dataclasses
import os

from bert_tf.errors import UserError
from bert_tf.options.fields import check_required, option
from bert_tf.options.shared import DeviceOptions, ModelOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExtractionOptions(ModelOptions, DeviceOptions):
    """Options of `extract_features.py`."""

    init_checkpoint: str | None = option(
        None,
        "Trained encoder: a prefix (bert_model.ckpt, model.ckpt-N) or a folder.",
        required=True,
    )
    input_file: str | None = option(
        None,
        "Texts, one a line; `A ||| B` is a pair. `-` is the standard input. With --text_column a "
        "file of columns that tabs separate.",
        required=True,
    )
    output_file: str | None = option(None, "File for the features.", required=True)
    layers: str = option(
        "-1,-2,-3,-4", "Layers, from 0 on, or from -1 on counted from the last, with commas."
    )
    batch_size: int = option(32, "Texts in a batch; of short ones more.", limits=(1, 2**31 - 1))
    use_one_hot_embeddings: bool = option(
        False, "Look words up by a matrix product, which is faster on a TPU."
    )
    output_format: str = option(
        "auto",
        "jsonl: the original's, an object a line; npz: arrays that numpy.load opens; tfrecord: a "
        "tf.train.Example for each text. auto: npz or tfrecord if --output_file ends in .npz or "
        ".tfrecord, else jsonl.",
        new=True,
        choices=("auto", "jsonl", "npz", "tfrecord"),
    )
    pooling: str = option(
        "none",
        "none: a vector for each token; cls, mean, max: one for each text, that of [CLS], or over "
        "all tokens; mean_max: mean and max, one after the other, in one vector of twice the size.",
        new=True,
        choices=("none", "cls", "mean", "max", "mean_max"),
    )
    pretokenized: bool = option(
        False,
        "The texts are tokens with spaces between them: each is only looked up, and cut into word "
        "pieces if the vocabulary lacks it; nothing is lower-cased.",
        new=True,
    )
    text_column: str | None = option(
        None, "Column with the text: its name in the first row, or its number from 1 on.", new=True
    )
    text_pair_column: str | None = option(
        None, "Column with the second text of a pair, as --text_column.", new=True
    )
    has_header: str = option(
        "auto",
        "Whether the first row has names of columns. auto: where a column is given by its name.",
        new=True,
        choices=("auto", "yes", "no"),
    )

    @property
    def file_format(self) -> str:
        """`output_format`; for `auto`, the format that `output_file` ends in."""
        if self.output_format != "auto":
            return self.output_format
        ending = os.path.splitext(self.output_file or "")[1].lower().removeprefix(".")
        return ending if ending in ("npz", "tfrecord") else "jsonl"

    def layer_indexes(self, num_hidden_layers: int | None = None) -> list[int]:
        """Parses `layers`, and checks them against the number of layers of the model if known."""
        try:
            found = [int(index) for index in self.layers.split(",")]
        except ValueError:
            raise UserError(
                f"--layers must be whole numbers with commas, as in -1,-2. Received: {self.layers}"
            ) from None
        count = num_hidden_layers
        wrong = [index for index in found if count and not -count <= index < count]
        if wrong and count:
            raise UserError(
                f"--layers={self.layers}: there is no layer {wrong[0]}. The model has {count}: "
                f"0 to {count - 1}, or -1 (the last) to -{count}; embeddings cannot be chosen"
            )
        return found

    def check_model(self) -> None:
        """Checks the options of model and inputs."""
        super().check_model()
        self.layer_indexes()

    def check(self) -> None:
        """Checks what can be checked without reading a file."""
        check_required(self, self._not_needed())
        self.check_model()
        for name in ("text_column", "text_pair_column"):
            value = getattr(self, name) or "1"
            if value.isdecimal() and int(value) < 1:
                raise UserError(f"--{name}: columns count from 1. Received: {value}")
        if not self.text_column:
            for name in ("text_pair_column", "has_header"):
                if getattr(self, name) not in (None, "auto"):
                    raise UserError(f"--{name} needs --text_column")
        named = any(
            name and not name.isdecimal() for name in (self.text_column, self.text_pair_column)
        )
        if named and self.has_header == "no":
            raise UserError(
                "--has_header=no: without names in the first row columns are given by numbers"
            )
