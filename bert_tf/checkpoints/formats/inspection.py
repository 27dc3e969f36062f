"""Describes a model: variables, parameters, head, configuration, matching releases."""

import math
import re

from bert_tf import checkpoints, releases
from bert_tf.base.errors import UserError, counted
from bert_tf.checkpoints.formats import configs, heads
from bert_tf.checkpoints.formats.matching import read_config
from bert_tf.checkpoints.formats.source import Source
from bert_tf.checkpoints.model import training_state

_KINDS = {
    "original": "original BERT checkpoint",
    "hugging_face": "Hugging Face safetensors",
    "keras": "Keras file",
    "model_garden": "Model Garden checkpoint (object-based)",
    "saved_model": "SavedModel",
}


def describe(source: Source, bert_config_file: str | None = None) -> str:
    """Returns a description of a model; `bert_config_file` overrides its configuration."""
    variables = source.variables()
    shapes = {name: shape for name, (shape, _) in variables.items()}
    lines = [f"{source.path}: {_KINDS[source.kind]}", ""]
    width = max((len(name) for name in shapes), default=0)
    formatted = {name: str(list(shape)) for name, shape in shapes.items()}
    shape_width = max((len(shape) for shape in formatted.values()), default=0)
    lines += [
        f"{name:{width}}  {formatted[name]:{shape_width}}  {variables[name][1]}"
        for name in sorted(shapes, key=_natural_order)
    ]
    lines += [f"{name}  (not part of BERT)" for name in source.unknown]
    lines += ["", *_count_parameters(shapes), _describe_head(source, shapes)]
    lines += _describe_config(source, shapes, bert_config_file)
    return "\n".join([*lines, *(f"Note: {note}" for note in source.notes)]) + "\n"


def _natural_order(name: str) -> list[str]:
    # A sort key that puts layer_10 after layer_9.
    return [part.zfill(8) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]


def _count_parameters(shapes: configs.Shapes) -> list[str]:
    state = training_state(shapes)
    weights = sum(math.prod(shapes[name]) for name in shapes.keys() - state)
    lines = [f"Parameters: {weights:,} in {len(shapes) - len(state)} variables"]
    if state:
        total = f"{sum(map(math.prod, shapes.values())):,} in {len(shapes)} variables"
        lines.append(f"With Adam slots and step: {total}; --strip_optimizer drops them")
    return lines


def _describe_head(source: Source, shapes: configs.Shapes) -> str:
    try:
        head = heads.find(source, shapes.keys())
    except UserError as error:
        return str(error)
    if head.name == "encoder":
        return "Head: none"
    text, num_outputs = f"Head: {head.name}", head.count_outputs(shapes)
    if num_outputs:
        text += f", {counted(num_outputs, 'output')}"
    if head.has_labels and source.labels:
        text += f": {', '.join(source.labels[:8])}"
    if head.has_labels and source.head is None:
        text += " (or token: both have the same variables)"
    return text


def _describe_config(source: Source, shapes: configs.Shapes, path: str | None) -> list[str]:
    if missing := configs.missing_weights(shapes):
        found = f"it has no {checkpoints.summarize(missing)}"
        return [f"Configuration: none, this is not a BERT model: {found}"]
    sizes = ", ".join(f"{key} {value}" for key, value in configs.infer_sizes(shapes).items())
    if config := read_config(source, path, shapes):
        file = path or source.config_file or source.path
        origin = f", hidden_act {config.hidden_act} (from {file})"
    else:
        config = configs.guess_config(shapes)
        size = configs.USUAL_HEAD_SIZE
        origin = f" (guess: hidden_size / {size}; the weights do not show it)"
    num_heads = f"{config.num_attention_heads}{origin}" if config else "unknown"
    matching = releases.matching(config) if config else []
    listed = "; ".join(f"{release.name} ({release.date})" for release in matching)
    return [
        f"Configuration: {sizes}, num_attention_heads {num_heads}",
        f"Releases of this size: {listed or 'none'}",
    ]
