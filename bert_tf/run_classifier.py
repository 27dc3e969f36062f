"""Alias of `bert_tf.compat.run_classifier`, for programs that import the original's module."""

import sys

from bert_tf.compat import run_classifier

sys.modules[__name__] = run_classifier
