"""Reads labeled words from JSON lines: words with labels, or texts or words with spans.

The layouts are those of Hugging Face datasets (`tokens`, `ner_tags`), of annotation tools such as
doccano, Label Studio, Prodigy and spaCy (`text`, and a list of spans), of CLUENER (`text`, and a
dictionary type -> text -> spans), and of SpERT and GLiNER (words, and spans of words).
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from bert_tf.base.errors import Place, UserError, Where, counted, excerpt, note
from bert_tf.tables.read import read_table
from bert_tf.tasks.token_classification.entities import EntitySpan, LabeledWords
from bert_tf.tasks.token_classification.schemes import OUTSIDE
from bert_tf.tasks.token_classification.sentences import ConllFile
from bert_tf.tasks.token_classification.windows import locate_words

# The numbers or names of the columns of words and labels.
Columns = tuple[int | str, int | str]
EXTENSIONS = (".json", ".jsonl", ".ndjson")
_WORD_KEYS = ("tokens", "tokenized_text", "words", "token", "word", "sentence", "text")
_TEXT_KEYS = ("text", "sentence", "content")
_LABEL_KEYS = (
    *("ner_tags", "labels", "label", "tags", "ner", "entities", "spans", "annotations", "ents"),
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
# Of so many spans of words, one has a single word.
_MANY_SPANS = 20
_ENDS = ("the word after it", "its last word")
# What words cannot express about a span, and what is done about it.
_INSIDE_A_WORD = "do not end where a word does", "so whole words are labeled"
_OVERLAP = "overlap with others", "so only the longest are used"
_SEVERAL_LABELS = "have several labels", "so only the first is used"


def read_json(
    file: ConllFile, keys: Columns, need_labels: bool, split: Callable[[str], list[str]]
) -> None:
    """Reads a file with an object per line, or with a list of objects.

    The keys of words and labels are found if they are numbers. If there must be labels, objects
    that were rejected, or not yet labeled, in an annotation tool are left out.
    """
    counts, num_spans, num_skipped, found = Counter[tuple[str, str]](), 0, 0, []
    for row in read_table(file.path):
        if not isinstance(row.cells, dict):
            raise UserError("expected a JSON object", at=row.place)
        cells, is_labeled = _flatten(row.cells)
        if need_labels and not is_labeled:
            num_skipped += 1
            continue
        words, value, key = _find_values(cells, keys, need_labels, row.place)
        found.append((row.place, words, value if is_labeled else None))
        file.objects.append((cells, key))
    if num_skipped:
        reason = "were rejected, ignored or not labeled in the annotation tool"
        note(f"left out {counted(num_skipped, 'object', f'that {reason}')}", at=file.path)
    file.end_offset = _find_end_offset(file.path, found)
    for place, words, value in found:
        number, text = place.line, None
        if isinstance(words, str):
            text, words = words, split(words)
            places = locate_words(words, text)
        else:
            words = [re.sub("[ \t\r\n]", "\xa0", word) or "\xa0" for word in words]
            places = [(n, n + 1) for n in range(len(words))]
        has_spans = text is not None or file.end_offset is not None
        if value == [] and not has_spans and not need_labels:
            value = None
        if has_spans and value is not None and (text is not None or _are_spans(value)):
            spans = list(_parse_spans(value, words if text is None else text, file, place))
            num_spans += len(spans)
            names = (name for _, _, name, *_ in _list_spans(value))
            counts[_SEVERAL_LABELS] += sum(isinstance(x, list) and len(x) > 1 for x in names)
            value = _label_words(places, spans, counts)
        elif value is not None and not _is_strings(value):
            raise UserError(f"{excerpt(json.dumps(value))} are not names of labels", at=place)
        elif value is not None and len(value) != len(words):
            raise _error(place, f"{counted(len(words), 'word')}, but {len(value)} labels")
        file.add_sentence(number, words, value or (), text)
    for (problem, result), count in sorted((+counts).items()):
        spans = counted(count, "span", problem, of=num_spans)
        file.problems.append(f"{Place(file.path)}: {spans}, {result}")


def _flatten(cells: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    """Moves the text and spans of Label Studio's objects to the top.

    Also returns whether the object has labels that were accepted, in Label Studio or Prodigy.
    """
    data, annotations = cells.get("data"), cells.get("annotations")
    if not isinstance(data, dict) or not isinstance(annotations, list):
        return cells, cells.get("answer") not in ("reject", "ignore")
    done = [x for x in annotations if isinstance(x, dict) and not x.get("was_cancelled")]
    results = done[0].get("result") if done else []
    values = [x.get("value") for x in results or [] if isinstance(x, dict)]
    spans = [x for x in values if isinstance(x, dict) and "labels" in x]
    others = {key: value for key, value in cells.items() if key != "data"}
    return {**others, **data, "annotations": spans}, bool(done)


def _find_end_offset(path: str, found: Sequence[tuple[str, Any, Any]]) -> int | None:
    """Returns what to add to the ends of spans that count words; None if there are none.

    1: a span ends with its last word, as for GLiNER; 0: before the word after it, as for SpERT.
    """
    spans = [
        (end == len(words), start == end, isinstance(value[0], list))
        for _, words, value in found
        if isinstance(words, list) and value and _are_spans(value)
        for start, end, *_ in _list_spans(value)
    ]
    if not spans:
        return None
    reach_the_end, are_single, are_lists = map(any, zip(*spans, strict=True))
    is_probable = are_lists and not reach_the_end and len(spans) < _MANY_SPANS
    offset = int(are_single or is_probable)
    note(f"spans count words; the end of a span is {_ENDS[offset]}", at=path)
    return offset


def _are_spans(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(x, list | dict) for x in value)


def _find_values(
    cells: Mapping[str, Any], keys: Columns, need_labels: bool, place: Where
) -> tuple[Any, Any, str]:
    """Returns words or text; labels or spans, None if there are none; and the key of labels."""
    (word_key, label_key), names = keys, ", ".join(cells)
    if isinstance(label_key, int):
        label_key = next((key for key in _LABEL_KEYS if key in cells and key != word_key), "")
    value = cells.get(label_key)
    lists = [cells[key] for key in _WORD_KEYS if _is_strings(cells.get(key))]
    texts = [cells[key] for key in _TEXT_KEYS if isinstance(cells.get(key), str)]
    # Beside its tokens, an object may have a text with spans.
    are_labels = _is_strings(value) and (value or label_key not in ("spans", "entities"))
    found = [*lists, *texts] if value is None or are_labels else texts or lists
    words = next(iter(found), None) if isinstance(word_key, int) else cells.get(word_key)
    if not (isinstance(words, str) or _is_strings(words)):
        raise _error(place, f"no words or text (--token_column) in the keys {names}")
    if value is None and need_labels:
        raise _error(place, f"no labels (--label_column) in the keys {names}")
    return words, value, label_key or "labels"


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


def _error(place: Where, problem: str) -> UserError:
    return UserError(problem, at=place, fix=f"Write objects such as {_FORMAT}")


def _parse_spans(
    value: Any, text: str | Sequence[str], file: ConllFile, place: Where
) -> Iterator[tuple[int, int, str]]:
    """Yields start, end (exclusive) and type of each span of a text, or of a list of words.

    A span of a text has no white space at its ends, unless it has nothing else. Of several types,
    only the first is used.
    """
    for start, end, names, quote, span in _list_spans(value):
        name: Any = names[0] if isinstance(names, list) and names else names
        is_valid = isinstance(start, int) and isinstance(end, int) and isinstance(name, str)
        if is_valid and not isinstance(text, str):
            end += file.end_offset or 0
        elif is_valid and isinstance(quote, str) and text[start:end] != quote:
            end += text[start : end + 1] == quote  # CLUENER's ends are those of the last character
            is_valid = text[start:end] == quote
        if not is_valid or not 0 <= start < end <= len(text) or not name:
            item = excerpt(json.dumps(span, ensure_ascii=False))
            raise _error(place, f"{item} is not a span of the text and the name of its label")
        part = text[start:end]
        if isinstance(part, str) and part.strip():
            start, end = end - len(part.lstrip()), start + len(part.rstrip())
        yield start, end, name


def _list_spans(value: Any) -> Iterator[tuple[Any, Any, Any, Any, Any]]:
    """Yields start, end, type, text (None if unknown) and source of unchecked spans."""
    if not isinstance(value, dict):
        for span in value if isinstance(value, list) else [value]:
            yield *_read_span(span), span
        return
    for name, texts in value.items():
        for quote, spans in texts.items() if isinstance(texts, dict) else [(None, texts)]:
            for span in spans if isinstance(spans, list) else [spans]:
                start, end = span if isinstance(span, list) and len(span) == 2 else (span, None)
                yield start, end, name, quote, {name: texts}


def _read_span(span: Any) -> tuple[Any, Any, Any, Any]:
    if isinstance(span, list) and len(span) == 3:
        return (*span, None)
    if not isinstance(span, dict):
        return span, None, None, None
    start, end, name, quote = (
        next((span[key] for key in keys if key in span), None) for keys in _SPAN_KEYS
    )
    return start, end, name, quote


def with_labels(file: ConllFile, predictions: Sequence[LabeledWords]) -> str:
    """Returns the objects of a file as lines, with predicted labels, or spans, as their labels.

    Spans are written as in the file; if it has none, as [start, end, type].
    """
    values = (cells.get(key) for cells, key in file.objects)
    example = next((value for value in values if value and not _is_strings(value)), [])
    lines = []
    for (cells, key), sentence in zip(file.objects, predictions, strict=True):
        offset = file.end_offset if sentence.text is None else 0
        spans = [x._replace(end=x.end - (offset or 0)) for x in sentence.spans]
        value = sentence.labels if offset is None else _write_spans(spans, example)
        lines.append(json.dumps({**cells, key: value}, ensure_ascii=False) + "\n")
    return "".join(lines)


def _write_spans(spans: Sequence[EntitySpan], example: Any) -> Any:
    """Returns spans in the layout of `example`, the spans of another text."""
    if isinstance(example, dict):
        by_type: dict[str, dict[str, list[list[int]]]] = {}
        for x in spans:
            by_type.setdefault(x.type, {}).setdefault(x.text, []).append([x.start, x.end - 1])
        return by_type
    first = example[0] if example else None
    if not isinstance(first, dict):
        return [[x.start, x.end, x.type] for x in spans]
    keys = [next((key for key in keys if key in first), "") for keys in _SPAN_KEYS]
    has_list = isinstance(first[keys[2]], list)
    rows = [(x.start, x.end, [x.type] if has_list else x.type, x.text) for x in spans]
    return [{key: cell for key, cell in zip(keys, row, strict=True) if key} for row in rows]
