"""Writes ONNX models into folders that Optimum, transformers.js and this package read."""

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
from bert_tf.inference.onnx_engine import MODEL
from bert_tf.progress import log
from bert_tf.saved_models.onnx_graph import build_onnx_model
from bert_tf.tokenization import FullTokenizer


def export_onnx(
    model: keras.Model,
    export_dir: str,
    contents: Mapping[str, str],
    tokenizer: FullTokenizer,
    *,
    do_lower_case: bool,
    max_seq_length: int,
    labels: Sequence[str] = (),
    precision: str = "float32",
    pooling: str | None = None,
    hidden_states: bool = False,
) -> str:
    """Writes `model.onnx` and the files next to it; returns the folder.

    Args:
        model: a model that `build_onnx_model` takes.
        export_dir: the folder; an earlier export in it is replaced.
        contents: further files by name, such as `vocab.txt`.
        tokenizer: tokenizer of the model, for `tokenizer.json`.
        do_lower_case: whether the tokenizer lower-cases.
        max_seq_length: length to which `tokenizer.json` truncates.
        labels: names of the outputs.
        precision: "float32", or "int8" for dynamic quantization: weights are stored as integers,
            one scale per column, and activations are quantized where they are used.
        pooling, hidden_states: see `build_onnx_model`.

    Raises:
        UserError: a package is missing, the model cannot be exported, or `export_dir` contains
            files that are not of an earlier export.
    """
    proto = build_onnx_model(model, pooling, hidden_states)
    quantization: Any = None
    if precision == "int8":
        quantization = import_extra("onnxruntime.quantization", "onnx")
    config = _config(model, labels, tokenizer)
    compiled = tokenizer_json(tokenizer, do_lower_case, max_seq_length)
    settings = hugging_face_config.tokenizer(do_lower_case, max_seq_length)
    texts = {
        **contents,
        "config.json": _to_json(config),
        "tokenizer.json": _to_json(compiled),
        "tokenizer_config.json": _to_json(settings),
    }
    export_dir = export_dir.rstrip("/")
    with locks.exclusive(locks.lock_path(export_dir)):
        # Everything in the folder is replaced.
        others = set(files.list_dir(export_dir)) - {MODEL, LABELS_FILE, *texts}
        if others:
            raise UserError(
                f"{export_dir} contains other files, such as {min(others)}: pass an empty folder, "
                "or that of an earlier export"
            )
        with files.temporary_folder_at(f"{export_dir}.tmp") as folder:
            path = os.path.join(folder, MODEL)
            with files.explained("write", path):
                if quantization is None:
                    files.write_bytes(path, proto.SerializeToString())
                else:
                    _quantize(quantization, proto, path)
            for name, text in texts.items():
                files.write_text(os.path.join(folder, name), text)
            files.remove_tree(export_dir)
            files.rename(folder, export_dir)
    log.info("ONNX model: %s", os.path.join(export_dir, MODEL))
    return export_dir


def _quantize(quantization: Any, proto: Any, path: str) -> None:
    """Writes a model with integer weights.

    The second product of each feed-forward block stays in float32, because its inputs have
    outliers: this halves the error of sentence vectors at no measurable cost in time. Without the
    reduced range, sums saturate on processors without VNNI.
    """
    # The graph needs no pre-processing; without the mark, the quantizer warns.
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


def _config(model: Any, labels: Sequence[str], tokenizer: FullTokenizer) -> dict[str, Any]:
    """Returns the content of `config.json`."""
    head = next(
        head for head in reversed(HEADS.values()) if head.model and isinstance(model, head.model)
    )
    outputs = getattr(model, "num_labels", 0)
    pad = tokenizer.vocab.get("[PAD]")
    names = labels if len(labels) == outputs else None
    config = hugging_face_config.make(model.config, head, outputs, names, pad)
    architecture = getattr(model, "hugging_face_class", head.architecture)
    return {**config, "architectures": [architecture]}


def tokenizer_json(
    tokenizer: FullTokenizer, do_lower_case: bool, max_seq_length: int
) -> dict[str, Any]:
    """Returns the content of `tokenizer.json`, which the package tokenizers reads."""
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
