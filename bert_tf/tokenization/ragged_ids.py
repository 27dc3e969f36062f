"""Token ids of many texts in one array."""

import itertools
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
        """Numbers of tokens, int64 [B]."""
        return np.diff(self.row_splits)

    def take(
        self,
        rows: np.ndarray,
        first: np.ndarray | int = 0,
        lengths: np.ndarray | None = None,
    ) -> "RaggedIds":
        """Selects texts, or a slice of each.

        Args:
            rows: int64 [N]; indices of texts.
            first: [N]; first token of each slice.
            lengths: [N]; number of tokens of each slice; by default the whole text.
        """
        lengths = self.lengths[rows] if lengths is None else lengths
        ends = np.cumsum(lengths)
        indices = np.repeat(self.row_splits[rows] + first - (ends - lengths), lengths)
        indices += np.arange(len(indices))
        return RaggedIds(
            self.ids[indices],
            np.concatenate([[0], ends]).astype(np.int64),
            None if self.spans is None else self.spans[indices],
        )

    @staticmethod
    def from_lists(
        rows: Sequence[Sequence[int]], spans: Sequence[Sequence[tuple[int, int]]] | None = None
    ) -> "RaggedIds":
        """Creates ragged ids from a list of ids, and of spans, for each text."""
        lengths = np.array([len(row) for row in rows], np.int64)
        ids = np.array([number for row in rows for number in row], np.int32)
        pairs = None if spans is None else [pair for row in spans for pair in row]
        return RaggedIds(
            ids,
            np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
            None if pairs is None else np.array(pairs, np.int32).reshape(-1, 2),
        )

    @staticmethod
    def concatenate(parts: Sequence["RaggedIds"]) -> "RaggedIds":
        """Concatenates the texts of all parts; keeps spans only if all parts have them."""
        ids = np.concatenate([np.zeros(0, np.int32), *(part.ids for part in parts)])
        firsts = itertools.accumulate((len(part.ids) for part in parts), initial=0)
        ends = [part.row_splits[1:] + first for part, first in zip(parts, firsts, strict=False)]
        spans = [part.spans for part in parts if part.spans is not None]
        return RaggedIds(
            ids,
            np.concatenate([np.zeros(1, np.int64), *ends]),
            np.concatenate(spans) if spans and len(spans) == len(parts) else None,
        )
