"""Converts models between formats: checks, writes to a temporary folder, moves into place."""

import contextlib
import dataclasses
import itertools
import os
import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bert_tf import checkpoints
from bert_tf.base import file_names, files, locks
from bert_tf.base.errors import UserError, counted, note, shortened, warn
from bert_tf.checkpoints.formats import configs, heads, hugging_face, keras_files
from bert_tf.checkpoints.formats.keras_files import MODEL_EXTENSION, WEIGHTS_EXTENSION
from bert_tf.checkpoints.formats.matching import check_vocabulary, read_config
from bert_tf.checkpoints.formats.sentence_transformers import (
    check_encoder,
    copy_cross_encoder,
    is_cross_encoder,
    keeps_declaration,
    max_length,
    write_declaration,
)
from bert_tf.checkpoints.formats.source import Source
from bert_tf.checkpoints.model import training_state, unscaled_head
from bert_tf.checkpoints.run_folder import CONFIG, RUN, VOCAB, RunFolder, labels_file, read_labels
from bert_tf.checkpoints.tensors import non_finite
from bert_tf.modeling import BertClassifier, HeadFormat
from bert_tf.tokenization import FullTokenizer, load_vocab
from bert_tf.tokenization.casing import find_capitals, is_cased

# Checkpoint prefix in an output folder.
_PREFIX = "bert_model.ckpt"
_PREFIX_PATTERN = re.compile(r"\.ckpt(-\d+)?$")
_TRANSFORMERS = ("hugging_face", "sentence_transformers")
_EXISTS = "already exists: pass a different --output"
_EXTENSIONS = {"keras": MODEL_EXTENSION, "weights_h5": WEIGHTS_EXTENSION}


@dataclasses.dataclass(frozen=True)
class _Model:
    """A model that is ready to be written; only for the original's format may parts be unknown."""

    head: Any  # None if all variables are copied, whatever they are
    names: list[str]  # variables to write
    config: Any
    vocab_file: Any
    do_lower_case: bool
    labels: Sequence[str] | None


def convert(source: Source, options: Any) -> None:
    """Writes a model in a different format; `options` is a `ConversionOptions`.

    Raises:
        UserError: the source is not a complete BERT, its files are missing or do not match, or
            the output cannot be written. In these cases, nothing is written.
    """
    target = _Output(options.output or "", options.to)
    target.require_free()
    source.log_notes()
    folder = RunFolder(os.path.dirname(source.path))
    trained = source.run or folder
    is_new = target.format == "original" and not files.list_dir(target.folder or ".")
    to_vectors = target.format == "sentence_transformers"
    makes_vectors = to_vectors and not is_cross_encoder(trained)
    if makes_vectors or (to_vectors and options.head == "encoder"):
        check_encoder(trained)
    declares = keeps_declaration(folder, makes_vectors, is_new)
    model = _prepare(source, options, target.format, makes_vectors)
    with target.stage() as output:
        path = os.path.join(output, target.name)
        if target.format == "original":
            _write_original(source, model, path)
        else:
            _write_converted(source, model, path, target.format)
        if declares and model.config:
            write_declaration(output, folder, model.config)
        elif to_vectors:
            copy_cross_encoder(output, folder)
    head = model.head.name if model.head else "all"
    count = counted(len(model.names), "variable")
    note(f"Converted {count} ({head}) from {source.path} to {target.output}")
    present = {"keras": [CONFIG]} | {name: [CONFIG, VOCAB] for name in _TRANSFORMERS}
    for name, file in ((CONFIG, model.config and CONFIG), (VOCAB, model.vocab_file)):
        if name not in present.get(target.format, []) and not RunFolder(target.folder).find(name):
            (note if file else warn)(f"The output does not include {name}: put it there")


def _read(source: Source, model: _Model) -> dict[str, Any]:
    weights = dict(source.read(model.names))
    for problem in filter(None, itertools.starmap(non_finite, weights.items())):
        raise UserError(problem, at=source.path)
    # A full copy has a copy of `run.json`, too.
    return weights | unscaled_head(weights, source.run) if model.head and source.run else weights


def _write_original(source: Source, model: _Model, prefix: str) -> None:
    folder = os.path.dirname(prefix)
    checkpoints.write(prefix, _read(source, model))
    if model.config:
        files.write_text(os.path.join(folder, CONFIG), model.config.to_json_string())
    if model.vocab_file:
        files.concatenate([model.vocab_file], os.path.join(folder, VOCAB))
    if model.head is None and (run_file := RunFolder(os.path.dirname(source.path)).find(RUN)):
        # With this file, a full copy can replace the output folder of a training run.
        files.concatenate([run_file], os.path.join(folder, RUN))
    files.write_texts(folder, labels_file(model.labels))


def _write_converted(source: Source, model: _Model, path: str, to: str) -> None:
    head, config, vocab_file = model.head, model.config, model.vocab_file
    weights = {name: np.asarray(x, np.float32) for name, x in _read(source, model).items()}
    if to not in _TRANSFORMERS:
        keras_files.write(path, head, config, weights)
        return
    folder = os.path.dirname(path)
    strip = {"true": True, "false": False}.get(source.tokenizer_settings.get("strip_accents", ""))
    special_tokens = source.tokenizer_settings.get("special_tokens")
    tokenizer = FullTokenizer(vocab_file, model.do_lower_case, strip, special_tokens)
    files.concatenate([vocab_file], os.path.join(folder, VOCAB))
    length = None
    if to == "sentence_transformers":
        length = source.run and source.run.entry("flags", "max_seq_length", kind=int)
        length = length or max_length(RunFolder(os.path.dirname(source.path)))
    hugging_face.write(folder, head, config, weights, model.labels, tokenizer, length)


def _prepare(source: Source, options: Any, to: str, makes_vectors: bool) -> _Model:
    """Collects everything to write in the format `to`, and checks that it is consistent."""
    shapes = source.shapes()
    config = read_config(source, options.bert_config_file, shapes)
    head = None
    if source.kind == to == "original" and options.head == "auto":
        # A copy also has the variables that are not part of BERT.
        configs.check_weights(heads.registered()["encoder"], shapes, source.path)
        dropped = training_state(shapes) if options.strip_optimizer else ()
        selected = [name for name in shapes if name not in dropped]
    else:
        encodes = options.head == "auto" and makes_vectors
        if options.head == "auto" and not encodes:
            RunFolder.of(source.path).require_flags()  # the head may be that of an unknown task
        head = heads.find(source, shapes.keys(), "encoder" if encodes else options.head)
        if head.name == "classification" and options.head == "auto" and source.head is None:
            note("Assuming a text classifier. For a token classifier pass --head=token")
        configs.check_weights(head, shapes, source.path)
        selected = _select_variables(source, options, head, shapes, to)
    if config is None and to != "original":
        raise UserError(f"No {CONFIG} next to {source.path}: pass --bert_config_file")
    vocab_file = options.vocab_file or source.vocab_file
    if vocab_file is None and to in _TRANSFORMERS:
        raise UserError(f"No {VOCAB} next to {source.path}: pass --vocab_file")
    if vocab_file:
        size = shapes.get(configs.WORD_EMBEDDINGS, [None])[0]
        check_vocabulary(vocab_file, options.do_lower_case, size, [source])
    do_lower_case = _find_casing(source, options, vocab_file, to)
    labels = _find_labels(source, options, shapes, head)
    return _Model(head, selected, config, vocab_file, do_lower_case, labels)


def _select_variables(
    source: Source, options: Any, head: HeadFormat, shapes: configs.Shapes, to: str
) -> list[str]:
    expected = [*configs.encoder_names(configs.count_layers(shapes)), *head.variables]
    expected = [name for name in expected if name in shapes]  # all but perhaps a pooler
    state = training_state(shapes) - {*expected}
    unexpected = sorted(shapes.keys() - {*expected} - state) + source.unknown
    if unexpected:
        listed = shortened(unexpected, 8)
        if options.head == "auto":
            problem = f"tensors that are not part of BERT or the {head.name} head: {listed}"
            raise UserError(problem, at=source.path, fix=heads.ENCODER_ONLY)
        (note if options.head == "encoder" else warn)(f"Not converted: {listed}")
    if to != "original" or options.strip_optimizer:
        return expected
    # Keep the step, and the slots of the variables to write: a slot is named <variable>/adam_m.
    kept = {checkpoints.GLOBAL_STEP, *expected}
    return [*expected, *(n for n in state if n in kept or n.rsplit("/", 1)[0] in kept)]


def _find_labels(
    source: Source, options: Any, shapes: configs.Shapes, head: HeadFormat | None
) -> Sequence[str] | None:
    requested = None
    if options.labels:  # a file, or a comma-separated list
        is_file = files.exists(options.labels)
        requested = read_labels(options.labels) if is_file else file_names.split(options.labels)
    labels = requested or source.labels
    num_outputs = (head or source.head or BertClassifier.head_format).count_outputs(shapes)
    if not labels or not (num_outputs or requested):
        return None
    expected = source.labels or labels
    if [*labels] != [*expected] and sorted(labels) == sorted(expected):
        raise UserError(f"--labels has another order than the model: {', '.join(expected)}")
    if len({*labels}) == len(labels) == num_outputs:
        return labels
    count = f"{counted(len(labels), 'label')}, {len({*labels})} of them different"
    problem = f"{count}, but the head has {num_outputs or 'no'} outputs"
    if requested:
        raise UserError(problem, at="--labels")
    warn(f"no labels are written: {problem}", at=source.path)
    return None


def _find_casing(source: Source, options: Any, vocab_file: str | None, to: str) -> bool:
    if options.do_lower_case is not None:
        return options.do_lower_case
    if source.do_lower_case is not None:
        if source.kind == "hugging_face" and to not in _TRANSFORMERS:
            flags = {"do_lower_case": str(source.do_lower_case).lower()}
            listed = (f"--{n}={v}" for n, v in (flags | source.tokenizer_settings).items())
            tell = warn if source.tokenizer_settings else note
            tell(f"Use the converted model with {' '.join(listed)}")
        return source.do_lower_case
    # Only transformers' format stores the casing; the result is not used for other formats.
    return to not in _TRANSFORMERS or guess_lower_case(vocab_file)


def guess_lower_case(vocab_file: str | None) -> bool:
    """Guesses from the vocabulary whether texts must be lower-cased, and logs the guess."""
    pieces = list(load_vocab(vocab_file)) if vocab_file else []
    lower = not is_cased(pieces)
    capitals = "many" if not lower else "few" if find_capitals(pieces) else "no"
    value = str(lower).lower()
    note(f"Assuming --do_lower_case={value}: the vocabulary has {capitals} capitals")
    return lower


class _Output:
    """Output of a conversion: a prefix `*.ckpt` or `*.ckpt-N`, a Keras file, or a folder.

    `format` is that of `to`, or if that is "auto", inferred from the path; `name` is the name of
    the file or checkpoint within its `folder`.
    """

    def __init__(self, output: str, to: str) -> None:
        self.output = output.rstrip("/") or output
        if os.path.islink(self.output):
            self.output = files.resolve(self.output)
        by_extension = (to for to, end in _EXTENSIONS.items() if self.output.endswith(end))
        is_prefix = _PREFIX_PATTERN.search(self.output)
        implied = "original" if is_prefix else next(by_extension, None)
        fits = to == implied or not (implied or to in _EXTENSIONS)
        if not (implied if to == "auto" else fits):
            names = "a folder, x.ckpt (original), x.keras (keras) or x.weights.h5 (weights_h5)"
            raise UserError(f"--to={to} does not fit --output={output}: expected {names}")
        self.format: str = (implied or "") if to == "auto" else to
        self.is_folder = implied is None
        self.name = _PREFIX if self.is_folder else os.path.basename(self.output)
        self.folder = self.output if self.is_folder else os.path.dirname(self.output)

    def require_free(self) -> None:
        """Raises a UserError if the output exists or cannot be written."""
        if files.is_remote(self.output):
            raise UserError(f"--output={self.output}: only local files can be written")
        existing = files.list_dir(self.output) if self.is_folder else []
        paths = [os.path.join(self.output, name) for name in existing]
        for path in (*paths, self.output, f"{self.output}.index"):
            is_folder = self.is_folder and path == self.output and files.is_dir(path)
            if files.exists(path) and not is_folder:
                raise UserError(_EXISTS, at=path)

    @contextlib.contextmanager
    def stage(self) -> Iterator[str]:
        """Yields a temporary folder, and moves its content to the output on success."""
        parent, base = os.path.split(self.output)
        with (
            locks.exclusive(locks.lock_path(self.output), f"--output={self.output}"),
            # The name is fixed, so that the next conversion deletes what a killed one left behind.
            files.temporary_folder_at(os.path.join(parent, f".{base}.tmp")) as folder,
        ):
            yield folder
            self._move(folder, parent)

    def _move(self, folder: str, parent: str) -> None:
        names = files.list_dir(folder)
        destination = self.folder
        with files.wrap_errors("write", self.output):
            if not self.is_folder:
                names = [name for name in names if not _is_same(folder, parent, name)]
            elif not files.exists(destination):
                os.rename(folder, destination)
                names = []
            # Move the index last: without an index, the moved files do not count as a checkpoint.
            for name in sorted(names, key=lambda name: name.endswith(".index")):
                os.replace(os.path.join(folder, name), os.path.join(destination, name))
            files.sync(destination or ".")


def _is_same(folder: str, parent: str, name: str) -> bool:
    """Returns whether `parent` already has this file; raises a UserError if its content differs."""
    old, new = pathlib.Path(parent, name), pathlib.Path(folder, name)
    if not old.exists():
        return False
    if old.read_bytes().rstrip() != new.read_bytes().rstrip():
        raise UserError(_EXISTS, at=str(old))
    return True
