"""WordPiece tokenization: the original's API, and exact faster implementations of it.

Importing this package gives the names of the original's `tokenization` and needs no TensorFlow.
`fast` tokenizes many texts at once, `graph` tokenizes inside a TensorFlow graph, and `offsets`
maps tokens to the characters they come from. All give the ids of `reference`.
"""

from bert_tf.tokenization.reference import (
    BasicTokenizer,
    FullTokenizer,
    WordpieceTokenizer,
    _is_control,
    _is_punctuation,
    _is_whitespace,
    convert_by_vocab,
    convert_ids_to_tokens,
    convert_to_unicode,
    convert_tokens_to_ids,
    count_capitals,
    is_cased,
    is_cjk,
    is_control,
    is_punctuation,
    is_whitespace,
    load_vocab,
    printable_text,
    validate_case_matches_checkpoint,
    whitespace_tokenize,
)

__all__ = [
    "BasicTokenizer",
    "FullTokenizer",
    "WordpieceTokenizer",
    "_is_control",
    "_is_punctuation",
    "_is_whitespace",
    "convert_by_vocab",
    "convert_ids_to_tokens",
    "convert_to_unicode",
    "convert_tokens_to_ids",
    "count_capitals",
    "is_cased",
    "is_cjk",
    "is_control",
    "is_punctuation",
    "is_whitespace",
    "load_vocab",
    "printable_text",
    "validate_case_matches_checkpoint",
    "whitespace_tokenize",
]
