"""The Python API for prediction: load a trained model once, then call it.

from bert_tf import Predictor

predictor = Predictor("output/reviews")
predictor("A film to remember.").label
"""

import os
from collections.abc import Sequence
from typing import Any

from bert_tf.api.text_inputs import items_of
from bert_tf.base import backend
from bert_tf.base.errors import UserError, excerpt, shortened, warn
from bert_tf.base.foreign_names import ExplainsNames
from bert_tf.base.quiet import import_tensorflow
from bert_tf.finetuning import run_metadata
from bert_tf.finetuning.prediction import TaskPredictor
from bert_tf.options import registry


class Predictor(ExplainsNames):
    """A trained model that predicts for one input or several. Calls are thread-safe.

    It works only in the process that loaded it, not in forks of that process. The class of the
    options selects a script, which determines the types of inputs and predictions:

    | script | input | prediction |
    |---|---|---|
    | `run_classifier` | string or (string, string) | `ClassPrediction`, `LabelsPrediction`, float |
    | `run_squad` | (question, text) | `AnswerPrediction` |
    | `run_ner` | string, or tuple of words | `LabeledWords` |
    | `run_multiple_choice` | (context, ending, ending, ...) | `ChoicePrediction` |
    | `run_embeddings` | string | vector, float32 [D] |
    | `run_ranking` | (query, passage) | `Relevance` |
    | `predict_masked` | string with `[MASK]` | for each mask, a list of `Candidate` |
    | `extract_features` | string or (string, string) | `TextFeatures` |

    Predictions are the same as the script's: a text longer than `max_seq_length` is truncated, or
    split into windows if the task does so.

    Args:
        model: the output folder of a training run, whose best checkpoint (or else the newest) is
            loaded, or the folder of a published model; or options of a script, such as
            `ClassifierOptions(...)`. Training with this package writes all required files to its
            folder. For any other folder, pass `script`, and if `bert_config.json` or `vocab.txt`
            is missing, `bert_config_file` or `vocab_file`. The same holds for a `.keras`
            file; for classification, also pass `labels` if its folder has no `labels.txt`.
        script: name of the script whose predictions to return; by default the script that trained
            the model, or `predict_masked` for a model from `run_pretraining`.
        flags: flags of the script that override those of the training run. Device flags are not
            taken from the training run: they have the script's defaults.

    Raises:
        UserError: files are missing or inconsistent; the script or a flag does not exist; or
            TensorFlow cannot run here (in a forked process, `strategy.scope()`, `tf.Graph` or
            `tf.function`).
    """

    def __init__(self, model: Any = None, script: str | None = None, **flags: Any) -> None:
        if "options" in flags:  # the name of the argument in version 1.0
            warn("Predictor(options=...) is deprecated: pass the options as `model`")
            model = flags.pop("options")
        options = model
        if isinstance(model, str | os.PathLike):
            options = run_metadata.options_for_model(os.fspath(model), script, **flags)
        elif script or flags:
            raise UserError("Pass flags either with a folder, or in the options")
        scripts = {s.options_class: s for s in registry.entries().values() if s.has_predictor}
        entry, self._model = scripts.get(type(options)), model
        if entry is None:
            names = ", ".join(options_class.__name__ for options_class in scripts)
            expected = f"the folder of a model, or {names}"
            raise UserError(f"expected {expected}. Received: {excerpt(repr(model))}")
        options.check_model()
        backend.require_runtime(loads_model=True)
        if options.engine == "tensorflow":
            import_tensorflow(for_script=False)  # before other modules import it with its log
        if entry.make_predict_fn:
            self._predict = registry.load(entry.make_predict_fn)(options)
        else:
            self._predict = TaskPredictor(registry.load(entry.make_task or ""), options)

    @classmethod
    def from_output_dir(
        cls, output_dir: str | os.PathLike, script: str | None = None, **flags: Any
    ) -> "Predictor":
        """Loads the model in a folder; the same as `Predictor(output_dir, script, **flags)`."""
        return cls(output_dir, script, **flags)

    def __call__(self, inputs: Any) -> Any:
        """Returns predictions for an input or several.

        Args:
            inputs: an input, or any number of them, which are processed in batches: a list, an
                array, a Series, a generator or another iterable, or a table (a DataFrame or 2-D
                array) whose rows are the inputs.

        Returns:
            A prediction for an input; for several, a list of predictions in the same order.

        Raises:
            UserError: an input has the wrong type for the task, or TensorFlow cannot run here.
        """
        backend.require_runtime()
        if isinstance(inputs, str | bytes | tuple | dict) or not hasattr(inputs, "__iter__"):
            return self._predict([inputs])[0]
        return self._predict(inputs if isinstance(inputs, list) else [*items_of(inputs)])

    def explain(self, item: Any, label: Any = None, steps: int = 32) -> Any:
        """Returns an `Explanation`: how much each word piece contributes to a prediction.

        The scores are integrated gradients (Sundararajan et al. 2017) from `[MASK]` to the pieces.

        Args:
            item: a text, or a tuple of two texts, for a model of `run_classifier`.
            label: the label or number to explain, by name; by default, the most probable label.
            steps: number of points on the way, each of which costs about a step of training.

        Raises:
            UserError: the model has another task or engine, no such label, or several numbers.
        """
        backend.require_runtime()
        if not isinstance(self._predict, TaskPredictor):
            raise UserError("explain() needs a model that was fine-tuned with run_classifier.py")
        return self._predict.explain(item, label, steps)

    def columns(self, inputs: Any) -> dict[str, list[Any]]:
        """Returns predictions for several inputs as columns, such as for `pandas.DataFrame`.

        Returns:
            Values of all inputs by name, which are those of the attributes of a prediction. Those
            of `probabilities` by label are columns `probability_<label>`; numbers, `prediction`.
        """
        rows = [_as_row(prediction) for prediction in self(list(items_of(inputs)))]
        return {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}

    @property
    def labels(self) -> list[str]:
        """Names of the model's outputs, in order; [] if it has none."""
        return list(getattr(self._predict, "labels", ()))

    @property
    def inputs_are_independent(self) -> bool:
        """Whether the prediction for an input does not depend on the other inputs of a call."""
        return getattr(self._predict, "inputs_are_independent", True)

    @property
    def takes_pairs(self) -> bool | None:
        """Whether the model was trained on pairs of texts; None if that is unknown, or on both."""
        return getattr(self._predict, "takes_pairs", None)

    def num_tokens(self, inputs: Sequence[Any]) -> list[int]:
        """Returns the number of tokens of each input, with [CLS] and [SEP], before truncation."""
        texts = [item if isinstance(item, tuple) else (item,) for item in inputs]
        lengths = iter(self._predict.tokenizer.encode([x for item in texts for x in item]).lengths)
        return [1 + sum(int(next(lengths)) + 1 for _ in item) for item in texts]

    def __repr__(self) -> str:
        labels = f", labels=[{shortened(list(map(repr, self.labels)))}]" if self.labels else ""
        return f"Predictor({self._model!r}{labels})"

    def __reduce__(self) -> Any:
        raise UserError("A Predictor cannot be pickled: create one in each process")


def _as_row(prediction: Any) -> dict[str, Any]:
    if not hasattr(prediction, "_asdict"):
        return prediction if isinstance(prediction, dict) else {"prediction": prediction}
    values = prediction._asdict()
    if isinstance(values.get("probabilities"), dict):
        by_label = values.pop("probabilities")
        values |= {f"probability_{label}": value for label, value in by_label.items()}
    return values
