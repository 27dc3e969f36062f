"""A view of a model with only some of its encoder layers."""

import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from bert_tf.checkpoints.formats.source import Source
from bert_tf.errors import UserError

_LAYER = re.compile(r"(?<=bert/encoder/layer_)\d+(?=/)")


class SelectedLayers(Source):
    """Presents layer `layers[n]` of a source as layer n; all other variables are unchanged.

    Raises a UserError if the source lacks one of `layers`.
    """

    def __init__(self, source: Source, layers: Sequence[int]) -> None:
        # Copy all attributes of the source, such as `path`.
        vars(self).update(vars(source))
        self._source = source
        self._names: dict[str, str] = {}  # new name -> old name
        matches = {name: _LAYER.search(name) for name in source.shapes()}
        present = {int(layer[0]) for layer in matches.values() if layer}
        for layer in layers:
            if layer not in present:
                problem = f"has no layer {layer}: its {len(present)} layers are numbered from 0"
                raise UserError(f"{source.path} {problem}")
        for name, layer in matches.items():
            if not layer:
                self._names[name] = name
            elif int(layer[0]) in layers:
                self._names[_LAYER.sub(str(layers.index(int(layer[0]))), name)] = name

    def shapes(self) -> dict[str, list[int]]:
        """Returns the shapes of all variables by new name."""
        shapes = self._source.shapes()
        return {new: shapes[old] for new, old in self._names.items()}

    def types(self) -> dict[str, str]:
        """Returns the stored dtypes of all variables by new name."""
        types = self._source.types()
        return {new: types[old] for new, old in self._names.items()}

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, np.ndarray]]:
        """Yields the new names and the values of variables, given by their new names."""
        new_names = {self._names[name]: name for name in names}
        for old, value in self._source.read(new_names):
            yield new_names[old], value
