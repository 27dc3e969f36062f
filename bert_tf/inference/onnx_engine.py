"""Inference with ONNX Runtime, which needs no TensorFlow."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.data.feature_specs import Feature
from bert_tf.errors import UserError
from bert_tf.extras import import_extra
from bert_tf.inference.row_batches import RowBatches, Rows

# File of a model in its folder.
MODEL = "model.onnx"
# Input name in the exported model -> feature name.
_INPUTS = {
    "input_ids": "input_ids",
    "attention_mask": "input_mask",
    "token_type_ids": "segment_ids",
}
# Output name in the exported model -> `BertModel`'s output name, where they differ.
_OUTPUTS = {"last_hidden_state": "sequence_output", "pooler_output": "pooled_output"}


class OnnxInference(RowBatches):
    """Runs a model that `export_model.py --format=onnx` wrote; several threads may share it.

    Args:
        path: the file `model.onnx`.
        fetch: maps (outputs, batch) to the arrays [B, ...] to return. Both arguments are dicts
            with the TensorFlow model's names as keys.
        features: inputs of the model and of `fetch`.
        batch_size: rows of a batch.

    Raises:
        UserError: onnxruntime is missing, or cannot load the file.

    Attributes:
        output_names: names of the outputs in the file.
    """

    def __init__(
        self,
        path: str,
        fetch: Callable[[Any, Rows], Mapping[str, Any]],
        features: Sequence[Feature],
        batch_size: int,
    ) -> None:
        super().__init__(features, batch_size)
        runtime = import_extra("onnxruntime", "onnx")
        try:
            self._session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise UserError(f"Cannot load {path}: {str(error)[:200]}") from error
        self._fetch = fetch
        self.output_names = [output.name for output in self._session.get_outputs()]

    def _compute(self, batch: Rows) -> Rows:
        inputs = {name: batch[feature].astype(np.int64) for name, feature in _INPUTS.items()}
        values = self._session.run(None, inputs)
        names = [_OUTPUTS.get(name, name) for name in self.output_names]
        outputs: dict[str, Any] = dict(zip(names, values, strict=True))
        layers = [name for name in outputs if name.startswith("hidden_states.")]
        if layers:
            outputs["all_encoder_layers"] = [outputs.pop(name) for name in layers]
        fetched = self._fetch(outputs, batch)
        return {name: np.asarray(value) for name, value in fetched.items()}

    @functools.cached_property
    def _output_specs(self) -> Mapping[str, tuple[tuple[int, ...], np.dtype]]:
        # From a dummy row of two tokens: ONNX Runtime does not know what `fetch` returns.
        types = {"int64": np.int32, "float32": np.float32}
        row = {}
        for feature in self._features:
            shape = (*feature.shape[:-1], 2) if feature.per_token else feature.shape
            row[feature.name] = np.ones((1, *shape), types[feature.dtype])
        outputs = self._compute(row)
        return {name: (value.shape[1:], value.dtype) for name, value in outputs.items()}
