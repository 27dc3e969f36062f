"""Reads queries, documents and their relevance from files in the layout of BEIR.

Thakur et al. 2021, "BEIR: A Heterogeneous Benchmark for Zero-shot Evaluation of Information
Retrieval Models": `corpus.jsonl`, `queries.jsonl`, and `qrels/train.tsv`, `dev.tsv` or `test.tsv`.
"""

from collections.abc import Iterable, Iterator, Mapping

from bert_tf.errors import UserError, excerpt
from bert_tf.tables.columns import parse_number, to_text
from bert_tf.tables.read import read_table


def read_texts(path: str) -> dict[str, str]:
    """Returns id -> text of JSON lines with `_id`, `text` and `title`, which precedes the text.

    Raises:
        UserError: the file is missing or invalid, or has an id twice; the message names the line.
    """
    return {key: text for _, key, text in with_distinct_ids(iterate_texts(path))}


def iterate_texts(path: str, advice: str = "") -> Iterator[tuple[str, str, str]]:
    """Yields place, id and text of each line, see `read_texts`; `advice` ends an error message."""
    for row in read_table(path):
        if not isinstance(row.cells, dict) or not {"_id", "text"} <= row.cells.keys():
            raise UserError(f"{row.place}: expected an object with the keys _id and text{advice}")
        names = ("_id", "title", "text")
        key, title, text = (to_text(row.cells.get(n) or "", n, row.place) for n in names)
        yield row.place, key, f"{title} {text}".strip()


def with_distinct_ids(
    texts: Iterable[tuple[str, str, str]],
) -> Iterator[tuple[str, str, str]]:
    """Yields (place, id, text); raises a UserError for an id that occurs twice."""
    known: set[str] = set()
    for place, key, text in texts:
        if key in known:
            raise UserError(f"{place}: the id {excerpt(key)} occurs a second time. Remove the line")
        known.add(key)
        yield place, key, text


def read_qrels(
    path: str, queries: Mapping[str, str], documents: Mapping[str, str]
) -> Iterator[tuple[str, str, float]]:
    """Yields (query id, document id, relevance) of a TSV file with a header; 0: not relevant.

    Raises:
        UserError: the file is missing or invalid, or names an unknown id; the message names the
            line.
    """
    kinds = {"query": queries, "document": documents}
    for row in read_table(path):
        is_row = isinstance(row.cells, list) and len(row.cells) == 3
        if is_row and row.cells[0] == "query-id":
            continue
        relevance = parse_number(row.cells[2]) if is_row else None
        if relevance is None:
            raise UserError(f"{row.place}: expected the columns query-id, corpus-id and score")
        for key, (kind, known) in zip(row.cells[:2], kinds.items(), strict=True):
            if key not in known:
                problem = f"there is no {kind} with the id {excerpt(key)}"
                raise UserError(f"{row.place}: {problem}. Correct or remove the line")
        yield row.cells[0], row.cells[1], max(relevance, 0.0)
