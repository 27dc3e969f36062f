"""Multiple choice among endings of a text, as in SWAG (Devlin et al. 2018, section 4.4).

Shapes: B questions in a batch, C endings per question, S max_seq_length.
"""

import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.base.errors import counted
from bert_tf.checkpoints.run_folder import RunFolder
from bert_tf.config import BertConfig
from bert_tf.data import array_ops
from bert_tf.data.features import Feature, sequence_features
from bert_tf.data.packing import CUT_TOKENS, pack_batch
from bert_tf.data.split_files import find_files
from bert_tf.finetuning.prediction import require_texts
from bert_tf.finetuning.task import LOSS, Metric, Schema, Task, Traits
from bert_tf.report.evaluation import Column, EvaluationReport
from bert_tf.tasks.multiple_choice.options import MultipleChoiceOptions
from bert_tf.tasks.multiple_choice.reader import Question, read_questions
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.fast import BatchTokenizer
from bert_tf.tokenization.text_checks import sample

# Tolerated fraction of questions with two equal endings.
_MAX_EQUAL = 0.1


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
        reads = {"eval": self.options.evaluates, "predict": self.options.do_predict}
        splits = [split for split in reads if reads[split]]
        if isinstance(source, RunFolder):
            if not splits or source.path == (self.options.output_dir or ""):
                return Schema(tuple(source.require_labels()))
        elif source not in splits:
            splits.insert(0, source)
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
        texts = [texts for _, texts in self.identity(sample(examples))]
        yield from self.tokenizer.check_texts(source, texts)
        # An empty ending leaves only the cell of --question_column, with which all begin.
        num_empty = 0
        for endings in (question.endings for question in examples):
            stem = os.path.commonprefix(endings).strip()  # noqa: RUF071
            is_empty = (stem if self.options.question_column else "") in endings
            num_empty += is_empty and len({*endings}) > 1
        if num_empty:
            share = counted(num_empty, "question", "have an empty ending", of=count)
            yield f"{source}: {share}. Check --ending_columns"
        num_equal = sum(len({*question.endings}) < len(question.endings) for question in examples)
        if num_equal > _MAX_EQUAL * count:
            share = f"two endings are equal in {counted(num_equal, 'question', of=count)}"
            yield f"{source}: {share}. Check --ending_columns"
        labels = {question.label for question in examples}
        # With fewer questions, a label may be missing by chance.
        has_enough = split != "predict" and count >= 5 * len(self.schema.labels)
        if has_enough and len(labels) == 1:
            problem = f"all {count} questions have the label {labels.pop()}"
            yield f"{source}: {problem}. Check --label_column"
        elif has_enough and 0 not in labels:
            problem = f"the first ending is correct in none of {count} questions"
            yield f"{source}: {problem}. If its label is 1, subtract 1: labels count from 0"

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
