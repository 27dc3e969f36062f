"""Alias of `bert_tf.compat.run_squad`, for programs that import the original's module."""

import sys

from bert_tf.compat import run_squad

sys.modules[__name__] = run_squad
