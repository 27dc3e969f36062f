"""Writes the features of the texts in a file, or of a corpus on Apache Beam: `extract_features.py`.

Texts are processed in chunks, so that neither input nor output has to fit into memory.
"""

import dataclasses
import functools
import itertools
import logging
import threading
from collections.abc import Callable, Iterator, Sequence

from bert_tf import file_names, files
from bert_tf.checkpoints.run_folder import fingerprint
from bert_tf.data.beam import convert_files, for_each_on_beam
from bert_tf.data.texts import (
    STDIN,
    Text,
    check_lines,
    display_name,
    read_columns,
    read_lines,
)
from bert_tf.declare import DATA, PATH, RESULTS, ROWS, WEIGHTS
from bert_tf.errors import UserError, counted, excerpt
from bert_tf.finetuning.engines import checkpoint_id
from bert_tf.progress import bar, log
from bert_tf.tables.columns import COLUMN_NAME
from bert_tf.tasks.feature_extraction.extractor import MAX_TEXTS, Extractor, read_encoder
from bert_tf.tasks.feature_extraction.feature_files import FORMATS
from bert_tf.tasks.feature_extraction.options import ExtractionOptions

# Maximum number of bytes of features per chunk.
_MAX_BYTES = 1 << 28
# Extensions of output files that suggest a different format than JSON lines.
_NON_JSON_EXTENSIONS = (".npy", ".npz", ".csv", ".tsv", ".pt", ".pkl", ".h5", ".parquet")
# Only one thread of a worker extracts at a time: TensorFlow uses all cores anyway.
_worker_lock = threading.Lock()
# The model of a worker.
_extractors: dict[ExtractionOptions, Extractor] = {}
# What the features in a file depend on, besides model and texts.
_AFFECTING = ROWS | WEIGHTS | DATA | RESULTS


def run(options: ExtractionOptions) -> None:
    """Writes the features of all texts; leaves no output file if an error occurs.

    With `beam_runner`, writes one for each input file, and keeps finished ones if an error occurs.
    """
    options.check()
    if options.beam_runner:
        _run_on_beam(options)
        return
    input_file, output_file = options.input_file or "", options.output_file or ""
    file_names.require_distinct([output_file], [input_file])
    file_names.require_writable(output_file)
    _extract_file(options, functools.partial(Extractor, options))


def _run_on_beam(options: ExtractionOptions) -> None:
    found, output = file_names.expand(options.input_file or ""), options.output_file or ""
    # Programs that write a file per worker leave some empty.
    paths = [path for path in found if files.size(path)]
    if len(paths) < len(found):
        log.info("%s", counted(len(found) - len(paths), "file", "are empty", of=len(found)))
    if not paths:
        raise UserError(f"--input_file={options.input_file} contains no text")
    # Errors in model and flags appear now rather than in a worker.
    encoder = read_encoder(options)
    folder, values = encoder.folder, encoder.options.values(_AFFECTING, without=PATH)
    checkpoint = folder.model or folder.checkpoint(check=False)
    model = checkpoint_id(folder.path, checkpoint, encoder.options)
    vocabulary = fingerprint(encoder.tokenizer.vocab)
    settings = {**values, "model": model, "vocabulary": vocabulary}
    options = dataclasses.replace(options, output_format=options.file_format)
    workers = functools.partial(
        for_each_on_beam, runner=options.beam_runner or "", options=options.beam_options or ""
    )
    function, extension = functools.partial(extract_shard, options), f".{options.output_format}"
    convert_files(function, paths, output, extension, settings, workers)
    log.info("Features of %s: %s", counted(len(paths), "file"), output)


# Beam pickles it by name.
def extract_shard(options: ExtractionOptions, shard: tuple[str, str]) -> None:
    """Writes the features of the texts in a file, given the paths of the file and the result."""
    input_file, output_file = shard
    shard_options = dataclasses.replace(options, input_file=input_file, output_file=output_file)
    with _worker_lock:
        _extract_file(shard_options, functools.partial(_load_extractor, options))


def _load_extractor(options: ExtractionOptions, total: int) -> Extractor:
    """Loads the model of this process for its first file."""
    if options not in _extractors:
        _extractors.clear()
        _extractors[options] = Extractor(options, total)
    return _extractors[options]


def _extract_file(options: ExtractionOptions, get_extractor: Callable[[int], Extractor]) -> None:
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
        message = "%s will contain JSON lines. Pass --output_format=npz to write NumPy arrays"
        log.warning(message, output_file)
    extractor = get_extractor(total)
    used, count = extractor.options, 0
    num_truncated = extractor.num_truncated
    indexed_texts, empty = enumerate(texts), []
    with (
        files.atomic_write(output_file) as temporary,
        FORMATS[options.file_format](temporary, extractor.layers) as write,
        bar(total, "texts") as progress,
    ):
        while chunk := list(itertools.islice(indexed_texts, _chunk_size(used, extractor))):
            if not count:
                _warn_about_texts(options, [text for _, text in chunk])
            features = extractor.features([text for _, text in chunk])
            for (index, _), text_features in zip(chunk, features, strict=True):
                write(index, *text_features)
            empty += [i + 1 for i, text in chunk if not all(x is None or x.strip() for x in text)]
            progress.update(len(chunk))
            count += len(chunk)
    log.info("Features of %s: %s", counted(count, "text"), output_file)
    if empty:
        are_empty = counted(len(empty), "text", "are empty", of=count)
        log.warning("%s: %s. The first is text %d", display_name(input_file), are_empty, empty[0])
    if num_truncated := extractor.num_truncated - num_truncated:
        cut = f"are longer than --max_seq_length={used.max_seq_length} and were truncated"
        log.warning(counted(num_truncated, "text", cut, of=count))


def _read(options: ExtractionOptions) -> Iterator[Text]:
    path, column, pair = options.input_file or "", options.text_column, options.text_pair_column
    if not column:
        return read_lines(path)
    return (text for _, text in read_columns(path, column, pair, options.has_header))


def _warn_about_texts(options: ExtractionOptions, texts: Sequence[Text]) -> None:
    """Warns about the first texts of the input, and about how it was read."""
    path, column = display_name(options.input_file or ""), options.text_column
    lines = [" ".join(filter(None, text)) for text in texts]
    if count := sum("|||" in line for line in lines):
        message = "%s: ||| is part of %d of the first %s. Write a pair as A ||| B, with spaces"
        log.warning(message, path, count, counted(len(lines), "text"))
    if not column:
        for problem in check_lines(path, lines, "Select a column with --text_column"):
            log.warning("%s: %s", path, problem)
    elif column.isdecimal() and options.has_header == "auto":
        level = logging.WARNING if COLUMN_NAME.fullmatch(lines[0]) else logging.INFO
        message = "%s: the first text is %s. If it is a column name, pass --has_header=yes"
        log.log(level, message, path, excerpt(lines[0]))


def _chunk_size(options: ExtractionOptions, extractor: Extractor) -> int:
    bytes_per_text = 4 * len(extractor.layers) * extractor.config.hidden_size
    if options.pooling == "none":
        bytes_per_text *= options.max_seq_length
    return max(min(MAX_TEXTS, _MAX_BYTES // bytes_per_text), options.batch_size)
