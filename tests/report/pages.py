"""Reads reports: the tables of a page, and the rows of `eval_predictions.tsv`."""

import csv
from html.parser import HTMLParser


class Page(HTMLParser):
    """A page.

    Attributes:
        tables: rows of cells of the tables below each heading, as text.
        texts: the text below each heading.
        tags: all names of tags and attributes.
    """

    def __init__(self, path):
        super().__init__()
        self.html = path.read_text("utf-8")
        self.tables, self.texts, self.tags, self._path, self._heading = {}, {}, set(), [], ""
        self.feed(self.html)

    def handle_starttag(self, tag, attrs):
        self.tags |= {tag, *(name for name, _ in attrs)}
        if tag not in ("meta", "path"):
            self._path.append(tag)
        if tag == "h2":
            self._heading = ""
        elif tag == "tr":
            self.tables.setdefault(self._heading, []).append([])
        elif tag in ("td", "th"):
            self.tables[self._heading][-1].append("")

    def handle_endtag(self, tag):
        if tag != "path":
            assert self._path.pop() == tag

    def handle_data(self, data):
        if self._path[-1:] == ["h2"]:
            self._heading += data
        elif {"td", "th"} & {*self._path}:
            self.tables[self._heading][-1][-1] += data
        self.texts[self._heading] = self.texts.get(self._heading, "") + data

    def column(self, heading, name):
        """Returns the cells of a column by the first cell of their row."""
        header, *rows = self.tables[heading]
        index = header.index(name)
        return {row[0]: row[index] for row in rows}


def read_rows(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))
