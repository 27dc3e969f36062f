"""Exact match and F1 of answers, as the official scripts of SQuAD 1.1 and 2.0 count them.

By characters as Cui et al. 2019, "A Span-Extraction Dataset for Chinese Machine Reading
Comprehension" (CMRC 2018): Han characters (here kana and Thai, too) are tokens one by one, other
text is cut into words, and F1 is of the longest common run of tokens.
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

# The Han characters that the script of CMRC 2018 knows; kana; Thai.
_CHARACTERS = "\u4e00-\u9fa5\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f\u0e00-\u0e7f"
_WORD = rf"[^\W{_CHARACTERS}]+"
# A point inside of a word, or a comma before digits, does not end it.
_TOKEN = re.compile(rf"[{_CHARACTERS}]|{_WORD}(?:\.{_WORD}|,\d+)*|[^\w\s]")
# What the script of CMRC 2018 leaves out, and the middle dot of Japanese.
_IGNORED = re.compile(r"[-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』・]")


def normalize_answer(text: str) -> str:
    """Lower case, without punctuation (of ASCII), articles and superfluous spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(prediction: str, answer: str) -> float:
    """1 if both are the same, else 0."""
    return float(normalize_answer(prediction) == normalize_answer(answer))


def f1(prediction: str, answer: str) -> float:
    """Harmonic mean of precision and recall of the words; 0 where there are none."""
    predicted, right = normalize_answer(prediction).split(), normalize_answer(answer).split()
    same = sum((collections.Counter(predicted) & collections.Counter(right)).values())
    if not same:
        return 0.0
    precision, recall = same / len(predicted), same / len(right)
    return 2 * precision * recall / (precision + recall)


def uses_characters(examples: Sequence[SquadExample]) -> bool:
    """Whether most characters of the reference answers are Han, kana or Thai."""
    text = "".join("".join(answer.split()) for e in examples for answer in e.answers or ())
    return 2 * len(re.findall(f"[{_CHARACTERS}]", text)) > len(text)


def exact_characters(prediction: str, answer: str) -> float:
    """1 if both are the same but for case and punctuation, else 0."""
    one, other = (_IGNORED.sub("", text.lower().strip()) for text in (prediction, answer))
    return float(one == other)


def f1_characters(prediction: str, answer: str) -> float:
    """Harmonic mean of precision and recall of the longest common run of tokens."""
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
    measures: Mapping[str, Callable[[str, str], float]] = BY_WORDS,
) -> dict[str, float]:
    """Means in percent, by default what the official script of SQuAD 1.1 prints.

    Args:
        examples: questions with their answers; where there is none, "" is right.
        predictions: an answer to each, by its id.
        measures: what is computed, by its name.
    """
    return {
        name: 100
        * sum(max(measure(predictions[e.qas_id], a) for a in e.answers or [""]) for e in examples)
        / len(examples)
        for name, measure in measures.items()
    }


def score_with_negative(
    examples: Sequence[SquadExample],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float],
) -> dict[str, float]:
    """What the official script of SQuAD 2.0 prints, thresholds included.

    The script itself does not count answers whose odds are above its own `--na-prob-thresh`, 1.0,
    which is meant for probabilities; here predictions count as they are.

    Args:
        examples: questions with their answers, if they have some.
        predictions: an answer to each, by its id; "" for none.
        null_odds: how probable it is that there is none.

    Returns:
        `exact` and `f1`, means in percent, of all questions, of those with answers (`HasAns_`) and
        without (`NoAns_`); `best_exact` and `best_f1`, if those had no answer whose odds are above
        `best_exact_thresh` and `best_f1_thresh`.
    """
    both = [_scores(examples, predictions, measure) for measure in (exact_match, _f1_or_nothing)]
    has_answer = {example.qas_id: bool(example.answers) for example in examples}
    results: dict[str, float] = {}
    for prefix, kinds in (("", (True, False)), ("HasAns_", (True,)), ("NoAns_", (False,))):
        names = [name for name, has in has_answer.items() if has in kinds]
        if names:
            for key, scores in zip(("exact", "f1"), both, strict=True):
                results[prefix + key] = 100 * sum(scores[name] for name in names) / len(names)
            results[f"{prefix}total"] = len(names)
    for key, scores in zip(("exact", "f1"), both, strict=True):
        best, threshold = _best_threshold(scores, predictions, null_odds, has_answer)
        results[f"best_{key}"], results[f"best_{key}_thresh"] = best, threshold
    return results


def best_f1_threshold(
    examples: Sequence[SquadExample],
    best_texts: Mapping[str, str],
    null_odds: Mapping[str, float],
) -> float:
    """The threshold of null odds that gives the best F1; of equally good ones the lowest.

    Other than the official script's `best_f1_thresh` it is meant to be used, so questions with the
    same odds go together, and what is compared is the F1 that comes out.

    Args:
        examples: questions with their answers, if they have some.
        best_texts: the best answer to each, however improbable, by its id.
        null_odds: see `score_with_negative`.
    """
    answered = _scores(examples, best_texts, _f1_or_nothing)
    unanswered = _scores(examples, dict.fromkeys(best_texts, ""), _f1_or_nothing)
    gains: dict[float, float] = collections.defaultdict(float)
    for name in answered:
        gains[null_odds[name]] += answered[name] - unanswered[name]
    # No answers at all.
    best, threshold = 0.0, math.nextafter(min(gains), -math.inf)
    current = 0.0
    for odds in sorted(gains):
        current += gains[odds]
        if current > best:
            best, threshold = current, odds
    return threshold


def _f1_or_nothing(prediction: str, answer: str) -> float:
    if not normalize_answer(prediction) or not normalize_answer(answer):
        return exact_match(prediction, answer)
    return f1(prediction, answer)


def _scores(
    examples: Sequence[SquadExample],
    predictions: Mapping[str, str],
    measure: Callable[[str, str], float],
) -> dict[str, float]:
    found = {}
    for example in examples:
        answers = [answer for answer in example.answers or () if normalize_answer(answer)] or [""]
        prediction = predictions[example.qas_id]
        found[example.qas_id] = max(measure(prediction, answer) for answer in answers)
    return found


def _best_threshold(
    scores: Mapping[str, float],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float],
    has_answer: Mapping[str, bool],
) -> tuple[float, float]:
    """The best mean in percent, and the odds up to which questions have an answer for it."""
    # Without any answer those are right that have none.
    best = current = float(sum(not has for has in has_answer.values()))
    # The official script's word for no answers at all.
    threshold = 0.0
    for name in sorted(scores, key=lambda name: null_odds[name]):
        current += scores[name] if has_answer[name] else -1.0 if predictions[name] else 0.0
        if current > best:
            best, threshold = current, null_odds[name]
    return 100 * best / len(scores), threshold
