"""Public alias of `bert_tf.base.errors`: the error for a user's mistakes."""

# ruff: noqa: F401
from bert_tf.base.errors import UserError
