"""The vocabulary of the tokenizers of transformers, with the original BERT's ids."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

from bert_tf.base import files
from bert_tf.base.errors import UserError
from bert_tf.checkpoints.formats.hugging_face_config import make_tokenizer_config
from bert_tf.checkpoints.formats.source import TOKENIZER_CONFIG
from bert_tf.checkpoints.run_folder import VOCAB
from bert_tf.compat.transformers.folders import SETTINGS, TokenizerFolder, find_folder
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.fast import BatchTokenizer
from bert_tf.tokenization.special_tokens import ANY_SPELLING, USED, unmarked

# The length of a model whose folder does not say it.
UNLIMITED = int(1e30)
_SPECIAL = {f"{x[1:-1].lower()}_token": x for x in ("[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]")}
# Options that have only one value here.
_FIXED = {"tokenize_chinese_chars": True, "truncation_side": "right", **_SPECIAL}
# What `clean_up_tokenization` replaces, in this order.
_SPACED = (" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're")


def plain(value: Any) -> Any:
    """Converts tensors, arrays and columns of tables to lists."""
    value = value.numpy() if hasattr(value, "numpy") else value
    return value.tolist() if hasattr(value, "tolist") else value


def is_list(value: Any) -> bool:
    """Returns whether a value is a list or a tuple."""
    return isinstance(value, list | tuple)


def as_list(value: Any) -> list[Any]:
    """Returns a list; a single value becomes its only entry."""
    return list(value) if is_list(value) else [value]


class Vocabulary:
    """The part of a tokenizer that converts ids to tokens and texts, see `BertTokenizer`."""

    is_fast: ClassVar[bool] = False
    model_input_names: ClassVar[list[str]] = ["input_ids", "token_type_ids", "attention_mask"]
    pad_token_type_id: ClassVar[int] = 0

    def __init__(
        self,
        vocab_file: str | os.PathLike,
        do_lower_case: bool = True,
        *,
        strip_accents: bool | None = None,
        model_max_length: int | None = None,
        special_tokens: str | None = None,
        additional_special_tokens: Iterable[Any] = (),
        **kwargs: Any,
    ) -> None:
        for name in _FIXED.keys() & kwargs.keys():
            if kwargs[name] is not None and str(kwargs[name]) != str(_FIXED[name]):
                raise UserError(f"{name} must be {_FIXED[name]!r}. Received: {kwargs[name]!r}")
        for name, default in SETTINGS.items():
            setattr(self, name, kwargs.get(name, default))
        self.do_lower_case = do_lower_case
        self.model_max_length = UNLIMITED if model_max_length is None else model_max_length
        self._arguments = os.fspath(vocab_file), do_lower_case, strip_accents
        self._load(special_tokens.split(",") if special_tokens else [])
        self.add_tokens([*additional_special_tokens], special_tokens=True)

    def _load(self, tokens: list[str]) -> None:
        """Reads the vocabulary, and places tokens in it."""
        self._full = FullTokenizer(*self._arguments, tokens, not self.do_basic_tokenize)
        self._batch, self._placed = BatchTokenizer(self._full), tokens
        self.vocab, self.ids_to_tokens = self._full.vocab, self._full.inv_vocab
        self.vocab_size = len(self.vocab)
        self.basic_tokenizer = basic = self._full.basic_tokenizer
        basic.keep([token for token in USED if token in self.vocab])
        special = [token for token in basic.marked_tokens if token == unmarked(token)]
        self.additional_special_tokens = [token for token in special if token not in USED]
        self.all_special_tokens = [*_SPECIAL.values(), *self.additional_special_tokens]
        self.all_special_ids = self.convert_tokens_to_ids(self.all_special_tokens)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, **kwargs: Any) -> Self:
        """Reads the tokenizer of a model's folder; `kwargs` replace its settings."""
        path = find_folder(pretrained_model_name_or_path)
        if not files.is_dir(path):
            return cls(path, **kwargs)
        folder = TokenizerFolder(path)
        if not folder.vocab_file:
            raise UserError(f"no vocab.txt or tokenizer.json ({files.describe_folder(path)})")
        return cls(folder.vocab_file, **{**folder.arguments, **kwargs})

    def save_pretrained(self, save_directory: str | os.PathLike, **_: Any) -> list[str]:
        """Writes the vocabulary and the settings; returns the paths of the files."""
        added = {"additional_special_tokens": self.additional_special_tokens}
        config = make_tokenizer_config(self._full, self.model_max_length) | added
        config |= {name: getattr(self, name) for name in SETTINGS}
        contents = {TOKENIZER_CONFIG: config, "special_tokens_map.json": _SPECIAL | added}
        texts = {name: json.dumps(x, ensure_ascii=False, indent=2) for name, x in contents.items()}
        pieces = [self.ids_to_tokens.get(i, "") for i in range(max(self.ids_to_tokens) + 1)]
        texts[VOCAB] = "\n".join(pieces)
        return files.write_texts(os.fspath(save_directory), {x: f"{texts[x]}\n" for x in texts})

    save_vocabulary = save_pretrained

    def __getattr__(self, name: str) -> Any:
        if token := _SPECIAL.get(name.removesuffix("_id")):
            return self.vocab.get(token) if name.endswith("_id") else token
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __len__(self) -> int:
        return len(self.vocab)

    def get_vocab(self) -> dict[str, int]:
        """Returns a copy of the vocabulary, token -> id."""
        return dict(self.vocab)

    def add_tokens(self, new_tokens: Any, special_tokens: bool = False) -> int:
        """Adds tokens in place of entries `[unusedN]`; returns how many are new."""
        tokens = [*dict.fromkeys(map(str, as_list(new_tokens)))]
        count = sum(token not in self.vocab for token in tokens)
        mark, known = "" if special_tokens else ANY_SPELLING, self.basic_tokenizer.special_tokens
        if added := [mark + token for token in tokens if token not in known]:
            self._load([*self._placed, *added])
        return count

    def add_special_tokens(self, special_tokens_dict: Mapping[str, Any], **_: Any) -> int:
        """Adds the `additional_special_tokens`, see `add_tokens`."""
        tokens = [x for value in special_tokens_dict.values() for x in as_list(value)]
        return self.add_tokens(tokens, special_tokens=True)

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        """Returns the id of a token, or those of a list; unknown tokens have that of `[UNK]`."""
        if is_list(tokens):
            return [self.vocab.get(token, self.unk_token_id) for token in tokens]
        return None if tokens is None else self.vocab.get(tokens, self.unk_token_id)

    def convert_ids_to_tokens(self, ids: Any, skip_special_tokens: bool = False) -> Any:
        """Returns the token of an id, or those of a list; unknown ids have `[UNK]`."""
        ids = plain(ids)
        if not is_list(ids):
            return self.ids_to_tokens.get(ids, "[UNK]")
        skipped = {*self.all_special_ids} if skip_special_tokens else ()
        return [self.ids_to_tokens.get(plain(i), "[UNK]") for i in ids if i not in skipped]

    def convert_tokens_to_string(self, tokens: Sequence[str]) -> str:
        """Joins tokens to a text."""
        return " ".join(tokens).replace(" ##", "").strip()

    def decode(self, token_ids: Any, skip_special_tokens: bool = False, **options: Any) -> str:
        """Converts the ids of a row to a text; `clean_up_tokenization_spaces` is an option."""
        ids, clean_up = as_list(plain(token_ids)), options.get("clean_up_tokenization_spaces")
        text = self.convert_tokens_to_string(self.convert_ids_to_tokens(ids, skip_special_tokens))
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
