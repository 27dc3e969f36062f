"""The update of a variable in as few passes over its memory as TensorFlow can do it in.

Written out as an optimizer of Keras, Adam is some fifteen operations for each of the variables,
each of which reads and writes them all; on a CPU that was an eighth of a step of BERT-base with
256 tokens, and the operations were a fifth of the graph.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.optimization import AdamWeightDecay


def update_variable(
    optimizer: AdamWeightDecay, gradient: tf.Tensor, variable: Any, learning_rate: tf.Tensor
) -> None:
    """What `optimizer.update_step` does, by TensorFlow's own operation where that can do it.

    To be called where a variable is on one device: in `strategy.extended.update`.

    Args:
        optimizer: built.
        gradient: dense, clipped.
        variable: the device's part of a variable that the optimizer was built on.
        learning_rate: of this update.
    """
    slots = optimizer.plain_adam_slots(variable)
    if slots is None:
        optimizer.update_step(gradient, variable, learning_rate)
        return
    m, v = slots
    # TensorFlow takes 1 - beta_2 in float32, where it is 0.000999987; the original, and Keras,
    # 0.001. All of v is smaller by that share, and so its root is made up for here.
    root = float(np.sqrt(_complement(optimizer.beta_2) / (1.0 - optimizer.beta_2)))
    decay = optimizer.decay_rate(variable)
    if decay:
        variable.assign_sub(variable * (learning_rate * decay))
    tf.raw_ops.ResourceApplyAdam(
        var=variable.handle,
        m=m.value.handle,
        v=v.value.handle,
        # Powers of 0 leave out the correction of the bias, as the original does.
        beta1_power=0.0,
        beta2_power=0.0,
        lr=learning_rate * root,
        beta1=optimizer.beta_1,
        beta2=optimizer.beta_2,
        epsilon=optimizer.epsilon * root,
        grad=gradient,
    )


def _complement(beta: float) -> float:
    return float(np.float32(1.0) - np.float32(beta))
