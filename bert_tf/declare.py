"""Public alias of `bert_tf.options.declare`: declares options."""

# ruff: noqa: F401
from bert_tf.options.declare import (
    DATA,
    DEVICES,
    DURATION,
    MODEL,
    NOTHING,
    PATH,
    RESULTS,
    ROWS,
    RUN,
    WEIGHTS,
    Affects,
    option,
    value_for,
)
