"""Computes features of texts with a trained encoder, for `extract_features.py`.

Texts are processed in chunks, so that neither input nor output has to fit into memory.
Shapes: B rows in a batch, T tokens in a text, S max_seq_length, L layers, H hidden_size.
"""

import dataclasses
import functools
import itertools
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf import checkpoints
from bert_tf.base import backend, file_names, files
from bert_tf.base.errors import UserError, counted, excerpt, note, warn
from bert_tf.base.progress import bar, log
from bert_tf.checkpoints import formats
from bert_tf.checkpoints.formats.sentence_transformers import DeclaredVectors, declared_vectors
from bert_tf.checkpoints.run_folder import RunFolder, fingerprint
from bert_tf.data import array_ops
from bert_tf.data.beam import convert_files, for_each_on_beam
from bert_tf.data.features import sequence_features
from bert_tf.data.packing import CUT_TOKENS, convert_examples
from bert_tf.data.parallel import num_cores
from bert_tf.data.texts import STDIN, Text, check_lines, display_name, read_columns, read_lines
from bert_tf.finetuning.engines import checkpoint_id, loaded, open_model
from bert_tf.finetuning.model_files import read_model_files
from bert_tf.finetuning.prediction import TextCheck, require_texts
from bert_tf.inference.exported_model import HIDDEN_STATES, ExportedModel
from bert_tf.inference.row_batches import RowBatches
from bert_tf.options.declare import DATA, PATH, RESULTS, ROWS, WEIGHTS, DefaultInt, DefaultStr
from bert_tf.tables.columns import COLUMN_NAME
from bert_tf.tasks.feature_extraction.feature_files import FORMATS
from bert_tf.tasks.feature_extraction.options import ExtractionOptions
from bert_tf.tokenization.fast import BatchTokenizer

# Maximum number of bytes of features, and of texts, per chunk.
_MAX_BYTES = 1 << 28
_MAX_TEXTS = 4096
# Minimum batches per core for using one thread per batch: with fewer, too many cores would idle
# during the last batches. Set high because short texts form larger, and thus fewer, batches.
_MANY_BATCHES = 16
# Extensions of output files that suggest a different format than JSON lines.
_NON_JSON_EXTENSIONS = (".npy", ".npz", ".csv", ".tsv", ".pt", ".pkl", ".h5", ".parquet")
# Only one thread of a worker extracts at a time: TensorFlow uses all cores anyway.
_worker_lock = threading.Lock()
# The model of a worker.
_extractors: dict[ExtractionOptions, "Extractor"] = {}


def run(options: ExtractionOptions) -> None:
    """Writes the features of all texts; leaves no incomplete file if an error occurs."""
    options.check()
    if options.beam_runner:
        _run_on_beam(options)
        return
    input_file, output_file = options.input_file or "", options.output_file or ""
    file_names.require_distinct([output_file], [input_file])
    file_names.require_writable(output_file)
    _extract_file(options, functools.partial(Extractor, options))


def _run_on_beam(options: ExtractionOptions) -> None:
    """Writes a file to the folder `output_file` for each input file; keeps finished ones."""
    found, output = file_names.expand(options.input_file or ""), options.output_file or ""
    # Programs that write a file per worker leave some empty.
    paths = [path for path in found if files.size(path)]
    if len(paths) < len(found):
        note(counted(len(found) - len(paths), "file", "are empty", of=len(found)))
    if not paths:
        raise UserError(f"--input_file={options.input_file} contains no text")
    # Errors in model and flags appear now rather than in a worker.
    folder, _, (complete, _, tokenizer) = _read_encoder(options)
    checkpoint = folder.model or folder.checkpoint(check=False)
    model = checkpoint_id(folder.path, checkpoint, complete), fingerprint(tokenizer.vocab)
    settings = {**complete.values(ROWS | WEIGHTS | DATA | RESULTS, without=PATH), "model": model}
    options = dataclasses.replace(options, output_format=options.file_format)
    workers = functools.partial(
        for_each_on_beam, runner=options.beam_runner or "", options=options.beam_options or ""
    )
    function, extension = functools.partial(extract_shard, options), f".{options.output_format}"
    convert_files(function, paths, output, extension, settings, workers)
    note(f"Features of {counted(len(paths), 'file')}: {output}")


# Beam pickles it by name.
def extract_shard(options: ExtractionOptions, shard: tuple[str, str]) -> None:
    """Writes the features of the texts in a file, given the paths of the file and the result."""

    def load(total: int) -> "Extractor":
        if options not in _extractors:
            _extractors.clear()
            _extractors[options] = Extractor(options, total)
        return _extractors[options]

    with _worker_lock:
        _extract_file(dataclasses.replace(options, input_file=shard[0], output_file=shard[1]), load)


def _extract_file(options: ExtractionOptions, get_extractor: Callable[[int], "Extractor"]) -> None:
    """Extracts one file, with an extractor that is given the number of texts; 0 if unknown."""
    input_file, output_file = options.input_file or "", options.output_file or ""
    # Read the whole input first to find errors early, unless it is a stream.
    is_stream = input_file == STDIN or files.is_stream(input_file)
    total = 0 if is_stream else sum(1 for _ in _read(options))
    texts, texts_ahead = itertools.tee(_read(options))
    if not any(map(any, texts_ahead)):
        raise UserError(f"{display_name(input_file)} contains no text")
    del texts_ahead  # so that the texts are not kept for it
    if options.file_format == "jsonl" and output_file.lower().endswith(_NON_JSON_EXTENSIONS):
        warn(
            f"{output_file} will contain JSON lines",
            fix="Pass --output_format=npz to write NumPy arrays",
        )
    extractor = get_extractor(total)
    extractor.num_texts = extractor.num_truncated = 0
    if extractor._declared and any(extractor._declared.prompts.values()):
        note(
            "The declared prompts are not added. Write them before the texts: "
            f"{dict(extractor._declared.prompts)}"
        )
    options = dataclasses.replace(extractor.options, input_file=input_file)
    indexed_texts, empty = enumerate(texts), []
    with (
        files.atomic_write(output_file) as temporary,
        FORMATS[options.file_format](temporary, extractor.layers) as write,
        bar(total, "texts") as progress,
    ):
        while chunk := list(itertools.islice(indexed_texts, extractor.chunk_size)):
            if not extractor.num_texts:
                _warn_about_texts(options, [text for _, text in chunk])
            part = {"start": chunk[0][0], "total": total}
            features = extractor.features([text for _, text in chunk], **part)
            for (index, _), text_features in zip(chunk, features, strict=True):
                write(index, *text_features)
            empty += [i + 1 for i, text in chunk if not all(x is None or x.strip() for x in text)]
            progress.update(len(chunk))
    note(f"Features of {counted(extractor.num_texts, 'text')}: {output_file}")
    if empty:
        are_empty = counted(len(empty), "text", "are empty", of=extractor.num_texts)
        warn(are_empty, at=display_name(input_file), fix=f"The first is text {empty[0]}")
    if extractor.num_truncated:
        cut = f"are longer than --max_seq_length={options.max_seq_length} and were truncated"
        warn(counted(extractor.num_truncated, "text", cut, of=extractor.num_texts))


def _read(options: ExtractionOptions) -> Iterator[Text]:
    path, column, pair = options.input_file or "", options.text_column, options.text_pair_column
    if not column:
        return read_lines(path)
    rows = read_columns(path, {"text": column, "text_pair": pair}, options.has_header)
    return (Text(*cells.values()) for _, cells in rows)


def _warn_about_texts(options: ExtractionOptions, texts: Sequence[Text]) -> None:
    """Warns about the first texts of the input, and about how it was read."""
    path, column = display_name(options.input_file or ""), options.text_column
    lines = [" ".join(filter(None, text)) for text in texts]
    if count := sum("|||" in line for line in lines):
        warn(
            f"||| is part of {count} of the first {counted(len(lines), 'text')}",
            at=path,
            fix="Write a pair as A ||| B, with spaces",
        )
    if not column:
        for problem in check_lines(path, lines, "Select a column with --text_column"):
            warn(problem, at=path)
    elif column.isdecimal() and options.has_header == "auto":
        level = logging.WARNING if COLUMN_NAME.fullmatch(lines[0]) else logging.INFO
        message = "%s: the first text is %s. If it is a column name, pass --has_header=yes"
        log.log(level, message, path, excerpt(lines[0]))


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
        self._folder, self._declared, model_files = _read_encoder(options)
        self.options, self.config, tokenizer = model_files
        self.layers = self.options.layer_indexes(self.config.num_hidden_layers)
        self.tokenizer = BatchTokenizer(tokenizer)
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
            note(restored.describe())

        features = sequence_features(options.max_seq_length)
        arguments: Any = (self._select, features, options, options.batch_size)
        settings: Any = {"cache_suffix": "_encoder", "hidden_states": True}
        get_model = loaded(build, load)
        # Without pooling, chunks have few texts, because features of tokens take much memory.
        chunk_size = min(total, _MAX_TEXTS) if options.pooling != "none" else 0
        one_thread = chunk_size / options.batch_size / num_cores() >= _MANY_BATCHES
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

    @property
    def chunk_size(self) -> int:
        """Number of texts whose features take some 100 MB."""
        num_bytes = 4 * len(self.layers) * self.config.hidden_size
        num_bytes *= self.options.max_seq_length if self.options.pooling == "none" else 1
        return max(min(_MAX_TEXTS, _MAX_BYTES // num_bytes), self.options.batch_size)

    def __call__(self, inputs: Sequence[Any]) -> list[TextFeatures]:
        """Computes the features of strings and tuples of two strings, for a `Predictor`."""
        require_texts(inputs, [1, 2], "a string, or a tuple of two strings")
        texts = [Text(*item) if isinstance(item, tuple) else Text(item) for item in inputs]
        return self.features(texts)

    def features(self, texts: Sequence[Text], **part: int) -> list[TextFeatures]:
        """Computes the features of texts; for `part`, see `RowBatches.batches`."""
        backend.require_runtime()
        self._check_texts(texts)
        if self._declared and not self.num_texts:
            for problem in self._declared.check(texts):
                warn(f"{self._folder}: {problem}")
        if self._declared and self._declared.lower_case:
            texts = [Text(a.lower(), b and b.lower()) for a, b in texts]
        rows = convert_examples(texts, None, self.options.max_seq_length, self.tokenizer)
        with self._lock:
            self.num_texts += len(texts)
            self.num_truncated += int(np.count_nonzero(rows[CUT_TOKENS]))
        if self.options.pooling != "none":
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


def _read_encoder(options: ExtractionOptions) -> tuple[RunFolder, DeclaredVectors | None, Any]:
    """Returns the folder, what it declares, and what `read_model_files` returns."""
    folder = RunFolder.of(options.init_checkpoint or "")
    options, declared = _follow_folder(options, folder)
    model_files = read_model_files(options, export=folder.path)
    options.layer_indexes(model_files[1].num_hidden_layers)
    return folder, declared, model_files


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
            warn(
                f"{declared}, but --pooling={pooling} was passed",
                fix="Omit it to have the declared vectors",
            )
        return dataclasses.replace(options, pooling=pooling), None
    if declared.unsupported:
        advice = "Pass --pooling=mean, or another value, to have other vectors of the encoder"
        raise UserError(f"{declared}, which is not supported", fix=advice)
    length = declared.max_seq_length or options.max_seq_length
    values: dict[str, Any] = {"layers": "-1", "max_seq_length": length}
    for name, value in values.items():
        passed = getattr(options, name)
        if not isinstance(passed, DefaultInt | DefaultStr) and passed != value:
            warn(f"--{name}={passed} was passed, but the vectors of {folder} are made with {value}")
            values[name] = passed
    note(f"{declared}, max_seq_length={values['max_seq_length']}")
    return dataclasses.replace(options, pooling=declared.pooling, **values), declared
