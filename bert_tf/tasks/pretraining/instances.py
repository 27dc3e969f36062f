"""Pre-training instances: pairs of segments with masked tokens (Devlin et al. 2018, section 3.1).

Without shards, random numbers are drawn in the same order as in the original release, so that the
same documents and the same `random.Random` give the same instances. A document is a list of
sentences, and a sentence is a list of token ids.
"""

import contextlib
import gc
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bert_tf.errors import UserError
from bert_tf.tasks.pretraining.options import PretrainingDataOptions
from bert_tf.tasks.pretraining.rng import ReferenceRng

Sentence = list[int]
Document = list[Sentence]

_SPECIAL = ("[UNK]", "[CLS]", "[SEP]", "[MASK]")
# Maximum number of attempts to draw a different document for a random second segment.
_MAX_ATTEMPTS = 10


@contextlib.contextmanager
def pause_gc() -> Iterator[None]:
    """Disables garbage collection, which would take a seventh of the time and free nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class VocabInfo:
    """Vocabulary properties needed for masking; the vocabulary must have the special tokens."""

    def __init__(self, vocab: dict[str, int]) -> None:
        missing = [token for token in _SPECIAL if token not in vocab]
        if missing:
            needed = f"Pre-training needs {', '.join(_SPECIAL)}"
            raise UserError(f"The vocabulary (--vocab_file) lacks {', '.join(missing)}. {needed}")
        self.cls_id, self.sep_id = vocab["[CLS]"], vocab["[SEP]"]
        self.mask_id = vocab["[MASK]"]
        # Random tokens are drawn from all entries, special tokens included.
        self.replacements = list(vocab.values())
        self.size = max(vocab.values()) + 1
        # The second half is for ids of pieces inside a word, to which a segmenter adds `size`.
        self.is_inner = [False] * self.size + [True] * self.size
        for token, index in vocab.items():
            self.is_inner[index] = token.startswith("##")


@dataclass(slots=True)
class Instance:
    """A training instance: `[CLS] A [SEP] B [SEP]`."""

    input_ids: list[int]  # with special tokens, masked, not padded
    first_length: int  # length of [CLS] A [SEP]
    is_random_next: bool  # whether B is a random segment, not the continuation of A
    positions: list[int]  # positions of the masked tokens, ascending
    labels: list[int]  # original ids of the masked tokens


def create_training_instances(
    documents: list[Document],
    rng: ReferenceRng,
    options: PretrainingDataOptions,
    vocab: VocabInfo,
    on_document_done: Callable[[], object] = lambda: None,
) -> list[Instance]:
    """Creates the instances of a corpus, shuffled; calls `on_document_done` after each document.

    Shuffles `documents` in place. No document may be empty.
    """
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
    rng: ReferenceRng,
    options: PretrainingDataOptions,
    vocab: VocabInfo,
) -> Iterator[Instance]:
    """Yields the instances of document `index`; other documents provide random second segments."""
    document = documents[index]
    max_tokens = options.max_seq_length - 3
    is_short = rng.random() < options.short_seq_prob
    target = 2 + rng.randbelow(max_tokens - 1) if is_short else max_tokens
    chunk: list[Sentence] = []
    length = i = 0
    while i < len(document):
        chunk.append(document[i])
        length += len(document[i])
        if i == len(document) - 1 or length >= target:
            count_a = 1 + rng.randbelow(len(chunk) - 1) if len(chunk) > 1 else 1
            first = list(itertools.chain.from_iterable(chunk[:count_a]))
            is_random_next = len(chunk) == 1 or rng.random() < 0.5
            if is_random_next:
                second = _draw_segment(documents, index, target - len(first), rng)
                # Put the unused sentences back, as in the original.
                i -= len(chunk) - count_a
            else:
                second = list(itertools.chain.from_iterable(chunk[count_a:]))
            first, second = _truncate(first, second, max_tokens, rng)
            input_ids = [vocab.cls_id, *first, vocab.sep_id, *second, vocab.sep_id]
            positions, labels = _mask(input_ids, len(first) + 2, rng, options, vocab)
            yield Instance(input_ids, len(first) + 2, is_random_next, positions, labels)
            chunk, length = [], 0
        i += 1


def _draw_segment(
    documents: Sequence[Document], index: int, target: int, rng: ReferenceRng
) -> Sentence:
    for _ in range(_MAX_ATTEMPTS):
        other = rng.randbelow(len(documents))
        if other != index:
            break
    document = documents[other]
    segment: Sentence = []
    for sentence in document[rng.randbelow(len(document)) :]:
        segment += sentence
        if len(segment) >= target:
            break
    return segment


def _truncate(
    first: Sentence, second: Sentence, max_tokens: int, rng: ReferenceRng
) -> tuple[Sentence, Sentence]:
    """Removes tokens from the longer segment, randomly at its front or back, until both fit."""
    bounds = [0, len(first), 0, len(second)]
    while (a := bounds[1] - bounds[0]) + (b := bounds[3] - bounds[2]) > max_tokens:
        side = 0 if a > b else 2
        is_front = rng.random() < 0.5
        bounds[side if is_front else side + 1] += 1 if is_front else -1
    return first[bounds[0] : bounds[1]], second[bounds[2] : bounds[3]]


def _mask(
    input_ids: list[int],
    first_length: int,
    rng: ReferenceRng,
    options: PretrainingDataOptions,
    vocab: VocabInfo,
) -> tuple[list[int], list[int]]:
    """Masks tokens in place; returns their positions and original ids.

    Also removes the inner-piece marks that a segmenter added to the ids.
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
        chosen = rng.sample(candidates, count)
    labels = {position: input_ids[position] for position in chosen}
    uniform, randbelow = rng.random, rng.randbelow
    for position in chosen:
        if uniform() < 0.8:
            input_ids[position] = vocab.mask_id
        elif uniform() >= 0.5:
            input_ids[position] = vocab.replacements[randbelow(len(vocab.replacements))]
    chosen.sort()
    return chosen, [labels[position] for position in chosen]


def _group_words(candidates: list[int], input_ids: list[int], vocab: VocabInfo) -> list[list[int]]:
    """Groups positions by word; as in the original, a word may extend across [SEP]."""
    words: list[list[int]] = []
    for position in candidates:
        if words and vocab.is_inner[input_ids[position]]:
            words[-1].append(position)
        else:
            words.append([position])
    return words
