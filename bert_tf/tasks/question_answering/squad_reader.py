"""Reads questions about texts from files in the format of SQuAD 1.1 and 2.0.

Rajpurkar et al. 2016, "SQuAD: 100,000+ Questions for Machine Comprehension of Text", and 2018,
"Know What You Don't Know: Unanswerable Questions for SQuAD".
"""

import collections
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bert_tf import files
from bert_tf.errors import UserError, shortened

_logger = logging.getLogger(__name__)

# The original splits texts only at these characters, not at U+00A0, U+3000 or U+2028.
_WORD = re.compile("[^ \t\r\n\u202f]+")
# Descriptions of doubtful questions in warnings.
_EMPTY = 'empty (check "question")'
_CONTRADICTORY = 'impossible, but have answers (check "is_impossible")'
# Number of question ids listed in a warning.
_MAX_LISTED = 5
# The default limit of `read_json` is for small files; data sets may be larger.
_MAX_BYTES = 1 << 36
_FORMAT = (
    '{"data": [{"paragraphs": [{"context": TEXT, "qas": [{"id": TEXT, "question": TEXT, '
    '"answers": [{"text": TEXT, "answer_start": NUMBER}]}]}]}]}'
)


class Paragraph(NamedTuple):
    """The words of a text, and for each character the index of the word it is in or follows."""

    words: list[str]
    word_of_character: list[int]  # -1 before the first word


def split_words(text: str) -> Paragraph:
    """Splits a text into words."""
    words = list(_WORD.finditer(text))
    starts = [word.start() for word in words]
    indexes = np.searchsorted(starts, np.arange(len(text)), "right") - 1
    return Paragraph([word.group() for word in words], indexes.tolist())


@dataclass(slots=True)
class SquadExample:
    """A question about a text.

    Attributes:
        qas_id: the question's id, unique in the file.
        question_text: the question.
        doc_tokens: words of the text; questions about the same text share the list.
        orig_answer_text: answer to train on; "" if there is none, None if not training.
        start_position: index of the answer's first word; -1 without answer, None if not training.
        end_position: index of the answer's last word, likewise.
        is_impossible: whether the text contains no answer; False if not training.
        answers: all correct answers; empty if there are none, None if the file does not have them.
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
    """Reads all questions in a file, as the original does.

    For training, a question needs exactly one answer or, with `version_2_with_negative`,
    `is_impossible`. Questions whose answer is not in the text at `answer_start` are skipped with a
    warning. Raises a UserError that locates the first invalid entry.
    """
    examples: list[SquadExample] = []
    skipped: list[str] = []
    doubtful: dict[str, list[str]] = {_EMPTY: [], _CONTRADICTORY: []}
    for location, paragraph, entry in _read_questions(path):
        qas_id = str(_get(entry, "id", (str, int, float), location))
        question = _get(entry, "question", str, location)
        doubtful[_EMPTY] += [qas_id] * (not question.strip())
        if version_2_with_negative and entry.get("is_impossible") is True and entry.get("answers"):
            doubtful[_CONTRADICTORY].append(qas_id)
        answer = _answer(paragraph, entry, version_2_with_negative, location) if is_training else ()
        if is_training and not answer:
            skipped.append(qas_id)
            continue
        example = SquadExample(qas_id, question, paragraph.words, *answer)
        example.answers = _answer_texts(entry)
        examples.append(example)
    if not examples:
        reason = f": skipped {len(skipped)} whose answer is not in the text" if skipped else ""
        raise UserError(f"{path} has no usable questions{reason}")
    if skipped:
        total, ids = len(skipped) + len(examples), shortened(skipped, _MAX_LISTED)
        message = "%s: skipped %d of %d questions, because their answer is not at answer_start: %s"
        _logger.warning(message, path, len(skipped), total, ids)
        _logger.debug("Skipped: %s", ", ".join(skipped))
    count = len(examples) + len(skipped)
    if len(doubtful[_EMPTY]) == count:
        raise UserError(f'{path}: all questions are empty. Check "question"')
    for problem, ids in doubtful.items():
        if ids:
            message = "%s: %d of %d questions are %s, the first is %s"
            _logger.warning(message, path, len(ids), count, problem, ids[0])
    counts = collections.Counter(example.qas_id for example in examples)
    duplicates = sorted(qas_id for qas_id, count in counts.items() if count > 1)
    if duplicates:
        message = "%s: %d ids belong to several questions, of which only the last is used: %s"
        _logger.warning(message, path, len(duplicates), shortened(duplicates, _MAX_LISTED))
    return examples


def _read_questions(path: str) -> Iterator[tuple[str, Paragraph, dict[str, Any]]]:
    """Yields the location in the file, the text and the JSON object of each question."""
    content = files.read_json(path, _MAX_BYTES)
    for n, article in enumerate(_get(content, "data", list, path)):
        location = f"{path}: data[{n}]"
        for m, entry in enumerate(_get(article, "paragraphs", list, location)):
            paragraph_location = f"{location}.paragraphs[{m}]"
            paragraph = split_words(_get(entry, "context", str, paragraph_location))
            for k, question in enumerate(_get(entry, "qas", list, paragraph_location)):
                yield f"{paragraph_location}.qas[{k}]", paragraph, question


def _get(parent: Any, key: str, kind: Any, location: str) -> Any:
    if isinstance(parent, dict) and isinstance(parent.get(key), kind):
        return parent[key]
    problem = f'has no "{key}"'
    if isinstance(parent, dict) and key in parent:
        problem = f'has an invalid "{key}": {str(parent[key])[:40]!r}'
    raise UserError(f"{location} {problem}. The format of SQuAD is {_FORMAT}")


def _answer_texts(entry: dict[str, Any]) -> tuple[str, ...] | None:
    """Returns the correct answers; None if they are missing or invalid."""
    try:
        return tuple(_get(x, "text", str, "") for x in _get(entry, "answers", list, ""))
    except UserError:
        return None


def _answer(
    paragraph: Paragraph, entry: dict[str, Any], version_2_with_negative: bool, location: str
) -> tuple:
    """Returns answer, first and last word, `is_impossible`; () if the answer is not in the text."""
    if version_2_with_negative:
        if "is_impossible" not in entry:
            advice = "omit --version_2_with_negative for SQuAD 1.1 files"
            raise UserError(f'{location} has no "is_impossible": {advice}')
        if _get(entry, "is_impossible", bool, location):
            return "", -1, -1, True
    answers = _get(entry, "answers", list, location)
    if len(answers) != 1:
        advice = ". Evaluation data may have several" if answers else ""
        if not answers and not version_2_with_negative:
            advice = ". For questions without an answer, pass --version_2_with_negative=true"
        needed = "training questions need exactly one"
        raise UserError(f"{location} has {len(answers)} answers: {needed}{advice}")
    answer_location = f"{location}.answers[0]"
    text = _get(answers[0], "text", str, answer_location)
    index = _get(answers[0], "answer_start", int, answer_location)
    words, word_of_character = paragraph
    try:
        start, end = (word_of_character[i] for i in (index, index + len(text) - 1))
    except IndexError:
        problem = f"the answer {text[:40]!r} begins at {index}, but the text has"
        raise UserError(f"{location}: {problem} {len(word_of_character)} characters") from None
    # Compares whole words: `answer_start` may be wrong, but inside the right word.
    has_answer = " ".join(text.split()) in " ".join(words[start : end + 1])
    return (text, start, end, False) if has_answer else ()
