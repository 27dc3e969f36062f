"""Reads texts that match: tables, SQuAD and data sets in BEIR's layout."""

import dataclasses
import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bert_tf import files
from bert_tf.data.split_files import find_files
from bert_tf.errors import UserError, counted, excerpt
from bert_tf.progress import log
from bert_tf.tables.columns import is_name, parse_number, read_cells, to_text
from bert_tf.tables.read import read_table
from bert_tf.tasks.embeddings.options import BEIR, SQUAD, EmbeddingsOptions

_MAX_BYTES = 1 << 36


class Match(NamedTuple):
    """An anchor, such as a query, and a text that matches it, or has the score with it."""

    anchor: str
    positive: str
    negatives: tuple[str, ...] = ()
    score: float = 1.0  # 0 to 1; in BEIR's files, a relevance


class Data(NamedTuple):
    """The matches of a file, and further passages to search in."""

    path: str
    matches: Sequence[Match]
    corpus: Sequence[str] = ()


def read_data(options: EmbeddingsOptions, split: str) -> Data:
    """Reads the file of a split.

    Raises:
        UserError: it is missing, empty or invalid; the message names file and line.
    """
    options = options.data
    if options.task_name.lower() == BEIR and split == "eval" and not options.names_files:
        is_dev = files.exists(os.path.join(options.data_dir or "", "qrels/dev.tsv"))
        options = dataclasses.replace(options, eval_file=f"qrels/{'dev' if is_dev else 'test'}.tsv")
    paths = find_files(options, [split])
    if split not in paths:
        raise UserError(f"There is no {split} file: pass --{split}_file, or add it to --data_dir")
    path, corpus = paths[split], ()
    if options.task_name.lower() == SQUAD:
        matches = list(_read_squad(path))
    elif options.task_name.lower() == BEIR:
        corpus = _read_texts(os.path.join(options.data_dir or "", "corpus.jsonl"))
        matches = list(_read_qrels(path, options.data_dir or "", corpus))
        corpus = [*corpus.values()]
    elif "label" in options.columns(split):
        matches = _read_labeled(options, path, split)
    else:
        matches = list(_read_rows(options, path, split))
    if not matches:
        raise UserError(f"{path} contains no texts")
    if options.is_scored(split) and len({match.score for match in matches}) == 1:
        raise UserError(f"{path}: all pairs have the same score or label, so nothing can be ranked")
    log.info("%s: %s", path, counted(len(matches), "pair"))
    return Data(path, matches, corpus)


def _cells(options: EmbeddingsOptions, path: str, split: str) -> Iterator[tuple[str, dict]]:
    columns = options.columns(split)
    has_header = any(map(is_name, columns.values()))
    for place, cells in read_cells(path, read_table(path), columns, has_header, split):
        for purpose in {*cells} - {"negative_columns"}:
            cells[purpose] = to_text(cells[purpose], purpose, place).strip()
            if not cells[purpose]:
                raise UserError(f"{place}: the {purpose} is empty. Remove the row")
        yield place, cells


def _read_rows(options: EmbeddingsOptions, path: str, split: str) -> Iterator[Match]:
    low, high = options.score_limits
    for place, cells in _cells(options, path, split):
        anchor, positive, text = cells["anchor"], cells["positive"], cells.get("score", str(high))
        found = cells.get("negative_columns", [])
        found = [*found.values()] if isinstance(found, dict) else found
        found = found if isinstance(found, list) else [found]
        negatives = [to_text(x, "negative", place).strip() for x in found if x is not None]
        if {anchor, positive} & {*negatives}:
            problem = "a negative is the same text as the anchor or the positive"
            raise UserError(f"{place}: {problem}. Correct or remove the row")
        score = parse_number(text)
        if score is None or not low <= score <= high:
            advice = "Correct the row, or pass the lowest and highest score as --score_range"
            raise UserError(
                f"{place}: the score must be a number from {low:g} to {high:g}. Received: "
                f"{excerpt(text)}. {advice}"
            )
        yield Match(anchor, positive, tuple(filter(None, negatives)), (score - low) / (high - low))


def _read_labeled(options: EmbeddingsOptions, path: str, split: str) -> list[Match]:
    """Returns pairs with score 1 or 0; or, with in-batch negatives, positives of each anchor."""
    labels = {options.positive_label: 1.0, options.negative_label: 0.0}
    by_anchor: dict[str, dict[float, dict[str, None]]] = {}
    skipped: dict[str, None] = {}
    pairs = []
    for _, cells in _cells(options, path, split):
        if (score := labels.get(cells["label"])) is None:
            skipped[cells["label"]] = None
            continue
        pairs.append(Match(cells["anchor"], cells["positive"], (), score))
        texts = by_anchor.setdefault(cells["anchor"], {1.0: {}, 0.0: {}})
        texts[score][cells["positive"]] = None
    if not any(match.score for match in pairs):
        found = f"only {', '.join([*skipped][:10])}" if skipped else "nothing else"
        advice = f"Found {found}. Pass --positive_label and --negative_label"
        raise UserError(f"{path}: no row has the label {options.positive_label}. {advice}")
    if options.is_scored(split):
        return pairs
    return [
        Match(anchor, positive, tuple(x for x in texts[0.0] if x not in {anchor, *texts[1.0]}))
        for anchor, texts in by_anchor.items()
        for positive in texts[1.0]
    ]


def _read_squad(path: str) -> Iterator[Match]:
    content = files.parse_json(files.read_text(path, _MAX_BYTES), path)
    try:
        paragraphs = [p for document in content["data"] for p in document["paragraphs"]]
        rows = [(q, p["context"].strip()) for p in paragraphs for q in p["qas"]]
        for entry, context in rows:
            # Questions of SQuAD 2.0 without an answer.
            if not entry.get("is_impossible") and entry["question"].strip():
                yield Match(entry["question"].strip(), context)
    except (KeyError, TypeError, AttributeError):
        raise UserError(f"{path} does not have the format of SQuAD") from None


def _read_texts(path: str) -> dict[str, str]:
    """Returns id -> text of `corpus.jsonl` or `queries.jsonl`; a title is put before the text."""
    columns = {"id": "_id", "text": "text"}
    texts = {}
    for row in read_table(path):
        if not isinstance(row.cells, dict) or not columns.values() <= row.cells.keys():
            raise UserError(f"{row.place}: expected an object with the keys _id and text")
        title = str(row.cells.get("title") or "")
        texts[str(row.cells["_id"])] = f"{title} {row.cells['text']}".strip()
    return texts


def _read_qrels(path: str, folder: str, corpus: dict[str, str]) -> Iterator[Match]:
    queries = _read_texts(os.path.join(folder, "queries.jsonl"))
    for row in read_table(path):
        if row.cells[0] == "query-id":
            continue
        if len(row.cells) != 3 or (relevance := parse_number(row.cells[2])) is None:
            raise UserError(f"{row.place}: expected query-id, corpus-id and score")
        for key, known, name in zip(
            row.cells[:2], (queries, corpus), ("queries", "corpus"), strict=True
        ):
            if key not in known:
                problem = f"{name}.jsonl has no {excerpt(key)}"
                raise UserError(f"{row.place}: {problem}. Correct or remove the line")
        yield Match(queries[row.cells[0]], corpus[row.cells[1]], (), relevance)
