"""Reads multiple-choice questions, such as SWAG's, from CSV, TSV or JSON lines."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from bert_tf.data.split_files import find_files
from bert_tf.errors import UserError, counted, excerpt
from bert_tf.progress import log
from bert_tf.tables.columns import to_text
from bert_tf.tables.read import read_table
from bert_tf.tasks.multiple_choice.options import MultipleChoiceOptions


class Question(NamedTuple):
    """A context and two or more candidate endings."""

    context: str
    endings: tuple[str, ...]  # each starts with the cell of --question_column, if any
    label: int | None = None  # index of the correct ending; None if unknown


def read_questions(
    options: MultipleChoiceOptions, split: str, num_endings: int | None
) -> list[Question]:
    """Reads the questions of a split: "train", "eval" or "predict".

    Each must have `num_endings` endings; if None, as many as the first question.

    Raises:
        UserError: the file is missing, empty or invalid; the message names file and line.
    """
    paths = find_files(options, [split])
    if split not in paths:
        raise UserError(f"There is no {split} file: pass --{split}_file, or add it to --data_dir")
    questions: list[Question] = []
    for place, row in _read_rows(paths[split], options):
        question = _parse_question(row, place, options, split)
        count = len(question.endings)
        num_endings = num_endings or count
        if count != num_endings:
            raise UserError(f"{place}: expected {num_endings} endings. Received: {count}")
        questions.append(question)
    if not questions:
        raise UserError(f"{paths[split]} contains no question")
    log.info("%s: %s", paths[split], counted(len(questions), "question"))
    return questions


def _read_rows(
    path: str, options: MultipleChoiceOptions
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields the file and line of each row, and its cells by column name."""
    needed = [options.context_column, options.question_column, options.label_column]
    header: list[str] | None = None
    for row in read_table(path):
        if isinstance(row.cells, dict):
            yield row.place, row.cells
        elif header is None:
            header = [name.strip() for name in row.cells]
            for name in (*needed, *options.ending_column_names):
                if name and header.count(name) > 1:
                    raise UserError(f"{row.place}: two columns are called {name!r}. Rename one")
        else:
            yield row.place, dict(zip(header, row.cells, strict=True))


def _parse_question(
    row: Mapping[str, Any], place: str, options: MultipleChoiceOptions, split: str
) -> Question:
    question = ""
    if options.question_column:
        question = _cell(row, "question_column", options.question_column, place)
    names = options.ending_column_names
    if len(names) == 1 and isinstance(row.get(names[0]), list):
        endings = [to_text(ending, "ending", place) for ending in row[names[0]]]
        names = []
    else:
        endings = [_cell(row, "ending_columns", name, place) for name in names]
    if len(endings) < 2:
        needed = "a question needs at least two endings: two or more columns, or a list in JSON"
        raise UserError(f"{place}: {needed} (--ending_columns)")
    label = None
    if split != "predict":
        # If columns are called 1, 2 and so on, a label must be such a name.
        has_numbered_columns = bool(names) and all(map(str.isdecimal, names))
        indices = {} if has_numbered_columns else {str(i): i for i in range(len(endings))}
        indices |= {name: index for index, name in enumerate(names)}
        cell = _cell(row, "label_column", options.label_column, place).strip()
        if cell not in indices:
            expected = f"one of {', '.join(indices)}"
            raise UserError(
                f"{place}: the label must be {expected}. Received: {excerpt(cell)}. "
                "Correct or remove the row"
            )
        label = indices[cell]
    full_endings = tuple(f"{question} {ending}".strip() for ending in endings)
    context = _cell(row, "context_column", options.context_column, place)
    return Question(context, full_endings, label)


def _cell(row: Mapping[str, Any], flag: str, name: str, place: str) -> str:
    if name not in row:
        advice = ". If the endings have no common beginning, pass --question_column="
        raise UserError(
            f"{place}: there is no column {name!r} (--{flag}), only "
            f"{', '.join(map(str, row))[:200]}{advice * (flag == 'question_column')}"
        )
    return to_text(row[name], f"value of {name!r}", place)
