"""The steps of a fine-tuning run over one model: records, outputs, figures, files."""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from bert_tf import files, training
from bert_tf.data import records
from bert_tf.data.packing import CUT_TOKENS
from bert_tf.data.parallel import map_in_order
from bert_tf.errors import UserError
from bert_tf.options import FineTuningOptions
from bert_tf.progress import bar, log
from bert_tf.tasks.base import Task
from bert_tf.tasks.engine import Engine, Trainer
from bert_tf.tasks.record_cache import RecordCache, fingerprint
from bert_tf.tasks.results import EVAL_FILES, Results, result_path, write_metrics


class Runner:
    """What is done with one model of a task, on the devices of an engine.

    Args:
        task: that is run.
        options: of the run.
        engine: the devices.
        model: of the task.
        examples: of the splits that are needed, by their names.
        records_dir: folder of the records; runs with the same data may share it.
    """

    def __init__(
        self,
        task: Task,
        options: FineTuningOptions,
        engine: Engine,
        model: keras.Model,
        examples: Mapping[str, Sequence[Any]],
        records_dir: str,
    ) -> None:
        self.task = task
        self.options = options
        self.engine = engine
        self.is_chief = engine.devices.is_chief
        self.model = model
        self.examples = examples
        self.output_dir = options.output_dir or ""
        self.records_dir = records_dir
        self._records: dict[str, tuple[str, int]] = {}
        self._runs: dict[str, Callable[[], dict[str, np.ndarray]]] = {}

    def train(
        self, trainer: Trainer, row_loss: Callable[..., Any], observer: training.Observer
    ) -> None:
        """Trains from the optimizer's step up to the last, or until the observer ends it.

        Args:
            trainer: of the engine.
            row_loss: of `Task.training_loss`.
            observer: looks on.
        """
        path, count = self._find_records("train")
        step = int(trainer.optimizer.iterations.numpy())
        batches = self.engine.training_dataset(path, self.task.features("train"), count, step)
        loss, reads_padding = training.mean_loss(row_loss), self.task.reads_padding
        self.engine.train(self.model, trainer, loss, batches, observer, reads_padding)

    def measure(self) -> tuple[dict[str, Any], Any]:
        """Figures of the model on what is evaluated, and what they were made of."""
        split = self.task.evaluation_split
        examples = self.examples[split]
        if split == "predict":
            predictions = self.predictions()
            return self.task.metrics(examples, predictions), predictions
        found = self.task.combine(examples, self._outputs(split, self.task.eval_outputs))
        losses = found["per_example_loss"]
        size = self.options.batch_size("eval")
        batches = np.split(losses, range(size, len(losses), size))
        # The mean over batches, in which a short last one counts in full: Estimator's figure.
        loss = np.float32(np.mean([batch.mean() for batch in batches]))
        return {**self.task.metrics(examples, found), "loss": loss}, found

    def predictions(self) -> Any:
        """What the model says of the examples to predict."""
        examples = self.examples["predict"]
        found = self._outputs("predict", self.task.predict_outputs)
        return self.task.decode(examples, self.task.combine(examples, found))

    def write_results(self, global_step: int) -> Results:
        """Evaluates and predicts as the options say, and writes what was found.

        Args:
            global_step: that the model is at.
        """
        results = Results()
        measured: Any = None
        split, suffix = self.task.evaluation_split, self.task.result_suffix
        if self.options.do_eval:
            metrics, measured = self.measure()
            figures = results.metrics = {**metrics, "global_step": global_step}
            results.files += [result_path(self.output_dir, name, suffix) for name in EVAL_FILES]
            if self.is_chief:
                examples = self.examples[split]
                more, written = self.task.write_evaluation(examples, measured, self.output_dir)
                results.files += written
                write_metrics(self.output_dir, figures, global_step, len(examples), more, suffix)
        # Questions are evaluated by their predictions, which are written then.
        if self.options.do_predict or (self.options.do_eval and split == "predict"):
            known = split == "predict" and measured is not None
            predictions = measured if known else self.predictions()
            if self.is_chief:
                results.files += self._write_predictions(predictions)
        return results

    def _write_predictions(self, predictions: Any) -> list[str]:
        examples = self.examples["predict"]
        written = list(self.task.write_predictions(examples, predictions, self.output_dir))
        log.info("Prediction of %d examples: %s", len(examples), ", ".join(written))
        return written

    def _outputs(self, split: str, outputs_fn: Callable) -> dict[str, np.ndarray]:
        """What `outputs_fn` gives for the rows of a split, whose step is compiled once."""
        if split not in self._runs:
            path, count = self._find_records(split)
            self._runs[split] = self.engine.batch_runner(
                self.model,
                outputs_fn,
                path,
                self.task.features(split),
                num_examples=count,
                batch_size=self.options.batch_size(split),
                what=split,
            )
        return self._runs[split]()

    def _find_records(self, split: str) -> tuple[str, int]:
        """Path and number of the records; the chief writes them, the others wait."""
        if split not in self._records:
            path = os.path.join(self.records_dir, self.task.record_files[split])
            count = self._write_records(split, path) if self.is_chief else 0
            count = self.engine.devices.from_chief(count)
            if not files.exists(path):
                raise UserError(
                    f"This worker does not see {path}, which worker 0 has written: --output_dir "
                    "must be in a file system that all workers share"
                )
            self._records[split] = path, count
        return self._records[split]

    def _write_records(self, split: str, path: str) -> int:
        """Writes the records, unless they lie there from the same examples; their number."""
        task, examples = self.task, self.examples[split]
        settings = task.record_settings()
        cache, name = RecordCache(self.records_dir), os.path.basename(path)
        key = ""
        if settings is not None:
            vocabulary = files.read_text(self.options.vocab_file or "")
            given = (vocabulary, self.options.do_lower_case, task.features(split), settings)
            key = fingerprint(*given, examples=examples)
            about = cache.find(name, key)
            if about:
                log.info("%s: as an earlier run has written it, of the same data and flags", path)
                _report_cuts(split, about, self.options.max_seq_length)
                return about["records"]
        about = {"examples": len(examples), "cut_examples": 0, "cut_tokens": 0, "most_cut": 0}
        rows = self._features(examples, split, about)
        about["records"] = records.write_records(path, task.features(split), rows)
        _report_cuts(split, about, self.options.max_seq_length)
        if key:
            cache.note(name, key, about)
        return about["records"]

    def _features(
        self, examples: Sequence[Any], split: str, about: dict[str, int]
    ) -> Iterator[Mapping[str, np.ndarray]]:
        """The features of all examples, portion by portion; counts what was cut."""

        def convert(part: Sequence[Any]) -> tuple[int, dict[str, np.ndarray]]:
            return len(part), dict(self.task.to_features(part, split))

        portions = list(self.task.portions(examples, split))
        converted = map_in_order(convert, portions)
        total = sum(map(len, portions))
        with contextlib.closing(converted), bar(total, f"{split} features") as shown:
            for count, rows in converted:
                cut = rows.pop(CUT_TOKENS, np.zeros(0, int))
                about["cut_examples"] += int((cut > 0).sum())
                about["cut_tokens"] += int(cut.sum())
                about["most_cut"] = max(about["most_cut"], int(cut.max(initial=0)))
                yield rows
                shown.update(count)


def _report_cuts(split: str, about: Mapping[str, int], max_seq_length: int) -> None:
    """Says how many examples were longer than the model's input, and by how much."""
    examples, cut = about["examples"], about["cut_examples"]
    if about["records"] > examples:
        log.info("%s: %d examples are read in %d windows", split, examples, about["records"])
    if cut:
        log.info(
            "%s: %d of %d examples (%.1f %%) are longer than --max_seq_length=%d and were cut, by "
            "%.0f word pieces on average and %d at most",
            split,
            cut,
            examples,
            100 * cut / examples,
            max_seq_length,
            about["cut_tokens"] / cut,
            about["most_cut"],
        )
