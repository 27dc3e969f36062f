"""Reads queries, documents, their relevance, and candidates that a search found.

The layouts are those of BEIR (Thakur et al. 2021, "BEIR: A Heterogeneous Benchmark for Zero-shot
Evaluation of Information Retrieval Models"), of MS MARCO's passage ranking and of trec_eval.
"""

import itertools
import logging
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, NamedTuple

from bert_tf.base import files
from bert_tf.base.errors import UserError, Where, brief, excerpt, shortened, warn
from bert_tf.tables.columns import parse_number, to_text
from bert_tf.tables.read import read_table

_logger = logging.getLogger(__name__)
_DOCUMENTS = re.compile(r"(corpus\.jsonl|collection\.tsv)(\.gz)?")
_QUERIES = re.compile(r"queries(\..+)?\.(jsonl|tsv)(\.gz)?")
# Number of rows whose ranks and scores are compared.
_ROWS_AHEAD = 1000


class Candidate(NamedTuple):
    """A passage that may be relevant to a query, with their ids in a run."""

    query: str
    passage: str
    query_id: str = ""
    passage_id: str = ""


def read_collection(folders: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Returns id -> text of queries and of documents, from the first folder that has both.

    The files are `queries.jsonl` and `corpus.jsonl` (BEIR), or all `queries*.tsv` and
    `collection.tsv` (MS MARCO).

    Raises:
        UserError: no folder has such files, or one is invalid; the message names the line.
    """
    for folder in folders:
        names = files.list_dir(folder or ".")
        documents, queries = (
            [os.path.join(folder, name) for name in names if pattern.fullmatch(name)]
            for pattern in (_DOCUMENTS, _QUERIES)
        )
        if documents and queries:
            merged = {key: text for path in queries for key, text in read_texts(path).items()}
            return merged, read_texts(documents[0])
    expected = "queries.jsonl and corpus.jsonl (BEIR), or queries.tsv and collection.tsv (MS MARCO)"
    places = " or ".join(folder or "this folder" for folder in dict.fromkeys(folders))
    raise UserError(f"There are no texts of queries and documents: put {expected} into {places}")


def read_texts(path: str) -> dict[str, str]:
    """Returns id -> text of JSON lines with `_id`, `text` and `title`, which precedes the text.

    A table has two columns, id and text, and no header.

    Raises:
        UserError: the file is missing or invalid, or has an id twice; the message names the line.
    """
    return {key: text for _, key, text in with_distinct_ids(iterate_texts(path))}


def iterate_texts(
    path: str, advice: str = "", stream: IO[bytes] | None = None
) -> Iterator[tuple[Where, str, str]]:
    """Yields place, id and text of each line, see `read_texts`; `advice` ends an error message.

    `stream` is an open file to read instead of `path`, see `read_table`.
    """
    for row in read_table(path, stream=stream):
        cells = row.cells
        if isinstance(cells, list) and len(cells) == 2:
            cells = {"_id": cells[0], "text": cells[1]}
        if not isinstance(cells, dict) or not {"_id", "text"} <= cells.keys():
            expected = "expected an object with the keys _id and text, or the columns id and text"
            received = f"Received: {shortened(brief(map(str, cells)))}"
            if isinstance(cells, dict) and {"id", "text"} <= cells.keys():
                received += ". Rename the key id to _id"
            raise UserError(f"{expected}. {received}{advice}", at=row.place)
        names = ("_id", "title", "text")
        key, title, text = (
            to_text("" if (x := cells.get(n)) is None else x, n, row.place) for n in names
        )
        yield row.place, key, f"{title} {text}".strip()


def with_distinct_ids(
    texts: Iterable[tuple[Where, str, str]],
) -> Iterator[tuple[Where, str, str]]:
    """Yields (place, id, text); raises a UserError for an id that occurs twice."""
    known: set[str] = set()
    for place, key, text in texts:
        if key in known:
            raise UserError(
                f"the id {excerpt(key)} occurs a second time", at=place, fix="Remove the line"
            )
        known.add(key)
        yield place, key, text


def read_qrels(
    path: str, queries: Mapping[str, str], documents: Mapping[str, str]
) -> Iterator[tuple[str, str, float]]:
    """Yields (query id, document id, relevance); 0: not relevant.

    The file has three columns and a header, as in BEIR, or four and no header, as in TREC.

    Raises:
        UserError: the file is missing or invalid, or names an unknown id; the message names the
            line.
    """
    for place, cells in _rows(path):
        if len(cells) == 3 and cells[0] == "query-id":
            continue
        relevance = parse_number(cells[-1]) if len(cells) in (3, 4) else None
        if relevance is None:
            expected = "expected the columns query-id, corpus-id and score"
            raise UserError(f"{expected}; or, as in TREC, query, 0, document, relevance", at=place)
        query, document = cells[0], cells[-2]
        _look_up(query, queries, "query", place)
        _look_up(document, documents, "document", place)
        if relevance > 0 and not (queries[query] and documents[document]):
            kind, key = ("document", document) if queries[query] else ("query", query)
            raise UserError(
                f"the {kind} {excerpt(key)} has no text", at=place, fix="Remove the line"
            )
        yield query, document, max(relevance, 0.0)


def read_candidates(
    path: str,
    queries: Mapping[str, str],
    documents: Mapping[str, str],
    folders: Sequence[str] = (),
) -> dict[str, list[Candidate]]:
    """Returns query id -> its candidates, best first.

    A TREC run has the columns query id, Q0, document id, rank, score and tag; as in trec_eval, only
    the score determines the order. A file like MS MARCO's `top1000.dev` has the columns query id,
    document id, query and document, best first.

    Args:
        path: the file.
        queries: id -> text.
        documents: id -> text. If there are none, the texts are those in the file.
        folders: where `read_collection` then finds the texts for a TREC run.

    Raises:
        UserError: the file is missing or invalid, has a pair twice, or names an unknown id.
    """
    _warn_of_distances(path)
    found: dict[str, dict[str, tuple[float, Candidate]]] = defaultdict(dict)
    for place, cells in _rows(path):
        is_run = len(cells) == 6
        score = parse_number(cells[4]) if is_run else 0.0
        if len(cells) not in (4, 6) or score is None:
            expected = "expected a TREC run (query, Q0, document, rank, score, tag)"
            raise UserError(f"{expected}, or the columns query id, id, query and text", at=place)
        if not is_run and cells[2].strip().lower() == "query":
            raise UserError(
                "a header, which such a file does not have", at=place, fix="Remove the line"
            )
        query, document = cells[0], cells[2] if is_run else cells[1]
        if is_run and not documents:
            if not folders:
                problem = "the texts of these data have no ids to which a TREC run could refer"
                advice = "Pass a file with the columns query id, id, query and text"
                raise UserError(problem, at=place, fix=f"{advice}, as top1000.dev has")
            queries, documents = read_collection(folders)
        if documents:
            texts = [_look_up(query, queries, "query", place)]
            texts.append(_look_up(document, documents, "document", place))
        else:
            texts = [text.strip() for text in cells[2:]]
        if not all(texts) or len(f"{query} {document}".split()) != 2:
            problem = "a text is empty, or an id has white space"
            columns = "" if is_run else ". The columns are query id, id, query and text"
            raise UserError(f"{problem}{columns}", at=place, fix="Correct or remove the line")
        if document in found[query]:
            raise UserError("the query has this document twice", at=place, fix="Remove the line")
        for _, other in itertools.islice(found[query].values(), 1):
            if other.query != texts[0]:
                problem = f"the query {excerpt(query)} has another text in a line before"
                raise UserError(problem, at=place, fix="Correct or remove the line")
        found[query][document] = (-score, Candidate(texts[0], texts[1], query, document))
    if not found:
        raise UserError(f"{path} contains no candidates")
    return {
        query: [candidate for _, candidate in sorted(pairs.values(), key=lambda pair: pair[0])]
        for query, pairs in found.items()
    }


def _warn_of_distances(path: str) -> None:
    """Warns if the scores in a TREC run rise with the ranks, as distances do."""
    rows = [cells for _, cells in itertools.islice(_rows(path), _ROWS_AHEAD) if len(cells) == 6]
    numbers = [(x[0], parse_number(x[3]) or 0.0, parse_number(x[4]) or 0.0) for x in rows]
    steps = [
        (rank - last_rank) * (score - last_score)
        for (last_query, last_rank, last_score), (query, rank, score) in itertools.pairwise(numbers)
        if query == last_query
    ]
    if sum(step > 0 for step in steps) > len(steps) / 2:
        advice = "The highest score comes first: if these are distances, negate them"
        warn("the scores rise with the ranks", at=path, fix=advice)


def _rows(path: str) -> Iterator[tuple[Where, list[str]]]:
    """Yields the cells of each line, which are separated by tabs or else by white space."""
    for row in read_table(path):
        cells = row.cells if isinstance(row.cells, list) else []
        yield row.place, cells[0].split() if len(cells) == 1 else cells


def _look_up(key: str, texts: Mapping[str, str], kind: str, place: Where) -> str:
    if key not in texts:
        problem = f"there is no {kind} with the id {excerpt(key)}"
        raise UserError(problem, at=place, fix="Correct or remove the line")
    return texts[key]
