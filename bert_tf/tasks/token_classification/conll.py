"""Reads labeled words from files with columns, as in the CoNLL shared tasks.

Tjong Kim Sang and De Meulder 2003, "Introduction to the CoNLL-2003 Shared Task:
Language-Independent Named Entity Recognition": one word per line, its label in the last column; a
blank line after each sentence; and `-DOCSTART-` before each document.

Lines that begin with `#` are comments in CoNLL-U (universaldependencies.org/format.html), which
also has lines for ranges (`3-4`) and empty nodes (`3.1`), in CoNLL-2012 and in many other corpora.

The MSRA corpus of Chinese entities (SIGHAN 2006) has one sentence per line, split into spans such
as `TEXT/nr` (person), `/ns` (place), `/nt` (organization) or `/o`; each character becomes a word.

`schemes` describes the labels, and `json_layouts` how JSON lines are read.
"""

import bisect
import logging
import re
from collections import Counter
from collections.abc import Sequence

from bert_tf import files
from bert_tf.errors import UserError, counted, excerpt
from bert_tf.progress import log
from bert_tf.tables.read import LAST
from bert_tf.tasks.token_classification import schemes
from bert_tf.tasks.token_classification.json_layouts import EXTENSIONS, read_json
from bert_tf.tasks.token_classification.schemes import AUTO, ENTITIES, OUTSIDE, PLAIN, is_label
from bert_tf.tasks.token_classification.sentences import DOCUMENT, ConllFile, Row
from bert_tf.tasks.token_classification.windows import split_words
from bert_tf.tokenization import is_cjk

_FORMAT = "Write one word per line and no comments, in columns separated by spaces or tabs"
# Only spaces and tabs separate columns: other spaces, such as U+00A0, are parts of words.
_COLUMN = re.compile("[^ \t]+")
_CONLLU = ["id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc"]
_CONLLU_ID = re.compile(r"\d+([-.]\d+)?").fullmatch
_NEW_DOCUMENT = re.compile(r"#\s*(begin document|newdoc)\b").match
# A first line with two of these has names of columns, not a word.
_NAMES = {"form", "label", "labels", "ner", "ner_tag", "ner_tags", "pos", "pos_tag", "tag"}
_NAMES |= {"tags", "token", "tokens", "upos", "word", "words"}
_SPAN = re.compile("(.+)/(o|nr|ns|nt)").fullmatch
_SPAN_LABELS = {"nr": ("B-PER", "I-PER"), "ns": ("B-LOC", "I-LOC"), "nt": ("B-ORG", "I-ORG")}
# If fewer lines have the same number of columns, each is a sentence.
_MIN_SHARE = 0.8
# A line with more Chinese characters is a sentence; on average.
_MAX_CJK_PER_WORD = 3


def read_conll(
    path: str,
    token_column: int | str = 1,
    label_column: int | str = LAST,
    need_labels: bool = True,
    label_scheme: str = AUTO,
) -> ConllFile:
    """Reads a UTF-8 file of labeled words: columns separated by spaces or tabs, or JSON lines.

    Args:
        path: the file.
        token_column: the column of words: a number, counting from 1, a name in the first line, or
            a JSON key.
        label_column: the column of labels; -1 for the last.
        need_labels: whether there must be labels. If not, the lines may also be plain sentences.
        label_scheme: "entities", "plain", or "auto", which decides by the labels.

    Raises:
        UserError: the file is invalid, or its labels do not fit the scheme.
    """
    file = ConllFile(path)
    if path.lower().removesuffix(".gz").endswith(EXTENSIONS):
        read_json(file, token_column, label_column, need_labels)
    else:
        _read_lines(file, token_column, label_column, need_labels)
    if not file.words:
        raise UserError(f"{path} contains no words; expected a word and its label on each line")
    if len(file.labels) < len(file.words):
        file.labels = []
    if file.labels:
        file.scheme = _choose_scheme(file, label_scheme, label_column)
        if file.scheme != PLAIN and not all(map(is_label, {*file.labels})):
            log.info("%s: labels such as %s are entities (%s)", path, file.labels[0], file.scheme)
        file.targets = schemes.convert(file.labels, file.sentence_starts, file.scheme)
    return file


def _read_lines(
    file: ConllFile, token_column: int | str, label_column: int | str, need_labels: bool
) -> None:
    path, lines = file.path, list(files.read_lines(file.path))
    lines[:1] = [line.removeprefix("\ufeff") for line in lines[:1]]
    # In CoNLL-U, words may have spaces.
    has_tabs = any(line.count("\t") == len(_CONLLU) - 1 for line in lines)
    rows: list[Row] = [
        [cell or "\xa0" for cell in line.replace(" ", "\xa0").split("\t")]
        if has_tabs and "\t" in line
        else _COLUMN.findall(line)
        for line in lines
    ]
    numbers = _number_columns(path, lines, rows, token_column, label_column)
    words = [(number, row) for number, row in enumerate(rows, 1) if row and DOCUMENT not in row]
    if not words:
        return
    first_number, first = words[0]
    # If a file may have no labels, a single column such as "w/o" is a word, not a span.
    if all(map(_SPAN, first)) and (need_labels or len(first) > 1):
        for number, row in words:
            file.add_sentence(number, *_split_spans(row, f"{path}:{number}"))
        return
    # The number of columns varies in CoNLL-2012.
    is_ragged = any(line.startswith("#begin document") for line in lines)
    if not (need_labels or is_ragged) and _are_sentences(lines, [row for _, row in words]):
        for number, line in enumerate(lines, start=1):
            file.add_sentence(number, split_words(line), text=line)
        log.info("%s: each line is a sentence", path)
        return
    indices = _find_columns(first, numbers, need_labels, f"{path}:{first_number}")
    for number, row in words:
        if len(row) != len(first) and not (is_ragged and len(row) > max(indices)):
            problem = f"{counted(len(row), 'column')} ({excerpt(' '.join(row))})"
            other = f"{counted(len(first), 'column')} in {path}:{first_number}"
            raise UserError(f"{path}:{number}: {problem}, but {other}. {_FORMAT}")
    file.lines, file.rows, file.line_numbers = lines, rows, [number for number, _ in words]
    file.words, *labels = ([row[index] for _, row in words] for index in indices)
    file.labels, file.label_index = (labels[0], indices[1]) if labels else ([], None)
    documents = [number for number, row in enumerate(rows, 1) if row and DOCUMENT in row]
    blank_lines = [number for number, row in enumerate(rows, 1) if row == []]
    file.document_starts = _find_starts(file.line_numbers, documents)
    file.sentence_starts = _find_starts(file.line_numbers, blank_lines + documents)


def _find_starts(line_numbers: list[int], ends: list[int]) -> list[int]:
    """Returns the first word of each unit that is not empty, followed by W, given lines between."""
    return sorted({0, len(line_numbers), *(bisect.bisect(line_numbers, end) for end in ends)})


def _number_columns(
    path: str, lines: Sequence[str], rows: list[Row], *columns: int | str
) -> list[int]:
    """Returns the numbers of the columns of words and labels, counting from 1.

    Replaces rows without words with None, and those that begin documents with [DOCUMENT].
    """
    data = [row for row in rows if row and row[0][0] != "#" and DOCUMENT not in row]
    first = data[0] if data else []
    is_conllu = bool(data) and all(len(x) == len(_CONLLU) and _CONLLU_ID(x[0]) for x in data)
    header = _CONLLU if is_conllu else []
    if is_conllu and columns == (1, LAST):
        columns = "form", "upos"
        log.info("%s is CoNLL-U: reading words from column 2, labels from 4 (UPOS)", path)
    is_named = any(column in first for column in columns if isinstance(column, str))
    if not is_conllu and (is_named or sum(cell.casefold() in _NAMES for cell in first) > 1):
        header = first
        log.info("%s: the first line has the names of columns: %s", path, ", ".join(header))
        rows[rows.index(first)] = None
    number_of = {name.casefold(): number for number, name in enumerate(header, start=1)}
    numbers = []
    for kind, column in zip(("token", "label"), columns, strict=True):
        number = number_of.get(column.casefold()) if isinstance(column, str) else column
        if number is None:
            available = f"only {', '.join(header)}" if header else "and its first line has no names"
            problem = f"{path} has no column {excerpt(str(column))}, {available} (--{kind}_column)"
            raise UserError(f"{problem}. Pass the number of the column, counting from 1")
        numbers.append(number)
    _drop_comments(lines, rows, data, numbers[1], is_conllu)
    return numbers


def _drop_comments(
    lines: Sequence[str],
    rows: list[Row],
    data: Sequence[list[str]],
    label_number: int,
    is_conllu: bool,
) -> None:
    """Replaces comments, ranges and empty nodes with None, in a file that begins with a comment.

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
        node = _CONLLU_ID(row[0]) if row and is_conllu else None
        if _NEW_DOCUMENT(line):
            rows[position] = [DOCUMENT]
        elif is_comment(row) or (node and node[1]):
            rows[position] = None


def _are_sentences(lines: Sequence[str], rows: Sequence[list[str]]) -> bool:
    """Returns whether lines are plain sentences rather than words in columns."""
    widths = Counter(map(len, rows))
    if any("\t" in line or DOCUMENT in line for line in lines):
        return False
    if max(widths) == 1:
        return sum(is_cjk(char) for (word,) in rows for char in word) > _MAX_CJK_PER_WORD * len(
            rows
        )
    if len(rows) == 1:
        return len(split_words(" ".join(rows[0]))) > 2 and not is_label(rows[0][-1])
    return widths.most_common(1)[0][1] < _MIN_SHARE * len(rows)


def _choose_scheme(file: ConllFile, wanted: str, label_column: int | str) -> str:
    """Returns the scheme of a file's labels; raises a UserError if there is none as wanted."""
    counts = Counter(file.labels)
    if scheme := PLAIN if wanted == PLAIN else schemes.find_scheme(counts, wanted == ENTITIES):
        return scheme
    position, odd = next((n, label) for n, label in enumerate(file.labels) if not is_label(label))
    number, index = file.line_numbers[position], file.label_index
    row = [odd] if index is None else file.rows[number - 1] or []
    # Entities in another column, if the user did not choose one.
    others = [n for n, cell in enumerate(row, 1) if re.fullmatch("O|[BIES]-.+", cell)]
    if misfits := schemes.explain_misfits(counts):
        advice = misfits
    elif others and label_column == LAST:
        advice = f"Column {others[-1]} has one: pass --label_column={others[-1]}"
        advice += " and, as --token_column, the column of the words" * (others[-1] == 1)
    elif all(label.lstrip("+-").isdecimal() for label in counts):
        advice = "Replace numbers with the labels that they stand for, such as B-LOC"
    elif wanted == AUTO and len(counts) > 1:
        log.info("%s: labels such as %s are no entities: --label_scheme=plain", file.path, odd)
        return PLAIN
    else:
        advice = f"{_FORMAT}. Only labels of entities can be learned here: O, B-LOC and I-LOC, not "
        advice += "just LOC, and no parts of speech. For other labels, pass --label_scheme=plain"
    column = "" if index is None else f" in column {index + 1}"
    problem = f"{file.path}:{number}: {excerpt(odd)}{column} is not a label"
    problem += ". All words have it" * (len(counts) == 1)
    check = "Check --label_column; a file to predict may have only words"
    raise UserError(f"{problem}. {advice}. {check}")


def remove_affixes(path: str, words: Sequence[str], kind: str, affixes: str) -> list[str]:
    """Removes any of `affixes`, separated by commas, from words of which more is left."""
    names = "|".join(map(re.escape, sorted(affixes.split(","), key=len, reverse=True)))
    pattern = rf"\A({names})(?=.)" if kind == "prefix" else rf"(?<=.)({names})\Z"
    shortened = [re.sub(pattern, "", word) for word in words]
    count = sum(len(word) < len(old) for word, old in zip(shortened, words, strict=True))
    share = f"{count:,} of {counted(len(words), 'word')}"
    level = logging.INFO if count == len(words) else logging.WARNING
    log.log(level, "%s: removed --word_%s=%s from %s", path, kind, affixes, share)
    return shortened


def _split_spans(spans: list[str], place: str) -> tuple[list[str], list[str]]:
    """Returns the characters of a line of spans, and their labels in BIO."""
    characters, labels = [], []
    for text in spans:
        span = _SPAN(text)
        if span is None:
            raise UserError(f"{place}: {excerpt(text)} does not end with /o, /nr, /ns or /nt")
        first, other = _SPAN_LABELS.get(span[2], (OUTSIDE, OUTSIDE))
        characters += span[1]
        labels += [first] + [other] * (len(span[1]) - 1)
    return characters, labels


def _find_columns(
    row: list[str], numbers: Sequence[int], need_labels: bool, place: str
) -> list[int]:
    """Returns the 0-based indices of the word column and of the label column, if any."""
    token_column, label_column = numbers
    label_number = len(row) if label_column == LAST else label_column
    has_word = token_column <= len(row)
    has_label = 1 <= label_number <= len(row) and label_number != token_column
    if not has_word or (need_labels and not has_label):
        problem = f"{counted(len(row), 'column')} and no {'label' if has_word else 'word'}"
        flags = f"--token_column={token_column}, --label_column={label_column}"
        raise UserError(f"{place}: {problem} ({flags}): {excerpt(' '.join(row))}. {_FORMAT}")
    return [token_column - 1, label_number - 1][: 1 + has_label]


def with_labels(file: ConllFile, predicted: Sequence[str]) -> str:
    """Returns the lines of a file with columns, with predicted labels in the column of labels.

    If the file has no such column, they are in a new one, the last.
    """
    lines, index = list(file.lines), file.label_index
    for number, label in zip(file.line_numbers, predicted, strict=True):
        line, row = lines[number - 1], file.rows[number - 1] or []
        if index is None:
            lines[number - 1] = ("\t" if "\t" in line else " ").join((line, label))
            continue
        cells = list(re.finditer("(?<![^\t])[^\t]*", line))
        cells = cells if len(cells) == len(row) else list(_COLUMN.finditer(line))
        start, end = cells[index].span()
        lines[number - 1] = line[:start] + label + line[end:]
    return "".join(f"{line}\n" for line in lines)
