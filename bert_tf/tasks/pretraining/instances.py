"""Examples for pre-training: pairs of segments, masked tokens (Devlin et al. 2018, section 3.1).

The draws of the original release, one by one in its order: the same documents and the same
`random.Random` give the same examples. A document is a list of sentences, a sentence a list of the
ids of its tokens; everything here is done on ids. S max_seq_length, P max_predictions_per_seq.
"""

import contextlib
import gc
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bert_tf.errors import UserError

Sentence = list[int]
Document = list[Sentence]

_SPECIAL = ("[UNK]", "[CLS]", "[SEP]", "[MASK]")
# Draws of another document before it may be the same.
_TRIES = 10


@dataclass(frozen=True)
class Recipe:
    """How examples are made.

    Attributes:
        max_seq_length: tokens of an example, special ones included.
        max_predictions_per_seq: masked positions at most.
        short_seq_prob: probability that the examples of a document are made shorter.
        masked_lm_prob: part of the tokens to predict.
        whole_words: whether the pieces of a word are masked together.
    """

    max_seq_length: int = 128
    max_predictions_per_seq: int = 20
    short_seq_prob: float = 0.1
    masked_lm_prob: float = 0.15
    whole_words: bool = False


@contextlib.contextmanager
def without_cycle_search() -> Iterator[None]:
    """Keeps Python from looking for objects that refer to each other in a circle.

    Examples have none, and looking through millions of them takes a seventh of the time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class Pieces:
    """What has to be known of a vocabulary.

    Args:
        vocab: token -> id, in the order of the file.

    Raises:
        UserError: a special token is missing.
    """

    def __init__(self, vocab: dict[str, int]) -> None:
        missing = [token for token in _SPECIAL if token not in vocab]
        if missing:
            raise UserError(
                f"The vocabulary (--vocab_file) lacks {', '.join(missing)}: it is not one of "
                f"BERT's. Pre-training needs {', '.join(_SPECIAL)}"
            )
        self.cls_id, self.sep_id = vocab["[CLS]"], vocab["[SEP]"]
        self.mask_id = vocab["[MASK]"]
        # Whatever is drawn in place of a masked token: any entry, special ones included.
        self.replacements = list(vocab.values())
        self.size = max(vocab.values()) + 1
        # The second half is for pieces inside of a word by `word_segments`.
        self.is_inner = [False] * self.size + [True] * self.size
        for token, index in vocab.items():
            self.is_inner[index] = token.startswith("##")


@dataclass(slots=True)
class Instance:
    """One example.

    Attributes:
        input_ids: with special tokens and masks, without padding.
        first_length: of `[CLS] A [SEP]`.
        is_random_next: whether B does not follow A in the text.
        positions: of the masked tokens, ascending.
        labels: ids that stood there.
    """

    input_ids: list[int]
    first_length: int
    is_random_next: bool
    positions: list[int]
    labels: list[int]


class Draws:
    """A `random.Random` whose integers are drawn faster, with the same results.

    `below` and `shuffle` do what `random.Random` does inside of `randint` and `shuffle`, without
    the calls in between: most of the time of masking goes there.
    """

    def __init__(self, source: random.Random) -> None:
        self.random = source.random
        self._bits = source.getrandbits

    def below(self, limit: int) -> int:
        """An integer from 0 to `limit` - 1, which must be at least 1."""
        width = limit.bit_length()
        found = self._bits(width)
        while found >= limit:
            found = self._bits(width)
        return found

    def shuffle(self, items: list) -> None:
        """Shuffles in place."""
        bits = self._bits
        for last in range(len(items) - 1, 0, -1):
            width = (last + 1).bit_length()
            other = bits(width)
            while other > last:
                other = bits(width)
            items[last], items[other] = items[other], items[last]

    def choose(self, items: list, count: int) -> list:
        """So many items, by shuffling all of them as the original does; changes their order."""
        self.shuffle(items)
        return items[:count]


class FewDraws(Draws):
    """Draws that need not be the original's: fewer of them, by a faster way."""

    def shuffle(self, items: list) -> None:
        """Shuffles in place."""
        self._shuffle_from(items, 0)

    def choose(self, items: list, count: int) -> list:
        """So many items, by no more draws than that; changes their order."""
        first = max(len(items) - count, 0)
        self._shuffle_from(items, first)
        return items[first:]

    def _shuffle_from(self, items: list, first: int) -> None:
        uniform = self.random
        for count in range(len(items), first, -1):
            other = int(uniform() * count)
            items[count - 1], items[other] = items[other], items[count - 1]


def all_instances(
    documents: list[Document],
    dupe_factor: int,
    draws: Draws,
    recipe: Recipe,
    pieces: Pieces,
    after_each: Callable[[], object] = lambda: None,
) -> list[Instance]:
    """The examples of a whole corpus, shuffled, as the original release makes them.

    Args:
        documents: none is empty; they are shuffled in place.
        dupe_factor: how often each is used, with other masks.
        draws: consumed as the original does.
        recipe: see there.
        pieces: of the vocabulary.
        after_each: called after a document was used once.
    """
    draws.shuffle(documents)
    instances: list[Instance] = []
    for _ in range(dupe_factor):
        for index in range(len(documents)):
            instances.extend(instances_of_document(documents, index, draws, recipe, pieces))
            after_each()
    draws.shuffle(instances)
    return instances


def instances_of_document(
    documents: Sequence[Document], index: int, draws: Draws, recipe: Recipe, pieces: Pieces
) -> Iterator[Instance]:
    """The examples of one document.

    Args:
        documents: all that a random second segment may come from; none is empty.
        index: of the document.
        draws: consumed as the original does.
        recipe: see there.
        pieces: of the vocabulary.
    """
    document = documents[index]
    longest = recipe.max_seq_length - 3
    short = draws.random() < recipe.short_seq_prob
    target = 2 + draws.below(longest - 1) if short else longest
    chunk: list[Sentence] = []
    length = place = 0
    while place < len(document):
        chunk.append(document[place])
        length += len(document[place])
        if place == len(document) - 1 or length >= target:
            count_a = 1 + draws.below(len(chunk) - 1) if len(chunk) > 1 else 1
            first = list(itertools.chain.from_iterable(chunk[:count_a]))
            is_random = len(chunk) == 1 or draws.random() < 0.5
            if is_random:
                second = _random_segment(documents, index, target - len(first), draws)
                # What was not used comes again.
                place -= len(chunk) - count_a
            else:
                second = list(itertools.chain.from_iterable(chunk[count_a:]))
            first, second = _truncate(first, second, longest, draws)
            input_ids = [pieces.cls_id, *first, pieces.sep_id, *second, pieces.sep_id]
            positions, labels = _mask(input_ids, len(first) + 2, draws, recipe, pieces)
            yield Instance(input_ids, len(first) + 2, is_random, positions, labels)
            chunk, length = [], 0
        place += 1


def _random_segment(
    documents: Sequence[Document], index: int, target: int, draws: Draws
) -> Sentence:
    for _ in range(_TRIES):
        other = draws.below(len(documents))
        if other != index:
            break
    document = documents[other]
    segment: Sentence = []
    for sentence in document[draws.below(len(document)) :]:
        segment += sentence
        if len(segment) >= target:
            break
    return segment


def _truncate(
    first: Sentence, second: Sentence, longest: int, draws: Draws
) -> tuple[Sentence, Sentence]:
    """Takes tokens from the longer one, at its front or its back, until both fit."""
    ends = [0, len(first), 0, len(second)]
    while ends[1] - ends[0] + ends[3] - ends[2] > longest:
        side = 0 if ends[1] - ends[0] > ends[3] - ends[2] else 2
        if draws.random() < 0.5:
            ends[side] += 1
        else:
            ends[side + 1] -= 1
    return first[ends[0] : ends[1]], second[ends[2] : ends[3]]


def _mask(
    input_ids: list[int], first_length: int, draws: Draws, recipe: Recipe, pieces: Pieces
) -> tuple[list[int], list[int]]:
    """Masks tokens in place; their positions, and what stood there.

    Ids lose what `word_segments` has added to them.
    """
    candidates = [*range(1, first_length - 1), *range(first_length, len(input_ids) - 1)]
    # Halves are rounded to the even number, as Python 3 does.
    count = max(1, round(len(input_ids) * recipe.masked_lm_prob))
    count = min(recipe.max_predictions_per_seq, count)
    if recipe.whole_words:
        words = _words(candidates, input_ids, pieces)
        input_ids[:] = [index % pieces.size for index in input_ids]
        draws.shuffle(words)
        chosen: list[int] = []
        for word in words:
            if len(chosen) >= count:
                break
            if len(chosen) + len(word) <= count:
                chosen += word
    else:
        chosen = draws.choose(candidates, count)
    labels = {position: input_ids[position] for position in chosen}
    uniform, below = draws.random, draws.below
    for position in chosen:
        if uniform() < 0.8:
            input_ids[position] = pieces.mask_id
        elif uniform() >= 0.5:
            input_ids[position] = pieces.replacements[below(len(pieces.replacements))]
    chosen.sort()
    return chosen, [labels[position] for position in chosen]


def _words(candidates: list[int], input_ids: list[int], pieces: Pieces) -> list[list[int]]:
    """Positions of the pieces of each word; a word may reach over [SEP], as in the original."""
    words: list[list[int]] = []
    for position in candidates:
        if words and pieces.is_inner[input_ids[position]]:
            words[-1].append(position)
        else:
            words.append([position])
    return words


def to_arrays(instances: Iterable[Instance], recipe: Recipe) -> dict[str, np.ndarray]:
    """The features of the records of some examples.

    Returns:
        `input_ids`, `input_mask`, `segment_ids`: int32 [n, S]; `masked_lm_positions`,
        `masked_lm_ids`: int32 [n, P]; `masked_lm_weights`: float32 [n, P];
        `next_sentence_labels`: int32 [n, 1], 1 where B is random.
    """
    instances = list(instances)
    length, predictions = recipe.max_seq_length, recipe.max_predictions_per_seq
    input_ids, lengths = _padded([instance.input_ids for instance in instances], length)
    positions, counts = _padded([instance.positions for instance in instances], predictions)
    labels, _ = _padded([instance.labels for instance in instances], predictions)
    firsts = np.array([instance.first_length for instance in instances], np.int32)[:, None]
    places = np.arange(length)
    mask = places < lengths[:, None]
    return {
        "input_ids": input_ids,
        "input_mask": mask.astype(np.int32),
        "segment_ids": (mask & (places >= firsts)).astype(np.int32),
        "masked_lm_positions": positions,
        "masked_lm_ids": labels,
        "masked_lm_weights": (np.arange(predictions) < counts[:, None]).astype(np.float32),
        "next_sentence_labels": np.array(
            [[instance.is_random_next] for instance in instances], np.int32
        ).reshape(-1, 1),
    }


def _padded(rows: list[list[int]], length: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows with zeros behind, int32 [n, length], and how long they were [n]."""
    lengths = np.array([len(row) for row in rows], np.int64)
    padded = np.zeros((len(rows), length), np.int32)
    padded[np.arange(length) < lengths[:, None]] = np.fromiter(
        itertools.chain.from_iterable(rows), np.int32, int(lengths.sum())
    )
    return padded, lengths
