"""Plain-Python version of the original BERT's create_pretraining_data.py, as a baseline.

Tokens are strings, and instances are created one at a time. Random numbers are drawn in the order
in which bert_tf draws them with --num_workers=0; the benchmark pretraining_data.py verifies that
both create the same instances.
"""

import random
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.baseline import BaselineTokenizer, write_records

Document = list[list[str]]


def create_records(
    text: str,
    output: str,
    vocab: dict[str, int],
    dupe_factor: int,
    max_seq_length: int,
    max_predictions_per_seq: int,
) -> None:
    """Converts a text file to a record file, with the original program's random seed."""
    documents = read_documents([text], BaselineTokenizer(vocab, True))
    sizes = (max_seq_length, max_predictions_per_seq)
    instances = create_instances(documents, list(vocab), random.Random(12345), dupe_factor, *sizes)
    write_records(output, create_features(instances, vocab, *sizes))


def read_documents(paths: Iterable[str], tokenizer: BaselineTokenizer) -> list[Document]:
    """Reads documents. Each is a list of sentences, and each sentence is a list of tokens."""
    documents: list[Document] = [[]]
    for path in paths:
        with open(path, encoding="utf-8", newline="\n") as file:
            for line in file:
                line = line.replace("\r", "").strip()
                if not line:
                    documents.append([])
                tokens = [
                    piece
                    for word in tokenizer.split_words(line)
                    for piece in tokenizer.split_pieces(word)
                ]
                if tokens:
                    documents[-1].append(tokens)
    return [document for document in documents if document]


def create_instances(
    documents: list[Document],
    vocab: Sequence[str],
    rng: random.Random,
    dupe_factor: int,
    max_seq_length: int,
    max_predictions: int,
    short_seq_prob: float = 0.1,
    masked_lm_prob: float = 0.15,
) -> list[dict[str, Any]]:
    """Returns the instances of all documents, shuffled."""
    rng.shuffle(documents)
    instances: list[dict[str, Any]] = []
    for _ in range(dupe_factor):
        for index in range(len(documents)):
            pairs = create_pairs(documents, index, rng, max_seq_length, short_seq_prob)
            for pair in pairs:
                instances.append(mask_tokens(*pair, vocab, rng, max_predictions, masked_lm_prob))
    rng.shuffle(instances)
    return instances


def create_pairs(
    documents: list[Document],
    index: int,
    rng: random.Random,
    max_seq_length: int,
    short_seq_prob: float,
) -> Iterable[tuple[list[str], list[str], bool]]:
    """Yields segments A and B of each instance of a document, and whether B is random."""
    document, max_tokens = documents[index], max_seq_length - 3
    target_length = max_tokens
    if rng.random() < short_seq_prob:
        target_length = rng.randint(2, max_tokens)
    chunk: Document = []
    chunk_length = i = 0
    while i < len(document):
        chunk.append(document[i])
        chunk_length += len(document[i])
        if i == len(document) - 1 or chunk_length >= target_length:
            end_a = rng.randint(1, len(chunk) - 1) if len(chunk) >= 2 else 1
            a = [token for sentence in chunk[:end_a] for token in sentence]
            b: list[str] = []
            is_random = len(chunk) == 1 or rng.random() < 0.5
            if is_random:
                for _ in range(10):
                    other_index = rng.randint(0, len(documents) - 1)
                    if other_index != index:
                        break
                start = rng.randint(0, len(documents[other_index]) - 1)
                for sentence in documents[other_index][start:]:
                    b.extend(sentence)
                    if len(b) >= target_length - len(a):
                        break
                # Continue with the sentences of the chunk that are not in A.
                i -= len(chunk) - end_a
            else:
                b = [token for sentence in chunk[end_a:] for token in sentence]
            while len(a) + len(b) > max_tokens:
                longer = a if len(a) > len(b) else b
                if rng.random() < 0.5:
                    del longer[0]
                else:
                    longer.pop()
            yield a, b, is_random
            chunk, chunk_length = [], 0
        i += 1


def mask_tokens(
    a: list[str],
    b: list[str],
    is_random: bool,
    vocab: Sequence[str],
    rng: random.Random,
    max_predictions: int,
    masked_lm_prob: float,
) -> dict[str, Any]:
    """Returns an instance with masked tokens."""
    tokens = ["[CLS]", *a, "[SEP]", *b, "[SEP]"]
    # Each candidate is a list, because the original can also mask all word pieces of a word.
    candidates = [[i] for i, token in enumerate(tokens) if token not in ("[CLS]", "[SEP]")]
    rng.shuffle(candidates)
    masked_tokens = list(tokens)
    num_to_predict = min(max_predictions, max(1, round(len(tokens) * masked_lm_prob)))
    masked: list[tuple[int, str]] = []
    for candidate in candidates:
        if len(masked) >= num_to_predict:
            break
        for position in candidate:
            if rng.random() < 0.8:
                masked_tokens[position] = "[MASK]"
            elif rng.random() >= 0.5:
                masked_tokens[position] = vocab[rng.randint(0, len(vocab) - 1)]
            masked.append((position, tokens[position]))
    masked.sort(key=lambda pair: pair[0])
    return {
        "tokens": masked_tokens,
        "segment_ids": [0] * (len(a) + 2) + [1] * (len(b) + 1),
        "is_random": is_random,
        "masked": masked,
    }


def create_features(
    instances: Iterable[dict[str, Any]],
    vocab: dict[str, int],
    max_seq_length: int,
    max_predictions: int,
) -> Iterable[dict[str, list]]:
    """Yields the padded features of each instance."""
    for instance in instances:
        ids = [vocab[token] for token in instance["tokens"]]
        input_mask, segment_ids = [1] * len(ids), list(instance["segment_ids"])
        while len(ids) < max_seq_length:
            ids.append(0)
            input_mask.append(0)
            segment_ids.append(0)
        positions = [position for position, _ in instance["masked"]]
        labels = [vocab[token] for _, token in instance["masked"]]
        weights = [1.0] * len(labels)
        while len(positions) < max_predictions:
            positions.append(0)
            labels.append(0)
            weights.append(0.0)
        yield {
            "input_ids": ids,
            "input_mask": input_mask,
            "segment_ids": segment_ids,
            "masked_lm_positions": positions,
            "masked_lm_ids": labels,
            "masked_lm_weights": weights,
            "next_sentence_labels": [int(instance["is_random"])],
        }
