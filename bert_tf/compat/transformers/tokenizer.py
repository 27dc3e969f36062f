"""`BertTokenizer` and `BertTokenizerFast` as in transformers 4, with the original BERT's ids."""

import functools
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from bert_tf.base import files
from bert_tf.base.errors import UserError
from bert_tf.checkpoints.formats.hugging_face_config import make_tokenizer_config
from bert_tf.checkpoints.formats.source import TOKENIZER_CONFIG
from bert_tf.checkpoints.run_folder import VOCAB
from bert_tf.compat.transformers.arguments import UNLIMITED
from bert_tf.compat.transformers.folders import TokenizerFolder, find_folder
from bert_tf.compat.transformers.rows import EncodesTexts, as_list, is_list, plain
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.fast import BatchTokenizer
from bert_tf.tokenization.special_tokens import ANY_SPELLING, USED, unmarked

_SPECIAL = {
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}
# Options that have only one value here.
_FIXED = {**_SPECIAL, "tokenize_chinese_chars": True, "never_split": None}
# What `clean_up_tokenization` replaces, in this order.
_SPACED = (" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're")


class BertTokenizer(EncodesTexts):
    """Converts texts to inputs of a model.

    Example:
        tokenizer = BertTokenizer.from_pretrained("my_model")
        inputs = tokenizer(["First text", "Second"], padding=True, return_tensors="tf")

    Args:
        vocab_file: path of the vocabulary, with a token per line.
        do_lower_case: whether the model is uncased.
        do_basic_tokenize: False if texts are split only at whitespace.
        strip_accents: whether to strip accents; by default if `do_lower_case`.
        model_max_length: the longest row, in tokens.
        padding_side, truncation_side: `right` or `left`.
        clean_up_tokenization_spaces: whether `decode` removes the spaces before punctuation.
        additional_special_tokens: tokens that are never split, see `add_tokens`.
    """

    is_fast: ClassVar[bool] = False
    model_input_names: ClassVar[list[str]] = ["input_ids", "token_type_ids", "attention_mask"]
    pad_token_type_id: ClassVar[int] = 0

    def __init__(
        self,
        vocab_file: str | os.PathLike,
        do_lower_case: bool = True,
        *,
        do_basic_tokenize: bool = True,
        strip_accents: bool | None = None,
        model_max_length: int | None = None,
        padding_side: str = "right",
        truncation_side: str = "right",
        clean_up_tokenization_spaces: bool = True,
        additional_special_tokens: Iterable[Any] = (),
        **kwargs: Any,
    ) -> None:
        for name in _FIXED.keys() & kwargs.keys():
            if kwargs[name] is not None and str(kwargs[name]) != str(_FIXED[name]):
                raise UserError(f"{name} must be {_FIXED[name]!r}. Received: {kwargs[name]!r}")
        self.name_or_path = str(kwargs.get("name_or_path", ""))
        self.do_lower_case = do_lower_case
        self._arguments = os.fspath(vocab_file), do_lower_case, strip_accents
        self._is_pretokenized = not do_basic_tokenize
        self.model_max_length = UNLIMITED if model_max_length is None else model_max_length
        self.padding_side, self.truncation_side = padding_side, truncation_side
        self.clean_up_tokenization_spaces = clean_up_tokenization_spaces
        self._load([])
        self.add_tokens([*additional_special_tokens], special_tokens=True)

    def _load(self, tokens: Sequence[str]) -> None:
        """Reads the vocabulary, and places tokens in it."""
        self._full = FullTokenizer(*self._arguments, tokens, self._is_pretokenized)
        self._placed = list(tokens)
        self.basic_tokenizer = self._full.basic_tokenizer
        self.wordpiece_tokenizer = self._full.wordpiece_tokenizer
        self.vocab, self.ids_to_tokens = self._full.vocab, self._full.inv_vocab
        self.basic_tokenizer.keep([token for token in USED if token in self.vocab])
        self.__dict__.pop("_batch", None)

    @functools.cached_property
    def _batch(self) -> BatchTokenizer:
        return BatchTokenizer(self._full)

    def __getstate__(self) -> dict[str, Any]:
        # It has a lock.
        return {name: value for name, value in vars(self).items() if name != "_batch"}

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, **kwargs: Any) -> Any:
        """Reads the tokenizer of a model's folder; `kwargs` replace its settings.

        Raises a UserError if there is no such folder, also not in `$BERT_TF_MODELS`, or it has
        neither vocab.txt nor tokenizer.json.
        """
        path = find_folder(pretrained_model_name_or_path)
        kwargs["name_or_path"] = os.fspath(pretrained_model_name_or_path)
        if not files.is_dir(path):
            return cls(path, **kwargs)
        folder = TokenizerFolder(path)
        if not folder.vocab_file:
            raise UserError(f"no vocab.txt or tokenizer.json ({files.describe_folder(path)})")
        tokenizer = cls(folder.vocab_file, **{**folder.arguments(), **kwargs})
        if listed := folder.tokenizer_settings.get("special_tokens"):
            tokenizer._load([*listed.split(","), *tokenizer._placed])
        return tokenizer

    def save_pretrained(self, save_directory: str, **_: Any) -> tuple[str, ...]:
        """Writes the vocabulary and the settings; returns the paths of the files."""
        config = make_tokenizer_config(self._full, self.model_max_length)
        config["additional_special_tokens"] = self.additional_special_tokens
        config["clean_up_tokenization_spaces"] = self.clean_up_tokenization_spaces
        config["do_basic_tokenize"] = not self._is_pretokenized
        config |= {"padding_side": self.padding_side, "truncation_side": self.truncation_side}
        contents = {TOKENIZER_CONFIG: config, "special_tokens_map.json": self.special_tokens_map}
        texts = {
            name: json.dumps(value, indent=2, ensure_ascii=False) + "\n"
            for name, value in contents.items()
        }
        saved = files.write_texts(os.fspath(save_directory), texts)
        return *saved, *self.save_vocabulary(save_directory)

    def save_vocabulary(self, save_directory: str, **_: Any) -> tuple[str]:
        """Writes vocab.txt; returns its path."""
        pieces = [self.ids_to_tokens.get(i, "") for i in range(max(self.ids_to_tokens) + 1)]
        text = "\n".join(pieces) + "\n"
        return (files.write_texts(os.fspath(save_directory), {VOCAB: text})[0],)

    # Special tokens and the vocabulary.

    def __getattr__(self, name: str) -> Any:
        if token := _SPECIAL.get(name.removesuffix("_id")):
            return self.vocab.get(token) if name.endswith("_id") else token
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __len__(self) -> int:
        return len(self.vocab)

    @property
    def vocab_size(self) -> int:
        """The number of tokens."""
        return len(self.vocab)

    def get_vocab(self) -> dict[str, int]:
        """Returns a copy of the vocabulary, token -> id."""
        return dict(self.vocab)

    @property
    def max_len_single_sentence(self) -> int:
        """The longest text, in tokens."""
        return self.model_max_length - 2

    @property
    def additional_special_tokens(self) -> list[str]:
        """Special tokens that BERT does not have."""
        marked = self.basic_tokenizer.marked_tokens
        return [token for token in marked if token == unmarked(token) and token not in USED]

    @property
    def special_tokens_map(self) -> dict[str, Any]:
        """Special tokens by the names of their attributes."""
        additional = self.additional_special_tokens
        return {**_SPECIAL, **({"additional_special_tokens": additional} if additional else {})}

    @property
    def all_special_tokens(self) -> list[str]:
        """All special tokens."""
        return [*_SPECIAL.values(), *self.additional_special_tokens]

    @property
    def all_special_ids(self) -> list[int]:
        """The ids of all special tokens."""
        return self.convert_tokens_to_ids(self.all_special_tokens)

    def add_tokens(self, new_tokens: Any, special_tokens: bool = False) -> int:
        """Adds tokens that are never split; returns how many are new in the vocabulary.

        Unlike in transformers, they replace entries `[unusedN]`, so that the model stays as it is.
        Raises a UserError if there are not enough.
        """
        listed = new_tokens if is_list(new_tokens) else [new_tokens]
        tokens = [*dict.fromkeys(map(str, listed))]
        known = {*self.basic_tokenizer.special_tokens}
        mark = "" if special_tokens else ANY_SPELLING
        added = [mark + token for token in tokens if token not in known]
        count = sum(token not in self.vocab for token in tokens)
        if added:
            self._load([*self._placed, *added])
        return count

    def add_special_tokens(self, special_tokens_dict: Mapping[str, Any], **_: Any) -> int:
        """Adds the `additional_special_tokens`, see `add_tokens`."""
        listed = [x for value in special_tokens_dict.values() for x in as_list(value)]
        return self.add_tokens(listed, special_tokens=True)

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        """Returns the id of a token, or those of a list; unknown tokens have that of `[UNK]`."""
        if tokens is None or isinstance(tokens, str):
            return None if tokens is None else self.vocab.get(tokens, self.unk_token_id)
        return [self.vocab.get(token, self.unk_token_id) for token in tokens]

    def convert_ids_to_tokens(self, ids: Any, skip_special_tokens: bool = False) -> Any:
        """Returns the token of an id, or those of a list; unknown ids have `[UNK]`."""
        ids = plain(ids)
        if isinstance(ids, int):
            return self.ids_to_tokens.get(ids, "[UNK]")
        skipped = {*self.all_special_ids} if skip_special_tokens else ()
        return [self.ids_to_tokens.get(int(i), "[UNK]") for i in ids if i not in skipped]

    def convert_tokens_to_string(self, tokens: Sequence[str]) -> str:
        """Joins tokens to a text."""
        return " ".join(tokens).replace(" ##", "").strip()

    def decode(
        self,
        token_ids: Any,
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool | None = None,
        **_: Any,
    ) -> str:
        """Converts the ids of a row to a text."""
        token_ids = plain(token_ids)
        tokens = self.convert_ids_to_tokens(as_list(token_ids), skip_special_tokens)
        text = self.convert_tokens_to_string(tokens)
        clean_up = clean_up_tokenization_spaces
        clean_up = self.clean_up_tokenization_spaces if clean_up is None else clean_up
        return self.clean_up_tokenization(text) if clean_up else text

    def batch_decode(self, sequences: Any, *args: Any, **kwargs: Any) -> list[str]:
        """Converts the ids of several rows to texts."""
        return [self.decode(ids, *args, **kwargs) for ids in plain(sequences)]

    @staticmethod
    def clean_up_tokenization(out_string: str) -> str:
        """Removes spaces before punctuation, and in English contractions."""
        for spaced in _SPACED:
            out_string = out_string.replace(spaced, spaced.strip())
        return out_string


class BertTokenizerFast(BertTokenizer):
    """`BertTokenizer` with the results of the fast tokenizer of transformers.

    They differ in overflowing tokens, which become rows, in pairs of long texts that are truncated,
    and in the spaces before punctuation if `decode` does not clean up.
    """

    is_fast: ClassVar[bool] = True

    def convert_tokens_to_string(self, tokens: Sequence[str]) -> str:
        """Joins tokens to a text, without spaces before punctuation."""
        parts = [f" {token}".removeprefix(" ##") for token in tokens]
        return "".join(map(self.clean_up_tokenization, parts)).removeprefix(" ")


class AutoTokenizer:
    """The tokenizer of a BERT."""

    @staticmethod
    def from_pretrained(name: Any, *, use_fast: bool = True, **kwargs: Any) -> BertTokenizer:
        """Returns a `BertTokenizerFast`, or a `BertTokenizer`."""
        return (BertTokenizerFast if use_fast else BertTokenizer).from_pretrained(name, **kwargs)
