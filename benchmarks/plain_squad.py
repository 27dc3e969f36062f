"""Question answering as in the original release, written plainly: the baseline of squad.py.

Every question tokenizes its text again, word by word; windows, maps and context are lists and
dictionaries; answers are found by loops over all pairs of start and end. Results equal those of the
package; the benchmark checks that first.
"""

import collections
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bert_tf.tasks.question_answering.squad_reader import SquadExample
from bert_tf.tokenization import BasicTokenizer, FullTokenizer


@dataclass
class PlainFeatures:
    """A window of a question's text."""

    example_index: int
    tokens: list[str]
    words: dict[int, int]
    is_max_context: dict[int, bool]
    input_ids: list[int]
    input_mask: list[int]
    segment_ids: list[int]


def convert(
    examples: Sequence[SquadExample],
    tokenizer: FullTokenizer,
    max_seq_length: int,
    doc_stride: int,
    max_query_length: int,
) -> Iterator[PlainFeatures]:
    """Yields the windows of all questions."""
    for index, example in enumerate(examples):
        query = tokenizer.tokenize(example.question_text)[:max_query_length]
        tokens, origins = [], []
        for number, word in enumerate(example.doc_tokens):
            for piece in tokenizer.tokenize(word):
                tokens.append(piece)
                origins.append(number)
        room = max_seq_length - len(query) - 3
        spans = []
        start = 0
        while start < len(tokens):
            length = min(len(tokens) - start, room)
            spans.append((start, length))
            if start + length == len(tokens):
                break
            start += min(length, doc_stride)
        for number, (start, length) in enumerate(spans):
            row = ["[CLS]", *query, "[SEP]"]
            segments = [0] * len(row)
            words, best = {}, {}
            for place in range(start, start + length):
                words[len(row)] = origins[place]
                best[len(row)] = _best_span(spans, place) == number
                row.append(tokens[place])
                segments.append(1)
            row.append("[SEP]")
            segments.append(1)
            missing = [0] * (max_seq_length - len(row))
            ids = tokenizer.convert_tokens_to_ids(row)
            mask = [1] * len(row)
            yield PlainFeatures(
                index, row, words, best, ids + missing, mask + missing, segments + missing
            )


def _best_span(spans: list[tuple[int, int]], place: int) -> int:
    best, found = -1.0, 0
    for number, (start, length) in enumerate(spans):
        if start <= place < start + length:
            score = min(place - start, start + length - 1 - place) + 0.01 * length
            if score > best:
                best, found = score, number
    return found


def decode(
    examples: Sequence[SquadExample],
    features: Sequence[PlainFeatures],
    start_logits: Sequence[list[float]],
    end_logits: Sequence[list[float]],
    n_best_size: int,
    max_answer_length: int,
    do_lower_case: bool,
) -> tuple[str, str]:
    """Returns `predictions.json` and `nbest_predictions.json` of SQuAD 1.1."""
    of_example = collections.defaultdict(list)
    for number, feature in enumerate(features):
        of_example[feature.example_index].append(number)
    texts: dict[str, str] = {}
    lists: dict[str, list[dict[str, Any]]] = {}
    for index, example in enumerate(examples):
        pairs = []
        for number in of_example[index]:
            feature = features[number]
            starts, ends = start_logits[number], end_logits[number]
            for start in _highest(starts, n_best_size):
                for end in _highest(ends, n_best_size):
                    if start not in feature.words or end not in feature.words:
                        continue
                    if not feature.is_max_context[start]:
                        continue
                    if end < start or end - start + 1 > max_answer_length:
                        continue
                    pairs.append((number, start, end, starts[start], ends[end]))
        pairs.sort(key=lambda pair: pair[3] + pair[4], reverse=True)
        entries: dict[str, tuple[float, float]] = {}
        for number, start, end, start_logit, end_logit in pairs:
            if len(entries) >= n_best_size:
                break
            feature = features[number]
            pieces = " ".join(feature.tokens[start : end + 1])
            predicted = " ".join(pieces.replace(" ##", "").replace("##", "").split())
            words = example.doc_tokens[feature.words[start] : feature.words[end] + 1]
            text = _project(predicted, " ".join(words), do_lower_case)
            entries.setdefault(text, (start_logit, end_logit))
        found = list(entries.items()) or [("empty", (0.0, 0.0))]
        scores = [start + end for _, (start, end) in found]
        powers = [math.exp(score - max(scores)) for score in scores]
        total = 0.0
        for power in powers:
            total += power
        lists[example.qas_id] = [
            {
                "text": text,
                "probability": power / total,
                "start_logit": start_logit,
                "end_logit": end_logit,
            }
            for (text, (start_logit, end_logit)), power in zip(found, powers, strict=True)
        ]
        texts[example.qas_id] = found[0][0]
    return json.dumps(texts, indent=4) + "\n", json.dumps(lists, indent=4) + "\n"


def _highest(logits: list[float], count: int) -> list[int]:
    ordered = sorted(enumerate(logits), key=lambda pair: pair[1], reverse=True)
    return [place for place, _ in ordered[:count]]


def _project(predicted: str, text: str, do_lower_case: bool) -> str:
    normalized = " ".join(BasicTokenizer(do_lower_case).tokenize(text))
    begin = normalized.find(predicted)
    if begin < 0:
        return text
    solid = [place for place, char in enumerate(text) if char != " "]
    places: dict[int, int] = {}
    for place, char in enumerate(normalized):
        if char != " ":
            places[place] = len(places)
    if len(solid) != len(places):
        return text
    return text[solid[places[begin]] : solid[places[begin + len(predicted) - 1]] + 1]
