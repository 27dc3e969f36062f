"""Python API of the original BERT release's `extract_features.py`."""

import collections
from collections.abc import Iterable

from bert_tf import tokenization
from bert_tf.base.foreign_names import error_stubs
from bert_tf.data.features import pack_example
from bert_tf.data.texts import read_lines

globals().update(error_stubs("extract_features"))

InputExample = collections.namedtuple("InputExample", "unique_id text_a text_b")
InputFeatures = collections.namedtuple(
    "InputFeatures", "unique_id tokens input_ids input_mask input_type_ids"
)


def read_examples(input_file: str) -> list[InputExample]:
    """Reads a file with one text, or one pair `A ||| B`, per line."""
    return [InputExample(index, *texts) for index, texts in enumerate(read_lines(input_file))]


def convert_examples_to_features(
    examples: Iterable[InputExample], seq_length: int, tokenizer: tokenization.FullTokenizer
) -> list[InputFeatures]:
    """Converts examples to token ids, masks and segments, truncated or padded to `seq_length`."""
    features = []
    for example in examples:
        packed = pack_example(example, seq_length, tokenizer)
        tokens = tokenizer.convert_ids_to_tokens(packed["input_ids"][: sum(packed["input_mask"])])
        features.append(InputFeatures(example.unique_id, tokens, *packed.values()))
    return features
