"""Public alias of `bert_tf.tasks.question_answering`."""

from bert_tf.tasks.question_answering import run as run
