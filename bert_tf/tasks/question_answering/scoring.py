"""Exact match and F1 of answers, as the official scripts of SQuAD 1.1 and 2.0 compute them.

Character-level metrics follow Cui et al. 2019, "A Span-Extraction Dataset for Chinese Machine
Reading Comprehension" (CMRC 2018): a token is a Han character (here also a kana, Thai or Hangul
character) or a word in another script, and F1 is based on the longest common run of tokens. For
Korean, they follow Lim et al. 2019, "KorQuAD1.0: Korean QA Dataset for Machine Reading
Comprehension": F1 is based on the characters that the answers share, in any order.
"""

import collections
import difflib
import math
import re
import string
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from bert_tf.tasks.question_answering.squad_reader import SquadExample

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)

_HANGUL = "\uac00-\ud7a3\u1100-\u11ff\u3130-\u318f"
# The Han characters in the CMRC 2018 script, then kana, Thai and Hangul.
_CHARACTERS = f"\u4e00-\u9fa5\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f\u0e00-\u0e7f{_HANGUL}"
_WORD = rf"[^\W{_CHARACTERS}]+"
# A period within a word, or a comma before digits, does not split it.
_TOKEN = re.compile(rf"[{_CHARACTERS}]|{_WORD}(?:\.{_WORD}|,\d+)*|[^\w\s]")
# Becomes a space in the KorQuAD 1.0 script, which then removes other ASCII punctuation.
_KOREAN_SPACES = re.compile("['\"《》<>〈〉()‘’]")
# The punctuation that the CMRC 2018 script ignores, and the Japanese middle dot.
_IGNORED = re.compile(r"[-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』・]")


def normalize_answer(text: str) -> str:
    """Lower-cases a text; removes ASCII punctuation, articles and extra spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(prediction: str, answer: str) -> float:
    """Returns 1 if prediction and answer are equal after normalization, else 0."""
    return float(normalize_answer(prediction) == normalize_answer(answer))


def f1(prediction: str, answer: str) -> float:
    """Returns the F1 score of the words; 0 if prediction and answer share no word."""
    return _f1(normalize_answer(prediction).split(), normalize_answer(answer).split())


def _f1(predicted: Sequence[str], correct: Sequence[str]) -> float:
    num_same = sum((collections.Counter(predicted) & collections.Counter(correct)).values())
    if not num_same:
        return 0.0
    precision, recall = num_same / len(predicted), num_same / len(correct)
    return 2 * precision * recall / (precision + recall)


def should_score_characters(examples: Sequence[SquadExample]) -> bool:
    """Returns whether most characters of the correct answers are Han, kana, Thai or Hangul."""
    return 2 * _count(f"[{_CHARACTERS}]", examples) > _count(r"\S", examples)


def character_metrics(examples: Sequence[SquadExample]) -> dict[str, Callable[[str, str], float]]:
    """Returns `exact_characters` and `f1_characters` for the language of the correct answers."""
    if 2 * _count(f"[{_HANGUL}]", examples) > _count(f"[{_CHARACTERS}]", examples):
        return {"exact_characters": _exact_korean, "f1_characters": _f1_korean}
    return {"exact_characters": exact_characters, "f1_characters": f1_characters}


def _count(pattern: str, examples: Sequence[SquadExample]) -> int:
    return sum(len(re.findall(pattern, text)) for e in examples for text in e.answers or ())


def exact_characters(prediction: str, answer: str) -> float:
    """Returns 1 if prediction and answer differ only in case and punctuation, else 0."""
    predicted, correct = (_IGNORED.sub("", x.lower().strip()) for x in (prediction, answer))
    return float(predicted == correct)


def f1_characters(prediction: str, answer: str) -> float:
    """Returns the F1 score based on the longest common run of tokens."""
    predicted, correct = (_TOKEN.findall(_IGNORED.sub("", x.lower())) for x in (prediction, answer))
    if not predicted or not correct:
        return exact_characters(prediction, answer)
    matcher = difflib.SequenceMatcher(None, predicted, correct, autojunk=False)
    return 2 * matcher.find_longest_match().size / (len(predicted) + len(correct))


def _exact_korean(prediction: str, answer: str) -> float:
    return float(_normalize_korean(prediction) == _normalize_korean(answer))


def _f1_korean(prediction: str, answer: str) -> float:
    # The script would return 0 for a question without an answer, which KorQuAD 1.0 does not have.
    predicted, correct = ("".join(_normalize_korean(x)) for x in (prediction, answer))
    return _f1(predicted, correct) if predicted or correct else 1.0


def _normalize_korean(text: str) -> list[str]:
    return _KOREAN_SPACES.sub(" ", text).lower().translate(_PUNCTUATION).split()


BY_WORDS = {"exact_match": exact_match, "f1": f1}


def score(
    examples: Sequence[SquadExample],
    predictions: Mapping[str, str],
    metrics: Mapping[str, Callable[[str, str], float]] = BY_WORDS,
) -> dict[str, float]:
    """Returns the mean of each metric in percent; by default, the metrics of SQuAD 1.1.

    A prediction is compared with the most similar of the correct answers; "" is correct if there
    are none. `predictions` are keyed by question id.
    """
    return {
        name: 100
        * sum(max(metric(predictions[e.qas_id], a) for a in e.answers or [""]) for e in examples)
        / len(examples)
        for name, metric in metrics.items()
    }


def score_with_negative(
    examples: Sequence[SquadExample], predictions: Mapping[str, str], null_odds: Mapping[str, float]
) -> dict[str, float]:
    """Returns the metrics of the official SQuAD 2.0 script; mappings are keyed by question id.

    `exact` and `f1` are means in percent over all questions, over questions with an answer
    (`HasAns_`), and over questions without one (`NoAns_`). `best_exact` is the mean if questions
    with null odds above `best_exact_thresh` get no answer; likewise `best_f1`. The script drops
    answers with odds above its `--na-prob-thresh` of 1.0; this function drops none.
    """
    metrics = {"exact": exact_match, "f1": _f1_or_exact}
    scores = {key: _score_all(examples, predictions, metric) for key, metric in metrics.items()}
    has_answer = {example.qas_id: bool(example.answers) for example in examples}
    results: dict[str, float] = {}
    for prefix, selected in (("", (True, False)), ("HasAns_", (True,)), ("NoAns_", (False,))):
        ids = [qas_id for qas_id, is_answerable in has_answer.items() if is_answerable in selected]
        if ids:
            for key, values in scores.items():
                results[prefix + key] = 100 * sum(values[qas_id] for qas_id in ids) / len(ids)
            results[f"{prefix}total"] = len(ids)
    for key, values in scores.items():
        best, threshold = _best_threshold(values, predictions, null_odds, has_answer)
        results[f"best_{key}"], results[f"best_{key}_thresh"] = best, threshold
    return results


def best_f1_threshold(
    examples: Sequence[SquadExample], best_texts: Mapping[str, str], null_odds: Mapping[str, float]
) -> float:
    """Returns the threshold for null odds with the best F1; the lowest one in case of ties.

    Questions with equal odds are all answered or all not answered, as in prediction; the official
    `best_f1_thresh` may separate them. `best_texts` are the best answers other than "no answer",
    keyed by question id.
    """
    scores = _score_all(examples, best_texts, _f1_or_exact)
    scores_unanswered = _score_all(examples, dict.fromkeys(best_texts, ""), _f1_or_exact)
    gains = [scores[qas_id] - scores_unanswered[qas_id] for qas_id in scores]
    odds, groups = np.unique([null_odds[qas_id] for qas_id in scores], return_inverse=True)
    # The gain if no question is answered, and then also those with the next null odds.
    totals = np.cumsum([0.0, *np.bincount(groups, gains)])
    thresholds = [math.nextafter(odds[0], -math.inf), *odds]
    return float(thresholds[np.argmax(totals)])


def _f1_or_exact(prediction: str, answer: str) -> float:
    """Returns F1 as in the SQuAD 2.0 script: if either text has no words, the exact match."""
    if not normalize_answer(prediction) or not normalize_answer(answer):
        return exact_match(prediction, answer)
    return f1(prediction, answer)


def _score_all(
    examples: Sequence[SquadExample],
    predictions: Mapping[str, str],
    metric: Callable[[str, str], float],
) -> dict[str, float]:
    """Returns the metric of each question for the most similar correct answer, by question id."""
    return {
        example.qas_id: max(
            metric(predictions[example.qas_id], answer)
            for answer in list(filter(normalize_answer, example.answers or ())) or [""]
        )
        for example in examples
    }


def _best_threshold(
    scores: Mapping[str, float],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float],
    has_answer: Mapping[str, bool],
) -> tuple[float, float]:
    """Returns the best mean in percent, and its threshold: the highest null odds answered."""
    # Start with no question answered, for which the threshold in the official script is 0.
    best = total = float(sum(not is_answerable for is_answerable in has_answer.values()))
    threshold = 0.0
    for qas_id in sorted(scores, key=lambda qas_id: null_odds[qas_id]):
        total += scores[qas_id] if has_answer[qas_id] else -float(bool(predictions[qas_id]))
        if total > best:
            best, threshold = total, null_odds[qas_id]
    return 100 * best / len(scores), threshold
