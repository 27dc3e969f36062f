"""The interface for reading models of any file format, and the original BERT's format."""

import abc
import contextlib
import functools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_tf import checkpoints, releases
from bert_tf.base import files
from bert_tf.base.errors import UserError, warn
from bert_tf.checkpoints.formats.configs import WORD_EMBEDDINGS
from bert_tf.checkpoints.run_folder import CONFIG, VOCAB, RunFolder
from bert_tf.checkpoints.tensors import open_reader
from bert_tf.config import BertConfig
from bert_tf.options import registry

if TYPE_CHECKING:  # imports Keras
    from bert_tf.modeling import HeadFormat

# Settings of a tokenizer in transformers.
TOKENIZER_CONFIG = "tokenizer_config.json"
# How ports of the original to TensorFlow 2 name its LayerNorm.
_NORM = re.compile(r"layer_normalization(_\d+)?(?=/)")


class Source(abc.ABC):
    """A model in some file format; its variables have the names of the original BERT.

    By default, `folder` contains configuration, vocabulary and labels under their usual names:
    `bert_config.json`, `vocab.txt` and `labels.txt`.

    Attributes:
        kind: `original`, `hugging_face`, `keras`, `model_garden` or `saved_model`.
        path: path of the model; for an archive, the path of the unpacked model.
        config_file: path of the configuration, in the source's format; None if missing.
        vocab_file: path of the vocabulary; None if missing.
        do_lower_case: whether texts must be lower-cased; None if unknown.
        tokenizer_settings: options of the tokenizer that the model needs, by name.
        run: folder with the `run.json` of the training run whose weights it has; None if unknown.
        other_head: name of the class in transformers if its head cannot be read; otherwise "".
        unknown: names of tensors in the file that are not part of BERT.
        notes: messages to show to the user.
    """

    kind = ""

    def __init__(self, path: str, folder: str) -> None:
        self.path = path
        self.config_file = RunFolder(folder).find(CONFIG)
        self.vocab_file = RunFolder(folder).find(VOCAB)
        self._model_class: Any = None  # class of the model, or `module:name`
        self._labels_folder = folder
        self.do_lower_case: bool | None = None
        self.run: RunFolder | None = None
        self.tokenizer_settings: dict[str, str] = {}
        self.other_head = ""
        self.unknown: list[str] = []
        self.notes: list[str] = []
        if settings_file := RunFolder(folder).find(TOKENIZER_CONFIG):
            self._follow_tokenizer(files.read_json(settings_file), settings_file)

    def _follow_tokenizer(
        self, settings: Mapping[str, Any], path: str, lower_case: object = None
    ) -> None:
        """Sets `strip_accents`, if it does not follow `do_lower_case`; notes what we cannot do."""
        accents = settings.get("strip_accents")
        if isinstance(accents, bool) and accents != settings.get("do_lower_case", lower_case):
            self.tokenizer_settings["strip_accents"] = str(accents).lower()
        if settings.get("tokenize_chinese_chars") is False:
            problem = "tokenize_chinese_chars is false, but each Chinese character becomes a word"
            self.notes.append(f"{path}: {problem}")
        if (kind := settings.get("word_tokenizer_type")) not in (None, "basic"):
            self.notes.append(f"{path}: the model needs the words of {kind}, see --pretokenized")

    def read_run(self, folder: str) -> None:
        """Sets model and casing from the `run.json` of a bert_tf training run."""
        self.run = run = RunFolder(folder)
        script = registry.entries().get(run.entry("script") or "")
        self._model_class = script and script.model
        self.tokenizer_settings |= tokenizer_settings(run)
        if self.do_lower_case is None:
            self.do_lower_case = run.entry("flags", "do_lower_case", kind=bool)

    def log_notes(self) -> None:
        """Logs the notes as warnings."""
        for note in self.notes:
            warn(note)

    @property
    def model(self) -> Any:
        """Class of the model, if metadata declare it; otherwise None."""
        # Imported on first use, because it imports Keras.
        return registry.load(self._model_class)

    @functools.cached_property
    def head(self) -> "HeadFormat | None":
        """Format of the model's head, if metadata declare it; otherwise None."""
        return getattr(self.model, "head_format", None)

    @functools.cached_property
    def labels(self) -> list[str] | None:
        """Labels of the head's outputs; None if unknown."""
        if self.head and self.head.outputs == "one":
            return None  # Labels of a single output name the texts of a row.
        # Ignore errors: an unrelated labels.txt must not make the model unreadable.
        with contextlib.suppress(UserError):
            return RunFolder(self._labels_folder).labels()
        return None

    def config(self) -> BertConfig | None:
        """Returns the configuration; None if it is missing."""
        return BertConfig.from_json_file(self.config_file) if self.config_file else None

    @abc.abstractmethod
    def variables(self) -> dict[str, tuple[list[int], str]]:
        """Returns the shapes and stored dtypes of all variables by name."""

    def shapes(self) -> dict[str, list[int]]:
        """Returns the shapes of all variables by name."""
        return {name: shape for name, (shape, _) in self.variables().items()}

    @abc.abstractmethod
    def read(self, names: Iterable[str]) -> Iterator[tuple[str, np.ndarray]]:
        """Yields the names and values of variables, one at a time."""

    def require_same_outputs(self, config: BertConfig) -> None:
        """Raises a UserError if a SavedModel's outputs differ from a `BertModel`'s."""
        return  # Other sources cannot be run.


class OriginalSource(Source):
    """A name-based checkpoint; its Adam slots and training step, if any, count as variables.

    `folder` has the other files of the model, by default that of the checkpoint.
    """

    kind = "original"

    def __init__(self, prefix: str, folder: str | None = None, shown: str = "") -> None:
        folder = folder or os.path.dirname(prefix) or "."
        super().__init__(prefix, folder)
        self.read_run(folder)
        with contextlib.suppress(UserError):  # Reading the weights reports damage.
            self.notes += RunFolder(folder).progress_notes(prefix, shown or prefix)
        release = releases.named(os.path.dirname(os.path.abspath(prefix)))
        if self.do_lower_case is None and release:
            self.do_lower_case = not release.cased

    def variables(self) -> dict[str, tuple[list[int], str]]:
        """Returns the shapes and stored dtypes of all variables, including Adam slots and step."""
        shapes, names = checkpoints.shapes(self.path), self._names
        dtypes = open_reader(self.path).get_variable_to_dtype_map()
        return {name: (shapes[stored], dtypes[stored].name) for name, stored in names.items()}

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, np.ndarray]]:
        """Yields the names and values of variables, one at a time, in their stored dtypes."""
        names = {self._names.get(name, name): name for name in names}
        for stored, value in checkpoints.read(self.path, names):
            yield names[stored], value

    @functools.cached_property
    def _names(self) -> dict[str, str]:
        """Maps variables to stored names, which may have a scope before that of the original."""
        stored = sorted(checkpoints.shapes(self.path))
        words = [n for n in stored if f"/{n}".endswith(f"/{WORD_EMBEDDINGS}")]
        scope = words[0].removesuffix(WORD_EMBEDDINGS) if len(words) == 1 else ""
        # A name that is stored as it is comes last, and counts.
        names = {_NORM.sub("LayerNorm", name.removeprefix(scope)): name for name in stored}
        return names | {name: name for name in stored if name in names}


def tokenizer_settings(run: RunFolder) -> dict[str, str]:
    """Returns the tokenizer options of a training run or an export that have no default value."""
    settings = {name: run.entry("flags", name) for name in ("strip_accents", "special_tokens")}
    return {name: value for name, value in settings.items() if value not in (None, "", "auto")}
