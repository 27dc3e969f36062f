"""Options of `extract_features.py`."""

import dataclasses

from bert_tf.base.errors import UserError
from bert_tf.data.beam import BeamOptions
from bert_tf.data.split_files import LayoutOptions
from bert_tf.options.declare import (
    DATA,
    DEVICES,
    PATH,
    RESULTS,
    RUN,
    DefaultStr,
    check_needs,
    option,
)
from bert_tf.options.shared import EngineOptions, ModelOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExtractionOptions(BeamOptions, ModelOptions, EngineOptions, LayoutOptions, affects=RESULTS):
    """Options of `extract_features.py`."""

    init_checkpoint: str | None = option(
        None,
        "Checkpoint of an encoder: a prefix (bert_model.ckpt, model.ckpt-N) or a folder, also of a "
        "Hugging Face model or a TensorFlow Hub SavedModel.",
        affects=RUN | PATH,
        required=True,
    )
    input_file: str | None = option(
        None,
        "File of texts, one per line; `A ||| B` is a pair. `-`: standard input. With "
        "--text_column, a table: .csv, .jsonl, or tab-separated. With --beam_runner, several, as "
        "names separated by commas, patterns or folders.",
        affects=DATA | PATH,
        required=True,
    )
    output_file: str | None = option(
        None,
        "File for the features; with --beam_runner, a folder for one file per input file.",
        affects=RUN | PATH,
        required=True,
    )
    layers: str = option(
        DefaultStr("-1,-2,-3,-4"),
        "Comma-separated indexes of layers: 0 is the first layer, -1 the last.",
    )
    batch_size: int = option(
        32, "Texts per batch; batches of short texts may be larger.", limits=(1, 2**31 - 1)
    )
    use_one_hot_embeddings: bool = option(
        False,
        "Look up word embeddings with a one-hot matrix product, faster on TPUs.",
        affects=DEVICES,
    )
    output_format: str = option(
        "auto",
        "jsonl: JSON lines, as the 2018 script writes them; npz: NumPy arrays; tfrecord: a "
        "tf.train.Example per text. auto: npz or tfrecord if --output_file has that extension, "
        "otherwise jsonl.",
        new=True,
        choices=("auto", "jsonl", "npz", "tfrecord"),
    )
    pooling: str = option(
        "auto",
        "none: one vector per token; otherwise, one per text. cls: the vector of [CLS]; mean, "
        "max: mean or maximum over all tokens; mean_max: both, concatenated. auto: pooling, "
        "normalization, last layer and length of a sentence-transformers folder, else none.",
        new=True,
        choices=("auto", "none", "cls", "mean", "max", "mean_max"),
    )
    text_column: str | None = option(
        None,
        "Column with the text: its name in the first row, or its 1-based number.",
        affects=DATA,
        new=True,
    )
    text_pair_column: str | None = option(
        None, "Column with the second text of a pair, like --text_column.", affects=DATA, new=True
    )

    @property
    def file_format(self) -> str:
        """`output_format`; for `auto`, derived from the extension of `output_file`."""
        if self.output_format != "auto":
            return self.output_format
        extension = (self.output_file or "").lower().rpartition(".")[2]
        return extension if extension in ("npz", "tfrecord") else "jsonl"

    def layer_indexes(self, num_hidden_layers: int | None = None) -> list[int]:
        """Parses `layers`; if the model's number of layers is given, checks that all exist."""
        try:
            indexes = [int(index) for index in self.layers.split(",")]
        except ValueError:
            expected = "expected integers, such as -1,-2"
            raise UserError(f"{expected}. Received: {self.layers}", at="--layers") from None
        count = num_hidden_layers
        if count and (invalid := [x for x in indexes if not -count <= x < count]):
            layers = f"0 to {count - 1}, or -1 (the last) to -{count}"
            raise UserError(f"there is no layer {invalid[0]}, but {layers}", at="--layers")
        return indexes

    def check_model(self) -> None:
        """Checks the options that a loaded model needs: model, engine and `layers`."""
        super().check_model()
        self.check_engine()
        self.layer_indexes()

    def check(self) -> None:
        """Checks the options without reading any files."""
        self.check_required()
        self.check_model()
        check_needs(self)
        self.check_layout("text_pair_column")
