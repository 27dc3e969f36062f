"""What looks wrong in labels, texts and entity markers, and makes a run useless."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf import lint
from bert_tf.base.errors import UserError, Where, brief, counted, excerpt, note
from bert_tf.data.features import InputExample
from bert_tf.tasks.classification.datasets import TextDataset
from bert_tf.tasks.classification.metrics import MIN_ROWS
from bert_tf.tasks.classification.options import ENTITY_STARTS, REGRESSION
from bert_tf.tasks.classification.problem_types import ProblemType
from bert_tf.tokenization import FullTokenizer

# A special token that follows an entity: a closing tag, or the word "end".
_END = re.compile(r"^\W*/|(?<![a-z])end(?![a-z])", re.IGNORECASE)


def check(
    data: TextDataset,
    split: str,
    examples: Sequence[InputExample],
    train_examples: Sequence[InputExample],
) -> Iterator[str]:
    """Yields a sentence for each problem in a split; see `Task.check`."""
    if split == "predict" or (split == "train" and data.is_unlabeled):
        return
    labels, is_number = [example.label for example in examples], data.problem_type == REGRESSION
    pairs = [(example.text_a.strip(), example.text_b or "") for example in examples]
    yield from check_rows(pairs, labels, data.labels if is_number else None)
    if is_number and split != "train" and not data.is_unlabeled:
        splits = (examples, train_examples or examples)
        numbers, trained = (_columns([x.label for x in part]) for part in splits)
        note(f"numbers from {numbers.min():g} to {numbers.max():g}", at=data.describe(split))
        for column in zip(numbers.T, trained.T, strict=True):
            yield from lint.other_range(*column)
    elif split != "train" and train_examples and data.labels and not data.is_unlabeled:
        yield from lint.unseen(*(_labels(x.label for x in y) for y in (examples, train_examples)))
    elif split == "train" and not is_number:
        yield from lint.label_names(data.labels)
        yield from find_lists(data.labels)
        # Of + and -, or of -1, 0 and 1, both are classes.
        is_class = {"-"} & {x.replace("+", "-") for x in data.labels if x == "+"}
        is_class |= {"-1"} if "2" not in data.labels else set()
        yield from lint.values("label", [x for x in data.labels if x not in is_class])
        if not data.is_published:
            yield from lint.contradictory(pairs, labels)


def check_rows(
    pairs: Sequence[tuple[str, str]], labels: Sequence[Any], names: Sequence[str] | None = None
) -> Iterator[str]:
    """Yields what looks wrong in texts and their labels, of a split or for an estimator's `score`.

    `pairs` have "" for a missing second text. `names` are those of the numbers of a regression.
    """
    for texts, which in zip(zip(*pairs, strict=True), ("text", "second text"), strict=False):
        yield from lint.same(texts, [*map(str, labels)], f"the {which} is the label")
    if names is None:
        yield from lint.constant(labels)
        return
    for name, numbers in zip(names or [""], _columns(labels).T, strict=True):
        yield from lint.constant(numbers, f"label {excerpt(name)}" if name else "label")
        yield from lint.far(numbers)


def find_lists(names: Sequence[str]) -> Iterator[str]:
    """Yields a sentence if a label is a list of others."""
    for name in names:
        parts = {part.strip() for part in re.split("[,;|]", name)}
        if len(parts) > 1 and parts <= {*names}:
            yield f"the label {excerpt(name)} is a list of labels: see --problem_type=multilabel"
            return


def _columns(labels: Sequence[Any]) -> np.ndarray:
    return np.array(labels, np.float64).reshape(len(labels), -1)


def _labels(labels: Iterable[Any]) -> list[Any]:
    return [x for label in labels for x in (label if isinstance(label, tuple) else (label,))]


def check_predictions(problem: ProblemType, values: np.ndarray, true: Any) -> Iterator[str]:
    """Yields a sentence if a classifier has one answer to all texts, unless `true` is constant."""
    if problem.soft_target == "number" or len(values) < MIN_ROWS:
        return
    answers = {problem.answer(value) for value in values}
    if len(answers) == 1 and (true is None or np.ptp(true, axis=0).any()):
        yield f"all {len(values):,} predictions are {brief(answers)[0] or 'no label'}"


def find_markers(pooling: str, tokenizer: FullTokenizer) -> dict[str, int]:
    """Returns the markers before two entities, and their ids; {} with other values of `pooling`.

    Special tokens such as [/E1] or [E1_END] follow an entity; of four others, the second and the
    fourth do. Raises a UserError unless two are left.
    """
    if pooling != ENTITY_STARTS:
        return {}
    special_tokens = tokenizer.basic_tokenizer.special_tokens
    starts = [token for token in special_tokens if not _END.search(token)]
    starts = starts[::2] if len(starts) == len(special_tokens) == 4 else starts
    if len(starts) != 2:
        problem = "--pooling=entity_starts needs --special_tokens=[E1],[/E1],[E2],[/E2] or the like"
        raise UserError(f"{problem}. Received: {', '.join(special_tokens) or 'none'}")
    note(f"The classifier reads the entities after {starts[0]} and {starts[1]}")
    return {marker: tokenizer.vocab[marker] for marker in starts}


def require_markers(
    examples: Sequence[InputExample], markers: Iterable[str], source: Where
) -> None:
    """Raises a UserError if a marker is in no text of a file."""
    for marker in markers:
        if examples and not any(marker in _text(example) for example in examples):
            problem = f"no text has {marker}, such as {excerpt(_text(examples[0]))}"
            raise UserError(problem, at=source)


def check_markers(
    examples: Sequence[InputExample], rows: np.ndarray, marker_ids: Mapping[str, int]
) -> Iterator[str]:
    """Yields a sentence for each marker that is not in all `input_ids` [E, S] of examples."""
    for marker, id_ in marker_ids.items():
        lacking = (rows != id_).all(axis=1)
        if count := int(lacking.sum()):
            problem = f"lack {marker}, or have it after --max_seq_length={rows.shape[1]}"
            text = excerpt(_text(examples[lacking.argmax()]))
            yield f"{counted(count, 'text', problem, of=len(rows))}, such as {text}"


def _text(example: InputExample) -> str:
    return f"{example.text_a} {example.text_b or ''}"
