"""Reading CSV, TSV and JSON tables: rows, and line numbers of errors."""

import csv
import gzip
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.base.errors import Place, UserError
from bert_tf.tables import columns
from bert_tf.tables.columns import to_text, value_at
from bert_tf.tables.read import read_table

ROWS = [["label", "text"], ["ham", "One, two; three"], ["spam", "Four"]]
TSV = "label\ttext\nham\tOne, two; three\nspam\tFour\n"


@pytest.fixture
def write(tmp_path):
    def write(name: str, content: str | bytes) -> str:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    return write


@pytest.mark.parametrize("count", [19, 20])
def test_quotes_around_many_lines_warn(write, run_log, count):
    path = write("a.csv", 'a,b\n"' + "c,d\n" * count + 'c",d\ne,f\n')
    assert len([*read_table(path)]) == 3
    assert ("a.csv:2: the row has more than 20 lines" in run_log.text) == (count == 20)


def read_cells(path, quoted="auto", split=""):
    return [row.cells for row in read_table(path, quoted, split=split)]


def read_columns(path, **options):
    """Returns the cells of columns, such as `text="1"`."""
    others = {name: options.pop(name) for name in ("has_header", "split") if name in options}
    rows = read_table(path, split=others.get("split", ""))
    return [cells for _, cells in columns.read_cells(path, rows, options, **others)]


def line_numbers(path, quoted="auto"):
    locations = [(row.place.file, row.place.line) for row in read_table(path, quoted)]
    assert {file for file, _ in locations} <= {path}
    return [line for _, line in locations]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", TSV),
        ("a", TSV),
        ("a.txt", "\ufeff" + TSV),
        ("a.tsv", TSV.replace("\n", "\r\n", 1)),
        ("a.tsv", TSV.removesuffix("\n")),
        ("a.tsv", TSV + "\n\r\n\n"),
        ("a.csv", TSV),
        ("a.csv", 'label,text\nham,"One, two; three"\nspam,Four\n'),
        ("A.CSV", '\ufeff"label";"text"\r\n"ham";"One, two; three"\n"spam";"Four"\n\n'),
        ("a.csv", 'label, text\nham, "One, two; three"\nspam, Four\n'),
        ("a.tsv.gz", gzip.compress(TSV.encode(), mtime=0)),
        ("a.csv.gz", gzip.compress(TSV.encode(), mtime=0)),
    ],
)
def test_equivalent_formats(write, name, content):
    path = write(name, content)
    assert read_cells(path) == ROWS
    assert line_numbers(path) == [1, 2, 3]


@pytest.mark.parametrize("name", ["a.tsv", "a.jsonl"])
@pytest.mark.parametrize("content", ["", "\ufeff\r\n\n"])
def test_files_without_rows(write, name, content):
    assert read_cells(write(name, content)) == []


def test_tsv_quotes_are_literal_unless_enabled(write):
    path = write("a.tsv", '"a\tb"\n"c ""d"""\te\n')
    assert read_cells(path) == [['"a', 'b"'], ['"c ""d"""', "e"]]
    assert read_cells(write("b.tsv", '"a\tb"\n"c ""d"""\n'), "yes") == [["a\tb"], ['c "d"']]
    assert read_cells(write("a.csv", '"a,b"\n'), "no") == [['"a', 'b"']]


def test_quote_inside_a_cell_is_literal(write):
    path = write("a.csv", 'a,b\n"c\n",  "d\n')
    assert read_cells(path) == [["a", "b"], ["c\n", '  "d']]
    path = write("b.csv", 'a,b\nc, "d" e\n"x, ""y"" ",z\n')
    assert read_cells(path) == [["a", "b"], ["c", ' "d" e'], ['x, "y" ', "z"]]


def test_multiline_rows_report_their_first_line(write):
    path = write("a.csv", 'a,b\n"one\ntwo\r\n\n3",x\n4,"y\rz"\n')
    assert read_cells(path) == [["a", "b"], ["one\ntwo\r\n\n3", "x"], ["4", "y\rz"]]
    assert line_numbers(path) == [1, 2, 6]


@pytest.mark.parametrize(
    ("first", "delimiter"),
    [("a;b;c, d", ";"), ('"a;b;c;d",e', ","), ("a\tb", "\t"), ("a", ","), ('a,"b;;\nc"', ",")],
)
def test_csv_delimiter_is_detected_from_the_first_line(write, first, delimiter):
    expected = next(csv.reader(io.StringIO(first), delimiter=delimiter))
    assert read_cells(write("a.csv", first)) == [expected]


@pytest.mark.parametrize(
    ("name", "content", "rows"),
    [
        ("a.csv", 'sep=|\r\na|"b\nc"\r\nd|e\r\n', [["a", "b\nc"], ["d", "e"]]),
        ("a.csv", '\ufeff"SEP=;"\na,b;c\n', [["a,b", "c"]]),
        ("a.csv", "sep=ab\nx\n", [["sep=ab"], ["x"]]),
        ("a.tsv", "sep=;\nx\n", [["sep=;"], ["x"]]),
    ],
)
def test_delimiter_line_of_excel(write, name, content, rows):
    path = write(name, content)
    assert read_cells(path) == rows
    assert line_numbers(path)[0] == (2 if rows[0] != content.split("\n")[:1] else 1)


def test_blank_lines_are_rows_in_single_column_files(write):
    path = write("a.tsv", "one\n\ntwo\n\n\n")
    assert read_columns(path, text="1") == [{"text": "one"}, {"text": ""}, {"text": "two"}]
    assert line_numbers(path) == [1, 2, 3]


# A file, and whether its quotes enclose cells; other quotes are part of the text.
QUOTES = [
    ('text\tlabel\n"He said ""no"", twice"\ta\nb\tc\n', True),  # pandas, csv.writer, Excel
    ('text\tlabel\n"one\ttwo"\ta\nb\tc\n', True),
    ('text\tlabel\n"one\ntwo\n"\ta\nb\tc\n', True),
    ('"text"\t"label"\n"one"\t"a"\ntwo\tb\n', True),  # R
    ("text\tlabel\n" + '"one"\ta\n"two"\tb\n' * 10, True),  # PostgreSQL's COPY with FORCE_QUOTE
    ('text\tlabel\n"one"\ta\n"two"\tb\n', False),
    ('text\tlabel\n"Hi"" you"" there"\ta\n"x" y\tb\n', False),
    ('text\tlabel\n"A ""b"""\ta\n5" nails\tb\n', False),
    ('label\ttext\na\t"one\nb\ttwo"\n', False),  # the quote of a text, and one of another text
    ('a\tb\n"c\td\te"\tf\n"g\n', False),
    ('"one"\n"two"\n', False),
    ("text\tlabel\none\ta\ttwo\n", False),
]


@pytest.mark.parametrize(("content", "are_read"), QUOTES)
@pytest.mark.parametrize("name", ["a.tsv", "a"])
def test_quotes_of_tsv(write, name, content, are_read):
    path = write(name, content)
    assert read_cells(path) == read_cells(path, "yes" if are_read else "no")


def test_quotes_after_many_lines(write):
    rows = [["text", "label"], ['a "b"\n\tc', "d"], *[["e", "f"]] * 9_997, ["g\n\n\nh", "i"]]
    text = io.StringIO()
    csv.writer(text, delimiter="\t").writerows(rows)
    assert read_cells(write("a.tsv", text.getvalue())) == rows


def test_json_lines(write):
    path = write("a.jsonl", '\ufeff\n{"text": "a\\nb", "n": 1}\r\n \n{"n": null, "l": ["x"]}')
    assert read_cells(path) == [{"text": "a\nb", "n": 1}, {"n": None, "l": ["x"]}]
    assert line_numbers(path) == [2, 4]


OBJECTS = [{"text": "a", "label": 1}, {"text": "b", "label": 2}]
PANDAS = {
    "records": OBJECTS,
    "columns": {"text": {"0": "a", "1": "b"}, "label": {"0": 1, "1": 2}},
    "index": {"0": OBJECTS[0], "7": OBJECTS[1]},
    "split": {"columns": ["text", "label"], "index": [0, 1], "data": [["a", 1], ["b", 2]]},
    "table": {"schema": {"fields": []}, "data": OBJECTS},
}


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("value", PANDAS.values(), ids=PANDAS)
def test_json_of_pandas(write, value, indent):
    path = write("a.json", json.dumps(value, indent=indent))
    assert read_cells(path) == OBJECTS
    assert str([*read_table(path)][1].place) == f"{path}: element 2"


@pytest.mark.parametrize("indent", [None, 1])
def test_named_lists(write, indent):
    value = {"oos_val": [["c", "d"]], "val": [["b", "x"]], "train": [["a", "x"]], "n": 1}
    path = write("a.json", json.dumps(value, indent=indent))
    assert read_cells(path, split="train") == [["a", "x"]]
    assert read_columns(path, text="1", split="eval") == [{"text": "b"}]
    for split in ("predict", ""):
        with pytest.raises(UserError, match=r"'oos_val', 'val', 'train'") as error:
            read_columns(path, text="text", split=split) if indent is None else read_cells(path)
        assert error.value.at == Place(path, 1)


@pytest.mark.parametrize(
    "content", ['["text", "label"]\n["a", 1]\n', '[["text", "label"],\n ["a", 1]]']
)
def test_arrays_are_rows(write, content):
    path = write("a.jsonl", content)
    assert read_columns(path, label="label", text="text") == [{"label": 1, "text": "a"}]
    assert read_columns(path, text="1") == [{"text": "text"}, {"text": "a"}]
    assert read_columns(path, text="1", has_header="yes") == [{"text": "a"}]


TOO_LONG = csv.field_size_limit() + 1


@pytest.mark.parametrize(
    ("name", "content", "line", "problem"),
    [
        ("a.tsv", "a\tb\nc\td\te\n", 2, "3 columns, but 2 in the first row: 'c', 'd', 'e'"),
        ("a.tsv", "a\tb\nc\n", 2, "1 column, but 2"),
        ("a.csv", 'a,b\n"c\n",d,e\n', 2, "3 columns, but 2"),
        ("a.jsonl", '["a", "b"]\n["c"]\n', 2, "1 column, but 2"),
        ("a.jsonl", '["a", "b"]\n{"c": 1, "d": 2}\n', 2, "unlike the first row"),
        ("a.jsonl", '{"c": 1, "d": 2}\n["a", "b"]\n', 2, "unlike the first row"),
        ("a.tsv", "a\tb\rc\td\r", 1, "CR without LF"),
        ("a.csv", 'a,b\n"c\nd",e\rf\n', 3, "CR without LF"),
        ("a.csv", 'a,b\n"c\n\0",d\n', 3, "NUL byte at position 1"),
        ("a.csv", f'a,b\n"c\nd",{"x" * TOO_LONG}\n', 2, "131072"),
        ("a.csv", 'a,b\n"c\n","d\n\n', 2, "a quote .* is not closed"),
        ("a.csv", 'a,b\nc,"d" e\n', 2, "a quote .* text follows it"),
        ("a.jsonl", '{"a": 1}\n{"a"\n', 2, "invalid JSON: .*position 5"),
        ("a.jsonl", '{"a": 1}\r{"a": 2}\r', 1, "invalid JSON"),
        ("a.jsonl", '{"a": 1}\n\n2\n', 3, "expected an object or a list. Received: '2'"),
        ("a.jsonl", '{"a": 1}\n{"a": "b', 2, "invalid JSON"),
        ("a.json", '[{"a": 1},\n{"a": 2},', 2, "invalid JSON"),
        ("a.json", '[{"a": 1},\n{"a" 2}]\n', 2, "invalid JSON"),
        ("a.json", '[{"a": 1}, 2]\n', 2, "expected an object or a list"),
        ("a.json", '{"a": {"b": 1},\n"c": 2}', 1, "one object, with the keys 'a', 'c'"),
        ("a.jsonl", "[" * 100000, 1, "invalid JSON: maximum recursion"),
    ],
)
def test_errors_name_file_and_line(write, name, content, line, problem):
    path = write(name, content)
    with pytest.raises(UserError, match=problem) as error:
        read_columns(path, **({} if "{" in content else {"text": "1"}))
    assert error.value.at[:2] == (path, line)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", "a\tb\n".encode("utf-16"), ":1: the file is not UTF-8 .* utf-16"),
        ("a.csv", b"a,b\nc,\xe9\n", r":2: the file is not UTF-8 \(byte 0xe9 .* iconv"),
        ("a.tsv", b"PK\x03\x04\x14\0", ":1: this is not a text file"),
        ("a.tsv", b"<!DOCTYPE html>\n<html>", ":1: this is not a text file"),
        ("a.tsv.gz", gzip.compress(b"a\tb\n" * 999, mtime=0)[:-9], " is not a complete gzip file"),
        ("a.tsv.gz", b"a\tb\n", " is not a complete gzip file"),
    ],
)
def test_other_encodings(write, name, content, message):
    path = write(name, content)
    with pytest.raises(UserError, match=f"{path}{message}"):
        read_cells(path)


@pytest.mark.parametrize(
    ("content", "flags", "warns"),
    [
        ("label\ttext\nx\tone two\n", {"text": "2"}, True),
        ("Klasse\tSatz\na\tone two\nb\tc d\na\te\nb\tf\n", {"text": "2", "label": "1"}, True),
        ("y\tx\n0.1\ta\n0.2\tb\n", {"text": "2", "label": "1"}, True),
        ("food,price,x\n1,0,a\n0,1,b\n", {"text": "3", "label": "1,2"}, True),
        ("0.3\tx\n0.1\ta\n0.1\tb\n", {"text": "2", "label": "1"}, False),
        ("x\ttext\ny\ttext\n", {"text": "2"}, False),
        ("a b\tc\nd e\tf\n", {"text": "1"}, False),
        ("label\ttext\nx\tone two\n", {"text": "2", "has_header": "no"}, False),
        ("label\ttext\nx\tone two\n", {"text": "2", "has_header": "yes"}, False),
    ],
)
def test_names_that_are_read_as_data(write, caplog, content, flags, warns):
    path = write("a.csv", content)
    is_header = flags.get("has_header") == "yes" or flags["text"] == "text"
    assert len(read_columns(path, **flags)) == content.count("\n") - is_header
    message = f"{path}:1: looks like a header, but is read as data"
    assert caplog.text.count(message) == warns


def test_repeated_header(write, caplog):
    path = write("a.tsv", "text\tlabel\na\tb\ntext\tlabel\n")
    assert len(read_columns(path, text="text")) == 2
    assert caplog.messages == [f"{path}:3: the row repeats the header"]


@pytest.mark.parametrize("header", ["", "a\tb\tc\td\te\n"])
def test_further_cells_are_left_out(write, caplog, header):
    """As in the STS benchmark."""
    rows = header + "1\t2\t3\tfour\tfive\n" + "1\t2\t3\tsix\tten\tweb\tsite\n" * 2
    path, line = write("a.tsv", rows), 2 + bool(header)
    expected = [{"text": x, "text_pair": y} for x, y in (("four", "five"), *[("six", "ten")] * 2)]
    flags = {"text": "d", "text_pair": "e"} if header else {"text": "4", "text_pair": "5"}
    assert read_columns(path, **flags) == expected
    assert f"{path}:{line}: 2 rows with more cells than the first (5)" in caplog.text
    # If most columns are read, further cells are probably a part of a text.
    with pytest.raises(UserError, match="7 columns, but 5"):
        read_columns(path, **flags, label="c" if header else "3")


@given(st.lists(st.tuples(*[st.text(st.characters(exclude_categories=["Cs"]))] * 3), max_size=6))
@pytest.mark.parametrize(("delimiter", "name"), [(",", "a.csv"), (";", "a.csv"), ("\t", "a.tsv")])
def test_round_trip_with_csv_writer(tmp_path_factory, delimiter, name, rows):
    rows = [["a", "b", "c"], *([cell.replace("\0", "") for cell in row] for row in rows)]
    path = tmp_path_factory.getbasetemp() / name
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows(rows)
    assert read_cells(str(path), "yes") == rows


@pytest.mark.parametrize(
    ("value", "text"),
    [("x ", "x "), (1, "1"), (1.0, "1"), (-2.5, "-2.5"), (1e300, "1e+300"), (True, "true")],
)
def test_json_cells_are_converted_to_text(value, text):
    assert to_text(value, "text", "a:1") == text


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "Received: 'null'"),
        (float("nan"), "Received: 'NaN'"),
        (["x"], r"""Received: '\["x"\]'"""),
        ({"x": 1}, r"""Received: '\{"x": 1\}'"""),
        ("\ud800", r"Received: '\\ud800'"),
    ],
)
def test_non_text_json_cells_are_rejected(value, message):
    problem = f"a:1: the text must be a string or a finite number.*{message}"
    with pytest.raises(UserError, match=problem):
        to_text(value, "text", "a:1")


@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.jsonl.gz", "a.json"])
def test_json_lines_whatever_the_extension(tmp_path, name):
    content = b'{"a": "x\\ty", "b": {"c": [1, 2]}}\n{"a": "z", "b": {}}\n'
    path = tmp_path / name
    # Gzipped files are detected by their content.
    path.write_bytes(gzip.compress(content) if name in ("a.jsonl.gz", "a.txt") else content)
    cells = [{"a": "x\ty", "b": {"c": [1, 2]}}, {"a": "z", "b": {}}]
    assert [row.cells for row in read_table(str(path))] == cells
    assert [str(row.place) for row in read_table(str(path))] == [f"{path}:1", f"{path}:2"]


def test_folder_for_each_label(tmp_path):
    for name in ("neg/1.txt", "pos/1.txt", "pos/2.txt", "pos/.hidden"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"text of {name}\nline 2\n")
    rows = list(read_table(str(tmp_path)))
    assert [row.cells["label"] for row in rows] == ["neg", "pos", "pos"]
    assert rows[2].cells["text"] == "text of pos/2.txt\nline 2"
    assert (str(rows[2].place), rows[2].cells["file"]) == (f"{tmp_path}/pos/2.txt", "pos/2.txt")
    assert [row.cells["file"] for row in read_table(f"{tmp_path}/neg")] == ["1.txt"]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("question.stem", "s"),
        ("question.choices.text", ["x", "y"]),
        ("question.choices.1.text", "y"),
        ("a.b", 1),
        ("c.d.e", 2),
    ],
)
def test_values_by_path(path, value):
    choices = [{"text": "x"}, {"text": "y"}]
    cells = {"question": {"stem": "s", "choices": choices}, "a.b": 1, "c.d": {"e": 2}}
    assert value_at(cells, path) == value
    with pytest.raises(KeyError):
        value_at(cells, f"{path}.z")


def test_folder_of_json_files(tmp_path):
    (tmp_path / "1.txt").write_text('{"article": "a", "questions": ["b?", "c?"]}')
    row = {"article": "a", "questions": ["b?", "c?"], "file": "1.txt"}
    assert read_cells(str(tmp_path)) == [row]
