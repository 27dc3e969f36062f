"""Number types: float32, bfloat16 and float16, and the scaling of losses that float16 needs."""

from typing import Any

import keras
import tensorflow as tf

PRECISIONS = ("float32", "bfloat16", "float16")

_FIRST_SCALE = 2.0**15
_GROWTH_STEPS = 2000


def set_precision(precision: str = "float32") -> None:
    """Sets the type that models compute in, whatever a `keras.json` in the user's home says.

    Variables, losses, gradients' sums and the optimizer stay in float32. The setting is one of
    the whole process.

    Args:
        precision: one of `PRECISIONS`.
    """
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("float32" if precision == "float32" else f"mixed_{precision}")


def cast_once(model: keras.Model, precision: str) -> keras.Model:
    """A copy of a model for inference, whose weights are in the type that is computed in.

    The model itself casts its weights in every call. In training that is lost among the rest; in
    inference it was a tenth of the time (BERT-base, 8 rows of 128 tokens, bfloat16 on a CPU). The
    results are the same, bit for bit. To be called in the scope of the model's strategy.

    Args:
        model: one of `bert_tf.modeling`.
        precision: one of `PRECISIONS`; with float32 the model itself is returned.
    """
    if precision == "float32":
        return model
    policy = keras.saving.serialize_keras_object(keras.DTypePolicy(precision))
    copy = type(model).from_config({**model.get_config(), "dtype": policy})
    for target, source in zip(copy.variables, model.variables, strict=True):
        target.assign(keras.ops.cast(source, target.dtype))
    return copy


class LossScale:
    """A factor on the loss that keeps small gradients above float16's smallest number.

    It halves when a gradient is not finite (that update is left out, but counts as a step, so
    that order of the data and learning rate stay functions of the step) and doubles after 2000
    good steps (Micikevicius et al. 2018, section 3.2).
    """

    def __init__(self) -> None:
        self.value = _variable(_FIRST_SCALE, "float32", "loss_scale")
        self.good_steps = _variable(0, "int32", "good_steps")

    @property
    def variables(self) -> dict[str, keras.Variable]:
        """What a checkpoint has to hold, by names that no model has."""
        return {"loss_scale": self.value, "loss_scale/good_steps": self.good_steps}

    def update(self, finite: Any) -> None:
        """Called in each replica after a step.

        Args:
            finite: scalar, whether the summed gradients were; the same in all replicas.
        """
        good = self.good_steps.value + 1
        grown = good >= _GROWTH_STEPS
        up = tf.where(grown, self.value.value * 2.0, self.value.value)
        down = tf.maximum(self.value.value * 0.5, 1.0)
        self.value.assign(tf.where(finite, up, down))
        self.good_steps.assign(tf.where(tf.logical_and(finite, ~grown), good, 0))


def _variable(value: float, dtype: str, name: str) -> keras.Variable:
    # Replicas assign the same value: which of them counts does not matter, but it must be said.
    return keras.Variable(
        value, dtype=dtype, name=name, trainable=False, aggregation="only_first_replica"
    )
