"""Writes features of texts of a trained encoder, for `extract_features.py`.

Texts are processed in chunks, so that neither input nor output has to fit into memory.
"""

import dataclasses
import functools
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bert_tf.base import file_names, files
from bert_tf.base.errors import UserError, counted, note, warn
from bert_tf.base.progress import bar
from bert_tf.checkpoints.run_folder import fingerprint
from bert_tf.data.beam import convert_files, for_each_on_beam
from bert_tf.data.texts import Text, check_lines, read_lines
from bert_tf.finetuning.encoder import Encoder, EncoderFiles, TextFeatures, read_encoder
from bert_tf.finetuning.engines import checkpoint_id
from bert_tf.finetuning.prediction import require_texts
from bert_tf.options.declare import DATA, PATH, RESULTS, ROWS, WEIGHTS, DefaultStr
from bert_tf.tables.texts import STDIN, display_name, read_columns
from bert_tf.tasks.feature_extraction.feature_files import FORMATS
from bert_tf.tasks.feature_extraction.options import ExtractionOptions

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
    folder, _, complete, _, tokenizer = _read_encoder(options)
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
    columns = {"text": options.text_column, "text_pair": options.text_pair_column}
    read = functools.partial(_read, input_file, columns, **options.layout())
    name, total = display_name(input_file), 0 if is_stream else sum(1 for _ in read())
    texts, texts_ahead = itertools.tee(read())
    if not any(map(any, texts_ahead)):
        raise UserError(f"{name} contains no text")
    del texts_ahead  # so that the texts are not kept for it
    extractor = get_extractor(total)
    extractor.num_texts = extractor.num_truncated = 0
    if any(extractor.spec.prompts.values()):
        note(f"No prompt is added to the texts: {dict(extractor.spec.prompts)}")
    indexed_texts, empty = enumerate(texts), []
    with (
        files.atomic_write(output_file) as temporary,
        FORMATS[options.file_format](temporary, extractor.layers) as write,
        bar(total, "texts") as progress,
    ):
        while chunk := list(itertools.islice(indexed_texts, extractor.chunk_size)):
            if not extractor.num_texts:
                _warn_about_texts(name, [text for _, text in chunk], bool(columns["text"]))
            part = {"start": chunk[0][0], "total": total}
            features = extractor.features([text for _, text in chunk], **part)
            for (index, _), text_features in zip(chunk, features, strict=True):
                write(index, *text_features)
            empty += [i + 1 for i, text in chunk if not all(x is None or x.strip() for x in text)]
            progress.update(len(chunk))
    kind = options.file_format
    note(f"Features of {counted(extractor.num_texts, 'text')} as {kind}: {output_file}")
    if empty:
        are_empty = counted(len(empty), "text", "are empty", of=extractor.num_texts)
        warn(f"{are_empty}, first text {empty[0]}", at=name)
    extractor.warn_of_truncation(extractor.num_texts)


def _read(path: str, columns: Mapping[str, str | None], **layout: str) -> Iterator[Text]:
    if not columns["text"]:
        return read_lines(path)
    return (Text(*cells.values()) for _, cells in read_columns(path, columns, **layout))


def _warn_about_texts(path: str, texts: Sequence[Text], is_table: bool) -> None:
    """Warns about the first texts of the input, and about how it was read."""
    lines = [" ".join(filter(None, text)) for text in texts]
    if any("|||" in line for line in lines):
        warn("texts have |||, but only A ||| B, with spaces, is a pair", at=path)
    if not is_table:
        for problem in check_lines(path, lines, "Select a column with --text_column"):
            warn(problem, at=path)


class Extractor(Encoder):
    """An `Encoder` with the options of `extract_features.py`; a `Predictor` calls it.

    Args:
        options: the options; input and output files are not used.
        total: expected number of texts per call of `features`; 0 if unknown.
    """

    def __init__(self, options: ExtractionOptions, total: int = 0) -> None:
        encoder_files = _read_encoder(options)
        layers = encoder_files.options.layer_indexes()
        settings = {"one_hot": options.use_one_hot_embeddings, "total": total}
        source = display_name(options.input_file or "Inputs")
        super().__init__(encoder_files, layers, options.batch_size, source=source, **settings)

    def __call__(self, inputs: Sequence[Any]) -> list[TextFeatures]:
        """Computes the features of strings and tuples of two strings, for a `Predictor`."""
        require_texts(inputs, [1, 2], "a string, or a tuple of two strings")
        texts = [Text(*item) if isinstance(item, tuple) else Text(item) for item in inputs]
        return self.features(texts)


def _read_encoder(options: ExtractionOptions) -> EncoderFiles:
    """Reads the files of the encoder, and completes pooling and layers in its options."""
    encoder = read_encoder(options, options.pooling)
    layers = options.layers
    if encoder.spec.is_declared and (isinstance(layers, DefaultStr) or layers == "-1"):
        layers = "-1"
    elif encoder.spec.is_declared:
        warn(f"{encoder.folder} is for --layers=-1, not {layers}")
    complete = dataclasses.replace(encoder.options, pooling=encoder.spec.pooling, layers=layers)
    complete.layer_indexes(encoder.config.num_hidden_layers)
    return encoder._replace(options=complete)
