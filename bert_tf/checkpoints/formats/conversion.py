"""Converts models between formats: checks, writes to a temporary folder, moves into place."""

import dataclasses
import logging
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_tf import checkpoints, files
from bert_tf.checkpoints import label_map
from bert_tf.checkpoints.formats import configs, heads, hugging_face, keras_files, names
from bert_tf.checkpoints.formats.output_target import OutputTarget
from bert_tf.checkpoints.formats.source import (
    CONFIG_FILE,
    RUN_FILE,
    VOCAB_FILE,
    Source,
    find_file,
)
from bert_tf.checkpoints.model import is_training_state
from bert_tf.config import BertConfig
from bert_tf.errors import UserError, shortened
from bert_tf.progress import log
from bert_tf.tokenization import count_capitals, is_cased, load_vocab


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """Options of a conversion. Files and labels default to those of the source."""

    output: str  # see `OutputTarget`
    to: str | None = None  # a format of `OutputTarget`; None infers it from `output`
    head: str = "auto"  # as in `--head`
    bert_config_file: str | None = None
    vocab_file: str | None = None
    do_lower_case: bool | None = None  # None infers it from the source or its vocabulary
    labels: Sequence[str] | None = None
    strip_optimizer: bool = False  # drop Adam slots and step


@dataclasses.dataclass(frozen=True)
class _Model:
    """A model that is ready to be written; None means unknown."""

    head: heads.Head | None  # None if all variables are copied
    names: list[str]  # variables to write
    config: BertConfig | None
    vocab_file: str | None
    do_lower_case: bool
    labels: Sequence[str] | None


def convert(source: Source, request: Request) -> None:
    """Writes a model in a different format.

    Raises:
        UserError: the source is not a complete BERT, its files are missing or do not match, or
            the output cannot be written. In these cases, nothing is written.
    """
    target = OutputTarget(request.output, request.to)
    target.require_free()
    for note in source.notes:
        log.warning("%s", note)
    model = _prepare(source, request, target.format)
    with target.stage() as folder:
        path = os.path.join(folder, target.name)
        if target.format == "original":
            _write_original(source, model, path)
        else:
            _write_converted(source, model, path, target.format)
    head = model.head.name if model.head else "all"
    message = "Converted %d variables (%s) from %s to %s"
    log.info(message, len(model.names), head, source.path, target.output)
    if target.format in ("keras", "weights_h5") and model.vocab_file:
        log.info("The output does not include the vocabulary: keep %s with it", model.vocab_file)
    if target.format == "weights_h5":
        log.info("The output does not include the configuration: keep %s with it", CONFIG_FILE)


def _write_original(source: Source, model: _Model, prefix: str) -> None:
    folder = os.path.dirname(prefix)
    checkpoints.write(prefix, dict(source.read(model.names)))
    if model.config:
        files.write_text(os.path.join(folder, CONFIG_FILE), model.config.to_json_string())
    if model.vocab_file:
        files.concatenate([model.vocab_file], os.path.join(folder, VOCAB_FILE))
    run = find_file(os.path.dirname(source.path), RUN_FILE) if source.kind == "original" else None
    if run and model.head is None:
        # With this file, a full copy can replace the output folder of a training run.
        files.write_text(os.path.join(folder, RUN_FILE), files.read_text(run))
    if model.labels:
        path = os.path.join(folder, label_map.LABELS_FILE)
        files.write_text(path, label_map.to_text(model.labels))


def _write_converted(source: Source, model: _Model, path: str, to: str) -> None:
    # `_prepare` ensures that these exist; only original checkpoints can be written without them.
    head: Any = model.head
    config: Any = model.config
    vocab_file = model.vocab_file or ""
    weights = {name: np.asarray(value, np.float32) for name, value in source.read(model.names)}
    if to != "hugging_face":
        keras_files.write(path, head, config, weights)
        return
    folder = os.path.dirname(path)
    hugging_face.write(folder, head, config, weights, model.labels, vocab_file, model.do_lower_case)
    files.concatenate([vocab_file], os.path.join(folder, VOCAB_FILE))


def _prepare(source: Source, request: Request, to: str) -> _Model:
    """Collects everything to write, and checks that it is consistent."""
    shapes = source.shapes()
    config = configs.find_config(source, request.bert_config_file, shapes)
    if config and request.bert_config_file:
        configs.warn_of_other_config(config, request.bert_config_file, source)
    head = None
    if source.kind == to == "original" and request.head == "auto":
        # Any checkpoint can be copied, even with variables that are not part of BERT.
        strip = request.strip_optimizer
        selected = [name for name in shapes if not (strip and is_training_state(name))]
    else:
        head = heads.find(shapes.keys(), request.head, source.head)
        if head.name == "classification" and request.head == "auto" and source.head is None:
            log.info("Assuming a text classifier. For a token classifier pass --head=token")
        configs.check_weights(head, shapes, source.path)
        selected = _select_variables(source, request, head, shapes, to)
    if config is None and to != "original":
        raise UserError(f"No configuration next to {source.path}: pass --bert_config_file")
    vocab_file = _find_vocab(source, request, shapes, to)
    lower = _find_casing(source, request, vocab_file, to)
    labels = _find_labels(source, request, shapes, head)
    return _Model(head, selected, config, vocab_file, lower, labels)


def _select_variables(
    source: Source, request: Request, head: heads.Head, shapes: configs.Shapes, to: str
) -> list[str]:
    """Returns the names of the variables to write."""
    expected = head.expected(names.count_layers(shapes))
    state = [name for name in shapes if is_training_state(name)]
    unexpected = sorted(shapes.keys() - set(expected) - set(state)) + source.unknown
    if unexpected:
        listed = shortened(unexpected, 8)
        if request.head == "auto":
            problem = f"{source.path} has tensors that are not part of BERT or the {head.name} head"
            raise UserError(f"{problem}: {listed}. Drop them with --head, such as --head=encoder")
        level = logging.INFO if request.head == "encoder" else logging.WARNING
        log.log(level, "Not converted: %s", listed)
    if not state or request.strip_optimizer:
        return expected
    if to != "original":
        log.info("%s cannot store Adam slots and step: dropping %d variables", to, len(state))
        return expected
    kept = {checkpoints.GLOBAL_STEP, *expected}
    return [*expected, *(n for n in state if n in kept or n.rsplit("/", 1)[0] in kept)]


def _find_vocab(source: Source, request: Request, shapes: configs.Shapes, to: str) -> str | None:
    path = request.vocab_file or source.vocab_file
    if path is None and to == "hugging_face":
        raise UserError(f"No {VOCAB_FILE} next to {source.path}: pass --vocab_file")
    if path is None:
        return None
    size, rows = max(load_vocab(path).values(), default=-1) + 1, shapes.get(names.WORD_EMBEDDINGS)
    if rows and size > rows[0]:
        problem = f"The vocabulary {path} has {size} entries, but {source.path} only {rows[0]}"
        raise UserError(f"{problem}: pass the vocabulary of this model (--vocab_file)")
    return path


def _find_labels(
    source: Source, request: Request, shapes: configs.Shapes, head: heads.Head | None
) -> Sequence[str] | None:
    labels = request.labels or source.labels
    is_unlabeled = "output_bias" not in shapes or bool(head and not head.has_labels)
    if not labels or (is_unlabeled and not request.labels):
        return None
    num_outputs = 0 if is_unlabeled else shapes["output_bias"][0]
    expected = source.labels or labels
    if [*labels] != [*expected] and sorted(labels) == sorted(expected):
        problem = f"the model's labels are in a different order: {', '.join(expected)}"
        raise UserError(f"--labels: {problem}. Omit --labels")
    if len(labels) == num_outputs:
        return labels
    problem = f"{len(labels)} labels, but the head has {num_outputs or 'none'}"
    if request.labels:
        raise UserError(f"--labels: {problem}")
    log.warning("Ignoring the labels of %s: %s", source.path, problem)
    return None


def _find_casing(source: Source, request: Request, vocab_file: str | None, to: str) -> bool:
    if request.do_lower_case is not None:
        return request.do_lower_case
    if source.do_lower_case is not None:
        if source.kind == "hugging_face" and to != "hugging_face":
            flag = str(source.do_lower_case).lower()
            log.info("Use the converted model with --do_lower_case=%s", flag)
        return source.do_lower_case
    # Other formats do not store the casing, so no guess is needed.
    return to != "hugging_face" or guess_lower_case(vocab_file)


def guess_lower_case(vocab_file: str | None) -> bool:
    """Guesses from the vocabulary whether texts must be lower-cased, and logs the guess."""
    pieces = list(load_vocab(vocab_file)) if vocab_file else []
    count = count_capitals(pieces)
    lower = not is_cased(pieces)
    capitals = "few" if count and lower else "no" if lower else "many"
    message = "Assuming --do_lower_case=%s, as the vocabulary has %s capitals. Pass it to override"
    log.info(message, str(lower).lower(), capitals)
    return lower
