"""Decodes start and end logits into n-best lists of answers, as the original BERT code does.

The texts of answers are those of the document, although the model reads normalized word pieces.

Shapes: n windows of a question, K start candidates and K end candidates per window.
"""

import functools
import itertools
import json
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.tasks.question_answering.options import SquadOptions
from bert_tf.tasks.question_answering.squad_reader import SEPARATORS, SquadExample
from bert_tf.tasks.question_answering.windows import Windows
from bert_tf.tokenization import BasicTokenizer, FullTokenizer

PREDICTIONS = "predictions.json"
NBEST_PREDICTIONS = "nbest_predictions.json"
NULL_ODDS = "null_odds.json"
# The text that the original returns in place of an answer if no span is valid.
_NO_VALID_SPAN = "empty"


class Answer(NamedTuple):
    """An answer in an n-best list; the text "" means that the question has no answer."""

    text: str
    start_logit: float
    end_logit: float
    # In characters of the context; None if there is no answer, or the context is unknown.
    start: int | None = None
    end: int | None = None

    @property
    def score(self) -> float:
        """Sum of the start and end logits."""
        return self.start_logit + self.end_logit


class NBest(NamedTuple):
    """The most likely answers to a question, best first; there is at least one."""

    answers: list[Answer]
    # Score of "no answer" minus score of the best answer; None without `version_2_with_negative`.
    null_odds: float | None = None

    def text(self, null_score_diff_threshold: float) -> str:
        """Returns the best answer, or "" if the null odds exceed the threshold."""
        if self.null_odds is None:
            return self.answers[0].text
        if self.null_odds > null_score_diff_threshold:
            return ""
        return next((answer.text for answer in self.answers if answer.text), "")


# First token, last token, start logit, end logit. Here, tokens are indices in `Windows.token_ids`.
Span = tuple[Any, Any, float, float]


def decode(
    windows: Windows, top: Mapping[str, np.ndarray], tokenizer: FullTokenizer, options: SquadOptions
) -> list[NBest]:
    """Returns the n-best list of each question; `top` comes from `task.top_positions`.

    A span is valid if start and end are in the window, the length is 1 to `max_answer_length`, and
    no other window gives the start more context. As in the original, another window may give the
    end more context.

    With `version_2_with_negative`, the original fails if a question has no valid span; here the
    answer is "", and the null odds are the score of "no answer", as if the best answer scored 0.
    """
    normalize = functools.cache(lambda word: " ".join(tokenizer.basic_tokenizer.tokenize(word)))
    row_splits = np.searchsorted(windows.question_index, np.arange(len(windows.questions) + 1))
    null_logits = np.stack([top["null_start_logits"], top["null_end_logits"]], axis=1).tolist()
    n_best_lists = []
    for question, (first, stop) in enumerate(itertools.pairwise(row_splits.tolist())):
        rows = np.arange(first, stop)
        null = None
        if options.version_2_with_negative:
            # The lowest score of "no answer" in any window; logits of 0 without windows.
            start_logit, end_logit = min(null_logits[first:stop], key=sum, default=(0.0, 0.0))
            null = Answer("", start_logit, end_logit)
        spans = _find_valid_spans(windows, top, options.max_answer_length, rows)
        find = _make_find(windows, question, tokenizer.inv_vocab, normalize)
        n_best_lists.append(make_n_best(spans, null, find, options.n_best_size))
    return n_best_lists


def _find_valid_spans(
    windows: Windows, top: Mapping[str, np.ndarray], max_length: int, rows: np.ndarray
) -> Iterator[Span]:
    """Returns the valid spans in all windows of a question, `rows` [n]; best first."""
    offset, length = windows.offset[rows, None], windows.length[rows, None]
    starts = top["start_indexes"][rows] - offset  # [n, K]
    ends = top["end_indexes"][rows] - offset
    distance = ends[:, None, :] - starts[:, :, None]  # [n, K starts, K ends]
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


def make_n_best(
    spans: Iterable[Span],
    null: Answer | None,
    find: Callable[[Any, Any], tuple[str, int | None, int | None]],
    n_best_size: int,
) -> NBest:
    """Returns the n-best list for spans sorted best first; drops spans whose text is in the list.

    `null` is SQuAD 2.0's "no answer", which is always in the list, if necessary in addition to
    `n_best_size` others. `find` returns the text, start and end of an answer, given the first and
    last token of a span.
    """
    answers: dict[str, Answer] = {}
    for start, end, start_logit, end_logit in spans:
        if len(answers) < n_best_size and null and null.score > start_logit + end_logit:
            answers.setdefault("", null)
        if len(answers) >= n_best_size:
            break
        text, *place = find(start, end)
        if text not in answers:
            answers[text] = Answer(text, start_logit, end_logit, *place)
    if not null:
        return NBest(list(answers.values()) or [Answer(_NO_VALID_SPAN, 0.0, 0.0)])
    answers.setdefault("", null)
    best = next((answer for answer in answers.values() if answer.text), Answer("", 0.0, 0.0))
    return NBest(list(answers.values()), null.score - best.start_logit - best.end_logit)


def _make_find(
    windows: Windows, question: int, pieces: Mapping[int, str], normalize: Callable[[str], str]
) -> Callable[[int, int], tuple[str, int | None, int | None]]:
    """Returns the function `find` of `make_n_best` for a question."""
    text_start = windows.first_word(question)
    # Context and words have the same characters, except for spaces.
    context = enumerate(windows.questions[question].context)
    places = [index for index, char in context if char not in SEPARATORS]

    def find(start: int, end: int) -> tuple[str, int | None, int | None]:
        first, last = int(windows.token_words[start]), int(windows.token_words[end])
        words = windows.words[first : last + 1]
        text = " ".join(words)
        part = slice(0, len(text))
        # A span of whole words needs no alignment with the characters of the words.
        if windows.word_splits[first] != start or windows.word_splits[last + 1] != end + 1:
            answer = join_pieces(pieces[id_] for id_ in windows.token_ids[start : end + 1].tolist())
            part = _align(answer, text, " ".join(filter(None, map(normalize, words))))
        if not places:
            return text[part], None, None
        before = sum(map(len, windows.words[text_start:first]))
        i, j = (before + len(text[:n].replace(" ", "")) for n in (part.start, part.stop))
        return text[part], places[i], places[j - 1] + 1

    return find


def join_pieces(pieces: Iterable[str]) -> str:
    """Joins word pieces into words, separated by spaces."""
    text = " ".join(pieces).replace(" ##", "").replace("##", "")
    return " ".join(text.split())


def get_final_text(pred_text: str, orig_text: str, do_lower_case: bool) -> str:
    """Returns the part of `orig_text`, a sequence of whole words, that matches `pred_text`.

    Returns all of `orig_text` if `pred_text` is not found in it, or if normalization changes the
    number of its non-space characters, for instance by removing combining accents.
    """
    tokens = BasicTokenizer(do_lower_case=do_lower_case).tokenize(orig_text)
    return orig_text[_align(pred_text, orig_text, " ".join(tokens))]


def _align(part: str, text: str, normalized: str) -> slice:
    """Returns the characters of `text` that `part` of the normalized text comes from, or all."""
    start = normalized.find(part)
    if start < 0 or part != part.strip(" ") or not part:
        return slice(0, len(text))
    # Positions of the non-space characters, which correspond one to one.
    text_positions, normalized_positions = (
        [index for index, char in enumerate(chars) if char != " "] for chars in (text, normalized)
    )
    if len(text_positions) != len(normalized_positions):
        return slice(0, len(text))
    first, last = map(normalized_positions.index, (start, start + len(part) - 1))
    return slice(text_positions[first], text_positions[last] + 1)


def probabilities(answers: Sequence[Answer]) -> list[float]:
    """Returns the softmax of the scores, bit-identical to the original's."""
    highest = max(answer.score for answer in answers)
    exponentials = [math.exp(answer.score - highest) for answer in answers]
    # Not `sum`, which rounds differently since Python 3.12.
    total = functools.reduce(operator.add, exponentials)
    return [value / total for value in exponentials]


def n_best_json(n_best_lists: Mapping[str, Sequence[Answer]]) -> str:
    """Formats n-best lists, keyed by question id, like the original's `nbest_predictions.json`."""
    keys = "text", "probability", "start_logit", "end_logit"
    contents = {
        qas_id: [
            dict(zip(keys, (x.text, probability, *x[1:3]), strict=True))
            for x, probability in zip(answers, probabilities(answers), strict=True)
        ]
        for qas_id, answers in n_best_lists.items()
    }
    return json.dumps(contents, indent=4) + "\n"


class AnswerSpan(NamedTuple):
    """An answer, its probability among the n-best answers, and its place in the context.

    `start` and `end` (exclusive) count characters; None if the question has no answer.
    """

    text: str
    probability: float
    start: int | None
    end: int | None


class _Answers(NamedTuple):
    text: str
    n_best: list[tuple[str, float]]
    null_odds: float | None


class AnswerPrediction(_Answers):
    """The predicted answer to a question: a tuple (text, n_best, null_odds).

    Attributes:
        text: the answer; "" if there is none.
        n_best: the most likely answers, best first, with probabilities that add up to 1.
        null_odds: score of "no answer" minus score of the best answer, in logits; None without
            `version_2_with_negative`.
        spans: the answers of `n_best`, with their places in the context.
    """

    spans: Sequence[AnswerSpan] = ()


class Predictions(Sequence[AnswerPrediction]):
    """A sequence of predictions in the order of the questions; its dicts have question ids as keys.

    If questions share an id, the dicts describe only the last of these questions.
    """

    def __init__(
        self, examples: Sequence[SquadExample], n_best_lists: Sequence[NBest], threshold: float
    ) -> None:
        self._n_best_lists = n_best_lists
        self.threshold = threshold
        self.n_best = {e.qas_id: n_best for e, n_best in zip(examples, n_best_lists, strict=True)}
        self.texts = {qas_id: n_best.text(threshold) for qas_id, n_best in self.n_best.items()}
        odds = ((qas_id, n_best.null_odds) for qas_id, n_best in self.n_best.items())
        self.null_odds = {qas_id: value for qas_id, value in odds if value is not None}

    def __len__(self) -> int:
        return len(self._n_best_lists)

    def __getitem__(self, index: Any) -> Any:
        n_best = self._n_best_lists[index]
        pairs = zip(n_best.answers, probabilities(n_best.answers), strict=True)
        spans = [AnswerSpan(x.text, share, x.start, x.end) for x, share in pairs]
        answers = [span[:2] for span in spans]
        prediction = AnswerPrediction(n_best.text(self.threshold), answers, n_best.null_odds)
        prediction.spans = spans
        return prediction

    def contents(self) -> dict[str, str]:
        """Returns the contents of the prediction files, keyed by file name."""
        n_best_lists = {qas_id: n_best.answers for qas_id, n_best in self.n_best.items()}
        contents = {
            PREDICTIONS: json.dumps(self.texts, indent=4) + "\n",
            NBEST_PREDICTIONS: n_best_json(n_best_lists),
        }
        if self.null_odds:
            contents[NULL_ODDS] = json.dumps(self.null_odds, indent=4) + "\n"
        return contents
