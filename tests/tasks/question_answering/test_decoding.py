"""N-best lists, answer texts and null scores: parity with the original's files."""

import functools
import gzip
import json
import math

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import baseline_squad
from bert_tf.options import SquadOptions
from bert_tf.tasks.question_answering import decoding
from bert_tf.tasks.question_answering.decoding import (
    Answer,
    Predictions,
    decode,
    get_final_text,
    join_pieces,
    n_best_json,
)
from bert_tf.tasks.question_answering.squad_reader import SquadExample, split_words
from bert_tf.tasks.question_answering.task import top_positions
from bert_tf.tasks.question_answering.windows import Windows
from bert_tf.tokenization import BasicTokenizer, FullTokenizer, WordpieceTokenizer
from bert_tf.tokenization.fast import BatchTokenizer
from tests.oracle import golden
from tests.tasks.question_answering.test_windows import convert_golden

RUNS = ["v1", "v1_b", "v1_ties", "v1_wild", "v2_thr0", "v2_thr-1", "v2_thr3", "v2_ties"]
RUNS += ["v2_n3_len5", "v1flag_on_v2data", "v2_b", "v2_n8_len6"]


@functools.cache
def read_runs():
    return {run["name"]: run for run in json.loads(golden("squad/predictions.json").read_text())}


def find_top_spans(start_logits, end_logits, count):
    outputs = {"start_logits": start_logits, "end_logits": end_logits}
    tensors = {name: keras.ops.convert_to_tensor(logits) for name, logits in outputs.items()}
    top = top_positions(tensors, count, start_logits.shape[1])
    return {name: np.array(values) for name, values in top.items()}


def make_options(n_best_size, max_answer_length, version_2_with_negative=False):
    flags = {"n_best_size": n_best_size, "max_answer_length": max_answer_length}
    return SquadOptions(**flags, version_2_with_negative=version_2_with_negative)


def decode_run(run):
    windows, _, tokenizer = convert_golden(run["features"].removeprefix("features/"))
    logits = np.load(golden(f"squad/{run['logits']}"))
    top = find_top_spans(logits["start_logits"], logits["end_logits"], run["n_best_size"])
    names = ("n_best_size", "max_answer_length", "version_2_with_negative")
    lists = decode(windows, top, tokenizer, make_options(*(run[name] for name in names)))
    return Predictions(windows.questions, lists, run["null_score_diff_threshold"])


def read_golden(name):
    path = golden(f"squad/predictions/{name}")
    return gzip.open(path, "rt").read() if name.endswith(".gz") else path.read_text()


@pytest.mark.parametrize("name", RUNS)
def test_files_match_the_original(name):
    assert read_runs().keys() == set(RUNS)
    run = read_runs()[name]
    outputs = decode_run(run)
    if run["error"]:
        # The original has no answer if no span is valid.
        unanswered = [name for name, texts in outputs.n_best.items() if not texts.text(math.inf)]
        assert unanswered
        assert {outputs.texts[name] for name in unanswered} == {""}
        return
    assert json.dumps(outputs.texts, indent=4) + "\n" == read_golden(f"{name}/predictions.json")
    lists = {key: value.answers for key, value in outputs.n_best.items()}
    assert n_best_json(lists) == read_golden(f"{name}/nbest_predictions.json.gz")
    odds = json.dumps(outputs.null_odds, indent=4) + "\n"
    has_odds = run["version_2_with_negative"]
    assert odds == (read_golden(f"{name}/null_odds.json") if has_odds else "{}\n")


def test_answer_texts_match_the_original():
    units = json.loads(golden("squad/units.json").read_text())
    assert len(units["get_final_text"]) > 20
    for unit in units["get_final_text"]:
        result = unit.pop("result")
        assert get_final_text(**unit) == result
    for unit in filter(lambda unit: unit["logits"], units["best_indexes"]):
        logits = np.array([unit["logits"]], np.float32)
        top = find_top_spans(logits, logits, unit["n_best_size"])
        assert top["start_indexes"][0].tolist() == unit["result"]
    for unit in units["softmax"]:
        entries = [Answer("", score, 0.0) for score in unit["scores"]]
        if entries:
            assert decoding.probabilities(entries) == unit["result"]


class FakeVocabulary(FullTokenizer):
    """A vocabulary of letters and a few words."""

    def __init__(self, lower):
        letters = "abcdefghijklmnopqrstuvwxyzABC0123456789.,-#'\u5317"
        pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *letters, "cafe", "##fe", "ab", "##bc"]
        pieces += [f"##{letter}" for letter in letters if letter.isalnum()]
        self.vocab = {piece: n for n, piece in enumerate(pieces)}
        self.inv_vocab = dict(enumerate(pieces))
        self.basic_tokenizer = BasicTokenizer(lower)
        self.wordpiece_tokenizer = WordpieceTokenizer(self.vocab)


TEXTS = st.text(
    alphabet="abcfeABC \u00a0\u3000.,-#'\u00e9\u0301\u5317\u3042\u03a3\u200b9", max_size=30
)


@given(TEXTS, st.booleans(), st.data())
def test_answer_texts_match_the_reference_alignment(text, lower, draw):
    """Whole words need no alignment; parts of words do."""
    tokenizer = FakeVocabulary(lower)
    example = SquadExample("1", "a", split_words(text).words)
    windows = Windows([example], BatchTokenizer(tokenizer), 200, 100, 10)
    count = len(windows.token_ids)
    if not count:
        return
    start = draw.draw(st.integers(0, count - 1))
    end = draw.draw(st.integers(start, count - 1))
    pieces = tokenizer.convert_ids_to_tokens(windows.token_ids[start : end + 1].tolist())
    first, last = windows.token_words[start], windows.token_words[end]
    words = " ".join(example.doc_tokens[first : last + 1])
    expected = get_final_text(join_pieces(pieces), words, lower)
    logits = np.zeros((2, 1, 200), np.float32)
    logits[0, 0, windows.offset[0] + start] = logits[1, 0, windows.offset[0] + end] = 1
    (n_best,) = decode(windows, find_top_spans(*logits, 1), tokenizer, make_options(1, 200))
    assert n_best.answers[0].text == expected


def test_answers_in_other_scripts():
    text = "\u5317\u4eac\u5e02 \uff11\uff19\uff15\uff10\u5e74 Cafe\u0301, re\u0301sume\u0301."
    # Full-width digits are kept; accents are stripped, with their combining characters.
    assert get_final_text("\u4eac", text, True) == text
    cased = "\u5317\u4eac\u5e02 \uff11\uff19\uff15\uff10\u5e74"
    assert get_final_text("\u4eac \u5e02", cased, False) == "\u4eac\u5e02"
    assert get_final_text("\uff11\uff19\uff15\uff10", cased, True) == "\uff11\uff19\uff15\uff10"
    assert get_final_text("cafe", "Cafe\u0301,", True) == "Cafe\u0301,"
    assert get_final_text("Caf\u00e9", "Caf\u00e9,", False) == "Caf\u00e9"


@pytest.mark.parametrize("negative", [False, True])
def test_no_windows_or_no_valid_span(negative):
    tokenizer = FakeVocabulary(True)
    examples = [
        SquadExample("1", "a", split_words("").words),
        SquadExample("2", "a", split_words("b c").words),
    ]
    options = make_options(2, 30, negative)
    empty = Windows(examples[:1], BatchTokenizer(tokenizer), 10, 4, 4)
    no_logits = np.zeros((0, 10), np.float32)
    (decoded_answers,) = decode(empty, find_top_spans(no_logits, no_logits, 2), tokenizer, options)
    expected = Answer("" if negative else "empty", 0.0, 0.0)
    assert decoded_answers.answers == [expected]
    assert decoded_answers.null_odds == (0.0 if negative else None)
    assert decoded_answers.text(0.5) == expected.text
    windows = Windows(examples, BatchTokenizer(tokenizer), 10, 4, 4)
    # [CLS] and padding get the highest logits.
    logits = np.array([[3, 0, 0, 0, 0, 0, 2, 2, 1, 1]], np.float32)
    decoded_answers = decode(windows, find_top_spans(logits, logits, 2), tokenizer, options)[1]
    assert decoded_answers.answers == [Answer("", 3.0, 3.0) if negative else expected]
    assert decoded_answers.null_odds == (6.0 if negative else None)
    assert decoded_answers.text(100.0) == expected.text


def test_n_best_lists_match_json_dump():
    lists = {
        '"\u5317': [Answer("caf\u00e9\n", 1.5, -2e-7), Answer("", float("inf"), 1e30)],
        "2": [Answer("x", float("nan"), 0.1)],
    }
    expected = {
        name: [
            {"text": x.text, "probability": probability}
            | {"start_logit": x.start_logit, "end_logit": x.end_logit}
            for x, probability in zip(entries, decoding.probabilities(entries), strict=True)
        ]
        for name, entries in lists.items()
    }
    assert n_best_json(lists) == json.dumps(expected, indent=4) + "\n"
    assert n_best_json({}) == "{}\n"


@given(st.data())
def test_n_best_lists_match_plain_loops(draw):
    tokenizer = FakeVocabulary(True)
    texts = draw.draw(st.lists(TEXTS, min_size=1, max_size=4))
    examples = [SquadExample(str(n), "a", split_words(text).words) for n, text in enumerate(texts)]
    lengths = (draw.draw(st.integers(6, 20)), draw.draw(st.integers(1, 20)), 2)
    windows = Windows(examples, BatchTokenizer(tokenizer), *lengths)
    features = list(baseline_squad.convert_examples(examples, tokenizer, *lengths))
    assert len(features) == len(windows)
    seed, count, longest = (draw.draw(st.integers(1, 9)) for _ in range(3))
    # Few distinct values, for many ties.
    shape = (2, len(features), lengths[0])
    logits = np.random.default_rng(seed).integers(0, 4, shape).astype(np.float32)
    expected = baseline_squad.decode_predictions(
        examples, features, *logits.astype(float).tolist(), count, longest, do_lower_case=True
    )
    lists = decode(windows, find_top_spans(*logits, count), tokenizer, make_options(count, longest))
    predictions = Predictions(examples, lists, 0.0)
    assert tuple(predictions.contents().values()) == expected
    assert [prediction.text for prediction in predictions] == list(json.loads(expected[0]).values())
