"""A model that has only some layers of another one."""

import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from bert_tf.checkpoints.formats.names import count_layers
from bert_tf.checkpoints.formats.source import Source
from bert_tf.errors import UserError

_LAYER = re.compile(r"(?<=bert/encoder/layer_)\d+(?=/)")


class SelectedLayers(Source):
    """A view of a source in which `layers[n]` is layer n; everything but layers is unchanged.

    Raises:
        UserError: the source does not have one of the layers.
    """

    def __init__(self, source: Source, layers: Sequence[int]) -> None:
        # Same files, labels and notes.
        vars(self).update(vars(source))
        self.kind, self._source = source.kind, source
        count = count_layers(source.shapes())
        if max(layers) >= count:
            raise UserError(
                f"{source.path} has no layer {max(layers)}: its {count} layers are numbered from 0"
            )
        self._numbers = {str(layer): str(number) for number, layer in enumerate(layers)}

    def _renamed(self, name: str) -> str | None:
        found = _LAYER.search(name)
        if found and found[0] not in self._numbers:
            return None
        return _LAYER.sub(lambda layer: self._numbers[layer[0]], name)

    def shapes(self) -> dict[str, list[int]]:
        """Returns the shapes of the variables that are left, under their new names."""
        shapes = self._source.shapes()
        return {new: shapes[old] for old in shapes if (new := self._renamed(old))}

    def types(self) -> dict[str, str]:
        """Returns the stored types of the same variables."""
        types = self._source.types()
        return {new: types[old] for old in types if (new := self._renamed(old))}

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, np.ndarray]]:
        """Yields new names and values."""
        wanted = set(names)
        old = [name for name in self._source.shapes() if self._renamed(name) in wanted]
        for name, value in self._source.read(old):
            yield self._renamed(name) or name, value
