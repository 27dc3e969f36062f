"""Exports models to ONNX or LiteRT, into folders that also have a configuration and a tokenizer.

Folders with an ONNX model can be read by Optimum, transformers.js and this package.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from bert_tf.base import files, locks
from bert_tf.base.errors import UserError, note
from bert_tf.base.extras import import_extra
from bert_tf.checkpoints.formats import hugging_face_config
from bert_tf.checkpoints.run_folder import LABELS
from bert_tf.inference.exported_model import MODEL_FILES
from bert_tf.options import ModelOptions
from bert_tf.saved_models.litert_model import build_litert_model
from bert_tf.saved_models.onnx_graph import build_onnx_model
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.special_tokens import USED, unmarked


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
    settings = hugging_face_config.make_tokenizer_config(tokenizer, max_length)
    texts = {  # file name -> content
        **contents,
        "config.json": _to_json(_make_config(model, labels, tokenizer)),
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


def _make_config(model: Any, labels: Sequence[str], tokenizer: FullTokenizer) -> dict[str, Any]:
    head = getattr(model, "head_format", None)
    num_outputs = getattr(model, "num_labels", len(labels))
    pad_id = tokenizer.vocab.get("[PAD]")
    known_labels = labels if len(labels) == num_outputs else None
    return hugging_face_config.make_config(model.config, head, num_outputs, known_labels, pad_id)


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
