"""Estimates the memory that training needs, before it starts."""

import math
import os
from typing import Any

from bert_tf.base.errors import counted, note, warn
from bert_tf.config import BertConfig
from bert_tf.training.devices import Devices
from bert_tf.training.precision import compute_dtype

# Mean bytes per activation kept for the backward pass.
_BYTES_PER_ACTIVATION = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0}
# Number of float32 copies of all parameters in memory: during the backward pass (weights, two
# moments and gradients; with micro-batches also gradient sums), and during the update. Fitted, with
# TensorFlow's temporary copies, to benchmarks/memory.py: estimates are within 10% of its results.
_COPIES, _COPIES_WITH_MICRO_BATCHES, _COPIES_IN_UPDATE = 5, 7.2, 5.75

# Advice on training with less memory.
SAVE_MEMORY = (
    "pass --gradient_accumulation_steps=2 (or 4, 8, ...), --recompute_layers=true, "
    "--precision=bfloat16 (almost the same results) or a lower --max_seq_length"
)


def machine_memory() -> float:
    """Returns the bytes of memory of this machine; infinity if they are unknown (Windows)."""
    if not hasattr(os, "sysconf"):
        return math.inf
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def estimate_training_bytes(
    config: BertConfig,
    num_parameters: int,
    rows: int,
    length: int,
    *,
    precision: str = "float32",
    accumulation_steps: int = 1,
    recompute_layers: bool = False,
) -> int:
    """Returns the bytes that training needs on a device, excluding TensorFlow's own 0.5 GB.

    `num_parameters` counts the whole model; the device's batches have the shape [rows, length].
    """
    parameter_bytes = 4 * num_parameters
    copies = _COPIES if accumulation_steps == 1 else _COPIES_WITH_MICRO_BATCHES
    value_bytes = _BYTES_PER_ACTIVATION[precision]
    rows = -(-rows // accumulation_steps)
    hidden_bytes = rows * length * config.hidden_size * value_bytes
    intermediate_bytes = rows * length * config.intermediate_size * value_bytes
    score_bytes = rows * config.num_attention_heads * length * length * value_bytes
    # Projections, attention contexts, layer normalization inputs and dropout masks; GELU's inputs
    # and outputs; attention probabilities before and after dropout, and its mask.
    layer_bytes = 12 * hidden_bytes + 2 * intermediate_bytes + 2.25 * score_bytes
    activation_bytes = config.num_hidden_layers * layer_bytes
    if recompute_layers:  # Only the inputs of all layers are kept, and one recomputed layer.
        activation_bytes = layer_bytes + config.num_hidden_layers * hidden_bytes
    backward_bytes = copies * parameter_bytes + activation_bytes
    return int(max(backward_bytes, _COPIES_IN_UPDATE * parameter_bytes))


def log_memory(model: Any, options: Any, devices: Devices, texts_per_row: int = 1) -> None:
    """Logs the memory that training on a device is estimated to need; warns if there is less.

    `texts_per_row` is C for multiple choice, whose rows have the shape [C, S]; 1 for rows of
    shape [S].
    """
    replicas, batch_size = devices.replicas, options.train_batch_size
    micro_batches, rows = options.gradient_accumulation_steps, -(-batch_size // replicas)
    num_bytes = estimate_training_bytes(
        model.config,
        model.count_params(),
        rows * texts_per_row,
        options.max_seq_length,
        precision=compute_dtype(devices.precision),
        accumulation_steps=micro_batches,
        recompute_layers=options.recompute_layers,
    )
    batches, per_device = f"batches of {counted(batch_size, 'row')}", ""
    if replicas > 1:
        batches += f" ({rows} on each of {replicas} devices)"
        per_device = " per device"
    batches += f", in {micro_batches} micro-batches" if micro_batches > 1 else ""
    gigabytes = max(num_bytes / 1e9, 0.1)
    note(f"Training: {batches}, about {gigabytes:.1f} GB of memory{per_device} (estimated)")
    needed = num_bytes * replicas / devices.workers
    if not devices.has_gpus and devices.kind != "tpu" and needed > (available := machine_memory()):
        gigabytes = available / 1e9
        warn(f"Training may fail with {gigabytes:.1f} GB of memory: {SAVE_MEMORY}")
