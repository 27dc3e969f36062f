"""What looks wrong in labels, texts and entity markers, and makes a run useless."""

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.base.errors import UserError, Where, brief, counted, excerpt, note, shortened
from bert_tf.base.progress import log
from bert_tf.data.features import InputExample
from bert_tf.finetuning.run_checks import check_similar_labels
from bert_tf.tasks.classification.datasets import TextDataset
from bert_tf.tasks.classification.label_inference import is_placeholder
from bert_tf.tasks.classification.metrics import MIN_ROWS
from bert_tf.tasks.classification.options import (
    CLASSIFICATION,
    ENTITY_STARTS,
    MULTILABEL,
    REGRESSION,
)
from bert_tf.tasks.classification.problem_types import ProblemType
from bert_tf.tokenization import FullTokenizer

# Tolerated fraction of training rows whose text also occurs with a different label.
_MAX_CONTRADICTORY = 0.1
_NUMBER = r"[+-]?[\d.,]*\d"
# Numbers whose spread differs by this factor from that of the training set have another unit.
_OTHER_SPREAD = 4
# Metrics, also of other libraries.
_OF_REGRESSION = re.compile(r"(eval_)?(pearson|spearman|r?mse|mae|r2|(root_)?mean_)", re.IGNORECASE)
# A special token that follows an entity: a closing tag, or the word "end".
_END = re.compile(r"^\W*/|(?<![a-z])end(?![a-z])", re.IGNORECASE)


def check(
    data: TextDataset,
    split: str,
    examples: Sequence[InputExample],
    train_examples: Sequence[InputExample],
) -> Iterator[str]:
    """Yields a sentence for each problem in a split; see `Task.check`."""
    path = data.describe(split)
    names = () if data.problem_type == REGRESSION else data.labels
    if not data.is_published:
        yield from _check_texts(path, names, examples)
    if split == "predict" or (split == "train" and data.is_unlabeled):
        return
    count, columns = len(examples), {"": [str(example.label) for example in examples]}
    if data.problem_type == REGRESSION:
        numbers = np.array([example.label for example in examples], np.float64).reshape(count, -1)
        columns = dict(zip(data.labels or [""], numbers.T.tolist(), strict=True))
    for name, column in columns.items():
        if count > 1 and len({*column}) == 1:
            label = f"the label {excerpt(str(column[0]))}" + f" for {excerpt(name)}" * bool(name)
            yield f"{path}: all {count} rows have {label}. Check the label column"
    if split == "train":
        if data.problem_type == REGRESSION:
            return
        yield from check_similar_labels(names, path)
        yield from _check_labels(path, data)
        if not data.is_published:
            yield from _check_contradictions(path, examples)
    elif data.problem_type == REGRESSION and not data.is_unlabeled:
        yield from _check_unit(path, examples, train_examples or examples)
    elif train_examples and names and not data.is_unlabeled:
        unseen = _collect_labels(examples) - _collect_labels(train_examples)
        if unseen:
            names = shortened(brief(sorted(unseen)))
            yield f"{path}: no row of the training set has the label {names}"


def _check_texts(
    path: str, labels: Sequence[str], examples: Sequence[InputExample]
) -> Iterator[str]:
    names = {label.casefold() for label in labels if not re.fullmatch(_NUMBER, label)}
    texts, second_texts = zip(*((e.text_a, e.text_b or "") for e in examples), strict=True)
    for column in (texts, second_texts):
        found = [text for text in column if text.strip().casefold() in names]
        if 2 * len(found) > len(examples):
            share = f"{len(found)} of {len(examples)} texts are labels, such as {excerpt(found[0])}"
            yield f"{path}: {share}. Check the text column"


def require_metric(metric: str, data: TextDataset, problem: ProblemType) -> None:
    """Raises a UserError if `--best_metric` is one of a regression, but the labels are classes."""
    is_own = metric.removeprefix("eval_") in ("auto", *problem.metric_names)
    if not is_own and data.problem_type != REGRESSION and _OF_REGRESSION.match(metric):
        advice = "For numbers, use --problem_type=regression or TextRegressor; for classes, one of "
        names = ", ".join(problem.metric_names)
        raise UserError(f"--best_metric={metric}: the labels are classes", fix=f"{advice}{names}")


def _check_contradictions(path: str, examples: Sequence[InputExample]) -> Iterator[str]:
    texts = [(example.text_a.strip(), example.text_b) for example in examples]
    labels_of_text: dict[Any, set[Any]] = defaultdict(set)
    for text, example in zip(texts, examples, strict=True):
        labels_of_text[text].add(example.label)
    found = [text for text in texts if len(labels_of_text[text]) > 1]
    if len(found) > _MAX_CONTRADICTORY * len(texts):
        labels = shortened(brief(sorted(map(str, labels_of_text[found[0]]))))
        share = f"{counted(len(found), 'row', of=len(texts))} ({len(found) / len(texts):.1%})"
        problem = f"repeat a text with a different label, such as {excerpt(found[0][0])}: {labels}"
        yield f"{path}: {share} {problem}. Check the labels"


def _check_labels(path: str, data: TextDataset) -> Iterator[str]:
    for separator in ",;|" if data.problem_type == CLASSIFICATION else "":
        several = [label for label in data.labels if separator in label and label[0] != "["]
        parts = [{part.strip() for part in label.split(separator)} for label in several]
        distinct: set[str] = set().union(*parts)
        counts = Counter(itertools.chain({*data.labels}.difference(several), *parts))
        # Of names such as "Albany, NY", only few parts occur more than once.
        repeated = [part for part in distinct if part and counts[part] > 1]
        are_all_labels = any(len(part) > 1 and part <= {*data.labels} for part in parts)
        if are_all_labels or (len(several) > 1 and 2 * len(repeated) > len(distinct)):
            flag = "" if separator == "," else f" --label_separator='{separator}'"
            advice = f"If it is a list, pass --problem_type=multilabel{flag}"
            yield f"{path}: {excerpt(several[0])} is read as one label. {advice}"
    # Of -1, 0 and 1, -1 is a class; of -1, 0, 1 and 2, it often means "no label".
    is_class = {"-1"} if "2" not in data.labels else set()
    missing = [label for label in data.labels if is_placeholder(label) and label not in is_class]
    # If these are more than half of all labels, they are names such as + and -, or emojis.
    if 0 < 2 * len(missing) <= len(data.labels):
        names, skip = " and ".join(map(excerpt, missing)), ",".join(missing)
        advice = f"remove its rows (with --task_name=tsv, pass --skip_labels={skip})"
        yield f"{path}: there is a label {names}. If it means no label, {advice}"
    for label in data.labels:
        is_list = label[0] == "[" and label[-1] == "]"
        if is_list or (data.problem_type == MULTILABEL and label[0] in "[]'\""):
            advice = "Write lists as a,b, with --problem_type=multilabel; in Python, pass lists, "
            advice += "such as ast.literal_eval(label)"
            yield f"{path}: the label {excerpt(label)} is (part of) a Python list. {advice}"
            return


def _check_unit(path: str, *splits: Sequence[InputExample]) -> Iterator[str]:
    """Compares the numbers of a split with those of the training set, which follows it."""
    labels = [np.array([example.label for example in split], np.float64) for split in splits]
    note(f"numbers from {labels[0].min():g} to {labels[0].max():g}", at=path)
    for numbers, trained in zip(*(x.reshape(len(x), -1).T for x in labels), strict=True):
        is_other = numbers.min() > trained.max() or numbers.max() < trained.min()
        # Outliers change only the first measure, and numbers that are mostly equal only the second.
        spreads = [sorted(map(f, (numbers, trained))) for f in (np.std, _interdecile_range)]
        is_other |= all(0 < low < high / _OTHER_SPREAD for low, high in spreads)
        if len(numbers) >= MIN_ROWS and is_other:
            here, there = (f"{x.min():g} to {x.max():g}" for x in (numbers, trained))
            problem = f"numbers from {here}, but the training set has {there}"
            yield f"{path}: {problem}. Check that they have the same unit"


def _interdecile_range(numbers: np.ndarray) -> Any:
    return np.ptp(np.percentile(numbers, [10, 90]))


def check_predictions(problem: ProblemType, values: np.ndarray, true: Any) -> Iterator[str]:
    """Yields a sentence if a classifier has one answer to all texts, unless `true` is constant."""
    if problem.soft_target == "number" or len(values) < MIN_ROWS:
        return
    answers = {problem.answer(value) for value in values}
    if len(answers) == 1 and (true is None or np.ptp(true, axis=0).any()):
        answer = brief(answers)[0] or "no label"
        advice = "If this is wrong, train for longer, with a lower learning rate, or on more texts"
        yield f"All {len(values):,} predictions are {answer}. {advice}"


def _collect_labels(examples: Sequence[InputExample]) -> set[str]:
    labels = (e.label if isinstance(e.label, tuple) else (e.label,) for e in examples)
    return set().union(*labels)


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
        found = f"{len(starts)} in --special_tokens: {', '.join(starts) or 'none'}"
        advice = "Pass their names, as in --special_tokens=[E1],[/E1],[E2],[/E2]"
        problem = "needs the markers before two entities, but there are"
        raise UserError(f"--pooling=entity_starts {problem} {found}", fix=advice)
    log.info("The classifier reads the entities after %s and %s", *starts)
    return {marker: tokenizer.vocab[marker] for marker in starts}


def require_markers(
    examples: Sequence[InputExample], markers: Iterable[str], source: Where
) -> None:
    """Raises a UserError if a marker is in no text of a file."""
    for marker in markers:
        if examples and not any(marker in _text(example) for example in examples):
            advice = "Mark the two entities of each text, or omit --pooling=entity_starts"
            found = f"no text has {marker}, such as {excerpt(_text(examples[0]))}"
            raise UserError(found, at=source, fix=advice)


def check_markers(
    examples: Sequence[InputExample],
    rows: np.ndarray,
    marker_ids: Mapping[str, int],
    source: str,
) -> Iterator[str]:
    """Yields a sentence for each marker that is not once in the `input_ids` [E, S] of examples."""
    for marker, id_ in marker_ids.items():
        counts = (rows == id_).sum(axis=1)
        lack = f"lack {marker}, or have it after --max_seq_length={rows.shape[1]}"
        for wrong, problem, effect in (
            (counts == 0, lack, "the vector of [CLS] takes its place"),
            (counts > 1, f"have {marker} more than once", "the first one counts"),
        ):
            if count := int(wrong.sum()):
                share = counted(count, "text", problem, of=len(rows))
                text = excerpt(_text(examples[wrong.argmax()]))
                yield f"{source}: {share}: {effect}. Example: {text}"


def _text(example: InputExample) -> str:
    return f"{example.text_a} {example.text_b or ''}"
