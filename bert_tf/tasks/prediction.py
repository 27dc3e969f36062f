"""A fine-tuned model that answers as often as it is asked: what `Predictor` is made of."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from bert_tf import checkpoint, training
from bert_tf.errors import UserError
from bert_tf.options import FineTuningOptions
from bert_tf.progress import log
from bert_tf.tasks import model_folder
from bert_tf.tasks.agreement import require_one_process
from bert_tf.tasks.base import Task
from bert_tf.tasks.engine import Engine


class TaskPredictor:
    """The model of a task, from the newest checkpoint of its folder; for several threads.

    Args:
        task: says what the model is, and what its inputs and outputs mean.
        options: with the folder.

    Raises:
        UserError: there is no checkpoint of this model in the folder, or there are several
            processes.
    """

    def __init__(self, task: Task, options: FineTuningOptions) -> None:
        engine = Engine(options)
        require_one_process(engine.devices)
        self._task = task
        with training.explained_errors():
            model = engine.build_model(task.build_model, blank_encoder=True)
            restore_trained(model, options.output_dir or "")
            # What the model takes; labels, which nobody knows, are none of it.
            features = [feature for feature in task.features("predict") if feature.per_token]
            self._runner = engine.row_runner(
                model, task.predict_outputs, features, options.predict_batch_size
            )

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """A prediction for each input, as `Task.examples_of` and `Task.predictions_of` say."""
        task = self._task
        examples = task.examples_of(inputs)
        parts = [task.to_features(p, "predict") for p in task.portions(examples, "predict")]
        results: dict[str, np.ndarray] = {}
        if parts:
            rows = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
            with training.explained_errors():
                results = dict(task.combine(examples, self._run(rows)))
        return task.predictions_of(examples, results)

    def _run(self, rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What the model gives for each row, in their order."""
        results: dict[str, np.ndarray] = {}
        for numbers, outputs in self._runner(rows):
            for name, values in outputs.items():
                if name not in results:
                    shape = (len(rows["input_mask"]), *values.shape[1:])
                    results[name] = np.empty(shape, values.dtype)
                results[name][numbers] = values
        return results


def restore_trained(model: keras.Model, folder: str) -> None:
    """Loads the best checkpoint of a training, where that was looked for, or the newest.

    Raises:
        UserError: there is none, or it is of another model.
    """
    prefix = model_folder.best_prefix(folder) or checkpoint.newest_readable(folder)[0]
    # Of a checkpoint that was moved or stripped there is no list.
    prefix = prefix or checkpoint.resolve(folder)
    restored = checkpoint.restore(model, prefix)
    if restored.new or restored.unused:
        raise UserError(
            f"{prefix} is the checkpoint of another model: it lacks "
            f"{checkpoint.summarize(restored.new) or 'nothing'}, and has beyond this model "
            f"{checkpoint.summarize(restored.unused) or 'nothing'}"
        )


def require_texts(inputs: Sequence[Any], numbers: Sequence[int], expected: str) -> None:
    """Refuses inputs of another kind than a text, or so many texts in a tuple.

    Args:
        inputs: what a user gave.
        numbers: of texts that an input may have; 1 is a text without a tuple.
        expected: for the message.

    Raises:
        UserError: it names the first that is of another kind.
    """
    for number, given in enumerate(inputs):
        texts = given if isinstance(given, tuple) else (given,)
        if not all(isinstance(text, str) for text in texts) or len(texts) not in numbers:
            raise UserError(f"Input {number}: expected {expected}. Received: {repr(given)[:100]}")


class PairCheck:
    """Warns, once of each kind, of inputs that are not what the model was trained on.

    Args:
        has_pairs: whether it was trained on pairs; None where that is not known.
    """

    def __init__(self, has_pairs: bool | None) -> None:
        self._warnings = {"joined": "contain ' ||| ', at which nothing is split here"}
        if has_pairs:
            self._warnings["single"] = "are single texts, and the model was trained on pairs"
        elif has_pairs is not None:
            self._warnings["pair"] = "are pairs, and the model was trained on single texts"

    def __call__(self, inputs: Sequence[Any]) -> None:
        """Looks at texts and tuples of texts."""
        for kind, count in Counter(map(_kind_of, inputs)).items():
            if warning := self._warnings.pop(kind, None):
                what = "%d of %d inputs %s: a pair is a tuple of two texts (this is said once)"
                log.warning(what, count, len(inputs), warning)


def _kind_of(given: Any) -> str:
    texts = given if isinstance(given, tuple) else (given,)
    joined = any(" ||| " in text for text in texts)
    return "joined" if joined else "pair" if len(texts) == 2 else "single"
