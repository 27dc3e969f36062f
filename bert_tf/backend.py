"""Public alias of `bert_tf.base.backend`: imports TensorFlow quietly, and before Keras."""

from bert_tf.base.backend import tf as tf
