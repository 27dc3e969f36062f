"""Inference with models exported to ONNX or LiteRT, whose runtimes need no TensorFlow."""

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bert_tf.base.errors import UserError, reason
from bert_tf.base.extras import RUNTIMES, import_extra
from bert_tf.base.quiet import hide_stderr
from bert_tf.data.features import Feature
from bert_tf.data.parallel import num_cores
from bert_tf.inference.row_batches import Fetch, RowBatches, Rows, checked

# Export format -> name of the model file in its folder.
MODEL_FILES = {"onnx": "model.onnx", "litert": "model.tflite"}
# Input name in an exported model, as in Hugging Face Transformers -> feature name.
INPUTS = {"input_ids": "input_ids", "attention_mask": "input_mask", "token_type_ids": "segment_ids"}
# Prefix of the outputs of all encoder layers: `hidden_states.0` is the output of the first layer.
HIDDEN_STATES = "hidden_states."
# Output name in an exported model -> output name of `BertModel`, where they differ.
OUTPUTS = {"last_hidden_state": "sequence_output", "pooler_output": "pooled_output"}


class ExportedModel(RowBatches):
    """Runs a model file that `export_model.py` wrote; several threads may share it.

    Args:
        path: path of the file; its base name, a value of `MODEL_FILES`, determines the format.
        fetch: maps (outputs, batch) to the arrays [B, ...] to return. Both arguments are dicts
            whose keys are the names of the TensorFlow model's outputs and inputs.
        features: inputs of the model and of `fetch`.
        batch_size: number of rows in a batch.

    Raises:
        UserError: the runtime's package is missing, or cannot load the file.

    Attributes:
        output_names: names of the outputs in the file.
    """

    def __init__(
        self, path: str, fetch: Fetch, features: Sequence[Feature], batch_size: int
    ) -> None:
        super().__init__(features, batch_size)
        load = _load_onnx if os.path.basename(path) == MODEL_FILES["onnx"] else _load_litert
        try:
            self._run, self.output_names = load(path)
        except UserError:
            raise
        except Exception as error:
            raise UserError(f"Cannot load {path}: {reason(error)}") from error
        self._fetch = checked(fetch)

    def _compute(self, batch: Rows) -> Rows:
        values = self._run(batch)
        outputs: dict[str, Any] = {OUTPUTS.get(name, name): values[name] for name in values}
        num_layers = sum(name.startswith(HIDDEN_STATES) for name in outputs)
        if num_layers:
            outputs["all_encoder_layers"] = [
                outputs.pop(f"{HIDDEN_STATES}{index}") for index in range(num_layers)
            ]
        fetched = self._fetch(outputs, batch)
        return {name: np.asarray(value) for name, value in fetched.items()}


# Runs a model: feature name -> array becomes output name -> array.
_Run = Callable[[Rows], Rows]


def _load_onnx(path: str) -> tuple[_Run, list[str]]:
    runtime = import_extra(RUNTIMES["onnx"], "onnx")
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    inputs: list[str] = [value.name for value in session.get_inputs()]

    def run(batch: Rows) -> Rows:
        int64 = {name: batch[INPUTS.get(name, name)].astype(np.int64) for name in inputs}
        return dict(zip(names, session.run(None, int64), strict=True))

    return run, names


def _load_litert(path: str) -> tuple[_Run, list[str]]:
    runtime = import_extra(RUNTIMES["litert"], "litert")
    # Hide stderr, to which the runtime logs the creation of its kernels.
    with hide_stderr():
        interpreter = runtime.Interpreter(path, num_threads=num_cores())
        interpreter.allocate_tensors()
    runner = interpreter.get_signature_runner()
    inputs: list[str] = list(runner.get_input_details())
    # All calls use the same memory of the interpreter, so only one may run at a time.
    lock = threading.Lock()

    def run(batch: Rows) -> Rows:
        values = {name: batch[INPUTS.get(name, name)] for name in inputs}
        int32 = {name: value.astype(np.int32, copy=False) for name, value in values.items()}
        with lock:
            return runner(**int32)

    return run, list(runner.get_output_details())
