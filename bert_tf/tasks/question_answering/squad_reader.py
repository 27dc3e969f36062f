"""Reads questions about texts from files in the format of SQuAD 1.1 and 2.0.

Rajpurkar et al. 2016, "SQuAD: 100,000+ Questions for Machine Comprehension of Text", and 2018,
"Know What You Don't Know: Unanswerable Questions for SQuAD".
"""

import bisect
import collections
import json
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bert_tf import files
from bert_tf.data.cell_values import some
from bert_tf.errors import UserError

_logger = logging.getLogger(__name__)

# The original splits texts at these only: U+00A0, U+3000 and U+2028 stay inside words.
_WORD = re.compile("[^ \t\r\n\u202f]+")
# Questions that a warning names.
_MAX_NAMES = 5
# JSON often is one line, for which there is no limit.
_MAX_BYTES = 1 << 36
_FORMAT = (
    '{"data": [{"paragraphs": [{"context": TEXT, "qas": [{"id": TEXT, "question": TEXT, '
    '"answers": [{"text": TEXT, "answer_start": NUMBER}]}]}]}]}'
)


@dataclass(frozen=True, slots=True, eq=False)
class Paragraph:
    """A text: its words, the index of each word's first character, and the number of characters."""

    words: list[str]
    starts: list[int]
    length: int

    @classmethod
    def of(cls, context: str) -> "Paragraph":
        """Splits a text into words."""
        words = list(_WORD.finditer(context))
        return cls([m.group() for m in words], [m.start() for m in words], len(context))

    def word_at(self, index: int) -> int:
        """Returns the word that a character is in or follows; -1 before the first word.

        The index works as in a list: it may be negative, and may raise an IndexError.
        """
        if not -self.length <= index < self.length:
            raise IndexError(index)
        return bisect.bisect_right(self.starts, index % self.length) - 1


@dataclass(slots=True)
class SquadExample:
    """A question about a text.

    Attributes:
        qas_id: its id, unique in the file.
        question_text: the question.
        doc_tokens: the words of the text; questions about one text share the list.
        orig_answer_text: the answer to train on; "" for no answer, None except to train.
        start_position: index of the answer's first word; -1 for no answer, None except to train.
        end_position: index of its last word, likewise.
        is_impossible: whether the text has no answer; False except to train.
        answers: all correct answers; empty for no answer, None if the file has no answers.
    """

    qas_id: str
    question_text: str
    doc_tokens: list[str]
    orig_answer_text: str | None = None
    start_position: int | None = None
    end_position: int | None = None
    is_impossible: bool = False
    answers: tuple[str, ...] | None = None


def read_squad_examples(
    path: str, is_training: bool, version_2_with_negative: bool
) -> list[SquadExample]:
    """Reads all questions of a file, as the original does; a UserError says what is invalid where.

    To train on, a question needs exactly one answer, or `is_impossible` with
    `version_2_with_negative`. A warning lists questions that are left out, because their text does
    not contain the answer where `answer_start` says.
    """
    examples: list[SquadExample] = []
    left_out: list[str] = []
    for place, paragraph, entry in _questions(path):
        qas_id = str(_value(entry, "id", (str, int, float), place))
        question = _value(entry, "question", str, place)
        answer = _answer(paragraph, entry, version_2_with_negative, place) if is_training else ()
        if is_training and not answer:
            left_out.append(qas_id)
            continue
        example = SquadExample(qas_id, question, paragraph.words, *answer)
        example.answers = _answer_texts(entry)
        examples.append(example)
    if not examples:
        reason = f" left: {len(left_out)} have answers that are not in the text" if left_out else ""
        raise UserError(f"{path} has no question{reason}")
    if left_out:
        total, names = len(left_out) + len(examples), some(left_out, _MAX_NAMES)
        message = "%s: %d of %d questions are left out, as answer_start is wrong for them: %s"
        _logger.warning(message, path, len(left_out), total, names)
        _logger.debug("Left out: %s", ", ".join(left_out))
    counts = collections.Counter(example.qas_id for example in examples)
    repeated = sorted(name for name, count in counts.items() if count > 1)
    if repeated:
        message = "%s: %d ids belong to more than one question, of which the last one counts: %s"
        _logger.warning(message, path, len(repeated), some(repeated, _MAX_NAMES))
    return examples


def _questions(path: str) -> Iterator[tuple[str, Paragraph, dict[str, Any]]]:
    """Yields each question with its place in the file and its text."""
    text = files.read_text(path, _MAX_BYTES).removeprefix("\ufeff")
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        reason = f"not JSON ({error.msg} at position {error.colno})"
        expected = "a file in the format of SQuAD was expected"
        raise UserError(f"{path}:{error.lineno}: {reason}: {expected}") from error
    # Numbers of thousands of digits, thousands of brackets.
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON that can be read ({error})") from error
    for n, article in enumerate(_value(content, "data", list, path)):
        place = f"{path}: data[{n}]"
        for m, entry in enumerate(_value(article, "paragraphs", list, place)):
            inside = f"{place}.paragraphs[{m}]"
            paragraph = Paragraph.of(_value(entry, "context", str, inside))
            for k, question in enumerate(_value(entry, "qas", list, inside)):
                yield f"{inside}.qas[{k}]", paragraph, question


def _value(parent: Any, key: str, kind: Any, place: str) -> Any:
    if isinstance(parent, dict) and isinstance(parent.get(key), kind):
        return parent[key]
    problem = f'has no "{key}"'
    if isinstance(parent, dict) and key in parent:
        problem = f'has a "{key}" that makes no sense: {str(parent[key])[:40]!r}'
    raise UserError(f"{place} {problem}. A file in the format of SQuAD is {_FORMAT}")


def _answer_texts(entry: dict[str, Any]) -> tuple[str, ...] | None:
    """Returns the correct answers; None if the file has none, or in another form."""
    try:
        return tuple(_value(x, "text", str, "") for x in _value(entry, "answers", list, ""))
    except UserError:
        return None


def _answer(
    paragraph: Paragraph, entry: dict[str, Any], version_2_with_negative: bool, place: str
) -> tuple:
    """Returns text, first word, last word, `is_impossible`; () if the text lacks the answer."""
    if version_2_with_negative:
        if "is_impossible" not in entry:
            advice = "files of SQuAD 1.1 have none, leave the flag out"
            raise UserError(f'{place} has no "is_impossible" (--version_2_with_negative): {advice}')
        if _value(entry, "is_impossible", bool, place):
            return "", -1, -1, True
    answers = _value(entry, "answers", list, place)
    if len(answers) != 1:
        advice = ". Sets to evaluate on have several" if answers else ""
        if not answers and not version_2_with_negative:
            advice = ". For those without an answer pass --version_2_with_negative=true"
        needed = "to train on, a question needs exactly one"
        raise UserError(f"{place} has {len(answers)} answers: {needed}{advice}")
    inside = f"{place}.answers[0]"
    text = _value(answers[0], "text", str, inside)
    index = _value(answers[0], "answer_start", int, inside)
    try:
        start, end = paragraph.word_at(index), paragraph.word_at(index + len(text) - 1)
    except IndexError:
        end = f"and the text has {paragraph.length} characters"
        raise UserError(f"{place}: the answer {text[:40]!r} begins at {index}, {end}") from None
    # Compares words: a wrong index inside the right word is good enough.
    has_answer = " ".join(text.split()) in " ".join(paragraph.words[start : end + 1])
    return (text, start, end, False) if has_answer else ()
