"""A fine-tuned model that predicts one request after the other, for `Predictor`."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import keras

from bert_tf import training
from bert_tf.errors import UserError
from bert_tf.finetuning import run_metadata
from bert_tf.finetuning.initialization import (
    find_model_files,
    load_config_and_tokenizer,
    restore_all,
)
from bert_tf.finetuning.run import MakeTask
from bert_tf.options import FineTuningOptions
from bert_tf.progress import log


class TaskPredictor:
    """The model of a task from the checkpoint in `output_dir`; several threads may share it."""

    def __init__(self, make_task: MakeTask, options: FineTuningOptions) -> None:
        options = find_model_files(options)
        task = make_task(options, *load_config_and_tokenizer(options))
        devices = training.open_devices(options)
        devices.require_one_process()
        self._task = task
        with training.explained_errors():
            model = training.build_model(task.build_model, devices, zero_init_encoder=True)
            restore_trained(model, options.output_dir or "")
            # Without labels, which are unknown.
            features = [feature for feature in task.features("predict") if feature.per_token]
            self._inference = training.Inference(
                model, task.fetch, features, devices, options.predict_batch_size
            )

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """Returns a prediction for each input."""
        examples = self._task.from_inputs(inputs)
        rows = self._task.featurize(examples, "predict")
        with training.explained_errors():
            outputs = self._inference.predict(rows)
        return list(self._task.decode(examples, outputs))


def restore_trained(model: keras.Model, folder: str) -> None:
    """Restores the best checkpoint of a training run with `--eval_every`, otherwise the newest."""
    prefix = run_metadata.trained_prefix(folder)
    run_metadata.warn_if_untrained(prefix)
    restore_all(model, prefix)


def require_texts(inputs: Sequence[Any], numbers: Sequence[int], expected: str) -> None:
    """Raises a UserError if inputs are no texts or tuples of as many texts as `numbers` allows.

    The number 1 stands for a text that is not in a tuple; `expected` describes a valid input.
    """
    for number, given in enumerate(inputs):
        texts = given if isinstance(given, tuple) else (given,)
        if not all(isinstance(text, str) for text in texts) or len(texts) not in numbers:
            raise UserError(f"Input {number}: expected {expected}. Received: {repr(given)[:100]}")


class PairCheck:
    """Warns once of pairs for a model of single texts, and the other way round.

    `has_pairs` says whether the model was trained on pairs; None if that is unknown.
    """

    def __init__(self, has_pairs: bool | None) -> None:
        self._warnings = {"joined": "contain ' ||| ', at which nothing is split here"}
        if has_pairs:
            self._warnings["single"] = "are single texts, and the model was trained on pairs"
        elif has_pairs is not None:
            self._warnings["pair"] = "are pairs, and the model was trained on single texts"

    def __call__(self, inputs: Sequence[Any]) -> None:
        """Checks texts and tuples of texts."""
        for kind, count in Counter(map(_kind_of, inputs)).items():
            if warning := self._warnings.pop(kind, None):
                what = "%d of %d inputs %s: a pair is a tuple of two texts (this is said once)"
                log.warning(what, count, len(inputs), warning)


def _kind_of(given: Any) -> str:
    texts = given if isinstance(given, tuple) else (given,)
    joined = any(" ||| " in text for text in texts)
    return "joined" if joined else "pair" if len(texts) == 2 else "single"
