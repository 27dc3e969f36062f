"""Writes features text by text: JSON lines, NumPy arrays, TFRecords.

T tokens of a text, L layers, H hidden_size. The features of a text are float32 [T, L, H] with its
tokens, or pooled: [L, H] without tokens.
"""

import abc
import contextlib
import json
import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf import files
from bert_tf.errors import UserError

# As in the original.
_DECIMALS = 6


class FeatureFile(abc.ABC):
    """A file of features.

    Args:
        path: the file.
        layers: numbers of the layers, as the user gave them.
    """

    def __init__(self, path: str, layers: Sequence[int]) -> None:
        self.path = path
        self.layers = layers
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "FeatureFile":
        return self

    def __exit__(self, *error: Any) -> None:
        with self._stack:
            if error[0] is None:
                self._finish()

    @abc.abstractmethod
    def write(self, index: int, tokens: Sequence[str] | None, values: np.ndarray) -> None:
        """Writes the features of text number `index`, from 0."""

    def _finish(self) -> None:  # noqa: B027 - most need none
        """Called after the last text, unless an error occurred."""


class JsonLines(FeatureFile):
    """The original's format: `linex_index` (sic), and `features` with the layers of each token.

    Pooled features have `layers` beside `linex_index`.
    """

    def __init__(self, path: str, layers: Sequence[int]) -> None:
        super().__init__(path, layers)
        self._file = self._stack.enter_context(tf.io.gfile.GFile(path, "w"))

    def write(self, index: int, tokens: Sequence[str] | None, values: np.ndarray) -> None:
        """Writes a line."""
        rounded = np.round(values.astype(np.float64), _DECIMALS).tolist()
        line: dict[str, Any] = {"linex_index": index}
        if tokens is None:
            line["layers"] = self._layers(rounded)
        else:
            line["features"] = [
                {"token": token, "layers": self._layers(of_token)}
                for token, of_token in zip(tokens, rounded, strict=True)
            ]
        self._file.write(json.dumps(line) + "\n")

    def _layers(self, values: list[list[float]]) -> list[dict[str, Any]]:
        pairs = zip(self.layers, values, strict=True)
        return [{"index": index, "values": numbers} for index, numbers in pairs]


class Arrays(FeatureFile):
    """An .npz file for `numpy.load`.

    For N texts: `layers` int64 [L] and `features` float32 [N, L, H]. Features that are not pooled
    are [all tokens, L, H], with `tokens`, strings [all tokens], and `row_splits` int64 [N + 1]:
    text i has `features[row_splits[i] : row_splits[i + 1]]`. Their number stands before the
    features, so they are kept in temporary files until the end.
    """

    def __init__(self, path: str, layers: Sequence[int]) -> None:
        super().__init__(path, layers)
        if files.is_stream(path):
            raise UserError(
                f"{path} is a pipe or a device, and an .npz cannot be written to one: pass the "
                "name of a file, or --output_format=jsonl or tfrecord"
            )
        self._values, self._tokens = (
            self._stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
            for _ in range(2)
        )
        self._row_splits = [0]
        self._shape: tuple[int, ...] = (len(layers), 0)
        self._has_tokens = False

    def write(self, index: int, tokens: Sequence[str] | None, values: np.ndarray) -> None:
        """Appends to the temporary files."""
        self._shape = values.shape[-2:]
        self._values.write(np.ascontiguousarray(values, "<f4").tobytes())
        if tokens is not None:
            self._has_tokens = True
            self._tokens.write("".join(f"{token}\n" for token in tokens).encode())
        self._row_splits.append(self._row_splits[-1] + (1 if tokens is None else len(tokens)))

    def _finish(self) -> None:
        count = self._row_splits[-1]
        with (
            tf.io.gfile.GFile(self.path, "wb") as file,
            zipfile.ZipFile(_WriteOnly(file), "w") as archive,
        ):
            with archive.open("layers.npy", "w") as entry:
                np.save(entry, np.array(self.layers, np.int64))
            with archive.open("features.npy", "w", force_zip64=True) as entry:
                header = {"descr": "<f4", "fortran_order": False, "shape": (count, *self._shape)}
                np.lib.format.write_array_header_1_0(entry, header)
                self._values.seek(0)
                shutil.copyfileobj(self._values, entry, 1 << 20)
            if not self._has_tokens:
                return
            with archive.open("row_splits.npy", "w") as entry:
                np.save(entry, np.array(self._row_splits, np.int64))
            self._tokens.seek(0)
            with archive.open("tokens.npy", "w", force_zip64=True) as entry:
                np.save(entry, np.array(self._tokens.read().decode().split("\n")[:-1]))


class _WriteOnly:
    """Hides `tell` and `seek` from `zipfile`: a GFile cannot go back."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.flush, self.close = file.flush, file.close

    def write(self, data: bytes) -> int:
        self._file.write(bytes(data))
        return len(data)


class Records(FeatureFile):
    """A `tf.train.Example` for each text.

    `index` int64; for each layer `layer_<index>`, float32 [T * H] or [H], and `tokens`, bytes [T].
    """

    def __init__(self, path: str, layers: Sequence[int]) -> None:
        super().__init__(path, layers)
        self._file = self._stack.enter_context(tf.io.TFRecordWriter(path))

    def write(self, index: int, tokens: Sequence[str] | None, values: np.ndarray) -> None:
        """Writes a record."""
        example = tf.train.Example()
        entries = example.features.feature
        entries["index"].int64_list.value.append(index)
        # A layer that was requested twice is written once.
        for layer, number in {layer: n for n, layer in enumerate(self.layers)}.items():
            of_layer = np.ascontiguousarray(values[..., number, :])
            entries[f"layer_{layer}"].float_list.value.extend(of_layer.reshape(-1))
        if tokens is not None:
            entries["tokens"].bytes_list.value.extend(token.encode() for token in tokens)
        self._file.write(example.SerializeToString(deterministic=True))


FORMATS: dict[str, type[FeatureFile]] = {"jsonl": JsonLines, "npz": Arrays, "tfrecord": Records}
