"""Extractive question answering: SQuAD 1.1 and 2.0, and files in their format."""

import itertools
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.base import files
from bert_tf.base.errors import UserError, counted, note, warn
from bert_tf.config import BertConfig
from bert_tf.data import array_ops
from bert_tf.data.features import Feature, sequence_features
from bert_tf.finetuning.prediction import require_texts
from bert_tf.finetuning.task import Metric, Schema, Task, Traits, Written
from bert_tf.report.evaluation import EvaluationReport
from bert_tf.tasks.question_answering import decoding, scoring, squad_reader
from bert_tf.tasks.question_answering.decoding import Predictions
from bert_tf.tasks.question_answering.options import SquadOptions
from bert_tf.tasks.question_answering.squad_reader import SquadExample, split_words
from bert_tf.tasks.question_answering.windows import Windows
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.fast import BatchTokenizer

# As in the original BERT code, training questions are first shuffled with this seed in every run.
_SHUFFLE_SEED = 12345
# Number of questions whose texts are checked for unknown tokens.
_NUM_CHECKED = 2000
# Fraction of answers that may be longer than --max_answer_length.
_MANY_LONG_ANSWERS = 0.02
_QUESTION_WORDS = re.compile(r"(?i)\b(how many|how much|how|what|when|where|which|who|why)\b")


class QuestionAnswering(Task):
    """Answers questions about texts: a row per window of a text, and a prediction per question."""

    options: SquadOptions
    schema = Schema(text_pairs=True)

    def __init__(self, options: SquadOptions, config: BertConfig, tokenizer: FullTokenizer) -> None:
        self.options = options
        self.config = config
        self.tokenizer = BatchTokenizer(tokenizer)
        word_metrics = ("f1", "exact" if options.version_2_with_negative else "exact_match")
        by_characters = options.answer_scoring == "characters"
        character_metrics = ("f1_characters", "exact_characters") if by_characters else ()
        self.traits = Traits(
            monitors=tuple(map(Metric, (*character_metrics, *word_metrics))),
            soft_targets=(("start_logits", "positions"), ("end_logits", "positions")),
            # As in the original, the softmax over positions includes padding.
            loss_depends_on=frozenset({"padding"}),
        )

    def read(self, split: str) -> Windows:
        """Reads `--train_file`, or `--predict_file` for all other splits."""
        options, is_training = self.options, split == "train"
        path = (options.train_file if is_training else options.predict_file) or ""
        with_negative = options.version_2_with_negative
        examples = squad_reader.read_squad_examples(path, is_training, with_negative)
        if is_training:
            random.Random(_SHUFFLE_SEED).shuffle(examples)
        elif options.evaluates:
            _require_answers(examples, path, with_negative)
            if options.answer_scoring == "auto" and scoring.should_score_characters(examples):
                note("--answer_scoring=characters, by the script of the answers", at=path)
        windows = self._make_windows(examples)
        sizes = counted(len(examples), "question"), counted(len(windows), "window")
        note(", ".join(sizes), at=path)
        if windows.num_cut_questions:
            limit = options.max_query_length
            cut = f"are longer than --max_query_length={limit} and were truncated"
            note(f"{counted(windows.num_cut_questions, 'question', cut)}", at=path)
        if is_training and not len(windows):
            raise UserError("all texts are empty; cannot train", at=path)
        return windows

    def check(self, split: str, examples: Windows, train_examples: Sequence[Any]) -> Iterator[str]:
        """Yields what looks wrong in texts, answers and the number of windows."""
        options, questions, is_training = self.options, examples.questions, split == "train"
        path = (options.train_file if is_training else options.predict_file) or ""
        texts = [texts for _, texts in itertools.islice(self.identity(examples), _NUM_CHECKED)]
        yield from self.tokenizer.check_texts(path, texts)
        limit = options.max_answer_length
        num_long = int(np.sum(examples.answer_lengths > limit))
        if num_long > _MANY_LONG_ANSWERS * len(questions):
            are_long = f"are longer than --max_answer_length={limit}, and can never be predicted"
            yield f"{path}: {counted(num_long, 'answer', are_long, of=len(questions))}"
        if is_training and (num_split := examples.num_split_answers(limit)):
            are_split = "fit into no window, so that training treats them as unanswered"
            yield f"{path}: {counted(num_split, 'answer', are_split, of=len(questions))}"

    def _make_windows(self, examples: Sequence[SquadExample]) -> Windows:
        options = self.options
        lengths = (options.max_seq_length, options.doc_stride, options.max_query_length)
        return Windows(examples, self.tokenizer, *lengths)

    def features(self, split: str) -> tuple[Feature, ...]:
        """Returns the features of the original's records; only training has targets."""
        inputs = sequence_features(self.options.max_seq_length)
        if split == "predict":  # in a Predictor only
            return inputs
        targets = map(Feature, ("start_positions", "end_positions", "is_impossible"))
        return (Feature("unique_ids"), *inputs, *(targets if split == "train" else ()))

    def featurize(self, examples: Windows, split: str) -> dict[str, np.ndarray]:
        """Converts each window of the questions to a row."""
        return examples.inputs() | (examples.targets() if split == "train" else {})

    def build_model(self, **kwargs: Any) -> Any:
        """Builds the encoder with a span head: logits for the answer's start and end."""
        from bert_tf.modeling import BertSpanLabeler

        return BertSpanLabeler(self.config, **kwargs)

    def loss(self, outputs: Mapping[str, Any], batch: Mapping[str, Any], training: bool) -> Any:
        """Computes the mean of the cross entropies of start and end for each row, [B]."""
        from bert_tf.modeling.losses import span_loss

        start, end = outputs["start_logits"], outputs["end_logits"]
        return span_loss(start, end, batch["start_positions"], batch["end_positions"])

    def fetch(
        self, outputs: Mapping[str, Any], batch: Mapping[str, Any], serving: bool = False
    ) -> dict[str, Any]:
        """Selects the `n_best_size` highest start logits and end logits of each row.

        An exported model returns all logits [B, S], and `input_ids`, to find the answer's pieces.
        """
        if serving:
            return {**outputs, "input_ids": batch["input_ids"]}
        return top_positions(outputs, self.options.n_best_size, self.options.max_seq_length)

    def decode(self, examples: Windows, outputs: Mapping[str, np.ndarray]) -> Predictions:
        """Answers each question; with `null_score_diff_threshold=auto`, chooses the threshold."""
        questions, tokenizer = examples.questions, self.tokenizer.reference
        n_best_lists = decoding.decode(examples, outputs, tokenizer, self.options)
        threshold = self.options.null_score_diff_threshold
        if isinstance(threshold, str):
            answered = Predictions(questions, n_best_lists, math.inf)
            threshold = scoring.best_f1_threshold(questions, answered.texts, answered.null_odds)
            note(f"--null_score_diff_threshold=auto: the best F1 is at {threshold}")
        return Predictions(questions, n_best_lists, threshold)

    def metrics(self, examples: Windows, predictions: Predictions) -> dict[str, Any]:
        """Scores answers as the official SQuAD script does, or also by characters."""
        questions, texts = examples.questions, predictions.texts
        mode, character_scores = self.options.answer_scoring, {}
        if mode != "words" and (mode != "auto" or scoring.should_score_characters(questions)):
            by_script = scoring.character_metrics(questions)
            character_scores = scoring.score(questions, texts, by_script)
        if not self.options.version_2_with_negative:
            return {**scoring.score(questions, texts), **character_scores}
        word_scores = scoring.score_with_negative(questions, texts, predictions.null_odds)
        threshold = {"null_score_diff_threshold": predictions.threshold}
        return {**character_scores, **word_scores, **threshold}

    def write(
        self, split: str, examples: Windows, predictions: Predictions, folder: str
    ) -> Written:
        """Writes answers, n-best lists and, with `version_2_with_negative`, null odds."""
        return Written(files.write_texts(folder, predictions.contents()))

    def evaluation_report(
        self, examples: Windows, predictions: Predictions, losses: np.ndarray | None
    ) -> EvaluationReport:
        """Scores each question; sorts by F1 and, if this is equal, by falling probability."""
        questions, texts, odds = examples.questions, predictions.texts, predictions.null_odds
        if self.options.version_2_with_negative:
            scores = [scoring.score_with_negative([q], texts, odds) for q in questions]
        else:
            scores = [scoring.score([q], texts) for q in questions]
        f1 = np.array([score["f1"] for score in scores])
        name = "exact" if self.options.version_2_with_negative else "exact_match"
        exact = np.array([score[name] for score in scores])
        probability = np.array([dict(p.n_best).get(p.text, 0.0) for p in predictions])
        order = np.lexsort((-probability, f1))
        f1, exact, probability = f1[order], exact[order], probability[order]
        questions = [questions[index] for index in order]
        no_answer = float(np.mean([not q.answers for q in questions]))
        return EvaluationReport(
            columns={
                "id": [q.qas_id for q in questions],
                "question": [q.question_text for q in questions],
                "answers": [" | ".join(dict.fromkeys(q.answers or ())) for q in questions],
                "prediction": [texts[q.qas_id] for q in questions],
                "probability": probability,
                name: exact,
                "f1": f1,
            },
            is_wrong=exact == 0,
            values={name: exact, "f1": f1},
            confidence=(probability, exact > 0),
            groups={
                "By question word": [_question_word(q.question_text) for q in questions],
                "By answer": ["answer" if q.answers else "no answer" for q in questions],
            },
            context=lambda index: " ".join(questions[index].doc_tokens),
            unit="answers",
            baseline=("always no answer", no_answer, "") if no_answer else None,
        )

    def from_inputs(self, inputs: Sequence[Any]) -> Windows:
        """Converts tuples (question, text)."""
        require_texts(inputs, [2], "a tuple: question, text")
        # Questions about the same text share its words.
        words_of = {text: split_words(text).words for text in {text for _, text in inputs}}
        examples = [
            SquadExample(str(index), question, words_of[text], context=text)
            for index, (question, text) in enumerate(inputs)
        ]
        windows = self._make_windows(examples)
        if windows.num_cut_questions:
            limit = self.options.max_query_length
            cut = f"are longer than max_query_length={limit} and were truncated"
            warn(counted(windows.num_cut_questions, "question", cut, of=len(examples)))
        return windows

    def epoch_size(self, examples: Windows) -> int:
        """Returns the number of questions, not windows, as in the original."""
        return len(examples.questions)

    def identity(self, examples: Windows) -> Iterator[tuple[SquadExample, Sequence[str]]]:
        """Returns each question with its text and answers, and its words and those of the text."""
        return ((q, [q.question_text, *q.doc_tokens]) for q in examples.questions)


def _question_word(question: str) -> str:
    match = _QUESTION_WORDS.search(question)
    return match[0].lower() if match else "other"


def _require_answers(examples: Sequence[SquadExample], path: str, negative: bool) -> None:
    missing = [e.qas_id for e in examples if not e.answers and (e.answers is None or not negative)]
    if missing:
        problem = f"{counted(len(missing), 'question', 'have')} no answer, for example {missing[0]}"
        needed = '"answers": [{"text": TEXT}, ...], or [] with --version_2_with_negative=true'
        raise UserError(problem, at=path, fix=f"--do_eval needs {needed}")


def top_positions(outputs: Mapping[str, Any], count: int, max_seq_length: int) -> dict[str, Any]:
    """Selects the K = min(`count`, `max_seq_length`) best starts and ends of answers in each row.

    Args:
        outputs: `start_logits` and `end_logits` [B, S].
        count: number of starts and of ends.
        max_seq_length: S of rows that are not trimmed.

    Returns:
        For starts, `start_indexes` int32 and `start_logits` float32 [B, K], in descending order,
        ties in order of position; and `null_start_logits` [B], the logits of `[CLS]`, which stand
        for "no answer". The same for ends.
    """
    top = {}
    for name in ("start", "end"):
        logits = outputs[f"{name}_logits"]
        # Batches may be trimmed to their longest row, but K must be the same for all batches.
        padded = array_ops.pad_rows(logits, max_seq_length, float("-inf"))
        values, indexes = array_ops.top_k(padded, min(count, max_seq_length))
        top[f"{name}_indexes"], top[f"{name}_logits"] = indexes, values
        top[f"null_{name}_logits"] = logits[:, 0]
    return top
