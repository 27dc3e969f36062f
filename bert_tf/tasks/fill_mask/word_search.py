"""Beam search for whole words, of one or more pieces, in place of a mask (`--whole_word`)."""

import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bert_tf.tasks.fill_mask.masked_texts import BEGIN, CONTINUATION, MASK, MaskedTexts
from bert_tf.tokenization import FullTokenizer

# (rows, `BEGIN` or `CONTINUATION`) -> ids and probabilities [R, K] of the K best pieces, most
# probable first.
TopPieces = Callable[[Mapping[str, np.ndarray], int], tuple[np.ndarray, np.ndarray]]


class Candidate(NamedTuple):
    """A candidate word for a mask, with its probability."""

    word: str
    probability: float


class _Word(NamedTuple):
    """A word, or only its first pieces so far, in place of the mask with the index `mask`."""

    mask: int
    pieces: tuple[int, ...]
    probability: float


@dataclass(frozen=True)
class WordSearch:
    """Finds the most probable words of up to `max_pieces` word pieces.

    A mask is replaced by 1, 2, ... masks, which are filled from left to right; a beam keeps the
    `top_k` most probable prefixes. The probability of a word is the product of the probabilities of
    its word pieces, each relative to the pieces allowed at its position. Words of different lengths
    are compared directly, so the probabilities of all words may add up to more than 1.
    """

    top_pieces: TopPieces
    tokenizer: FullTokenizer
    top_k: int
    max_pieces: int

    def __call__(self, texts: MaskedTexts, masks: np.ndarray) -> list[list[Candidate]]:
        """Returns the `top_k` words for each mask."""
        best: dict[int, list[_Word]] = {mask: [] for mask in masks.tolist()}
        for num_pieces in range(1, self.max_pieces + 1):
            words = [_Word(mask, (), 1.0) for mask in best]
            for _ in range(num_pieces):
                words = self._extend(texts, words, num_pieces)
                # Probabilities only decrease: drop prefixes that cannot become one of the best.
                words = [
                    word
                    for word in words
                    if len(complete := best[word.mask]) < self.top_k
                    or word.probability > complete[-1].probability
                ]
            for word in words:
                best[word.mask].append(word)
            best = {mask: self._prune(words) for mask, words in best.items()}
        return [[Candidate(self._join(w), w.probability) for w in words] for words in best.values()]

    def _extend(self, texts: MaskedTexts, words: list[_Word], num_pieces: int) -> list[_Word]:
        """Extends incomplete words of `num_pieces` pieces, all equally long so far, by a piece."""
        if not words:
            return []
        num_found = len(words[0].pieces)
        fills = np.full((len(words), num_pieces), self.tokenizer.vocab[MASK], np.int32)
        fills[:, :num_found] = [word.pieces for word in words]
        rows = texts.rows(np.array([word.mask for word in words]), fills, num_found)
        ids, probabilities = self.top_pieces(rows, CONTINUATION if num_found else BEGIN)
        extended_words = defaultdict(list)
        for word, *top in zip(words, ids.tolist(), probabilities.tolist(), strict=True):
            extended_words[word.mask] += [
                _Word(word.mask, (*word.pieces, piece), word.probability * probability)
                for piece, probability in zip(*top, strict=True)
            ]
        return [word for words in extended_words.values() for word in self._prune(words)]

    def _prune(self, words: list[_Word]) -> list[_Word]:
        """Returns the `top_k` most probable words that the tokenizer splits into these pieces."""
        ordered = sorted(words, key=lambda word: -word.probability)
        return list(itertools.islice(filter(self._matches_tokenizer, ordered), self.top_k))

    def _matches_tokenizer(self, word: _Word) -> bool:
        # Also prunes incomplete words: if the tokenizer splits a word into these pieces, it splits
        # their first n, joined, into the same n.
        tokens = self.tokenizer.convert_ids_to_tokens(word.pieces)
        return len(tokens) == 1 or self.tokenizer.tokenize(self._join(word)) == tokens

    def _join(self, word: _Word) -> str:
        tokens = self.tokenizer.convert_ids_to_tokens(word.pieces)
        return "".join(token.removeprefix("##") for token in tokens)
