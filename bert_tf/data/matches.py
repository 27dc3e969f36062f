"""Reads texts that match: tables, SQuAD and data sets in BEIR's layout."""

import itertools
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from bert_tf import lint
from bert_tf.base import files
from bert_tf.base.errors import (
    Place,
    UserError,
    Where,
    brief,
    counted,
    excerpt,
    note,
    shortened,
    warn,
)
from bert_tf.data.disk_list import collect
from bert_tf.data.match_options import BEIR, MS_MARCO, SQUAD, MatchOptions
from bert_tf.data.split_files import find_files, no_file
from bert_tf.data.texts import check_prefix
from bert_tf.tables import relevance
from bert_tf.tables.columns import is_name, parse_number, read_cells, to_text
from bert_tf.tables.read import read_table

# The default limit of `files.read_text` is for small files.
_MAX_BYTES = 1 << 36
_NO_TEXTS: Mapping[str, str] = MappingProxyType({})
# Columns that probably say whether, or how well, two texts match; or have texts that do not.
_LABEL = re.compile(
    r"(gold_?)?labels?|is_duplicate|scores?|rel|(similarity|relevance)(_score)?", re.IGNORECASE
)
_NEGATIVE = re.compile(r"(hard_?)?neg(ative)?s?(_?\d+|_ctxs|_passages)?", re.IGNORECASE)
# The cells that must not be empty.
_NEEDED = ("anchor", "positive", "score")
# The first row of a labeled anchor has all its negatives, the others only so many: each row of
# training uses few, and all of them in each row would be too many to go through.
_MAX_NEGATIVES = 100


class Match(NamedTuple):
    """An anchor, such as a query, and a text that matches it, or has the score with it."""

    anchor: str
    positive: str
    negatives: tuple[str, ...] = ()
    score: float = 1.0  # 0 to 1; in BEIR's files, the relevance


class Matches(NamedTuple):
    """The matches in a file; and, if its texts have ids, id -> text of all of them."""

    path: str
    matches: Sequence[Match]
    queries: Mapping[str, str] = _NO_TEXTS
    documents: Mapping[str, str] = _NO_TEXTS

    @property
    def passages(self) -> list[str]:
        """All distinct passages: the documents, and the other texts of the matches."""
        texts = (x for match in self.matches for x in (match.positive, *match.negatives))
        return [*dict.fromkeys([*self.documents.values(), *texts])]

    def check(
        self,
        split: str,
        train_matches: Sequence[Match],
        num_negatives: int | None = None,
        prefixes: Sequence[str] = (),
    ) -> Iterator[str]:
        """Yields what looks wrong in the pairs; for "eval", also those that are training pairs.

        Args:
            split: name of the split.
            train_matches: the matches to train on.
            num_negatives: how many negatives a row of training uses; None: all.
            prefixes: what is added before anchors, and before other texts.
        """
        most = max(len(match.negatives) for match in self.matches)
        if split == "train" and num_negatives is not None and most > num_negatives:
            used = ": see --num_negatives" if num_negatives else ", which are not used"
            yield f"{self.path}: rows have up to {counted(most, 'negative')}{used}"
        yield from lint.at(self.path, self._check_texts(split, prefixes))
        own = {match[:2] for match in self.matches} if split == "eval" else set()
        known = {match[:2] for match in train_matches if match[:2] in own}
        shared = sum(match[:2] in known for match in self.matches)
        if shared > 0.01 * len(self.matches):
            pairs = counted(shared, "pair", "are also training pairs", of=len(self.matches))
            yield f"{self.path}: {pairs}: the metrics are too high"

    def _check_texts(self, split: str, prefixes: Sequence[str]) -> Iterator[str]:
        for name, prefix in zip(("anchor", "positive"), prefixes, strict=False):
            yield from check_prefix((getattr(match, name) for match in self.matches), prefix)
        checked = lint.sample(self.matches)
        anchors, positives = [x.anchor for x in checked], [x.positive for x in checked]
        yield from lint.same(anchors, positives, "the anchor is the positive")
        yield from (f"positives: {x}" for x in lint.values("text", positives))
        if split == "train":
            yield from lint.few_distinct("anchor", anchors)
            yield from lint.few_distinct("positive", positives)


def read_matches(options: MatchOptions, split: str, scored: bool = False) -> Matches:
    """Reads the file of a split; `scored`: labels are scores, and do not select negatives.

    For training, reads the files of all data sets of `mix_with`, too.

    Raises:
        UserError: it is missing, empty or invalid; the message names file and line.
    """
    data_sets = options.data_sets() if split == "train" else [options]
    first, *others = found = [_read_data_set(x, split, scored) for x in data_sets]
    if not others:
        return first
    matches = collect(match for data in found for match in data.matches)
    return Matches(", ".join(data.path for data in found), matches)


def _read_data_set(options: MatchOptions, split: str, scored: bool) -> Matches:
    options, task = options.data, options.task_name.lower()
    paths = find_files(options, [split])
    if split not in paths:
        raise no_file(split, options.data_dir)
    path, texts = paths[split], (_NO_TEXTS, _NO_TEXTS)
    if task == BEIR or (task == MS_MARCO and os.path.basename(path).startswith("qrels")):
        folder = os.path.dirname(path)
        texts = relevance.read_collection([folder, os.path.dirname(folder)])
        queries, documents = texts
        judged = relevance.read_qrels(path, queries, documents)
        # A passage that was judged not relevant is nothing to train on.
        used = ((q, d, score) for q, d, score in judged if score or split != "train")
        matches = [Match(queries[q], documents[d], (), score) for q, d, score in used]
    elif task == SQUAD:
        matches = collect(_read_squad(path))
    elif "label" in options.columns(split):
        matches = _read_labeled(options, path, split, scored)
    else:
        matches = collect(_read_rows(options, path, split))
    if not matches or not (scored or any(match.score for match in matches)):
        raise UserError(f"{path} contains no texts that match")
    if scored and all(match.score == matches[0].score for match in matches):
        raise UserError("all pairs have the same score or label: there is no order", at=path)
    note(f"{counted(len(matches), 'pair')}", at=path)
    return Matches(str(Place(path)), matches, *texts)


def _cells(options: MatchOptions, path: str, split: str) -> Iterator[tuple[Where, dict[str, Any]]]:
    """Yields the cells of each pair; each text in a list of positives is one of a pair."""
    columns, layout, num_empty = options.columns(split), options.layout(split), 0
    rows = read_table(path, layout["quoted"])
    first = next(rows, None)
    if first and (isinstance(first.cells, dict) or any(map(is_name, columns.values()))):
        _warn_of_unused_columns(options, path, first.cells, columns)
    rows = itertools.chain([first] if first else [], rows)
    for place, cells in read_cells(path, rows, columns, layout["has_header"], split):
        found = cells["positive"] if isinstance(cells["positive"], list) else [cells["positive"]]
        cells["positives"] = [to_text(text, "positive", place).strip() for text in found]
        num_empty += not found
        for purpose in cells.keys() - {"positive", "positives", "negative_columns"}:
            cells[purpose] = to_text(cells[purpose], purpose, place).strip()
        for text in cells["positives"]:
            pair = {**cells, "positive": text}
            if empty := [name for name, x in pair.items() if x == "" and name in _NEEDED]:
                raise UserError(f"the {empty[0]} is empty", at=place)
            yield place, pair
    if num_empty:
        note(f"left out {counted(num_empty, 'row')}: the list of positives is empty", at=path)


def _warn_of_unused_columns(
    options: MatchOptions, path: str, first: Any, columns: Mapping[str, str]
) -> None:
    """Warns if columns that are not used have names of labels, scores or negatives."""
    used = {x.strip().split(".")[0] for column in columns.values() for x in column.split(",")}
    patterns = [] if options.label_column or options.score_column else [_LABEL]
    patterns += [] if options.negative_columns else [_NEGATIVE]
    # In JSON, a list may be empty.
    names = (x for x in first if not isinstance(first, dict) or first[x] not in (None, [], ""))
    names = sorted({name.strip() for name in names} - used)
    if found := [x for x in names if any(pattern.fullmatch(x) for pattern in patterns)]:
        flags = "--label_column, --score_column, --negative_columns"
        warn(f"columns that are not used: {', '.join(found)} ({flags})", at=path)


def _read_rows(options: MatchOptions, path: str, split: str) -> Iterator[Match]:
    low, high = options.score_limits
    for place, cells in _cells(options, path, split):
        found = cells.get("negative_columns", [])
        found = [*found.values()] if isinstance(found, dict) else found
        found = found if isinstance(found, list) else [found]
        negatives = [to_text(x, "negative", place).strip() for x in found if x is not None]
        no_negatives = {"", cells["anchor"], *cells["positives"]}
        score = parse_number(cells.get("score", str(high)))
        if score is None or not low <= score <= high:
            expected = f"the score must be a number from {low:g} to {high:g} (--score_range)"
            raise UserError(f"{expected}. Received: {excerpt(cells['score'])}", at=place)
        texts = tuple(x for x in negatives if x not in no_negatives)
        yield Match(cells["anchor"], cells["positive"], texts, (score - low) / (high - low))


def _read_labeled(options: MatchOptions, path: str, split: str, scored: bool) -> list[Match]:
    """Returns pairs with score 1 or 0; or, without scores, the positives of each anchor."""
    labels = {options.positive_label: 1.0, options.negative_label: 0.0}
    rows = [cells for _, cells in _cells(options, path, split)]
    pairs = [
        Match(cells["anchor"], cells["positive"], (), labels[cells["label"]])
        for cells in rows
        if cells["label"] in labels
    ]
    positives = dict.fromkeys(match[:2] for match in pairs if match.score)
    if not positives:
        found = shortened(brief(sorted({cells["label"] for cells in rows})))
        problem = f"no row has the label --positive_label={options.positive_label}, only {found}"
        raise UserError(problem, at=path)
    _log_labels(options, path, Counter(cells["label"] for cells in rows))
    if both := positives.keys() & {match[:2] for match in pairs if not match.score}:
        warn(counted(len(both), "pair", "have both labels"), at=path)
    if scored:
        return pairs
    negatives: dict[str, dict[str, None]] = {anchor: {} for anchor, _ in positives}
    unused = 0
    for anchor, text, *_ in pairs:
        if anchor not in negatives:
            unused += 1
        elif (anchor, text) not in positives and anchor != text:
            negatives[anchor][text] = None
    if unused:
        note(f"left out {counted(unused, 'row')}: no row with the same anchor matches", at=path)
    few = {x: tuple(itertools.islice(texts, _MAX_NEGATIVES)) for x, texts in negatives.items()}
    return [Match(x, text, tuple(negatives.pop(x, few[x]))) for x, text in positives]


def _log_labels(options: MatchOptions, path: str, counts: Counter[str]) -> None:
    """Logs the rows of each label; warns if the default labels leave out some."""
    labels = options.positive_label, options.negative_label
    numbers = counted(counts[labels[0]], "positive"), counted(counts[labels[1]], "negative")
    used = f"{numbers[0]} (--positive_label={labels[0]}), "
    used += f"{numbers[1]} (--negative_label={labels[1]})"
    others = {label or "no label": n for label, n in counts.items() if label not in labels}
    if others:
        number = counted(sum(others.values()), "row", "with other labels")
        used += f"; left out {number}: {shortened(brief(sorted(others)))}"
    is_default = labels == (MatchOptions.positive_label, MatchOptions.negative_label)
    (warn if others and is_default else note)(used, at=path)


def _read_squad(path: str) -> Iterator[Match]:
    content = files.parse_json(files.read_text(path, _MAX_BYTES), path)
    try:
        paragraphs = [p for document in content["data"] for p in document["paragraphs"]]
        for question, text in [(q, p["context"].strip()) for p in paragraphs for q in p["qas"]]:
            # The text answers the question, unless SQuAD 2.0 says that it does not.
            if question["question"].strip() and not question.get("is_impossible"):
                yield Match(question["question"].strip(), text)
    except (KeyError, TypeError, AttributeError):
        raise UserError(f"{path} does not have the format of SQuAD") from None
