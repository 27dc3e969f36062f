"""labels.txt, as a training writes it and others may have changed it."""

import pytest

from bert_tf.data import conll
from bert_tf.errors import UserError
from bert_tf.tasks import labels


def test_list_of_labels(tmp_path):
    path = tmp_path / "labels.txt"
    path.write_text("O\nB-A\nI-A\n")
    assert labels.read(str(path), conll.is_label) == ["O", "B-A", "I-A"]
    for text, message in (
        ("", "labels.txt has no label"),
        ("O\n\nB-A\n", "labels.txt:2: '' is not a label"),
        ("O\nB-A\nO\n", "labels.txt:3: O stands there twice"),
        ("O\n{}\n", "labels.txt:2: '{}' is not a label"),
    ):
        path.write_text(text)
        with pytest.raises(UserError, match=message):
            labels.read(str(path), conll.is_label)
    path.write_text("not at all\n{}\n")
    assert labels.read(str(path)) == ["not at all", "{}"]
    assert labels.contents(["not at all", "{}"]) == {"labels.txt": path.read_text()}
