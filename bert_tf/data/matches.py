"""Reads texts that match: tables, SQuAD and data sets in BEIR's layout."""

import logging
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from bert_tf import files
from bert_tf.data.disk_list import collect
from bert_tf.data.match_options import BEIR, SQUAD, MatchOptions
from bert_tf.data.split_files import find_files
from bert_tf.errors import UserError, counted, excerpt
from bert_tf.tables import relevance
from bert_tf.tables.columns import is_name, parse_number, read_cells, to_text
from bert_tf.tables.read import read_table

_logger = logging.getLogger(__name__)

# The default limit of `files.read_text` is for small files.
_MAX_BYTES = 1 << 36


class Match(NamedTuple):
    """An anchor, such as a query, and a text that matches it, or has the score with it."""

    anchor: str
    positive: str
    negatives: tuple[str, ...] = ()
    score: float = 1.0  # 0 to 1; in BEIR's files, the relevance


class Matches(NamedTuple):
    """The matches in a file, and further passages to search in."""

    path: str
    matches: Sequence[Match]
    corpus: Sequence[str] = ()


def read_matches(options: MatchOptions, split: str, scored: bool = False) -> Matches:
    """Reads the file of a split; `scored`: labels are scores, and do not select negatives.

    Raises:
        UserError: it is missing, empty or invalid; the message names file and line.
    """
    options, task = options.data, options.task_name.lower()
    paths = find_files(options, [split])
    if split not in paths:
        raise UserError(f"There is no {split} file: pass --{split}_file, or add it to --data_dir")
    path, corpus = paths[split], []
    if task == BEIR:
        matches, corpus = _read_beir(path, split)
    elif task == SQUAD:
        matches = collect(_read_squad(path))
    elif "label" in options.columns(split):
        matches = _read_labeled(options, path, split, scored)
    else:
        matches = collect(_read_rows(options, path, split))
    if not matches or not (scored or any(match.score for match in matches)):
        raise UserError(f"{path} contains no texts that match")
    if scored and all(match.score == matches[0].score for match in matches):
        raise UserError(f"{path}: all pairs have the same score or label: there is no order")
    _logger.info("%s: %s", path, counted(len(matches), "pair"))
    return Matches(path, matches, corpus)


def _cells(options: MatchOptions, path: str, split: str) -> Iterator[tuple[str, dict[str, Any]]]:
    columns = options.columns(split)
    has_header = any(map(is_name, columns.values()))
    for place, cells in read_cells(path, read_table(path), columns, has_header, split):
        for purpose in cells.keys() - {"negative_columns"}:
            cells[purpose] = to_text(cells[purpose], purpose, place).strip()
            if not cells[purpose] and purpose != "label":
                raise UserError(f"{place}: the {purpose} is empty. Remove the row")
        yield place, cells


def _read_rows(options: MatchOptions, path: str, split: str) -> Iterator[Match]:
    low, high = options.score_limits
    for place, cells in _cells(options, path, split):
        found = cells.get("negative_columns", [])
        found = [*found.values()] if isinstance(found, dict) else found
        found = found if isinstance(found, list) else [found]
        negatives = [to_text(x, "negative", place).strip() for x in found if x is not None]
        if {cells["anchor"], cells["positive"]} & {*negatives}:
            problem = "a negative is the same text as the anchor or the positive"
            raise UserError(f"{place}: {problem}. Correct or remove the row")
        score = parse_number(cells.get("score", str(high)))
        if score is None or not low <= score <= high:
            expected = f"the score must be a number from {low:g} to {high:g} (--score_range)"
            raise UserError(f"{place}: {expected}. Received: {excerpt(cells['score'])}")
        texts = tuple(filter(None, negatives))
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
    positives = {match[:2] for match in pairs if match.score}
    if not positives:
        found = ", ".join(sorted({cells["label"] for cells in rows})[:10])
        problem = f"no row has the label {options.positive_label}, only {found}"
        raise UserError(f"{path}: {problem}. Pass --positive_label and --negative_label")
    if scored:
        return pairs
    negatives: dict[str, dict[str, None]] = {match.anchor: {} for match in pairs}
    for anchor, text, *_ in pairs:
        if (anchor, text) not in positives and anchor != text:
            negatives[anchor][text] = None
    unique = dict.fromkeys(match[:2] for match in pairs if match.score)
    if unused := len(pairs) - sum(match.anchor in {x for x, _ in positives} for match in pairs):
        message = "%s: left out %s: no row with the same anchor matches. --loss=cosine uses them"
        _logger.info(message, path, counted(unused, "row"))
    return [Match(anchor, text, tuple(negatives[anchor])) for anchor, text in unique]


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


def _read_beir(path: str, split: str) -> tuple[list[Match], list[str]]:
    folder = os.path.dirname(os.path.dirname(path))
    documents, queries = (
        relevance.read_texts(os.path.join(folder, f"{name}.jsonl"))
        for name in ("corpus", "queries")
    )
    judgments = relevance.read_qrels(path, queries, documents)
    matches = [Match(queries[query], documents[key], (), score) for query, key, score in judgments]
    # A passage that was judged not relevant is nothing to train on.
    return [m for m in matches if m.score or split != "train"], [*documents.values()]
