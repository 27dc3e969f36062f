"""Runs a model over rows, such as texts, in batches of similar length; keeps the rows' order.

Shapes: n rows, B batch size, S max_seq_length, C choices per row (only in multiple choice).
"""

import abc
import bisect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from bert_tf.data.features import Feature
from bert_tf.data.parallel import map_in_order
from bert_tf.errors import UserError
from bert_tf.progress import bar

# Upper limit for batches that grow, because larger batches are not faster on a CPU.
_MAX_BATCH_TOKENS = 2048
# Number of records to read and sort by length at a time.
_CHUNK_ROWS = 4096

# Feature name -> values of all rows, [n, ...].
Rows = Mapping[str, np.ndarray]


class RowBatches(abc.ABC):
    """Base class that runs a model over rows in batches; thread-safe.

    Subclasses implement the computation of a batch. Equal rows are computed only once, since
    queries, titles and parts of pairs often repeat.

    Args:
        features: the features of a row that the computation needs, including `input_mask`.
        batch_size: number of rows in a batch.
        grow: whether batches of short rows may exceed `batch_size` rows, up to the tokens of
            `batch_size` longest rows.
        full_batches: whether to fill the last batch up to `batch_size` rows with copies of a row.
        lengths: allowed lengths of batches, in ascending order; the last is that of the longest
            row. Each batch has the shortest one that fits. By default, all lengths are allowed.
        batches_at_once: number of batches to compute in parallel.
    """

    def __init__(
        self,
        features: Sequence[Feature],
        batch_size: int,
        *,
        grow: bool = True,
        full_batches: bool = False,
        lengths: Sequence[int] = (),
        batches_at_once: int = 1,
    ) -> None:
        self._features, self._batch_size = tuple(features), batch_size
        self._full_batches, self._batches_at_once = full_batches, batches_at_once
        self._lengths = tuple(lengths)
        self._grow = grow and not full_batches and len(self._lengths) != 1

    def refresh(self) -> None:
        """Applies changes of the model's weights; an exported model has none."""
        return

    @abc.abstractmethod
    def _compute(self, batch: Rows) -> Rows:
        """Returns the outputs of a batch, [B, ...], by name."""

    def predict(
        self, rows: Rows, report_progress: Callable[[int], object] = lambda num_rows: None
    ) -> dict[str, np.ndarray]:
        """Returns the outputs [n, ...] of all rows, in order; only n may vary between batches.

        Calls `report_progress` after each batch, with its number of rows.
        """
        num_rows = len(rows["input_mask"])
        if num_rows == 0:
            # A row of ones shows the shapes and types of the outputs.
            ones = {f.name: np.ones((1, *f.shape), np.int32) for f in self._features}
            return {name: values[:0] for name, values in self.predict(ones).items()}
        results: dict[str, np.ndarray] = {}
        for indices, outputs in self.batches(rows):
            for name, values in outputs.items():
                if name not in results:
                    results[name] = np.empty((num_rows, *values.shape[1:]), values.dtype)
                results[name][indices] = values
            report_progress(len(indices))
        return results

    def predict_records(
        self, paths: str | Sequence[str], num_rows: int, description: str
    ) -> dict[str, np.ndarray]:
        """Returns the outputs of the first `num_rows` records, starting over when they run out."""
        from bert_tf.data.records import read_chunks

        if num_rows == 0:
            return self.predict({"input_mask": np.empty(0)})
        with bar(num_rows, description) as progress:
            chunks = read_chunks(paths, self._features, _CHUNK_ROWS, num_rows)
            parts = [self.predict(rows, progress.update) for rows in chunks]
        if not parts:
            raise UserError(f"{paths} contains no records")
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def batches(self, rows: Rows) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
        """Yields the indices of rows and their outputs, batch by batch, the longest rows first.

        `rows` must contain all features; other entries are ignored.
        """
        columns = {feature.name: rows[feature.name] for feature in self._features}
        groups = _group_equal_rows(columns)
        representatives = np.array([group[0] for group in groups], int)
        distinct = {name: values[representatives] for name, values in columns.items()}

        def run(plan: tuple[np.ndarray, int]) -> dict[str, np.ndarray]:
            return self._run_batch(distinct, *plan)

        plans = list(self._plan_batches(distinct["input_mask"]))
        num_threads = self._batches_at_once if len(plans) > 1 else 1
        results = map_in_order(run, plans, num_threads) if num_threads > 1 else map(run, plans)
        for (indices, _), outputs in zip(plans, results, strict=True):
            batch_groups = [groups[index] for index in indices]
            sizes = [len(group) for group in batch_groups]
            repeated = {name: np.repeat(value, sizes, axis=0) for name, value in outputs.items()}
            yield np.concatenate(batch_groups), repeated

    def _plan_batches(self, input_mask: np.ndarray) -> Iterator[tuple[np.ndarray, int]]:
        """Yields the indices of the rows in each batch, and the padded length of these rows."""
        max_length, num_choices = input_mask.shape[-1], math.prod(input_mask.shape[1:-1])
        lengths = unpadded_lengths(input_mask)
        order = np.argsort(-lengths, kind="stable")
        start = 0
        while start < len(order):
            length, size = max(int(lengths[order[start]]), 1), self._batch_size
            if self._lengths:
                length = self._lengths[bisect.bisect_left(self._lengths, length)]
            if self._grow:
                max_tokens = min(_MAX_BATCH_TOKENS, self._batch_size * max_length * num_choices)
                size = max(size, max_tokens // (length * num_choices))
            yield order[start : start + size], length
            start += size

    def _run_batch(self, rows: Rows, indices: np.ndarray, length: int) -> dict[str, np.ndarray]:
        size = len(indices)
        if self._full_batches:
            # Fill up the batch with copies of its last row, whose outputs are dropped below.
            indices = np.pad(indices, (0, self._batch_size - size), "edge")
        batch = {}
        for feature in self._features:
            values = rows[feature.name][indices]
            is_trimmed = feature.per_token and feature.mask == "input_mask"
            batch[feature.name] = values[..., :length] if is_trimmed else values
        return {name: value[:size] for name, value in self._compute(batch).items()}


def unpadded_lengths(input_mask: np.ndarray) -> np.ndarray:
    """[n, .., S] -> [n]: the position after the last token of each row, 0 without tokens."""
    positions = np.arange(1, input_mask.shape[-1] + 1)
    axes = tuple(range(1, input_mask.ndim))
    return np.where(input_mask != 0, positions, 0).max(axes, initial=0)


def _group_equal_rows(columns: Rows) -> list[list[int]]:
    groups: dict[bytes, list[int]] = {}
    for index, row in enumerate(zip(*columns.values(), strict=True)):
        groups.setdefault(b"".join(value.tobytes() for value in row), []).append(index)
    return list(groups.values())
