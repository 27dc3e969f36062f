"""What is said about questions: answers, as files and as objects of a program."""

import json
from collections.abc import Sequence
from typing import NamedTuple

from bert_tf.tasks.question_answering import decoding
from bert_tf.tasks.question_answering.squad_reader import SquadExample

PREDICTIONS = "predictions.json"
NBEST_PREDICTIONS = "nbest_predictions.json"
NULL_ODDS = "null_odds.json"


class AnswerPrediction(NamedTuple):
    """The answer to a question; "" where the text has none.

    Attributes:
        text: of the answer.
        n_best: the likeliest answers with their probabilities among each other, the likeliest
            first.
        null_odds: how much more probable "no answer" is than the best answer, in logits; None
            without `version_2_with_negative`.
    """

    text: str
    n_best: list[tuple[str, float]]
    null_odds: float | None


class Predictions:
    """What is known about questions, by their ids in the order of the file.

    Args:
        examples: the questions.
        lists: an n-best list for each.
        threshold: `null_score_diff_threshold`.
    """

    def __init__(
        self, examples: Sequence[SquadExample], lists: Sequence[decoding.NBest], threshold: float
    ) -> None:
        # Of an id that comes twice the last list counts, in the place of the first.
        self.lists = {e.qas_id: found for e, found in zip(examples, lists, strict=True)}
        self.threshold = threshold
        self.texts = {name: found.text(threshold) for name, found in self.lists.items()}

    @property
    def null_odds(self) -> dict[str, float]:
        """How much more probable "no answer" is than the best answer; empty for SQuAD 1.1."""
        odds = {name: found.null_odds for name, found in self.lists.items()}
        return {name: value for name, value in odds.items() if value is not None}

    def contents(self) -> dict[str, str]:
        """What the files of a prediction have in them, by their names."""
        n_best = decoding.n_best_json({name: found.answers for name, found in self.lists.items()})
        contents = {
            PREDICTIONS: json.dumps(self.texts, indent=4) + "\n",
            NBEST_PREDICTIONS: n_best,
        }
        if self.null_odds:
            contents[NULL_ODDS] = json.dumps(self.null_odds, indent=4) + "\n"
        return contents
