"""Options shared by the fine-tuning scripts."""

import dataclasses
import os
import re

from bert_tf.base.errors import UserError
from bert_tf.options import registry
from bert_tf.options.declare import (
    DURATION,
    PATH,
    RESULTS,
    RUN,
    WEIGHTS,
    check_needs,
    check_values,
    option,
)
from bert_tf.options.shared import EngineOptions, ModelOptions, TrainingOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuningOptions(ModelOptions, TrainingOptions, EngineOptions, affects=RUN):
    """Base class of the fine-tuning scripts' options."""

    do_train: bool = option(False, "Fine-tune on the training set.")
    do_eval: bool = option(False, "Evaluate on the dev set.")
    do_predict: bool = option(False, "Write predictions for the test set.")
    do_export: bool = option(
        False,
        "Export the model as a SavedModel to output_dir/export, as export_model.py does.",
        new=True,
    )
    num_train_epochs: float = option(
        3.0,
        "Number of training epochs; may be a fraction.",
        affects=DURATION,
        limits=(1e-6, 1e6),
    )
    warmup_proportion: float = option(
        0.1,
        "Fraction of training steps with learning rate warm-up.",
        affects=WEIGHTS,
        limits=(0, 1),
    )
    predict_batch_size: int = option(8, "Batch size for prediction.", affects=RESULTS)
    eval_every: str | None = option(
        None,
        "Interval between evaluations on the dev set, in steps (200) or epochs (0.5epoch). The "
        "best weights are saved as best/model.ckpt in output_dir and used at the end.",
        affects=RUN | WEIGHTS,
        new=True,
        needs=("do_train",),
    )
    best_metric: str = option(
        "auto",
        "Metric by which --eval_every selects the best weights, such as accuracy, f1 or loss. "
        "auto: the task's usual metric.",
        affects=WEIGHTS,
        new=True,
        needs=("eval_every",),
    )
    early_stopping_patience: int = option(
        0,
        "Stop after this many evaluations by --eval_every without improvement. 0: never stop.",
        new=True,
        limits=(0, 2**31 - 1),
        needs=("eval_every",),
    )
    num_runs: int = option(
        1,
        "Number of runs with consecutive random seeds, in run_1, run_2, ... of output_dir; "
        "runs.json has the mean and standard deviation of each metric, and the best run.",
        new=True,
        limits=(1, 1000),
        needs=("do_train", "do_eval"),
    )
    report: bool = option(
        True,
        "Write report.html, a page about an evaluation, and eval_predictions.tsv, its rows.",
        new=True,
    )
    freeze_layers: int = option(
        0,
        "Freeze the embeddings and the first N layers, to save time and memory. 0: freeze nothing.",
        affects=WEIGHTS,
        new=True,
        limits=(0, 1000),
        needs=("do_train",),
    )
    init_layers: str | None = option(
        None,
        "Build a smaller model from these layers of --init_checkpoint, counting from 0, such as "
        "0,2,4.",
        affects=RUN | WEIGHTS,
        new=True,
        needs=("do_train", "init_checkpoint"),
    )
    teacher: str | None = option(
        None,
        "Distill a teacher: also train on the logits of the model in this folder, an output_dir of "
        "the same script and task; in run_embeddings.py, on the vectors of any encoder.",
        affects=RUN | WEIGHTS | PATH,
        new=True,
        needs=("do_train",),
    )
    teacher_temperature: float = option(
        2.0,
        "Softmax temperature of teacher and student in the distillation loss.",
        affects=WEIGHTS,
        new=True,
        limits=(0.1, 100),
        needs=("teacher",),
    )
    teacher_weight: float = option(
        0.5,
        "Weight w of the distillation loss; the label loss has weight 1 - w. 1: ignore the labels.",
        affects=WEIGHTS,
        new=True,
        limits=(0, 1),
        needs=("teacher",),
    )

    @property
    def predict_split(self) -> str:
        """The split for which predictions are written."""
        return "predict"

    @property
    def evaluates(self) -> bool:
        """Whether the dev set is evaluated."""
        return self.do_eval or bool(self.eval_every)

    @property
    def read_splits(self) -> list[str]:
        """The splits whose examples are read, training first."""
        reads = {"train": self.do_train, "eval": self.evaluates, "predict": self.do_predict}
        return [split for split, is_read in reads.items() if is_read]

    def ignored_flag_warnings(self) -> list[str]:
        """Returns a warning for each flag that was set but has no effect."""
        warnings = super().ignored_flag_warnings()
        done = {"eval": self.evaluates, "predict": self.do_predict}
        done["predict"] |= done[self.predict_split]
        # The options of a trained model have the files of its training, and no action.
        acts = any((self.do_train, self.do_export, *done.values()))
        for split in done:
            if getattr(self, f"{split}_file", None) and acts and not done[split]:
                warnings.append(f"--{split}_file has no effect without --do_{split}=true")
        return warnings

    def batch_size(self, split: str) -> int:
        """Returns the batch size of a split: `<split>_batch_size`, or else `predict_batch_size`."""
        return getattr(self, f"{split}_batch_size", self.predict_batch_size)

    def check_model(self) -> None:
        """Checks the options of model and engine."""
        super().check_model()
        self.check_engine()

    def check(self) -> None:
        """Raises a UserError for missing or invalid options; checks in the original's order."""
        from bert_tf.checkpoints.run_folder import RunFolder  # imports NumPy, unlike --help

        if not self.do_train:
            RunFolder(self.output_dir or "").require_one_run()
        self.check_required()
        self.check_case()
        if not (self.do_train or self.do_eval or self.do_predict or self.do_export):
            actions = "--do_train, --do_eval, --do_predict or --do_export"
            raise UserError(f"Nothing to do: pass {actions}")
        check_values(self)
        check_needs(self)
        _ = self.steps_between_evaluations(1.0), self.init_layer_numbers  # checks both
        output_dir = os.path.realpath(self.output_dir or "")
        if self.teacher and os.path.realpath(self.teacher) == output_dir:
            raise UserError("--teacher and --output_dir must be different folders")
        self.check_engine()
        if self.engine != "tensorflow" and (self.do_train or self.do_export):
            raise UserError(f"--engine={self.engine} is for evaluation and prediction only")
        if not self.do_train:
            RunFolder.used_by(self).require_script(registry.script_of(type(self)))

    @property
    def ignores_labels(self) -> bool:
        """Whether training uses only the teacher's logits."""
        return bool(self.teacher) and self.teacher_weight == 1

    @property
    def init_layer_numbers(self) -> list[int]:
        """Layer numbers in `init_layers`, counting from 0; empty if it is unset.

        Raises:
            UserError: they are invalid.
        """
        if self.init_layers is None:
            return []
        parts = [part.strip() for part in self.init_layers.split(",")]
        numbers = [int(part) for part in parts if part.isdecimal()]
        if len({*numbers}) < len(parts):
            expected = "--init_layers must be distinct layer numbers, such as 0,2,4"
            raise UserError(f"{expected}. Received: {self.init_layers}")
        return numbers

    def steps_between_evaluations(self, steps_per_epoch: float) -> int | None:
        """Returns `eval_every` in steps, at least 1; None if it is unset.

        Raises:
            UserError: it is invalid.
        """
        if not self.eval_every:
            return None
        match = re.fullmatch(r"(\d+(?:\.\d+)?) *(steps?|epochs?)?", self.eval_every.strip())
        number = float(match[1]) if match else 0.0
        in_epochs = bool(match and match[2] and match[2].startswith("epoch"))
        if not match or not 0 < number < 2**31 or not (in_epochs or number.is_integer()):
            expected = "--eval_every must be a number of steps (200) or epochs (0.5epoch)"
            raise UserError(f"{expected}. Received: {self.eval_every}")
        return max(1, round(number * steps_per_epoch)) if in_epochs else int(number)
