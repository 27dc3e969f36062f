"""Hugging Face transformers model folders: model.safetensors, config.json, vocab.txt.

Kernels are [input, output] in the original BERT and [output, input] in transformers, which uses
PyTorch; weights of heads are [labels, H] in both.
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
from bert_tf.checkpoints.formats import configs, heads, hugging_face_config
from bert_tf.checkpoints.formats.source import TOKENIZER_CONFIG, Source
from bert_tf.checkpoints.run_folder import VOCAB, RunFolder, labels_in
from bert_tf.checkpoints.tensors import temporary_folder
from bert_tf.config import BertConfig
from bert_tf.modeling import HeadFormat
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.special_tokens import ANY_SPELLING, USED

CONFIG = "config.json"
INDEX_FILE = "model.safetensors.index.json"
WEIGHTS_FILE = "model.safetensors"
_TOKENIZER, _ADDED = "tokenizer.json", "added_tokens.json"
# In transformers, models with a span, token or masked-LM head have no pooler, and loading warns if
# the weights include one. A file that transformers ignores keeps it for a conversion back.
POOLER_FILE = "pooler.safetensors"
# Last part of a name in the original -> last part in transformers, if they differ.
_LEAVES = {"kernel": "weight", "gamma": "weight", "beta": "bias"}
_OLD_LEAF = re.compile(r"(?<=LayerNorm\.)(gamma|beta)$")

# Redundant tensors in some files: copies of tied weights, and buffers that can be recomputed.
_TIED_WEIGHT = "cls.predictions.decoder.weight"
_TIED_BIAS, _BIAS = "cls.predictions.decoder.bias", "cls.predictions.bias"
_BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")
# Supported dtypes in a safetensors file -> NumPy's name.
_TYPE_NAMES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


class HuggingFaceSource(Source):
    """A model in one safetensors file, or in shards listed by an index."""

    kind = "hugging_face"

    def __init__(self, path: str) -> None:
        folder = os.path.dirname(path) or "."
        super().__init__(path, folder)
        self.config_file = os.path.join(folder, CONFIG)
        settings = files.read_json(self.config_file)
        self._config = hugging_face_config.read(settings, self.config_file)
        self.labels = labels_in(settings)
        architectures = settings.get("architectures")
        if isinstance(architectures, list) and architectures:
            known = {head.architecture: head for head in reversed(heads.registered().values())}
            self.head = known.get(str(architectures[0]))
        if (kind := settings.get("problem_type")) not in (None, "single_label_classification"):
            self.notes.append(f"{self.config_file}: problem_type is {kind}, see --problem_type")
        self._tensors = SafetensorsReader(path)
        head_names = heads.hugging_face_names(self.head)
        matched = match_names(self._tensors.shapes, head_names)
        self._names, self.unknown, self._tied_decoder = matched
        if configs.WORD_EMBEDDINGS not in self._names:
            content = ", ".join(sorted(self._tensors.shapes)[:4])
            raise UserError(f"no BERT word embeddings. It contains: {content} ...", at=path)
        self._pooler = self._find_pooler(folder)
        self._read_tokenizer(folder)

    def _find_pooler(self, folder: str) -> dict[str, np.ndarray]:
        """Returns the pooler's weights if `POOLER_FILE` has them; otherwise {}."""
        path = RunFolder(folder).find(POOLER_FILE)
        if path and not any(name in self._names for name in configs.POOLER):
            pooler = SafetensorsReader(path)
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
        variables = {name: (list(value.shape), "float32") for name, value in self._pooler.items()}
        for name, stored in self._names.items():
            shape, kind = self._tensors.shapes[stored], self._tensors.types[stored]
            shape = shape[::-1] if name.endswith("/kernel") else shape
            variables[name] = shape, _TYPE_NAMES.get(kind, kind)
        return variables

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, np.ndarray]]:
        """Yields the names and float32 values of variables, one at a time."""
        for name in names:
            if name == "cls/predictions/output_bias" and self._tied_decoder:
                self._check_tied(self._tied_decoder)
            if name in self._pooler:
                yield name, self._pooler[name]
            else:
                yield name, _transpose_kernel(name, self._tensors.read(self._names[name]))

    def _check_tied(self, decoder: str) -> None:
        embeddings = self._tensors.read(self._names[configs.WORD_EMBEDDINGS])
        if not np.array_equal(self._tensors.read(decoder), embeddings):
            problem = f"{decoder} differs from the word embeddings, but BERT ties the two"
            raise UserError(problem, at=self.path, fix=heads.ENCODER_ONLY)


class SafetensorsReader:
    """The tensors of a model, in one `.safetensors` file or in the shards that an index lists.

    Attributes:
        shapes: name -> shape.
        types: name -> dtype; `read` supports only the keys of `_TYPE_NAMES`.
    """

    def __init__(self, path: str) -> None:
        from safetensors import SafetensorError, safe_open

        self.shapes: dict[str, list[int]] = {}
        self.types: dict[str, str] = {}
        self._files: dict[str, tuple[str, Any]] = {}
        for shard in _read_shards(path) if path.endswith(".json") else [path]:
            files.open_binary(shard).close()  # Raises a clearer error for a missing file.
            try:
                file = safe_open(shard, framework="numpy")
            except (SafetensorError, OSError, ValueError) as error:
                problem = f"not a complete safetensors file: {reason(error)}"
                raise UserError(problem, at=shard) from error
            for name in file.keys():  # noqa: SIM118
                tensor = file.get_slice(name)
                self.shapes[name], self.types[name] = tensor.get_shape(), tensor.get_dtype()
                self._files[name] = shard, file

    def read(self, name: str) -> np.ndarray:
        """Returns a tensor as float32, to which float16 and bfloat16 convert exactly."""
        path, file = self._files[name]
        if self.types[name] not in _TYPE_NAMES:
            expected = f"{name} of type {', '.join(_TYPE_NAMES)}"
            raise UserError(f"expected {expected}. Received: {self.types[name]}", at=path)
        # NumPy knows bfloat16 only because importing TensorFlow registers it.
        return file.get_tensor(name).astype(np.float32)


def _read_shards(path: str) -> Iterable[str]:
    """Returns the paths of the files that an index lists; they must be in the same folder."""
    weight_map = files.read_json(path).get("weight_map")
    found = weight_map.values() if isinstance(weight_map, dict) else [weight_map]
    shards = sorted({str(name) for name in found})
    for shard in shards:
        if os.path.basename(shard) != shard or not shard.endswith(".safetensors"):
            expected = "a weight_map with names of safetensors files next to it"
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
    modern = {_OLD_LEAF.sub(lambda leaf: _LEAVES[leaf[0]], n): n for n in sorted(file_names)}
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


def _transpose_kernel(name: str, value: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(value.T) if name.endswith("/kernel") else value


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
