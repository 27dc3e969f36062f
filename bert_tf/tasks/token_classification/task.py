"""Token classification such as named entity recognition: the task of `run_ner.py`.

The first word piece of each word predicts its label (section 5.3 of the paper). Shapes: B rows, S
max_seq_length, L labels, W words of a file.
"""

import functools
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf import lint
from bert_tf.base import backend, files
from bert_tf.base.errors import Input, Place, UserError, counted, note, warn
from bert_tf.base.extras import import_extra
from bert_tf.checkpoints.run_folder import RunFolder
from bert_tf.config import BertConfig
from bert_tf.data import array_ops
from bert_tf.data.features import Feature
from bert_tf.data.split_files import find_files, no_file
from bert_tf.finetuning.prediction import TABLE_ADVICE, warn_about_empty_texts
from bert_tf.finetuning.task import LOSS, Metric, Schema, Task, Traits, Written
from bert_tf.report.evaluation import EvaluationReport
from bert_tf.tasks.token_classification import conll, json_layouts, scores, sentences
from bert_tf.tasks.token_classification.entities import LabeledWords
from bert_tf.tasks.token_classification.options import NerOptions
from bert_tf.tasks.token_classification.schemes import AUTO, ENTITIES, PLAIN, is_label
from bert_tf.tasks.token_classification.sentences import NO_LABEL, ConllFile, Sentences
from bert_tf.tasks.token_classification.windows import WordWindows, split_words
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.fast import BatchTokenizer

LABEL_TEST = "label_test.txt"
ENTITIES_TEST = "entities_test.jsonl"
# Begins the name of the test file with predicted labels.
PREDICTED = "predicted_"
# The entry of `run.json` that says which kind of labels a model has.
_SCHEME = "label_scheme"
# Names of each split's file that are preferred to those of `find_files`; the last one is its name
# in the CoNLL-2003 shared task.
_FILE_NAMES = {
    "train": ("train.txt", "eng.train"),
    "eval": ("dev.txt", "valid.txt", "eng.testa"),
    "predict": ("test.txt", "eng.testb"),
}
_EXTENSIONS = ("", ".conll", ".conllu", ".conllup", ".cupt")
_EXTENSIONS += (".bio", ".iob", ".iob2", ".bioes", ".bmes")


class TokenClassification(Task):
    """Classifies the words of CoNLL files; an example is a sentence, and fills one or more rows.

    Labels come from the training file or, without training, from the checkpoint's label map.
    """

    options: NerOptions

    def __init__(self, options: NerOptions, config: BertConfig, tokenizer: FullTokenizer) -> None:
        self.options = options
        self.config = config
        self.tokenizer = BatchTokenizer(tokenizer)
        self._read_file = functools.cache(self._read_file)

    @property
    def traits(self) -> Traits:  # type: ignore[override]
        """The metrics of entities, or of plain labels."""
        names = ("accuracy",) if self._is_plain else ("f1", "precision", "recall")
        return Traits(
            monitors=(*map(Metric, names), LOSS),
            soft_targets=(("logits", "tokens"),),
            inputs_are_independent=not self.options.doc_context,
        )

    @property
    def _is_plain(self) -> bool:
        return self.schema.entries.get(_SCHEME) == PLAIN

    def infer_schema(self, source: str | RunFolder) -> Schema:
        """Lists the labels in the training file, or takes them from the folder of a model."""
        wanted = self.options.label_scheme
        if source != "train":
            folder = source if isinstance(source, RunFolder) else RunFolder.used_by(self.options)
            # Folders of version 1.0 do not say it: all labels were those of entities.
            scheme = folder.entry(_SCHEME) or (PLAIN if wanted == PLAIN else ENTITIES)
            if wanted not in (AUTO, scheme):
                problem = f"was trained with --label_scheme={scheme}, not {wanted}"
                raise UserError(problem, at=str(folder))
            is_valid = str.strip if scheme == PLAIN else is_label
            advice = ". For labels that are not those of entities, also pass --label_scheme=plain"
            labels = folder.require_labels(is_valid, "" if scheme == PLAIN else advice)
            return Schema(tuple(labels), entries={_SCHEME: scheme})
        file = self._read_file("train")
        labels = sentences.labels_to_learn(file, self.options.labels or "")
        entries = {_SCHEME: PLAIN if file.scheme == PLAIN else ENTITIES}
        return Schema(tuple(labels), entries=entries, source=file.path)

    def features(self, split: str) -> tuple[Feature, ...]:
        """Declares the inputs and, unless predicting, the labels of the positions.

        `label_mask` selects the first pieces of words whose label the model knows.
        """
        inputs, length = super().features("predict"), self.options.max_seq_length
        names = () if split == "predict" else ("label_ids", "label_mask")
        return (*inputs, *(Feature(name, length, per_token=True) for name in names))

    def read(self, split: str) -> Sentences:
        """Reads the sentences of a split; there is at least one."""
        if split == "eval" and not self._is_plain:
            import_extra("seqeval.metrics", "ner")  # Fails now instead of after training.
        file = self._read_file(split)
        examples = self._make_sentences(file)
        sizes = counted(len(examples), "sentence"), counted(len(file.words), "word")
        note(", ".join(sizes), at=file.path)
        if names := sentences.describe_labels(file):
            note(names, at=file.path)
        return examples

    def check(
        self, split: str, examples: Sentences, train_examples: Sequence[Any]
    ) -> Iterator[str]:
        """Yields what looks wrong in words and labels."""
        path, labels = examples.file.path, self.schema.labels
        if split == "train":
            yield from lint.at(path, lint.label_names(labels))
        texts = [words for words, _ in examples]
        yield from self.tokenizer.check_texts(path, texts, are_words=True)
        yield from examples.file.problems
        found = sentences.check_sentences(examples, labels, self.options.doc_context)
        yield from lint.at(path, found)

    def _read_file(self, split: str) -> ConllFile:
        options, path = self.options, self._find_file(split)
        file = conll.read_conll(
            path,
            options.token_column,
            options.label_column,
            need_labels=split != "predict",
            label_scheme=self.schema.entries.get(_SCHEME, options.label_scheme),
            split=self._split_words,
            known_labels=self.schema.labels,
        )
        for kind, affixes in (("prefix", options.word_prefix), ("suffix", options.word_suffix)):
            if affixes:
                file.words = sentences.remove_affixes(path, file.words, kind, affixes)
        return file

    def _find_file(self, split: str) -> str:
        data_dir, is_named = self.options.data_dir or "", getattr(self.options, f"{split}_file")
        paths = [os.path.join(data_dir, name) for name in _FILE_NAMES[split]]
        if not is_named and (path := next(filter(files.exists, paths), None)):
            return path
        can_be_found = is_named or files.is_dir(data_dir)
        found = find_files(self.options, [split], _EXTENSIONS) if can_be_found else {}
        if split not in found:
            raise no_file(split, data_dir)
        return found[split]

    def _make_sentences(self, file: ConllFile) -> Sentences:
        documents = file.document_starts if self.options.doc_context else None
        length, starts = self.options.max_seq_length, file.sentence_starts
        windows = WordWindows(file.words, starts, self.tokenizer, length, documents)
        id_of_label = {label: label_id for label_id, label in enumerate(self.schema.labels)}
        label_ids = np.array([id_of_label.get(label, NO_LABEL) for label in file.targets], np.int32)
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
        """Selects the id and the probability of each word piece's most probable label, [B, S].

        An exported model returns the labels, their probabilities, and `input_ids`; the outputs of
        a word are at its first piece.
        """
        if serving:
            tf, probabilities = backend.tf, outputs["probabilities"]  # [B, S, L]
            labels = tf.gather(tf.constant(self.schema.labels), tf.argmax(probabilities, axis=-1))
            input_ids = batch["input_ids"]
            return {"probabilities": probabilities, "input_ids": input_ids, "labels": labels}
        logits, length = outputs["logits"], self.options.max_seq_length
        ops, label_ids = array_ops.namespace(logits), array_ops.argmax(logits)
        highest = ops.max(array_ops.softmax(array_ops.cast(logits, "float32")), axis=-1)
        # Batches may be trimmed to their longest row, but all results need the same shape.
        selected = {"label_ids": label_ids, "label_probabilities": highest}
        return {name: array_ops.pad_rows(x, length) for name, x in selected.items()}

    def decode(
        self, examples: Sentences, outputs: Mapping[str, np.ndarray]
    ) -> Sequence[LabeledWords]:
        """Takes the label of each word from the window that gives the word the most context."""
        positions = examples.windows.word_positions(*examples.window_range)
        label_ids: list[int] = outputs["label_ids"][positions].tolist()
        labels = [self.schema.labels[label_id] for label_id in label_ids]
        probabilities = outputs.get("label_probabilities", outputs["label_ids"])[positions].tolist()
        predictions, start = [], 0
        for index, (words, _) in zip(examples.indices, examples, strict=True):
            part = slice(start, start := start + len(words))
            prediction = LabeledWords(list(words), labels[part])
            prediction.text = examples.file.texts[index] if examples.file.texts else None
            prediction.probabilities, prediction.is_plain = probabilities[part], self._is_plain
            predictions.append(prediction)
        return predictions

    def metrics(self, examples: Sentences, predictions: Sequence[LabeledWords]) -> dict[str, Any]:
        """Computes `precision`, `recall` and `f1` of entities, or `accuracy` of plain labels."""
        return self._score(examples, predictions)[0]

    def write(
        self, split: str, examples: Sentences, predictions: Sequence[LabeledWords], folder: str
    ) -> Written:
        """Reports the metrics of each entity type and label, or writes the labeled test file.

        The metrics are under the keys `entities` (not for plain labels) and `words`. The files are
        `label_test.txt`; with the entities of each sentence, `entities_test.jsonl`; and, if its
        layout has labels, the test file with those that are predicted, `predicted_NAME`.
        """
        if split == "eval":
            return Written(entries=self._score(examples, predictions, log_them=False)[1])
        if self.options.do_eval and examples.file.labels:
            self._score(examples, predictions)
        file, name = examples.file, os.path.basename(examples.file.path).removesuffix(".gz")
        labels = [label for sentence in predictions for label in sentence.labels]
        contents = {LABEL_TEST: file.with_predictions(labels)}
        if not self._is_plain:
            contents[ENTITIES_TEST] = "".join(sentence.to_json() for sentence in predictions)
        if file.rows:
            contents[PREDICTED + name] = conll.with_labels(file, labels)
        elif file.objects and not (self._is_plain and any(file.texts)):
            contents[PREDICTED + name] = json_layouts.with_labels(file, predictions)
        return Written(files.write_texts(folder, contents))

    def evaluation_report(
        self, examples: Sentences, predictions: Sequence[LabeledWords], losses: np.ndarray | None
    ) -> EvaluationReport:
        """Compares entities, or else labels."""
        return scores.make_report(examples, predictions, losses)

    def _score(
        self, examples: Sentences, predictions: Sequence[LabeledWords], log_them: bool = True
    ) -> tuple[dict[str, float], dict[str, Any]]:
        file, predicted = examples.file, [sentence.labels for sentence in predictions]
        starts = itertools.pairwise(file.sentence_starts)
        gold = [file.targets[first:stop] for first, stop in starts]
        metrics, entries, table = scores.score(gold, predicted, self._is_plain)
        if log_them:
            title = f"{Place(file.path)}: accuracy {entries['words']['accuracy']:.4f}"
            scores.log_scores(table, title, "label" if self._is_plain else "entity")
        return metrics, entries

    def _split_words(self, text: str) -> list[str]:
        basic = self.tokenizer.reference.basic_tokenizer
        split = str.split if basic.pretokenized else split_words
        parts = basic.split(text)
        return [word for part, token in parts for word in ([part] if token else split(part))]

    def from_inputs(self, inputs: Sequence[Any]) -> Sentences:
        """Converts strings, which are split into words, or tuples of words.

        With `doc_context`, the inputs are the sentences of one document, in order.
        """
        file = ConllFile("")
        for index, item in enumerate(inputs):
            words = self._split_words(item) if isinstance(item, str) else item
            if not isinstance(words, list | tuple) or not all(isinstance(x, str) for x in words):
                received = f"{repr(item)[:100]}{TABLE_ADVICE}"
                problem = f"expected a string, or a tuple of words. Received: {received}"
                raise UserError(problem, at=Input(index))
            # For a tuple, the places of entities are those of words.
            file.add_sentence(index, words, text=item if isinstance(item, str) else None)
        warn_about_empty_texts(inputs)
        has_spaces = any(" " in word.strip() for word in file.words)
        is_short = 1 < len(inputs) <= len(file.words) < 1.5 * len(inputs)
        if has_spaces or (is_short and all(isinstance(item, str) for item in inputs)):
            advice = "pass a text as a string, or as a tuple of its words; several texts as a list"
            problem = "A word has spaces" if has_spaces else "Most inputs are single words"
            warn(f"{problem}: {advice}")
        return self._make_sentences(file)
