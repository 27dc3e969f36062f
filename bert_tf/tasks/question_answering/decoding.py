"""From begins and ends of answers to texts: the original's n-best lists of questions on texts.

N windows, K begins and ends that are looked at in each.
"""

import functools
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bert_tf.tasks.question_answering.answer_text import join_pieces, project
from bert_tf.tasks.question_answering.windows import Windows
from bert_tf.tokenization import FullTokenizer

# Pairs of begin and end that are looked at together, about.
_PAIRS_TOGETHER = 1 << 20
# Of the original, where not one answer is possible.
_NOTHING = "empty"


@dataclass(frozen=True)
class Best:
    """The likeliest begins and ends of each window, the likeliest first.

    Of equals the one that stands before the other in the row comes first.

    Attributes:
        start_indexes: integers [N, K]; places in the row.
        start_logits: float32 [N, K].
        end_indexes: integers [N, K].
        end_logits: float32 [N, K].
        null_start_logits: float32 [N]; of `[CLS]`, which stands for "no answer".
        null_end_logits: float32 [N].
    """

    start_indexes: np.ndarray
    start_logits: np.ndarray
    end_indexes: np.ndarray
    end_logits: np.ndarray
    null_start_logits: np.ndarray
    null_end_logits: np.ndarray


@dataclass(frozen=True, slots=True)
class Answer:
    """An entry of an n-best list; no answer is the text ""."""

    text: str
    start_logit: float
    end_logit: float

    @property
    def score(self) -> float:
        """Sum of both logits."""
        return self.start_logit + self.end_logit


@dataclass(frozen=True)
class AnswerOptions:
    """What counts as an answer, as the flags of the same names."""

    n_best_size: int = 20
    max_answer_length: int = 30
    version_2_with_negative: bool = False


@dataclass(frozen=True)
class NBest:
    """What is known about a question.

    Attributes:
        answers: the likeliest, the likeliest first; there is one at least.
        null_odds: how much more probable "no answer" is than the best answer, in logits; None
            without `version_2_with_negative`.
    """

    answers: list[Answer]
    null_odds: float | None = None

    def text(self, null_score_diff_threshold: float) -> str:
        """The answer: the best one, or "" if that is less probable than "no answer"."""
        if self.null_odds is None:
            return self.answers[0].text
        return "" if self.null_odds > null_score_diff_threshold else self.best_text()

    def best_text(self) -> str:
        """The best answer, if there is one."""
        return next((answer.text for answer in self.answers if answer.text), "")


def decode(
    windows: Windows, best: Best, tokenizer: FullTokenizer, options: AnswerOptions
) -> list[NBest]:
    """The n-best list of each question of `windows`, as the original makes it.

    A pair of begin and end counts if both are in the window, the begin has its most context there,
    and the end is neither before the begin nor too far behind it. (That the end is not asked for
    its context is the original's way.)

    Where the original fails, with `version_2_with_negative`: a question without one possible answer
    gets the answer "", and its null score is measured against 0.
    """
    nulls = _nulls(windows, best) if options.version_2_with_negative else None
    texts = _Texts(windows, tokenizer)
    # Of windows.
    size = max(1, _PAIRS_TOGETHER // best.start_indexes.shape[1] ** 2)
    found: list[NBest] = []
    for first, last in _blocks(windows, size):
        for entries in _entries(windows, best, options.max_answer_length, first, last, size):
            null = nulls[len(found)] if nulls else None
            found.append(n_best(entries, null, texts.of, options.n_best_size))
    return found


def _blocks(windows: Windows, size: int) -> Iterator[tuple[int, int]]:
    """First question, and the one after the last, of blocks with about so many windows."""
    splits = np.searchsorted(windows.example, np.arange(len(windows.examples) + 1))
    first = 0
    while first < len(windows.examples):
        last = int(np.searchsorted(splits, splits[first] + size, "right")) - 1
        last = min(max(last, first + 1), len(windows.examples))
        yield first, last
        first = last


# First and last token (numbers of all texts' tokens here), and their logits.
Entry = tuple[Any, Any, float, float]


def _entries(
    windows: Windows, best: Best, longest: int, first: int, last: int, size: int
) -> Iterator[Iterator[Entry]]:
    """For each question from `first` to `last` its pairs that count, the likeliest first."""
    begin, stop = np.searchsorted(windows.example, [first, last])
    # A question about a book has more windows than go together.
    parts = [
        _pairs(windows, best, longest, np.arange(row, min(row + size, stop)))
        for row in range(begin, max(stop, begin + 1), size)
    ]
    example, *columns = (np.concatenate(column) for column in zip(*parts, strict=True))
    # Of equals the first stays first.
    order = np.lexsort((-(columns[2] + columns[3]), example))
    splits = np.searchsorted(example, np.arange(first, last + 1)).tolist()
    sorted_columns = [column[order].tolist() for column in columns]
    for a, b in itertools.pairwise(splits):
        yield zip(*(column[a:b] for column in sorted_columns), strict=True)


def _pairs(windows: Windows, best: Best, longest: int, rows: np.ndarray) -> tuple[np.ndarray, ...]:
    """Of each pair in some windows that counts: question, first and last token, their logits."""
    offset, length = windows.offset[rows, None], windows.length[rows, None]
    starts = best.start_indexes[rows] - offset  # [n, K]
    ends = best.end_indexes[rows] - offset
    distance = ends[:, None, :] - starts[:, :, None]  # [n, K, K]
    counts = (distance >= 0) & (distance < longest)
    counts &= windows.has_most_context(rows, starts)[:, :, None]
    counts &= ((ends >= 0) & (ends < length))[:, None, :]
    row, i, j = np.nonzero(counts)
    token = windows.first_token(rows)[row]
    return (
        windows.example[rows][row],
        token + starts[row, i],
        token + ends[row, j],
        best.start_logits[rows][row, i].astype(np.float64),
        best.end_logits[rows][row, j].astype(np.float64),
    )


def _nulls(windows: Windows, best: Best) -> list[Answer]:
    """ "No answer" for each question: as the window says that thinks least of it."""
    starts = best.null_start_logits.astype(np.float64)
    ends = best.null_end_logits.astype(np.float64)
    scores = starts + ends
    order = np.lexsort((scores, windows.example))
    # A question without a window has zeros.
    found = [Answer("", 0.0, 0.0)] * len(windows.examples)
    example, first = np.unique(windows.example, return_index=True)
    for index, row in zip(example.tolist(), order[first].tolist(), strict=True):
        found[index] = Answer("", float(starts[row]), float(ends[row]))
    return found


def n_best(
    entries: Iterable[Entry],
    null: Answer | None,
    text_of: Callable[[Any, Any], str],
    n_best_size: int,
) -> NBest:
    """The n-best list of entries, the likeliest first; of equal texts the likeliest counts.

    `null` is "no answer" of SQuAD 2.0; `text_of` gives the text from a first to a last token.
    """
    found: dict[str, Answer] = {}
    for start, end, start_logit, end_logit in entries:
        if len(found) >= n_best_size:
            break
        if null and "" not in found and null.score > start_logit + end_logit:
            found[""] = null
            if len(found) >= n_best_size:
                break
        text = text_of(start, end)
        if text not in found:
            found[text] = Answer(text, start_logit, end_logit)
    if null:
        # One entry more than asked for, if that many are better.
        found.setdefault("", null)
    answers = list(found.values()) or [Answer(_NOTHING, 0.0, 0.0)]
    if not null:
        return NBest(answers)
    best = next((answer for answer in answers if answer.text), Answer("", 0.0, 0.0))
    return NBest(answers, null.score - best.start_logit - best.end_logit)


class _Texts:
    """Answers as they stand in the texts."""

    def __init__(self, windows: Windows, tokenizer: FullTokenizer) -> None:
        self._windows = windows
        self._tokens = tokenizer.inv_vocab
        self._splits = windows.word_splits
        self._words = windows.words
        self._normalized = functools.cache(
            lambda word: " ".join(tokenizer.basic_tokenizer.tokenize(word))
        )

    def of(self, start: int, end: int) -> str:
        """From a first to a last token."""
        windows = self._windows
        first, last = int(windows.token_words[start]), int(windows.token_words[end])
        words = self._words[first : last + 1]
        text = " ".join(words)
        if self._splits[first] == start and self._splits[last + 1] == end + 1:
            # Whole words are projected onto themselves.
            return text
        pieces = [self._tokens[index] for index in windows.token_ids[start : end + 1].tolist()]
        normalized = " ".join(filter(None, map(self._normalized, words)))
        return project(join_pieces(pieces), text, normalized)


def probabilities(answers: Sequence[Answer]) -> list[float]:
    """Softmax of the scores of an n-best list, in Python's numbers, one after the other."""
    highest = max(answer.score for answer in answers)
    found = [math.exp(answer.score - highest) for answer in answers]
    total = 0.0
    # Not `sum`, which since Python 3.12 is more exact.
    for value in found:
        total += value
    return [value / total for value in found]


def n_best_json(lists: Mapping[str, Sequence[Answer]]) -> str:
    """`nbest_predictions.json`: what `json.dumps` with an indent of 4 gives, but many times faster.

    Args:
        lists: n-best lists by the names of their questions.
    """
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
