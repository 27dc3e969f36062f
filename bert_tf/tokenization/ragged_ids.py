"""Token ids of many texts in one array."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class RaggedIds:
    """Token ids of texts, concatenated.

    Attributes:
        ids: int32 [N].
        row_splits: int64 [B + 1]; text i has `ids[row_splits[i] : row_splits[i + 1]]`.
        spans: int32 [N, 2] or None; token n comes from `text[spans[n, 0] : spans[n, 1]]`, see
            `offsets.tokenize_with_offsets`.
    """

    ids: np.ndarray
    row_splits: np.ndarray
    spans: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.row_splits) - 1

    def __getitem__(self, index: int) -> np.ndarray:
        return self.ids[self.row_splits[index] : self.row_splits[index + 1]]

    @property
    def lengths(self) -> np.ndarray:
        """Number of tokens in each text, int64 [B]."""
        return np.diff(self.row_splits)

    def take(
        self, rows: np.ndarray, first: np.ndarray | int = 0, lengths: np.ndarray | None = None
    ) -> "RaggedIds":
        """Selects texts [N], or of each the tokens from `first` [N] on, `lengths` [N] of them."""
        lengths = self.lengths[rows] if lengths is None else lengths
        splits = _splits_of(lengths)
        indices = np.repeat(self.row_splits[rows] + first - splits[:-1], lengths)
        indices += np.arange(len(indices))
        return RaggedIds(
            self.ids[indices], splits, None if self.spans is None else self.spans[indices]
        )

    @staticmethod
    def from_lists(
        rows: Sequence[Sequence[int]], spans: Sequence[Sequence[tuple[int, int]]] | None = None
    ) -> "RaggedIds":
        """Creates ragged ids from a list of ids, and of spans, for each text."""
        ids = np.array([token_id for row in rows for token_id in row], np.int32)
        pairs = None if spans is None else [pair for row in spans for pair in row]
        return RaggedIds(
            ids,
            _splits_of([len(row) for row in rows]),
            None if pairs is None else np.array(pairs, np.int32).reshape(-1, 2),
        )

    @staticmethod
    def concatenate(parts: Sequence["RaggedIds"]) -> "RaggedIds":
        """Concatenates the texts of all parts, at least one; keeps spans if all have them."""
        spans = [part.spans for part in parts if part.spans is not None]
        return RaggedIds(
            np.concatenate([part.ids for part in parts]),
            _splits_of(np.concatenate([part.lengths for part in parts])),
            np.concatenate(spans) if len(spans) == len(parts) else None,
        )


def numbered(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Repeats each group as often as it counts: the group, and the number in it, of each entry."""
    groups = np.repeat(np.arange(len(counts)), counts)
    return groups, np.arange(len(groups)) - np.repeat(np.cumsum(counts) - counts, counts)


def _splits_of(lengths: np.ndarray | Sequence[int]) -> np.ndarray:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
