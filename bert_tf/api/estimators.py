"""Estimators for texts, with the methods of scikit-learn's.

from bert_tf import TextClassifier

classifier = TextClassifier("uncased_L-12_H-768_A-12", max_seq_length=128)
classifier.fit(["Good soup.", "Cold soup."], ["pos", "neg"])
classifier.predict(["The soup was cold."])
"""

import json
from collections.abc import Mapping, Sequence, Sized
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import check_consistent_length

from bert_tf.api.estimator import LABELS_ARE_COLUMNS, Estimator
from bert_tf.api.rows import (
    LIST_TYPES,
    Rows,
    check_order,
    check_true_labels,
    label_items,
    to_array,
    to_dense,
)
from bert_tf.api.text_inputs import items_of
from bert_tf.base.errors import UserError, Where, counted
from bert_tf.checkpoints.run_folder import TARGET_SCALE
from bert_tf.tasks.classification.checks import check_rows
from bert_tf.tasks.classification.dataset_factory import exceeds_float32
from bert_tf.tasks.token_classification.schemes import type_of
from bert_tf.tasks.token_classification.scores import score


class _TextEstimator(Estimator):
    """What `TextClassifier` and `TextRegressor` have in common."""

    # `fit` trains on all texts that it gets.
    _defaults: ClassVar = {**Estimator._defaults, "dev_fraction": 0.0}

    def _to_row(self, text: Any, label: Any, rows: Rows) -> dict[str, Any]:
        is_pair = isinstance(text, list | tuple)
        if isinstance(text, Mapping) or (is_pair and len(text) != 2):
            expected = "a string, or a pair as in list(zip(a, b))"
            raise UserError(f"expected {expected}. Received: {text!r:.60}", at=rows.place)
        rows.kinds.add("pair" if is_pair else "single")
        if {"pair", "single"} <= rows.kinds:
            raise UserError(f"a {'pair' if is_pair else 'text'}, unlike the others", at=rows.place)
        texts = {"text": text[0], "text_pair": text[1]} if is_pair else {"text": text}
        return {**texts, "label": self._to_label(label, rows)}

    def explain(self, text: Any, label: Any = None, steps: int = 32) -> Any:
        """Returns an `Explanation` of the prediction for a text, which notebooks show in colors.

        The arguments and errors are those of `Predictor.explain`.
        """
        return self._open().explain(text, label, steps)

    def _check_score(
        self, texts: Any, labels: Any, true: Any, names: Sequence[str] | None = None
    ) -> list[Any]:
        """Returns the texts for `score`; warns of what `fit` would warn of in texts and labels."""
        self._warn(check_order(texts, labels))
        items = self._items(texts)
        if len(items) == len(true) > 0:  # scikit-learn reports other numbers
            rows = (x if isinstance(x, list | tuple) else (x, "") for x in items)
            pairs = [(str(row[0]), str(row[-1])) for row in rows]
            self._warn(check_rows(pairs, true, names))
        return items

    def _to_label(self, label: Any, rows: Rows) -> Any:
        return label

    def _to_input(self, text: Any) -> Any:
        return tuple(text) if isinstance(text, list) and len(text) <= 2 else text

    def _run_flags(self, rows: Rows) -> dict[str, Any]:
        pair = {"text_pair_column": "text_pair"} if "pair" in rows.kinds else {}
        return {"task_name": "tsv", "text_column": "text", "label_column": "label", **pair}


class TextClassifier(ClassifierMixin, _TextEstimator):
    """Classifies texts and pairs of texts, as `run_classifier.py` does with the same flags.

    A text is a string, and a pair a tuple of two strings, or the row of a table with two columns. A
    label is a string, an integer or a boolean. For a model with any number of labels per text, pass
    a list of labels for each text, or a table with a column of 0 and 1 for each label.

    The arguments are `init_checkpoint`, the folder, prefix or file of the model to start from, and
    flags of the script by name. `output_dir` keeps all files of the training run; by default, `fit`
    leaves none.

    Example:
        classifier = TextClassifier("uncased_L-12_H-768_A-12", max_seq_length=128)
        classifier.fit(texts, labels, validation=(dev_texts, dev_labels), num_train_epochs=2.0)
        classifier.predict(["The soup was cold."])

    Attributes:
        classes_: the labels [L], of the type that `fit` got; strings if the script trained the
            model.
        history: arrays by name: `step`, `loss` and `learning_rate` of each step of the training.
        evaluations: arrays by name: `step`, and metrics such as `loss` and `accuracy`, of each
            evaluation. `history["eval_accuracy"]` is `evaluations["accuracy"]`.
    """

    _other_kinds = ("regression",)

    def predict(self, texts: Any) -> np.ndarray:
        """Returns the most likely label of each text [N]; for several labels per text, lists.

        If `fit` got a table of labels: 0 and 1 for each label in `classes_`, int [N, L].
        """
        probabilities = self.predict_proba(texts)
        if self._kind != "multilabel":
            return self.classes_[probabilities.argmax(axis=1)]
        if self._run.get(LABELS_ARE_COLUMNS):
            return (probabilities >= 0.5).astype(int)
        return to_array([self.classes_[row >= 0.5].tolist() for row in probabilities])

    def predict_proba(self, texts: Any) -> np.ndarray:
        """Returns the probability of each label, float32 [N, L], in the order of `classes_`."""
        rows = [[*prediction.probabilities.values()] for prediction in self._predictions(texts)]
        return np.array(rows, np.float32).reshape(-1, len(self.classes_))

    def score(self, texts: Any, labels: Any, sample_weight: Any = None) -> float:
        """Returns the accuracy; for several labels per text, all of them must be right."""
        self._require_model()
        if self._kind != "multilabel":
            true = [*label_items(labels)]
            texts = self._check_score(texts, labels, true)
            self._warn(check_true_labels(true, self.classes_))
            return accuracy_score(true, self.predict(texts), sample_weight=sample_weight)
        true, named = label_items(labels, self.classes_), {str(x): x for x in self.classes_}
        rows = [[named.get(n, n) for n in x if x[n]] if isinstance(x, Mapping) else x for x in true]
        texts = self._check_score(texts, labels, rows)
        self._warn(check_true_labels([x for row in rows for x in row], self.classes_))
        pairs = zip(rows, self.predict_proba(texts) >= 0.5, strict=True)
        is_right = [{*a} == {*self.classes_[b].tolist()} for a, b in pairs]
        return float(np.average(is_right, weights=sample_weight))

    def _to_label(self, label: Any, rows: Rows) -> Any:
        if not isinstance(label, LIST_TYPES):
            return rows.class_name(label)
        rows.kinds |= {"several labels", *["columns"] * isinstance(label, Mapping)}
        names = [rows.class_name(item) for item in label]
        return {n: label[n] for n in names} if isinstance(label, Mapping) else names

    def _run_flags(self, rows: Rows) -> dict[str, Any]:
        kind = "multilabel" if "several labels" in rows.kinds else "classification"
        if kind == "classification" and len(rows.names) < 2 and self.labels is None:
            raise UserError(f"All labels are of one class, {[*rows.names]}: nothing to learn")
        return {**super()._run_flags(rows), "problem_type": kind}


class TextRegressor(RegressorMixin, _TextEstimator):
    """Predicts a number for each text or pair of texts, or several numbers.

    Its texts, arguments and `history` are those of `TextClassifier`. A label is a number, or a list
    of numbers; for numbers with names, pass a table with a column for each.

    Example:
        regressor = TextRegressor("uncased_L-12_H-768_A-12", num_train_epochs=2.0)
        regressor.fit(frame[["sentence1", "sentence2"]], frame["similarity"])
        regressor.predict([("A plane takes off.", "An air plane is taking off.")])
    """

    _other_kinds = ("classification", "multilabel")

    def predict(self, texts: Any) -> np.ndarray:
        """Returns the number of each text, float32 [N], or its numbers, [N, L].

        They are float64 if float32 is too coarse, as for numbers such as 1e9 and 1e9 + 1.
        """
        rows = self._predictions(texts)
        values = [[*row.values()] if isinstance(row, Mapping) else row for row in rows]
        pairs = json.loads(self._run.get(TARGET_SCALE, "[]"))
        return np.array(values, np.float64 if exceeds_float32(pairs) else np.float32)

    def score(self, texts: Any, labels: Any, sample_weight: Any = None) -> float:
        """Returns R²; for several numbers per text, the mean."""
        self._require_model()
        numbers = np.array([*items_of(to_dense(labels), "labels")], np.float64)
        names = [str(x) for x in range(numbers.shape[1])] if numbers.ndim == 2 else []
        texts = self._check_score(texts, labels, numbers, names)
        return super().score(texts, numbers, sample_weight)

    def _run_flags(self, rows: Rows) -> dict[str, Any]:
        return {**super()._run_flags(rows), "problem_type": "regression"}


class TokenClassifier(Estimator):
    """Labels words, for instance as named entities, as `run_ner.py` does with the same flags.

    A text is a list of words, and its label a list of as many labels, such as B-PER and O. For
    arguments, `classes_` and `history`, see `TextClassifier`.

    Example:
        tagger = TokenClassifier("cased_L-12_H-768_A-12", do_lower_case=False)
        tagger.fit([["Anna", "lives", "in", "Rome"]], [["B-PER", "O", "O", "B-LOC"]])
        tagger.predict([["Rome", "sleeps"]])
    """

    _script = "run_ner"
    _data_flags = ("labels", "label_scheme", "word_prefix", "word_suffix")

    def predict(self, texts: Any) -> list[list[str]]:
        """Returns the labels of the words of each text; a string is first split into words."""
        return [prediction.labels for prediction in self._predictions(texts)]

    def score(self, texts: Any, labels: Any) -> float:
        """Returns F1 of the entities, as the script, or the accuracy if labels are plain."""
        self._warn(check_order(texts, labels))
        true, predicted = [[*row] for row in items_of(labels, "labels")], self.predict(texts)
        check_consistent_length(true, predicted)
        for index, (row, words) in enumerate(zip(true, predicted, strict=True)):
            _check_number(f"text {index}", words, row)
        is_plain = self._run["label_scheme"] == "plain"
        name_of = str if is_plain else type_of
        names = [name_of(x) for row in true for x in row]
        self._warn(check_true_labels(names, [*map(name_of, self.classes_)]))
        return score(true, predicted, is_plain)[0]["accuracy" if is_plain else "f1"]

    def _to_row(self, text: Any, label: Any, rows: Rows) -> dict[str, Any]:
        row = {"words": text, "labels": label}
        for name, value in row.items():
            if isinstance(value, str):
                expected = f"{name} as a list, such as {value[:40].split()}"
                raise UserError(f"expected {expected}. Received: a string", at=rows.place)
            if isinstance(value, Mapping) and [*value] == [str(n) for n in range(len(value))]:
                value = value.values()  # a row of a 2-D array, see `label_items`
            row[name] = [*items_of(value, f"the {name} of {rows.place}")]
        words, labels = row.values()
        if others := [word for word in words if not isinstance(word, str)]:
            raise UserError(f"expected words. Received: {others[0]!r:.60}", at=rows.place)
        _check_number(rows.place, words, labels)
        return {"tokens": words, "ner_tags": labels}

    def _to_input(self, text: Any) -> Any:
        return text if isinstance(text, str) else tuple(items_of(text))


def _check_number(place: Where, words: Sized, labels: Sized) -> None:
    if len(words) != len(labels):
        numbers = f"{counted(len(words), 'word')}, but {counted(len(labels), 'label')}"
        raise UserError(numbers, at=place)
