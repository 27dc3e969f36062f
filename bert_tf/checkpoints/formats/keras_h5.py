"""HDF5 weights of Keras 2, such as `tf_model.h5` of the TensorFlow classes of transformers 4.

`save_pretrained` and `save_weights` of such a class write them, and so does `save_weights` of a
model that contains one. Only arrays inside the file are read: neither links to other files nor
arrays stored elsewhere are followed.
"""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np

from bert_tf.base import files
from bert_tf.base.errors import UserError, reason

# Limits for damaged or hostile files. A BERT of 48 layers has about 2,000 groups and arrays, at
# most 12 deep, and weights hardly compress.
_MAX_OBJECTS, _MAX_DEPTH = 100_000, 32
_MAX_COMPRESSION_RATIO, _ALWAYS_ALLOWED_BYTES = 20, 1 << 20
# What h5py raises for damaged files.
_ERRORS = (OSError, LookupError, RuntimeError, ValueError, TypeError, AttributeError)


class H5Reader:
    """The arrays of HDF5 files, by path in the file; has the interface of `SafetensorsReader`."""

    def __init__(self, paths: list[str]) -> None:
        self.shapes: dict[str, list[int]] = {}
        self.types: dict[str, str] = {}
        self._files: dict[str, str] = {}
        for path in paths:
            with _opened(path) as file:
                for name, array in _arrays(file):
                    self.shapes[name], self.types[name] = list(array.shape), array.dtype.name
                    self._files[name] = path
        # Names of models, such as `tf_bert_model_1`.
        words = (x.rpartition("/bert/embeddings/word_embeddings/") for x in self.shapes)
        models = {os.path.basename(model) for model, found, _ in words if found}
        if len(models) > 1:
            problem = f"it has {len(models)} encoders: {', '.join(sorted(models))}"
            raise UserError(problem, at=paths[0])

    def read(self, name: str) -> np.ndarray:
        """Returns an array as float32."""
        path = self._files[name]
        with _opened(path) as file:
            array = file[name]
            stored, size = array.id.get_storage_size(), array.dtype.itemsize * array.size
            if size > max(_ALWAYS_ALLOWED_BYTES, _MAX_COMPRESSION_RATIO * stored):
                raise ValueError(f"{name}: {stored:,} bytes would unpack to {size:,}")
            if array.external or array.is_virtual or array.dtype.kind != "f":
                raise ValueError(f"{name} is no array of floating-point numbers in the file")
            return array[()].astype(np.float32)


@contextlib.contextmanager
def _opened(path: str) -> Iterator[Any]:
    files.open_binary(path).close()  # raises a clearer error for a missing file
    try:
        with h5py.File(path, "r") as file:
            yield file
    except _ERRORS as error:
        raise UserError(f"not a complete HDF5 file: {reason(error)}", at=path) from error


def _arrays(group: Any, depth: int = 0, seen: set[Any] | None = None) -> Iterator[tuple[str, Any]]:
    """Yields the arrays below a group, with their paths; each group once, even in cycles."""
    seen = set() if seen is None else seen
    for name in group:
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            continue
        item = group[name]
        if len(seen) == _MAX_OBJECTS or depth == _MAX_DEPTH:
            raise ValueError("it has more groups than a BERT model")
        if isinstance(item, h5py.Dataset):
            seen.add(item.name)
            yield item.name.lstrip("/"), item
        elif isinstance(item, h5py.Group) and item.id not in seen:
            seen.add(item.id)
            yield from _arrays(item, depth + 1, seen)


def torch_name(path: str) -> str:
    """Converts the path of an array to the name that transformers has for it in PyTorch.

    The scopes before that of the encoder or head are dropped. Example:
    `bert/tf_bert_model_1/bert/encoder/layer_._0/output/LayerNorm/gamma:0` becomes
    `bert.encoder.layer.0.output.LayerNorm.weight`.
    """
    *scopes, last = path.removesuffix(":0").split("/")
    start = max((i for i, scope in enumerate(scopes) if scope in _SCOPES), default=0)
    scopes = [_SCOPES.get(scope, scope) for scope in scopes[start:]]
    names = [scope.replace("layer_._", "layer.") for scope in scopes]
    return ".".join([*names, _LEAVES.get(last, last)])


# Scopes of encoder and heads -> name in PyTorch; last parts of a name, likewise.
_SCOPES = {name: name for name in ("bert", "distilbert", "classifier", "qa_outputs", "cls")}
_SCOPES |= {"mlm___cls": "cls", "nsp___cls": "cls"}
_LEAVES = {"kernel": "weight", "embeddings": "weight", "gamma": "weight", "beta": "bias"}
