"""Batches of tokenized rows, as inputs of a model: the collators of transformers, and `tf.data`."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.base import backend
from bert_tf.compat.transformers.encoding import BatchEncoding
from bert_tf.compat.transformers.vocabulary import plain

# Names of labels in data sets; in a batch, the first.
_LABELS = ("labels", "label", "label_ids")
# Containers for code that keeps its texts and inputs in them.
InputExample = dataclasses.make_dataclass(
    "InputExample", ["guid", "text_a", ("text_b", Any, None), ("label", Any, None)]
)
InputFeatures = dataclasses.make_dataclass(
    "InputFeatures",
    ["input_ids", *((name, Any, None) for name in ("attention_mask", "token_type_ids", "label"))],
)


class DataCollatorWithPadding:
    """Makes a batch of rows; `labels` of tokens are padded with -100, or `label_pad_token_id`.

    Args:
        tokenizer: pads the rows; without it, they must have the same length.
        args, options: those of `tokenizer.pad`.
        return_tensors: `tf` or `np`.
    """

    def __init__(
        self, tokenizer: Any = None, *args: Any, return_tensors: str = "tf", **options: Any
    ) -> None:
        self.tokenizer, self.return_tensors = tokenizer, return_tensors
        self.args, self.options = args, options

    def __call__(self, features: Any, return_tensors: str | None = None) -> BatchEncoding:
        """Returns the inputs of a list of rows."""
        rows = [{_LABELS[0] if n in _LABELS else n: row[n] for n in row} for row in features]
        tensors = return_tensors or self.return_tensors
        if self.tokenizer:
            return self.tokenizer.pad(rows, *self.args, return_tensors=tensors, **self.options)
        columns = {name: [plain(row[name]) for row in rows] for name in rows[0]}
        return BatchEncoding(columns, tensor_type=tensors)


DataCollatorForTokenClassification = DefaultDataCollator = DataCollatorWithPadding
default_data_collator = DefaultDataCollator()


class DataCollatorForMultipleChoice(DataCollatorWithPadding):
    """Makes a batch [B, C, S] of rows with lists of C choices."""

    def __call__(self, features: Any, return_tensors: str | None = None) -> BatchEncoding:
        """Returns the inputs of a list of rows."""
        names = [name for name in self.tokenizer.model_input_names if name in features[0]]
        choices = [zip(*(row[name] for name in names), strict=True) for row in features]
        flat = [dict(zip(names, choice, strict=True)) for row in choices for choice in row]
        batch = super().__call__(flat, "np")
        data = {name: x.reshape(len(features), -1, x.shape[-1]) for name, x in batch.items()}
        if labels := [row[name] for row in features for name in _LABELS if name in row]:
            data["labels"] = labels
        return BatchEncoding(data, tensor_type=return_tensors or self.return_tensors)


def make_batches(
    names: Iterable[str],
    label_names: Sequence[str],
    dataset: Any,
    batch_size: int = 8,
    shuffle: bool = True,
    tokenizer: Any = None,
    collate_fn: Callable[..., Any] | None = None,
    collate_fn_args: Mapping[str, Any] | None = None,
    drop_remainder: bool | None = None,
    prefetch: bool = True,
) -> Any:
    """Returns a `tf.data.Dataset` of inputs, and of labels if there are any.

    Args:
        names: the columns to keep.
        label_names: labels of the model; several are in a dict.
        dataset: rows, as a list of dicts, a dict of lists, or a `Dataset` of the package datasets.
        batch_size: the number of rows of a batch.
        shuffle: whether each epoch has another order.
        tokenizer: pads the rows, unless there is a `collate_fn`.
        collate_fn: makes a batch of a list of rows; `collate_fn_args` are more arguments.
        drop_remainder: whether to leave out a last batch that is not full, unless it is the only
            one; by default, `shuffle`.
        prefetch: whether to make a batch ahead.
    """
    tf, kept = backend.tf, {*names, *label_names, *_LABELS}
    if isinstance(dataset, Mapping):
        columns = zip(*dataset.values(), strict=True)
        dataset = [dict(zip(dataset, row, strict=True)) for row in columns]
    collate = collate_fn or DataCollatorWithPadding(tokenizer, return_tensors="np")
    drops = shuffle if drop_remainder is None else drop_remainder
    num_rows = len(dataset) - len(dataset) % batch_size * drops or len(dataset)

    def batches() -> Iterator[Any]:
        order = np.random.permutation(len(dataset)) if shuffle else range(len(dataset))
        for start in range(0, num_rows, batch_size):
            rows = [dataset[int(i)] for i in order[start : start + batch_size]]
            rows = [{name: row[name] for name in row if name in kept} for row in rows]
            inputs = dict(collate(rows, **(collate_fn_args or {})))
            labels = {name: inputs.pop(name) for name in label_names if name in inputs}
            y = labels if len(labels) > 1 else next(iter(labels.values()), None)
            yield (inputs, y) if labels else inputs

    def spec(value: Any) -> Any:
        return tf.TensorSpec([None] * len(value.shape), value.dtype)

    signature = tf.nest.map_structure(spec, next(batches()))
    data = tf.data.Dataset.from_generator(batches, output_signature=signature)
    counted = tf.data.experimental.assert_cardinality(-(-num_rows // batch_size))
    return data.apply(counted).prefetch(int(prefetch))
