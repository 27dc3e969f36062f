"""Exact match and F1 of answers, as the official scripts of SQuAD 1.1 and 2.0 compute them.

By characters as in Cui et al. 2019, "A Span-Extraction Dataset for Chinese Machine Reading
Comprehension" (CMRC 2018): tokens are Han characters (here kana and Thai, too) and other words, and
F1 counts the longest common run of tokens.
"""

import collections
import difflib
import math
import re
import string
from collections.abc import Callable, Mapping, Sequence

from bert_tf.tasks.question_answering.squad_reader import SquadExample

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)

# The Han characters of CMRC 2018's script; kana; Thai.
_CHARACTERS = "\u4e00-\u9fa5\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f\u0e00-\u0e7f"
_WORD = rf"[^\W{_CHARACTERS}]+"
# A point inside a word, or a comma before digits, does not end it.
_TOKEN = re.compile(rf"[{_CHARACTERS}]|{_WORD}(?:\.{_WORD}|,\d+)*|[^\w\s]")
# As in CMRC 2018's script, and the middle dot of Japanese.
_IGNORED = re.compile(r"[-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』・]")


def normalize_answer(text: str) -> str:
    """Lower-cases a text; removes ASCII punctuation, articles and extra spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(prediction: str, answer: str) -> float:
    """Returns 1 if both are the same, else 0."""
    return float(normalize_answer(prediction) == normalize_answer(answer))


def f1(prediction: str, answer: str) -> float:
    """Returns the F1 of the words; 0 if there are none."""
    predicted, right = normalize_answer(prediction).split(), normalize_answer(answer).split()
    same = sum((collections.Counter(predicted) & collections.Counter(right)).values())
    if not same:
        return 0.0
    precision, recall = same / len(predicted), same / len(right)
    return 2 * precision * recall / (precision + recall)


def uses_characters(examples: Sequence[SquadExample]) -> bool:
    """Returns whether most characters of the right answers are Han, kana or Thai."""
    text = "".join("".join(answer.split()) for e in examples for answer in e.answers or ())
    return 2 * len(re.findall(f"[{_CHARACTERS}]", text)) > len(text)


def exact_characters(prediction: str, answer: str) -> float:
    """Returns 1 if both are the same except for case and punctuation, else 0."""
    one, other = (_IGNORED.sub("", text.lower().strip()) for text in (prediction, answer))
    return float(one == other)


def f1_characters(prediction: str, answer: str) -> float:
    """Returns the F1 of the longest common substring of tokens."""
    one, other = (_TOKEN.findall(_IGNORED.sub("", x.lower())) for x in (prediction, answer))
    if not one or not other:
        return exact_characters(prediction, answer)
    matcher = difflib.SequenceMatcher(None, one, other, autojunk=False)
    return 2 * matcher.find_longest_match().size / (len(one) + len(other))


BY_WORDS = {"exact_match": exact_match, "f1": f1}
BY_CHARACTERS = {"exact_characters": exact_characters, "f1_characters": f1_characters}


def score(
    examples: Sequence[SquadExample],
    predictions: Mapping[str, str],
    metrics: Mapping[str, Callable[[str, str], float]] = BY_WORDS,
) -> dict[str, float]:
    """Returns mean metrics in percent of predictions by question id, by default those of SQuAD 1.1.

    The correct prediction for a question without an answer is "".
    """
    return {
        name: 100
        * sum(max(metric(predictions[e.qas_id], a) for a in e.answers or [""]) for e in examples)
        / len(examples)
        for name, metric in metrics.items()
    }


def score_with_negative(
    examples: Sequence[SquadExample],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float],
) -> dict[str, float]:
    """Returns the metrics of the official script of SQuAD 2.0; arguments are by question id.

    `exact` and `f1` are means in percent, of all questions, of those with answers (`HasAns_`) and
    without (`NoAns_`); `best_exact` and `best_f1` result if questions with null odds above
    `best_exact_thresh` and `best_f1_thresh` get no answer. Unlike the script, which drops answers
    with odds above its `--na-prob-thresh`, 1.0, this counts predictions as they are.
    """
    metrics = {"exact": exact_match, "f1": _f1_or_exact}
    scores = {key: _scores(examples, predictions, metric) for key, metric in metrics.items()}
    has_answer = {example.qas_id: bool(example.answers) for example in examples}
    results: dict[str, float] = {}
    for prefix, kinds in (("", (True, False)), ("HasAns_", (True,)), ("NoAns_", (False,))):
        names = [name for name, has in has_answer.items() if has in kinds]
        if names:
            for key, values in scores.items():
                results[prefix + key] = 100 * sum(values[name] for name in names) / len(names)
            results[f"{prefix}total"] = len(names)
    for key, values in scores.items():
        best, threshold = _best_threshold(values, predictions, null_odds, has_answer)
        results[f"best_{key}"], results[f"best_{key}_thresh"] = best, threshold
    return results


def best_f1_threshold(
    examples: Sequence[SquadExample],
    best_texts: Mapping[str, str],
    null_odds: Mapping[str, float],
) -> float:
    """Returns the threshold of null odds with the best F1, the lowest of several.

    Unlike the official `best_f1_thresh`, it treats questions with equal odds alike, as applying it
    does. `best_texts` are the best answers by question id, however improbable.
    """
    answered = _scores(examples, best_texts, _f1_or_exact)
    unanswered = _scores(examples, dict.fromkeys(best_texts, ""), _f1_or_exact)
    gains: dict[float, float] = collections.defaultdict(float)
    for name in answered:
        gains[null_odds[name]] += answered[name] - unanswered[name]
    # First, no question is answered.
    current = best = 0.0
    threshold = math.nextafter(min(gains), -math.inf)
    for odds in sorted(gains):
        current += gains[odds]
        if current > best:
            best, threshold = current, odds
    return threshold


def _f1_or_exact(prediction: str, answer: str) -> float:
    if not normalize_answer(prediction) or not normalize_answer(answer):
        return exact_match(prediction, answer)
    return f1(prediction, answer)


def _scores(
    examples: Sequence[SquadExample],
    predictions: Mapping[str, str],
    metric: Callable[[str, str], float],
) -> dict[str, float]:
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
    """Returns the best mean in percent, and the highest odds of an answered question."""
    # First, no question is answered; the official threshold is then 0.
    best = current = float(sum(not has for has in has_answer.values()))
    threshold = 0.0
    for name in sorted(scores, key=lambda name: null_odds[name]):
        current += scores[name] if has_answer[name] else -1.0 if predictions[name] else 0.0
        if current > best:
            best, threshold = current, null_odds[name]
    return 100 * best / len(scores), threshold
