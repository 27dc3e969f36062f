"""Files of features, written text by text: JSON lines, NumPy arrays, TFRecords.

T tokens of a text, L layers, H hidden_size. Features of a text are float32 [T, L, H] with its T
tokens, or [L, H] where one vector stands for a whole text, without tokens.
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

# The original's.
_DECIMALS = 6


class FeatureFile(abc.ABC):
    """A file of features.

    Args:
        path: to be written.
        layers: their indexes as the user gave them.
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
        """Writes a text: its number from 0 on, its tokens, and its features."""

    def _finish(self) -> None:  # noqa: B027 - most have nothing
        """Writes what comes last."""


class JsonLines(FeatureFile):
    """The original's file: `linex_index` (so spelled), and the tokens with their layers.

    Without tokens `layers` stands beside `linex_index`.
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
    """What `numpy.load` opens.

    Of N texts: `layers` int64 [L]; `features` float32 [N, L, H], or [all tokens, L, H] with
    `tokens`, strings [all tokens], and `row_splits` int64 [N + 1]: text i has those from
    `row_splits[i]` up to, not including, `row_splits[i + 1]`. The features wait in a file of their
    own, as their number stands before them.
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
        self._with_tokens = False

    def write(self, index: int, tokens: Sequence[str] | None, values: np.ndarray) -> None:
        """Keeps a text."""
        self._shape = values.shape[-2:]
        self._values.write(np.ascontiguousarray(values, "<f4").tobytes())
        if tokens is not None:
            self._with_tokens = True
            self._tokens.write("".join(f"{token}\n" for token in tokens).encode())
        self._row_splits.append(self._row_splits[-1] + (1 if tokens is None else len(tokens)))

    def _finish(self) -> None:
        count = self._row_splits[-1]
        with (
            tf.io.gfile.GFile(self.path, "wb") as file,
            zipfile.ZipFile(_Stream(file), "w") as archive,
        ):
            with archive.open("layers.npy", "w") as entry:
                np.save(entry, np.array(self.layers, np.int64))
            with archive.open("features.npy", "w", force_zip64=True) as entry:
                header = {"descr": "<f4", "fortran_order": False, "shape": (count, *self._shape)}
                np.lib.format.write_array_header_1_0(entry, header)
                self._values.seek(0)
                shutil.copyfileobj(self._values, entry, 1 << 20)
            if not self._with_tokens:
                return
            with archive.open("row_splits.npy", "w") as entry:
                np.save(entry, np.array(self._row_splits, np.int64))
            self._tokens.seek(0)
            with archive.open("tokens.npy", "w", force_zip64=True) as entry:
                np.save(entry, np.array(self._tokens.read().decode().split("\n")[:-1]))


class _Stream:
    """What `zipfile` needs to write to a file that it cannot look back into."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, data: bytes) -> int:
        self._file.write(bytes(data))
        return len(data)

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


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
        # A layer that was asked for twice is there once.
        for layer, number in {layer: n for n, layer in enumerate(self.layers)}.items():
            of_layer = np.ascontiguousarray(values[..., number, :])
            entries[f"layer_{layer}"].float_list.value.extend(of_layer.reshape(-1))
        if tokens is not None:
            entries["tokens"].bytes_list.value.extend(token.encode() for token in tokens)
        self._file.write(example.SerializeToString(deterministic=True))


FORMATS: dict[str, type[FeatureFile]] = {
    "jsonl": JsonLines,
    "npz": Arrays,
    "tfrecord": Records,
}
