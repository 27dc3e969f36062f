"""Reading CSV, TSV and JSON tables: rows, and line numbers of errors."""

import csv
import gzip
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.base.errors import UserError
from bert_tf.tables.columns import find_positions, to_text, value_at
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


def read_cells(path, quoted="auto"):
    return [row.cells for row in read_table(path, quoted)]


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
        ("a.tsv", TSV.replace("\n", "\r\n")),
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


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl", "a.json"])
@pytest.mark.parametrize("content", ["", "\n", "\ufeff\r\n\n"])
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


def test_similar_first_lines_are_not_excel_sep_lines(write):
    assert read_cells(write("a.csv", "sep=ab\nx\n")) == [["sep=ab"], ["x"]]
    assert read_cells(write("a.tsv", "sep=;\nx\n")) == [["sep=;"], ["x"]]


def test_blank_lines_are_rows_in_single_column_files(write):
    path = write("a.tsv", "one\n\ntwo\n\n\n")
    assert read_cells(path) == [["one"], [""], ["two"]]
    assert line_numbers(path) == [1, 2, 3]


def test_json_lines(write):
    path = write("a.jsonl", '\ufeff\n{"text": "a\\nb", "n": 1}\r\n \n{"n": null, "l": ["x"]}')
    assert read_cells(path) == [{"text": "a\nb", "n": 1}, {"n": None, "l": ["x"]}]
    assert line_numbers(path) == [2, 4]


def test_json_list(write):
    path = write("a.json", json.dumps([{"a": 1}, {"a": 2}], indent=1))
    assert read_cells(path) == [{"a": 1}, {"a": 2}]
    assert str([*read_table(path)][1].place) == f"{path}: element 2"
    assert read_cells(write("b.json", '{"a": 1}\n{"a": 2}\n')) == [{"a": 1}, {"a": 2}]


TOO_LONG = csv.field_size_limit() + 1


@pytest.mark.parametrize(
    ("name", "content", "quoted", "message"),
    [
        ("a.tsv", "a\tb\nc\td\te\n", "auto", r":2: 3 columns, but 2 in the first.*'c\\td\\te'"),
        (
            "a.tsv",
            "a\tb\nc\n",
            "auto",
            ":2: 1 column, but 2 .*--quoted=yes.*commas separate columns",
        ),
        ("a.csv", "a,b\n\n\nc,d,e\n", "auto", ":2: the line is empty"),
        ("a.csv", 'a,b\n"c\n",d,e\n', "auto", r":2: 3 columns, .* separator is ','.*in quotes"),
        ("a.tsv", "\na\tb\n", "auto", ":1: the line is empty"),
        ("a.tsv", "a\tb\rc\td\r", "auto", r":1: CR without LF .* tr '\\r' '\\n'"),
        ("a.tsv", "a\tb\nc\rd\te\n", "auto", ":2: CR without LF.* Remove the"),
        ("a.csv", 'a,b\n"c\nd",e\rf\n', "auto", ":3: CR without LF"),
        ("a.jsonl", '{"a": 1}\r{"a": 2}\r', "auto", ":1: invalid JSON"),
        ("a.tsv", "a\tb\nc\t\0d\n", "auto", ":2: NUL byte at position 3.* utf-16le"),
        ("a.csv", 'a,b\n"c\n\0",d\n', "auto", ":3: NUL byte at position 1"),
        ("a.tsv", "a\tb\n".encode("utf-16"), "auto", ":1: the file is not UTF-8 .* utf-16"),
        ("a.csv", b"a,b\nc,\xe9\n", "auto", r":2: the file is not UTF-8 \(byte 0xe9 .* iconv"),
        ("a.tsv", f"a\tb\nc\t{'x' * TOO_LONG}\n", "auto", ":2: a cell has more than 131072"),
        ("a.csv", f'a,b\n"c\nd",{"x" * TOO_LONG}\n', "auto", ":2: a cell has more than 131072"),
        ("a.csv", 'a,b\n"c\n","d\n\n', "auto", r":2: a quote \(\"\) opened in this row is not"),
        (
            "a.csv",
            'a,b\nc,"' + "xxx\n" * TOO_LONG,
            "auto",
            ":2: a cell has more than .* closing quote missing",
        ),
        ("a.csv", "text\none, two\n", "auto", ":2: 2 columns, but 1 .* in quotes"),
        (
            "a.csv",
            "text|label\none, two|x\n",
            "auto",
            r":2: 2 columns, .* separator is ','\. If \| separates columns, replace it with tabs",
        ),
        ("a.csv", "a,b\n'c, d',e\n", "auto", r":2: 3 .* in double quotes \(single ones do not en"),
        (
            "a.csv",
            "SEP=\t\na\tb\n",
            "auto",
            r":1: 'SEP=\\t' is Excel's delimiter .* Remove",
        ),
        ("a.csv", '\ufeff"sep=;"\r\na;b\r\n', "no", ":1: '\"sep=;\"' is Excel's delimiter"),
        ("a.tsv", b"PK\x03\x04\x14\0", "auto", ":1: this is not a text file"),
        ("a.json", b"\xd0\xcf\x11\xe0\xa1", "auto", ":1: the file is not UTF-8"),
        ("a.csv", 'a,b\nc,"d" e\n', "auto", ":2: text after a closing quote .*--quoted=no"),
        ("a.tsv", 'a\tb\n"c\td\n', "yes", ":2: a quote"),
        ("a.jsonl", '{"a": 1}\n{"a"\n', "auto", ":2: invalid JSON: .*position 5"),
        ("a.jsonl", '{"a": 1}\n\n["a"]\n', "auto", r""":3: '\["a"\]' is not an object"""),
        (
            "a.jsonl",
            '{"a": 1}\n{"a": "b',
            "auto",
            r":2: .* at position 7 \(the text ends too early",
        ),
        ("a.json", '[{"a": 1},\n{"a": 2},', "auto", r":2: .* \(the text ends too early: is it cut"),
        (
            "a.tsv",
            "<!DOCTYPE html>\n<html>\n",
            "auto",
            ":1: this is a web page: .* Download the file",
        ),
        ("a.csv", '<html lang="en">\n', "auto", ":1: this is a web page"),
        ("a.json", '[{"a": 1},\n{"a" 2}]\n', "auto", ":2: invalid JSON: .*list of objects"),
        ("a.json", '{"a": {"0": 1}}\n', "auto", ":1: an object of columns, as pandas writes it"),
        ("a.json", '{"0": {"a": 1}, "1": {"a": 2}}\n', "auto", ":1: an object of rows, as pandas"),
        (
            "a.json",
            '{"columns": [], "index": [], "data": []}\n',
            "auto",
            ":1: an object of columns",
        ),
        ("a.json", '{"schema": {}, "data": []}\n', "auto", ":1: an object .*, as pandas writes it"),
        ("a.json", '[{"a": 1}, 2]\n', "auto", ": element 2: '2' is not an object"),
        ("a.jsonl", "[" * 100000, "auto", ":1: invalid JSON: maximum recursion"),
        ("a.jsonl", '{"a": ' + "1" * 5000 + "}", "auto", ":1: invalid JSON"),
        (
            "a.tsv.gz",
            gzip.compress(b"a\tb\n" * 999, mtime=0)[:-9],
            "auto",
            " is not a complete gzip file",
        ),
        ("a.tsv.gz", b"a\tb\n", "auto", " is not a complete gzip file"),
    ],
)
def test_errors_name_file_and_line(write, name, content, quoted, message):
    path = write(name, content)
    with pytest.raises(UserError) as error:
        list(read_table(path, quoted))
    assert "\n" not in str(error.value)
    error.match(f"{path}{message}")


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
        (None, "a:1: the text must be a string or a finite number. Received: 'null'. Correct or"),
        (float("nan"), "a:1: the text must be a string or a finite number. Received: 'NaN'"),
        (
            ["x"],
            r"""a:1: the text must be .* Received: '\["x"\]'. Write one line for each text, or""",
        ),
        ("\ud800", "a:1: the text contains half a character"),
    ],
)
def test_non_text_json_cells_are_rejected(value, message):
    with pytest.raises(UserError, match=message):
        to_text(value, "text", "a:1")


@pytest.mark.parametrize(("num_lines", "warns"), [(30, True), (5, False)])
def test_rows_between_stray_quotes_warn(tmp_path, caplog, num_lines, warns):
    lines = ['"a', *["b,c"] * num_lines, 'd",e']
    (tmp_path / "a.csv").write_text("\n".join(["text,label", *lines]) + "\n")
    assert len([*read_table(str(tmp_path / "a.csv"))]) == 2
    message = f"{tmp_path}/a.csv:2: the row has {num_lines + 2} lines"
    assert (message in caplog.text) == warns


@pytest.mark.parametrize("name", ["a.txt", "a.tsv", "a.csv", "a.jsonl.gz", "a.json", "a"])
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


@pytest.mark.parametrize("beginning", [b"PAR1", b"BZh9", b"@relation sms\n", b"$FL2", b"<?xml"])
def test_other_files_say_what_they_need(tmp_path, beginning):
    (tmp_path / "train.tsv").write_bytes(beginning + b"\x15\x04\x00")
    with pytest.raises(UserError, match=r"train.tsv:1: this is not a text file.*CSV or JSON lines"):
        list(read_table(str(tmp_path / "train.tsv")))


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


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        ({"version": 1, "data": [{"text": "a"}]}, "If 'data' has the rows, save only this list"),
        ({"1": {"text": "a"}, "2": {"text": "b"}}, "a .json file may also be a list of objects$"),
    ],
)
def test_one_object_over_several_lines(write, value, advice):
    path = write("a.json", json.dumps(value, indent=1))
    message = rf"a.json:1: one object. Each line must be an object, such as .*{advice}"
    with pytest.raises(UserError, match=message):
        read_cells(path)
    path = write("b.json", '{"a": 1}\n{"a":\n 2\n')
    with pytest.raises(UserError, match=r"b.json:2: invalid JSON: Expecting value at position 6"):
        read_cells(path)


def test_folder_of_json_files(tmp_path):
    (tmp_path / "1.txt").write_text('{"article": "a", "questions": ["b?", "c?"]}')
    with pytest.raises(UserError, match=r"1.txt: a JSON object, not a text. .* one file"):
        list(read_table(str(tmp_path)))


def test_labels_in_another_file(write):
    path = write("a.jsonl", '{"goal": "a", "sol1": "b"}\n')
    row = next(read_table(path))
    with pytest.raises(UserError, match=r"no key 'label' .* labels are in another file, add them"):
        find_positions(path, row, {"label": "label"}, [])
