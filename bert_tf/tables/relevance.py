"""Reads queries, documents, their relevance, and candidates that a search found.

The layouts are those of BEIR (Thakur et al. 2021, "BEIR: A Heterogeneous Benchmark for Zero-shot
Evaluation of Information Retrieval Models"), of MS MARCO's passage ranking and of trec_eval.
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from bert_tf.base import files
from bert_tf.base.errors import UserError, Where, excerpt, warn
from bert_tf.tables.columns import parse_number
from bert_tf.tables.read import read_table
from bert_tf.tables.texts import read_texts, with_distinct_ids

_DOCUMENTS = re.compile(r"(corpus\.jsonl|collection\.tsv)(\.gz)?")
_QUERIES = re.compile(r"queries(\..+)?\.(jsonl|tsv)(\.gz)?")


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
            merged = {key: text for path in queries for key, text in _by_id(path).items()}
            return merged, _by_id(documents[0])
    expected = "queries.jsonl and corpus.jsonl (BEIR), or queries.tsv and collection.tsv (MS MARCO)"
    places = " or ".join(folder or "this folder" for folder in dict.fromkeys(folders))
    raise UserError(f"There are no texts of queries and documents: put {expected} into {places}")


def _by_id(path: str) -> dict[str, str]:
    return {key: text for _, key, text in with_distinct_ids(read_texts(path))}


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
        for kind, key, texts in (("query", query, queries), ("document", document, documents)):
            if not _look_up(key, texts, kind, place) and relevance > 0:
                raise UserError(f"the {kind} {excerpt(key)} has no text", at=place)
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
    found: dict[str, dict[str, tuple[float, Candidate]]] = defaultdict(dict)
    last, num_rising, num_steps = ("", 0.0, 0.0), 0, 0
    for place, cells in _rows(path):
        is_run = len(cells) == 6
        score = parse_number(cells[4]) if is_run else 0.0
        is_header = len(cells) == 4 and cells[2].strip().lower() == "query"
        if len(cells) not in (4, 6) or score is None or is_header:
            expected = "expected a TREC run (query, Q0, document, rank, score, tag)"
            expected += ", or the columns query id, id, query and text, without a header"
            raise UserError(f"{expected}. Received: {excerpt(' '.join(cells))}", at=place)
        query, document = cells[0], cells[2] if is_run else cells[1]
        if is_run and not documents:
            if not folders:
                problem = "the texts of these data have no ids, to which a TREC run refers"
                raise UserError(problem, at=place)
            queries, documents = read_collection(folders)
        if documents:
            texts = [_look_up(query, queries, "query", place)]
            texts.append(_look_up(document, documents, "document", place))
        else:
            texts = [text.strip() for text in cells[2:]]
        other = next(iter(found[query].values()), (0.0, Candidate(texts[0], "")))[1]
        if not all(texts) or len(f"{query} {document}".split()) != 2:
            raise UserError("a text is empty, or an id has white space", at=place)
        if document in found[query] or other.query != texts[0]:
            problem = "the query has this document twice, or another text in a line before"
            raise UserError(problem, at=place)
        found[query][document] = (-score, Candidate(texts[0], texts[1], query, document))
        step = query, parse_number(cells[3]) or 0.0 if is_run else 0.0, score
        if query == last[0]:
            num_steps += 1
            num_rising += (step[1] - last[1]) * (score - last[2]) > 0
        last = step
    if not found:
        raise UserError(f"{path} contains no candidates")
    if 2 * num_rising > num_steps:
        warn("the scores rise with the ranks, but the highest score comes first", at=path)
    return {
        query: [candidate for _, candidate in sorted(pairs.values(), key=lambda pair: pair[0])]
        for query, pairs in found.items()
    }


def _rows(path: str) -> Iterator[tuple[Where, list[str]]]:
    """Yields the cells of each line, which are separated by tabs or else by white space."""
    for row in read_table(path):
        cells = row.cells if isinstance(row.cells, list) else []
        yield row.place, cells[0].split() if len(cells) == 1 else cells


def _look_up(key: str, texts: Mapping[str, str], kind: str, place: Where) -> str:
    if key not in texts:
        raise UserError(f"there is no {kind} with the id {excerpt(key)}", at=place)
    return texts[key]
