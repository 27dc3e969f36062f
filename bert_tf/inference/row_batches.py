"""Runs a model over rows in batches of similar length; keeps the order of the rows.

Shapes: n rows, B batch size, C texts per row, S max_seq_length.
"""

import abc
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from bert_tf.data.feature_specs import Feature
from bert_tf.data.parallel import map_in_order
from bert_tf.errors import UserError
from bert_tf.progress import bar

# On a CPU, larger batches are not faster.
_MAX_BATCH_TOKENS = 2048
# Number of records to read and sort by length at a time.
_CHUNK_ROWS = 4096

Rows = Mapping[str, np.ndarray]


class RowBatches(abc.ABC):
    """Base class that runs a model over rows in batches; thread-safe.

    Equal rows are computed once, since queries, titles and parts of pairs often repeat. Subclasses
    compute a batch.

    Args:
        features: inputs of the model and of `fetch`; `input_mask` is one of them.
        batch_size: rows of a batch.
        grow: whether batches of short rows may have more rows, but never more tokens than
            `batch_size` rows of S tokens.
        full: whether every batch must have the same number of rows.
        fixed_shapes: whether rows are padded to S instead of the longest row of the batch.
        multiple: batch lengths are multiples of this, or S.
        batches_at_once: number of batches to compute in parallel.
    """

    def __init__(
        self,
        features: Sequence[Feature],
        batch_size: int,
        *,
        grow: bool = True,
        full: bool = False,
        fixed_shapes: bool = False,
        multiple: int = 1,
        batches_at_once: int = 1,
    ) -> None:
        self._features, self._batch_size = tuple(features), batch_size
        self._full, self._fixed_shapes, self._multiple = full, fixed_shapes, multiple
        self._grow = grow and not full and not fixed_shapes
        self._batches_at_once = batches_at_once

    @abc.abstractmethod
    def _compute(self, batch: Rows) -> Rows:
        """Computes the outputs [B, ...] of a batch."""

    @property
    @abc.abstractmethod
    def _output_specs(self) -> Mapping[str, tuple[tuple[int, ...], np.dtype]]:
        """Returns the shape of an output without B, and its type, by name.

        Dimensions that depend on the length are 0.
        """

    def predict(self, rows: Rows) -> dict[str, np.ndarray]:
        """Returns the outputs [n, ...] of all rows, in order; only n may depend on the batch."""
        if len(rows["input_mask"]) == 1:
            # A single row needs no sorting.
            (batch,) = self._plan_batches(rows["input_mask"])
            return self._run(rows, *batch)
        results = self._allocate(len(rows["input_mask"]))
        for numbers, outputs in self.batches(rows):
            for name, values in outputs.items():
                results[name][numbers] = values
        return results

    def predict_records(
        self, paths: str | Sequence[str], num_rows: int, description: str
    ) -> dict[str, np.ndarray]:
        """Returns the outputs of the first `num_rows` records, starting over when they run out."""
        from bert_tf.data.records import read_chunks

        results, first = self._allocate(num_rows), 0
        with bar(num_rows, description) as progress:
            while first < num_rows:
                begin = first
                for chunk in read_chunks(paths, self._features, _CHUNK_ROWS):
                    rows = {name: values[: num_rows - first] for name, values in chunk.items()}
                    for numbers, outputs in self.batches(rows):
                        for name, values in outputs.items():
                            results[name][first + numbers] = values
                        progress.update(len(numbers))
                    first += len(rows["input_mask"])
                    if first == num_rows:
                        break
                if first == begin:
                    raise UserError(f"{paths} contains no records")
        return results

    def batches(self, rows: Rows) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
        """Yields row numbers and their outputs batch by batch, the longest rows first.

        `rows` has a value [n, ...] for each feature; others are ignored.
        """
        columns = {feature.name: rows[feature.name] for feature in self._features}
        groups = _group_equal_rows(columns)
        first = np.array([group[0] for group in groups], int)
        distinct = {name: values[first] for name, values in columns.items()}

        def run(plan: tuple[np.ndarray, int]) -> dict[str, np.ndarray]:
            return self._run_batch(distinct, *plan)

        plans = list(self._plan_batches(distinct["input_mask"]))
        threads = self._batches_at_once if len(plans) > 1 else 1
        results = map_in_order(run, plans, threads) if threads > 1 else map(run, plans)
        for (numbers, _), outputs in zip(plans, results, strict=True):
            equal = [groups[number] for number in numbers]
            copies = [len(group) for group in equal]
            repeated = {name: np.repeat(value, copies, axis=0) for name, value in outputs.items()}
            yield np.concatenate(equal), repeated

    def _plan_batches(self, input_mask: np.ndarray) -> Iterator[tuple[np.ndarray, int]]:
        """Yields the row numbers of each batch, and the length of the batch."""
        max_length, texts = input_mask.shape[-1], math.prod(input_mask.shape[1:-1])
        lengths = _unpadded_lengths(input_mask)
        order = np.argsort(-lengths, kind="stable")
        first = 0
        while first < len(order):
            length, size = max_length, self._batch_size
            if not self._fixed_shapes:
                longest = max(int(lengths[order[first]]), 1)
                length = min(-(-longest // self._multiple) * self._multiple, max_length)
            if self._grow:
                tokens = min(_MAX_BATCH_TOKENS, self._batch_size * max_length * texts)
                size = max(size, tokens // (length * texts))
            yield order[first : first + size], length
            first += size

    def _allocate(self, rows: int) -> dict[str, np.ndarray]:
        specs = self._output_specs
        return {name: np.empty((rows, *shape), dtype) for name, (shape, dtype) in specs.items()}

    def _run_batch(self, rows: Rows, numbers: np.ndarray, length: int) -> dict[str, np.ndarray]:
        count = len(numbers)
        if self._full:
            numbers = np.pad(numbers, (0, self._batch_size - count), "edge")
        batch = {}
        for feature in self._features:
            values = rows[feature.name][numbers]
            batch[feature.name] = values[..., :length] if feature.per_token else values
        return {name: value[:count] for name, value in self._compute(batch).items()}


def _unpadded_lengths(input_mask: np.ndarray) -> np.ndarray:
    # [n, .., S] -> [n]: the position after the last token.
    positions = np.arange(1, input_mask.shape[-1] + 1)
    axes = tuple(range(1, input_mask.ndim))
    return np.where(input_mask != 0, positions, 0).max(axes, initial=0)


def _group_equal_rows(columns: Rows) -> list[list[int]]:
    """Groups the numbers of equal rows."""
    groups: dict[bytes, list[int]] = {}
    for number, row in enumerate(zip(*columns.values(), strict=True)):
        groups.setdefault(b"".join(value.tobytes() for value in row), []).append(number)
    return list(groups.values())
