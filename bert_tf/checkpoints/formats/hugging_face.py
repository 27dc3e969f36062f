"""Folders of Hugging Face's transformers: model.safetensors, config.json, vocab.txt."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf import files
from bert_tf.checkpoints.formats import heads, hugging_face_config, names, safetensors_files
from bert_tf.checkpoints.formats.base import VOCAB_FILE, Source, existing, temporary_folder
from bert_tf.config import BertConfig
from bert_tf.errors import UserError
from bert_tf.tokenization import load_vocab

CONFIG = "config.json"
_TOKENIZER_CONFIG = "tokenizer_config.json"
_TOKENIZER = "tokenizer.json"
# Models for spans, tokens and masked words have no pooler there, and complain about one. It lies
# in a file that transformers does not look for, so that nothing is lost on the way back.
POOLER_FILE = "pooler.safetensors"


class HuggingFaceSource(Source):
    """A model in one safetensors file or in several.

    Args:
        path: the file, or the index of several.

    Raises:
        UserError: a file is missing or damaged, or it is another model than BERT.
    """

    kind = "hugging_face"

    def __init__(self, path: str) -> None:
        folder = os.path.dirname(path) or "."
        super().__init__(path, folder)
        config_file = self.config_file = os.path.join(folder, CONFIG)
        found = safetensors_files.read_json(config_file)
        self._config = hugging_face_config.read(found, config_file)
        self.labels = hugging_face_config.labels(found)
        architectures = found.get("architectures")
        architectures = architectures if isinstance(architectures, list) else []
        head = heads.by_architecture(str(architectures[0])) if architectures else None
        self.head = head.name if head else None
        if architectures and not head:
            self.notes.append(
                f"{config_file}: {architectures[0]} is not known here. By its tensors it is taken "
                "for the class that has the same"
            )
        self._take_problem_type(found.get("problem_type"))
        self._tensors = safetensors_files.Tensors(path)
        self._names = names.HuggingFaceNames(self._tensors.entries)
        self.unknown = self._names.unknown
        if names.WORD_EMBEDDINGS not in self._names.stored:
            shown = ", ".join(sorted(self._tensors.entries)[:4])
            raise UserError(f"{path} is not a BERT: it has no word embeddings, but {shown} ...")
        self._pooler = self._find_pooler(folder)
        self._take_tokenizer(folder)
        if self._config.hidden_act == "gelu_erf":
            self.notes.append(
                f"{self.config_file}: its gelu is the form with erf, gelu_erf in bert_config.json. "
                "Google's own models were trained with the form with tanh: for one of those "
                "change hidden_act to gelu"
            )

    def _take_problem_type(self, named: Any) -> None:
        """Says what to do where outputs of a classifier are not those of one label for a text."""
        flag = hugging_face_config.PROBLEM_TYPES.get(str(named))
        if self.head == "classification" and flag:
            self.notes.append(
                f"{self.config_file}: problem_type is {named}. With files of your own "
                f"run_classifier.py computes that by --problem_type={flag}"
            )

    def _find_pooler(self, folder: str) -> dict[str, np.ndarray]:
        """The pooler of a model that has none in the file."""
        if any(name in self._names.stored for name in names.POOLER):
            return {}
        hidden = self._config.hidden_size
        path = existing(folder, POOLER_FILE)
        if path:
            kept = safetensors_files.Tensors(path)
            stored = names.HuggingFaceNames(kept.entries).stored
            if sorted(stored) == sorted(names.POOLER):
                return {name: _turned(name, kept.read(stored[name])) for name in stored}
        self.notes.append(
            f"{self.path} has no pooler, which models for spans, tokens and masked words do not "
            "need: it is all zeros in the result"
        )
        bias, kernel = names.POOLER
        return {bias: np.zeros([hidden], np.float32), kernel: np.zeros([hidden] * 2, np.float32)}

    def _take_tokenizer(self, folder: str) -> None:
        """Vocabulary and casing; they may stand in the tokenizer's own file only."""
        settings = _read_optional(folder, _TOKENIZER_CONFIG)
        compiled = _read_optional(folder, _TOKENIZER)
        normalizer = compiled.get("normalizer")
        lower = settings.get("do_lower_case")
        if not isinstance(lower, bool) and isinstance(normalizer, dict):
            lower = normalizer.get("lowercase")
        self.do_lower_case = lower if isinstance(lower, bool) else None
        accents = settings.get("strip_accents")
        if lower is not None and accents not in (None, lower):
            self.notes.append(
                f"{os.path.join(folder, _TOKENIZER_CONFIG)}: strip_accents is {accents} beside "
                f"do_lower_case {lower}. Here accents are taken off where texts are lower-cased, "
                "so words with accents become other pieces"
            )
        pieces = _pieces(compiled) if self.vocab_file is None else None
        if pieces:
            self.vocab_file = os.path.join(temporary_folder(), VOCAB_FILE)
            files.write_text(self.vocab_file, "\n".join(pieces) + "\n")

    def config(self) -> BertConfig:
        """The configuration, in the original's terms."""
        return self._config

    def shapes(self) -> dict[str, list[int]]:
        """Names and shapes of all variables, in the original's terms."""
        found = {}
        for name, stored in self._names.stored.items():
            shape = self._tensors.shape(stored)
            found[name] = shape[::-1] if names.is_transposed(name) else shape
        return {**found, **{name: list(value.shape) for name, value in self._pooler.items()}}

    def types(self) -> dict[str, str]:
        """Names and types of all variables, as they are stored."""
        kinds = {name: self._tensors.entries[key][1] for name, key in self._names.stored.items()}
        found = {name: safetensors_files.TYPE_NAMES.get(kind, kind) for name, kind in kinds.items()}
        return {**found, **dict.fromkeys(self._pooler, "float32")}

    def read(self, names_to_read: Iterable[str]) -> Iterator[tuple[str, np.ndarray]]:
        """Yields names and values in float32, one at a time.

        Raises:
            UserError: a file changed, has numbers of another type, or a second table of words.
        """
        for name in names_to_read:
            if name in self._pooler:
                yield name, self._pooler[name]
                continue
            if name == "cls/predictions/output_bias":
                self._check_tied()
            yield name, _turned(name, self._tensors.read(self._names.stored[name]))

    def _check_tied(self) -> None:
        tied = self._names.tied
        if tied is None:
            return
        words = self._tensors.read(self._names.stored[names.WORD_EMBEDDINGS])
        if not np.array_equal(self._tensors.read(tied), words):
            raise UserError(
                f"{tied} in {self.path} is not the same as its word embeddings. The original "
                "predicts masked words with those: pass --head=encoder to leave the head out"
            )


def write(
    folder: str,
    head: heads.Head,
    config: BertConfig,
    weights: Mapping[str, np.ndarray],
    labels: Sequence[str] | None,
    vocab_file: str,
    do_lower_case: bool,
) -> None:
    """Writes all but the vocabulary into a folder.

    Args:
        folder: exists.
        head: of the model.
        config: of its encoder.
        weights: float32, by the original's names.
        labels: of the head's outputs, where they are known.
        vocab_file: the vocabulary.
        do_lower_case: whether texts have to be lower-cased.

    Raises:
        UserError: a file cannot be written.
    """
    tensors, pooler = {}, {}
    for name, value in weights.items():
        key = names.to_hugging_face(name)
        if name in names.POOLER and not head.has_pooler:
            pooler[key] = _turned(name, value)
            continue
        key = key.removeprefix("bert.") if not head.prefix() else key
        tensors[key] = _turned(name, value)
    safetensors_files.write(os.path.join(folder, safetensors_files.SINGLE), tensors)
    # Zeros are what a model without one is given when it is read.
    if any(value.any() for value in pooler.values()):
        safetensors_files.write(os.path.join(folder, POOLER_FILE), pooler)
    outputs = len(weights[head.variables[0]]) if head.variables else 0
    pad = load_vocab(vocab_file).get("[PAD]")
    _write_json(
        os.path.join(folder, CONFIG),
        hugging_face_config.make(config, head, outputs, labels, pad),
    )
    _write_json(
        os.path.join(folder, _TOKENIZER_CONFIG),
        hugging_face_config.tokenizer(do_lower_case, config.max_position_embeddings),
    )


def _turned(name: str, value: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(value.T) if names.is_transposed(name) else value


def _read_optional(folder: str, name: str) -> dict[str, Any]:
    path = existing(folder, name)
    return safetensors_files.read_json(path) if path else {}


def _pieces(compiled: Mapping[str, Any]) -> list[str] | None:
    """The vocabulary in a tokenizer.json; None where there is none of word pieces."""
    model = compiled.get("model")
    if not isinstance(model, dict) or model.get("type", "WordPiece") != "WordPiece":
        return None
    ids = model.get("vocab")
    if not isinstance(ids, dict) or not all(isinstance(number, int) for number in ids.values()):
        return None
    pieces = sorted(ids, key=ids.__getitem__)
    is_whole = [ids[piece] for piece in pieces] == list(range(len(pieces)))
    return pieces if is_whole and not any("\n" in piece for piece in pieces) else None


def _write_json(path: str, content: Mapping[str, Any]) -> None:
    files.write_text(path, json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n")
