"""Alias of `bert_tf.compat.extract_features`, for programs that import the original's module."""

import sys

from bert_tf.compat import extract_features

sys.modules[__name__] = extract_features
