"""bert_tf: the 2018 BERT release as it would be written today.

Importing this package loads nothing else; the parts are imported where they are used:
`bert_tf.modeling` (the model), `bert_tf.tokenization` (text to word pieces),
`bert_tf.optimization` (the optimizer), `bert_tf.tasks` (what the scripts run).
"""

__version__ = "0.1.0"
