"""Masked texts: tokenization, and windows that cover every mask."""

import io
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.base.errors import UserError
from bert_tf.tasks.fill_mask.fill_mask import (
    ANY,
    BEGIN,
    CONTINUATION,
    MASK,
    MaskedTexts,
    allowed_pieces,
    read_masked_texts,
    require_mask,
    warn_of_other_masks,
)
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.fast import BatchTokenizer
from tests.tasks.letters import LetterTokenizer, rows_to_text


def tokenize_masked(texts, max_seq_length):
    """Tokenizes texts in which `_` is a mask."""
    texts = [text.replace("_", MASK) for text in texts]
    return MaskedTexts(texts, LetterTokenizer(), max_seq_length)


def unfilled_rows(texts, max_seq_length):
    """Returns the row of each mask, and the position of the mask in it."""
    masked_texts = tokenize_masked(texts, max_seq_length)
    masks = np.arange(len(masked_texts.positions))
    rows = masked_texts.rows(masks, np.full((len(masks), 1), ord("_"), np.int32), 0)
    return list(zip(rows_to_text(rows), rows["masked_lm_positions"][:, 0].tolist(), strict=True))


def test_each_mask_of_a_short_text_has_a_row():
    expected = [("a_", 2), ("b_c_", 2), ("b_c_", 4), ("_", 1)]
    assert unfilled_rows(["a_", "b _c_", "_"], 7) == expected


def test_windows_of_long_texts_are_centered_on_masks():
    assert unfilled_rows(["abc_defg"], 7) == [("bc_de", 3)]
    # Windows at the ends extend further inwards.
    assert unfilled_rows(["a_bcdefg"], 7) == [("a_bcd", 2)]
    rows = [("_a_bc", 1), ("_a_bc", 3), ("cd_e_", 3), ("cd_e_", 5)]
    assert unfilled_rows(["_a_bcd_e_"], 7) == rows
    assert unfilled_rows(["ab_cd_ef"], 7) == [("ab_cd", 3), ("cd_ef", 3)]
    assert unfilled_rows(["ab_cd"], 3) == [("_", 1)]
    assert tokenize_masked(["abcde_", "abcd_", "_"], 7).num_truncated == 1


def test_masks_replaced_by_pieces():
    texts = tokenize_masked(["ab_cd", "_", "abcdef_"], 8)
    fills = np.array([[ord(c) for c in "xyz"]] * 3, np.int32)
    rows = texts.rows(np.array([2, 0, 1]), fills, 1)
    assert rows_to_text(rows) == ["defxyz", "bxyzcd", "xyz"]
    assert rows["masked_lm_positions"].tolist() == [[5], [3], [2]]


def test_empty_input():
    for texts in ([], ["ab"]):
        assert not len(tokenize_masked(texts, 8).positions)


TEXTS = st.lists(st.text(alphabet="ab_ ", max_size=30), min_size=1, max_size=6)


@given(TEXTS, st.integers(5, 24), st.integers(1, 3))
def test_rows_have_as_much_context_as_fits(lines, max_seq_length, width):
    masked_texts = tokenize_masked(lines, max_seq_length)
    pieces = [line.replace(" ", "") for line in lines]
    masks = [
        (text, index)
        for text, line in enumerate(pieces)
        for index in range(len(line))
        if line[index] == "_"
    ]
    assert masked_texts.num_truncated == sum(len(line) > max_seq_length - 2 for line in pieces)
    assert masked_texts.text_indices.tolist() == [text for text, _ in masks]
    if not masks:
        return
    all_masks = np.arange(len(masks))
    fills = np.full((len(masks), width), ord("x"), np.int32)
    filled = masked_texts.rows(all_masks, fills, 0)
    for mask, ((text, index), row) in enumerate(zip(masks, rows_to_text(filled), strict=True)):
        line = pieces[text]
        mask_start = int(filled["masked_lm_positions"][mask, 0]) - 1
        assert row[mask_start : mask_start + width] == "x" * width
        before, after = row[:mask_start], row[mask_start + width :]
        assert line[:index].endswith(before)
        assert line[index + 1 :].startswith(after)
        assert len(before) + len(after) == min(len(line) - 1, max_seq_length - 2 - width)
        if len(before) < index and len(after) < len(line) - 1 - index:
            assert 0 <= len(after) - len(before) <= 1


def test_pieces_match_the_tokenizer(tmp_path):
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##able", "a", "[", "mask", "]"]
    (tmp_path / "vocab.txt").write_text("\n".join(vocab) + "\n")
    tokenizer = FullTokenizer(str(tmp_path / "vocab.txt"), special_tokens=MASK)
    masked_texts = MaskedTexts(
        ["Unable[MASK]a", "[mask] zebra [MASK]"], BatchTokenizer(tokenizer), 16
    )
    names = tokenizer.convert_ids_to_tokens(masked_texts.pieces.ids.tolist())
    assert names[:4] == ["un", "##able", "[MASK]", "a"]
    # As in the original tokenizer, lower-case [mask] is not a mask.
    assert names[4:] == ["[", "mask", "]", "[UNK]", "[MASK]"]
    assert masked_texts.positions.tolist() == [2, 8]
    assert masked_texts.pieces.row_splits.tolist() == [0, 4, 9]


def test_allowed_pieces():
    names = ["[PAD]", "[unused7]", "[MASK]", "a", "##a", "[", "]", "##", "", "."]
    allowed = allowed_pieces(dict(enumerate(names)), 12)
    allowed_by_kind = {
        kind: [n for n, is_allowed in zip(names, allowed[kind], strict=False) if is_allowed]
        for kind in range(3)
    }
    assert allowed_by_kind[ANY] == names
    assert allowed_by_kind[BEGIN] == ["a", "[", "]", "."]
    assert allowed_by_kind[CONTINUATION] == ["##a", "##"]
    assert not allowed[:, len(names) :].any()


def test_read_lines(tmp_path, monkeypatch):
    content = b"\n  a [MASK] \r\n\t\n[MASK]"
    (tmp_path / "in.txt").write_bytes(content)
    expected = [(2, "a [MASK]"), (4, "[MASK]")]
    assert list(read_masked_texts(str(tmp_path / "in.txt"))) == expected
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    assert list(read_masked_texts("-")) == expected


@pytest.mark.parametrize("text", ["[CLS] a [MASK]", "a [MASK] [SEP]", "a [mask]"])
def test_text_without_mask_or_with_special_tokens(text):
    with pytest.raises(UserError, match=r"^here: expected .* without \[CLS\] and \[SEP\]"):
        require_mask(text, "here")


def test_line_without_mask(tmp_path, monkeypatch):
    content = b"[MASK]\n\na [mask] b\n"
    (tmp_path / "in.txt").write_bytes(content)
    with pytest.raises(
        UserError, match=r"in\.txt:3: expected a text with \[MASK\].*'a \[mask\] b'"
    ):
        list(read_masked_texts(str(tmp_path / "in.txt")))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    with pytest.raises(UserError, match=r"^<stdin>:3: "):
        list(read_masked_texts("-"))
    (tmp_path / "in.jsonl").write_text('{"t": "the [MASK]"}\n{"t": "the film"}\n')
    with pytest.raises(UserError, match=r"in.jsonl:2: expected a text with \[MASK\]"):
        list(read_masked_texts(str(tmp_path / "in.jsonl"), "t"))


@pytest.mark.parametrize(
    ("text", "mask"),
    [
        ("a [MASK] and a <mask>", "<mask>"),
        ("[MASK] {MASK}", "{MASK}"),
        ("a ____ and [MASK]", "____"),
        ("[MASK] and [MASK] mask __init__", None),
    ],
)
def test_masks_of_other_models_warn(run_log, text, mask):
    warn_of_other_masks(["[MASK]", text])
    expected = f"1 of 2 texts has {mask}, which is read as text: write [MASK]"
    assert run_log.messages == [expected] * bool(mask)
