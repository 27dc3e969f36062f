"""Reads questions about texts from files in the format of SQuAD 1.1 and 2.0.

Rajpurkar et al. 2016, "SQuAD: 100,000+ Questions for Machine Comprehension of Text", and 2018,
"Know What You Don't Know: Unanswerable Questions for SQuAD".
"""

import collections
import functools
import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from bert_tf.base import files
from bert_tf.base.errors import UserError, counted, shortened, warn
from bert_tf.tables.read import is_object

# The original splits texts only at these characters, not at U+00A0, U+3000 or U+2028.
SEPARATORS = " \t\r\n\u202f"
_WORD = re.compile(f"[^{SEPARATORS}]+")
# Problems of questions, as worded in warnings.
_EMPTY = "are empty"
_CONTRADICTORY = "are impossible, but have answers"
_MISALIGNED = "are skipped, because no answer is at answer_start"
_BLANK = "have an answer without text"
_ABSENT = "have no answer that is in the text"
_REPEATED = "have the id of an earlier question, which then does not count"
# Fraction of questions that may have a problem without a warning.
_TOLERATED = {_ABSENT: 0.1}
# Number of question ids listed in a warning.
_MAX_LISTED = 5
# The default limit of `files.read_text` is for small files; data sets may be larger.
_MAX_BYTES = 1 << 36
# The lists in SQuAD's files, each in the objects of the one before; and the level, an index of
# this tuple or its length, of an object with one of these keys.
_LISTS = ("data", "paragraphs", "qas")
_LEVELS = {"qas": 2, "question": 3, "context": 2, "paragraphs": 1}
_FORMAT = (
    '{"data": [{"paragraphs": [{"context": TEXT, "qas": [{"id": TEXT, "question": TEXT, '
    '"answers": [{"text": TEXT, "answer_start": NUMBER}]}]}]}]}; with '
    '--version_2_with_negative=true, questions also have "is_impossible": true or false; or JSON '
    "lines with a question each, as Hugging Face writes them"
)


class Paragraph(NamedTuple):
    """The words of a text, and the index of the word at each character of the text."""

    words: list[str]
    word_index_at: list[int]  # a space belongs to the word before it; -1 before the first word


def split_words(text: str) -> Paragraph:
    """Splits a text into words at white space."""
    matches = list(_WORD.finditer(text))
    starts = [match.start() for match in matches]
    word_indices = np.searchsorted(starts, np.arange(len(text)), "right") - 1
    return Paragraph([match.group() for match in matches], word_indices.tolist())


# In JSON lines, questions about the same text follow each other; they share its words.
_split_words = functools.lru_cache(maxsize=8)(split_words)


@dataclass(slots=True)
class SquadExample:
    """A question about a text.

    Attributes:
        qas_id: the question's id, unique in the file.
        question_text: the question.
        doc_tokens: words of the text; questions about the same text share one list object.
        orig_answer_text: answer to train on; "" if there is none, None if not training.
        start_position: index of the answer's first word; -1 if there is none, None if not training.
        end_position: index of the answer's last word; -1 or None like `start_position`.
        is_impossible: whether the text contains no answer; False if not training.
        answers: all correct answers, () if there are none; None if the file does not list them.
        context: the text, in a `Predictor`.
    """

    qas_id: str
    question_text: str
    doc_tokens: list[str]
    orig_answer_text: str | None = None
    start_position: int | None = None
    end_position: int | None = None
    is_impossible: bool = False
    answers: tuple[str, ...] | None = None
    # Not in the `repr`, which identifies an example.
    context: str = field(default="", repr=False)


def read_squad_examples(
    path: str, is_training: bool, version_2_with_negative: bool
) -> list[SquadExample]:
    """Reads all questions in a file, as the original BERT code does.

    For training, a question needs exactly one answer or, with `version_2_with_negative`, the mark
    `is_impossible`. Questions whose answer is not in the text at `answer_start` are skipped with a
    warning. Raises a UserError that names the location of the first invalid entry.
    """
    examples: list[SquadExample] = []
    ids_by_problem: dict[str, list[str]] = collections.defaultdict(list)
    seen_ids: set[str] = set()
    found = (_find_questions(entry, location) for location, entry in _read_objects(path))
    for location, paragraph, entry in itertools.chain.from_iterable(found):
        qas_id = str(_get(entry, "id", (str, int, float), location))
        question = _get(entry, "question", str, location)
        if not question.strip():
            ids_by_problem[_EMPTY].append(qas_id)
        if version_2_with_negative and entry.get("is_impossible") is True and entry.get("answers"):
            ids_by_problem[_CONTRADICTORY].append(qas_id)
        target: tuple = ()
        if is_training:
            target = _training_answer(paragraph, entry, version_2_with_negative, location)
            if not target:
                ids_by_problem[_MISALIGNED].append(qas_id)
                continue
            if not (target[-1] or target[0].strip()):
                ids_by_problem[_BLANK].append(qas_id)
        if qas_id in seen_ids:
            ids_by_problem[_REPEATED].append(qas_id)
        seen_ids.add(qas_id)
        example = SquadExample(qas_id, question, paragraph.words, *target)
        example.answers = _answer_texts(entry)
        if not is_training and example.answers:
            text = " ".join(paragraph.words)
            if not any(" ".join(answer.split()) in text for answer in example.answers):
                ids_by_problem[_ABSENT].append(qas_id)
        examples.append(example)
    total = len(examples) + len(ids_by_problem[_MISALIGNED])
    for problem, ids in ids_by_problem.items():
        if len(ids) > _TOLERATED.get(problem, 0) * total:
            listed = shortened(ids, _MAX_LISTED)
            problem = counted(len(ids), "question", problem, of=total)
            warn(f"{problem}: {listed}", at=path)
    if not examples:
        raise UserError("no usable questions", at=path)
    return examples


def _find_questions(
    entry: Any, location: str, level: int = 0, paragraph: Paragraph | None = None
) -> Iterator[tuple[str, Paragraph, dict[str, Any]]]:
    """Yields each question: its location in the file, its text in words, and its JSON object.

    `entry` is SQuAD's object; or, in JSON lines or a list, an article, a paragraph with "qas", or a
    question with its "context". `level` says which.
    """
    keys = entry.keys() if isinstance(entry, dict) else ()
    if keys == {"header"}:  # the first line of MRQA's files
        return
    if level < len(_LISTS):
        level = next((n for key, n in _LEVELS.items() if key in keys), level)
    if level >= _LEVELS["context"] and not paragraph:
        paragraph = _split_words(_get(entry, "context", str, location))
    if level == len(_LISTS) and paragraph:
        yield location, paragraph, _to_squad(entry, location)
        return
    path = f"{location}{'.' if level else ': '}{_LISTS[level]}"
    for index, child in enumerate(_get(entry, _LISTS[level], list, location)):
        yield from _find_questions(child, f"{path}[{index}]", level + 1, paragraph)


def _read_objects(path: str) -> Iterator[tuple[str, Any]]:
    text = files.read_text(path, _MAX_BYTES).removeprefix("\ufeff")
    advice = f". The format of SQuAD is {_FORMAT}"
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if len(lines) > 1 and is_object(lines[0][1]):
        for number, line in lines:
            yield f"{path}:{number}", files.parse_json(line, path, number, advice)
        return
    content = files.parse_json(text, path, advice=advice)
    if isinstance(content, list) and content:
        yield from ((f"{path}: [{n}]", value) for n, value in enumerate(content))
    else:
        yield path, content


def _to_squad(entry: Any, location: str) -> Any:
    """Converts a question of Hugging Face's or MRQA's files to SQuAD's form."""
    if not isinstance(entry, dict):
        return entry
    answers = entry.get("answers")
    if isinstance(answers, dict):  # Hugging Face's lists
        lists = [_get(answers, key, list, location) for key in answers]
        answers = [dict(zip(answers, row, strict=True)) for row in zip(*lists, strict=False)]
        entry = {"is_impossible": not answers, **entry, "answers": answers}
    elif "detected_answers" in entry:  # MRQA's spans, and texts
        detected = _get(entry, "detected_answers", list, location)
        pairs = ((a, span) for a in detected for span in _get(a, "char_spans", list, location)[:1])
        found = [{**answer, "answer_start": span[0]} for answer, span in pairs if span]
        found += [{"text": text} for text in answers or () if isinstance(text, str)]
        entry = {"id": entry.get("qid"), **entry, "answers": found}
    return entry


def _get(parent: Any, key: str, expected_type: Any, location: str) -> Any:
    """Returns the value of a key; raises a UserError unless it has the expected type."""
    if isinstance(parent, dict) and isinstance(parent.get(key), expected_type):
        return parent[key]
    problem = f'has no "{key}"'
    if isinstance(parent, dict) and key in parent:
        value = json.dumps(parent[key], ensure_ascii=False)[:40]
        expected = getattr(expected_type, "__name__", "str or number")
        problem = f'has an invalid "{key}": {value} is not of type {expected}'
    raise UserError(problem, at=location, fix=f"The format of SQuAD is {_FORMAT}")


def _answer_texts(entry: dict[str, Any]) -> tuple[str, ...] | None:
    """Returns the correct answers; None if they are missing or invalid."""
    try:
        return tuple(_get(answer, "text", str, "") for answer in _get(entry, "answers", list, ""))
    except UserError:
        return None


def _training_answer(
    paragraph: Paragraph, entry: dict[str, Any], version_2_with_negative: bool, location: str
) -> tuple:
    """Returns (text, first word, last word, is_impossible); () if the answer is not in the text."""
    if version_2_with_negative and _get(entry, "is_impossible", bool, location):
        return "", -1, -1, True
    answers = _get(entry, "answers", list, location)
    if "detected_answers" in entry:  # As in MRQA, the first one counts.
        answers = answers[:1]
    if len(answers) != 1:
        expected = "expected one answer, or none to an impossible question"
        received = f"(--version_2_with_negative=true). Received: {len(answers)}"
        raise UserError(f"{expected} {received}", at=location)
    answer_location = f"{location}.answers[0]"
    text = _get(answers[0], "text", str, answer_location)
    first = _get(answers[0], "answer_start", int, answer_location)
    words, word_index_at = paragraph
    try:
        start, end = word_index_at[first], word_index_at[first + len(text) - 1]
    except IndexError:
        problem = f"the text has no answer {text[:40]!r} at answer_start={first}"
        raise UserError(problem, at=location) from None
    # As in the original, `answer_start` may be off, as long as it is inside the right word.
    has_answer = " ".join(text.split()) in " ".join(words[start : end + 1])
    return (text, start, end, False) if has_answer else ()
