"""Decodes start and end logits into n-best lists of answers, as the original does.

N windows, K most likely starts and ends of each.
"""

import functools
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bert_tf.tasks.question_answering.answer_text import align, join_pieces
from bert_tf.tasks.question_answering.options import SquadOptions
from bert_tf.tasks.question_answering.windows import Windows
from bert_tf.tokenization import FullTokenizer

# Pairs of start and end that are decoded at a time, about.
_CHUNK_PAIRS = 1 << 20
# The original's answer if no answer is possible.
_NO_ANSWER = "empty"


@dataclass(frozen=True)
class TopSpans:
    """The most likely starts and ends of each window, best first; ties in the order of positions.

    Indexes, positions in the row, and logits are [N, K]; the logits of `[CLS]`, which stands for
    "no answer", are [N].
    """

    start_indexes: np.ndarray
    start_logits: np.ndarray
    end_indexes: np.ndarray
    end_logits: np.ndarray
    null_start_logits: np.ndarray
    null_end_logits: np.ndarray


@dataclass(frozen=True, slots=True)
class Answer:
    """An entry of an n-best list; the text "" is "no answer"."""

    text: str
    start_logit: float
    end_logit: float

    @property
    def score(self) -> float:
        """The sum of both logits."""
        return self.start_logit + self.end_logit


@dataclass(frozen=True)
class NBest:
    """The most likely answers to a question.

    Attributes:
        answers: at least one, best first.
        null_odds: how much more probable "no answer" is than the best answer, in logits; None
            without `version_2_with_negative`.
    """

    answers: list[Answer]
    null_odds: float | None = None

    def text(self, null_score_diff_threshold: float) -> str:
        """Returns the best answer, or "" if "no answer" is too much more probable."""
        if self.null_odds is None:
            return self.answers[0].text
        return "" if self.null_odds > null_score_diff_threshold else self.best_text()

    def best_text(self) -> str:
        """Returns the best answer that is not "", if there is one."""
        return next((answer.text for answer in self.answers if answer.text), "")


def decode(
    windows: Windows, top: TopSpans, tokenizer: FullTokenizer, options: SquadOptions
) -> list[NBest]:
    """Returns the n-best list of each question of `windows`.

    A span is valid if start and end are in the window, the start has its maximum context there, and
    the length is 1 to `max_answer_length`. (The original does not check the context of the end.)

    The original fails if `version_2_with_negative` and a question has no valid span; here its
    answer is "", and the null score is compared with 0.
    """
    nulls = _null_answers(windows, top) if options.version_2_with_negative else None
    text_of = _text_function(windows, tokenizer)
    return [
        n_best(entries, nulls[index] if nulls else None, text_of, options.n_best_size)
        for index, entries in enumerate(_entries(windows, top, options.max_answer_length))
    ]


# First and last token (indexes in the tokens of all texts here), and their logits.
Entry = tuple[Any, Any, float, float]


def _entries(windows: Windows, top: TopSpans, max_length: int) -> Iterator[Iterator[Entry]]:
    """Yields for each question its valid spans, best first."""
    size = max(1, _CHUNK_PAIRS // top.start_indexes.shape[1] ** 2)
    count = len(windows.questions)
    splits = np.searchsorted(windows.question_index, np.arange(count + 1))
    first = 0
    while first < count:
        # As many questions as have `size` windows, but at least one.
        last = max(int(np.searchsorted(splits, splits[first] + size, "right")) - 1, first + 1)
        begin, end = splits[first], splits[last]
        # A question about a book has more windows than that.
        parts = [
            _valid_spans(windows, top, max_length, np.arange(row, min(row + size, end)))
            for row in range(begin, max(end, begin + 1), size)
        ]
        question, *columns = (np.concatenate(column) for column in zip(*parts, strict=True))
        # Stable: ties stay in the order of windows and positions.
        order = np.lexsort((-(columns[2] + columns[3]), question))
        ends = np.searchsorted(question, np.arange(first, last + 1)).tolist()
        sorted_columns = [column[order].tolist() for column in columns]
        for a, b in itertools.pairwise(ends):
            yield zip(*(column[a:b] for column in sorted_columns), strict=True)
        first = last


def _valid_spans(
    windows: Windows, top: TopSpans, max_length: int, rows: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Question, first and last token and both logits of the valid spans of some windows."""
    offset, length = windows.offset[rows, None], windows.length[rows, None]
    starts = top.start_indexes[rows] - offset  # [n, K]
    ends = top.end_indexes[rows] - offset
    distance = ends[:, None, :] - starts[:, :, None]  # [n, K, K]
    valid = (distance >= 0) & (distance < max_length)
    valid &= windows.has_most_context(rows, starts)[:, :, None]
    valid &= ((ends >= 0) & (ends < length))[:, None, :]
    row, i, j = np.nonzero(valid)
    first_token = windows.first_token(rows)[row]
    return (
        windows.question_index[rows][row],
        first_token + starts[row, i],
        first_token + ends[row, j],
        top.start_logits[rows][row, i].astype(np.float64),
        top.end_logits[rows][row, j].astype(np.float64),
    )


def _null_answers(windows: Windows, top: TopSpans) -> list[Answer]:
    """Returns "no answer" for each question, from the window that gives it the lowest score."""
    starts = top.null_start_logits.astype(np.float64)
    ends = top.null_end_logits.astype(np.float64)
    order = np.lexsort((starts + ends, windows.question_index))
    # Zeros for a question without windows.
    nulls = [Answer("", 0.0, 0.0)] * len(windows.questions)
    questions, first = np.unique(windows.question_index, return_index=True)
    for index, row in zip(questions.tolist(), order[first].tolist(), strict=True):
        nulls[index] = Answer("", float(starts[row]), float(ends[row]))
    return nulls


def n_best(
    entries: Iterable[Entry],
    null: Answer | None,
    text_of: Callable[[Any, Any], str],
    n_best_size: int,
) -> NBest:
    """Makes an n-best list of entries, best first; of those with the same text the best one counts.

    `null` is "no answer" of SQuAD 2.0, which may be one more than `n_best_size`; `text_of` returns
    the text from a first to a last token.
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


def _text_function(windows: Windows, tokenizer: FullTokenizer) -> Callable[[int, int], str]:
    """Returns the function from first and last token to the answer as the text has it."""
    normalize = functools.cache(lambda word: " ".join(tokenizer.basic_tokenizer.tokenize(word)))

    def text_of(start: int, end: int) -> str:
        first, last = int(windows.token_words[start]), int(windows.token_words[end])
        words = windows.words[first : last + 1]
        text = " ".join(words)
        # Whole words need no alignment.
        if windows.word_splits[first] == start and windows.word_splits[last + 1] == end + 1:
            return text
        ids = windows.token_ids[start : end + 1].tolist()
        pieces = (tokenizer.inv_vocab[token_id] for token_id in ids)
        return align(join_pieces(pieces), text, " ".join(filter(None, map(normalize, words))))

    return text_of


def probabilities(answers: Sequence[Answer]) -> list[float]:
    """Returns the softmax of the scores, to the original's last digit."""
    highest = max(answer.score for answer in answers)
    exponentials = [math.exp(answer.score - highest) for answer in answers]
    total = 0.0
    # `sum` is more exact since Python 3.12.
    for value in exponentials:
        total += value
    return [value / total for value in exponentials]


def n_best_json(lists: Mapping[str, Sequence[Answer]]) -> str:
    """Formats n-best lists by question id as `json.dumps(..., indent=4)` does, but much faster."""
    quoted = functools.lru_cache(maxsize=1 << 16)(json.dumps)
    parts = []
    for name, answers in lists.items():
        entries = [
            f'        {{\n            "text": {quoted(answer.text)},\n'
            f'            "probability": {_number(probability)},\n'
            f'            "start_logit": {_number(answer.start_logit)},\n'
            f'            "end_logit": {_number(answer.end_logit)}\n        }}'
            for answer, probability in zip(answers, probabilities(answers), strict=True)
        ]
        parts.append(f"    {quoted(name)}: [\n" + ",\n".join(entries) + "\n    ]")
    return "{\n" + ",\n".join(parts) + "\n}\n" if parts else "{}\n"


def _number(value: float) -> str:
    return repr(value) if math.isfinite(value) else json.dumps(value)
