"""Decodes start and end logits into n-best lists of answers and files, as the original does.

Shapes: N windows, and the K most likely starts and ends of each.
"""

import functools
import itertools
import json
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.tasks.question_answering.answer_text import align, join_pieces
from bert_tf.tasks.question_answering.options import SquadOptions
from bert_tf.tasks.question_answering.squad_reader import SquadExample
from bert_tf.tasks.question_answering.windows import Windows
from bert_tf.tokenization import FullTokenizer

PREDICTIONS = "predictions.json"
NBEST_PREDICTIONS = "nbest_predictions.json"
NULL_ODDS = "null_odds.json"
FILES = (PREDICTIONS, NBEST_PREDICTIONS, NULL_ODDS)
# The text that the original returns if there is no valid answer.
_NO_ANSWER = "empty"


class Answer(NamedTuple):
    """An entry of an n-best list; the text "" means "no answer"."""

    text: str
    start_logit: float
    end_logit: float

    @property
    def score(self) -> float:
        """Sum of the start and end logits."""
        return self.start_logit + self.end_logit


class NBest(NamedTuple):
    """The most likely answers to a question, at least one, best first."""

    answers: list[Answer]
    # Score of "no answer" minus that of the best answer; None without `version_2_with_negative`.
    null_odds: float | None = None

    def text(self, null_score_diff_threshold: float) -> str:
        """Returns the best answer, or "" if the null odds exceed the threshold."""
        if self.null_odds is None:
            return self.answers[0].text
        return "" if self.null_odds > null_score_diff_threshold else self.best_text()

    def best_text(self) -> str:
        """Returns the best answer other than "no answer", or "" if there is none."""
        return next((answer.text for answer in self.answers if answer.text), "")


# A span: first and last token (here indexes into the tokens of all texts), and their logits.
Entry = tuple[Any, Any, float, float]


def decode(
    windows: Windows, top: Mapping[str, np.ndarray], tokenizer: FullTokenizer, options: SquadOptions
) -> list[NBest]:
    """Returns the n-best list of each question; `top` comes from `task.top_positions`.

    A span is valid if start and end are in the window, the start has its maximum context there, and
    the length is 1 to `max_answer_length`. As in the original, the end's context is not checked.

    With `version_2_with_negative`, the original fails if a question has no valid span; here the
    answer is "", and the null score is compared with 0.
    """
    text_of = _make_text_of(windows, tokenizer)
    row_splits = np.searchsorted(windows.question_index, np.arange(len(windows.questions) + 1))
    n_best_lists = []
    for first, end in itertools.pairwise(row_splits.tolist()):
        rows = np.arange(first, end)
        null = _find_null_answer(top, rows) if options.version_2_with_negative else None
        entries = _find_best_spans(windows, top, options.max_answer_length, rows)
        n_best_lists.append(n_best(entries, null, text_of, options.n_best_size))
    return n_best_lists


def _find_best_spans(
    windows: Windows, top: Mapping[str, np.ndarray], max_length: int, rows: np.ndarray
) -> Iterator[Entry]:
    """Returns the valid spans in the windows [n] of a question, best first."""
    offset, length = windows.offset[rows, None], windows.length[rows, None]
    starts = top["start_indexes"][rows] - offset  # [n, K]
    ends = top["end_indexes"][rows] - offset
    distance = ends[:, None, :] - starts[:, :, None]  # [n, K, K]
    valid = (distance >= 0) & (distance < max_length)
    valid &= windows.is_max_context(rows, starts)[:, :, None]
    valid &= ((ends >= 0) & (ends < length))[:, None, :]
    row, i, j = np.nonzero(valid)
    start_logits = top["start_logits"][rows][row, i].astype(np.float64)
    end_logits = top["end_logits"][rows][row, j].astype(np.float64)
    first_token = windows.first_token(rows)[row]
    columns = (first_token + starts[row, i], first_token + ends[row, j], start_logits, end_logits)
    # A stable sort keeps ties in the order of windows and positions.
    order = np.argsort(-(start_logits + end_logits), kind="stable")
    return zip(*(column[order].tolist() for column in columns), strict=True)


def _find_null_answer(top: Mapping[str, np.ndarray], rows: np.ndarray) -> Answer:
    """Returns "no answer" with its lowest score in any window; 0 if there are no windows."""
    logits = zip(top["null_start_logits"][rows], top["null_end_logits"][rows], strict=True)
    answers = [Answer("", float(start), float(end)) for start, end in logits]
    return min(answers, key=lambda answer: answer.score, default=Answer("", 0.0, 0.0))


def n_best(
    entries: Iterable[Entry],
    null: Answer | None,
    text_of: Callable[[Any, Any], str],
    n_best_size: int,
) -> NBest:
    """Returns the n-best list from entries sorted best first; drops duplicate texts.

    `null` is SQuAD 2.0's "no answer", with which the list may be longer than `n_best_size` by one;
    `text_of` returns the text from a first to a last token.
    """
    answers: dict[str, Answer] = {}
    for start, end, start_logit, end_logit in entries:
        if len(answers) >= n_best_size:
            break
        if null and "" not in answers and null.score > start_logit + end_logit:
            answers[""] = null
            if len(answers) >= n_best_size:
                break
        text = text_of(start, end)
        if text not in answers:
            answers[text] = Answer(text, start_logit, end_logit)
    if not null:
        return NBest(list(answers.values()) or [Answer(_NO_ANSWER, 0.0, 0.0)])
    answers.setdefault("", null)
    best = next((answer for answer in answers.values() if answer.text), Answer("", 0.0, 0.0))
    return NBest(list(answers.values()), null.score - best.start_logit - best.end_logit)


def _make_text_of(windows: Windows, tokenizer: FullTokenizer) -> Callable[[int, int], str]:
    """Returns a function that maps first and last token to the answer in the original text."""
    normalize = functools.cache(lambda word: " ".join(tokenizer.basic_tokenizer.tokenize(word)))

    def text_of(start: int, end: int) -> str:
        first, last = int(windows.token_words[start]), int(windows.token_words[end])
        words = windows.words[first : last + 1]
        text = " ".join(words)
        # A span of whole words needs no alignment.
        if windows.word_splits[first] == start and windows.word_splits[last + 1] == end + 1:
            return text
        ids = windows.token_ids[start : end + 1].tolist()
        pieces = (tokenizer.inv_vocab[token_id] for token_id in ids)
        return align(join_pieces(pieces), text, " ".join(filter(None, map(normalize, words))))

    return text_of


def probabilities(answers: Sequence[Answer]) -> list[float]:
    """Returns the softmax of the scores, bit for bit as the original does."""
    highest = max(answer.score for answer in answers)
    exponentials = [math.exp(answer.score - highest) for answer in answers]
    # Not `sum`, which rounds differently since Python 3.12.
    total = functools.reduce(operator.add, exponentials)
    return [value / total for value in exponentials]


def n_best_json(n_best_lists: Mapping[str, Sequence[Answer]]) -> str:
    """Formats n-best lists by question id like the original's `nbest_predictions.json`."""
    keys = "text", "probability", "start_logit", "end_logit"
    entries = {
        qas_id: [
            dict(zip(keys, (text, probability, *logits), strict=True))
            for (text, *logits), probability in zip(answers, probabilities(answers), strict=True)
        ]
        for qas_id, answers in n_best_lists.items()
    }
    return json.dumps(entries, indent=4) + "\n"


class AnswerPrediction(NamedTuple):
    """The predicted answer to a question.

    Attributes:
        text: the answer; "" if there is none.
        n_best: the most likely answers, best first, with probabilities that add up to 1.
        null_odds: score of "no answer" minus that of the best answer, in logits; None without
            `version_2_with_negative`.
    """

    text: str
    n_best: list[tuple[str, float]]
    null_odds: float | None


class Predictions(Sequence[AnswerPrediction]):
    """Predictions in the order of the questions, and, for the files, by question id."""

    def __init__(
        self, examples: Sequence[SquadExample], n_best: Sequence[NBest], threshold: float
    ) -> None:
        self._n_best = n_best
        self.threshold = threshold
        # If questions share an id, the last one's list replaces that of the first.
        self.lists = {e.qas_id: entry for e, entry in zip(examples, n_best, strict=True)}
        self.texts = {qas_id: entry.text(threshold) for qas_id, entry in self.lists.items()}
        odds = ((qas_id, entry.null_odds) for qas_id, entry in self.lists.items())
        self.null_odds = {qas_id: value for qas_id, value in odds if value is not None}

    def __len__(self) -> int:
        return len(self._n_best)

    def __getitem__(self, index: Any) -> Any:
        entry = self._n_best[index]
        texts = [answer.text for answer in entry.answers]
        n_best = list(zip(texts, probabilities(entry.answers), strict=True))
        return AnswerPrediction(entry.text(self.threshold), n_best, entry.null_odds)

    def contents(self) -> dict[str, str]:
        """Returns the contents of the prediction files by file name."""
        contents = {
            PREDICTIONS: json.dumps(self.texts, indent=4) + "\n",
            NBEST_PREDICTIONS: n_best_json({k: entry.answers for k, entry in self.lists.items()}),
        }
        if self.null_odds:
            contents[NULL_ODDS] = json.dumps(self.null_odds, indent=4) + "\n"
        return contents
