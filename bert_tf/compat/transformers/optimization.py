"""The optimizer of transformers."""

from typing import Any

import keras

from bert_tf.optimization import NO_WEIGHT_DECAY, AdamWeightDecay, WarmupLinearDecay


def create_optimizer(
    init_lr: float,
    num_train_steps: int,
    num_warmup_steps: int,
    weight_decay_rate: float = 0.0,
    adam_epsilon: float = 1e-8,
    **kwargs: Any,
) -> tuple[keras.Optimizer, Any]:
    """Returns Adam with weight decay, warm-up and linear decay to 0, and its learning rates.

    As in the original BERT, and unlike in transformers, the decay begins at step 0.
    """
    schedule = WarmupLinearDecay(init_lr, num_train_steps, num_warmup_steps)
    optimizer = AdamWeightDecay(
        schedule,
        weight_decay_rate=weight_decay_rate,
        epsilon=adam_epsilon,
        exclude_from_weight_decay=NO_WEIGHT_DECAY,
        bias_correction=True,
    )
    return optimizer, schedule
