"""Reads and writes safetensors files, the format of model weights in transformers."""

import os
import stat
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from bert_tf.base import files
from bert_tf.base.errors import UserError, reason

INDEX_FILE = "model.safetensors.index.json"
WEIGHTS_FILE = "model.safetensors"

# Readable dtypes in a safetensors file -> NumPy's name.
TYPE_NAMES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


class SafetensorsReader:
    """The tensors of a model, in one `.safetensors` file or in the shards that an index lists.

    Attributes:
        shapes: name -> shape.
        types: name -> dtype; `read` supports only the keys of `TYPE_NAMES`.
    """

    def __init__(self, path: str) -> None:
        from safetensors import SafetensorError, safe_open

        self.shapes: dict[str, list[int]] = {}
        self.types: dict[str, str] = {}
        self._files: dict[str, tuple[str, Any]] = {}
        for shard in _read_shards(path) if path.endswith(".json") else [path]:
            files.open_binary(shard).close()  # Raises a clearer error for a missing file.
            try:
                file = safe_open(shard, framework="numpy")
            except (SafetensorError, OSError, ValueError) as error:
                problem = f"not a complete safetensors file: {reason(error)}"
                raise UserError(problem, at=shard) from error
            for name in file.keys():  # noqa: SIM118
                if name in self._files:
                    raise UserError(f"{name} is also in {self._files[name][0]}", at=shard)
                tensor = file.get_slice(name)
                self.shapes[name], self.types[name] = tensor.get_shape(), tensor.get_dtype()
                self._files[name] = shard, file

    def read(self, name: str) -> np.ndarray:
        """Returns a tensor as float32, to which float16 and bfloat16 convert exactly."""
        path, file = self._files[name]
        if self.types[name] not in TYPE_NAMES:
            expected = f"{name} of type {', '.join(TYPE_NAMES)}"
            raise UserError(f"expected {expected}. Received: {self.types[name]}", at=path)
        # NumPy knows bfloat16 only because importing TensorFlow registers it.
        return file.get_tensor(name).astype(np.float32)


def write(path: str, tensors: Mapping[str, np.ndarray]) -> None:
    """Writes float32 tensors to one file."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    try:
        with open(path, "wb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        save_file(dict(tensors), path, metadata={"format": "pt"})
        # `save_file` makes the file readable by its owner only.
        os.chmod(path, mode)
        files.sync(path)
    except (SafetensorError, OSError) as error:
        raise UserError(f"Cannot write {path}: {error}") from error


def _read_shards(path: str) -> Iterable[str]:
    """Returns the paths of the files that an index lists, which must be next to it."""
    weight_map = files.read_json(path).get("weight_map")
    found = weight_map.values() if isinstance(weight_map, dict) else [weight_map]
    shards = sorted({str(name) for name in found})
    for shard in shards:
        if os.path.basename(shard) != shard or not shard.endswith(".safetensors"):
            expected = "a weight_map with names of safetensors files next to it"
            raise UserError(f"expected {expected}. Received: {shard}", at=path)
    return [os.path.join(os.path.dirname(path), shard) for shard in shards]
