"""Reads multiple-choice questions, such as SWAG's, from CSV, TSV or JSON lines."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from bert_tf.base.errors import UserError, Where, counted, excerpt, note
from bert_tf.data.disk_list import collect
from bert_tf.data.split_files import find_files, no_file
from bert_tf.tables.columns import to_text
from bert_tf.tables.texts import read_rows
from bert_tf.tasks.multiple_choice.options import MultipleChoiceOptions


class Question(NamedTuple):
    """A context and two or more candidate endings."""

    context: str
    endings: tuple[str, ...]  # each starts with the cell of --question_column, if any
    label: int | None = None  # index of the correct ending; None if unknown


def read_questions(
    options: MultipleChoiceOptions, split: str, num_endings: int | None
) -> Sequence[Question]:
    """Reads the questions of a split: "train", "eval" or "predict".

    Each must have at most `num_endings` endings, if given.

    Raises:
        UserError: the file is missing, empty or invalid; the message names file and line.
    """
    paths = find_files(options, [split])
    if split not in paths:
        raise no_file(split, options.data_dir)
    cells = read_rows(paths[split], options.columns(split), **options.layout(split), split=split)
    questions = collect(_parse_questions(cells, num_endings))
    if not questions:
        raise UserError(f"{paths[split]} contains no question")
    counts = [len(question.endings) for question in questions]
    varied = f" with {min(counts)} to {max(counts)} endings" if min(counts) < max(counts) else ""
    note(f"{counted(len(questions), 'question')}{varied}", at=paths[split])
    return questions


def _parse_questions(
    rows: Iterable[tuple[Where, dict[str, Any]]], num_endings: int | None
) -> Iterator[Question]:
    for place, cells in rows:
        question = _parse_question(cells, place)
        count = len(question.endings)
        if num_endings and count > num_endings:
            expected = f"expected at most {num_endings} endings, as the model in --output_dir has"
            raise UserError(f"{expected}. Received: {count}", at=place)
        yield question


def _parse_question(cells: dict[str, Any], place: Where) -> Question:
    endings, names = _find_endings(cells.pop("ending_columns", None), place)
    texts = {purpose: to_text(value, purpose, place) for purpose, value in cells.items()}
    question, label = texts.get("question", ""), None
    if "label" in texts:
        label = _find_label(texts["label"].strip(), names, len(endings), place)
    full_endings = tuple(f"{question} {ending}".strip() for ending in endings)
    return Question(texts["context"], full_endings, label)


def _find_endings(cells: Any, place: Where) -> tuple[list[str], Sequence[str]]:
    """Returns the endings, and their names: columns, or the labels of choices in JSON, if any.

    JSON has a list of texts; objects with text and label, as in CommonsenseQA, or an object of two
    such lists; or an object with a text for each label. Columns that are empty at the end of a row
    are no endings.
    """
    texts, names = _unpack_choices(cells, place) if isinstance(cells, list | dict) else ([], [])
    while isinstance(cells, dict) and texts and (texts[-1] is None or not str(texts[-1]).strip()):
        texts.pop()
    endings = [to_text(text, "ending", place) for text in texts]
    if len(endings) < 2:
        needed = "a question needs at least two endings: two or more columns, or a list in JSON"
        raise UserError(f"{needed} (--ending_columns)", at=place)
    return endings, [to_text(name, "label of an ending", place) for name in names[: len(endings)]]


def _unpack_choices(choices: Any, place: Where) -> tuple[list[Any], list[Any]]:
    """Returns the texts of a list or object of choices, and their labels, [] if there are none."""
    if isinstance(choices, list):
        if any(isinstance(choice, list) for choice in choices):
            raise UserError("several questions, but expected one per row", at=place)
        if not all(isinstance(choice, dict) for choice in choices):
            return choices, []
        if any("text" not in choice for choice in choices):
            advice = f"Add the key of their texts to --ending_columns: {', '.join(choices[0])}"
            raise UserError("choices without the key 'text'", at=place, fix=advice)
        choices = {key: [choice.get(key) for choice in choices] for key in ("text", "label")}
    elif not isinstance(choices.get("text"), list):
        return [*choices.values()], [*choices]
    texts, labels = choices["text"], choices.get("label") or []
    labels = [label for label in labels if label is not None]
    if labels and len({*map(str, labels)}) != len(texts):
        raise UserError("not every ending has a label of its own", at=place)
    return texts, labels


def _find_label(cell: str, names: Sequence[str], count: int, place: Where) -> int:
    """Returns the index of the ending that a label names."""
    # If names are 1, 2 and so on, a label must be such a name.
    has_numbers = bool(names) and all(map(str.isdecimal, names))
    indices = {} if has_numbers else {str(index): index for index in range(count)}
    if not any(len(name) == 1 for name in names):
        indices |= {chr(ord("A") + index): index for index in range(count)}
    indices |= {name: index for index, name in enumerate(names)}
    for name in (cell, cell.upper(), cell.lower()):
        if name in indices:
            return indices[name]
    expected = f"the label must be one of {', '.join(indices)}"
    raise UserError(f"{expected}. Received: {excerpt(cell)}", at=place)
