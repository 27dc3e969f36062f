"""Multiple choice among endings of a text, as in SWAG (Devlin et al. 2018, section 4.4).

Shapes: B questions in a batch, C endings per question, S max_seq_length.
"""

import functools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf import lint
from bert_tf.base.errors import UserError, Where, counted, excerpt, note
from bert_tf.checkpoints.run_folder import RunFolder
from bert_tf.config import BertConfig
from bert_tf.data import array_ops
from bert_tf.data.disk_list import collect
from bert_tf.data.features import Feature, sequence_features
from bert_tf.data.packing import CUT_TOKENS, pack_batch
from bert_tf.data.split_files import find_files, no_file
from bert_tf.finetuning.prediction import require_texts
from bert_tf.finetuning.task import LOSS, Metric, Schema, Task, Traits
from bert_tf.report.evaluation import Column, EvaluationReport
from bert_tf.tables.columns import to_text
from bert_tf.tables.texts import read_rows
from bert_tf.tasks.multiple_choice.options import MultipleChoiceOptions
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.fast import BatchTokenizer


class Question(NamedTuple):
    """A context and two or more candidate endings."""

    context: str
    endings: tuple[str, ...]  # each starts with the cell of --question_column, if any
    label: int | None = None  # index of the correct ending; None if unknown


class ChoicePrediction(NamedTuple):
    """0-based index and text of the most likely ending, and the probability of each ending."""

    choice: int
    ending: str
    probabilities: list[float]


class MultipleChoice(Task):
    """Fine-tuning to choose the correct ending of a text."""

    options: MultipleChoiceOptions
    traits = Traits(
        monitors=(Metric("accuracy"), LOSS),
        soft_targets=(("logits", "classes"),),
        exports_texts=False,  # the exported model would need several texts for each input
    )

    def __init__(
        self, options: MultipleChoiceOptions, config: BertConfig, tokenizer: FullTokenizer
    ) -> None:
        self.options, self.config = options, config
        self.tokenizer = BatchTokenizer(tokenizer)
        # A file is read only once: it may be a pipe.
        self.read = functools.cache(self.read)

    def infer_schema(self, source: str | RunFolder) -> Schema:
        """Numbers the endings of the question that has most, or takes the numbers from a folder.

        The model scores one ending at a time, so a run with an `output_dir` of its own may have
        another number of them.
        """
        splits, output_dir = self.options.read_splits, self.options.output_dir or ""
        if isinstance(source, RunFolder) and (not splits or source.path == output_dir):
            return Schema(tuple(source.require_labels()))
        count = max(len(question.endings) for split in splits for question in self.read(split))
        return Schema(tuple(map(str, range(count))), source=f"The {splits[0]} split")

    def read(self, split: str) -> Sequence[Question]:
        """Reads the questions of a split."""
        return read_questions(self.options, split, len(self.schema.labels) or None)

    def check(
        self, split: str, examples: Sequence[Question], train_examples: Sequence[Question]
    ) -> Iterator[str]:
        """Yields what looks wrong in texts, endings and labels."""
        source, count = find_files(self.options, [split])[split], len(examples)
        texts = [texts for _, texts in self.identity(lint.sample(examples))]
        yield from self.tokenizer.check_texts(source, texts)
        # An empty ending leaves only the cell of --question_column, with which all begin.
        num_empty = 0
        for endings in (question.endings for question in examples):
            stem = os.path.commonprefix(endings).strip()  # noqa: RUF071
            is_empty = (stem if self.options.question_column else "") in endings
            num_empty += is_empty and len({*endings}) > 1
        if num_empty:
            yield f"{source}: {counted(num_empty, 'question', 'have an empty ending', of=count)}"
        first, second = ([question.endings[n] for question in examples] for n in (0, 1))
        yield from lint.at(source, lint.same(first, second, "two endings are equal"))
        # With fewer questions, a label may be missing by chance.
        if split != "predict" and count >= 5 * len(self.schema.labels):
            yield from lint.at(source, lint.constant([question.label for question in examples]))

    def identity(self, examples: Sequence[Question]) -> Iterator[tuple[Question, Sequence[str]]]:
        """Returns each question, and its context and endings in alphabetical order."""
        return ((question, [question.context, *sorted(question.endings)]) for question in examples)

    def features(self, split: str) -> tuple[Feature, ...]:
        """Declares the encoder's inputs [C, S] and, unless predicting, the label."""
        inputs = sequence_features(self.options.max_seq_length, len(self.schema.labels))
        return inputs if split == "predict" else (*inputs, Feature("label_ids"))

    def featurize(self, examples: Sequence[Question], split: str) -> dict[str, np.ndarray]:
        """Returns a row [C, S] for each question: its context with each of its endings.

        An ending that the question lacks becomes `[CLS] [SEP]`, which the model ignores.
        """
        num_endings, length = len(self.schema.labels), self.options.max_seq_length
        padding = [""] * num_endings
        texts = [text for q in examples for text in [*q.endings, *padding][:num_endings]]
        endings = self.tokenizer.encode(texts)
        contexts = self.tokenizer.encode([*(question.context for question in examples), ""])
        counts = np.array([len(question.endings) for question in examples], np.int32)[:, None]
        is_ending = np.arange(num_endings) < counts  # [E, C]
        indices = np.where(is_ending, np.arange(len(examples))[:, None], len(examples))
        contexts = contexts.take(indices.ravel())
        vocab = self.tokenizer.reference.vocab
        packed = pack_batch(contexts, endings, length, vocab["[CLS]"], vocab["[SEP]"])
        # Special tokens: [CLS] context [SEP] ending [SEP]; the last one only after an ending.
        lengths = contexts.lengths + endings.lengths + np.where(endings.lengths, 3, 2)
        num_cut = lengths - packed["input_mask"].sum(axis=1)
        rows = {name: values.reshape(-1, num_endings, length) for name, values in packed.items()}
        rows[CUT_TOKENS] = num_cut.reshape(-1, num_endings).max(axis=1)
        if split != "predict":
            rows["label_ids"] = np.array([question.label for question in examples], np.int32)
        return rows

    def build_model(self, **kwargs: Any) -> Any:
        """Builds the encoder, with a head that scores one ending at a time."""
        from bert_tf.tasks.multiple_choice.model import BertMultipleChoice

        return BertMultipleChoice(self.config, **kwargs)

    def loss(self, outputs: Mapping[str, Any], batch: Mapping[str, Any], training: bool) -> Any:
        """Computes the cross entropy over the endings, [B]."""
        from bert_tf.modeling.losses import cross_entropy

        return cross_entropy(outputs["logits"], batch["label_ids"])

    def fetch(
        self, outputs: Mapping[str, Any], batch: Mapping[str, Any], serving: bool = False
    ) -> dict[str, Any]:
        """Selects `probabilities` [B, C]."""
        return {"probabilities": array_ops.softmax(outputs["logits"])}

    def decode(
        self, examples: Sequence[Question], outputs: Mapping[str, np.ndarray]
    ) -> list[ChoicePrediction]:
        """Chooses the most likely ending."""
        pairs = zip(examples, outputs["probabilities"], strict=True)
        kept = ((q, p[: len(q.endings)]) for q, p in pairs)
        return [ChoicePrediction(i := int(p.argmax()), q.endings[i], p.tolist()) for q, p in kept]

    def metrics(
        self, examples: Sequence[Question], predictions: Sequence[ChoicePrediction]
    ) -> dict[str, Any]:
        """Computes the fraction of questions whose correct ending was chosen."""
        correct = [q.label == p.choice for q, p in zip(examples, predictions, strict=True)]
        return {"eval_accuracy": np.float32(np.mean(correct))}

    def evaluation_report(
        self,
        examples: Sequence[Question],
        predictions: Sequence[ChoicePrediction],
        losses: np.ndarray | None,
    ) -> EvaluationReport:
        """Compares the chosen endings with the correct ones."""
        right = np.array([q.label == p.choice for q, p in zip(examples, predictions, strict=True)])
        highest = np.array([max(prediction.probabilities) for prediction in predictions])
        columns: dict[str, Column] = {
            "text": [question.context for question in examples],
            "label": [question.endings[question.label or 0] for question in examples],
            "prediction": [prediction.ending for prediction in predictions],
            "probability": highest,
        }
        return EvaluationReport(
            columns=columns,
            losses=losses,
            is_wrong=~right,
            values={"accuracy": right},
            confidence=(highest, right),
            unit="questions",
            baseline=("chance", float(np.mean([1 / len(q.endings) for q in examples])), ""),
        )

    def from_inputs(self, inputs: Sequence[Any]) -> list[Question]:
        """Converts tuples of strings: a context and its endings."""
        num_endings = len(self.schema.labels)
        fewer = "2 to " if num_endings > 2 else ""
        expected = f"a tuple of a context and {fewer}{num_endings} endings"
        require_texts(inputs, range(3, num_endings + 2), expected)
        return [Question(context, tuple(endings)) for context, *endings in inputs]


def read_questions(
    options: MultipleChoiceOptions, split: str, num_endings: int | None
) -> Sequence[Question]:
    """Reads the questions of a split: "train", "eval" or "predict".

    Each must have at most `num_endings` endings, if given.

    Raises:
        UserError: the file is missing, empty or invalid; the message names file and line.
    """
    paths = find_files(options, [split])
    if split not in paths:
        raise no_file(split, options.data_dir)
    cells = read_rows(paths[split], options.columns(split), **options.layout(split), split=split)
    questions = collect(_parse_questions(cells, num_endings))
    if not questions:
        raise UserError(f"{paths[split]} contains no question")
    counts = [len(question.endings) for question in questions]
    varied = f" with {min(counts)} to {max(counts)} endings" if min(counts) < max(counts) else ""
    note(f"{counted(len(questions), 'question')}{varied}", at=paths[split])
    return questions


def _parse_questions(
    rows: Iterable[tuple[Where, dict[str, Any]]], num_endings: int | None
) -> Iterator[Question]:
    for place, cells in rows:
        endings, names = _find_endings(cells.pop("ending_columns", None), place)
        if num_endings and len(endings) > num_endings:
            expected = f"expected at most {num_endings} endings, as the model has"
            raise UserError(f"{expected}. Received: {len(endings)}", at=place)
        texts = {purpose: to_text(value, purpose, place) for purpose, value in cells.items()}
        question, label = texts.get("question", ""), None
        if "label" in texts:
            label = _find_label(texts["label"].strip(), names, len(endings), place)
        full_endings = tuple(f"{question} {ending}".strip() for ending in endings)
        yield Question(texts["context"], full_endings, label)


def _find_endings(cells: Any, place: Where) -> tuple[list[str], Sequence[str]]:
    """Returns the endings, and their names: columns, or the labels of choices in JSON, if any.

    JSON has a list of texts; objects with text and label, as in CommonsenseQA, or an object of two
    such lists; or an object with a text for each label. Columns that are empty at the end of a row
    are no endings.
    """
    texts, names = _unpack_choices(cells, place) if isinstance(cells, list | dict) else ([], [])
    while isinstance(cells, dict) and texts and (texts[-1] is None or not str(texts[-1]).strip()):
        texts.pop()
    endings = [to_text(text, "ending", place) for text in texts]
    if len(endings) < 2:
        needed = "a question needs two or more endings (--ending_columns)"
        raise UserError(f"{needed}. Received: {len(endings)}", at=place)
    return endings, [to_text(name, "label of an ending", place) for name in names[: len(endings)]]


def _unpack_choices(choices: Any, place: Where) -> tuple[list[Any], list[Any]]:
    """Returns the texts of a list or object of choices, and their labels, [] if there are none."""
    if isinstance(choices, list):
        if not all(isinstance(choice, dict) and "text" in choice for choice in choices):
            return choices, []
        choices = {key: [choice.get(key) for choice in choices] for key in ("text", "label")}
    elif not isinstance(choices.get("text"), list):
        return [*choices.values()], [*choices]
    texts, labels = choices["text"], choices.get("label") or []
    labels = [label for label in labels if label is not None]
    if labels and len({*map(str, labels)}) != len(texts):
        raise UserError("not every ending has a label of its own", at=place)
    return texts, labels


def _find_label(cell: str, names: Sequence[str], count: int, place: Where) -> int:
    # If names are 1, 2 and so on, a label must be such a name.
    has_numbers = bool(names) and all(map(str.isdecimal, names))
    indices = {} if has_numbers else {str(index): index for index in range(count)}
    if not any(len(name) == 1 for name in names):
        indices |= {chr(ord("A") + index): index for index in range(count)}
    indices |= {name: index for index, name in enumerate(names)}
    for name in (cell, cell.upper(), cell.lower()):
        if name in indices:
            return indices[name]
    expected = f"the label must be one of {', '.join(indices)}"
    raise UserError(f"{expected}. Received: {excerpt(cell)}", at=place)
