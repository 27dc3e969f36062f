"""WordPiece tokenization: the API of the original BERT, and faster implementations.

The package exports the names of the original's module `tokenization`, which `reference` implements
without TensorFlow. `fast` tokenizes many texts at once, `graph` is for TensorFlow graphs, and
`offsets` maps tokens to the characters they come from. All of them give the same tokens.
"""

from bert_tf.tokenization.reference import *  # noqa: F403
