"""Labels of words, named entities for instance: what `run_ner.py` runs.

Section 5.3 of the paper: the first piece of each word carries its label, and labels are chosen one
by one. N windows, W words, S max_seq_length, L labels.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from bert_tf import files
from bert_tf.config import BertConfig
from bert_tf.data import conll
from bert_tf.data.records import Feature, sequence_features
from bert_tf.data.word_windows import WordWindows, split_words
from bert_tf.errors import UserError
from bert_tf.evaluation.entities import entity_scores, require_seqeval
from bert_tf.modeling import BertTokenClassifier
from bert_tf.modeling.losses import cross_entropy
from bert_tf.options import NerOptions
from bert_tf.progress import log
from bert_tf.tasks import finetune
from bert_tf.tasks import labels as label_file
from bert_tf.tasks.base import Part, Task, parts
from bert_tf.tasks.labeled_sentences import NO_LABEL, LabeledWords, Sentences
from bert_tf.tasks.start import load_config_and_tokenizer, located
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.fast import BatchTokenizer

LABEL_TEST = "label_test.txt"

# Names that files have; the last ones are those of the shared task of 2003.
_FILES = {
    "train": ("train.txt", "eng.train"),
    "eval": ("dev.txt", "valid.txt", "eng.testa"),
    "predict": ("test.txt", "eng.testb"),
}
_SHOWN = 5


class WordLabels(Task):
    """Files of words and labels as a fine-tuning task.

    Args:
        options: folder, columns, and what a row is.
        config: the model.
        tokenizer: fits the model's vocabulary.

    Attributes:
        labels: L of them, in the order of the model's outputs.

    Raises:
        UserError: the labels are not known: the training set cannot be read, or, without a
            training, there is no list of labels beside the checkpoint.
    """

    result_files = (LABEL_TEST,)
    best_metrics = ("f1", "precision", "recall", "loss")

    def __init__(self, options: NerOptions, config: BertConfig, tokenizer: FullTokenizer) -> None:
        self.options = options
        self.config = config
        self.tokenizer = BatchTokenizer(tokenizer)
        # The training set decides the size of the model, so it is read before that is made.
        self._train = self._read_file("train") if options.do_train else None
        if self._train:
            self.labels = _trained_labels(self._train, options)
        else:
            self.labels = label_file.of_checkpoint(options, conll.is_label)

    def features(self, split: str) -> tuple[Feature, ...]:
        """Inputs; and a label for each piece, with `label_mask`: whether that counts."""
        targets = ("label_ids", "label_mask") if split != "predict" else ()
        length = self.options.max_seq_length
        return (
            *sequence_features(length),
            *(Feature(name, length, per_token=True) for name in targets),
        )

    def read_examples(self, split: str) -> Sentences:
        """The sentences of the split's file; there is at least one."""
        file = self._train if split == "train" and self._train else self._read_file(split)
        self.tokenizer.warn_of_unknown(file.path, file.by_sentence(file.words))
        options = self.options
        windows = WordWindows(
            file.words,
            file.sentences,
            self.tokenizer,
            options.max_seq_length,
            file.documents if options.doc_context else None,
        )
        count = len(file.sentences) - 1
        log.info(
            "%s: %d sentences, %d words%s",
            file.path,
            count,
            len(file.words),
            f", {len(windows)} windows" if len(windows) > count else "",
        )
        if count == 1 and len(windows) > 1:
            log.warning("%s: all words are one sentence, because no line is blank", file.path)
        if options.doc_context and not file.marks:
            log.warning(
                "--doc_context: no line of %s is %s, all of it counts as one document",
                file.path,
                conll.DOCUMENT,
            )
        sentences = Sentences(file, windows, *self._known_labels(file))
        self._show(sentences)
        return sentences

    def _read_file(self, split: str) -> conll.ConllFile:
        options = self.options
        folder = options.data_dir or ""
        paths = [os.path.join(folder, name) for name in _FILES[split]]
        found = [path for path in paths if files.exists(path)]
        if not found:
            raise UserError(
                f"No such file: {paths[0]} ({files.describe_absence(paths[0])}). --data_dir has "
                "files of CoNLL, with a word and its label on each line and an empty line after "
                f"each sentence: {', or '.join(_FILES[split])}"
            )
        if len(found) > 1:
            log.warning("%s is read, and not %s", found[0], ", ".join(found[1:]))
        need_labels = split != "predict"
        return conll.read_conll(found[0], options.token_column, options.label_column, need_labels)

    def _known_labels(self, file: conll.ConllFile) -> tuple[list[str] | None, np.ndarray]:
        """The labels of a file, and their numbers."""
        if file.labels is None:
            return None, np.full(len(file.words), NO_LABEL, np.int32)
        labels = conll.to_bio(file.labels, file.sentences)
        ids = {label: number for number, label in enumerate(self.labels)}
        label_ids = np.array([ids.get(label, NO_LABEL) for label in labels], np.int32)
        unknown = np.flatnonzero(label_ids == NO_LABEL)
        if len(unknown):
            log.warning(
                "%s:%d: the training had no label %s. It is never predicted: words with such labels"
                " count as wrong, and not in the loss (%d words: %s)",
                file.path,
                file.lines[unknown[0]],
                labels[unknown[0]],
                len(unknown),
                ", ".join(sorted({labels[word] for word in unknown})),
            )
        return labels, label_ids

    def _show(self, sentences: Sentences) -> None:
        """The first windows, with the labels of their words."""
        windows, reference = sentences.windows, self.tokenizer.reference
        for row in range(min(_SHOWN, len(windows))):
            length = int(windows.length[row]) + 2
            ids = windows.inputs(row, row + 1)["input_ids"][0, :length].tolist()
            first, last = windows.first_word[row : row + 2]
            log.debug(
                "Window %d\n  tokens: %s\n  input_ids: %s\n  labels: %s",
                row,
                " ".join(reference.convert_ids_to_tokens(ids)),
                " ".join(map(str, ids)),
                " ".join(sentences.labels[first:last]) if sentences.labels else "-",
            )

    def identity(self, examples: Sentences) -> Iterator[tuple]:
        """The sentences: words and labels."""
        file = examples.file
        return zip(file.by_sentence(file.words), file.by_sentence(file.labels or []), strict=True)

    def portions(self, examples: Any, split: str) -> Iterator[Part]:
        """Some windows after the other."""
        return parts(examples)

    def to_features(self, examples: Any, split: str) -> dict[str, np.ndarray]:
        """A row for each window."""
        sentences, first, last = examples.rows, examples.first, examples.last
        windows = sentences.windows
        inputs = windows.inputs(first, last)
        if split == "predict":
            return inputs
        label_ids = np.full_like(inputs["input_ids"], NO_LABEL)
        words = slice(windows.first_word[first], windows.first_word[last])
        label_ids[windows.places(first, last)] = sentences.label_ids[words]
        mask = label_ids != NO_LABEL
        return {
            **inputs,
            "label_ids": np.where(mask, label_ids, 0),
            "label_mask": mask.astype(np.int32),
        }

    def build_model(self, **kwargs: Any) -> keras.Model:
        """Encoder, and a label for each piece."""
        return BertTokenClassifier(self.config, len(self.labels), **kwargs)

    def assets(self) -> dict[str, str]:
        """`labels.txt`: a line for each label, in the order of the model's outputs."""
        return label_file.contents(self.labels)

    def loss(self, outputs: Any, batch: Mapping[str, Any]) -> Any:
        """Mean cross entropy of the pieces that have labels [B]; 0 for a row without any."""
        mask = ops.cast(batch["label_mask"], "float32")  # [B, S]
        losses = cross_entropy(outputs["logits"], batch["label_ids"])  # [B, S]
        return ops.sum(mask * losses, axis=1) / ops.maximum(ops.sum(mask, axis=1), 1.0)

    def eval_outputs(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
        """As `predict_outputs`, and the loss."""
        found = self.predict_outputs(outputs, batch)
        return {**found, "per_example_loss": self.loss(outputs, batch)}

    def predict_outputs(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
        """The likeliest label of each piece, `found` int32 [B, S]."""
        found = ops.cast(ops.argmax(outputs["logits"], axis=-1), "int32")
        # The batch may be shorter, and results of all batches are put together.
        missing = self.options.max_seq_length - ops.shape(found)[1]
        return {"found": ops.pad(found, [[0, 0], [0, missing]])}

    def served_outputs(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Probabilities of the labels of each piece [B, S, L], and the ids of the pieces."""
        return {"probabilities": outputs["probabilities"], "input_ids": batch["input_ids"]}

    def served_names(self, outputs: dict[str, Any]) -> dict[str, Any]:
        """`labels`: the likeliest of each piece; that of a word's first piece counts."""
        best = tf.argmax(outputs["probabilities"], axis=-1)
        return {**outputs, "labels": tf.gather(tf.constant(self.labels), best)}

    def decode(self, examples: Sentences, results: Mapping[str, np.ndarray]) -> list[str]:
        """A label for each word of the file, in order."""
        if not len(examples):
            return []
        found = results["found"][examples.windows.places(0, len(examples))]
        return [self.labels[number] for number in found.tolist()]

    def metrics(self, examples: Sentences, results: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """`precision`, `recall` and `f1` of entities in [0, 1]."""
        scores = self._score(examples, self.decode(examples, results))
        _show_scores(scores, examples.file.path)
        return {name: scores[""][name] for name in ("precision", "recall", "f1")}

    def write_evaluation(
        self, examples: Sentences, results: Mapping[str, np.ndarray], output_dir: str
    ) -> tuple[Mapping[str, Any], list[str]]:
        """For `eval_results.json` the figures of each kind: `entities`."""
        scores = self._score(examples, self.decode(examples, results))
        return {"entities": {kind: found for kind, found in scores.items() if kind}}, []

    def _score(self, examples: Sentences, predicted: list[str]) -> dict[str, dict[str, float]]:
        """`entity_scores` of a file."""
        by_sentence = examples.file.by_sentence
        return entity_scores(by_sentence(examples.labels or []), by_sentence(predicted))

    def write_predictions(
        self, examples: Sentences, predictions: list[str], output_dir: str
    ) -> list[str]:
        """`label_test.txt`: the lines of the test file, with the labels that were found."""
        if self.options.do_eval and examples.labels:
            _show_scores(self._score(examples, predictions), examples.file.path)
        path = os.path.join(output_dir, LABEL_TEST)
        files.write_text(path, examples.file.with_predictions(predictions))
        return [path]

    def examples_of(self, inputs: Sequence[Any]) -> Sentences:
        """Tuples of words, or texts, which are cut into words.

        With `doc_context` they are the sentences of a document, one after the other.
        """
        file = conll.ConllFile("")
        for number, given in enumerate(inputs):
            words = split_words(given) if isinstance(given, str) else given
            is_tuple = isinstance(words, list | tuple)
            if not is_tuple or not all(isinstance(word, str) for word in words):
                raise UserError(
                    f"Input {number}: expected a text, or a tuple of words. Received: "
                    f"{repr(given)[:100]}"
                )
            file.words += words
            # Also of an input without words, so that they can be told apart again.
            file.sentences.append(len(file.words))
        length = self.options.max_seq_length
        splits = sorted(set(file.sentences))
        documents = [0, len(file.words)] if self.options.doc_context and file.words else None
        windows = WordWindows(file.words, splits, self.tokenizer, length, documents)
        return Sentences(file, windows, *self._known_labels(file))

    def predictions_of(
        self, examples: Sentences, results: Mapping[str, np.ndarray]
    ) -> list[LabeledWords]:
        """The words of each input, with their labels."""
        file, labels = examples.file, self.decode(examples, results)
        pairs = zip(file.by_sentence(file.words), file.by_sentence(labels), strict=True)
        return [LabeledWords(*pair) for pair in pairs]


def _show_scores(scores: Mapping[str, Mapping[str, float]], path: str) -> None:
    shown = (
        f"{kind or 'all'} {found['f1']:.4f} (precision {found['precision']:.4f}, recall "
        f"{found['recall']:.4f}, {found['support']} entities)"
        for kind, found in scores.items()
    )
    log.info("F1 on %s: %s", path, "; ".join(shown))


def _trained_labels(train: conll.ConllFile, options: NerOptions) -> list[str]:
    """The labels of a training set; those of the training that goes on, if one does."""
    labels = conll.label_list(conll.to_bio(train.labels or [], train.sentences))
    if labels == [conll.OUTSIDE]:
        raise UserError(
            f"{train.path}: all labels are {conll.OUTSIDE}, there is nothing to learn. "
            "--label_column says where labels are"
        )
    label_file.require_same(labels, train.path, options, conll.is_label)
    return labels


def make_task(options: NerOptions) -> WordLabels:
    """The task that the options describe.

    Raises:
        UserError: configuration and vocabulary are not right, or the labels are not known.
    """
    return WordLabels(options, *load_config_and_tokenizer(options))


def run(options: NerOptions) -> finetune.Results:
    """Fine-tunes, evaluates and predicts, as the options say.

    Returns:
        The figures of the evaluation and the files that were written.

    Raises:
        UserError: options, configuration, vocabulary, checkpoint or data are not right, or seqeval
            is missing for an evaluation; nothing in `output_dir` has been changed then.
    """
    options.check()
    if options.evaluates:
        require_seqeval()
    options = located(options)
    return finetune.run(make_task(options), options)
