"""WordPiece tokenization: the original's API, and faster implementations with the same ids.

The package exports the names of the original's `tokenization` module and needs no TensorFlow.
`fast` tokenizes many texts at once, `graph` tokenizes inside a TensorFlow graph, and `offsets`
maps tokens to the characters they come from. All return the same ids as `reference`.
"""

from bert_tf.tokenization.reference import *  # noqa: F403
