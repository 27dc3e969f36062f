"""Question answering in plain Python, as in the original BERT code: the baseline of squad.py.

It tokenizes the context again for each question, word by word, stores windows in lists and
dictionaries, and finds answers by looping over pairs of start and end positions. The results equal
those of bert_tf, which squad.py checks.
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
    """A window of a question's context, as input of the model.

    The keys of `word_indices` and `is_max_context` are the positions of the context in `tokens`.
    """

    example_index: int
    tokens: list[str]  # with the question, [CLS] and [SEP]
    word_indices: dict[int, int]  # index of the context's word
    is_max_context: dict[int, bool]  # whether no other window has more context around the token
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
    for example_index, example in enumerate(examples):
        query = tokenizer.tokenize(example.question_text)[:max_query_length]
        context, context_words = [], []
        for word_index, word in enumerate(example.doc_tokens):
            for piece in tokenizer.tokenize(word):
                context.append(piece)
                context_words.append(word_index)
        max_tokens = max_seq_length - len(query) - 3
        spans = []
        start = 0
        while start < len(context):
            length = min(len(context) - start, max_tokens)
            spans.append((start, length))
            if start + length == len(context):
                break
            start += min(length, doc_stride)
        for span_index, (start, length) in enumerate(spans):
            tokens = ["[CLS]", *query, "[SEP]"]
            segment_ids = [0] * len(tokens)
            word_indices, is_max_context = {}, {}
            for position in range(start, start + length):
                word_indices[len(tokens)] = context_words[position]
                is_max_context[len(tokens)] = _max_context_span(spans, position) == span_index
                tokens.append(context[position])
                segment_ids.append(1)
            tokens.append("[SEP]")
            segment_ids.append(1)
            padding = [0] * (max_seq_length - len(tokens))
            yield WindowFeatures(
                example_index,
                tokens,
                word_indices,
                is_max_context,
                input_ids=tokenizer.convert_tokens_to_ids(tokens) + padding,
                input_mask=[1] * len(tokens) + padding,
                segment_ids=segment_ids + padding,
            )


def _max_context_span(spans: list[tuple[int, int]], position: int) -> int:
    """Returns the index of the span with the most context on both sides of a position."""
    best_score, best_index = -1.0, 0
    for index, (start, length) in enumerate(spans):
        if start <= position < start + length:
            score = min(position - start, start + length - 1 - position) + 0.01 * length
            if score > best_score:
                best_score, best_index = score, index
    return best_index


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
    window_indices = collections.defaultdict(list)
    for window_index, feature in enumerate(features):
        window_indices[feature.example_index].append(window_index)
    predictions: dict[str, str] = {}
    nbest_predictions: dict[str, list[dict[str, Any]]] = {}
    for example_index, example in enumerate(examples):
        candidates = []
        for window_index in window_indices[example_index]:
            feature = features[window_index]
            starts, ends = start_logits[window_index], end_logits[window_index]
            for start in _top_positions(starts, n_best_size):
                for end in _top_positions(ends, n_best_size):
                    if start not in feature.word_indices or end not in feature.word_indices:
                        continue
                    if not feature.is_max_context[start]:
                        continue
                    if end < start or end - start + 1 > max_answer_length:
                        continue
                    candidates.append((window_index, start, end, starts[start], ends[end]))
        candidates.sort(key=lambda candidate: candidate[3] + candidate[4], reverse=True)
        logits_by_text: dict[str, tuple[float, float]] = {}
        for window_index, start, end, start_logit, end_logit in candidates:
            if len(logits_by_text) >= n_best_size:
                break
            feature = features[window_index]
            pieces = " ".join(feature.tokens[start : end + 1])
            predicted = " ".join(pieces.replace(" ##", "").replace("##", "").split())
            first_word, last_word = feature.word_indices[start], feature.word_indices[end]
            words = example.doc_tokens[first_word : last_word + 1]
            text = _align_to_text(predicted, " ".join(words), do_lower_case)
            logits_by_text.setdefault(text, (start_logit, end_logit))
        answers = list(logits_by_text.items()) or [("empty", (0.0, 0.0))]
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
    """Returns the part of `text` that becomes `predicted` when it is tokenized, or else `text`."""
    normalized = " ".join(BasicTokenizer(do_lower_case).tokenize(text))
    begin = normalized.find(predicted)
    if begin < 0:
        return text
    end = begin + len(predicted) - 1
    positions = [position for position, char in enumerate(text) if char != " "]
    # Position in `normalized` -> number of characters other than spaces before it.
    char_counts: dict[int, int] = {}
    for position, char in enumerate(normalized):
        if char != " ":
            char_counts[position] = len(char_counts)
    if len(positions) != len(char_counts):
        return text
    return text[positions[char_counts[begin]] : positions[char_counts[end]] + 1]
