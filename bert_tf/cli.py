"""Public alias of `bert_tf.options.cli`: exit codes, and errors on one line."""

from bert_tf.options.cli import exit_with_message as exit_with_message
