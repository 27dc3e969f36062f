"""WordPiece tokenization: the original's API, and exact faster implementations of it.

Importing this package gives the names of the original's `tokenization` and needs no TensorFlow.
`fast` tokenizes many texts at once, `graph` tokenizes inside a TensorFlow graph, and `offsets`
maps tokens to the characters they come from. All give the ids of `reference`.
"""

from bert_tf.tokenization.reference import *  # noqa: F403
