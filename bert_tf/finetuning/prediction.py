"""Makes the predictions of a `Predictor` with a fine-tuned model, and checks its inputs."""

import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_tf import checkpoints
from bert_tf.checkpoints.formats.source import best_prefix
from bert_tf.data.packing import CUT_TOKENS
from bert_tf.errors import UserError
from bert_tf.finetuning.engines import find_exported_model, is_exported, with_model_files
from bert_tf.finetuning.model_files import load_config_and_tokenizer
from bert_tf.finetuning.task import MakeTask, Task
from bert_tf.inference.exported_model import ExportedModel
from bert_tf.inference.row_batches import RowBatches
from bert_tf.options import FineTuningOptions
from bert_tf.progress import log


class TaskPredictor:
    """Predicts with a task's model in `output_dir`; thread-safe."""

    def __init__(self, make_task: MakeTask, options: FineTuningOptions) -> None:
        options = with_model_files(options, options.output_dir or "")
        self._task = task = make_task(options, *load_config_and_tokenizer(options))
        # Inputs have no labels: keep only the encoder's inputs, which are the per-token features.
        features = [feature for feature in task.features("predict") if feature.per_token]
        uses_tensorflow = options.engine == "tensorflow"
        load = _load_with_tensorflow if uses_tensorflow else _load_exported
        self._inference = load(task, options, features)
        self._warned_of_truncation = False

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """Returns a prediction for each input."""
        examples = self._task.from_inputs(inputs)
        rows = self._task.featurize(examples, "predict")
        num_cut = np.count_nonzero(rows.get(CUT_TOKENS, ()))
        if num_cut and not self._warned_of_truncation:
            self._warned_of_truncation = True
            message = "%d of %d inputs are longer than max_seq_length=%d and were truncated"
            length = self._task.options.max_seq_length
            log.warning(f"{message} (logged once)", num_cut, len(inputs), length)
        outputs = self._inference.predict(rows)
        return list(self._task.decode(examples, outputs))


def _load_with_tensorflow(task: Task, options: FineTuningOptions, features: Any) -> RowBatches:
    from bert_tf import training
    from bert_tf.finetuning.initialization import restore_trained

    with training.explained_errors():
        devices = training.open_devices(options)
        devices.require_one_process()
        model = training.build_model(task.build_model, devices, zero_init_encoder=True)
        restore_trained(model, options.output_dir or "")
        batch_size = options.predict_batch_size
        return training.Inference(
            model, task.fetch, features, devices, batch_size, single_rows=True
        )


def _load_exported(task: Task, options: FineTuningOptions, features: Any) -> RowBatches:
    folder = options.output_dir or ""
    checkpoint = ""
    if not is_exported(folder, options.engine):
        # Unlike `trained_checkpoint`, this reads no weights, which a cached export does not need.
        checkpoint = best_prefix(folder) or checkpoints.resolve(folder)

    def load_model() -> Any:
        from bert_tf.finetuning.initialization import restore_trained

        model = task.build_model(zero_init_encoder=True)
        restore_trained(model, folder)
        return model

    path = find_exported_model(folder, options, checkpoint, load_model, task.labels)
    return ExportedModel(path, task.fetch, features, options.predict_batch_size)


def require_texts(inputs: Sequence[Any], counts: Sequence[int], expected: str) -> None:
    """Raises a UserError unless each input is a string, or a tuple of strings of allowed length.

    `counts` lists the allowed numbers of strings; a string that is not in a tuple counts as 1.
    `expected` describes a valid input for the message.
    """
    for index, item in enumerate(inputs):
        texts = item if isinstance(item, tuple) else (item,)
        if not all(isinstance(text, str) for text in texts) or len(texts) not in counts:
            raise UserError(f"Input {index}: expected {expected}. Received: {repr(item)[:100]}")
        if not all(text.strip() for text in texts):
            log.warning("Input %d: a text is empty", index)
        if any("[CLS]" in text or "[SEP]" in text for text in texts):
            message = "Input %d: remove [CLS] and [SEP] from the text; they are added automatically"
            log.warning(message, index)
        if any("." in text and " " not in text and os.path.isfile(text) for text in texts):
            log.warning("Input %d is the name of a file: pass the texts in the file", index)


class PairCheck:
    """Warns once about text pairs if the model was trained on single texts, and vice versa.

    `trained_on_pairs` says what the model was trained on; None if that is unknown.
    """

    def __init__(self, trained_on_pairs: bool | None) -> None:
        separator, advice = "which does not separate a pair here", "pass a tuple of two strings"
        self._warnings = {"has_separator": f"contain ' ||| ', {separator}: {advice}"}
        if trained_on_pairs:
            single = f"are single texts, but the model was trained on pairs: {advice}"
            self._warnings["single"] = single
        elif trained_on_pairs is not None:
            pair = "are pairs, but the model was trained on single texts: pass single strings"
            self._warnings["pair"] = pair

    def __call__(self, inputs: Sequence[Any]) -> None:
        """Checks a list of strings and tuples of strings."""
        for kind, count in Counter(map(_kind_of, inputs)).items():
            if warning := self._warnings.pop(kind, None):
                log.warning("%d of %d inputs %s (logged once)", count, len(inputs), warning)


def _kind_of(item: Any) -> str:
    texts = item if isinstance(item, tuple) else (item,)
    has_separator = any(" ||| " in text for text in texts)
    return "has_separator" if has_separator else "pair" if len(texts) == 2 else "single"
