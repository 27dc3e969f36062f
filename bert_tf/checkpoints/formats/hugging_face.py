"""Model folders of Hugging Face transformers: weights, config.json and vocab.txt.

The weights are those of a class in PyTorch (`model.safetensors`) or, up to version 4, TensorFlow
(`tf_model.h5`, or safetensors with its names). Kernels are [input, output] in the original BERT and
in TensorFlow, and [output, input] in PyTorch; weights of heads are [labels, H] in the original and
in PyTorch. A DistilBERT is read as a BERT with segment embeddings of zeros.
"""

import functools
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.base import files
from bert_tf.base.errors import UserError, reason, shortened
from bert_tf.checkpoints.formats import configs, heads, hugging_face_config, keras_h5
from bert_tf.checkpoints.formats.source import TOKENIZER_CONFIG, Source
from bert_tf.checkpoints.run_folder import VOCAB, RunFolder, labels_in
from bert_tf.checkpoints.tensors import temporary_folder
from bert_tf.config import BertConfig
from bert_tf.modeling import HeadFormat
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.special_tokens import ANY_SPELLING, USED

CONFIG = "config.json"
WEIGHTS_FILE = "model.safetensors"
# In the order in which they are looked for, each with its index of shards.
WEIGHTS_FILES = (
    WEIGHTS_FILE,
    f"{WEIGHTS_FILE}.index.json",
    "tf_model.h5",
    "tf_model.h5.index.json",
)
_TOKENIZER, _ADDED = "tokenizer.json", "added_tokens.json"
# In transformers, models with a span, token or masked-LM head have no pooler, and loading warns if
# the weights include one. A file that transformers ignores keeps it for a conversion back.
POOLER_FILE = "pooler.safetensors"
# Last part of a name in the original -> last part in transformers, if they differ.
_LEAVES = {"kernel": "weight", "gamma": "weight", "beta": "bias"}
_OLD_LEAF = re.compile(r"(?<=LayerNorm\.)(gamma|beta)$")

# Endings of kernels in TensorFlow.
_KERNELS = ("/kernel:0", "/kernel")
# Parts of a name in DistilBERT -> in BERT.
_DISTILBERT = {
    "attention.q_lin": "attention.self.query",
    "attention.k_lin": "attention.self.key",
    "attention.v_lin": "attention.self.value",
    "attention.out_lin": "attention.output.dense",
    "sa_layer_norm": "attention.output.LayerNorm",
    "ffn.lin1": "intermediate.dense",
    "ffn.lin2": "output.dense",
    "output_layer_norm": "output.LayerNorm",
}

# Redundant tensors in some files: copies of tied weights, and buffers that can be recomputed.
_TIED_WEIGHT = "cls.predictions.decoder.weight"
_TIED_BIAS, _BIAS = "cls.predictions.decoder.bias", "cls.predictions.bias"
_BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")
# Supported dtypes in a safetensors file -> NumPy's name.
_TYPE_NAMES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


class HuggingFaceSource(Source):
    """A model in one safetensors or HDF5 file, or in shards listed by an index."""

    kind = "hugging_face"

    def __init__(self, path: str, settings: Mapping[str, Any] | None = None) -> None:
        """Opens a file of weights; `settings`, if given, replaces the content of config.json."""
        folder = os.path.dirname(path) or "."
        super().__init__(path, folder)
        self.config_file = os.path.join(folder, CONFIG)
        settings = files.read_json(self.config_file) if settings is None else settings
        self._config = hugging_face_config.read(settings, self.config_file)
        self.labels = labels_in(settings)
        architectures = settings.get("architectures")
        if isinstance(architectures, list) and architectures:
            known = {head.architecture: head for head in reversed(heads.registered().values())}
            name = str(architectures[0])
            self.head = known.get(name)
            if name.startswith("DistilBertFor") and name != "DistilBertForMaskedLM":
                self.other_head = name
        if (kind := settings.get("problem_type")) not in (None, "single_label_classification"):
            self.notes.append(f"{self.config_file}: problem_type is {kind}, see --problem_type")
        self._tensors = _open_tensors(path)
        is_distilled = settings.get("model_type") == hugging_face_config.DISTILBERT
        head_names = {} if is_distilled else heads.hugging_face_names(self.head)
        matched = match_names(self._tensors.shapes, head_names)
        self._names, self.unknown, self._tied_decoder = matched
        if configs.WORD_EMBEDDINGS not in self._names:
            content = ", ".join(sorted(self._tensors.shapes)[:4])
            raise UserError(f"no BERT word embeddings. It contains: {content} ...", at=path)
        # Variables that are not in the file.
        self._added = self._find_pooler(folder)
        if is_distilled:
            shape = self._config.type_vocab_size, self._config.hidden_size
            self._added[configs.SEGMENT_EMBEDDINGS] = np.zeros(shape, np.float32)
        self._read_tokenizer(folder)

    def _find_pooler(self, folder: str) -> dict[str, np.ndarray]:
        """Returns the pooler's weights if `POOLER_FILE` has them; otherwise {}."""
        path = RunFolder(folder).find(POOLER_FILE)
        if path and not any(name in self._names for name in configs.POOLER):
            pooler = SafetensorsReader([path])
            stored, *_ = match_names(pooler.shapes, {})
            if sorted(stored) == sorted(configs.POOLER):
                return {name: _transpose_kernel(name, pooler.read(stored[name])) for name in stored}
        return {}

    def _read_tokenizer(self, folder: str) -> None:
        """Sets casing and vocabulary; some models store them only in tokenizer.json."""
        read_json = RunFolder(folder).read_json
        settings = read_json(TOKENIZER_CONFIG)
        fast_tokenizer = read_json(_TOKENIZER)
        normalizer = fast_tokenizer.get("normalizer")
        lower = settings.get("do_lower_case")
        if not isinstance(lower, bool) and isinstance(normalizer, dict):
            lower = normalizer.get("lowercase")
        self.do_lower_case = lower if isinstance(lower, bool) else None
        if isinstance(normalizer, dict):
            chinese = {"tokenize_chinese_chars": normalizer.get("handle_chinese_chars")}
            others = {name: x for name, x in (normalizer | chinese).items() if name not in settings}
            self._follow_tokenizer(others, os.path.join(folder, _TOKENIZER), lower)
        path = self.vocab_file
        stored = files.read_small_file_lines(path) if path else _read_word_pieces(fast_tokenizer)
        if not stored:
            return
        added = _read_added_tokens(settings, fast_tokenizer, read_json(_ADDED))
        pieces = self._add_tokens(stored, added)
        if path is None or len(pieces) > len(stored):
            self.vocab_file = os.path.join(temporary_folder(), VOCAB)
            files.write_text(self.vocab_file, "\n".join(pieces) + "\n")

    def _add_tokens(self, stored: Sequence[str], added: Sequence[Mapping[str, Any]]) -> list[str]:
        """Returns the vocabulary with the added tokens; adds a note if some are split anyway."""
        pieces, known, unknown = [piece.strip() for piece in stored], [], []
        texts = {*pieces}
        for token in added:
            text, index = token["content"], token.get("id", len(pieces))
            # The token must fit on a line of vocab.txt, and into a comma-separated list.
            fits = re.fullmatch(r"\S|\S[^,\r\n]*[^,\s]", text) and not token.get("single_word")
            if fits and text not in texts and len(pieces) <= index < self._config.vocab_size:
                pieces += [f"[unused_{i}]" for i in range(len(pieces), index)] + [text]
                texts.add(text)
            if fits and text in texts:
                is_normalized = token.get("normalized", not token.get("special"))
                known.append(f"{ANY_SPELLING * bool(is_normalized)}{text}")
            else:
                unknown.append(text)
        if unknown:
            problem = f"added tokens are split into pieces: {shortened(unknown, 4)}"
            self.notes.append(f"{self.path}: {problem}, see --special_tokens")
        if known:
            self.tokenizer_settings["special_tokens"] = ",".join(known)
        return pieces

    def config(self) -> BertConfig:
        """Returns the configuration."""
        return self._config

    def variables(self) -> dict[str, tuple[list[int], str]]:
        """Returns the shapes, with kernels [input, output], and stored dtypes of all variables."""
        variables = {name: (list(value.shape), "float32") for name, value in self._added.items()}
        for name, stored in self._names.items():
            shape = self._tensors.shapes[stored]
            shape = shape[::-1] if _is_transposed(name, stored) else shape
            variables[name] = shape, self._tensors.types[stored]
        return variables

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, np.ndarray]]:
        """Yields the names and float32 values of variables, one at a time."""
        for name in names:
            if name == "cls/predictions/output_bias" and self._tied_decoder:
                self._check_tied(self._tied_decoder)
            if name in self._added:
                yield name, self._added[name]
            else:
                stored = self._names[name]
                value = self._tensors.read(stored)
                yield name, _transpose(value) if _is_transposed(name, stored) else value

    def _check_tied(self, decoder: str) -> None:
        embeddings = self._tensors.read(self._names[configs.WORD_EMBEDDINGS])
        if not np.array_equal(self._tensors.read(decoder), embeddings):
            problem = f"{decoder} differs from the word embeddings, but BERT ties the two"
            raise UserError(problem, at=self.path, fix=heads.ENCODER_ONLY)


class SafetensorsReader:
    """The tensors of `.safetensors` files.

    Attributes:
        shapes: name -> shape.
        types: name -> dtype; `read` supports only those of `_TYPE_NAMES`.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        from safetensors import SafetensorError, safe_open

        self.shapes: dict[str, list[int]] = {}
        self.types: dict[str, str] = {}
        self._files: dict[str, tuple[str, Any]] = {}
        for shard in paths:
            files.open_binary(shard).close()  # Raises a clearer error for a missing file.
            try:
                file = safe_open(shard, framework="numpy")
            except (SafetensorError, OSError, ValueError) as error:
                problem = f"not a complete safetensors file: {reason(error)}"
                raise UserError(problem, at=shard) from error
            for name in file.keys():  # noqa: SIM118
                tensor = file.get_slice(name)
                self.shapes[name], kind = tensor.get_shape(), tensor.get_dtype()
                self.types[name] = _TYPE_NAMES.get(str(kind), str(kind))
                self._files[name] = shard, file

    def read(self, name: str) -> np.ndarray:
        """Returns a tensor as float32, to which float16 and bfloat16 convert exactly."""
        path, file = self._files[name]
        if self.types[name] not in _TYPE_NAMES.values():
            expected = f"{name} of type {', '.join(_TYPE_NAMES)}"
            raise UserError(f"expected {expected}. Received: {self.types[name]}", at=path)
        # NumPy knows bfloat16 only because importing TensorFlow registers it.
        return file.get_tensor(name).astype(np.float32)


def _open_tensors(path: str) -> SafetensorsReader | keras_h5.H5Reader:
    """Opens the file with the weights, or the files that an index lists."""
    paths = _read_shards(path) if path.endswith(".json") else [path]
    return (keras_h5.H5Reader if paths[0].endswith(".h5") else SafetensorsReader)(paths)


def _read_shards(path: str) -> list[str]:
    """Returns the paths of the files that an index lists, which must be in the same folder."""
    weight_map = files.read_json(path).get("weight_map")
    found = weight_map.values() if isinstance(weight_map, dict) and weight_map else [weight_map]
    shards, extension = sorted({str(name) for name in found}), path.split(".")[-3]
    for shard in shards:
        if os.path.basename(shard) != shard or not shard.endswith(f".{extension}"):
            expected = f"a weight_map with names of {extension} files next to it"
            raise UserError(f"expected {expected}. Received: {shard}", at=path)
    return [os.path.join(os.path.dirname(path), shard) for shard in shards]


def write(
    folder: str,
    head: HeadFormat,
    config: BertConfig,
    weights: Mapping[str, np.ndarray],
    labels: Sequence[str] | None,
    tokenizer: FullTokenizer,
    max_length: int | None = None,
) -> None:
    """Writes weights, configurations and vocab.txt; see `POOLER_FILE` for the pooler.

    `max_length` is the tokenizer's maximum length; by default, the number of position embeddings.
    """
    write_weights(folder, head, weights)
    num_outputs = head.count_outputs({name: value.shape for name, value in weights.items()})
    pad_id = tokenizer.vocab.get("[PAD]")
    max_length, basic = max_length or config.max_position_embeddings, tokenizer.basic_tokenizer
    settings = {
        CONFIG: hugging_face_config.make_config(config, head, num_outputs, labels, pad_id),
        TOKENIZER_CONFIG: hugging_face_config.make_tokenizer_config(tokenizer, max_length),
    }
    to_json = functools.partial(json.dumps, indent=2, sort_keys=True, ensure_ascii=False)
    contents = {name: to_json(value) + "\n" for name, value in settings.items()}
    if basic.special_tokens:
        pieces = [tokenizer.inv_vocab.get(i, "") for i in range(max(tokenizer.inv_vocab) + 1)]
        contents[VOCAB] = "\n".join(pieces) + "\n"
    files.write_texts(folder, contents)


def write_weights(folder: str, head: HeadFormat, weights: Mapping[str, np.ndarray]) -> None:
    """Writes `model.safetensors`; see `POOLER_FILE` for the pooler."""
    from safetensors.numpy import save

    tensors, pooler = {}, {}
    prefix = "bert." if head.name == "encoder" else ""
    for name, value in weights.items():
        target = pooler if name in configs.POOLER and not head.has_pooler else tensors
        tensor = head.variables.get(name) or to_hugging_face(name).removeprefix(prefix)
        target[tensor] = _transpose_kernel(name, value)
    stored = {WEIGHTS_FILE: tensors}
    if any(value.any() for value in pooler.values()):
        stored[POOLER_FILE] = pooler
    for name, content in stored.items():
        files.write_bytes(os.path.join(folder, name), save(content, metadata={"format": "pt"}))


def to_hugging_face(name: str) -> str:
    """Converts the original's name of an encoder weight to its name in transformers.

    Example: `bert/encoder/layer_3/output/LayerNorm/gamma` becomes
    `bert.encoder.layer.3.output.LayerNorm.weight`.
    """
    *scopes, last = name.split("/")
    if last.endswith("_embeddings"):
        return ".".join([*scopes, last, "weight"])
    scopes = [re.sub(r"^layer_(\d+)$", r"layer.\1", scope) for scope in scopes]
    return ".".join([*scopes, _LEAVES.get(last, last)])


def match_names(
    file_names: Iterable[str], head_names: Mapping[str, str]
) -> tuple[dict[str, str], list[str], str | None]:
    """Maps the original's names to the names of the tensors in a file.

    `head_names` maps the names in transformers of a head's tensors to the original's names.

    Supports names from early versions of transformers (`LayerNorm.gamma`), and from bare encoders,
    which lack the prefix `bert.`.

    Returns:
        The mapping; the names in the file that are not part of BERT; and the name of the masked-LM
        head's copy of the word embeddings, if there is one.
    """
    # Current name -> name in the file. Early versions of transformers kept TensorFlow's names.
    modern = {_modernize(n): n for n in sorted(file_names)}
    if not any(name.startswith("bert.") for name in modern):
        scopes = ("embeddings.", "encoder.", "pooler.")
        modern = {
            f"bert.{name}" if name.startswith(scopes) else name: stored
            for name, stored in modern.items()
        }
    tied_decoder, tied_bias = modern.pop(_TIED_WEIGHT, None), modern.pop(_TIED_BIAS, None)
    if tied_bias:
        modern.setdefault(_BIAS, tied_bias)
    encoder = configs.encoder_names(configs.count_layers(modern))
    known = {**head_names, **{to_hugging_face(name): name for name in encoder}}
    names = {known[name]: modern[name] for name in modern if name in known}
    unknown = [name for name in modern if name not in known and not name.endswith(_BUFFERS)]
    return names, sorted(modern[name] for name in unknown), tied_decoder


def _modernize(name: str) -> str:
    """Converts a name in TensorFlow, in early versions, or in DistilBERT to that of BERT."""
    name = keras_h5.torch_name(name) if "/" in name else name
    # Early versions of transformers kept TensorFlow's names.
    name = _OLD_LEAF.sub(lambda leaf: _LEAVES[leaf[0]], name)
    name = re.sub(r"^(distilbert\.)?transformer\.layer", "bert.encoder.layer", name)
    for theirs, ours in _DISTILBERT.items():
        name = name.replace(f".{theirs}.", f".{ours}.")
    return name.replace("distilbert.", "bert.", 1) if name.startswith("distilbert.") else name


def _is_transposed(name: str, stored: str) -> bool:
    """Returns whether a tensor has the axes of a variable in reverse order."""
    return stored.endswith(_KERNELS) != name.endswith("/kernel")


def _transpose_kernel(name: str, value: np.ndarray) -> np.ndarray:
    return _transpose(value) if name.endswith("/kernel") else value


def _transpose(value: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(value.T)


def _read_added_tokens(
    settings: Mapping[str, Any], fast_tokenizer: Mapping[str, Any], ids: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Returns the entries of the tokens that a model has besides the original's, sorted by `id`.

    The arguments are the contents of tokenizer_config.json, tokenizer.json and added_tokens.json.
    Each of these files may list such tokens.
    """
    listed = settings.get("additional_special_tokens") or settings.get("extra_special_tokens")
    special = [x for x in listed or () if isinstance(x, str)]
    found = [{"content": text, "special": True} for text in special]
    found += [{"content": x, "id": ids[x], "special": x in special} for x in ids]
    found += fast_tokenizer.get("added_tokens") or ()
    decoder = settings.get("added_tokens_decoder") or {}
    found += [{**token, "id": int(index)} for index, token in decoder.items()]
    by_text = {x["content"]: x for x in found if x["content"] not in USED}
    return sorted(by_text.values(), key=lambda x: x.get("id", math.inf))


def _read_word_pieces(fast_tokenizer: Mapping[str, Any]) -> list[str] | None:
    """Returns the WordPiece vocabulary of a tokenizer.json; None if there is none."""
    model = fast_tokenizer.get("model") or {}
    ids = model.get("vocab")
    if model.get("type", "WordPiece") != "WordPiece" or not isinstance(ids, dict):
        return None
    pieces = sorted(ids, key=ids.__getitem__)
    # A vocab.txt can only store consecutive ids, and pieces without line breaks.
    are_consecutive = [ids[piece] for piece in pieces] == list(range(len(pieces)))
    return pieces if are_consecutive and not any("\n" in piece for piece in pieces) else None
