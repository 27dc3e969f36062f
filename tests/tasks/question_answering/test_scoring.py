"""Exact match and F1, compared with hand-computed values and the official formulas."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.tasks.question_answering import scoring
from bert_tf.tasks.question_answering.squad_reader import SquadExample


def example(name, *answers):
    return SquadExample(name, "q", ["x"], answers=answers)


def test_normalization():
    assert scoring.normalize_answer(" The  Cat's, an A-team. ") == "cats ateam"
    assert scoring.normalize_answer("\u5317\u4eac\u3002") == "\u5317\u4eac\u3002"
    assert scoring.exact_match("the cat.", "Cat") == 1.0
    assert scoring.f1("a big black cat", "cat") == pytest.approx(0.5)
    assert scoring.f1("the", "a") == scoring.f1("dog", "cat") == 0.0
    # A repeated word counts twice.
    assert scoring.f1("cat cat", "cat cat dog") == pytest.approx(0.8)


def test_squad_v1_metrics():
    examples = [example("1", "cat", "black cat"), example("2", "dog"), example("3", "cow")]
    metrics = scoring.score(examples, {"1": "the black cat", "2": "big dog", "3": ""})
    assert metrics == {
        "exact_match": pytest.approx(100 / 3),
        "f1": pytest.approx(100 * (5 / 3) / 3),
    }


def test_squad_v2_metrics():
    examples = [example("1", "cat"), example("2"), example("3"), example("4", "big cow")]
    predictions = {"1": "cat", "2": "", "3": "dog", "4": "cow"}
    null_odds = {"1": -3.0, "2": 2.0, "3": -1.0, "4": -2.0}
    metrics = scoring.score_with_negative(examples, predictions, null_odds)
    partial_f1 = 200 / 3
    assert metrics == {
        "exact": 50.0,
        "f1": pytest.approx((100 + 100 + 0 + partial_f1) / 4),
        "total": 4,
        "HasAns_exact": 50.0,
        "HasAns_f1": pytest.approx((100 + partial_f1) / 2),
        "HasAns_total": 2,
        "NoAns_exact": 50.0,
        "NoAns_f1": 50.0,
        "NoAns_total": 2,
        # With threshold -3, one question is answered; with -2, two; higher ones add a wrong answer.
        "best_exact": 75.0,
        "best_exact_thresh": -3.0,
        "best_f1": pytest.approx((100 + partial_f1 + 200) / 4),
        "best_f1_thresh": -2.0,
    }
    assert scoring.best_f1_threshold(examples, predictions, null_odds) == -2.0
    # Questions with equal null_odds share a threshold.
    equal_odds = dict.fromkeys(null_odds, 0.0)
    assert scoring.best_f1_threshold(examples[1:], predictions, equal_odds) < 0.0
    metrics = scoring.score_with_negative([example("1")], {"1": ""}, {"1": 1.0})
    assert "HasAns_exact" not in metrics
    assert metrics["exact"] == metrics["NoAns_f1"] == metrics["best_f1"] == 100.0


def test_character_metrics():
    # Punctuation is ignored.
    assert scoring.exact_characters(" 《北京大学》", "北京大学。") == 1.0
    assert scoring.exact_characters("北京大学", "北京") == 0.0
    # The longest common substring has 4 characters; the texts have 5 and 4.
    assert scoring.f1_characters("在北京大学", "北京大学。") == pytest.approx(2 * 4 / (5 + 4))
    assert scoring.f1_characters("大学北京", "北京大学") == pytest.approx(0.5)
    assert scoring.f1_characters("2018年", "2018年8月") == pytest.approx(2 * 2 / (2 + 4))
    assert scoring.f1_characters("iPhone手机", "IPHONE 手机") == 1.0
    assert scoring.f1_characters("3.14和1,000", "3.14") == pytest.approx(2 / (3 + 1))
    assert scoring.f1_characters("トム・クルーズ", "クルーズ") == pytest.approx(2 * 4 / (6 + 4))
    assert scoring.f1_characters("กรุงเทพ", "กรุง") == pytest.approx(2 * 4 / (7 + 4))
    assert scoring.f1_characters("上海", "北京") == scoring.f1_characters("", "北京") == 0.0
    assert scoring.f1_characters("", "") == scoring.exact_characters("", "") == 1.0


def test_korean_metrics():
    """Values of KorQuAD 1.0's official script: F1 of the bag of characters without spaces."""
    korean = scoring.character_metrics([example("1", "사과"), example("2", "1990")])
    f1, exact = korean["f1_characters"], korean["exact_characters"]
    assert f1("사과를", "사과") == pytest.approx(0.8)
    assert f1("과사", "사과") == f1("〈사 과〉", "사과") == 1.0
    assert f1("1991년", "1990년") == pytest.approx(0.8)
    assert f1("배", "사과") == f1("", "사과") == 0.0
    assert exact("'사과'", "사과.") == exact("a 사과", "A 사과") == f1("", "") == 1.0
    assert exact("사 과", "사과") == 0.0
    assert (
        scoring.character_metrics([example("1", "上海")])["f1_characters"] is scoring.f1_characters
    )
    # A Korean answer beside answers in Chinese: each syllable is a token.
    assert scoring.f1_characters("사과를", "사과") == pytest.approx(0.8)


def test_character_metrics_use_the_best_answer():
    examples = [example("1", "北京", "北京市"), example("2", "上海"), example("3")]
    metrics = scoring.score(
        examples, {"1": "北京市", "2": "", "3": ""}, scoring.character_metrics(examples)
    )
    assert metrics == {
        "exact_characters": pytest.approx(200 / 3),
        "f1_characters": pytest.approx(200 / 3),
    }


@pytest.mark.parametrize(
    ("answers", "by_characters"),
    [
        (["北京", "Peking"], False),
        (["北京大学 的 学生", "Peking"], True),
        (["トム"], True),
        (["กรุง เทพ"], True),
        (["서울"], True),
        ([], False),
    ],
)
def test_languages_without_spaces(answers, by_characters):
    assert scoring.should_score_characters([example("1", *answers), example("2")]) == by_characters


HAN = st.text(alphabet="北京大学ab 。：-", max_size=9)


def split_tokens(text):
    """Tokenizes as in the CMRC 2018 script: single Han characters, runs of other text."""
    result, word = [], ""
    for char in text.lower():
        if char in "。：-":
            continue
        if char in "北京大学 ":
            result += [word, char.strip()]
            word = ""
        else:
            word += char
    return [token for token in [*result, word] if token]


@given(HAN, HAN.filter(split_tokens))
def test_character_f1_matches_plain_loops(prediction, answer):
    predicted_tokens, answer_tokens = split_tokens(prediction), split_tokens(answer)
    runs = (
        size
        for first in range(len(predicted_tokens))
        for size in range(1, len(predicted_tokens) - first + 1)
        for at in range(len(answer_tokens))
        if predicted_tokens[first : first + size] == answer_tokens[at : at + size]
    )
    expected = 2 * max(runs, default=0) / (len(predicted_tokens) + len(answer_tokens))
    assert scoring.f1_characters(prediction, answer) == pytest.approx(expected)


TEXTS = st.sampled_from(["cat", "black cat", "the", "-", "dog"])
ANY = st.text(alphabet="ab -.AT\u5317", max_size=6) | TEXTS


@given(
    st.lists(
        st.tuples(st.lists(TEXTS, max_size=2), TEXTS, st.integers(-2, 2)), min_size=1, max_size=8
    )
)
def test_best_threshold_is_optimal(rows):
    examples = [example(str(n), *answers) for n, (answers, _, _) in enumerate(rows)]
    texts = {str(n): text for n, (_, text, _) in enumerate(rows)}
    null_odds = {str(n): float(value) for n, (_, _, value) in enumerate(rows)}

    def f1_at(threshold):
        chosen = {name: "" if null_odds[name] > threshold else texts[name] for name in texts}
        return scoring.score_with_negative(examples, chosen, null_odds)["f1"]

    best = scoring.best_f1_threshold(examples, texts, null_odds)
    assert f1_at(best) == pytest.approx(max(map(f1_at, [-100.0, *null_odds.values()])))


def split_words(text):
    letters = "".join(char for char in text.lower() if char not in string.punctuation)
    return [word for word in letters.split() if word not in ("a", "an", "the")]


def plain_f1(prediction, answer):
    """Computes F1 as in the SQuAD 2.0 script, with plain loops."""
    predicted_words, answer_words = split_words(prediction), split_words(answer)
    if not predicted_words or not answer_words:
        return float(predicted_words == answer_words)
    num_common = sum(
        min(predicted_words.count(word), answer_words.count(word)) for word in set(predicted_words)
    )
    return 2 * num_common / (len(predicted_words) + len(answer_words))


@given(st.lists(st.tuples(st.lists(TEXTS, max_size=3), ANY), min_size=1, max_size=6))
def test_metrics_match_plain_loops(rows):
    examples = [example(str(n), *answers) for n, (answers, _) in enumerate(rows)]
    predictions = {str(n): text for n, (_, text) in enumerate(rows)}
    metrics = scoring.score_with_negative(examples, predictions, dict.fromkeys(predictions, 0.0))
    exact = f1 = 0.0
    for answers, text in rows:
        non_empty = [answer for answer in answers if split_words(answer)] or [""]
        exact += max(split_words(text) == split_words(answer) for answer in non_empty)
        f1 += max(plain_f1(text, answer) for answer in non_empty)
    assert metrics["exact"] == pytest.approx(100 * exact / len(rows))
    assert metrics["f1"] == pytest.approx(100 * f1 / len(rows))
