"""Context windows: parity with the original's rows and maps, and maximum context."""

import functools
import gzip
import json
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.tasks.question_answering.squad_reader import (
    SquadExample,
    read_squad_examples,
    split_words,
)
from bert_tf.tasks.question_answering.windows import Windows
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.fast import BatchTokenizer
from tests.oracle import golden
from tests.tasks.letters import LetterTokenizer

NAMES = ["train1_a", "train2_a", "dev1_a", "dev2_a", "train1_b", "dev1_b", "dev2_b"]
NAMES += ["train2_c", "dev1_c", "dev2_c", "dev1_d"]


@functools.cache
def convert_golden(name):
    """Returns windows, parameters and tokenizer of a stored conversion."""
    rows = {row["name"]: row for row in json.loads(golden("squad/conversions.json").read_text())}
    assert rows.keys() == set(NAMES)
    row = rows[name]
    file, order = row["source"].split(" ", 1) if " " in row["source"] else (row["source"], "")
    examples = read_squad_examples(str(golden(f"squad/{file}")), row["is_training"], "v2" in file)
    if "shuffle" in order:
        random.Random(12345).shuffle(examples)
    tokenizer = FullTokenizer(str(golden(f"vocab/{row['vocab']}.txt")), row["do_lower_case"])
    lengths = (row["max_seq_length"], row["doc_stride"], row["max_query_length"])
    return Windows(examples, BatchTokenizer(tokenizer), *lengths), row, tokenizer


@pytest.mark.parametrize("name", NAMES)
def test_rows_match_the_original(name):
    windows, row, _ = convert_golden(name)
    expected = np.load(golden(f"squad/features/{name}.npz"))
    assert len(windows) == row["num_features"] == len(expected["unique_ids"])
    half = len(windows) // 2
    for part in (slice(None), slice(0, half), slice(half, None)):
        view = windows[part]
        inputs = view.inputs()
        if row["is_training"]:
            inputs |= view.targets()
        for key, values in inputs.items():
            np.testing.assert_array_equal(values, expected[key][part], key)
    np.testing.assert_array_equal(
        windows[half : half + 1].inputs()["input_ids"][0], expected["input_ids"][half]
    )


def max_context_flags(windows):
    """Returns the maximum-context flags of all tokens [N, M]."""
    rows = np.arange(len(windows))
    positions = np.broadcast_to(np.arange(windows.length.max()), (len(rows), windows.length.max()))
    return windows.is_max_context(rows, positions)


@pytest.mark.parametrize("name", NAMES)
def test_token_maps_match_the_original(name):
    windows, _, tokenizer = convert_golden(name)
    with gzip.open(golden(f"squad/features/{name}.json.gz"), "rt") as file:
        features = json.load(file)
    context = max_context_flags(windows)
    ids = windows.inputs()["input_ids"]
    for n, feature in enumerate(features):
        assert feature["example_index"] == windows.question_index[n]
        assert feature["doc_span_index"] == windows.window_index[n]
        offset, length = int(windows.offset[n]), int(windows.length[n])
        tokens = tokenizer.convert_ids_to_tokens(ids[n, : offset + length + 1].tolist())
        assert tokens == feature["tokens"]
        begin = int(windows.first_token(np.array([n]))[0])
        words = windows.token_words[begin : begin + length]
        # Relative to the first word of the text.
        first = words[0] - feature["token_to_orig_map"][0][1]
        token_map = [[offset + position, int(word - first)] for position, word in enumerate(words)]
        assert token_map == feature["token_to_orig_map"]
        assert (np.flatnonzero(context[n]) + offset).tolist() == feature["max_context_positions"]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=4), st.integers(8, 20), st.integers(1, 25))
def test_each_token_has_max_context_in_one_window(lengths, max_seq_length, doc_stride):
    examples = [
        SquadExample(str(n), "q", split_words("x" * size).words) for n, size in enumerate(lengths)
    ]
    windows = Windows(examples, LetterTokenizer(), max_seq_length, doc_stride, 4)
    context = max_context_flags(windows)
    best: dict[tuple[int, int], tuple[float, int]] = {}
    for n in range(len(windows)):
        start, length = int(windows.start[n]), int(windows.length[n])
        for position in range(length):
            score = min(position, length - 1 - position) + 0.01 * length
            token = (int(windows.question_index[n]), start + position)
            if token not in best or score > best[token][0]:
                best[token] = (score, n)
    assert set(best) == {(e, t) for e, size in enumerate(lengths) for t in range(size)}
    for n in range(len(windows)):
        expected = [
            best[int(windows.question_index[n]), int(windows.start[n]) + position][1] == n
            for position in range(int(windows.length[n]))
        ]
        assert context[n].tolist()[: len(expected)] == expected
        assert not context[n, len(expected) :].any()


def test_texts_without_tokens_have_no_windows():
    examples = [
        SquadExample(str(n), "q", split_words(text).words) for n, text in enumerate(["", "ab", " "])
    ]
    windows = Windows(examples, LetterTokenizer(), 10, 4, 4)
    assert windows.question_index.tolist() == [1]
    assert windows.inputs()["input_ids"].tolist() == [[1, 113, 2, 97, 98, 2, 0, 0, 0, 0]]
    assert len(Windows(examples[:1], LetterTokenizer(), 10, 4, 4)) == 0


@pytest.mark.parametrize(
    ("doc_stride", "max_length", "num_split"),
    [(9, 30, 1), (100, 30, 1), (9, 2, 0), (5, 5, 0), (5, 8, 1)],
)
def test_answers_that_no_window_has_as_a_whole(doc_stride, max_length, num_split):
    words = list("abcdefghijklmnopqrstuvwxyz")
    spans = [(8, 10), (1, 3), (18, 25)]  # a window has 9 tokens
    examples = [
        SquadExample(str(start), "q", words, "".join(words[start : end + 1]), start, end)
        for start, end in spans
    ]
    examples.append(SquadExample("none", "q", words, "", -1, -1, True))
    windows = Windows(examples, LetterTokenizer(), 13, doc_stride, 4)
    assert windows.num_split_answers(max_length) == num_split
