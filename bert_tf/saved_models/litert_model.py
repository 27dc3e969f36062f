"""Converts models to LiteRT, formerly TensorFlow Lite.

Shapes: B batch size, C choices (multiple choice), S sequence length, H hidden size.
"""

import io
import re
import zipfile
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from bert_tf.base.errors import UserError, reason
from bert_tf.base.quiet import hide_stderr
from bert_tf.data import array_ops
from bert_tf.inference.exported_model import HIDDEN_STATES, INPUTS, OUTPUTS

# Output name of a model -> output name in the file, where they differ, as in ONNX files.
_OUTPUTS = {name: exported for exported, name in OUTPUTS.items()}


def build_litert_model(
    model: keras.Model,
    precision: str = "float32",
    pooling: str | None = None,
    hidden_states: bool = False,
    associated_files: Mapping[str, str] | None = None,
) -> bytes:
    """Converts a model to the content of a `.tflite` file; arguments as in `build_onnx_model`.

    Its signature has the inputs `input_ids`, `attention_mask` and `token_type_ids`, int32 [B, S] or
    [B, C, S] for any B, C and S, further `input_names` of the same rank, and the outputs that
    `build_onnx_model` documents, or those that the model's class declares.

    Args:
        precision: "float32", or "int8" for dynamic-range quantization: weights are stored as
            integers, and activations are quantized where they are used.
        associated_files: file name -> text of files to append to the content as a ZIP archive.

    Raises:
        UserError: LiteRT lacks an operation of the model.
    """
    shape = [None] * model.input_rank
    names = {**INPUTS, **{n: n for n in model.input_names if n not in INPUTS.values()}}
    specs = [tf.TensorSpec(shape, tf.int32, name) for name in names]

    @tf.function(input_signature=specs, autograph=False)
    def compute(*values: Any) -> dict[str, Any]:
        inputs = dict(zip(names.values(), values, strict=True))
        outputs: dict[str, Any] = model(inputs, training=False)
        exported = model.exported_outputs or outputs.keys()
        named = {_OUTPUTS.get(name, name): outputs[name] for name in outputs if name in exported}
        if pooling:
            hidden = named["last_hidden_state"]
            named["sentence_embedding"] = array_ops.pool(hidden, inputs["input_mask"], pooling)
        if hidden_states:
            layer_outputs = enumerate(outputs["all_encoder_layers"])
            named |= {f"{HIDDEN_STATES}{index}": value for index, value in layer_outputs}
        return named

    module: Any = tf.Module()
    # Track the variables: the converter saves only tracked ones, and outputs would be NaN.
    module.weights = [variable.value for variable in model.variables]
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [compute.get_concrete_function()], module
    )
    if precision == "int8":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    try:
        # Hide stderr, to which the converter prints harmless errors about constants.
        with hide_stderr():
            buffer = io.BytesIO(converter.convert())
    except Exception as error:
        operations = re.findall(r"'tf\.(\w+)' op is neither", str(error))
        problem = f"no operator for {', '.join(operations)}" if operations else reason(error)
        name = type(model).__name__
        raise UserError(f"{name} cannot be converted to LiteRT: {problem}") from error
    with zipfile.ZipFile(buffer, "a") as archive:
        for file_name, text in (associated_files or {}).items():
            # A `ZipInfo` has a fixed date, so that exporting a model twice gives equal files.
            archive.writestr(zipfile.ZipInfo(file_name), text)
    return buffer.getvalue()
