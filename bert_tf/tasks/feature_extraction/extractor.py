"""Computes features of texts with a trained encoder.

Shapes: B rows in a batch, T tokens in a text, S max_seq_length, L layers, H hidden_size.
"""

import dataclasses
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf import backend, checkpoints
from bert_tf.checkpoints import formats
from bert_tf.checkpoints.formats.sentence_transformers import DeclaredVectors, declared_vectors
from bert_tf.checkpoints.run_folder import RunFolder
from bert_tf.config import BertConfig
from bert_tf.data import array_ops
from bert_tf.data.features import sequence_features
from bert_tf.data.packing import CUT_TOKENS, convert_examples
from bert_tf.data.parallel import num_cores
from bert_tf.data.texts import (
    Text,
    display_name,
)
from bert_tf.declare import DefaultInt, DefaultStr
from bert_tf.errors import UserError
from bert_tf.finetuning.engines import loaded, open_model
from bert_tf.finetuning.model_files import read_model_files
from bert_tf.finetuning.prediction import PairCheck, TextCheck, require_texts
from bert_tf.inference.exported_model import HIDDEN_STATES, ExportedModel
from bert_tf.inference.row_batches import RowBatches
from bert_tf.progress import log
from bert_tf.tasks.feature_extraction.options import ExtractionOptions
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.fast import BatchTokenizer

# Maximum number of texts per chunk.
MAX_TEXTS = 4096
# Minimum batches per core for using one thread per batch: with fewer, too many cores would idle
# during the last batches. Set high because short texts form larger, and thus fewer, batches.
_MANY_BATCHES = 16


class TextFeatures(NamedTuple):
    """Features of a text."""

    tokens: list[str] | None  # None if the features are pooled
    values: np.ndarray  # float32 [T, L, H]; pooled [L, H]


class Extractor:
    """Computes features with a trained encoder, loaded once; thread-safe.

    Args:
        options: the options; input and output files are not used.
        total: expected number of texts per call of `features`; 0 if unknown. If large, operations
            run on one thread each, which is faster for many texts but slower for few.

    Attributes:
        config: configuration of the model.
        layers: indexes of the extracted layers, as in `options`.
        options: the options, where they were left to the model's folder, with its values.
        tokenizer: tokenizer of the model.
        num_texts: number of texts processed so far.
        num_truncated: number of these texts that were truncated.

    Raises:
        UserError: the checkpoint cannot be read or does not match, a layer does not exist, or there
            are several processes; or the folder makes vectors in a way that is not supported.
    """

    def __init__(self, options: ExtractionOptions, total: int = 0) -> None:
        encoder = read_encoder(options)
        self._folder, self._declared, self.options, self.config, tokenizer = encoder
        self.layers = self.options.layer_indexes(self.config.num_hidden_layers)
        self.tokenizer = BatchTokenizer(tokenizer)
        self._check_pairs = PairCheck(trained_on_pairs=None)
        self._check_texts = TextCheck(tokenizer, display_name(options.input_file or "Inputs"))
        self.num_texts = self.num_truncated = 0
        self._lock = threading.Lock()
        self._inference = self._open(total)

    def _open(self, total: int) -> RowBatches:
        options, checkpoint = self.options, self.options.init_checkpoint or ""

        def build(use_one_hot_embeddings: bool = False, **kwargs: Any) -> Any:
            from bert_tf.modeling import BertModel

            one_hot = use_one_hot_embeddings or options.use_one_hot_embeddings
            return BertModel(self.config, use_one_hot_embeddings=one_hot, **kwargs)

        def load(model: Any) -> None:
            restored = checkpoints.load_weights(model, formats.find_source(checkpoint))
            log.info("%s", restored.describe())

        features = sequence_features(options.max_seq_length)
        arguments: Any = (self._select, features, options, options.batch_size)
        settings: Any = {"cache_suffix": "_encoder", "hidden_states": True}
        get_model = loaded(build, load)
        one_thread = _has_many_batches(options, total)
        inference = open_model(
            self._folder, get_model, *arguments, one_thread=one_thread, num_rows=total, **settings
        )
        if not isinstance(inference, ExportedModel):
            return inference
        all_layers = f"{HIDDEN_STATES}0" in inference.output_names
        if "last_hidden_state" not in inference.output_names:
            raise UserError(f"{self._folder} is not an encoder: it has no last_hidden_state")
        if not all_layers and not {-1, self.config.num_hidden_layers - 1}.issuperset(self.layers):
            raise UserError(f"{self._folder} has only the last layer: pass --layers=-1")
        return inference

    def _select(self, outputs: Any, batch: Any) -> dict[str, Any]:
        layers = outputs.get("all_encoder_layers")
        if layers is None:
            last_layer = outputs["sequence_output"]
            layers = {-1: last_layer, self.config.num_hidden_layers - 1: last_layer}
        selected = [array_ops.cast(layers[index], "float32") for index in self.layers]
        values = array_ops.namespace(selected[0]).stack(selected, axis=2)  # [B, S, L, H]
        pooling = self.options.pooling
        if pooling != "none":  # [B, L, H], or 2H for mean_max
            values = array_ops.pool(values, batch["input_mask"], pooling)
        if self._declared and self._declared.normalize:
            values = array_ops.normalize(values)
        return {"values": values}

    def __call__(self, inputs: Sequence[Any]) -> list[TextFeatures]:
        """Computes the features of strings and tuples of two strings, for a `Predictor`."""
        require_texts(inputs, [1, 2], "a string, or a tuple of two strings")
        self._check_pairs(inputs)
        texts = [Text(*item) if isinstance(item, tuple) else Text(item) for item in inputs]
        return self.features(texts)

    def features(self, texts: Sequence[Text]) -> list[TextFeatures]:
        """Computes the features of texts."""
        backend.require_runtime()
        self._check_texts(texts)
        if self._declared and self._declared.lower_case:
            texts = [Text(a.lower(), b and b.lower()) for a, b in texts]
        rows = convert_examples(texts, None, self.options.max_seq_length, self.tokenizer)
        with self._lock:
            self.num_texts += len(texts)
            self.num_truncated += int(np.count_nonzero(rows[CUT_TOKENS]))
        if self.options.pooling != "none":
            return [TextFeatures(None, v) for v in self._inference.predict(rows)["values"]]
        values: list[Any] = [None] * len(texts)
        lengths = rows["input_mask"].sum(axis=1)
        for row_indices, outputs in self._inference.batches(rows):
            for row, row_values in zip(row_indices.tolist(), outputs["values"], strict=True):
                # Copy, so that the padded batch can be freed.
                values[row] = row_values[: lengths[row]].copy()
        to_tokens = self.tokenizer.reference.convert_ids_to_tokens
        pairs = zip(rows["input_ids"].tolist(), values, strict=True)
        return [TextFeatures(to_tokens(ids[: len(v)]), v) for ids, v in pairs]


class Encoder(NamedTuple):
    """What an encoder's folder and the options say, without the weights."""

    folder: RunFolder
    declared: DeclaredVectors | None
    options: ExtractionOptions
    config: BertConfig
    tokenizer: FullTokenizer


def read_encoder(options: ExtractionOptions) -> Encoder:
    """Reads the files of an encoder, and completes the options; UserError if they do not fit."""
    folder = RunFolder.of(options.init_checkpoint or "")
    options, declared = _follow_folder(options, folder)
    options, config, tokenizer = read_model_files(options, export=folder.path)
    options.layer_indexes(config.num_hidden_layers)
    return Encoder(folder, declared, options, config, tokenizer)


def _follow_folder(
    options: ExtractionOptions, folder: RunFolder
) -> tuple[ExtractionOptions, DeclaredVectors | None]:
    """Returns complete options, and what the folder declares if they follow it; else None.

    Raises a UserError if they should, but the folder makes its vectors in an unsupported way.
    """
    declared = declared_vectors(folder)
    if options.pooling != "auto" or not declared:
        pooling = "none" if options.pooling == "auto" else options.pooling
        if declared and pooling != "none" and declared.differs_from(pooling):
            message = "%s, but --pooling=%s was passed. Omit it to have the declared vectors"
            log.warning(message, declared, pooling)
        return dataclasses.replace(options, pooling=pooling), None
    if declared.unsupported:
        advice = "Pass --pooling=mean, or another value, to have other vectors of the encoder"
        raise UserError(f"{declared}, which is not supported. {advice}")
    length = declared.max_seq_length or options.max_seq_length
    values: dict[str, Any] = {"layers": "-1", "max_seq_length": length}
    for name, value in values.items():
        passed = getattr(options, name)
        if not isinstance(passed, DefaultInt | DefaultStr) and passed != value:
            message = "--%s=%s was passed, but the vectors of %s are made with %s"
            log.warning(message, name, passed, folder, value)
            values[name] = passed
    if declared.prompt:
        message = "%s: the texts get no prompt. Write %r before each of them"
        log.warning(message, declared.path, declared.prompt)
    log.info("%s, max_seq_length=%d", declared, values["max_seq_length"])
    return dataclasses.replace(options, pooling=declared.pooling, **values), declared


def _has_many_batches(options: ExtractionOptions, total: int) -> bool:
    # Without pooling, chunks have few texts, because features of tokens take much memory.
    chunk_size = min(total, MAX_TEXTS) if options.pooling != "none" else 0
    return chunk_size / options.batch_size / num_cores() >= _MANY_BATCHES
