"""Pre-training instances: pairs of segments with masked tokens (Devlin et al. 2018, section 3.1).

`create_training_instances` draws random numbers in the same order as the original BERT code, so the
same documents and seed give the original's instances. A document is a list of sentences, and a
sentence is a list of token ids.
"""

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bert_tf.base.errors import UserError, counted, warn
from bert_tf.tasks.pretraining.options import PretrainingDataOptions

# Share of documents with a single line above which a warning is logged.
_MAX_SINGLE_LINES = 0.8

Sentence = list[int]
Document = list[Sentence]

_SPECIAL_TOKENS = ("[UNK]", "[CLS]", "[SEP]", "[MASK]")
# Maximum number of attempts to draw a different document for a random second segment.
_MAX_ATTEMPTS = 10


class VocabInfo:
    """What masking needs to know about the vocabulary, which must have the special tokens."""

    def __init__(self, vocab: dict[str, int]) -> None:
        missing = [token for token in _SPECIAL_TOKENS if token not in vocab]
        if missing:
            raise UserError(f"The vocabulary (--vocab_file) lacks {', '.join(missing)}")
        self.cls_id, self.sep_id = vocab["[CLS]"], vocab["[SEP]"]
        self.mask_id = vocab["[MASK]"]
        # Ids that may replace a token: as in the original, all of them, even special tokens.
        self.replacements = list(vocab.values())
        self.size = max(vocab.values()) + 1
        # Whether each id continues a word. The second half is for ids that `mark_inner_pieces` has
        # increased by `size`.
        self.is_inner = [False] * self.size + [True] * self.size
        for token, index in vocab.items():
            self.is_inner[index] = token.startswith("##")


@dataclass(slots=True)
class Instance:
    """A training instance: `[CLS] A [SEP] B [SEP]`."""

    input_ids: list[int]  # with special tokens, after masking, without padding
    first_length: int  # length of [CLS] A [SEP]
    is_random_next: bool  # whether B is a random segment, not the continuation of A
    positions: list[int]  # positions of the masked tokens, ascending
    labels: list[int]  # original ids of the masked tokens


def warn_about_single_lines(num_single: int, num_documents: int) -> None:
    """Warns if most documents are a single line: they have no next sentences."""
    if num_documents > 1 and num_single > _MAX_SINGLE_LINES * num_documents:
        single = counted(num_single, "document", "are a single line", of=num_documents)
        warn(f"{single}, so their next sentences are random")


class _OriginalRandom(random.Random):
    """Draws samples as the original does, by shuffling `population` in place, which is slow."""

    def sample(self, population: list[int], k: int) -> list[int]:  # type: ignore[override]
        self.shuffle(population)
        return population[:k]


def create_training_instances(
    documents: list[Document],
    options: PretrainingDataOptions,
    vocab: VocabInfo,
    on_document_done: Callable[[], object] = lambda: None,
) -> list[Instance]:
    """Creates the instances of a corpus, shuffled; calls `on_document_done` after each document.

    Shuffles `documents` in place. No document may be empty.
    """
    rng = _OriginalRandom(options.random_seed)
    rng.shuffle(documents)
    instances: list[Instance] = []
    for _ in range(options.dupe_factor):
        for index in range(len(documents)):
            instances += create_instances_from_document(documents, index, rng, options, vocab)
            on_document_done()
    rng.shuffle(instances)
    return instances


def create_instances_from_document(
    documents: Sequence[Document],
    index: int,
    rng: random.Random,
    options: PretrainingDataOptions,
    vocab: VocabInfo,
) -> Iterator[Instance]:
    """Yields the instances of document `index`; other documents provide random second segments."""
    document = documents[index]
    max_tokens = options.max_seq_length - 3  # without [CLS] and two [SEP]
    is_short = rng.random() < options.short_seq_prob
    target_length = 2 + rng.randrange(max_tokens - 1) if is_short else max_tokens
    chunk: list[Sentence] = []
    length = i = 0
    while i < len(document):
        chunk.append(document[i])
        length += len(document[i])
        if i == len(document) - 1 or length >= target_length:
            num_first = 1 + rng.randrange(len(chunk) - 1) if len(chunk) > 1 else 1
            first = list(itertools.chain.from_iterable(chunk[:num_first]))
            is_random_next = len(chunk) == 1 or rng.random() < 0.5
            if is_random_next:
                second = _draw_segment(documents, index, target_length - len(first), rng)
                # Use the other sentences of the chunk for the next instance, as in the original.
                i -= len(chunk) - num_first
            else:
                second = list(itertools.chain.from_iterable(chunk[num_first:]))
            first, second = _truncate(first, second, max_tokens, rng)
            input_ids = [vocab.cls_id, *first, vocab.sep_id, *second, vocab.sep_id]
            positions, labels = _mask(input_ids, len(first) + 2, rng, options, vocab)
            yield Instance(input_ids, len(first) + 2, is_random_next, positions, labels)
            chunk, length = [], 0
        i += 1


def _draw_segment(
    documents: Sequence[Document], index: int, target_length: int, rng: random.Random
) -> Sentence:
    """Draws consecutive sentences, if possible from another document than `index`."""
    for _ in range(_MAX_ATTEMPTS):
        other = rng.randrange(len(documents))
        if other != index:
            break
    document = documents[other]
    segment: Sentence = []
    for sentence in document[rng.randrange(len(document)) :]:
        segment += sentence
        if len(segment) >= target_length:
            break
    return segment


def _truncate(
    first: Sentence, second: Sentence, max_tokens: int, rng: random.Random
) -> tuple[Sentence, Sentence]:
    """Removes tokens at the front or back (random) of the longer segment until the pair fits."""
    # Start and end of the first segment, then start and end of the second.
    bounds = [0, len(first), 0, len(second)]
    while (a := bounds[1] - bounds[0]) + (b := bounds[3] - bounds[2]) > max_tokens:
        side = 0 if a > b else 2
        is_front = rng.random() < 0.5
        bounds[side if is_front else side + 1] += 1 if is_front else -1
    return first[bounds[0] : bounds[1]], second[bounds[2] : bounds[3]]


def _mask(
    input_ids: list[int],
    first_length: int,
    rng: random.Random,
    options: PretrainingDataOptions,
    vocab: VocabInfo,
) -> tuple[list[int], list[int]]:
    """Masks tokens in place; returns their positions and original ids.

    Also removes the marks of `mark_inner_pieces` from the ids.
    """
    candidates = [*range(1, first_length - 1), *range(first_length, len(input_ids) - 1)]
    # As in the original, `round` rounds halves to even.
    count = max(1, round(len(input_ids) * options.masked_lm_prob))
    count = min(options.max_predictions_per_seq, count)
    if options.do_whole_word_mask:
        words = _group_words(candidates, input_ids, vocab)
        input_ids[:] = [index % vocab.size for index in input_ids]
        rng.shuffle(words)
        chosen: list[int] = []
        for word in words:
            if len(chosen) + len(word) <= count:
                chosen += word
    else:
        chosen = rng.sample(candidates, min(count, len(candidates)))
    labels = {position: input_ids[position] for position in chosen}
    for position in chosen:
        if rng.random() < 0.8:
            input_ids[position] = vocab.mask_id
        elif rng.random() >= 0.5:
            input_ids[position] = rng.choice(vocab.replacements)
    chosen.sort()
    return chosen, [labels[position] for position in chosen]


def _group_words(candidates: list[int], input_ids: list[int], vocab: VocabInfo) -> list[list[int]]:
    """Groups positions by word; as in the original, a word may continue after a [SEP]."""
    words: list[list[int]] = []
    for position in candidates:
        if words and vocab.is_inner[input_ids[position]]:
            words[-1].append(position)
        else:
            words.append([position])
    return words
