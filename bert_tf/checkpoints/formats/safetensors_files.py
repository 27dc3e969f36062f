"""Reads and writes safetensors files: a JSON header, and the bytes of the tensors."""

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from bert_tf import files
from bert_tf.errors import UserError

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"

_TYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
TYPE_NAMES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


class Tensors:
    """The tensors of a model, in a `.safetensors` file or in the files of an index."""

    def __init__(self, path: str) -> None:
        self.path = path
        # File, type, shape and offset of each tensor.
        self.entries: dict[str, tuple[str, str, list[int], int]] = {}
        if not path.endswith(".json"):
            self._open(path)
            return
        for shard in _shards(path):
            self._open(os.path.join(os.path.dirname(path), shard))

    def _open(self, path: str) -> None:
        from safetensors import SafetensorError, safe_open

        # Opened first, to explain a missing file better than the library does.
        with files.open_binary(path) as file:
            try:
                # The library checks that all offsets are in the file and do not overlap.
                with safe_open(path, framework="numpy"):
                    pass
            except (SafetensorError, OSError, ValueError) as error:
                raise UserError(
                    f"{path} is not a complete safetensors file ({error}); it has "
                    f"{files.size(path):,} bytes. Download it again"
                ) from error
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size))
        header.pop("__metadata__", None)
        for name, entry in header.items():
            if name in self.entries:
                raise UserError(f"{name} is in {self.entries[name][0]} and in {path}")
            begin = 8 + size + entry["data_offsets"][0]
            self.entries[name] = (path, entry["dtype"], entry["shape"], begin)

    def shape(self, name: str) -> list[int]:
        """Returns the shape of a tensor."""
        return list(self.entries[name][2])

    def read(self, name: str) -> np.ndarray:
        """Returns a tensor in float32, which represents the shorter types exactly."""
        path, kind, shape, begin = self.entries[name]
        if kind not in _TYPES:
            raise UserError(
                f"{name} in {path} is of type {kind}; float32, float16 and bfloat16 (F32, F16, "
                "BF16) can be read. Save the model in one of these"
            )
        count = int(np.prod(shape, dtype=np.int64))
        with files.open_binary(path) as file:
            file.seek(begin)
            numbers = np.frombuffer(
                file.read(count * np.dtype(_TYPES[kind]).itemsize), _TYPES[kind]
            )
        if len(numbers) != count:
            raise UserError(f"{path} ended within {name}: it was changed while being read")
        if kind == "BF16":
            # The upper half of a float32.
            numbers = (numbers.astype(np.uint32) << 16).view(np.float32)
        return numbers.astype(np.float32).reshape(shape)


def write(path: str, tensors: Mapping[str, np.ndarray]) -> None:
    """Writes float32 tensors."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    # Early versions of the library ignored the strides of transposed arrays.
    contiguous = {name: np.ascontiguousarray(value) for name, value in tensors.items()}
    try:
        save_file(contiguous, path, metadata={"format": "pt"})
        files.sync(path)
    except (SafetensorError, OSError) as error:
        raise UserError(f"Cannot write {path}: {error}") from error


def _shards(path: str) -> Iterable[str]:
    index: Any = read_json(path)
    shards = index.get("weight_map")
    if not isinstance(shards, dict) or not all(isinstance(v, str) for v in shards.values()):
        raise UserError(f"{path} has no weight_map from tensors to files")
    shard_names = sorted(set(shards.values()))
    for shard in shard_names:
        if os.path.basename(shard) != shard or not shard.endswith(".safetensors"):
            raise UserError(f"{path} names {shard!r}, which is no safetensors file beside it")
    return shard_names


def read_json(path: str) -> dict[str, Any]:
    """Reads a JSON object; anything else is a UserError."""
    try:
        content = json.loads(files.read_text(path).removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise UserError(f"{path}: a JSON object was expected")
    return content
