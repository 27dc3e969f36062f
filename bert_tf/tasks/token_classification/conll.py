"""Reads labeled words from files with columns, as in the CoNLL shared tasks.

Tjong Kim Sang and De Meulder 2003, "Introduction to the CoNLL-2003 Shared Task:
Language-Independent Named Entity Recognition": one word per line, its label in the last column; a
blank line after each sentence; and `-DOCSTART-` before each document.

Lines that begin with `#` are comments in CoNLL-U (universaldependencies.org/format.html), which
also has lines for ranges (`3-4`) and empty nodes (`3.1`), in CoNLL-2012 and in many other corpora.
In CoNLL-U Plus (universaldependencies.org/ext-format.html), such a line names the columns.

The MSRA corpus of Chinese entities (SIGHAN 2006) has one sentence per line, split into spans such
as `TEXT/nr` (person), `/ns` (place), `/nt` (organization) or `/o`; each character becomes a word.

In CSV, the columns are separated by commas or semicolons.

`schemes` describes the labels, and `json_layouts` how JSON lines are read.
"""

import bisect
import itertools
import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence

from bert_tf.base import files
from bert_tf.base.errors import Place, UserError, Where, counted, excerpt, note, warn
from bert_tf.data.texts import check_lines
from bert_tf.tables.read import LAST, is_object
from bert_tf.tasks.token_classification import schemes
from bert_tf.tasks.token_classification.json_layouts import EXTENSIONS, Columns, read_json
from bert_tf.tasks.token_classification.schemes import AUTO, ENTITIES, OUTSIDE, PLAIN, is_label
from bert_tf.tasks.token_classification.sentences import DOCUMENT, ConllFile, Row
from bert_tf.tasks.token_classification.windows import split_words
from bert_tf.tokenization import is_cjk

_FORMAT = "Write one word per line and no comments, in columns separated by spaces or tabs"
_CONLLU = ["id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc"]
_CONLLU_ID = re.compile(r"\d+([-.]\d+)?").fullmatch
_GLOBAL_COLUMNS = re.compile(r"#\s*global\.columns\s*=(.+)").match
_NEW_DOCUMENT = re.compile(r"#\s*(begin document|newdoc)\b").match
# A first line with two of these has names of columns, not a word.
_TOKEN_NAMES = {"form", "token", "tokens", "word", "words"}
_NAMES = {"label", "labels", "ner", "ner_tag", "ner_tags", "pos", "pos_tag", "tag", "tags", "upos"}
_NAMES |= _TOKEN_NAMES
_SPAN = re.compile("(.+)/(o|nr|ns|nt)").fullmatch
_SPAN_LABELS = {"nr": ("B-PER", "I-PER"), "ns": ("B-LOC", "I-LOC"), "nt": ("B-ORG", "I-ORG")}
# If fewer lines have the same number of columns, each is a sentence.
_MIN_SHARE = 0.8
# If more of the lines end in different words, these are not labels.
_MIN_VARIED = 0.75
# A line with more Chinese characters is a sentence; on average.
_MAX_CJK_PER_WORD = 3
# The beginning of a list that is written as a string, such as `['a', 'b']`, in CSV or JSON, too.
_LIST = re.compile(r"""(^|[\t,;"][^\S\t]*)\[('|""\w|\\")""")
_NUM_CHECKED = 20  # lines in which it is looked for

EMPTY = "\xa0"  # an empty cell, or a word that is a space
# Other spaces, such as U+00A0, are parts of words.
_COLUMN = re.compile("[^ \t]+")
_MIN_TABS = 9  # in CoNLL-U


def read_conll(
    path: str,
    token_column: int | str = 1,
    label_column: int | str = LAST,
    need_labels: bool = True,
    label_scheme: str = AUTO,
    split: Callable[[str], list[str]] = split_words,
    known_labels: Collection[str] = (),
) -> ConllFile:
    """Reads a UTF-8 file of labeled words: columns, CSV, or JSON lines whatever the extension.

    Args:
        path: the file.
        token_column: the column of words: a number, counting from 1, a name in the first line, or
            a JSON key.
        label_column: the column of labels; -1 for the last.
        need_labels: whether there must be labels. If not, the lines may also be plain sentences.
        label_scheme: "entities", "plain", or "auto", which decides by the labels.
        split: splits a sentence into words that are parts of it.
        known_labels: labels of the model, by which columns are told from plain sentences.

    Raises:
        UserError: the file is invalid, or its labels do not fit the scheme.
    """
    file = ConllFile(path, known_labels=known_labels)
    is_json = path.lower().removesuffix(".gz").endswith(EXTENSIONS)
    lines = list(itertools.islice(files.read_lines(path), _NUM_CHECKED)) or [""]
    lines[0] = lines[0].removeprefix("\ufeff")
    lists = [number for number, line in enumerate(lines, 1) if _LIST.search(line)]
    if lists and 2 * len(lists) >= len(lines):
        problem = "lists that are written as strings: write JSON lines with lists"
        raise UserError(problem, at=Place(path, lists[0]))
    if is_json or is_object(lines[0]):
        read_json(file, (token_column, label_column), need_labels, split)
    else:
        _read_lines(file, (token_column, label_column), need_labels, split)
    if not file.words:
        raise UserError("the file contains no words", at=path)
    if len(file.labels) < len(file.words):
        file.labels = []
    if file.labels:
        file.scheme = _choose_scheme(file, label_scheme, label_column)
        if file.scheme != PLAIN and not all(map(is_label, {*file.labels})):
            outside = schemes.find_outside(file.labels)
            example = next(label for label in file.labels if label != outside)
            words = f"; words outside of them have the label {outside}" * (outside != OUTSIDE)
            note(f"labels such as {example} are entities ({file.scheme}){words}", at=path)
        file.targets = schemes.convert(file.labels, file.sentence_starts, file.scheme)
    return file


def _read_lines(
    file: ConllFile, columns: Columns, need_labels: bool, split: Callable[[str], list[str]]
) -> None:
    path, lines = file.path, list(files.read_lines(file.path))
    lines[:1] = [line.removeprefix("\ufeff") for line in lines[:1]]
    file.separator = find_separator(path, lines)
    rows: list[Row] = [split_columns(line, file.separator) for line in lines]
    *numbers, sentence_number = _number_columns(path, lines, rows, columns)
    words = [(number, row) for number, row in enumerate(rows, 1) if row and DOCUMENT not in row]
    if not words:
        return
    first_number, first = words[0]
    # If a file may have no labels, a single column such as "w/o" is a word, not a span.
    if all(map(_SPAN, first)) and (need_labels or len(first) > 1):
        for number, row in words:
            file.add_sentence(number, *_split_spans(row, Place(path, number)))
        return
    # The number of columns varies in CoNLL-2012.
    is_ragged = any(line.startswith("#begin document") for line in lines)
    is_table = need_labels or is_ragged or file.separator
    known = file.known_labels if columns == (1, LAST) else None
    if not is_table and _are_sentences(lines, [row for _, row in words], known):
        for number, line in enumerate(lines, start=1):
            file.add_sentence(number, split(line), text=line)
        note("each line is a sentence", at=path)
        for problem in check_lines(path, lines):
            warn(problem, at=path)
        return
    indices = _find_columns(first, numbers, need_labels, Place(path, first_number))
    for number, row in words:
        if len(row) != len(first) and not (is_ragged and len(row) > max(indices)):
            problem = f"{counted(len(row), 'column')} ({excerpt(' '.join(row))})"
            other = f"{counted(len(first), 'column')} in {Place(path, first_number)}"
            raise UserError(f"{problem}, but {other}", at=Place(path, number), fix=_FORMAT)
        if need_labels and row[indices[1]] == EMPTY:
            problem = f"the label in column {indices[1] + 1} is empty: {excerpt(' '.join(row))}"
            raise UserError(problem, at=Place(path, number), fix=_FORMAT)
    file.lines, file.rows, file.line_numbers = lines, rows, [number for number, _ in words]
    file.words, *labels = ([row[index] for _, row in words] for index in indices)
    file.labels, file.label_index = (labels[0], indices[1]) if labels else ([], None)
    if EMPTY in file.labels:
        file.labels = []
    documents = [number for number, row in enumerate(rows, 1) if row and DOCUMENT in row]
    blank_lines = [number for number, row in enumerate(rows, 1) if row == []]
    file.document_starts = _find_starts(file.line_numbers, documents)
    ends = blank_lines + documents
    if 0 < sentence_number <= len(first):
        named = [(n, name) for n, row in words if (name := row[sentence_number - 1]) != EMPTY]
        ends += [n - 1 for (_, old), (n, new) in itertools.pairwise(named) if old != new]
    file.sentence_starts = _find_starts(file.line_numbers, ends)


def _find_starts(line_numbers: list[int], ends: list[int]) -> list[int]:
    """Returns the first word of each unit that is not empty, followed by W, given lines between."""
    return sorted({0, len(line_numbers), *(bisect.bisect(line_numbers, end) for end in ends)})


def _number_columns(
    path: str, lines: Sequence[str], rows: list[Row], columns: Columns
) -> list[int]:
    """Returns the numbers of the columns of words, labels and sentences (0 if there is none).

    Numbers count from 1. Replaces rows without words with None, and those that begin documents with
    [DOCUMENT].
    """
    data = [row for row in rows if row and row[0][0] != "#" and DOCUMENT not in row]
    declared = next(filter(None, map(_GLOBAL_COLUMNS, lines)), None)
    header = declared[1].split() if declared else []
    if data and all(len(row) == len(_CONLLU) and _CONLLU_ID(row[0]) for row in data):
        header = header or _CONLLU
    is_conllu, first = bool(header), data[0] if data else []
    is_named = any(column in first for column in columns if isinstance(column, str))
    if not is_conllu and (is_named or sum(cell.casefold() in _NAMES for cell in first) > 1):
        header, *data = data
        note(f"the first line has the names of columns: {', '.join(header)}", at=path)
        rows[rows.index(header)] = None
    number_of = {name.casefold(): number for number, name in enumerate(header, start=1)}
    if columns[0] == 1:
        use_upos = is_conllu and columns[1] == LAST and "upos" in number_of
        token = next((name for name in number_of if name in _TOKEN_NAMES), 1)
        columns = token, "upos" if use_upos else columns[1]
        if use_upos:
            note("is CoNLL-U: reading words from {}, labels from {}".format(*columns), at=path)
    numbers = []
    for kind, column in zip(("token", "label"), columns, strict=True):
        number = number_of.get(column.casefold()) if isinstance(column, str) else column
        if number is None:
            available = f"only {', '.join(header)}" if header else "and its first line has no names"
            problem = f"there is no column {excerpt(str(column))} (--{kind}_column), {available}"
            raise UserError(problem, at=path)
        numbers.append(number)
    id_index = number_of.get("id", 1) - 1
    ids = [row[id_index] for row in data if len(row) > id_index != numbers[0] - 1]
    has_ids = any(map(str.isdecimal, ids)) and all(map(_CONLLU_ID, ids))
    if has_ids and (is_conllu or lines[0].startswith("#")):
        nodes = {x for x in ids if not x.isdecimal()}
        rows[:] = [None if row and nodes & {*row[id_index:][:1]} else row for row in rows]
    _drop_comments(lines, rows, data, numbers[1], is_conllu)
    sentence = (n for name, n in number_of.items() if name.startswith("sent") and n != numbers[0])
    return [*numbers, next(sentence, 0)]


def _drop_comments(
    lines: Sequence[str],
    rows: list[Row],
    data: Sequence[list[str]],
    label_number: int,
    is_conllu: bool,
) -> None:
    """Replaces comments with None, in a file that begins with one.

    A word may also be `#`; then its row has a label, and as many columns as others.
    """
    widths, index = {*map(len, data)}, label_number - (label_number > 0)
    labels = {label for row in data for label in row[index:][:1]}

    def is_comment(row: Row) -> bool:
        if not row or row[0][0] != "#":
            return False
        has_label = any(label in labels or is_label(label) for label in row[index:][:1])
        return len(row) not in widths or not (has_label or len(row) == 1)

    if not data or not (is_conllu or is_comment(next(filter(None, rows), None))):
        return
    for position, (line, row) in enumerate(zip(lines, rows, strict=True)):
        if _NEW_DOCUMENT(line):
            rows[position] = [DOCUMENT]
        elif is_comment(row):
            rows[position] = None


def _are_sentences(
    lines: Sequence[str], rows: Sequence[list[str]], labels: Collection[str] | None
) -> bool:
    """Returns whether lines are plain sentences rather than words in columns.

    `labels` are those of the model; None if the user chose columns.
    """
    widths = Counter(map(len, rows))
    if any("\t" in line or DOCUMENT in line for line in lines):
        return False
    if max(widths) == 1:
        num_cjk = sum(is_cjk(char) for (word,) in rows for char in word)
        return num_cjk > _MAX_CJK_PER_WORD * len(rows)
    last = Counter(row[-1] for row in rows)
    are_labels = labels is None or any(label in labels or is_label(label) for label in last)
    # Labels repeat, and sentences in columns have blank lines between them.
    is_varied = len(last) > _MIN_VARIED * len(rows) and all(map(str.strip, lines))
    if is_varied and not are_labels and not schemes.find_scheme(last):
        return True
    if len(rows) == 1:
        return len(split_words(" ".join(rows[0]))) > 2 and not is_label(rows[0][-1])
    return widths.most_common(1)[0][1] < _MIN_SHARE * len(rows)


def _choose_scheme(file: ConllFile, wanted: str, label_column: int | str) -> str:
    """Returns the scheme of a file's labels; raises a UserError if there is none as wanted."""
    counts = Counter(file.labels)
    if scheme := PLAIN if wanted == PLAIN else schemes.find_scheme(counts, wanted == ENTITIES):
        return scheme
    rows = [row for row in file.rows if row and DOCUMENT not in row]
    columns = [{*column} for column in zip(*rows, strict=False)]
    entities = [n for n, x in enumerate(columns, 1) if len(x) > 1 and all(map(is_label, x))]
    if label_column == LAST and entities:
        problem = f"entities are in column {entities[0]}: pass --label_column={entities[0]}"
        raise UserError(problem, at=file.path)
    position, odd = next((n, label) for n, label in enumerate(file.labels) if not is_label(label))
    number, index = file.line_numbers[position], file.label_index
    if misfits := schemes.explain_misfits(counts):
        advice = f"{misfits}. Correct them, or pass --label_scheme=plain"
    elif wanted == AUTO and len(counts) > 1 and not all(x.lstrip("+-").isdecimal() for x in counts):
        note(f"labels such as {odd} are no entities: --label_scheme=plain", at=file.path)
        return PLAIN
    else:
        advice = "Check --label_column. For labels that mark no entities, pass --label_scheme=plain"
    column = "" if index is None else f" in column {index + 1}"
    problem = f"{excerpt(odd)}{column} is not a label such as B-LOC"
    problem += ". All words have it" * (len(counts) == 1)
    raise UserError(problem, at=Place(file.path, number), fix=advice)


def _split_spans(spans: list[str], place: Where) -> tuple[list[str], list[str]]:
    """Returns the characters of a line of spans, and their labels in BIO."""
    characters, labels = [], []
    for text in spans:
        span = _SPAN(text)
        if span is None:
            expected = "expected a text that ends with /o, /nr, /ns or /nt"
            raise UserError(f"{expected}. Received: {excerpt(text)}", at=place)
        first, other = _SPAN_LABELS.get(span[2], (OUTSIDE, OUTSIDE))
        characters += span[1]
        labels += [first] + [other] * (len(span[1]) - 1)
    return characters, labels


def _find_columns(
    row: list[str], numbers: Sequence[int], need_labels: bool, place: Where
) -> list[int]:
    """Returns the 0-based indices of the word column and of the label column, if any."""
    token_column, label_column = numbers
    label_number = len(row) if label_column == LAST else label_column
    has_word = token_column <= len(row)
    has_label = 1 <= label_number <= len(row) and label_number != token_column
    if not has_word or (need_labels and not has_label):
        problem = f"{counted(len(row), 'column')} and no {'label' if has_word else 'word'}"
        flags = f"--token_column={token_column}, --label_column={label_column}"
        raise UserError(f"{problem} ({flags}): {excerpt(' '.join(row))}", at=place, fix=_FORMAT)
    return [token_column - 1, label_number - 1][: 1 + has_label]


def find_separator(path: str, lines: Sequence[str]) -> str:
    """Returns what separates columns: a tab, "," or ";" in CSV, or "" for spaces and tabs."""
    data = [x for x in lines if x.strip() and x[0] != "#" and DOCUMENT not in x] or [""]
    if path.lower().removesuffix(".gz").endswith(".csv"):
        return max(",;\t", key=data[0].count)
    ((by_spaces, count),) = Counter(len(_COLUMN.findall(x)) for x in data).most_common(1)
    ((by_tabs, tab_count),) = Counter(x.count("\t") + 1 for x in data).most_common(1)
    # Words may have spaces, or be one; in CoNLL-U even most of them.
    is_table = by_tabs == by_spaces > 1 or by_tabs > _MIN_TABS
    return "\t" if is_table and tab_count > count else ""


def _cell_pattern(separator: str) -> re.Pattern[str]:
    quoted = f'"(?:[^"]|"")*"(?![^{separator}])|' if separator != "\t" else ""
    other = f"(?<![^{separator}])(?:{quoted}[^{separator}]*)"
    return re.compile(other) if separator else _COLUMN


def split_columns(line: str, separator: str) -> list[str]:
    """Returns the cells of a line; [] if it is blank. U+00A0 stands for a space in a word."""
    if not line.strip(f" \t{separator}"):
        return []
    if not separator or separator not in line:
        return _COLUMN.findall(line)
    cells = [cell.strip(" ") for cell in _cell_pattern(separator).findall(line)]
    if separator != "\t":
        cells = [re.sub('^"(.*)"$', r"\1", cell).replace('""', '"') for cell in cells]
    return [cell.replace(" ", "\xa0") or EMPTY for cell in cells]


def with_labels(file: ConllFile, predicted: Sequence[str]) -> str:
    """Returns the lines of a file with columns, with predicted labels in the column of labels.

    If the file has no such column, they are in a new one, the last.
    """
    lines, index = list(file.lines), file.label_index
    for number, label in zip(file.line_numbers, predicted, strict=True):
        line = lines[number - 1]
        if index is None:
            separator = file.separator or ("\t" if "\t" in line else " ")
            lines[number - 1] = separator.join((line, label))
            continue
        start, end = list(_cell_pattern(file.separator).finditer(line))[index].span()
        lines[number - 1] = line[:start] + label + line[end:]
    return "".join(f"{line}\n" for line in lines)
