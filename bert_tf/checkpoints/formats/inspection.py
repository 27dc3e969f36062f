"""What there is to know of a model, as a text."""

import math

from bert_tf import releases
from bert_tf.checkpoints.formats import configs, heads, names
from bert_tf.checkpoints.formats.base import Source
from bert_tf.checkpoints.formats.original import is_of_training
from bert_tf.config import BertConfig
from bert_tf.errors import UserError

_KINDS = {
    "original": "checkpoint of the original",
    "hugging_face": "safetensors of Hugging Face's transformers",
    "keras": "file of Keras",
    "garden": "object-based checkpoint of the Model Garden",
    "saved_model": "SavedModel",
}


def describe(source: Source, bert_config_file: str | None = None) -> str:
    """Names, shapes and types of variables, how many numbers they are, sizes, heads, releases.

    Args:
        source: the model.
        bert_config_file: its configuration, in place of that beside it.

    Returns:
        Lines, each with its end.

    Raises:
        UserError: it cannot be read.
    """
    shapes, types = source.shapes(), source.types()
    lines = [f"{source.path}: {_KINDS[source.kind]}", ""]
    width = max((len(name) for name in shapes), default=0)
    shown = {name: str(list(shape)) for name, shape in shapes.items()}
    shape_width = max((len(shape) for shape in shown.values()), default=0)
    lines += [
        f"{name:{width}}  {shown[name]:{shape_width}}  {types[name]}"
        for name in sorted(shapes, key=_in_order)
    ]
    lines += [f"{name}  (not BERT's)" for name in source.unknown]
    lines += [
        "",
        *_counts(shapes),
        *_head(source, shapes),
        *_config(source, shapes, bert_config_file),
    ]
    lines += [f"Note: {note}" for note in source.notes]
    return "\n".join(lines) + "\n"


def _in_order(name: str) -> tuple:
    # Layer 10 stands behind layer 9.
    return tuple(
        (0, f"{int(part):08}") if part.isdecimal() else (1, part)
        for part in name.replace("layer_", "layer_/").split("/")
    )


def _counts(shapes: configs.Shapes) -> list[str]:
    training = [name for name in shapes if is_of_training(name)]
    weights = sum(math.prod(shapes[name]) for name in shapes.keys() - set(training))
    lines = [f"Parameters: {weights:,} in {len(shapes) - len(training)} variables"]
    if training:
        total = weights + sum(math.prod(shapes[name]) for name in training)
        lines.append(
            f"With optimizer and step: {total:,} in {len(shapes)} variables; --strip_optimizer "
            "leaves them out"
        )
    return lines


def _head(source: Source, shapes: configs.Shapes) -> list[str]:
    try:
        head = heads.find(shapes, hint=source.head)
    except UserError as error:
        return [str(error)]
    if head.name == "encoder":
        return ["Head: none"]
    outputs = f", {shapes['output_bias'][0]} outputs" if head.has_labels else ""
    doubt = ""
    if head.has_labels and source.head is None:
        doubt = "; whether of texts (classification) or of words (token) cannot be seen"
    labels = f": {', '.join(source.labels[:8])}" if source.labels and head.has_labels else ""
    return [f"Head: {head.name}{outputs}{labels}{doubt}"]


def _config(source: Source, shapes: configs.Shapes, given: str | None) -> list[str]:
    if names.WORD_EMBEDDINGS not in shapes:
        return ["Configuration: none, this is not a BERT"]
    sizes = ", ".join(f"{key} {value}" for key, value in configs.guess(shapes).items())
    config = BertConfig.from_json_file(given) if given else source.config()
    if config:
        file = given or source.config_file or source.path
        configs.check_config(config, shapes, file, source.path)
        said = (
            f"num_attention_heads {config.num_attention_heads}, hidden_act {config.hidden_act} "
            f"(by {file})"
        )
    else:
        config = configs.guessed_config(shapes)
        said = (
            f"num_attention_heads {config.num_attention_heads} (a guess: hidden_size / "
            f"{configs.USUAL_HEAD_SIZE}; weights do not say it)"
            if config
            else "num_attention_heads unknown"
        )
    return [f"Configuration: {sizes}, {said}", _releases(config)]


def _releases(config: BertConfig | None) -> str:
    found = releases.matching(config) if config else []
    shown = "; ".join(f"{release.name} of {release.date}" for release in found)
    return f"Release of this size: {shown or 'none'}"
