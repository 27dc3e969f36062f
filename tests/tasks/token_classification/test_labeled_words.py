"""Labeled words as returned by Predictor."""

from bert_tf.tasks.token_classification.entities import LabeledWords


def test_entities_from_labeled_words():
    words = ["a", "b", "c", "d", "e", "f", "g"]
    labels = ["B-X", "I-X", "I-Y", "O", "I-X", "B-X", "I-X"]
    entities = LabeledWords(words, labels).entities
    assert entities == [("X", "a b"), ("Y", "c"), ("X", "e"), ("X", "f g")]
    labels = ["B-X", "I-X", "E-X", "S-X", "I-X", "E-X", "E-Y"]
    entities = LabeledWords(words, labels).entities
    assert entities == [("X", "a b c"), ("X", "d"), ("X", "e f"), ("Y", "g")]
    # A single, unnamed entity type.
    assert LabeledWords(["a", "b"], ["B", "I"]).entities == [("", "a b")]
