"""Exports models to ONNX or LiteRT, into folders that also have a configuration and a tokenizer.

Folders with an ONNX model can be read by Optimum, transformers.js and this package.
"""

import io
import json
import os
import re
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from bert_tf.base import files, locks
from bert_tf.base.errors import UserError, note, reason
from bert_tf.base.extras import import_extra
from bert_tf.base.quiet import hide_stderr
from bert_tf.checkpoints.formats import hugging_face_config
from bert_tf.checkpoints.run_folder import LABELS
from bert_tf.data import array_ops
from bert_tf.inference.exported_model import HIDDEN_STATES, INPUTS, MODEL_FILES, OUTPUTS
from bert_tf.options import ModelOptions
from bert_tf.saved_models.onnx_graph import build_onnx_model
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.special_tokens import USED, unmarked

# Output name of a model -> output name in the file, where they differ.
_OUTPUTS = {name: exported for exported, name in OUTPUTS.items()}


def export_folder(
    model: keras.Model,
    options: ModelOptions,
    export_dir: str,
    contents: Mapping[str, str],
    labels: Sequence[str] = (),
    *,
    format: str = "onnx",
    precision: str = "float32",
    pooling: str | None = None,
    hidden_states: bool = False,
) -> str:
    """Writes a folder with a model file, configuration, tokenizer and `contents`; returns its path.

    Args:
        model: a model that `build_onnx_model` takes.
        options: vocabulary, casing and `max_seq_length`, for `tokenizer.json`.
        export_dir: path of the folder; an earlier export in it is replaced.
        contents: file name -> content of further files, such as `vocab.txt`.
        labels: names of the labels, in the order of the model's outputs; empty if there are none.
        format: a key of `MODEL_FILES`.
        precision: "float32", or "int8" for dynamic quantization: weights are stored as integers,
            with a scale per column, and activations are quantized at run time.
        pooling, hidden_states: as in `build_onnx_model`.

    Raises:
        UserError: a package is missing, the model cannot be exported, or `export_dir` contains
            files that are not from an earlier export.
    """
    tokenizer, max_length = options.tokenizer(), options.max_seq_length
    count, pad_id = getattr(model, "num_labels", len(labels)), tokenizer.vocab.get("[PAD]")
    head, known_labels = getattr(model, "head_format", None), labels if len(labels) == count else ()
    config = hugging_face_config.make_config(model.config, head, count, known_labels, pad_id)
    settings = hugging_face_config.make_tokenizer_config(tokenizer, max_length)
    texts = {  # file name -> content
        **contents,
        "config.json": _to_json(config),
        "tokenizer.json": _to_json(tokenizer_json(tokenizer, max_length)),
        "tokenizer_config.json": _to_json(settings),
    }
    file_name, export_dir = MODEL_FILES[format], export_dir.rstrip("/")
    with locks.exclusive(locks.lock_path(export_dir)):
        # Replacing the folder must not delete files that are not from an earlier export.
        unrelated = set(files.list_dir(export_dir)) - {file_name, LABELS, *texts}
        if unrelated or os.path.isfile(export_dir):
            problem = f"not the folder of an export: it has {min(unrelated, default='a file')}"
            raise UserError(problem, at=export_dir, fix="Pass an empty folder")
        with files.temporary_folder_at(f"{export_dir}.tmp") as folder:
            path = os.path.join(folder, file_name)
            if format == "onnx":
                proto = build_onnx_model(model, pooling, hidden_states)
                if precision == "float32":
                    files.write_bytes(path, proto.SerializeToString())
                else:
                    with files.wrap_errors("write", path):
                        _quantize(proto, path)
            else:
                # The vocabulary and the labels.
                lists = {name: contents[name] for name in contents if name.endswith(".txt")}
                content = build_litert_model(model, precision, pooling, hidden_states, lists)
                files.write_bytes(path, content)
            files.write_texts(folder, texts)
            files.replace_folder(folder, export_dir)
    note(f"Exported model: {os.path.join(export_dir, file_name)}")
    return export_dir


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


def _quantize(proto: Any, path: str) -> None:
    """Writes a model with integer weights.

    The second MatMul of each feed-forward block stays in float32, because its inputs have outliers:
    this halves the error of sentence vectors at no measurable cost in time.
    """
    quantization = import_extra("onnxruntime.quantization", "onnx")
    # This marks the graph as pre-processed, which it need not be; the quantizer would warn.
    proto.metadata_props.add(key="onnx.quant.pre_process", value="onnxruntime.quant")
    matmuls = [node.name for node in proto.graph.node if node.op_type == "MatMul"]
    quantization.quantize_dynamic(
        proto,
        path,
        per_channel=True,
        # With the full range of 8 bits, sums saturate on processors without VNNI instructions.
        reduce_range=True,
        nodes_to_exclude=[name for name in matmuls if re.search(r"layer_\d+/output/", name)],
    )


def _to_json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def tokenizer_json(tokenizer: FullTokenizer, max_seq_length: int) -> dict[str, Any]:
    """Returns the content of `tokenizer.json`, which the `tokenizers` package reads."""
    vocab = tokenizer.vocab
    basic = tokenizer.basic_tokenizer
    special = dict.fromkeys((*USED, *basic.marked_tokens))
    ids = {token: vocab[text] for token in special if (text := unmarked(token)) in vocab}
    # Parts of the template [CLS] A [SEP] B [SEP]; `type_id` is the segment id.
    a, b = ({"Sequence": {"id": name, "type_id": segment}} for segment, name in enumerate("AB"))
    cls, sep_a, sep_b = (
        {"SpecialToken": {"id": token, "type_id": segment}}
        for token, segment in (("[CLS]", 0), ("[SEP]", 0), ("[SEP]", 1))
    )
    template_tokens = {
        token: {"id": token, "ids": [vocab[token]], "tokens": [token]}
        for token in ("[CLS]", "[SEP]")
    }
    return {
        "version": "1.0",
        "truncation": {
            "direction": "Right",
            "max_length": max_seq_length,
            "strategy": "LongestFirst",
            "stride": 0,
        },
        "padding": None,
        "added_tokens": [{"id": i, **hugging_face_config.added_token(x)} for x, i in ids.items()],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": not basic.pretokenized,
            "handle_chinese_chars": not basic.pretokenized,
            "strip_accents": hugging_face_config.strip_accents(basic),
            "lowercase": basic.do_lower_case,
        },
        "pre_tokenizer": {"type": "WhitespaceSplit" if basic.pretokenized else "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [cls, a, sep_a],
            "pair": [cls, a, sep_a, b, sep_b],
            "special_tokens": template_tokens,
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": tokenizer.wordpiece_tokenizer.max_input_chars_per_word,
            "vocab": dict(vocab),
        },
    }
