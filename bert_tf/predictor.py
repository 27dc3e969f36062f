"""Trained models for programs: loaded once, asked as often as one likes.

from bert_tf.predictor import Predictor

predictor = Predictor.from_output_dir("output/reviews")
predictor("A film to remember.").label
"""

import os
from collections.abc import Callable, Sequence
from typing import Any

from bert_tf import backend
from bert_tf.data.texts import Text
from bert_tf.errors import UserError
from bert_tf.finetuning import run_metadata
from bert_tf.options import ExtractionOptions, MaskedWordsOptions
from bert_tf.tasks.feature_extraction.extraction import Extractor
from bert_tf.tasks.fill_mask.fill_mask import MaskedWords
from bert_tf.tasks.fill_mask.masked_texts import require_mask
from bert_tf.tasks.fine_tunings import MAKERS
from bert_tf.tasks.prediction import PairCheck, TaskPredictor, require_texts

Answer = Callable[[Sequence[Any]], list[Any]]


class Predictor:
    """A trained model, loaded once, that answers as often as it is asked; several threads may.

    It works in the process that has loaded it, not in processes forked from that.

    What it takes and gives depends on the script whose work it does:

    | script | an input | a prediction |
    |---|---|---|
    | `run_classifier` | a text, or two as a tuple | `ClassPrediction`, `LabelsPrediction`, float |
    | `run_squad` | a tuple: question, text | `AnswerPrediction` |
    | `run_ner` | a text, or a tuple of words | `LabeledWords` |
    | `predict_masked` | a text with `[MASK]` | for each mask a list of `Candidate` |
    | `extract_features` | a text, or a tuple of two | `TextFeatures` |

    They are computed as the script computes them: a text that is longer than `max_seq_length` is
    cut, or goes through several windows where the task has them.

    Args:
        options: of the script.

    Raises:
        UserError: files are missing or do not fit together, or TensorFlow cannot compute here (a
            forked process, `strategy.scope()`, `tf.Graph`, `tf.function`).
    """

    def __init__(self, options: Any) -> None:
        makers: dict[type, Callable[[Any], Answer]] = {
            **dict.fromkeys(MAKERS, lambda o: TaskPredictor(MAKERS[type(o)](o), o)),
            MaskedWordsOptions: _masked_words,
            ExtractionOptions: _features,
        }
        if type(options) not in makers:
            known = ", ".join(kind.__name__ for kind in makers)
            raise UserError(f"A Predictor takes one of {known}. Received: {options!r:.100}")
        options.check_model()
        backend.require_runtime(starts=True)
        self._answer = makers[type(options)](options)

    @classmethod
    def from_output_dir(
        cls, output_dir: str | os.PathLike, script: str | None = None, **flags: Any
    ) -> "Predictor":
        """Loads the newest checkpoint of a training, or a published model.

        Args:
            output_dir: folder with checkpoints. A training of this package leaves there all that
                is needed; of another folder the script is to be named, and what it lacks of
                `bert_config.json` and `vocab.txt` to be passed as `bert_config_file` and
                `vocab_file`.
            script: whose work to do; by default the one that trained it, and after
                `run_pretraining` it is `predict_masked`.
            flags: of the script, where they are to be others than in the training; those of
                devices are the script's defaults.

        Raises:
            UserError: files are missing or do not fit together, or there is no such script or flag.
        """
        return cls(run_metadata.read_options(os.fspath(output_dir), script, **flags))

    def __call__(self, inputs: Any) -> Any:
        """Predicts.

        Args:
            inputs: one, or a list of any number, which is worked on in batches.

        Returns:
            A prediction for the input, or a list of them in the order of the inputs.

        Raises:
            UserError: an input is of another kind than the task takes, or the process was forked.
        """
        backend.require_runtime()
        if isinstance(inputs, list):
            return self._answer(inputs)
        return self._answer([inputs])[0]

    def __reduce__(self) -> Any:
        raise UserError(
            "A Predictor cannot be pickled, and so not be sent to another process: send the name "
            "of its folder, and load it there with Predictor.from_output_dir"
        )


def _masked_words(options: MaskedWordsOptions) -> Answer:
    words = MaskedWords(options)

    def answer(inputs: Sequence[Any]) -> list[Any]:
        require_texts(inputs, [1], "a text with [MASK]")
        for number, text in enumerate(inputs):
            require_mask(text, f"Input {number}")
        return words.fill(inputs)

    return answer


def _features(options: ExtractionOptions) -> Answer:
    extractor, check_pairs = Extractor(options), PairCheck(has_pairs=None)

    def answer(inputs: Sequence[Any]) -> list[Any]:
        require_texts(inputs, [1, 2], "a text, or a tuple of two")
        check_pairs(inputs)
        return extractor.features(
            [Text(*given) if isinstance(given, tuple) else Text(given) for given in inputs]
        )

    return answer
