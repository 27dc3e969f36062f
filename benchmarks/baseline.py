"""The algorithms of the original BERT release in plain Python, as a baseline for benchmarks.

The tokenizer iterates over characters, features are lists of numbers, and a protocol buffer is
built for each record. The benchmarks verify that bert_tf computes the same results.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

from bert_tf.tokenization import is_cjk, is_control, is_punctuation, is_whitespace


class BaselineTokenizer:
    """WordPiece tokenization, character by character.

    Args:
        vocab: mapping from tokens to ids.
        do_lower_case: whether to lower-case the text and strip accents.
    """

    def __init__(self, vocab: dict[str, int], do_lower_case: bool) -> None:
        self.vocab = vocab
        self.do_lower_case = do_lower_case

    def encode(self, text: str) -> list[int]:
        """Returns the token ids of a text."""
        tokens = []
        for word in self.split_words(text):
            tokens.extend(self.split_pieces(word))
        return [self.vocab[token] for token in tokens]

    def split_words(self, text: str) -> list[str]:
        """Returns the normalized words and punctuation characters of a text."""
        cleaned = []
        for char in text:
            if char in "\0\ufffd" or is_control(char):
                continue
            if is_cjk(char):
                cleaned.append(f" {char} ")
            else:
                cleaned.append(" " if is_whitespace(char) else char)
        words = []
        for word in "".join(cleaned).split():
            if self.do_lower_case:
                decomposed = unicodedata.normalize("NFD", word.lower())
                word = "".join(c for c in decomposed if unicodedata.category(c) != "Mn")
            words.extend(self.split_at_punctuation(word))
        return " ".join(words).split()

    def split_at_punctuation(self, word: str) -> list[str]:
        """Splits a word such that each punctuation character is a separate word."""
        parts: list[list[str]] = []
        starts_word = True
        for char in word:
            if is_punctuation(char):
                parts.append([char])
                starts_word = True
            else:
                if starts_word:
                    parts.append([])
                starts_word = False
                parts[-1].append(char)
        return ["".join(part) for part in parts]

    def split_pieces(self, word: str) -> list[str]:
        """Splits a word into word pieces, greedily by the longest match first."""
        if len(word) > 200:
            return ["[UNK]"]
        pieces = []
        start = 0
        while start < len(word):
            end = len(word)
            while end > start:
                piece = ("##" if start else "") + word[start:end]
                if piece in self.vocab:
                    break
                end -= 1
            if end == start:
                return ["[UNK]"]
            pieces.append(piece)
            start = end
        return pieces


def pack(ids: Sequence[int], max_seq_length: int, vocab: dict[str, int]) -> dict[str, list[int]]:
    """Converts the token ids of a text to a padded row of model inputs."""
    input_ids = [vocab["[CLS]"], *ids[: max_seq_length - 2], vocab["[SEP]"]]
    input_mask = [1] * len(input_ids)
    while len(input_ids) < max_seq_length:
        input_ids.append(0)
        input_mask.append(0)
    return {
        "input_ids": input_ids,
        "input_mask": input_mask,
        "segment_ids": [0] * max_seq_length,
    }


def write_records(path: str, rows: Iterable[dict[str, list[int]]]) -> None:
    """Writes each row to a TFRecord file, as a `tf.train.Example`."""
    import tensorflow as tf

    with tf.io.TFRecordWriter(path) as writer:
        for row in rows:
            features: dict[str, Any] = {
                name: tf.train.Feature(float_list=tf.train.FloatList(value=values))
                if isinstance(values[0], float)
                else tf.train.Feature(int64_list=tf.train.Int64List(value=values))
                for name, values in row.items()
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())
