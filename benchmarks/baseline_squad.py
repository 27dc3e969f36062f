"""The original release's question answering in plain Python, as a baseline for squad.py.

Tokenizes the context again for each question, word by word, stores windows in lists and
dictionaries, and finds answers by looping over pairs of start and end positions. The results are
identical to those of bert_tf, which the benchmark verifies.
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
class WindowFeatures:
    """A window of a question's context; `words` maps its positions to word indices."""

    example_index: int
    tokens: list[str]
    words: dict[int, int]
    is_max_context: dict[int, bool]
    input_ids: list[int]
    input_mask: list[int]
    segment_ids: list[int]


def convert_examples(
    examples: Sequence[SquadExample],
    tokenizer: FullTokenizer,
    max_seq_length: int,
    doc_stride: int,
    max_query_length: int,
) -> Iterator[WindowFeatures]:
    """Yields the windows of all questions."""
    for index, example in enumerate(examples):
        query = tokenizer.tokenize(example.question_text)[:max_query_length]
        tokens, word_indices = [], []
        for number, word in enumerate(example.doc_tokens):
            for piece in tokenizer.tokenize(word):
                tokens.append(piece)
                word_indices.append(number)
        max_tokens = max_seq_length - len(query) - 3
        spans = []
        start = 0
        while start < len(tokens):
            length = min(len(tokens) - start, max_tokens)
            spans.append((start, length))
            if start + length == len(tokens):
                break
            start += min(length, doc_stride)
        for number, (start, length) in enumerate(spans):
            row = ["[CLS]", *query, "[SEP]"]
            segment_ids = [0] * len(row)
            words, is_max_context = {}, {}
            for position in range(start, start + length):
                words[len(row)] = word_indices[position]
                is_max_context[len(row)] = _max_context_span(spans, position) == number
                row.append(tokens[position])
                segment_ids.append(1)
            row.append("[SEP]")
            segment_ids.append(1)
            padding = [0] * (max_seq_length - len(row))
            ids = tokenizer.convert_tokens_to_ids(row) + padding
            mask = [1] * len(row) + padding
            yield WindowFeatures(
                index, row, words, is_max_context, ids, mask, segment_ids + padding
            )


def _max_context_span(spans: list[tuple[int, int]], position: int) -> int:
    best_score, best_span = -1.0, 0
    for number, (start, length) in enumerate(spans):
        if start <= position < start + length:
            score = min(position - start, start + length - 1 - position) + 0.01 * length
            if score > best_score:
                best_score, best_span = score, number
    return best_span


def decode_predictions(
    examples: Sequence[SquadExample],
    features: Sequence[WindowFeatures],
    start_logits: Sequence[list[float]],
    end_logits: Sequence[list[float]],
    n_best_size: int,
    max_answer_length: int,
    do_lower_case: bool,
) -> tuple[str, str]:
    """Returns the contents of `predictions.json` and `nbest_predictions.json` for SQuAD 1.1."""
    windows = collections.defaultdict(list)
    for number, feature in enumerate(features):
        windows[feature.example_index].append(number)
    predictions: dict[str, str] = {}
    nbest_predictions: dict[str, list[dict[str, Any]]] = {}
    for index, example in enumerate(examples):
        pairs = []
        for number in windows[index]:
            feature = features[number]
            starts, ends = start_logits[number], end_logits[number]
            for start in _top_positions(starts, n_best_size):
                for end in _top_positions(ends, n_best_size):
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
            text = _align_to_text(predicted, " ".join(words), do_lower_case)
            entries.setdefault(text, (start_logit, end_logit))
        answers = list(entries.items()) or [("empty", (0.0, 0.0))]
        scores = [start + end for _, (start, end) in answers]
        exponentials = [math.exp(score - max(scores)) for score in scores]
        total = 0.0
        for exponential in exponentials:
            total += exponential
        nbest_predictions[example.qas_id] = [
            {
                "text": text,
                "probability": exponential / total,
                "start_logit": start_logit,
                "end_logit": end_logit,
            }
            for (text, (start_logit, end_logit)), exponential in zip(
                answers, exponentials, strict=True
            )
        ]
        predictions[example.qas_id] = answers[0][0]
    return (
        json.dumps(predictions, indent=4) + "\n",
        json.dumps(nbest_predictions, indent=4) + "\n",
    )


def _top_positions(logits: list[float], count: int) -> list[int]:
    ordered = sorted(enumerate(logits), key=lambda pair: pair[1], reverse=True)
    return [position for position, _ in ordered[:count]]


def _align_to_text(predicted: str, text: str, do_lower_case: bool) -> str:
    normalized = " ".join(BasicTokenizer(do_lower_case).tokenize(text))
    begin = normalized.find(predicted)
    if begin < 0:
        return text
    positions = [position for position, char in enumerate(text) if char != " "]
    ranks: dict[int, int] = {}
    for position, char in enumerate(normalized):
        if char != " ":
            ranks[position] = len(ranks)
    if len(positions) != len(ranks):
        return text
    return text[positions[ranks[begin]] : positions[ranks[begin + len(predicted) - 1]] + 1]
