"""Decides whether XLA compiles a step, and to which lengths it then pads texts.

XLA compiles a step once for each shape. On a GPU, this takes about a minute, after which steps take
a third of the time. The limits below follow from measurements on an NVIDIA H100 with BERT-Base in
bfloat16 (see docs/performance.md).
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from bert_tf.base.errors import note
from bert_tf.data.input_pipeline import LENGTH_MULTIPLE
from bert_tf.options import TrainingOptions
from bert_tf.training.devices import Devices

# With XLA, inference takes 0.3 ms less for 128 tokens, but 24 s for the first batch of each length.
_MIN_TOKENS = 10_000_000
# From this number of steps on, advice on faster precisions is worth a line.
_MANY_STEPS = 1000


@dataclasses.dataclass(frozen=True)
class _Limits:
    """Within which limits XLA pays off.

    Attributes:
        min_steps: a step with 32 x 128 tokens takes 31 ms less, but the first one takes 75 s.
        max_padding: above this ratio, padding costs more than XLA saves. Without XLA, a token takes
            2.7 times as long.
        few_tokens: unless a batch is this small. Without XLA, such a batch takes no less time than
            a larger one, as the time to start its kernels limits the speed.
    """

    min_steps: int = 2500
    max_padding: float = 2.5
    few_tokens: int = 8192


# Not measured but estimated: exact products take so long that XLA saves only a third of a step.
_FLOAT32_LIMITS = _Limits(min_steps=4000, max_padding=1.3, few_tokens=2048)


@dataclasses.dataclass(frozen=True)
class Lengths:
    """The lengths of rows in tokens; of the longest choice in multiple choice.

    Attributes:
        max_length: `max_seq_length`.
        counts: the number of rows with 0, 1, 2, ... tokens; empty or 0 if lengths are unknown.
    """

    max_length: int
    counts: Sequence[int] = ()

    @property
    def longest(self) -> int:
        """The longest length, rounded up to a multiple of 8; `max_length` if it is unknown."""
        longest = int(np.max(np.flatnonzero(self.counts), initial=0)) or self.max_length
        return min(-(-longest // LENGTH_MULTIPLE) * LENGTH_MULTIPLE, self.max_length)

    def mean_longest(self, num_rows: int) -> float:
        """Expected length of the longest of `num_rows` random rows, without rounding."""
        if not any(self.counts):
            return float(self.max_length)
        shares = np.cumsum(self.counts) / np.sum(self.counts)
        return float(np.sum(1.0 - shares**num_rows))  # sum over n of P(longest > n)


def _limits(devices: Devices) -> _Limits:
    return _FLOAT32_LIMITS if devices.precision == "float32" else _Limits()


def for_training(
    devices: Devices,
    options: TrainingOptions,
    num_train_steps: int,
    lengths: Lengths,
    texts_per_row: int = 1,
) -> Devices:
    """Decides on `jit_compile` for a training run, and logs the decision.

    On one GPU, `auto` compiles if the run has many steps, unless padding all batches to the longest
    text costs more time than XLA saves. The number of steps includes those of earlier runs, so that
    a resumed run makes the same decision: with XLA, dropout masks are different.
    """
    if devices.has_tf32 and devices.precision == "float32" and num_train_steps >= _MANY_STEPS:
        note("Computing in exact float32: --precision=tf32 is faster, bfloat16 the fastest")
    if devices.jit_compile is None:
        limits, batch_size = _limits(devices), options.train_batch_size
        # Without XLA, a batch is padded to its longest text.
        trimmed = lengths.mean_longest(1 if options.length_grouping else batch_size)
        has_little_padding = lengths.longest <= limits.max_padding * trimmed
        rows = max(1, batch_size // options.gradient_accumulation_steps)
        is_small = rows * texts_per_row * lengths.longest <= limits.few_tokens
        reason = ""
        if num_train_steps < limits.min_steps:
            reason = f"it pays off from {limits.min_steps:,} steps on"
        elif not (devices.fixed_shapes or has_little_padding or is_small):
            reason = f"all batches would be padded to {lengths.longest} tokens, the longest text"
        if reason:
            note(f"Training without XLA: {reason}. --jit_compile=true overrides this")
        devices = dataclasses.replace(devices, jit_compile=not reason)
    if devices.jit_compile:
        devices = _pad_for_xla(devices, lengths, "training step", has_one_length=True)
    return devices


def for_inference(devices: Devices, num_rows: int, lengths: Lengths) -> Devices:
    """Decides on `jit_compile` for inference with `num_rows` texts, and logs it if XLA is used.

    On one GPU, `auto` compiles if there are many tokens. If most texts are much shorter than the
    longest, or if lengths are unknown, batches are padded to one of three lengths.
    """
    mean = lengths.mean_longest(1) if any(lengths.counts) else lengths.max_length / 4
    has_little_padding = lengths.longest <= _limits(devices).max_padding * mean
    has_one_length = devices.fixed_shapes or devices.replicas > 1 or has_little_padding
    if devices.jit_compile is None:
        min_tokens = _MIN_TOKENS * (1 if has_one_length else 3)
        devices = dataclasses.replace(devices, jit_compile=num_rows * mean >= min_tokens)
    if devices.jit_compile:
        devices = _pad_for_xla(devices, lengths, "model", has_one_length)
    return devices


def _pad_for_xla(
    devices: Devices, lengths: Lengths, compiled: str, has_one_length: bool
) -> Devices:
    # On several devices, texts are padded to `max_seq_length`, until trimming has been measured.
    trims = not devices.fixed_shapes and devices.replicas == 1
    length = lengths.longest if trims else lengths.max_length
    devices = dataclasses.replace(devices, fixed_shapes=has_one_length, length=length)
    padded = " or ".join(map(str, devices.padded_lengths(lengths.max_length)))
    note(f"XLA compiles the {compiled} first, for up to a minute; padding to {padded} tokens")
    return devices
