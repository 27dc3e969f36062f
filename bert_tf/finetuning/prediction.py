"""Serves prediction requests with a fine-tuned model, for `Predictor`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf import checkpoints
from bert_tf.errors import UserError
from bert_tf.finetuning import run_metadata
from bert_tf.finetuning.engines import add_model_files, find_exported_model, is_exported
from bert_tf.finetuning.model_files import load_config_and_tokenizer
from bert_tf.finetuning.task import MakeTask, Task
from bert_tf.inference.exported_model import ExportedModel
from bert_tf.inference.row_batches import RowBatches
from bert_tf.options import FineTuningOptions
from bert_tf.progress import log


class TaskPredictor:
    """Predicts with a task's model in `output_dir`; thread-safe."""

    def __init__(self, make_task: MakeTask, options: FineTuningOptions) -> None:
        options = add_model_files(options, options.output_dir or "")
        self._task = task = make_task(options, *load_config_and_tokenizer(options))
        # The labels are unknown, so only the encoder's inputs are needed.
        features = [feature for feature in task.features("predict") if feature.per_token]
        uses_tensorflow = options.engine == "tensorflow"
        load = _load_with_tensorflow if uses_tensorflow else _load_exported
        self._inference = load(task, options, features)

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """Returns a prediction for each input."""
        examples = self._task.from_inputs(inputs)
        rows = self._task.featurize(examples, "predict")
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
        return training.Inference(model, task.fetch, features, devices, batch_size)


def _load_exported(task: Task, options: FineTuningOptions, features: Any) -> RowBatches:
    folder = options.output_dir or ""
    checkpoint = ""
    if not is_exported(folder, options.engine):
        # Only an export reads the checkpoint, and skips a damaged one.
        checkpoint = run_metadata.best_prefix(folder) or checkpoints.resolve(folder)

    def export(export_dir: str, entries: Mapping[str, str]) -> None:
        from bert_tf.finetuning.export import export_to_folder
        from bert_tf.finetuning.initialization import restore_trained

        model = task.build_model(zero_init_encoder=True)
        restore_trained(model, folder)
        export_to_folder(model, options, export_dir, entries, task.labels, format=options.engine)

    path = find_exported_model(folder, options, checkpoint, export)
    return ExportedModel(path, task.fetch, features, options.predict_batch_size)


def require_texts(inputs: Sequence[Any], counts: Sequence[int], expected: str) -> None:
    """Raises a UserError unless each input is a text, or a tuple with an allowed number of texts.

    `counts` lists the allowed numbers, with 1 for a text that is not in a tuple; `expected`
    describes a valid input.
    """
    for index, item in enumerate(inputs):
        texts = item if isinstance(item, tuple) else (item,)
        if not all(isinstance(text, str) for text in texts) or len(texts) not in counts:
            raise UserError(f"Input {index}: expected {expected}. Received: {repr(item)[:100]}")


class PairCheck:
    """Warns once about text pairs if the model was trained on single texts, and vice versa.

    `has_pairs` says whether it was trained on pairs; None if unknown.
    """

    def __init__(self, has_pairs: bool | None) -> None:
        self._warnings = {"joined": "contain ' ||| ', which does not separate a pair here"}
        if has_pairs:
            self._warnings["single"] = "are single texts, but the model was trained on pairs"
        elif has_pairs is not None:
            self._warnings["pair"] = "are pairs, but the model was trained on single texts"

    def __call__(self, inputs: Sequence[Any]) -> None:
        """Checks a list of texts and tuples of texts."""
        for kind, count in Counter(map(_kind_of, inputs)).items():
            if warning := self._warnings.pop(kind, None):
                message = "%d of %d inputs %s: pass a pair as a tuple of two texts (logged once)"
                log.warning(message, count, len(inputs), warning)


def _kind_of(item: Any) -> str:
    texts = item if isinstance(item, tuple) else (item,)
    joined = any(" ||| " in text for text in texts)
    return "joined" if joined else "pair" if len(texts) == 2 else "single"
