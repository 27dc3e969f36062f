"""Encoders: how the folder of a model makes the vectors of texts, and these vectors.

Shapes: B rows in a batch, T tokens in a text, S max_seq_length, L layers, H hidden_size.
"""

import dataclasses
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf import checkpoints
from bert_tf.base import backend
from bert_tf.base.errors import UserError, counted, note, warn
from bert_tf.checkpoints import formats
from bert_tf.checkpoints.formats.sentence_transformers import (
    VectorSpec,
    check_encoder,
    declared_vectors,
)
from bert_tf.checkpoints.run_folder import RunFolder
from bert_tf.config import BertConfig
from bert_tf.data import array_ops
from bert_tf.data.features import sequence_features
from bert_tf.data.packing import CUT_TOKENS, convert_examples
from bert_tf.data.parallel import num_cores
from bert_tf.data.texts import Text
from bert_tf.finetuning.engines import loaded, open_model
from bert_tf.finetuning.model_files import read_model_files
from bert_tf.finetuning.prediction import TextCheck
from bert_tf.inference.exported_model import HIDDEN_STATES, ExportedModel
from bert_tf.inference.row_batches import RowBatches
from bert_tf.options.declare import DefaultInt
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.fast import BatchTokenizer

# Maximum number of bytes of features, and of texts, per chunk.
_MAX_BYTES = 1 << 28
_MAX_TEXTS = 4096
# Minimum batches per core for using one thread per batch: with fewer, too many cores would idle
# during the last batches. Set high because short texts form larger, and thus fewer, batches.
_MANY_BATCHES = 16


def vector_spec(folder: RunFolder, pooling: str = "auto", default: str = "none") -> VectorSpec:
    """Returns how the vectors of a model are made.

    Args:
        folder: folder of the model.
        pooling: another pooling than that of the folder; "auto": as the folder declares.
        default: pooling for a folder that declares none; unless it is "none", the model must be
            one for vectors of texts.

    Raises:
        UserError: the folder makes its vectors in a way that is not supported, or is damaged; or it
            is that of a cross-encoder, which has no vectors of texts.
    """
    if default != "none":
        check_encoder(folder)
    declared = declared_vectors(folder)
    if pooling == "auto" and declared:
        if declared.unsupported:
            raise UserError(f"{declared}, which is not supported")
        return declared
    pooling = default if pooling == "auto" else pooling
    warn_of_other_vectors(folder, pooling)
    return VectorSpec(pooling=pooling, prompts=declared.prompts if declared else {})


def warn_of_other_vectors(
    folder: RunFolder,
    pooling: str,
    normalize: bool | None = False,
    prefixes: Mapping[str, str] | None = None,
) -> None:
    """Warns if vectors that are made like this are not those that the folder declares.

    None for `normalize`: that is left open. `prefixes` are those of "query" and "passage".
    """
    declared = declared_vectors(folder)
    if declared is None or pooling == "none":
        return
    is_scaled = normalize is not None and declared.normalize != normalize
    if declared.unsupported or pooling != declared.pooling or is_scaled:
        warn(f"{declared}, not --pooling={pooling}")
    for kind, used in (prefixes or {}).items():
        expected = declared.prefix(kind == "query")
        if expected and expected != used:
            warn(f"{declared.path} declares --{kind}_prefix={expected!r}, not {used!r}")


class EncoderFiles(NamedTuple):
    """What an encoder consists of, before its weights are loaded."""

    folder: RunFolder
    spec: VectorSpec
    options: Any  # those passed, with the files and the length that they left to the folder
    config: BertConfig
    tokenizer: FullTokenizer


def read_encoder(options: Any, pooling: str = "auto", default: str = "none") -> EncoderFiles:
    """Reads all of an encoder but its weights; for `pooling` and `default`, see `vector_spec`.

    Raises:
        UserError: see `vector_spec` and `read_model_files`.
    """
    folder = RunFolder.of(options.init_checkpoint or "")
    spec, length = vector_spec(folder, pooling, default), options.max_seq_length
    if spec.is_declared:
        used = spec.max_seq_length or length
        if not isinstance(length, DefaultInt) and length != used:
            warn(f"{folder} is for --max_seq_length={used}, not {length}")
            used = length
        options = dataclasses.replace(options, max_seq_length=used)
        note(f"{spec}, max_seq_length={used}")
    return EncoderFiles(folder, spec, *read_model_files(options, export=folder.path))


class TextFeatures(NamedTuple):
    """Features of a text."""

    tokens: list[str] | None  # None if the features are pooled
    values: np.ndarray  # float32 [T, L, H]; pooled [L, H]


class Encoder:
    """Computes features of texts with a trained encoder, loaded once; thread-safe.

    Args:
        files: the encoder.
        layers: indexes of the layers whose features to return.
        batch_size: number of texts in a batch.
        one_hot: see `BertModel`.
        source: what messages about the texts call them.
        total: expected number of texts per call of `features`; 0 if unknown. If large, operations
            run on one thread each, which is faster for many texts but slower for few.

    Attributes:
        spec: how the vectors are made.
        options: the options, where they were left to the model's folder, with its values.
        config: configuration of the model.
        layers: the indexes of the layers.
        tokenizer: tokenizer of the model.
        num_texts: number of texts processed so far.
        num_truncated: number of these texts that were truncated.

    Raises:
        UserError: the checkpoint cannot be read or does not match, a layer does not exist, or there
            are several processes.
    """

    def __init__(
        self,
        files: EncoderFiles,
        layers: Sequence[int] = (-1,),
        batch_size: int = 32,
        *,
        one_hot: bool = False,
        source: str = "Inputs",
        total: int = 0,
    ) -> None:
        self._folder, self.spec, self.options, self.config, tokenizer = files
        self.layers, self._batch_size = [*layers], batch_size
        self.tokenizer = BatchTokenizer(tokenizer)
        self._check_texts = TextCheck(tokenizer, source)
        self.num_texts = self.num_truncated = 0
        self._lock = threading.Lock()
        self._inference = self._open(one_hot, total)

    def _open(self, one_hot: bool, total: int) -> RowBatches:
        checkpoint = self.options.init_checkpoint or ""

        def build(use_one_hot_embeddings: bool = False, **kwargs: Any) -> Any:
            from bert_tf.modeling import BertModel

            use_one_hot = use_one_hot_embeddings or one_hot
            return BertModel(self.config, use_one_hot_embeddings=use_one_hot, **kwargs)

        def load(model: Any) -> None:
            restored = checkpoints.load_weights(model, formats.find_source(checkpoint))
            note(restored.describe())

        # Without pooling, chunks have few texts, because features of tokens take much memory.
        chunk_size = min(total, _MAX_TEXTS) if self.spec.pooling != "none" else 0
        inference = open_model(
            self._folder,
            loaded(build, load),
            self._select,
            sequence_features(self.options.max_seq_length),
            self.options,
            self._batch_size,
            one_thread=chunk_size / self._batch_size / num_cores() >= _MANY_BATCHES,
            num_rows=total,
            cache_suffix="_encoder",
            hidden_states=True,
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
        if self.spec.pooling != "none":  # [B, L, H], or 2H for mean_max
            values = array_ops.pool(values, batch["input_mask"], self.spec.pooling)
        return {"values": array_ops.normalize(values) if self.spec.normalize else values}

    @property
    def chunk_size(self) -> int:
        """Number of texts whose features take some 100 MB."""
        num_bytes = 4 * len(self.layers) * self.config.hidden_size
        num_bytes *= self.options.max_seq_length if self.spec.pooling == "none" else 1
        return max(min(_MAX_TEXTS, _MAX_BYTES // num_bytes), self._batch_size)

    @property
    def size(self) -> int:
        """Size of a vector, D."""
        return len(self.spec.pooling.split("_")) * self.config.hidden_size

    def features(self, texts: Sequence[Text], **part: int) -> list[TextFeatures]:
        """Computes the features of texts; for `part`, see `RowBatches.batches`."""
        backend.require_runtime()
        self._check_texts(texts)
        if not self.num_texts:
            for problem in self._check_form(texts):
                warn(problem, at=str(self._folder))
        if self.spec.lower_case:
            texts = [Text(a.lower(), b and b.lower()) for a, b in texts]
        rows = convert_examples(texts, None, self.options.max_seq_length, self.tokenizer)
        with self._lock:
            self.num_texts += len(texts)
            self.num_truncated += int(np.count_nonzero(rows[CUT_TOKENS]))
        if self.spec.pooling != "none":
            vectors = self._inference.predict(rows, lambda _: None, **part)["values"]
            return [TextFeatures(None, v) for v in vectors]
        values: list[Any] = [None] * len(texts)
        lengths = rows["input_mask"].sum(axis=1)
        for row_indices, outputs in self._inference.batches(rows, **part):
            for row, row_values in zip(row_indices.tolist(), outputs["values"], strict=True):
                # Copy, so that the padded batch can be freed.
                values[row] = row_values[: lengths[row]].copy()
        to_tokens = self.tokenizer.reference.convert_ids_to_tokens
        pairs = zip(rows["input_ids"].tolist(), values, strict=True)
        return [TextFeatures(to_tokens(ids[: len(v)]), v) for ids, v in pairs]

    def vectors(self, texts: Sequence[str], **part: int) -> np.ndarray:
        """Returns the vectors of texts, float32 [N, D], from the first of the layers."""
        return np.stack([item.values[0] for item in self.features([*map(Text, texts)], **part)])

    def warn_of_truncation(self, total: int, earlier: int = 0) -> None:
        """Warns if some of `total` texts were truncated; `earlier` is `num_truncated` before."""
        if count := self.num_truncated - earlier:
            cut = f"are longer than max_seq_length={self.options.max_seq_length}"
            warn(counted(count, "text", f"{cut} and were truncated", of=total))

    def _check_form(self, texts: Sequence[Text]) -> Iterator[str]:
        if not all(text.startswith(self.spec.prompt) for text, _ in texts):
            yield f"the texts get no prompt: write {self.spec.prompt!r} before each"
        pairs = sum(pair is not None for _, pair in texts) if self.spec.is_declared else 0
        if pairs:
            share = counted(pairs, "input", "have two texts", of=len(texts))
            yield f"{share}, but the encoder compares single texts"
