"""A tokenizer to letters, with which tests of rows can be read."""

from types import SimpleNamespace

import numpy as np

from bert_tf.tokenization.ragged_ids import RaggedIds

CLS, SEP, UNK = 1, 2, 3
VOCAB = {"[CLS]": CLS, "[SEP]": SEP, "[UNK]": UNK, "[MASK]": ord("_")}


class LetterTokenizer:
    """Splits texts into letters, whose ids are their code points; drops spaces, and keeps masks."""

    reference = SimpleNamespace(vocab=VOCAB)

    def encode(self, texts):
        letters = [text.replace("[MASK]", "_").replace(" ", "") for text in texts]
        return RaggedIds.from_lists([[*map(ord, text)] for text in letters])


def rows_to_text(rows):
    """Checks special tokens and padding; returns the letters of each row."""
    texts = []
    for ids, mask in zip(rows["input_ids"], rows["input_mask"], strict=True):
        size = int(mask.sum())
        assert ids[0] == CLS
        assert ids[size - 1] == SEP
        assert not ids[size:].any()
        assert not mask[size:].any()
        texts.append("".join(map(chr, ids[1 : size - 1])))
    assert not rows["segment_ids"].any()
    assert {values.dtype for values in rows.values()} == {np.dtype(np.int32)}
    return texts
