"""Reads and writes the files of tests of tasks."""

import json


def write_json_lines(path, rows):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def rows_of(path):
    """Returns the rows of a table, each a list of cells."""
    return [line.split("\t") for line in path.read_text().splitlines()]
