"""Ragged arrays: the token ids of many texts in one array."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class RaggedIds:
    """The token ids of B texts, concatenated; N is the total number of tokens.

    Attributes:
        ids: token ids, int32 [N].
        row_splits: int64 [B + 1]; text i has the ids `ids[row_splits[i] : row_splits[i + 1]]`.
        spans: int32 [N, 2] or None; token n comes from `text[spans[n, 0] : spans[n, 1]]`, see
            `fast.tokenize_with_offsets`.
    """

    ids: np.ndarray
    row_splits: np.ndarray
    spans: Any = None

    def __len__(self) -> int:
        return len(self.row_splits) - 1

    def __getitem__(self, index: int) -> np.ndarray:
        return self.ids[self.row_splits[index] : self.row_splits[index + 1]]

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """Number of tokens in each text, int64 [B]."""
        return self.row_splits[1:] - self.row_splits[:-1]

    def take(
        self, rows: np.ndarray, starts: np.ndarray | int = 0, lengths: np.ndarray | None = None
    ) -> "RaggedIds":
        """Selects the texts with the indices `rows` [K]; an index may occur several times.

        Takes `lengths` [K] tokens of each, from token `starts` [K] on; by default, all tokens.
        """
        lengths = self.lengths[rows] if lengths is None else lengths
        splits = _row_splits(lengths)
        indices = np.repeat(self.row_splits[rows] + starts - splits[:-1], lengths)
        indices += np.arange(len(indices))
        return RaggedIds(
            self.ids[indices], splits, None if self.spans is None else self.spans[indices]
        )

    @staticmethod
    def from_lists(
        rows: Sequence[Sequence[int]], spans: Sequence[Sequence[tuple[int, int]]] | None = None
    ) -> "RaggedIds":
        """Creates ragged ids from a list of ids and, optionally, a list of spans for each text."""
        ids = np.fromiter((token_id for row in rows for token_id in row), np.int32)
        splits = _row_splits([len(row) for row in rows])
        if spans is None:
            return RaggedIds(ids, splits)
        ends = (end for row in spans for pair in row for end in pair)
        return RaggedIds(ids, splits, np.fromiter(ends, np.int32).reshape(-1, 2))

    @staticmethod
    def concatenate(parts: Sequence["RaggedIds"]) -> "RaggedIds":
        """Concatenates the texts of one or more parts; keeps the spans if all parts have them."""
        if len(parts) == 1:
            return parts[0]
        spans = [part.spans for part in parts if part.spans is not None]
        return RaggedIds(
            np.concatenate([part.ids for part in parts]),
            _row_splits(np.concatenate([part.lengths for part in parts])),
            np.concatenate(spans) if len(spans) == len(parts) else None,
        )


def enumerate_groups(sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the group of each entry and its index within the group.

    Example: groups of the sizes [2, 1] give [0, 0, 1] and [0, 1, 0].
    """
    groups = np.repeat(np.arange(len(sizes)), sizes)
    return groups, np.arange(len(groups)) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def _row_splits(lengths: np.ndarray | Sequence[int]) -> np.ndarray:
    splits = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=splits[1:])
    return splits
