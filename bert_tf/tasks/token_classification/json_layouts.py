"""Reads labeled words from JSON lines: words with labels, or texts with spans of characters.

The layouts are those of Hugging Face datasets (`tokens`, `ner_tags`), of annotation tools such as
doccano, Label Studio and Prodigy (`text`, and a list of spans), and of CLUENER (`text`, and a
dictionary type -> text -> spans).
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from bert_tf.errors import UserError, counted, excerpt
from bert_tf.tables.read import Row, read_table
from bert_tf.tasks.token_classification.column_layouts import Column, hide_spaces
from bert_tf.tasks.token_classification.schemes import OUTSIDE
from bert_tf.tasks.token_classification.windows import locate_words, split_words

EXTENSIONS = (".json", ".jsonl", ".ndjson")
_WORD_KEYS = ("tokens", "words", "token", "word", "sentence", "text")
_TEXT_KEYS = ("text", "sentence", "content")
_LABEL_KEYS = (
    *("ner_tags", "labels", "label", "tags", "ner", "entities", "spans", "annotations"),
    *("pos_tags", "pos", "upos", "chunk_tags"),
)
# Keys of a span's start, end, type and text.
_SPAN_KEYS = (
    ("start", "start_offset", "begin"),
    ("end", "end_offset"),
    ("label", "labels", "type", "entity", "entity_type", "entity_group", "tag"),
    ("text", "word", "value"),
)
_FORMAT = (
    '{"tokens": ["Anna", ...], "ner_tags": ["B-PER", ...]} or '
    '{"text": "Anna ...", "labels": [[0, 4, "PER"], ...]}'
)
# What words cannot express about a span, and what is done about it.
_INSIDE_A_WORD = "do not end where a word does", "so whole words are labeled"
_OVERLAP = "overlap with others", "so only the longest are used"


class Sentence(NamedTuple):
    """The words of an object, their labels if any, and the text that was split into words."""

    number: int
    words: list[str]
    labels: Sequence[str] = ()
    text: str | None = None


def read_json(
    path: str, word_key: Column, label_key: Column, need_labels: bool, problems: list[str]
) -> Iterator[Sentence]:
    """Yields the sentences of a file with an object per line, or with a list of objects.

    Args:
        path: the file.
        word_key: key of the words or the text; a number, to find it.
        label_key: key of the labels or spans; a number, to find it.
        need_labels: whether objects must have labels.
        problems: at the end, a sentence is added for each kind of spans that words cannot express.

    Raises:
        UserError: an object is invalid.
    """
    keys = [key if isinstance(key, str) else "" for key in (word_key, label_key)]
    counts = Counter[tuple[str, str]]()
    num_spans = 0
    for row in read_table(path):
        number = int(re.findall(r"\d+", row.place)[-1])
        words, value = _find_values(row, *keys, need_labels)
        if isinstance(words, str):
            text, words = words, split_words(words)
            spans = [] if value is None else list(_parse_spans(value, text, row.place))
            num_spans += len(spans)
            labels = () if value is None else _label_words(locate_words(words, text), spans, counts)
            yield Sentence(number, words, labels, text)
            continue
        if value is not None and not _is_strings(value):
            advice = "Write the labels' names, such as B-LOC, instead of numbers"
            raise _error(row.place, f"{excerpt(json.dumps(value))} are not labels. {advice}")
        if value is not None and len(value) != len(words):
            raise _error(row.place, f"{counted(len(words), 'word')}, but {len(value)} labels")
        yield Sentence(number, [hide_spaces(word) for word in words], value or ())
    for (problem, result), count in sorted(counts.items()):
        problems.append(f"{path}: {counted(count, 'span', problem, of=num_spans)}, {result}")


def _find_values(row: Row, word_key: str, label_key: str, need_labels: bool) -> tuple[Any, Any]:
    """Returns words or text, and labels or spans; these are None if there are none."""
    cells = row.cells
    lists = (key for key in _WORD_KEYS if _is_strings(cells.get(key)))
    texts = (key for key in _TEXT_KEYS if isinstance(cells.get(key), str))
    word_key = word_key or next(lists, None) or next(texts, "")
    words = cells.get(word_key)
    if not (isinstance(words, str) or _is_strings(words)):
        problem = f"no words or text in {', '.join(cells)}. Pass --token_column=KEY"
        raise _error(row.place, problem)
    label_key = label_key or next((k for k in _LABEL_KEYS if k in cells and k != word_key), "")
    value = cells.get(label_key)
    if value is None and need_labels:
        raise _error(row.place, f"no labels in {', '.join(cells)}. Pass --label_column=KEY")
    # Beside its tokens, an object may have a text with spans.
    text = next((cells[key] for key in texts if key != word_key), None)
    return (text if text and value and not _is_strings(value) else words), value


def _label_words(
    places: Sequence[tuple[int, int]], spans: Iterable[tuple], counts: Counter[tuple[str, str]]
) -> list[str]:
    """Labels the words at `places` that overlap with spans, in BIO; counts what is not exact."""
    labels = [OUTSIDE] * len(places)
    for start, end, name in sorted(spans, key=lambda span: span[0] - span[1]):
        inside = [n for n, (first, stop) in enumerate(places) if first < end and start < stop]
        if any(labels[n] != OUTSIDE for n in inside):
            counts[_OVERLAP] += 1
            continue
        if not inside or (places[inside[0]][0], places[inside[-1]][1]) != (start, end):
            counts[_INSIDE_A_WORD] += 1
        for n in inside:
            labels[n] = f"{'I' if n > inside[0] else 'B'}-{name}"
    return labels


def _is_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _error(place: str, problem: str) -> UserError:
    return UserError(f"{place}: {problem}. Write objects such as {_FORMAT}")


def _parse_spans(value: Any, text: str, place: str) -> Iterator[tuple[int, int, str]]:
    """Yields start, end (exclusive, without white space at the ends) and type of each span."""
    for start, end, name, quote in _list_spans(value):
        is_valid = isinstance(start, int) and isinstance(end, int) and isinstance(name, str)
        if is_valid and isinstance(quote, str) and text[start:end] != quote:
            end += text[start : end + 1] == quote  # CLUENER's ends are those of the last character
            is_valid = text[start:end] == quote
        if not is_valid or not 0 <= start < end <= len(text) or not name:
            item = excerpt(json.dumps([start, end, name, quote], ensure_ascii=False))
            raise _error(place, f"{item} is not a span of the text")
        part = text[start:end]
        start, end = start + len(part) - len(part.lstrip()), end - len(part) + len(part.rstrip())
        if start < end:
            yield start, end, name


def _list_spans(value: Any) -> Iterator[tuple[Any, Any, Any, Any]]:
    """Yields start, end, type and text (None if unknown) of spans in any layout, unchecked."""
    if not isinstance(value, dict):
        yield from map(_read_span, value if isinstance(value, list) else [value])
        return
    for name, texts in value.items():
        for quote, spans in texts.items() if isinstance(texts, dict) else [(None, texts)]:
            for span in spans if isinstance(spans, list) else [spans]:
                start, end = span if isinstance(span, list) and len(span) == 2 else (span, None)
                yield start, end, name, quote


def _read_span(span: Any) -> tuple[Any, Any, Any, Any]:
    if isinstance(span, list) and len(span) == 3:
        return (*span, None)
    if not isinstance(span, dict):
        return span, None, None, None
    found = (next((span[key] for key in keys if key in span), None) for keys in _SPAN_KEYS)
    start, end, name, quote = found
    return start, end, name[0] if isinstance(name, list) and name else name, quote
