"""Writes models in ONNX or for LiteRT, into folders with configuration and tokenizer.

Optimum, transformers.js and this package read the folders of ONNX models.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from bert_tf import files, locks
from bert_tf.checkpoints.formats import hugging_face_config
from bert_tf.checkpoints.formats.heads import HEADS
from bert_tf.checkpoints.label_map import LABELS_FILE
from bert_tf.errors import UserError
from bert_tf.extras import import_extra
from bert_tf.inference.exported_model import MODEL_FILES
from bert_tf.progress import log
from bert_tf.saved_models.litert_model import build_litert_model
from bert_tf.saved_models.onnx_graph import build_onnx_model
from bert_tf.tokenization import FullTokenizer


def export_folder(
    model: keras.Model,
    export_dir: str,
    contents: Mapping[str, str],
    tokenizer: FullTokenizer,
    *,
    do_lower_case: bool,
    max_seq_length: int,
    labels: Sequence[str] = (),
    format: str = "onnx",
    precision: str = "float32",
    pooling: str | None = None,
    hidden_states: bool = False,
) -> str:
    """Writes a model file and the files next to it; returns the folder.

    Args:
        model: a model that `build_onnx_model` takes.
        export_dir: the folder; an earlier export in it is replaced.
        contents: further files by name, such as `vocab.txt`.
        tokenizer: tokenizer of the model, for `tokenizer.json`.
        do_lower_case: whether the tokenizer lower-cases.
        max_seq_length: length to which `tokenizer.json` truncates.
        labels: names of the outputs.
        format: a key of `MODEL_FILES`.
        precision: "float32", or "int8" for dynamic quantization: weights are stored as integers,
            with a scale per column, and activations are quantized at run time.
        pooling: see `build_onnx_model`.
        hidden_states: see `build_onnx_model`.

    Raises:
        UserError: a package is missing, the model cannot be exported, or `export_dir` contains
            files that are not from an earlier export.
    """
    settings = hugging_face_config.make_tokenizer_config(do_lower_case, max_seq_length)
    texts = {
        **contents,
        "config.json": _to_json(_make_config(model, labels, tokenizer)),
        "tokenizer.json": _to_json(tokenizer_json(tokenizer, do_lower_case, max_seq_length)),
        "tokenizer_config.json": _to_json(settings),
    }
    file_name, export_dir = MODEL_FILES[format], export_dir.rstrip("/")
    with locks.exclusive(locks.lock_path(export_dir)):
        # The folder will be replaced.
        others = set(files.list_dir(export_dir)) - {file_name, LABELS_FILE, *texts}
        if others:
            raise UserError(
                f"{export_dir} contains other files, such as {min(others)}: pass an empty folder, "
                "or one with an earlier export"
            )
        with files.temporary_folder_at(f"{export_dir}.tmp") as folder:
            path = os.path.join(folder, file_name)
            if format == "onnx":
                _write_onnx(path, build_onnx_model(model, pooling, hidden_states), precision)
            else:
                lists = {name: contents[name] for name in contents if name.endswith(".txt")}
                content = build_litert_model(model, precision, pooling, hidden_states, lists)
                files.write_bytes(path, content)
            for name, text in texts.items():
                files.write_text(os.path.join(folder, name), text)
            files.remove_tree(export_dir)
            files.rename(folder, export_dir)
    log.info("Exported model: %s", os.path.join(export_dir, file_name))
    return export_dir


def _write_onnx(path: str, proto: Any, precision: str) -> None:
    with files.wrap_errors("write", path):
        if precision == "float32":
            files.write_bytes(path, proto.SerializeToString())
        else:
            _quantize(import_extra("onnxruntime.quantization", "onnx"), proto, path)


def _quantize(quantization: Any, proto: Any, path: str) -> None:
    """Writes a model with integer weights.

    The second product of each feed-forward block stays in float32, because its inputs have
    outliers: this halves the error of sentence vectors at no measurable cost in time. Without the
    reduced range, sums saturate on processors without VNNI.
    """
    # The graph needs no pre-processing; without this property, the quantizer warns.
    proto.metadata_props.add(key="onnx.quant.pre_process", value="onnxruntime.quant")
    products = [node.name for node in proto.graph.node if node.op_type == "MatMul"]
    quantization.quantize_dynamic(
        proto,
        path,
        per_channel=True,
        reduce_range=True,
        nodes_to_exclude=[name for name in products if re.search(r"layer_\d+/output/", name)],
    )


def _to_json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _make_config(model: Any, labels: Sequence[str], tokenizer: FullTokenizer) -> dict[str, Any]:
    """Returns the content of `config.json`."""
    heads = [head for head in HEADS.values() if head.model and isinstance(model, head.model)]
    if not heads:
        raise UserError(f"{type(model).__name__} has a head that cannot be exported")
    head = heads[-1]
    outputs = getattr(model, "num_labels", 0)
    pad = tokenizer.vocab.get("[PAD]")
    names = labels if len(labels) == outputs else None
    config = hugging_face_config.make_config(model.config, head, outputs, names, pad)
    architecture = getattr(model, "hugging_face_class", head.architecture)
    return {**config, "architectures": [architecture]}


def tokenizer_json(
    tokenizer: FullTokenizer, do_lower_case: bool, max_seq_length: int
) -> dict[str, Any]:
    """Returns the content of `tokenizer.json`, which the `tokenizers` package reads."""
    vocab = tokenizer.vocab
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    tokens = [{"id": vocab[token], "content": token} for token in special if token in vocab]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    a, b = ({"Sequence": {"id": name, "type_id": side}} for side, name in enumerate("AB"))
    cls, *ends = (
        {"SpecialToken": {"id": token, "type_id": side}}
        for token, side in (("[CLS]", 0), ("[SEP]", 0), ("[SEP]", 1))
    )
    used = {
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
        "added_tokens": [{**token, **flags, "special": True} for token in tokens],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": do_lower_case,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [cls, a, ends[0]],
            "pair": [cls, a, ends[0], b, ends[1]],
            "special_tokens": used,
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
