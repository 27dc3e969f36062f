"""Reads the texts of an index, and queries."""

import itertools
import re
from collections.abc import Iterator, Mapping

from bert_tf import lint
from bert_tf.base.errors import Place, UserError, counted, warn
from bert_tf.data.texts import check_lines
from bert_tf.tables import texts as tables
from bert_tf.tables.texts import Identified, display_name

_JSON = re.compile(r"\.(jsonl?|ndjson)(\.gz)?$", re.IGNORECASE)
_TABLE = re.compile(r"\.(csv|tsv)(\.gz)?$", re.IGNORECASE)
# Number of lines that are checked for whether they are plain text.
_NUM_CHECKED = 1000


def read_texts(path: str, columns: Mapping[str, str | None], **layout: str) -> Iterator[Identified]:
    """Yields the texts to index, without blank ones; one without an id has the number of its row.

    `columns` and `layout` are those of `read_columns`, for the purposes "text" and "id".

    Raises:
        UserError: the file is missing, invalid or without texts, or an id occurs twice.
    """
    if columns["text"]:
        rows = tables.read_columns(path, columns, **layout)
        return _check(path, ((place, row.get("id", ""), row["text"]) for place, row in rows))
    if _TABLE.search(path):
        raise UserError(f"{path} is a table: pass --text_column, and --id_column if it has ids")
    if _JSON.search(path):
        return _check(path, tables.read_texts(path, "Or pass --text_column"))
    numbered, name = enumerate(tables.lines(path), start=1), display_name(path)
    texts = ((Place(name, number), "", line.removeprefix("\ufeff")) for number, line in numbered)
    return _check(path, texts, "Select a column with --text_column")


def read_queries(path: str) -> list[Identified]:
    """Returns the queries in a file, as `tables.texts.read_texts` reads them.

    Raises:
        UserError: see `read_texts`.
    """
    return [*_check(path, tables.read_texts(path), "Write a query per line, as plain text")]


def _check(path: str, texts: Iterator[Identified], advice: str = "") -> Iterator[Identified]:
    """Yields texts that are not blank, with distinct ids; both without spaces around them.

    Warns if the first ones are all the same or, with `advice`, if they look like another format.
    """
    first = [*itertools.islice(texts, _NUM_CHECKED)]
    found = [text for _, _, text in first]
    lines = check_lines("", found, advice) if advice else ()
    for problem in itertools.chain(lines, lint.constant(found, "text")):
        warn(problem, at=display_name(path))
    numbered = enumerate(itertools.chain(first, texts), start=1)
    texts = ((place, key.strip() or str(number), text) for number, (place, key, text) in numbered)
    blank, num_texts = [], 0
    for place, key, text in tables.with_distinct_ids(texts):
        if text.strip():
            num_texts += 1
            yield place, key, text.strip()
        else:
            blank.append(place)
    if not num_texts:
        raise UserError(f"{display_name(path)} contains no text")
    if blank:
        warn(counted(len(blank), "text", "are empty and were skipped"), at=blank[0])
