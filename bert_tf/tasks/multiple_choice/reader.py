"""Reads multiple-choice questions, such as SWAG's, from CSV, TSV or JSON lines."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bert_tf.data.split_files import find_files
from bert_tf.errors import UserError, counted, excerpt
from bert_tf.progress import log
from bert_tf.tables.columns import paths_in, split_advice, to_text, value_at
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

    Each must have at most `num_endings` endings, if given.

    Raises:
        UserError: the file is missing, empty or invalid; the message names file and line.
    """
    paths = find_files(options, [split])
    if split not in paths:
        raise UserError(f"There is no {split} file: pass --{split}_file, or add it to --data_dir")
    questions: list[Question] = []
    columns = options.columns(split)
    for place, row in _read_rows(paths[split], columns):
        question = _parse_question(row, place, columns, split)
        count = len(question.endings)
        if num_endings and count > num_endings:
            advice = "Pass it as --init_checkpoint with another --output_dir"
            problem = f"the model in --output_dir has at most {num_endings} endings"
            raise UserError(f"{place}: {problem}. Received: {count}. {advice}")
        questions.append(question)
    if not questions:
        raise UserError(f"{paths[split]} contains no question")
    counts = [len(question.endings) for question in questions]
    varied = f" with {min(counts)} to {max(counts)} endings" if min(counts) < max(counts) else ""
    log.info("%s: %s%s", paths[split], counted(len(questions), "question"), varied)
    return questions


def _read_rows(path: str, columns: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields the file and line of each row, and its cells by column name."""
    endings, *others = columns["ending_columns"], *columns.values()
    header: list[str] | None = None
    for row in read_table(path):
        if isinstance(row.cells, dict):
            yield row.place, row.cells
        elif header is None:
            header = [name.strip() for name in row.cells]
            for name in (*endings, *others):
                if name and header.count(name) > 1:
                    raise UserError(f"{row.place}: two columns are called {name!r}. Rename one")
        else:
            yield row.place, dict(zip(header, row.cells, strict=True))


def _parse_question(
    row: Mapping[str, Any], place: str, columns: Mapping[str, Any], split: str
) -> Question:
    def text_of(flag: str) -> str:
        value = _value(row, flag, columns[flag], place, split)
        return to_text(value, f"value of {columns[flag]!r}", place)

    question = text_of("question_column") if columns["question_column"] else ""
    endings, names = _find_endings(row, place, columns["ending_columns"], split)
    if len(endings) < 2:
        needed = "a question needs at least two endings: two or more columns, or a list in JSON"
        raise UserError(f"{place}: {needed} (--ending_columns)")
    full_endings = tuple(f"{question} {ending}".strip() for ending in endings)
    label = None
    if split != "predict":
        label = _find_label(text_of("label_column").strip(), names, len(endings), place)
    return Question(text_of("context_column"), full_endings, label)


def _find_endings(
    row: Mapping[str, Any], place: str, columns: Sequence[str], split: str
) -> tuple[list[str], list[str]]:
    """Returns the endings, and their names: columns, or the labels of choices in JSON, if any.

    JSON has a list of texts; objects with text and label, as in CommonsenseQA, or an object of two
    such lists; or an object with a text for each label. Columns that are empty at the end of a row
    are no endings.
    """
    if len(columns) == 1:
        # The texts of choices that also have labels.
        parent = columns[0].removesuffix(".text")
        choices = _value(row, "ending_columns", parent, place, split)
        labels: Any = []
        if isinstance(choices, dict):
            is_columnar = isinstance(choices.get("text"), list)
            labels = choices.get("label", []) if is_columnar else [*choices]
            choices = choices["text"] if is_columnar else [*choices.values()]
        elif isinstance(choices, list) and all(isinstance(choice, dict) for choice in choices):
            labels = [choice["label"] for choice in choices if "label" in choice]
            choices = [_value(choice, "ending_columns", "text", place, split) for choice in choices]
        if isinstance(choices, list):
            texts = [to_text(choice, "ending", place) for choice in choices]
            names = [to_text(label, "label of an ending", place) for label in labels]
            if names and len({*names}) != len(texts):
                raise UserError(
                    f"{place}: not every ending has a label of its own. Correct the row"
                )
            return texts, names
    values = [_value(row, "ending_columns", name, place, split) for name in columns]
    while len(values) > 2 and (values[-1] is None or not str(values[-1]).strip()):
        values.pop()
    pairs = zip(values, columns, strict=False)
    texts = [to_text(value, f"value of {name!r}", place) for value, name in pairs]
    return texts, list(columns[: len(texts)])


def _find_label(cell: str, names: Sequence[str], count: int, place: str) -> int:
    """Returns the index of the ending that a label names."""
    # If names are 1, 2 and so on, a label must be such a name.
    has_numbers = bool(names) and all(map(str.isdecimal, names))
    indices = {} if has_numbers else {str(index): index for index in range(count)}
    if not any(len(name) == 1 for name in names):
        indices |= {chr(ord("A") + index): index for index in range(count)}
    indices |= {name: index for index, name in enumerate(names)}
    found = indices.get(cell, indices.get(cell.upper()))
    if found is None:
        advice = "Correct or remove the row"
        if cell == str(count):
            advice += ". Labels must count from 0"
        expected = f"one of {', '.join(indices)}"
        raise UserError(
            f"{place}: the label must be {expected}. Received: {excerpt(cell)}. {advice}"
        )
    return found


def _value(row: Mapping[str, Any], flag: str, path: str, place: str, split: str) -> Any:
    try:
        return value_at(row, path)
    except KeyError:
        advice = ". If the endings have no common beginning, pass --question_column="
        advice = advice * (flag == "question_column") + split_advice(flag, split)
        available = ", ".join(map(str, paths_in(row)))[:200]
        problem = f"there is no column {path!r} (--{flag}), only {available}{advice}"
        raise UserError(f"{place}: {problem}") from None
