"""Trained models for programs: loaded once, called as often as needed.

from bert_tf.predictor import Predictor

predictor = Predictor.from_output_dir("output/reviews")
predictor("A film to remember.").label
"""

import os
from typing import Any

from bert_tf import backend, registry
from bert_tf.errors import UserError
from bert_tf.finetuning import run_metadata
from bert_tf.finetuning.prediction import TaskPredictor


class Predictor:
    """A trained model, loaded once; several threads may call it.

    It works in the process that loaded it, not in processes forked from that one. Inputs and
    predictions depend on the script whose work it does:

    | script | an input | a prediction |
    |---|---|---|
    | `run_classifier` | a text, or two as a tuple | `ClassPrediction`, `LabelsPrediction`, float |
    | `run_squad` | a tuple: question, text | `AnswerPrediction` |
    | `run_ner` | a text, or a tuple of words | `LabeledWords` |
    | `run_multiple_choice` | a tuple: context, endings | `ChoicePrediction` |
    | `predict_masked` | a text with `[MASK]` | for each mask a list of `Candidate` |
    | `extract_features` | a text, or a tuple of two | `TextFeatures` |

    They are computed as in the script: a text longer than `max_seq_length` is truncated, or read
    in windows if the task does so.

    Args:
        options: options of the script.

    Raises:
        UserError: files are missing or do not fit together, or TensorFlow cannot compute here (a
            forked process, `strategy.scope()`, `tf.Graph`, `tf.function`).
    """

    def __init__(self, options: Any) -> None:
        known = {s.options_class: s for s in registry.SCRIPTS.values() if s.has_predictor}
        script = known.get(type(options))
        if script is None:
            names = ", ".join(kind.__name__ for kind in known)
            raise UserError(f"A Predictor takes one of {names}. Received: {options!r:.100}")
        options.check_model()
        backend.require_runtime(starts=True)
        if script.make_answer:
            self._answer = registry.load(script.make_answer)(options)
        else:
            self._answer = TaskPredictor(registry.load(script.make_task or ""), options)

    @classmethod
    def from_output_dir(
        cls, output_dir: str | os.PathLike, script: str | None = None, **flags: Any
    ) -> "Predictor":
        """Loads the newest checkpoint of a training run, or a published model.

        Args:
            output_dir: folder with checkpoints. A training of this package leaves there all files
                that are needed. For another folder pass the script, and if it lacks
                `bert_config.json` or `vocab.txt`, pass `bert_config_file` or `vocab_file`.
            script: the script whose work to do; by default the one that trained the model, and
                `predict_masked` after `run_pretraining`.
            flags: flags of the script that differ from the training's. Those of devices have the
                script's defaults.

        Raises:
            UserError: files are missing or do not fit together, or there is no such script or flag.
        """
        return cls(run_metadata.read_options(os.fspath(output_dir), script, **flags))

    def __call__(self, inputs: Any) -> Any:
        """Predicts.

        Args:
            inputs: an input, or a list of any length, which is computed in batches.

        Returns:
            A prediction for the input, or a list of them in the order of the inputs.

        Raises:
            UserError: an input has the wrong type for the task, or the process was forked.
        """
        backend.require_runtime()
        if isinstance(inputs, list):
            return self._answer(inputs)
        return self._answer([inputs])[0]

    def __reduce__(self) -> Any:
        raise UserError("A Predictor cannot be pickled: load it in each process, from its folder")
