"""Texts of Python programs: in the containers of NumPy, pandas and polars, and as model inputs."""

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from bert_tf.base.errors import UserError, counted, warn
from bert_tf.base.foreign_names import advice_for_flag
from bert_tf.checkpoints import formats
from bert_tf.data.features import InputExample
from bert_tf.data.packing import CUT_TOKENS, convert_examples
from bert_tf.finetuning.model_files import find_model_files, load_config_and_tokenizer
from bert_tf.finetuning.prediction import TextCheck, require_texts
from bert_tf.options import ModelOptions
from bert_tf.options.declare import NOTHING
from bert_tf.tokenization.fast import BatchTokenizer


def items_of(container: Any, name: str = "inputs") -> Iterator[Any]:
    """Yields the items of a list, array, Series, generator or other iterable, in order.

    The items of a table (a DataFrame or 2-D array) are its rows: tuples, unless it has one column.

    Raises:
        UserError: `container` is a single text, is not iterable, or has no order.
    """
    others = str | bytes | Mapping | set | frozenset  # one text, or without an order
    is_sparse = hasattr(container, "toarray")  # a matrix of SciPy, not texts
    if isinstance(container, others) or is_sparse or not isinstance(container, Iterable):
        expected = f"{name} as a list, an array or a Series"
        raise UserError(f"expected {expected}. Received: {type(container).__name__}")
    if len(getattr(container, "shape", ())) != 2:
        yield from container
        return
    table: Any = container
    for row in table.to_numpy() if hasattr(table, "to_numpy") else table:
        yield row[0] if len(row) == 1 else tuple(row)


def encode(
    texts: Any, folder: str | os.PathLike, max_seq_length: int = 128, **flags: Any
) -> dict[str, np.ndarray]:
    """Converts texts to the inputs of a model, for instance to train it with Keras' `fit`.

    Example:
        inputs = bert_tf.encode(["The soup was cold."], "uncased_L-12_H-768_A-12")
        BertModel.from_checkpoint("uncased_L-12_H-768_A-12").predict(inputs)

    Args:
        texts: strings or tuples of two strings, in a list, an array, a Series or another iterable.
        folder: the model, in any format that `convert_checkpoint.py` reads.
        max_seq_length: S; longer texts are truncated, and shorter ones padded.
        flags: options of the tokenizer, such as `do_lower_case`; by default those of the model.

    Returns:
        `input_ids`, `input_mask` and `segment_ids`, int32 [texts, S].

    Raises:
        UserError: an item is not a text, the folder has no vocabulary, or a flag does not exist.
    """
    for name in flags.keys() - (names := ModelOptions.names(~NOTHING)):
        raise UserError(f"encode has no argument {name!r}", fix=advice_for_flag(name, names))
    path, inputs = os.path.expanduser(os.fspath(folder)), list(items_of(texts, "texts"))
    require_texts(inputs, [1, 2], "a string, or a tuple of two strings")
    lower_case = formats.find_source(path).do_lower_case
    flags = ({} if lower_case is None else {"do_lower_case": lower_case}) | flags
    options = ModelOptions(init_checkpoint=path, max_seq_length=max_seq_length, **flags)
    options.check_model()
    tokenizer = BatchTokenizer(load_config_and_tokenizer(*find_model_files(options))[1])
    TextCheck(tokenizer.reference)(inputs)
    examples = [InputExample("", *((x,) if isinstance(x, str) else x)) for x in inputs]
    rows = convert_examples(examples, None, max_seq_length, tokenizer)
    if num_cut := np.count_nonzero(rows[CUT_TOKENS]):
        cut = f"are longer than max_seq_length={max_seq_length} and were truncated"
        warn(counted(int(num_cut), "text", cut, of=len(inputs)))
    return {name: rows[name] for name in ("input_ids", "input_mask", "segment_ids")}
