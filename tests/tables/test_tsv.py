"""Reading TSV files: rows, and line numbers of errors."""

import csv
import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bert_tf.base.errors import Place, UserError
from bert_tf.tables.read import Row, read_tsv

PLAIN = 'id\ttext\n1\tHe said "no.\n2\t"quoted"\n3\tit\'s\n'
ROWS = [["id", "text"], ["1", 'He said "no.'], ["2", '"quoted"'], ["3", "it's"]]


@pytest.fixture
def write(tmp_path):
    def write(content: str | bytes) -> str:
        path = tmp_path / "train.tsv"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    return write


def read_cells(path: str) -> list[list[str]]:
    return [row.cells for row in read_tsv(path)]


@pytest.mark.parametrize(
    "content",
    [
        PLAIN.replace("text", "te\rxt"),
        PLAIN.removesuffix("\n"),
        "\ufeff" + PLAIN.replace("\n", "\r\n") + "\r\n\r\n",
    ],
)
def test_equivalent_files(write, content):
    assert read_cells(write(content)) == ROWS


def test_line_numbers_include_blank_lines(write):
    path = write("a\tb\n\nc\n\n\nd\n\n")
    cells = [["a", "b"], [], ["c"], [], [], ["d"]]
    assert [*read_tsv(path)] == [Row(Place(path, line), row) for line, row in enumerate(cells, 1)]


@pytest.mark.parametrize("content", ["", "\n", "\n\n\n", "\ufeff", "\r\n"])
def test_files_without_rows(write, content):
    assert read_cells(write(content)) == []


def test_only_tab_and_lf_are_separators(write):
    content = 'a, b; c\td\u2028e\x85f\x0cg\t"h\ti"\t\x00\n'
    assert read_cells(write(content)) == [["a, b; c", "d\u2028e\x85f\x0cg", '"h', 'i"', "\x00"]]


def test_cell_length_limit(write):
    limit = csv.field_size_limit()
    assert read_cells(write("a\n" + "x" * limit + "\n"))[1] == ["x" * limit]
    path = write("a\n" + "x" * (limit + 1) + "\n")
    with pytest.raises(UserError, match=re.escape(f"{path}:2: ") + ".*131072"):
        read_cells(path)


@given(
    st.lists(
        st.lists(
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t\n\r")),
            min_size=1,
            max_size=4,
        ).filter(lambda row: row != [""]),  # a row of one empty cell is a blank line
        max_size=6,
    )
)
def test_round_trip(tmp_path_factory, rows):
    text = "".join("\t".join(row) + "\n" for row in rows)
    assume(not text.startswith("\ufeff"))
    path = tmp_path_factory.getbasetemp() / "any.tsv"
    path.write_bytes(text.encode())
    assert [*read_tsv(str(path))] == [
        Row(Place(str(path), i), row) for i, row in enumerate(rows, 1)
    ]


def test_bom_is_dropped_only_at_the_start(write):
    assert read_cells(write("\ufeff\ufeffa\n\ufeffb\n")) == [["\ufeffa"], ["\ufeffb"]]
