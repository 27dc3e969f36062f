"""Runs a model over rows, such as texts, in batches of similar length; keeps the rows' order.

Shapes: n rows, B batch size, S max_seq_length, C choices per row (only in multiple choice).
"""

import abc
import bisect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.base.errors import UserError, counted, shortened
from bert_tf.base.progress import bar
from bert_tf.data import array_ops
from bert_tf.data.features import Feature
from bert_tf.data.parallel import map_in_order

# Upper limit for batches that grow, because larger batches are not faster on a CPU.
_MAX_BATCH_TOKENS = 2048
# Number of records to read and sort by length at a time.
_CHUNK_ROWS = 4096

# Feature name -> values of all rows, [n, ...].
Rows = Mapping[str, np.ndarray]
# (outputs of a model, batch) -> the arrays to return, by name.
Fetch = Callable[[Any, Any], Mapping[str, Any]]
# Name of an output that says for each row, [B], whether the model's outputs are finite.
_IS_FINITE = "is_finite"
_ADVICE = (
    "With --precision=float16, try bfloat16. Otherwise, training has diverged: use an earlier "
    "checkpoint, or train again with a lower --learning_rate"
)


class NotFinite(UserError):
    """The outputs of a model for a row are NaN or infinite.

    Args:
        rows: numbers of the rows, from 0.
        total: number of all rows.
    """

    def __init__(self, rows: Iterable[int], total: int) -> None:
        numbers = [f"{row + 1:,}" for row in sorted(rows)]
        listed = f"row{'s' * (len(numbers) > 1)} {shortened(numbers, 5)}"
        text = f"at least {counted(len(numbers), 'row', of=total)} ({listed})"
        super().__init__(f"The model's outputs are NaN or infinite for {text}. {_ADVICE}")


def checked(fetch: Fetch) -> Fetch:
    """Makes `fetch` also return whether a model's outputs are finite, which `RowBatches` requires.

    It looks at the outputs themselves: probabilities and label ids can hide that logits are not
    finite. Outputs that do not have a row for each row of the batch do not count.
    """

    def fetch_with_check(outputs: Any, batch: Any) -> dict[str, Any]:
        fetched, num_rows = dict(fetch(outputs, batch)), batch["input_mask"].shape[0]
        arrays = {id(x): x for x in _arrays([outputs, fetched])}.values()
        floats = (x for x in arrays if "float" in str(x.dtype) and len(x.shape))
        finite = [array_ops.rows_are_finite(x) for x in floats if x.shape[0] == num_rows]
        return {**fetched, _IS_FINITE: math.prod(finite)} if finite else fetched

    return fetch_with_check


def _arrays(values: Any) -> Iterator[Any]:
    if not isinstance(values, Mapping | list | tuple):
        yield values
        return
    for value in values.values() if isinstance(values, Mapping) else values:
        yield from _arrays(value)


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
        self,
        rows: Rows,
        report_progress: Callable[[int], object] = lambda num_rows: None,
        **part: int,
    ) -> dict[str, np.ndarray]:
        """Returns the outputs [n, ...] of all rows, in order; only n may vary between batches.

        Calls `report_progress` after each batch, with its number of rows. `part`: see `batches`.
        """
        num_rows = len(rows["input_mask"])
        if num_rows == 0:
            # A row of ones shows the shapes and types of the outputs.
            ones = {f.name: np.ones((1, *f.shape), np.int32) for f in self._features}
            return {name: values[:0] for name, values in self.predict(ones).items()}
        results: dict[str, np.ndarray] = {}
        for indices, outputs in self.batches(rows, **part):
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
            parts: list[dict[str, np.ndarray]] = []
            for index, rows in enumerate(chunks):
                part = {"start": index * _CHUNK_ROWS, "total": num_rows}
                parts.append(self.predict(rows, progress.update, **part))
        if not parts:
            raise UserError(f"{paths} contains no records")
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def batches(
        self, rows: Rows, start: int = 0, total: int = 0
    ) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
        """Yields the indices of rows and their outputs, batch by batch, the longest rows first.

        Args:
            rows: all features; other entries are ignored.
            start: for messages, the number of rows of the same data that came before.
            total: number of all rows of these data, if known.

        Raises:
            NotFinite: outputs of a row are NaN or infinite.
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
            row_indices = np.concatenate(batch_groups)
            is_finite = repeated.pop(_IS_FINITE, np.ones(len(row_indices)))
            if not is_finite.all():
                bad = start + row_indices[is_finite == 0]
                raise NotFinite(bad, max(total, start + len(columns["input_mask"])))
            yield row_indices, repeated

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
