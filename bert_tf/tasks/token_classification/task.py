"""Token classification such as named entity recognition: the task of `run_ner.py`.

The first word piece of each word predicts its label (section 5.3 of the paper). Shapes: B rows, S
max_seq_length, L labels, W words of a file.
"""

import functools
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf import backend, files
from bert_tf.checkpoints.run_folder import RunFolder
from bert_tf.config import BertConfig
from bert_tf.data import array_ops
from bert_tf.data.features import Feature
from bert_tf.errors import UserError, counted
from bert_tf.extras import import_extra
from bert_tf.finetuning import run_checks
from bert_tf.finetuning.prediction import warn_about_empty_texts
from bert_tf.finetuning.task import LOSS, Metric, Schema, Task, Traits, Written
from bert_tf.progress import log
from bert_tf.tasks.token_classification import conll
from bert_tf.tasks.token_classification.options import NerOptions
from bert_tf.tasks.token_classification.sentences import NO_LABEL, Sentences, check_sentences
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

Scores = Mapping[str, Mapping[str, float]]


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

    def __init__(self, options: NerOptions, config: BertConfig, tokenizer: FullTokenizer) -> None:
        self.options = options
        self.config = config
        self.tokenizer = BatchTokenizer(tokenizer)
        self.traits = Traits(
            monitors=(Metric("f1"), Metric("precision"), Metric("recall"), LOSS),
            soft_targets=(("logits", "tokens"),),
            inputs_are_independent=not options.doc_context,
        )
        self._read_file = functools.cache(self._read_file)

    def infer_schema(self, source: str | RunFolder) -> Schema:
        """Lists the labels in the training file, or takes them from the folder of a model."""
        if source != "train":
            folder = source if isinstance(source, RunFolder) else RunFolder.used_by(self.options)
            return Schema(tuple(folder.require_labels(conll.is_label)))
        file = self._read_file("train")
        names = set(conll.to_bio(file.labels or [], file.sentence_starts)) - {conll.OUTSIDE}
        if not names:
            problem = f"{file.path}: all labels are O; nothing to learn"
            raise UserError(f"{problem}. Check --label_column")
        return Schema((conll.OUTSIDE, *sorted(names)), source=file.path)

    def features(self, split: str) -> tuple[Feature, ...]:
        """Declares the inputs and, unless predicting, the labels of the positions.

        `label_mask` selects the first pieces of words whose label the model knows.
        """
        inputs, length = super().features("predict"), self.options.max_seq_length
        names = () if split == "predict" else ("label_ids", "label_mask")
        return (*inputs, *(Feature(name, length, per_token=True) for name in names))

    def read(self, split: str) -> Sentences:
        """Reads the sentences of a split; there is at least one."""
        if split == "eval":
            import_extra("seqeval.metrics", "ner")  # Fails now instead of after training.
        file = self._read_file(split)
        examples = self._make_sentences(file)
        sizes = counted(len(examples), "sentence"), counted(len(file.words), "word")
        log.info("%s: %s, %s, %s", file.path, *sizes, counted(len(examples.windows), "window"))
        return examples

    def check(
        self, split: str, examples: Sentences, train_examples: Sequence[Any]
    ) -> Iterator[str]:
        """Yields what looks wrong in words and labels."""
        path = examples.file.path
        if split == "train":
            yield from run_checks.check_similar_labels(self.schema.labels, path)
        yield from self.tokenizer.check_texts(path, [words for words, _ in examples])
        yield from check_sentences(examples, self.options.doc_context)

    def _read_file(self, split: str) -> conll.ConllFile:
        options = self.options
        paths = [os.path.join(options.data_dir or "", name) for name in _FILE_NAMES[split]]
        path = next(filter(files.exists, paths), paths[0])
        if split == "predict" and options.predict_file:
            path = options.predict_file
        columns = options.token_column, options.label_column
        file = conll.read_conll(path, *columns, need_labels=split != "predict")
        for kind, affixes in (("prefix", options.word_prefix), ("suffix", options.word_suffix)):
            if affixes:
                file.words = conll.remove_affixes(path, file.words, kind, affixes)
        return file

    def _make_sentences(self, file: conll.ConllFile) -> Sentences:
        documents = file.document_starts if self.options.doc_context else None
        length, starts = self.options.max_seq_length, file.sentence_starts
        windows = WordWindows(file.words, starts, self.tokenizer, length, documents)
        labels = conll.to_bio(file.labels or [], starts)
        id_of_label = {label: label_id for label_id, label in enumerate(self.schema.labels)}
        label_ids = np.array([id_of_label.get(label, NO_LABEL) for label in labels], np.int32)
        return Sentences(file, windows, label_ids, range(len(starts) - 1))

    def featurize(self, examples: Sentences, split: str) -> Mapping[str, np.ndarray]:
        """Converts each window of the sentences to a row."""
        windows, (first, stop) = examples.windows, examples.window_range
        inputs = windows.inputs(first, stop)
        if split == "predict":
            return inputs
        label_ids = np.full_like(inputs["input_ids"], NO_LABEL)
        words = slice(windows.first_word[first], windows.first_word[stop])
        label_ids[windows.word_positions(first, stop)] = examples.label_ids[words]
        mask = label_ids != NO_LABEL
        return inputs | {"label_ids": np.where(mask, label_ids, 0), "label_mask": mask.astype(int)}

    def identity(self, examples: Sentences) -> Iterator[tuple[Any, Sequence[str]]]:
        """Returns the sentences with their words.

        If documents determine the context, their starts follow, without words.
        """
        yield from (((words, labels), words) for words, labels in examples)
        if self.options.doc_context:
            yield examples.file.document_starts, ()

    def epoch_size(self, examples: Sentences) -> int:
        """Returns the number of windows."""
        return len(examples.windows)

    def build_model(self, **kwargs: Any) -> Any:
        """Builds an encoder with a classifier for each token."""
        from bert_tf.modeling import BertTokenClassifier

        return BertTokenClassifier(self.config, len(self.schema.labels), **kwargs)

    def loss(self, outputs: Mapping[str, Any], batch: Mapping[str, Any], training: bool) -> Any:
        """Computes the mean cross entropy over the labels of each row; 0 if a row has no labels."""
        from bert_tf.modeling.losses import cross_entropy

        ops = array_ops.namespace(batch["label_mask"])
        mask = array_ops.cast(batch["label_mask"], "float32")  # [B, S]
        losses = cross_entropy(outputs["logits"], batch["label_ids"])  # [B, S]
        return ops.sum(mask * losses, axis=1) / ops.maximum(ops.sum(mask, axis=1), 1.0)

    def fetch(
        self, outputs: Mapping[str, Any], batch: Mapping[str, Any], serving: bool = False
    ) -> Mapping[str, Any]:
        """Selects the id of the most probable label of each word piece, int32 [B, S].

        An exported model returns the labels, their probabilities, and `input_ids`; the outputs of
        a word are at its first piece.
        """
        if serving:
            tf, probabilities = backend.tf, outputs["probabilities"]  # [B, S, L]
            labels = tf.gather(tf.constant(self.schema.labels), tf.argmax(probabilities, axis=-1))
            input_ids = batch["input_ids"]
            return {"probabilities": probabilities, "input_ids": input_ids, "labels": labels}
        label_ids = array_ops.argmax(outputs["logits"])
        # Batches may be trimmed to their longest row, but all results need the same shape.
        return {"label_ids": array_ops.pad_rows(label_ids, self.options.max_seq_length)}

    def decode(
        self, examples: Sentences, outputs: Mapping[str, np.ndarray]
    ) -> Sequence[LabeledWords]:
        """Takes the label of each word from the window that gives the word the most context."""
        positions = examples.windows.word_positions(*examples.window_range)
        label_ids: list[int] = outputs["label_ids"][positions].tolist()
        labels = (self.schema.labels[label_id] for label_id in label_ids)
        return [
            LabeledWords(words, list(itertools.islice(labels, len(words)))) for words, _ in examples
        ]

    def metrics(self, examples: Sentences, predictions: Sequence[LabeledWords]) -> dict[str, Any]:
        """Computes `precision`, `recall` and `f1` of entities."""
        scores = _score(examples, predictions)
        _log_scores(scores, examples.file.path)
        return {name: scores[""][name] for name in ("precision", "recall", "f1")}

    def write(
        self, split: str, examples: Sentences, predictions: Sequence[LabeledWords], folder: str
    ) -> Written:
        """Reports the metrics of each entity type, or writes the test file with predicted labels.

        The metrics are under the key `entities`; the file is `label_test.txt`.
        """
        if split == "eval":
            scores = _score(examples, predictions)
            by_type = {name: values for name, values in scores.items() if name}
            return Written(entries={"entities": by_type})
        if self.options.do_eval and examples.file.labels:
            _log_scores(_score(examples, predictions), examples.file.path)
        labels = [label for sentence in predictions for label in sentence.labels]
        content = examples.file.with_predictions(labels)
        return Written(files.write_texts(folder, {LABEL_TEST: content}))

    def _split_words(self, text: str) -> list[str]:
        basic = self.tokenizer.reference.basic_tokenizer
        parts = enumerate(basic.split(text))
        split = str.split if basic.pretokenized else split_words
        return [word for i, part in parts for word in ([part] if i % 2 else split(part))]

    def from_inputs(self, inputs: Sequence[Any]) -> Sentences:
        """Converts strings, which are split into words, or tuples of words.

        With `doc_context`, the inputs are the sentences of one document, in order.
        """
        file, has_spaces = conll.ConllFile(""), False
        for index, item in enumerate(inputs):
            words = self._split_words(item) if isinstance(item, str) else item
            if not isinstance(words, list | tuple) or not all(isinstance(x, str) for x in words):
                expected = f"Input {index}: expected a string, or a tuple of words"
                raise UserError(f"{expected}. Received: {repr(item)[:100]}")
            file.words += words
            has_spaces |= any(" " in word.strip() for word in words)
            # An input without words is an empty sentence.
            file.sentence_starts.append(len(file.words))
        file.document_starts.append(len(file.words))
        warn_about_empty_texts(inputs)
        is_short = 1 < len(inputs) <= len(file.words) < 1.5 * len(inputs)
        if has_spaces or (is_short and all(isinstance(item, str) for item in inputs)):
            advice = "pass a text as a string, or as a tuple of its words; several texts as a list"
            problem = "A word has spaces" if has_spaces else "Most inputs are single words"
            log.warning("%s: %s", problem, advice)
        return self._make_sentences(file)


def _score(examples: Sentences, predictions: Sequence[LabeledWords]) -> Scores:
    gold = [labels for _, labels in examples]
    return conll.entity_scores(gold, [sentence.labels for sentence in predictions])


def _log_scores(scores: Scores, path: str) -> None:
    width = max(map(len, ("entity", *scores)))
    lines = [f"{'entity':{width}}  precision  recall      f1  support"]
    for name, values in scores.items():
        ratios = f"{values['precision']:9.4f}  {values['recall']:6.4f}  {values['f1']:6.4f}"
        lines.append(f"{name or 'all':{width}}  {ratios}  {int(values['support']):7}")
    log.info("%s\n%s", path, "\n".join(lines))
