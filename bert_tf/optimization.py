"""The original BERT code's optimizer: Adam with decoupled weight decay, warm-up and linear decay.

It is a Keras optimizer for any backend: use it with this package's training loop or with
`model.compile(optimizer=create_optimizer(...))`.
"""

import numbers
import re
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from bert_tf.base.errors import UserError, warn
from bert_tf.base.foreign_names import error_stubs

globals().update(error_stubs("optimization"))


def _require_rate(name: str, rate: Any) -> None:
    is_number = isinstance(rate, numbers.Real)
    if isinstance(rate, str) or (is_number and not 0 < float(rate) < float("inf")):
        raise ValueError(f"{name} must be a finite number above 0. Received: {rate!r}")


# Constants of the original code.
WEIGHT_DECAY_RATE = 0.01
CLIP_NORM = 1.0
NO_WEIGHT_DECAY = ("LayerNorm", "layer_norm", "bias")


@keras.saving.register_keras_serializable(package="bert_tf")
class WarmupLinearDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Learning rate schedule with linear warm-up, then linear decay to 0.

    After t steps, with N = `num_train_steps` and W = `num_warmup_steps`, the rate is
    `init_lr * t / W` while t < W and `init_lr * (1 - min(t, N) / N)` afterwards. As in the
    original, the decay starts at step 0, not at the end of the warm-up, so that the rate drops at
    t = W; and with a warm-up, the first update has rate 0.

    Args:
        init_lr: peak learning rate.
        num_train_steps: N, at least 1.
        num_warmup_steps: W; 0 or None for no warm-up.

    Raises:
        ValueError: `num_train_steps` is below 1, or `init_lr` is not a finite number above 0.
    """

    def __init__(
        self, init_lr: float, num_train_steps: int, num_warmup_steps: int | None = 0
    ) -> None:
        _require_rate("init_lr", init_lr)
        if num_train_steps < 1:
            raise ValueError(f"num_train_steps must be at least 1. Received: {num_train_steps}")
        self.init_lr = init_lr
        self.num_train_steps = num_train_steps
        self.num_warmup_steps = num_warmup_steps or 0

    def __call__(self, step: Any) -> Any:
        """Returns the learning rate of the update after `step` updates."""
        step = ops.cast(step, "float32")
        progress = ops.minimum(step, self.num_train_steps) / self.num_train_steps
        rate = self.init_lr * (1.0 - progress)
        if not self.num_warmup_steps:
            return rate
        warming_up = self.init_lr * (step / self.num_warmup_steps)
        return ops.where(step < self.num_warmup_steps, warming_up, rate)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of `__init__`."""
        return dict(vars(self))


@keras.saving.register_keras_serializable(package="bert_tf")
class AdamWeightDecay(keras.optimizers.Optimizer):
    """Adam (Kingma and Ba 2014) without bias correction, with decoupled weight decay.

    The update is `p <- p - rate (m / (sqrt(v) + epsilon) + weight_decay_rate p)`: the decay is
    scaled by the rate and does not affect m, v or clipping.

    Args:
        learning_rate: a number or a schedule, which is called with the number of previous
            updates.
        weight_decay_rate: 0.0, the default as in the original class, disables decay.
        beta_1: decay rate of the first moment, m.
        beta_2: decay rate of the second moment, v.
        epsilon: added outside of the square root.
        exclude_from_weight_decay: regular expressions, case-sensitive; a variable is not decayed
            if one matches anywhere in its path (`bert/embeddings/LayerNorm/gamma`).
        bias_correction: divide m by 1 - beta_1^t, and v by 1 - beta_2^t, as in the Adam paper but
            not in the original.
        global_clipnorm: maximum global norm of the gradients. Gradients of embedding look-ups are
            made dense first, because the norm of their unsummed slices differs.
        name: optimizer name.
        **kwargs: other arguments of `keras.optimizers.Optimizer`.
    """

    def __init__(
        self,
        learning_rate: Any,
        weight_decay_rate: float = 0.0,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        exclude_from_weight_decay: Sequence[str] | None = None,
        bias_correction: bool = False,
        global_clipnorm: float | None = None,
        name: str = "adam_weight_decay",
        **kwargs: Any,
    ) -> None:
        _require_rate("learning_rate", learning_rate)
        super().__init__(learning_rate, global_clipnorm=global_clipnorm, name=name, **kwargs)
        self.weight_decay_rate = weight_decay_rate
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.exclude_from_weight_decay_patterns = tuple(exclude_from_weight_decay or ())
        self.bias_correction = bias_correction

    def build(self, variables: list[keras.Variable]) -> None:
        """Creates the slots `adam_m` and `adam_v` for every variable."""
        if self.built:
            return
        super().build(variables)
        self.adam_m, self.adam_v = self.add_optimizer_variables(variables, ["adam_m", "adam_v"])
        patterns = self.exclude_from_weight_decay_patterns
        self._is_excluded = [any(re.search(p, v.path) for p in patterns) for v in variables]

    def finalize_variable_values(self, var_list: list[keras.Variable]) -> None:
        """Ends `fit` as Keras does; warns if the learning rate was 0 in part of the training."""
        super().finalize_variable_values(var_list)
        expected = getattr(self._learning_rate, "num_train_steps", None)
        num_steps = int(self.iterations)
        if expected and num_steps > expected:
            warn(f"The learning rate was 0 after num_train_steps={expected} of {num_steps} steps")

    def slots(self) -> list[tuple[keras.Variable, dict[str, keras.Variable]]]:
        """Returns pairs of a trainable variable and its slots, {"adam_m": m, "adam_v": v}."""
        pairs = zip(self.adam_m, self.adam_v, strict=True)
        slots = [{"adam_m": m, "adam_v": v} for m, v in pairs]
        return list(zip(self._trainable_variables, slots, strict=True))

    def plain_adam_slots(self, variable: Any) -> tuple[keras.Variable, keras.Variable] | None:
        """Returns a variable's `adam_m` and `adam_v`; None for LAMB or with bias correction."""
        if type(self) is not AdamWeightDecay or self.bias_correction:
            return None
        index = self._get_variable_index(variable)
        return self.adam_m[index], self.adam_v[index]

    def decay_rate(self, variable: Any) -> float:
        """Returns the weight decay of a variable: `weight_decay_rate`, or 0 if it is excluded."""
        is_excluded = self._is_excluded[self._get_variable_index(variable)]
        return 0.0 if is_excluded else self.weight_decay_rate

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Updates one variable."""
        index = self._get_variable_index(variable)
        gradient = ops.cast(gradient, variable.dtype)
        m = self.beta_1 * self.adam_m[index] + (1.0 - self.beta_1) * gradient
        v = self.beta_2 * self.adam_v[index] + (1.0 - self.beta_2) * ops.square(gradient)
        self.assign(self.adam_m[index], m)
        self.assign(self.adam_v[index], v)
        if self.bias_correction:
            num_updates = ops.cast(self.iterations + 1, variable.dtype)
            m = m / (1.0 - ops.power(self.beta_1, num_updates))
            v = v / (1.0 - ops.power(self.beta_2, num_updates))
        update = m / (ops.sqrt(v) + self.epsilon)
        if decay := self.decay_rate(variable):
            update = update + decay * variable
        update = self._scale_update(update, variable)
        self.assign_sub(variable, ops.cast(learning_rate, variable.dtype) * update)

    def _scale_update(self, update: Any, variable: Any) -> Any:
        return update

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of `__init__`."""
        config = super().get_config()
        # With this argument, Keras would also apply its own weight decay.
        config.pop("weight_decay")
        names = ("weight_decay_rate", "beta_1", "beta_2", "epsilon", "bias_correction")
        patterns = list(self.exclude_from_weight_decay_patterns)
        arguments = {name: getattr(self, name) for name in names}
        return {**config, **arguments, "exclude_from_weight_decay": patterns}

    def clip(self, gradients: Sequence[Any]) -> tuple[list[Any], Any]:
        """Returns dense gradients, clipped to `global_clipnorm`, and their norm before clipping."""
        # `ops.add` makes TensorFlow's IndexedSlices, the gradients of look-ups, dense. The type is
        # compared by name, because this module must also run without TensorFlow.
        dense = [ops.add(g, 0) if type(g).__name__ == "IndexedSlices" else g for g in gradients]
        # A single sum, because TensorFlow's graph optimizer may reorder a chain of additions
        # differently in each process.
        norm = ops.sqrt(ops.sum(ops.stack([ops.sum(ops.square(g)) for g in dense])))
        if self.global_clipnorm is None:
            return dense, norm
        factor = self.global_clipnorm / ops.maximum(norm, self.global_clipnorm)
        return [gradient * factor for gradient in dense], norm

    def _clip_gradients(self, grads: list[Any]) -> list[Any]:
        return self.clip(grads)[0]


@keras.saving.register_keras_serializable(package="bert_tf")
class Lamb(AdamWeightDecay):
    """LAMB, for large batches (You et al. 2019, "Large Batch Optimization for Deep Learning").

    Each variable's update, including its decay, is scaled to the variable's norm, unless one of the
    norms is 0. Variables excluded from decay are updated as in Adam. Keras' `Lamb`, unlike the
    paper, adds the decay after scaling. Takes the arguments of `AdamWeightDecay`.
    """

    def __init__(self, learning_rate: Any, *, name: str = "lamb", **kwargs: Any) -> None:
        super().__init__(learning_rate, name=name, **kwargs)

    def _scale_update(self, update: Any, variable: Any) -> Any:
        if self._is_excluded[self._get_variable_index(variable)]:
            return update
        norm, update_norm = ops.norm(ops.convert_to_tensor(variable)), ops.norm(update)
        is_scaled = ops.logical_and(norm > 0, update_norm > 0)
        ratio = norm / ops.where(is_scaled, update_norm, 1.0)
        return update * ops.where(is_scaled, ratio, 1.0)


def create_optimizer(
    init_lr: float,
    num_train_steps: int,
    num_warmup_steps: int,
    adam_bias_correction: bool = False,
    optimizer: str = "adamw",
    **original: Any,
) -> AdamWeightDecay:
    """Creates the optimizer of the original's training scripts, or LAMB.

    Args:
        init_lr: peak learning rate.
        num_train_steps: total number of steps, after which the rate is 0.
        num_warmup_steps: number of warm-up steps; 0 for no warm-up.
        adam_bias_correction: see `AdamWeightDecay`; off in the original, always on with LAMB.
        optimizer: `adamw` or `lamb`.
        **original: arguments of the original, such as `loss`; they raise a UserError.
    """
    # With the original's order of arguments, (loss, init_lr, ...), `num_train_steps` is a fraction.
    if original or 0 < num_train_steps < 1:
        use = "use create_optimizer(init_lr, num_train_steps, num_warmup_steps)"
        raise UserError(f"create_optimizer(loss, ...) only exists in the TensorFlow 1 code: {use}")
    if num_warmup_steps and num_warmup_steps < 1:
        expected = "num_warmup_steps must be a number of steps, not a proportion"
        raise ValueError(f"{expected}. Received: {num_warmup_steps}")
    if num_warmup_steps and num_warmup_steps >= num_train_steps:
        warn(f"num_warmup_steps={num_warmup_steps}: all {num_train_steps} steps are warm-up")
    optimizer_class = {"adamw": AdamWeightDecay, "lamb": Lamb}[optimizer]
    return optimizer_class(
        WarmupLinearDecay(init_lr, num_train_steps, num_warmup_steps),
        weight_decay_rate=WEIGHT_DECAY_RATE,
        exclude_from_weight_decay=NO_WEIGHT_DECAY,
        bias_correction=adam_bias_correction or optimizer == "lamb",
        global_clipnorm=CLIP_NORM,
    )
