"""Features of texts by a trained encoder: `extract_features.py`.

Texts are read and worked on some at a time, so that neither input nor output has to fit into
memory. n texts, S max_seq_length, L layers, H hidden_size.
"""

import itertools
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf import backend, file_names, files, training
from bert_tf.batch_tokenization import BatchTokenizer
from bert_tf.data.packing import pack_batch
from bert_tf.data.parallel import num_cores
from bert_tf.data.records import sequence_features
from bert_tf.data.texts import STDIN, Text, display_name, read_columns, read_lines
from bert_tf.errors import UserError
from bert_tf.modeling import BertModel
from bert_tf.options import ExtractionOptions
from bert_tf.progress import bar, log
from bert_tf.tasks.agreement import require_one_process
from bert_tf.tasks.engine import Engine
from bert_tf.tasks.feature_files import FORMATS
from bert_tf.tasks.start import load_config_and_tokenizer, located, restore_from
from bert_tf.token_ids import TokenIds

# Features that wait for those of texts before them.
_BYTES_TOGETHER = 1 << 28
_MOST_TEXTS_TOGETHER = 4096
# With so many batches for each core nobody waits long for the last one. Short texts, of which
# more are in a batch, make fewer.
_MANY_BATCHES = 16
# So many win back the half second that XLA compiles; of a larger model fewer would.
_TEXTS_TO_COMPILE_FOR = 4096
# What a line has, in files of these kinds, that has more than one column.
_OTHER_ENDINGS = (".npy", ".csv", ".tsv", ".pt", ".pkl", ".h5", ".parquet")
_SIGNS_OF_COLUMNS = {"tsv": "\t", "csv": ",", "jsonl": "{", "json": ""}


def run(options: ExtractionOptions) -> None:
    """Writes the features of all texts.

    Raises:
        UserError: a file cannot be read or written, or the checkpoint does not fit; nothing has
            been written then.
    """
    input_file, output_file = options.input_file or "", options.output_file or ""
    file_names.require_others([output_file], [input_file])
    file_names.require_writable(output_file)
    # Reads the input once beforehand to find errors in it; a pipe can be read only once.
    is_read_once = input_file == STDIN or files.is_stream(input_file)
    total = 0 if is_read_once else sum(1 for _ in _read(options))
    texts = _read(options)
    first = next(texts, None)
    if first is None:
        raise UserError(f"{display_name(input_file)} contains no text")
    if options.file_format == "jsonl" and output_file.lower().endswith(_OTHER_ENDINGS):
        message = "%s is written as lines of JSON. --output_format=npz writes arrays for NumPy"
        log.warning(message, output_file)
    extractor = Extractor(options, total)
    bytes_of_row = 4 * len(extractor.layers) * extractor.config.hidden_size
    if options.pooling == "none":
        bytes_of_row *= options.max_seq_length
    together = min(_MOST_TEXTS_TOGETHER, _BYTES_TOGETHER // bytes_of_row)
    together = max(together, options.batch_size)
    with (
        files.replacing(output_file) as temporary,
        FORMATS[options.file_format](temporary, extractor.layers) as file,
        bar(total, "texts") as progress,
    ):
        numbered = enumerate(itertools.chain([first], texts))
        while part := list(itertools.islice(numbered, together)):
            if not extractor.texts:
                strings = [[*filter(None, text)] for _, text in part]
                extractor.tokenizer.warn_of_unknown(
                    display_name(input_file), strings, options.pretokenized
                )
            with training.explained_errors():
                tokens, values = extractor.extract([text for _, text in part])
            for row, (index, _) in enumerate(part):
                file.write(index, tokens[row] if tokens else None, values[row])
            progress.update(len(part))
    log.info("Features of %d texts: %s", extractor.texts, output_file)
    if extractor.cut:
        log.warning(
            "%d of %d texts are longer than --max_seq_length=%d and were cut",
            extractor.cut,
            extractor.texts,
            options.max_seq_length,
        )


def _batches_per_core(options: ExtractionOptions, total: int) -> float:
    """How many batches of `batch_size` a part of the texts has for each core.

    0 where features of all tokens are asked for: they take so much room that parts are small.
    """
    texts = min(total, _MOST_TEXTS_TOGETHER) if options.pooling != "none" else 0
    return texts / options.batch_size / num_cores()


def _read(options: ExtractionOptions) -> Iterator[Text]:
    path, column, pair = options.input_file or "", options.text_column, options.text_pair_column
    if not column:
        kind = re.search(r"\.(tsv|csv|jsonl?)(\.gz)?$", path)
        if kind and _SIGNS_OF_COLUMNS[kind[1]] in next(iter(files.read_lines(path)), ""):
            log.warning(
                "%s: each line is taken for one text, with all its columns. --text_column takes "
                "the text from one of them, if tabs separate them",
                path,
            )
        return read_lines(path)
    named = any(name and not name.isdecimal() for name in (column, pair))
    return read_columns(
        path, column, pair, {"auto": named, "yes": True}.get(options.has_header, False)
    )


def _outputs_fn(layers: list[int], pooling: str) -> Callable[[Any, Any], dict[str, Any]]:
    """The model's `values`, float32 [B, S, L, H]; pooled [B, L, H], or [B, L, 2H] for mean_max."""

    def outputs_fn(outputs: Any, batch: Any) -> dict[str, Any]:
        chosen = [outputs["all_encoder_layers"][layer] for layer in layers]
        values = tf.stack([tf.cast(layer, tf.float32) for layer in chosen], axis=2)
        mask = tf.cast(batch["input_mask"], tf.float32)[:, :, None, None]
        if pooling == "cls":
            values = values[:, 0]
        elif pooling != "none":
            mean = tf.reduce_sum(values * mask, axis=1) / tf.reduce_sum(mask, axis=1)
            highest = tf.reduce_max(tf.where(mask > 0, values, values.dtype.min), axis=1)
            pooled = {"mean": [mean], "max": [highest], "mean_max": [mean, highest]}
            values = tf.concat(pooled[pooling], axis=-1)
        return {"values": values}

    return outputs_fn


class TextFeatures(NamedTuple):
    """What the encoder makes of a text.

    Attributes:
        tokens: T of them; None where features are pooled.
        values: float32 [T, L, H]; [L, H] where they are pooled.
    """

    tokens: list[str] | None
    values: np.ndarray


class Extractor:
    """A trained encoder, loaded once, and what it makes of texts; for several threads.

    Args:
        options: of which `input_file`, `output_file` and `output_format` are not looked at.
        total: how many texts there will be at a time, where that is known. For many it is made to
            be fast with all of them, and slower with one, where TensorFlow has not started yet.

    Attributes:
        config: of the model.
        layers: indexes as they are given in the options.
        tokenizer: of its vocabulary.
        texts: how many were worked on.
        cut: how many of them were too long.

    Raises:
        UserError: the checkpoint cannot be read or does not fit, there is no such layer, or there
            are several processes.
    """

    def __init__(self, options: ExtractionOptions, total: int = 0) -> None:
        has_many_batches = _batches_per_core(options, total) >= _MANY_BATCHES
        engine = Engine(options, side_by_side=has_many_batches)
        require_one_process(engine.devices)
        options = located(options)
        self.config, tokenizer = load_config_and_tokenizer(options)
        self.layers = options.layer_indexes(self.config.num_hidden_layers)
        self.texts = self.cut = 0
        self._lock = threading.Lock()
        self.tokenizer = BatchTokenizer(tokenizer)
        self._max_seq_length = options.max_seq_length
        self._is_pretokenized = options.pretokenized
        self._is_pooled = options.pooling != "none"

        def build(use_one_hot_embeddings: bool, **kwargs: Any) -> BertModel:
            one_hot = use_one_hot_embeddings or options.use_one_hot_embeddings
            return BertModel(self.config, use_one_hot_embeddings=one_hot, **kwargs)

        with training.explained_errors():
            model = engine.build_model(build, blank_encoder=True)
            log.info("%s", restore_from(model, options.init_checkpoint or "").describe())
            outputs_fn = _outputs_fn(self.layers, options.pooling)
            features = sequence_features(options.max_seq_length)
            self._runner = engine.row_runner(
                model,
                outputs_fn,
                features,
                options.batch_size,
                compiles=has_many_batches and total >= _TEXTS_TO_COMPILE_FOR,
            )

    def features(self, texts: Sequence[Text]) -> list[TextFeatures]:
        """What `extract` gives, text by text."""
        with training.explained_errors():
            tokens, values = self.extract(texts)
        return list(map(TextFeatures, tokens or [None] * len(texts), values))

    def extract(self, texts: Sequence[Text]) -> tuple[list[list[str]] | None, list[np.ndarray]]:
        """What the encoder makes of texts.

        Returns:
            The T tokens of each text, and float32 [T, L, H] for each; where features are pooled
            None, and [L, H].
        """
        backend.require_runtime()
        rows = self._rows(texts)
        values: list[Any] = [None] * len(texts)
        lengths = rows["input_mask"].sum(axis=1)
        for numbers, outputs in self._runner(rows):
            for row, found in zip(numbers.tolist(), outputs["values"], strict=True):
                # A copy, so that the padding of its batch can be forgotten.
                values[row] = found if self._is_pooled else found[: lengths[row]].copy()
        if self._is_pooled:
            return None, values
        names = self.tokenizer.reference.inv_vocab
        pairs = zip(rows["input_ids"].tolist(), lengths.tolist(), strict=True)
        return [[names[number] for number in row[:length]] for row, length in pairs], values

    def _encode(self, texts: list[str]) -> TokenIds:
        if not self._is_pretokenized:
            return self.tokenizer.encode(texts)
        reference = self.tokenizer.reference
        pieces = map(reference.wordpiece_tokenizer.tokenize, texts)
        return TokenIds.from_lists([reference.convert_tokens_to_ids(tokens) for tokens in pieces])

    def _rows(self, texts: Sequence[Text]) -> dict[str, np.ndarray]:
        size = self._max_seq_length
        a = self._encode([text.text_a for text in texts])
        b = self._encode([text.text_b or "" for text in texts])
        is_pair = b.lengths > 0
        with self._lock:
            self.texts += len(texts)
            self.cut += int((a.lengths + b.lengths > size - 2 - is_pair).sum())
        vocab = self.tokenizer.reference.vocab
        return pack_batch(a, b if is_pair.any() else None, size, vocab["[CLS]"], vocab["[SEP]"])
