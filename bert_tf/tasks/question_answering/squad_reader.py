"""Questions about texts, from files in the format of SQuAD 1.1 and 2.0.

Rajpurkar et al. 2016, "SQuAD: 100,000+ Questions for Machine Comprehension of Text", and 2018,
"Know What You Don't Know: Unanswerable Questions for SQuAD".
"""

import bisect
import json
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bert_tf import files
from bert_tf.errors import UserError

_logger = logging.getLogger(__name__)

# The original splits texts at these only: U+00A0, U+3000 and U+2028 stay inside of words.
_WORD = re.compile("[^ \t\r\n\u202f]+")
# Questions that a warning names.
_NAMED = 5
# JSON often is one line, which has no limit.
_MOST_BYTES = 1 << 36


@dataclass(frozen=True, slots=True, eq=False)
class Paragraph:
    """A text with the places of its words.

    Attributes:
        words: what stands between spaces.
        starts: the character that each word begins with.
        size: characters of the text.
    """

    words: list[str]
    starts: list[int]
    size: int

    @classmethod
    def of(cls, context: str) -> "Paragraph":
        """Splits a text into words."""
        found = list(_WORD.finditer(context))
        return cls([m.group() for m in found], [m.start() for m in found], len(context))

    def word_at(self, place: int) -> int:
        """The word that a character is in, or that stands before it; -1 before the first one.

        Raises:
            IndexError: the text is not so long. Like a list it counts negative places from the end.
        """
        if not -self.size <= place < self.size:
            raise IndexError(place)
        return bisect.bisect_right(self.starts, place % self.size) - 1


@dataclass(slots=True)
class SquadExample:
    """A question about a text.

    Attributes:
        qas_id: its name, unique in its file.
        question_text: the question.
        doc_tokens: the words of the text; questions about one text share the list.
        orig_answer_text: the answer to train on; "" for none, None where it is not read.
        start_position: its first word; -1 if there is no answer, None where it is not read.
        end_position: its last word.
        is_impossible: whether the text has no answer; False where that is not read.
        answers: all that are right, to be compared with; empty if there is none, None where the
            file does not say.
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
    """Reads all questions of a file, as the original release does.

    To train on, a question needs exactly one answer, or `is_impossible` with
    `version_2_with_negative`. It is left out, with a warning, if the answer does not stand among
    the words that its place in the text points to.

    Args:
        path: the file.
        is_training: whether to read answers to train on.
        version_2_with_negative: whether there are questions without an answer.

    Raises:
        UserError: the file cannot be read, is not of this format (with the place in it), or an
            answer is where the text has ended.
    """
    examples: list[SquadExample] = []
    left_out: list[str] = []
    for place, paragraph, entry in _questions(path):
        example = SquadExample(
            str(_entry(entry, "id", (str, int, float), place)),
            _entry(entry, "question", str, place),
            paragraph.words,
            answers=_texts(entry),
        )
        if is_training:
            trained = _with_answer(example, paragraph, entry, version_2_with_negative, place)
            if trained is None:
                left_out.append(example.qas_id)
                continue
            example = trained
        examples.append(example)
    if not examples:
        reason = f" left: {len(left_out)} have answers that are not in the text" if left_out else ""
        raise UserError(f"{path} has no question{reason}")
    if left_out:
        _logger.warning(
            "%s: %d of %d questions are left out, because their answers are not in the text where "
            "answer_start says (--verbose_logging names all): %s",
            path,
            len(left_out),
            len(left_out) + len(examples),
            _shown(left_out),
        )
        _logger.debug("Left out: %s", ", ".join(left_out))
    _warn_of_duplicates(path, examples)
    return examples


def _questions(path: str) -> Iterator[tuple[str, Paragraph, dict[str, Any]]]:
    """Each question with its place in the file and its text."""
    text = files.read_text(path, _MOST_BYTES).removeprefix("\ufeff")
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(
            f"{path}:{error.lineno}: not JSON ({error.msg} at position {error.colno}): a file in "
            "the format of SQuAD was expected. It may also be damaged, or downloaded in part"
        ) from error
    # Numbers of thousands of digits, thousands of brackets.
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON that can be read ({error})") from error
    for n, article in enumerate(_entry(content, "data", list, path)):
        place = f"{path}: data[{n}]"
        for m, entry in enumerate(_entry(article, "paragraphs", list, place)):
            inside = f"{place}.paragraphs[{m}]"
            paragraph = Paragraph.of(_entry(entry, "context", str, inside))
            for k, question in enumerate(_entry(entry, "qas", list, inside)):
                yield f"{inside}.qas[{k}]", paragraph, question


def _entry(parent: Any, key: str, kind: Any, place: str) -> Any:
    if isinstance(parent, dict) and isinstance(parent.get(key), kind):
        return parent[key]
    if isinstance(parent, dict) and key in parent:
        problem = f'has a "{key}" that makes no sense: {str(parent[key])[:40]!r}'
    else:
        problem = f'has no "{key}"'
    raise UserError(
        f"{place} {problem}. A file in the format of SQuAD is "
        '{"data": [{"paragraphs": [{"context": TEXT, "qas": [{"id": TEXT, "question": TEXT, '
        '"answers": [{"text": TEXT, "answer_start": NUMBER}]}]}]}]}'
    )


def _texts(entry: dict[str, Any]) -> tuple[str, ...] | None:
    """The answers to compare with; None if there are none of the usual form."""
    try:
        return tuple(
            _entry(answer, "text", str, "") for answer in _entry(entry, "answers", list, "")
        )
    except UserError:
        return None


def _is_impossible(entry: dict[str, Any], place: str) -> bool:
    if "is_impossible" not in entry:
        raise UserError(
            f'{place} has no "is_impossible", which --version_2_with_negative=true needs to train '
            "on: files of SQuAD 1.1 have none, leave the flag out for them"
        )
    return _entry(entry, "is_impossible", bool, place)


def _with_answer(
    example: SquadExample,
    paragraph: Paragraph,
    entry: dict[str, Any],
    version_2_with_negative: bool,
    place: str,
) -> SquadExample | None:
    """The question with the answer to train on; None if that is not in the text."""
    named = (example.qas_id, example.question_text, example.doc_tokens)
    if version_2_with_negative and _is_impossible(entry, place):
        return SquadExample(*named, "", -1, -1, True, example.answers)
    answers = _entry(entry, "answers", list, place)
    if len(answers) != 1:
        advice = ""
        if len(answers) > 1:
            advice = ". Sets to evaluate on have several, such as dev-v1.1.json"
        elif not version_2_with_negative:
            advice = ". For those without an answer pass --version_2_with_negative=true"
        raise UserError(
            f"{place} has {len(answers)} answers: to train on, a question needs exactly one{advice}"
        )
    inside = f"{place}.answers[0]"
    text = _entry(answers[0], "text", str, inside)
    begin = _entry(answers[0], "answer_start", int, inside)
    try:
        start, end = paragraph.word_at(begin), paragraph.word_at(begin + len(text) - 1)
    except IndexError:
        raise UserError(
            f"{place}: the answer {text[:40]!r} begins at {begin}, and the text has "
            f"{paragraph.size} characters"
        ) from None
    # Not the place itself is compared: a wrong one inside of the right word is good enough.
    if " ".join(text.split()) not in " ".join(paragraph.words[start : end + 1]):
        return None
    return SquadExample(*named, text, start, end, False, example.answers)


def _warn_of_duplicates(path: str, examples: list[SquadExample]) -> None:
    known: set[str] = set()
    twice = {e.qas_id for e in examples if e.qas_id in known or known.add(e.qas_id)}
    if twice:
        _logger.warning(
            "%s: %d ids belong to more than one question; of these only the last one's answer is "
            "kept: %s",
            path,
            len(twice),
            _shown(sorted(twice)),
        )


def _shown(names: list[str]) -> str:
    return ", ".join(names[:_NAMED]) + " ..." * (len(names) > _NAMED)
