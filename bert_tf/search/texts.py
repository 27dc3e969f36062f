"""Reads the texts of an index, and queries."""

import io
import itertools
import re
from collections.abc import Iterable, Iterator

from bert_tf.base.errors import Place, UserError, Where, counted, excerpt, warn
from bert_tf.data.texts import check_lines, display_name, lines, read_columns
from bert_tf.search.options import SearchOptions
from bert_tf.tables import relevance
from bert_tf.tables.columns import COLUMN_NAME, is_name
from bert_tf.tables.read import is_object

# Place (file and line), id and text.
Identified = tuple[Where, str, str]
_JSON = re.compile(r"\.(jsonl?|ndjson)(\.gz)?$", re.IGNORECASE)
_HEADER = re.compile(rf"{COLUMN_NAME.pattern}|query|q|[dpq]id|docid", re.IGNORECASE)
_TSV = re.compile(r"\.tsv(\.gz)?$", re.IGNORECASE)
# A line of relevance judgments, as in BEIR or TREC.
_QRELS = re.compile(r"\S+(\t\S+\t|\s+0\s+\S+\s+)-?\d+")
_TABLE = re.compile(r"\.(csv|tsv)(\.gz)?$", re.IGNORECASE)
# Number of lines that are checked for whether they are plain text.
_NUM_CHECKED = 1000
_BY_NAME = ", or pass --text_column by name"


def read_texts(options: SearchOptions) -> Iterator[Identified]:
    """Yields the texts to index, without blank ones.

    Raises:
        UserError: the file is missing, invalid or without texts, or an id is blank or occurs twice.
    """
    path = options.input_file or ""
    if options.text_column:
        if _TSV.search(path) and not is_name(options.text_column):
            _check_delimiter(path)
        columns = {"text": options.text_column, "id": options.id_column}
        rows = enumerate(read_columns(path, columns), start=1)
        texts = ((place, row.get("id", str(n)), row["text"]) for n, (place, row) in rows)
        return _check(path, texts, _BY_NAME)
    if _TABLE.search(path):
        raise UserError(f"{path} is a table: pass --text_column, and --id_column if it has ids")
    if _JSON.search(path):
        return _check(path, relevance.iterate_texts(path, ". Or pass --text_column"))
    texts = _read(path)
    first = [*itertools.islice(texts, _NUM_CHECKED)]
    advice = "Select a column with --text_column"
    for problem in check_lines(path, [text for _, _, text in first], advice):
        warn(problem, at=display_name(path))
    return _check(path, itertools.chain(first, texts), _BY_NAME)


def read_queries(path: str) -> list[Identified]:
    """Returns the queries in a file; the number of its line is the id of a query without one.

    Lines that begin with a JSON object are JSON lines, also in standard input, `-`.

    Raises:
        UserError: see `read_texts`; or only some of the lines have an id.
    """
    if _JSON.search(path):
        return [*_check(path, relevance.iterate_texts(path))]
    if path.lower().endswith(".csv"):
        raise UserError(f"{path} is a table: write a query per line, or an id, a tab and the query")
    texts, path = [*_read(path)], display_name(path)
    content = [text for _, _, text in texts]
    if is_object(next(filter(str.strip, content), "")):
        stream = io.BytesIO("\n".join(content).encode())
        return [*_check(path, relevance.iterate_texts(path, stream=stream))]
    queries = [*_check(path, texts)]
    # The first line may be a header, and one line may be chance.
    if len(queries) > 1 and all(_QRELS.fullmatch(query) for _, _, query in queries[1:]):
        problem = "has ids of queries and texts, and scores (qrels)"
        raise UserError(f"{path} {problem}", fix="Pass the file with the texts of the queries")
    if any(query == "<top>" for _, _, query in queries):
        advice = "Write the number and the title of each on a line, with a tab between them"
        raise UserError(f"{path} has the topics of TREC, in markup", fix=advice)
    has_ids = any("\t" in query for _, _, query in queries)
    for place, _, query in queries:
        if has_ids and "\t" not in query:
            problem = "no id and tab before the query, but other lines have them"
            raise UserError(problem, at=place, fix="Write an id in each line, or remove the tabs")
    if has_ids:
        pairs = ((place, query.partition("\t")) for place, _, query in queries)
        queries = [*_check(path, ((place, key, text) for place, (key, _, text) in pairs))]
    first = [query for _, _, query in queries[:_NUM_CHECKED]]
    for problem in check_lines(path, first, "Write a query per line, as plain text"):
        warn(problem, at=path)
    return queries


def _check_delimiter(path: str) -> None:
    """Warns about a table without tabs, most of whose lines have as many commas as the first."""
    first = [*itertools.islice(lines(path), _NUM_CHECKED)]
    for delimiter in ",;" if len(first) > 1 and not any("\t" in x for x in first) else "":
        number = first[0].count(delimiter)
        count = sum(line.count(delimiter) == number for line in first)
        if number and 2 * count > len(first):
            warn("no line has a tab", at=path, fix="Is this a CSV file? Then rename it to .csv")


def _read(path: str) -> Iterator[Identified]:
    for number, line in enumerate(lines(path), start=1):
        text = line.removeprefix("\ufeff") if number == 1 else line
        yield Place(display_name(path), number), str(number), text


def _check(path: str, texts: Iterable[Identified], advice: str = "") -> Iterator[Identified]:
    """Yields texts that are not blank, with distinct ids; both without spaces around them.

    `advice` says what else to do about a text that may be the name of a column.
    """
    blank, num_texts = [], 0
    for place, key, text in relevance.with_distinct_ids(texts):
        if text.strip() and not key.strip():
            raise UserError("the id is empty", at=place, fix="Write an id, or remove the line")
        if text.strip():
            num_texts += 1
            cells = {"text": text, "id": key} if num_texts == 1 else {}
            found = [f"{n} is {excerpt(x)}" for n, x in cells.items() if _HEADER.fullmatch(x)]
            if found:
                warn(
                    f"the {found[0]}",
                    at=place,
                    fix=f"If it is a column name, remove the line{advice}",
                )
            yield place, key.strip(), text.strip()
        else:
            blank.append(place)
    if not num_texts:
        raise UserError(f"{display_name(path)} contains no text")
    if blank:
        skipped = counted(len(blank), "text", "are empty and were skipped")
        warn(f"{blank[0]}: {skipped}")
