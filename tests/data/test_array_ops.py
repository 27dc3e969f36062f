"""Operations that task code applies to tensors and to NumPy arrays."""

import keras
import numpy as np
import tensorflow as tf

from bert_tf.data import array_ops


def test_softmax_in_a_tf_function(run_log):
    logits = np.array([[1.0, 2.0]], np.float32)
    probabilities = tf.function(array_ops.softmax)(keras.ops.array(logits))
    np.testing.assert_allclose(probabilities, array_ops.softmax(logits), rtol=1e-6)
    # In particular, no warning that AutoGraph could not convert something.
    assert not run_log.text
