"""Word windows: each word is labeled in one window, the one with the most context for the word."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.tasks.token_classification.windows import WordWindows, split_words
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.fast import BatchTokenizer
from bert_tf.tokenization.ragged_ids import RaggedIds
from tests.tasks import letters
from tests.tasks.letters import CLS, SEP, UNK, LetterTokenizer


def make_windows(sentences, max_seq_length, document_starts=None):
    words = [word for sentence in sentences for word in sentence]
    sentence_starts = np.cumsum([0, *map(len, sentences)]).tolist()
    return WordWindows(words, sentence_starts, LetterTokenizer(), max_seq_length, document_starts)


def rows_to_text(windows):
    """Returns the text of each row; words that are labeled in that row start with a capital."""
    texts = [[*text] for text in letters.rows_to_text(windows.inputs(0, len(windows)))]
    for row, position in zip(*windows.word_positions(0, len(windows)), strict=True):
        texts[row][position - 1] = texts[row][position - 1].upper()
    return ["".join(text) for text in texts]


def test_each_short_sentence_is_one_row():
    assert rows_to_text(make_windows([["ab", "c"], ["d"]], 8)) == ["AbC", "D"]


def test_long_sentences_are_split_into_overlapping_windows():
    # With max_seq_length=6, four pieces fit next to [CLS] and [SEP].
    assert rows_to_text(make_windows([list("abcdefgh"), ["x"]], 6)) == ["ABCd", "cDEf", "eFGH", "X"]
    assert rows_to_text(make_windows([list("abcde")], 6)) == ["ABCd", "bcDE"]
    assert rows_to_text(make_windows([list("abc")], 3)) == ["A", "B", "C"]


def test_long_word_is_truncated():
    assert rows_to_text(make_windows([["a", "bcdefghijkl", "m"]], 6)) == ["ABcd", "jklM"]
    assert rows_to_text(make_windows([["bcdefghijkl"]], 5)) == ["Bcd"]


def test_word_without_pieces_is_unknown():
    windows = make_windows([["a", " ", "b"], [" "]], 8)
    assert windows.inputs(0, 2)["input_ids"][:, :6].tolist() == [
        [CLS, ord("a"), UNK, ord("b"), SEP, 0],
        [CLS, UNK, SEP, 0, 0, 0],
    ]
    assert windows.word_positions(0, 2)[1].tolist() == [1, 2, 3, 1]
    assert windows.word_positions(1, 2)[0].tolist() == [0]


def test_empty_sentences_have_no_windows():
    windows = make_windows([[], ["ab"], [], list("cdefg"), [], []], 6)
    assert rows_to_text(windows) == ["Ab", "CDEf", "deFG"]
    assert windows.first_window.tolist() == [0, 0, 1, 1, 3, 3, 3]
    assert len(make_windows([[], []], 6)) == len(make_windows([], 6)) == 0


def test_document_context():
    sentences = [["ab"], ["cd", "e"], ["fgh"], ["ij"], ["klmnopq"]]
    # The second document starts at `ij`, the fifth word.
    windows = make_windows(sentences, 9, document_starts=[0, 4, 6])
    assert rows_to_text(windows) == ["Abcdefg", "abCdEfg", "bcdeFgh", "Ijklmno", "Klmnopq"]
    assert rows_to_text(make_windows(sentences, 100, [0, 4, 6])) == [
        "Abcdefgh",
        "abCdEfgh",
        "abcdeFgh",
        "Ijklmnopq",
        "ijKlmnopq",
    ]


SENTENCES = st.lists(
    st.lists(st.integers(0, 9).map(lambda size: "x" * size or " "), min_size=1, max_size=20),
    min_size=1,
    max_size=5,
)


@given(SENTENCES, st.integers(3, 24), st.sets(st.integers(1, 4)), st.booleans())
def test_every_word_is_labeled_once(sentences, max_seq_length, first_sentences, doc_context):
    """Each word is labeled once, in order, at its first piece, in the window with most context.

    `first_sentences` are the indices of sentences that begin a document, in addition to 0.
    """
    words = [word for sentence in sentences for word in sentence]
    # A word without pieces becomes [UNK].
    num_pieces = [max(len(word.strip()), 1) for word in words]
    first_piece = np.cumsum([0, *num_pieces])
    sentence_starts = np.cumsum([0, *map(len, sentences)])
    document_starts = sorted(
        {0, len(words)}
        | {int(sentence_starts[n]) for n in first_sentences if n < len(sentence_starts)}
    )

    class CountingTokenizer(LetterTokenizer):
        """Numbers the pieces of each word from 10, so that 10 is the first piece of any word."""

        def encode(self, texts):
            return RaggedIds.from_lists([range(10, 10 + len(text.strip())) for text in texts])

    windows = WordWindows(
        words,
        sentence_starts.tolist(),
        CountingTokenizer(),
        max_seq_length,
        document_starts if doc_context else None,
    )
    input_ids = windows.inputs(0, len(windows))["input_ids"]
    row, position_in_row = windows.word_positions(0, len(windows))
    assert len(row) == len(words)
    assert (np.diff(row) >= 0).all()
    assert set(row.tolist()) == set(range(len(windows)))
    max_pieces = max_seq_length - 2
    assert (windows.length <= max_pieces).all()
    for index, word in enumerate(words):
        window, position = row[index], position_in_row[index]
        assert windows.start[window] + position - 1 == first_piece[index]
        assert input_ids[window, position] == (10 if word.strip() else UNK)
        sentence = int(np.searchsorted(sentence_starts, index, "right")) - 1
        start, end = first_piece[sentence_starts[sentence : sentence + 2]]
        if end - start <= max_pieces:
            continue
        # Number of pieces between the word's first piece and the nearer end of each window of its
        # sentence; negative for windows that do not contain the piece.
        sentence_of_window = np.searchsorted(sentence_starts, windows.first_word[:-1], "right") - 1
        in_sentence = sentence_of_window == sentence
        offset = first_piece[index] - windows.start[in_sentence]
        context = np.minimum(offset, windows.length[in_sentence] - 1 - offset)
        assert min(position - 1, max_pieces - position) == context.max()
    if doc_context:
        # Windows stay inside their document, and are full if it has enough pieces.
        for n in range(len(windows)):
            next_document = np.searchsorted(document_starts, windows.first_word[n], "right")
            start, end = first_piece[document_starts[next_document - 1 : next_document + 1]]
            assert windows.length[n] == min(max_pieces, end - start)
            assert start <= windows.start[n] <= windows.start[n] + windows.length[n] <= end


@pytest.mark.parametrize("do_lower_case", [True, False])
def test_pieces_match_the_tokenizer(tmp_path, do_lower_case):
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##able", "U", ".", "n", "u"]
    (tmp_path / "vocab.txt").write_text("\n".join(vocab) + "\n")
    tokenizer = FullTokenizer(str(tmp_path / "vocab.txt"), do_lower_case)
    words = ["unable", "U.N.", "\x07", "unable", "zebra"]
    windows = WordWindows(words, [0, 5], BatchTokenizer(tokenizer), 16)
    tokens = [token for word in words for token in tokenizer.tokenize(word) or ["[UNK]"]]
    ids = tokenizer.convert_tokens_to_ids(["[CLS]", *tokens, "[SEP]"])
    assert windows.inputs(0, 1)["input_ids"][0, : len(ids)].tolist() == ids


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The U.N. said (twice): no.", "The U.N. said ( twice ) : no ."),
        ("Mr. O'Brien of J. P. Morgan Inc.", "Mr. O'Brien of J. P. Morgan Inc ."),
        ("Anna's dog, the boys' dog", "Anna 's dog , the boys ' dog"),
        ('"St. Moritz", e.g., at 10.30', '" St. Moritz " , e.g. , at 10.30'),
        ("it's Anna’s", "it 's Anna ’s"),
        ("This is Bo's. Not Al's.", "This is Bo 's . Not Al 's ."),
        ("... _ 's", ". . . _ ' s"),
        ("北京 in 中国.", "北 京 in 中 国 ."),
        (" \t\n", ""),
    ],
)
def test_split_words(text, words):
    assert split_words(text) == words.split()


@given(st.text(st.sampled_from("aB.'’s,_(- \t\u00e9")))
def test_split_words_keeps_all_characters(text):
    words = split_words(text)
    assert "".join(words) == "".join(text.split())
    assert all(words)
