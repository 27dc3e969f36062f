"""Writers of feature files, called once per text: JSON lines, NumPy arrays, TFRecords.

The features of a text are float32 [T, L, H] with its T tokens, or pooled [L, H] without tokens, for
L layers and hidden_size H. Layers are numbered as in `--layers`.
"""

import contextlib
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from bert_tf.base import backend, files
from bert_tf.base.errors import UserError

# Decimal places in JSON lines, as in the original BERT code.
_DECIMALS = 6

# Writes a text's features, given its 0-based index, its tokens (None if pooled) and the features.
Write = Callable[[int, Sequence[str] | None, np.ndarray], None]


@contextlib.contextmanager
def json_lines(path: str, layers: Sequence[int]) -> Iterator[Write]:
    """Writes the original's format: `linex_index` (sic), and `features` with each token's layers.

    Pooled features have no tokens: the line has `layers` instead of `features`.
    """

    def to_layers(values: list[list[float]]) -> list[dict[str, Any]]:
        pairs = zip(layers, values, strict=True)
        return [{"index": layer, "values": layer_values} for layer, layer_values in pairs]

    with backend.tf.io.gfile.GFile(path, "w") as file:

        def write(index: int, tokens: Sequence[str] | None, values: np.ndarray) -> None:
            rounded = np.round(values.astype(np.float64), _DECIMALS).tolist()
            if tokens is None:
                line = {"linex_index": index, "layers": to_layers(rounded)}
            else:
                pairs = zip(tokens, map(to_layers, rounded), strict=True)
                features = [{"token": token, "layers": entries} for token, entries in pairs]
                line = {"linex_index": index, "features": features}
            file.write(json.dumps(line) + "\n")

        yield write


@contextlib.contextmanager
def arrays(path: str, layers: Sequence[int]) -> Iterator[Write]:
    """Writes an .npz file for `numpy.load`.

    For N texts, the file contains `layers` int64 [L] and, if pooled, `features` float32 [N, L, H].
    Without pooling, it contains `features` [all tokens, L, H], `tokens`, strings [all tokens], and
    `row_splits` int64 [N + 1]: text i has `features[row_splits[i] : row_splits[i + 1]]`. Features
    are first written to a temporary file, because an array in an .npz file starts with its shape,
    which is known only at the end.
    """
    if files.is_stream(path):
        raise UserError("a pipe or device, which cannot be an .npz file", at=path)
    all_tokens: list[str] = []
    row_splits, shape = [0], (len(layers), 0)
    with tempfile.TemporaryFile() as features:

        def write(index: int, tokens: Sequence[str] | None, values: np.ndarray) -> None:
            nonlocal shape
            shape = values.shape[-2:]
            features.write(np.ascontiguousarray(values, "<f4").tobytes())
            all_tokens.extend(tokens or [])
            row_splits.append(row_splits[-1] + (1 if tokens is None else len(tokens)))

        yield write
        contents: dict[str, Any] = {"layers": np.array(layers, np.int64)}
        if all_tokens:
            contents["row_splits"] = np.array(row_splits, np.int64)
            contents["tokens"] = np.array(all_tokens)
        features.flush()
        contents["features"] = np.memmap(features, "<f4", "r", shape=(row_splits[-1], *shape))
        with backend.tf.io.gfile.GFile(path, "wb") as file:
            np.savez(_WriteOnly(file), **contents)


class _WriteOnly:
    """Hides `tell` and `seek` from `zipfile`, because a GFile cannot seek back when writing."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.flush, self.close = file.flush, file.close
        self.read = file.read  # NumPy treats an object without this method as a path.

    def write(self, data: bytes) -> int:
        self._file.write(bytes(data))
        return len(data)


@contextlib.contextmanager
def records(path: str, layers: Sequence[int]) -> Iterator[Write]:
    """Writes a `tf.train.Example` for each text.

    Features: `index` int64; `layer_<index>` for each layer, float32 [T * H], or [H] if pooled; and,
    unless pooled, `tokens`, bytes [T].
    """
    with backend.tf.io.TFRecordWriter(path) as file:

        def write(index: int, tokens: Sequence[str] | None, values: np.ndarray) -> None:
            example = backend.tf.train.Example()
            entries = example.features.feature
            entries["index"].int64_list.value.append(index)
            # Write a layer once, even if it was requested twice.
            for layer, position in {layer: p for p, layer in enumerate(layers)}.items():
                layer_values = np.ascontiguousarray(values[..., position, :])
                entries[f"layer_{layer}"].float_list.value.extend(layer_values.reshape(-1))
            if tokens is not None:
                entries["tokens"].bytes_list.value.extend(token.encode() for token in tokens)
            file.write(example.SerializeToString(deterministic=True))

        yield write


FORMATS = {"jsonl": json_lines, "npz": arrays, "tfrecord": records}
