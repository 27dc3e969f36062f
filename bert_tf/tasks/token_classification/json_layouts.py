"""Reads labeled words from JSON lines: words with labels, or texts with spans of characters.

The layouts are those of Hugging Face datasets (`tokens`, `ner_tags`), of annotation tools such as
doccano, Label Studio and Prodigy (`text`, and a list of spans), and of CLUENER (`text`, and a
dictionary type -> text -> spans).
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from bert_tf.errors import UserError, counted, excerpt
from bert_tf.tables.read import Row, read_table
from bert_tf.tasks.token_classification.column_layouts import hide_spaces
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


class Sentence(NamedTuple):
    """The words of an object, their labels, and its text with the place of each word, if any."""

    number: int
    words: Sequence[str]
    labels: Sequence[str] | None
    text: str | None = None


class JsonSentences:
    """The sentences of a file of objects; iterate over it once.

    Args:
        path: the file, one object per line, or a list of objects.
        word_key: key of the words or the text; a number, to find it.
        label_key: key of the labels or spans; a number, to find it.
        need_labels: whether objects must have labels.
    """

    def __init__(
        self, path: str, word_key: str | int, label_key: str | int, need_labels: bool
    ) -> None:
        self._path = path
        self._keys = [key if isinstance(key, str) else "" for key in (word_key, label_key)]
        self._need_labels = need_labels
        self._counts = {"do not end where a word does": 0, "overlap with others": 0, "": 0}

    def __iter__(self) -> Iterator[Sentence]:
        for row in read_table(self._path):
            number = int(re.findall(r"\d+", row.place)[-1])
            words, value = self._find_values(row)
            if isinstance(words, str):
                spans = None if value is None else list(_parse_spans(value, words, row.place))
                yield self._label_text(number, words, spans)
                continue
            if value is not None and not _is_strings(value):
                advice = "Write the labels' names, such as B-LOC, instead of numbers"
                raise _error(row, f"{excerpt(json.dumps(value))} are not labels. {advice}")
            if value is not None and len(value) != len(words):
                raise _error(row, f"{counted(len(words), 'word')}, but {len(value)} labels")
            yield Sentence(number, [hide_spaces(word) for word in words], value)

    def _find_values(self, row: Row) -> tuple[Any, Any]:
        """Returns words or text, and labels or spans; these are None if there are none."""
        cells, (word_key, label_key) = row.cells, self._keys
        lists = (key for key in _WORD_KEYS if _is_strings(cells.get(key)))
        texts = (key for key in _TEXT_KEYS if isinstance(cells.get(key), str))
        word_key = word_key or next(lists, None) or next(texts, None)
        words = cells.get(word_key)
        if not (isinstance(words, str) or _is_strings(words)):
            raise _error(row, f"no words or text in {', '.join(cells)}. Pass --token_column=KEY")
        label_key = label_key or next((k for k in _LABEL_KEYS if k in cells and k != word_key), "")
        value = cells.get(label_key)
        if value is None and self._need_labels:
            raise _error(row, f"no labels in {', '.join(cells)}. Pass --label_column=KEY")
        # Beside its tokens, an object may have a text with spans.
        text = next((cells[key] for key in texts if key != word_key), None)
        return (text if text and value and not _is_strings(value) else words), value

    def _label_text(self, number: int, text: str, spans: list[tuple] | None) -> Sentence:
        """Splits a text into words, and labels those that overlap with a span in BIO."""
        words = split_words(text)
        if spans is None:
            return Sentence(number, words, None, text)
        places, labels = locate_words(words, text), [OUTSIDE] * len(words)
        for start, end, name in sorted(spans, key=lambda span: span[0] - span[1]):
            inside = [n for n, (first, stop) in enumerate(places) if first < end and start < stop]
            self._counts[""] += 1
            if any(labels[n] != OUTSIDE for n in inside):
                self._counts["overlap with others"] += 1
                continue
            bounds = (places[inside[0]][0], places[inside[-1]][1]) if inside else ()
            self._counts["do not end where a word does"] += bounds != (start, end)
            for n in inside:
                labels[n] = f"{'I' if n > inside[0] else 'B'}-{name}"
        return Sentence(number, words, labels, text)

    def problems(self) -> Iterator[str]:
        """Yields a sentence for each kind of spans that words cannot express."""
        results = ("so whole words are labeled", "so only the longest are used")
        total = self._counts.pop("")
        for (problem, count), result in zip(self._counts.items(), results, strict=True):
            if count:
                yield f"{self._path}: {counted(count, 'span', problem, of=total)}, {result}"


def _is_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _error(row: Row, problem: str) -> UserError:
    return UserError(f"{row.place}: {problem}. Write objects such as {_FORMAT}")


def _parse_spans(value: Any, text: str, place: str) -> Iterator[tuple[int, int, str]]:
    """Yields start, end (exclusive, without white space at the ends) and type of each span."""
    for item in _list_spans(value):
        start, end, name, quote = item
        is_valid = isinstance(start, int) and isinstance(end, int) and isinstance(name, str)
        if is_valid and isinstance(quote, str) and text[start:end] != quote:
            end += text[start : end + 1] == quote  # CLUENER's ends are those of the last character
            is_valid = text[start:end] == quote
        if not is_valid or not 0 <= start < end <= len(text) or not name:
            problem = f"{excerpt(json.dumps(item, ensure_ascii=False))} is not a span of the text"
            raise _error(Row(place, {}), problem)
        part = text[start:end]
        start, end = start + len(part) - len(part.lstrip()), end - len(part) + len(part.rstrip())
        if start < end:
            yield start, end, name


def _list_spans(value: Any) -> Iterator[tuple[Any, Any, Any, Any]]:
    """Yields start, end, type and text (None if unknown) of spans in any layout, unchecked."""
    if isinstance(value, dict):
        for name, texts in value.items():
            by_text = texts if isinstance(texts, dict) else {None: texts}
            for quote, spans in by_text.items():
                for span in spans if isinstance(spans, list) else [spans]:
                    start, end = span if isinstance(span, list) and len(span) == 2 else (span, None)
                    yield start, end, name, quote
        return
    for span in value if isinstance(value, list) else [value]:
        if isinstance(span, dict):
            found = (next((span[k] for k in keys if k in span), None) for keys in _SPAN_KEYS)
            start, end, name, quote = found
            yield start, end, name[0] if isinstance(name, list) and name else name, quote
        elif isinstance(span, list) and len(span) == 3:
            yield (*span, None)
        else:
            yield span, None, None, None
