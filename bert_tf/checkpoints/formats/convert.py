"""From any source to any format: everything is checked first, then written, then put in place."""

import dataclasses
import os
from collections.abc import Sequence

import numpy as np

from bert_tf import checkpoints, files
from bert_tf.checkpoints.formats import (
    configs,
    heads,
    hugging_face,
    keras_files,
    names,
    output_target,
)
from bert_tf.checkpoints.formats.base import (
    CONFIG_FILE,
    LABELS_FILE,
    RUN_FILE,
    VOCAB_FILE,
    Source,
    existing,
)
from bert_tf.checkpoints.formats.original import is_of_training
from bert_tf.config import BertConfig
from bert_tf.errors import UserError
from bert_tf.progress import log
from bert_tf.tokenization import count_capitals, is_cased, load_vocab

_SHOWN_NAMES = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """What is wanted of a conversion.

    Attributes:
        output: place to write to, see `output_target.Place`.
        to: one of `output_target.FORMATS`; None where the ending of `output` says it.
        head: one of `heads.CHOICES`.
        bert_config_file: configuration, in place of that beside the source.
        vocab_file: vocabulary, in place of that beside the source.
        do_lower_case: of the tokenizer; None for what the source says, or its vocabulary.
        labels: of the head's outputs; None for those that the source has.
        strip_optimizer: leave Adam slots and step.
    """

    output: str
    to: str | None = None
    head: str = "auto"
    bert_config_file: str | None = None
    vocab_file: str | None = None
    do_lower_case: bool | None = None
    labels: Sequence[str] | None = None
    strip_optimizer: bool = False


@dataclasses.dataclass(frozen=True)
class _Model:
    """A model that is ready to be written; None stands for what is not known."""

    head: heads.Head | None
    names: list[str]
    config: BertConfig | None
    vocab_file: str | None
    do_lower_case: bool
    labels: Sequence[str] | None


def convert(source: Source, request: Request) -> None:
    """Writes a model in another format.

    Args:
        source: where it is.
        request: what is wanted.

    Raises:
        UserError: the source is no complete BERT, what belongs to it is missing or does not fit,
            or the output cannot be written. Nothing has been written then.
    """
    place = output_target.Place(request.output, request.to)
    place.check()
    for note in source.notes:
        log.warning("%s", note)
    model = _prepare(source, request, place.format)
    with place.staged() as target:
        if place.format == "original":
            _write_original(source, model, target)
        else:
            _write_other(source, model, target, place.format)
    head = model.head.name if model.head else "all"
    log.info("%d variables (%s) of %s: %s", len(model.names), head, source.path, place.output)
    if place.format in ("keras", "weights_h5") and model.vocab_file:
        log.info("The vocabulary is not in it: keep %s with it", model.vocab_file)
    if place.format == "weights_h5":
        log.info("Nor is the configuration: keep a %s with it", CONFIG_FILE)


def _write_original(source: Source, model: _Model, target: output_target.Target) -> None:
    checkpoints.write(target.path, dict(source.read(model.names)))
    if model.config:
        target.write_beside(CONFIG_FILE, model.config.to_json_string().encode())
    if model.vocab_file:
        with files.open_binary(model.vocab_file) as file:
            target.write_beside(VOCAB_FILE, file.read())
    run = existing(os.path.dirname(source.path), RUN_FILE) if source.kind == "original" else None
    if run and model.head is None:
        # With it, the folder is as good as that of the training.
        target.write_beside(RUN_FILE, files.read_text(run).encode())
    if model.labels:
        target.write_beside(LABELS_FILE, "".join(f"{x}\n" for x in model.labels).encode())


def _write_other(source: Source, model: _Model, target: output_target.Target, to: str) -> None:
    head, config, vocab_file = model.head, model.config, model.vocab_file
    if head is None or config is None:
        raise TypeError("Only a checkpoint can be written without head and configuration")
    weights = {
        name: np.asarray(value, dtype=np.float32) for name, value in source.read(model.names)
    }
    if to != "hugging_face":
        keras_files.write(target.path, head, config, weights)
        return
    hugging_face.write(
        target.folder, head, config, weights, model.labels, vocab_file or "", model.do_lower_case
    )
    with files.open_binary(vocab_file or "") as file:
        target.write_beside(VOCAB_FILE, file.read())


def _prepare(source: Source, request: Request, to: str) -> _Model:
    """All that is written, checked against each other.

    Raises:
        UserError: see `convert`.
    """
    shapes = source.shapes()
    config = _find_config(source, request, shapes)
    as_it_is = source.kind == to == "original" and request.head == "auto"
    head = None
    if as_it_is:
        # Any checkpoint can be copied, also one with variables that are not BERT's.
        chosen = [name for name in shapes if not (request.strip_optimizer and is_of_training(name))]
    else:
        head = heads.find(shapes, request.head, source.head)
        if head.name == "classification" and request.head == "auto" and source.head is None:
            log.info(
                "Taken for a model that labels texts. Where it labels words, pass --head=token"
            )
        configs.check_weights(head, shapes, source.path)
        chosen = _choose(source, request, head, shapes, to)
    if config is None and to != "original":
        raise UserError(
            f"There is no configuration beside {source.path}, and how many attention heads it has "
            "cannot be seen from weights: pass --bert_config_file"
        )
    vocab_file = _find_vocab(source, request, shapes, to)
    return _Model(
        head,
        chosen,
        config,
        vocab_file,
        _find_casing(source, request, vocab_file, to),
        _find_labels(source, request, shapes, head),
    )


def _choose(
    source: Source, request: Request, head: heads.Head, shapes: configs.Shapes, to: str
) -> list[str]:
    """Names of what is written of the source."""
    expected = head.expected(names.count_layers(shapes))
    training = [name for name in shapes if is_of_training(name)]
    other = sorted(shapes.keys() - set(expected) - set(training)) + source.unknown
    if other:
        count = f" and {len(other) - _SHOWN_NAMES} more" if len(other) > _SHOWN_NAMES else ""
        shown = f"{', '.join(other[:_SHOWN_NAMES])}{count}"
        if request.head == "auto":
            raise UserError(
                f"{source.path} has tensors beyond a BERT with the head {head.name}: {shown}. To "
                "leave them out, name the head, --head=encoder for instance"
            )
        log.warning("Not converted: %s", shown)
    if not training or request.strip_optimizer:
        return expected
    if to != "original":
        log.info(
            "Adam slots and step (%d variables) are left: %s has no place for them",
            len(training),
            to,
        )
        return expected
    wanted = {checkpoints.GLOBAL_STEP, *expected}
    slots = [name for name in training if name in wanted or name.rsplit("/", 1)[0] in wanted]
    return [*expected, *slots]


def _find_config(source: Source, request: Request, shapes: configs.Shapes) -> BertConfig | None:
    given = request.bert_config_file
    config = BertConfig.from_json_file(given) if given else source.config()
    if config:
        file = given or source.config_file or source.path
        configs.check_config(config, shapes, file, source.path)
    return config


def _find_vocab(source: Source, request: Request, shapes: configs.Shapes, to: str) -> str | None:
    path = request.vocab_file or source.vocab_file
    if path is None:
        if to == "hugging_face":
            raise UserError(
                f"There is no {VOCAB_FILE} beside {source.path}, and a folder for transformers "
                "needs the vocabulary: pass --vocab_file"
            )
        return None
    size, rows = max(load_vocab(path).values(), default=-1) + 1, shapes.get(names.WORD_EMBEDDINGS)
    if rows and size > rows[0]:
        raise UserError(
            f"The vocabulary {path} has {size} entries, {source.path} only {rows[0]}: they do not "
            "belong together. Pass --vocab_file with the one that the model was trained with"
        )
    return path


def _find_labels(
    source: Source, request: Request, shapes: configs.Shapes, head: heads.Head | None
) -> Sequence[str] | None:
    labels = request.labels or source.labels
    has_none = "output_bias" not in shapes or bool(head and not head.has_labels)
    if not labels or (has_none and not request.labels):
        return None
    outputs = 0 if has_none else shapes["output_bias"][0]
    if len(labels) == outputs:
        return labels
    problem = f"{len(labels)} labels, but the head has {outputs or 'none'}"
    if request.labels:
        raise UserError(f"--labels: there are {problem}")
    log.warning("%s has %s: they are left", source.path, problem)
    return None


def _find_casing(source: Source, request: Request, vocab_file: str | None, to: str) -> bool:
    if request.do_lower_case is not None:
        return request.do_lower_case
    if source.do_lower_case is not None:
        if source.kind == "hugging_face" and to != "hugging_face":
            flag = str(source.do_lower_case).lower()
            log.info("Its texts are to be prepared with --do_lower_case=%s", flag)
        return source.do_lower_case
    # Other formats have no place for it, and nobody needs to hear of a guess.
    return to != "hugging_face" or lowers_by_vocabulary(vocab_file)


def lowers_by_vocabulary(vocab_file: str | None) -> bool:
    """Whether texts are lower-cased for a model, by its pieces; says so, as it may be wrong."""
    pieces = list(load_vocab(vocab_file)) if vocab_file else []
    count = count_capitals(pieces)
    lower = not is_cased(pieces)
    log.info(
        "do_lower_case is %s there, by the vocabulary, which has %s capitals. If that is wrong, "
        "pass --do_lower_case",
        str(lower).lower(),
        "few" if count and lower else "no" if lower else "many",
    )
    return lower
