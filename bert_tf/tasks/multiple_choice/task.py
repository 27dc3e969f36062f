"""Multiple choice among endings of a text, as in SWAG (Devlin et al. 2018, section 4.4).

Shapes: B questions in a batch, C endings per question, S max_seq_length.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.config import BertConfig
from bert_tf.data import array_ops
from bert_tf.data.packing import CUT_TOKENS, pack_batch
from bert_tf.finetuning.prediction import require_texts
from bert_tf.finetuning.task import Task
from bert_tf.tasks.multiple_choice.options import MultipleChoiceOptions
from bert_tf.tasks.multiple_choice.reader import Question, read_questions
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.fast import BatchTokenizer


class ChoicePrediction(NamedTuple):
    """0-based index and text of the most likely ending, and the probability of each ending."""

    choice: int
    ending: str
    probabilities: list[float]


class MultipleChoice(Task):
    """Fine-tuning to choose the correct ending of a text."""

    options: MultipleChoiceOptions
    labels = None
    metric_names = ("accuracy", "loss")
    soft_targets = (("logits", "classes"),)

    def __init__(
        self, options: MultipleChoiceOptions, config: BertConfig, tokenizer: FullTokenizer
    ) -> None:
        self.options, self.config = options, config
        self.tokenizer = BatchTokenizer(tokenizer)

    @property
    def texts_per_row(self) -> int:
        """The number of endings of each question."""
        return len(self.labels)

    def find_labels(self, split: str) -> tuple[list[str], str]:
        """Numbers the endings of the first question."""
        first = read_questions(self.options, split, None)[0]
        return [str(index) for index in range(len(first.endings))], f"The {split} split"

    def read(self, split: str) -> Sequence[Question]:
        """Reads the questions of a split."""
        questions = read_questions(self.options, split, self.texts_per_row)
        self.tokenizer.warn_about_texts(f"Questions of the {split} split", self.texts(questions))
        return questions

    def texts(self, examples: Sequence[Question]) -> list[tuple[str, ...]]:
        """Returns the context and the endings, in alphabetical order, of each question."""
        return [(question.context, *sorted(question.endings)) for question in examples]

    def featurize(self, examples: Sequence[Question], split: str) -> dict[str, np.ndarray]:
        """Returns a row [C, S] for each question: its context with each of its endings."""
        num_endings, length = len(self.labels), self.options.max_seq_length
        contexts = self.tokenizer.encode([question.context for question in examples])
        endings = self.tokenizer.encode([text for q in examples for text in q.endings])
        contexts = contexts.take(np.repeat(np.arange(len(examples)), num_endings))
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

    def fetch(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> dict[str, Any]:
        """Selects `probabilities` [B, C]."""
        return {"probabilities": array_ops.softmax(outputs["logits"])}

    def decode(
        self, examples: Sequence[Question], outputs: Mapping[str, np.ndarray]
    ) -> list[ChoicePrediction]:
        """Chooses the most likely ending."""
        pairs = zip(examples, outputs["probabilities"], strict=True)
        return [ChoicePrediction(i := int(p.argmax()), q.endings[i], p.tolist()) for q, p in pairs]

    def metrics(
        self, examples: Sequence[Question], predictions: Sequence[ChoicePrediction]
    ) -> dict[str, Any]:
        """Computes the fraction of questions whose correct ending was chosen."""
        correct = [q.label == p.choice for q, p in zip(examples, predictions, strict=True)]
        return {"eval_accuracy": np.float32(np.mean(correct))}

    def from_inputs(self, inputs: Sequence[Any]) -> list[Question]:
        """Converts tuples of strings: a context and its endings."""
        num_endings = len(self.labels)
        expected = f"a tuple of a context and {num_endings} endings"
        require_texts(inputs, [1 + num_endings], expected)
        return [Question(context, tuple(endings)) for context, *endings in inputs]
