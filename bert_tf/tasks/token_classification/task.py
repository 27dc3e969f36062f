"""Token classification such as named entity recognition: the task of `run_ner.py`.

The first word piece of each word predicts its label (section 5.3 of the paper). Shapes: B rows, S
max_seq_length, L labels, W words of a file.
"""

import functools
import itertools
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from bert_tf import backend, files
from bert_tf.checkpoints.run_folder import RunFolder
from bert_tf.config import BertConfig
from bert_tf.data import array_ops
from bert_tf.data.cell_values import counted
from bert_tf.data.feature_specs import Feature
from bert_tf.errors import UserError
from bert_tf.extras import import_extra
from bert_tf.finetuning import run_checks
from bert_tf.finetuning.task import Task
from bert_tf.progress import log
from bert_tf.tasks.token_classification import conll
from bert_tf.tasks.token_classification.ner_metrics import entity_scores
from bert_tf.tasks.token_classification.options import NerOptions
from bert_tf.tasks.token_classification.windows import WordWindows, split_words
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.fast import BatchTokenizer

LABEL_TEST = "label_test.txt"

# Possible file names of each split; the last one is its name in the CoNLL-2003 shared task.
_FILE_NAMES = {
    "train": ("train.txt", "eng.train"),
    "eval": ("dev.txt", "valid.txt", "eng.testa"),
    "predict": ("test.txt", "eng.testb"),
}

# Label id of positions without a label, and of words whose label the model does not know.
_NO_LABEL = -1

Scores = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, eq=False)
class Sentences(Sequence[Any]):
    """Sentences of a file, as pairs (words, labels or [] if there are none). Slices are views."""

    file: conll.ConllFile
    # Windows of all sentences of the file.
    windows: WordWindows
    # Label ids of all words of the file, int32 [W], some `_NO_LABEL`; [0] if it has no labels.
    label_ids: np.ndarray
    # Indices, among all sentences of the file, of the sentences in this object.
    indices: range

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: Any) -> Any:
        indices = self.indices[index]
        if isinstance(indices, range):
            return replace(self, indices=indices)
        words = slice(*self.file.sentence_starts[indices : indices + 2])
        return self.file.words[words], (self.file.labels or [])[words]

    @property
    def window_range(self) -> tuple[int, int]:
        """Index of the first window of these sentences, and the index after their last window."""
        first_window = self.windows.first_window
        return int(first_window[self.indices.start]), int(first_window[self.indices.stop])


class LabeledWords(NamedTuple):
    """Words of a text, with a label for each."""

    words: list[str]
    labels: list[str]

    @property
    def entities(self) -> list[tuple[str, str]]:
        """Type and text of each entity; an `I-` or `E-` that continues no entity begins one."""
        entities: list[tuple[str, list[str]]] = []
        open_type: str | None = None
        for word, label in zip(self.words, self.labels, strict=True):
            prefix, _, entity_type = label.partition("-")
            if prefix in ("I", "E") and open_type == entity_type:
                entities[-1][1].append(word)
            elif label != conll.OUTSIDE:
                entities.append((entity_type, [word]))
            open_type = entity_type if prefix in ("B", "I") else None
        return [(entity_type, " ".join(words)) for entity_type, words in entities]


class TokenClassification(Task):
    """Classifies the words of CoNLL files; an example is a sentence, and fills one or more rows.

    Labels come from the training file or, without training, from the checkpoint's label map.
    """

    options: NerOptions
    labels = None
    is_label = staticmethod(conll.is_label)
    metric_names = ("f1", "precision", "recall", "loss")
    soft_targets = (("logits", "tokens"),)

    def __init__(self, options: NerOptions, config: BertConfig, tokenizer: FullTokenizer) -> None:
        self.options = options
        self.config = config
        self.tokenizer = BatchTokenizer(tokenizer)
        # `label_mask` selects the first pieces of words whose label the model knows.
        self.targets = tuple(
            Feature(name, options.max_seq_length, per_token=True)
            for name in ("label_ids", "label_mask")
        )
        self._read_file = functools.cache(self._read_file)

    def find_labels(self, split: str) -> tuple[list[str], str]:
        """Lists the labels in the training file."""
        if split != "train":
            return RunFolder.used_by(self.options).require_labels(self.is_label), "the model"
        file = self._read_file("train")
        labels = conll.label_list(conll.to_bio(file.labels or [], file.sentence_starts))
        if labels == [conll.OUTSIDE]:
            problem = f"{file.path}: all labels are O; nothing to learn"
            raise UserError(f"{problem}. Check --label_column")
        run_checks.warn_about_similar(labels, file.path)
        return labels, file.path

    def read(self, split: str) -> Sentences:
        """Reads the sentences of a split; there is at least one."""
        if split == "eval":
            import_extra("seqeval.metrics", "ner")  # Fails now instead of after training.
        file = self._read_file(split)
        examples = self._make_sentences(file)
        self.tokenizer.warn_about_texts(file.path, self.texts(examples))
        num_sentences, num_windows = len(examples), len(examples.windows)
        sizes = counted(num_sentences, "sentence"), counted(len(file.words), "word")
        log.info("%s: %s, %s, %s", file.path, *sizes, counted(num_windows, "window"))
        numbers = [word for word in file.words if word.isdecimal()]
        if len(numbers) > len(file.words) / 2:
            message = "%s: %d of %d words are numbers, such as %s. Check --token_column"
            log.warning(message, file.path, len(numbers), len(file.words), numbers[0])
        separated = [word for word in file.words if len(word) > 1 and re.search("[,;]", word)]
        if file.labels is None and len(separated) > len(file.words) / 2:
            message = "%s: most lines have commas or semicolons, such as %s. Separate columns with "
            log.warning(f"{message}spaces or tabs", file.path, separated[0])
        quoted = [word for word in file.words if re.fullmatch('".*"".*"', word)]
        if quoted:
            message = "%s: %d words are in CSV quotes, such as %s. Write the file without quoting"
            log.warning(message, file.path, len(quoted), quoted[0])
        if num_sentences == 1 and num_windows > 1:
            log.warning("%s: no blank lines; reading all words as one sentence", file.path)
        if self.options.doc_context and not file.docstart_lines:
            message = "--doc_context: %s has no %s line; reading it as one document"
            log.warning(message, file.path, conll.DOCUMENT)
        return examples

    def texts(self, examples: Sentences) -> list[list[str]]:
        """Returns the words of each sentence."""
        return [words for words, _ in examples]

    def _read_file(self, split: str) -> conll.ConllFile:
        options = self.options
        paths = [os.path.join(options.data_dir or "", name) for name in _FILE_NAMES[split]]
        path = next(filter(files.exists, paths), None)
        if split == "predict" and options.predict_file:
            path = options.predict_file
        if path is None:
            reason = files.describe_absence(paths[0])
            raise UserError(f"No such file: {paths[0]} or {_FILE_NAMES[split][-1]} ({reason})")
        columns = options.token_column, options.label_column
        return conll.read_conll(path, *columns, need_labels=split != "predict")

    def _make_sentences(self, file: conll.ConllFile) -> Sentences:
        documents = file.document_starts if self.options.doc_context else None
        length, starts = self.options.max_seq_length, file.sentence_starts
        windows = WordWindows(file.words, starts, self.tokenizer, length, documents)
        labels = conll.to_bio(file.labels or [], starts)
        id_of_label = {label: label_id for label_id, label in enumerate(self.labels)}
        label_ids = np.array([id_of_label.get(label, _NO_LABEL) for label in labels], np.int32)
        unknown = np.flatnonzero(label_ids == _NO_LABEL)
        if len(unknown):
            place = f"{file.path}:{file.line_numbers[unknown[0]]}"
            names = ", ".join(sorted({labels[index] for index in unknown}))
            message = "%s: label %s is not in the training data, so it counts as wrong (%s: %s)"
            words = counted(len(unknown), "such word")
            log.warning(message, place, labels[unknown[0]], words, names)
        return Sentences(file, windows, label_ids, range(len(starts) - 1))

    def featurize(self, examples: Sentences, split: str) -> Mapping[str, np.ndarray]:
        """Converts each window of the sentences to a row."""
        windows, (first, stop) = examples.windows, examples.window_range
        inputs = windows.inputs(first, stop)
        if split == "predict":
            return inputs
        label_ids = np.full_like(inputs["input_ids"], _NO_LABEL)
        words = slice(windows.first_word[first], windows.first_word[stop])
        label_ids[windows.word_positions(first, stop)] = examples.label_ids[words]
        mask = label_ids != _NO_LABEL
        return inputs | {"label_ids": np.where(mask, label_ids, 0), "label_mask": mask.astype(int)}

    def identity(self, examples: Sentences) -> Sequence[Any]:
        """Returns the sentences, and the starts of documents if these determine the context."""
        return [*examples, examples.file.document_starts] if self.options.doc_context else examples

    def epoch_size(self, examples: Sentences) -> int:
        """Returns the number of windows."""
        return len(examples.windows)

    def build_model(self, **kwargs: Any) -> Any:
        """Builds an encoder with a classifier for each token."""
        from bert_tf.modeling import BertTokenClassifier

        return BertTokenClassifier(self.config, len(self.labels), **kwargs)

    def loss(self, outputs: Mapping[str, Any], batch: Mapping[str, Any], training: bool) -> Any:
        """Computes the mean cross entropy over the labels of each row; 0 if a row has no labels."""
        from bert_tf.modeling.losses import cross_entropy

        ops = array_ops.namespace(batch["label_mask"])
        mask = array_ops.cast(batch["label_mask"], "float32")  # [B, S]
        losses = cross_entropy(outputs["logits"], batch["label_ids"])  # [B, S]
        return ops.sum(mask * losses, axis=1) / ops.maximum(ops.sum(mask, axis=1), 1.0)

    def fetch(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> Mapping[str, Any]:
        """Selects the id of the most probable label of each word piece, int32 [B, S]."""
        label_ids = array_ops.argmax(outputs["logits"])
        # Batches may be trimmed to their longest row, but all results need the same shape.
        return {"label_ids": array_ops.pad_rows(label_ids, self.options.max_seq_length)}

    def serve(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> Mapping[str, Any]:
        """Selects the outputs of each word piece; the outputs of a word are at its first piece."""
        probabilities = outputs["probabilities"]  # [B, S, L]
        tf = backend.tf
        labels = tf.gather(tf.constant(self.labels), tf.argmax(probabilities, axis=-1))
        return {"probabilities": probabilities, "input_ids": batch["input_ids"], "labels": labels}

    def decode(
        self, examples: Sentences, outputs: Mapping[str, np.ndarray]
    ) -> Sequence[LabeledWords]:
        """Takes the label of each word from the window that gives the word the most context."""
        positions = examples.windows.word_positions(*examples.window_range)
        label_ids: list[int] = outputs["label_ids"][positions].tolist()
        labels = (self.labels[label_id] for label_id in label_ids)
        return [
            LabeledWords(words, list(itertools.islice(labels, len(words)))) for words, _ in examples
        ]

    def metrics(self, examples: Sentences, predictions: Sequence[LabeledWords]) -> dict[str, Any]:
        """Computes `precision`, `recall` and `f1` of entities."""
        scores = _score(examples, predictions)
        _log_scores(scores, examples.file.path)
        return {name: scores[""][name] for name in ("precision", "recall", "f1")}

    def report(
        self, examples: Sentences, predictions: Sequence[LabeledWords], output_dir: str
    ) -> tuple[Mapping[str, Any], Sequence[str]]:
        """Returns the metrics of each entity type, under the key `entities`."""
        scores = _score(examples, predictions)
        return {"entities": {name: values for name, values in scores.items() if name}}, ()

    def write_predictions(
        self, examples: Sentences, predictions: Sequence[LabeledWords], output_dir: str
    ) -> Sequence[str]:
        """Writes `label_test.txt`: the lines of the test file with the predicted labels."""
        if self.options.do_eval and examples.file.labels:
            _log_scores(_score(examples, predictions), examples.file.path)
        labels = [label for sentence in predictions for label in sentence.labels]
        return files.write_texts(output_dir, {LABEL_TEST: examples.file.with_predictions(labels)})

    def from_inputs(self, inputs: Sequence[Any]) -> Sentences:
        """Converts strings, which are split into words, or tuples of words.

        With `doc_context`, the inputs are the sentences of one document, in order.
        """
        file, num_spaced = conll.ConllFile(""), 0
        for index, item in enumerate(inputs):
            words = split_words(item) if isinstance(item, str) else item
            if not isinstance(words, list | tuple) or not all(isinstance(x, str) for x in words):
                expected = f"Input {index}: expected a string, or a tuple of words"
                raise UserError(f"{expected}. Received: {repr(item)[:100]}")
            file.words += words
            num_spaced += any(" " in word.strip() for word in words)
            # An input without words is an empty sentence.
            file.sentence_starts.append(len(file.words))
        file.document_starts.append(len(file.words))
        is_short = 1 < len(inputs) <= len(file.words) < 1.5 * len(inputs)
        if is_short and all(isinstance(item, str) for item in inputs):
            log.warning("Most inputs are single words: pass the words of a text as a tuple")
        if num_spaced:
            message = "%d of %d inputs have a word with a space. A tuple has the words of one text"
            message += ": to pass several texts, use a list"
            log.warning(message, num_spaced, len(inputs))
        return self._make_sentences(file)


def _score(examples: Sentences, predictions: Sequence[LabeledWords]) -> Scores:
    gold = [labels for _, labels in examples]
    return entity_scores(gold, [sentence.labels for sentence in predictions])


def _log_scores(scores: Scores, path: str) -> None:
    width = max(map(len, ("entity", *scores)))
    lines = [f"{'entity':{width}}  precision  recall      f1  support"]
    for name, values in scores.items():
        ratios = f"{values['precision']:9.4f}  {values['recall']:6.4f}  {values['f1']:6.4f}"
        lines.append(f"{name or 'all':{width}}  {ratios}  {int(values['support']):7}")
    log.info("%s\n%s", path, "\n".join(lines))
