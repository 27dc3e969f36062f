"""Predicted answers, as objects and in the original's file formats."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from bert_tf.tasks.question_answering.decoding import NBest, n_best_json, probabilities
from bert_tf.tasks.question_answering.squad_reader import SquadExample

PREDICTIONS = "predictions.json"
NBEST_PREDICTIONS = "nbest_predictions.json"
NULL_ODDS = "null_odds.json"
FILES = (PREDICTIONS, NBEST_PREDICTIONS, NULL_ODDS)


class AnswerPrediction(NamedTuple):
    """The predicted answer to a question.

    Attributes:
        text: the answer; "" if there is none.
        n_best: the most likely answers, best first, with probabilities that add up to 1.
        null_odds: score of "no answer" minus that of the best answer, in logits; None without
            `version_2_with_negative`.
    """

    text: str
    n_best: list[tuple[str, float]]
    null_odds: float | None


class Predictions(Sequence[AnswerPrediction]):
    """Predictions in the order of the questions, and, for the files, by question id."""

    def __init__(
        self, examples: Sequence[SquadExample], n_best: Sequence[NBest], threshold: float
    ) -> None:
        self._n_best = n_best
        self.threshold = threshold
        # If questions share an id, the last one's list replaces that of the first.
        self.lists = {e.qas_id: entry for e, entry in zip(examples, n_best, strict=True)}
        self.texts = {qas_id: entry.text(threshold) for qas_id, entry in self.lists.items()}
        odds = ((qas_id, entry.null_odds) for qas_id, entry in self.lists.items())
        self.null_odds = {qas_id: value for qas_id, value in odds if value is not None}

    def __len__(self) -> int:
        return len(self._n_best)

    def __getitem__(self, index: Any) -> Any:
        entry = self._n_best[index]
        texts = [answer.text for answer in entry.answers]
        n_best = list(zip(texts, probabilities(entry.answers), strict=True))
        return AnswerPrediction(entry.text(self.threshold), n_best, entry.null_odds)

    def contents(self) -> dict[str, str]:
        """Returns the contents of the prediction files by file name."""
        contents = {
            PREDICTIONS: json.dumps(self.texts, indent=4) + "\n",
            NBEST_PREDICTIONS: n_best_json({k: entry.answers for k, entry in self.lists.items()}),
        }
        if self.null_odds:
            contents[NULL_ODDS] = json.dumps(self.null_odds, indent=4) + "\n"
        return contents
