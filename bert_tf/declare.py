"""Public alias of `bert_tf.options.declare`: declares options."""

# ruff: noqa: F401, I001
from bert_tf.options.declare import DATA, DEVICES, DURATION, MODEL, NOTHING, PATH, RESULTS, ROWS
from bert_tf.options.declare import RUN, WEIGHTS, Affects, option, value_for
