"""Operations that task code applies to tensors and to NumPy arrays."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from bert_tf.data import array_ops


def test_softmax_in_a_tf_function(run_log):
    logits = np.array([[1.0, 2.0]], np.float32)
    probabilities = tf.function(array_ops.softmax)(keras.ops.array(logits))
    np.testing.assert_allclose(probabilities, array_ops.softmax(logits), rtol=1e-6)
    # In particular, no warning that AutoGraph could not convert something.
    assert not run_log.text


@pytest.mark.parametrize("pooling", ["cls", "mean", "max", "mean_max"])
def test_pooling_of_bfloat16_is_float32(pooling):
    x = ops.cast(np.arange(24.0).reshape(2, 3, 4), "bfloat16")
    pooled = array_ops.pool(x, np.array([[1, 1, 0], [1, 1, 1]]), pooling)
    assert keras.backend.standardize_dtype(pooled.dtype) == "float32"
