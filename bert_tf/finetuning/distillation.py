"""Knowledge distillation: training on the logits of a teacher (Hinton et al. 2015).

B batch, L labels or endings, S max_seq_length.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from keras import ops

from bert_tf import files, registry, training
from bert_tf.checkpoints import label_map
from bert_tf.data.feature_specs import Feature, sequence_features
from bert_tf.errors import UserError
from bert_tf.finetuning import run_metadata
from bert_tf.finetuning.initialization import restore_strict, trained_checkpoint
from bert_tf.finetuning.model_files import load_config_and_tokenizer
from bert_tf.finetuning.run_checks import requested_task
from bert_tf.finetuning.task import Task
from bert_tf.progress import log

# Teacher and student read the same rows, so these flags must be equal.
_SAME_FLAGS = ("do_lower_case", "max_seq_length", "problem_type")
_LOWEST = -1e9

RowLoss = Callable[[Any, Mapping[str, Any]], Any]


class Teacher:
    """A trained model whose logits become features of the training records.

    Attributes:
        features: declare its logits in the records: [L], [S] or, for token labels, [L, S].
        identity: digest of its weights and configuration, part of the records' key.
    """

    def __init__(
        self, student: Task, teacher: Task, prefix: str, devices: training.Devices
    ) -> None:
        self._student, self._teacher, self._prefix = student, teacher, prefix
        self._devices = devices
        self._kinds = {f"teacher_{name}": (name, kind) for name, kind in student.soft_targets}
        self.features = tuple(self._feature(name) for name in self._kinds)
        # The index contains checksums of all weights.
        with files.open_binary(f"{prefix}.index") as index:
            digest = hashlib.blake2b(index.read(), digest_size=16)
        digest.update(files.read_text(teacher.options.bert_config_file or "").encode())
        self.identity = digest.hexdigest()

    def _feature(self, name: str) -> Feature:
        kind, length = self._kinds[name][1], self._student.options.max_seq_length
        count = max(len(self._student.labels), 1)
        shape = {"positions": length, "tokens": (count, length)}.get(kind, count)
        return Feature(name, shape, "float32", per_token=kind in ("positions", "tokens"))

    def add_logits(
        self, batches: Iterable[Mapping[str, np.ndarray]]
    ) -> Iterator[dict[str, np.ndarray]]:
        """Yields the rows with the teacher's logits; frees its model at the end."""
        log.info("Teacher: computing the logits of %s for the training set", self._prefix)
        model = training.build_model(
            self._teacher.build_model, self._devices, zero_init_encoder=True
        )
        restore_strict(model, self._prefix)
        options = self._student.options
        inputs = sequence_features(options.max_seq_length, self._student.texts_per_row)
        size = options.predict_batch_size
        inference = training.Inference(model, self._fetch, inputs, self._devices, size)
        for rows in batches:
            yield {**rows, **inference.predict(rows)}

    def _fetch(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> dict[str, Any]:
        padded_logits = {}
        for feature in self.features:
            name, kind = self._kinds[feature.name]
            logits = ops.cast(outputs[name], "float32")
            logits = ops.swapaxes(logits, 1, 2) if kind == "tokens" else logits
            # A batch may be trimmed to its longest row.
            padding = feature.shape[-1] - ops.shape(logits)[-1]
            logits = ops.pad(logits, [*[[0, 0]] * len(feature.shape), [0, padding]])
            padded_logits[feature.name] = ops.reshape(logits, (-1, *feature.shape))
        return padded_logits

    def mix_with(self, label_loss: RowLoss) -> RowLoss:
        """Returns the loss (outputs, batch) -> [B], weighted by `--teacher_weight`."""
        options = self._student.options
        weight, temperature = options.teacher_weight, options.teacher_temperature

        def mixed(outputs: Any, batch: Mapping[str, Any]) -> Any:
            losses = [
                row_loss(kind, outputs[name], batch[key], batch["input_mask"], temperature)
                for key, (name, kind) in self._kinds.items()
            ]
            soft = sum(losses) / float(len(losses))
            return (1 - weight) * label_loss(outputs, batch) + weight * soft if weight < 1 else soft

        return mixed if weight else label_loss


def row_loss(kind: str, student: Any, teacher: Any, input_mask: Any, temperature: float) -> Any:
    """Computes T^2 KL(teacher || student) of the probabilities at temperature T, [B].

    `kind` says how logits become probabilities, and how their losses are reduced to one per row:

    - classes [B, L]: softmax over L.
    - labels [B, L]: sigmoid, mean over L.
    - number [B, 1]: the squared difference instead, without temperature.
    - positions [B, S]: softmax over the positions that are not padding.
    - tokens [B, S, L], the teacher's [B, L, S]: softmax over L, mean over these positions.
    """
    student = ops.cast(student, "float32")
    if kind == "number":
        return ops.mean(ops.square(student - teacher), axis=-1)
    if kind == "tokens":
        teacher = ops.swapaxes(teacher, 1, 2)
    student, teacher = student / temperature, teacher / temperature
    if kind == "positions":
        student, teacher = (ops.where(input_mask != 0, x, _LOWEST) for x in (student, teacher))
    if kind == "labels":
        differences = ops.mean(_divergence(teacher, student, ops.log_sigmoid), axis=-1)
        differences += ops.mean(_divergence(-teacher, -student, ops.log_sigmoid), axis=-1)
    else:
        differences = ops.sum(_divergence(teacher, student, ops.log_softmax), axis=-1)
    if kind == "tokens":
        mask = ops.cast(input_mask, "float32")
        differences = ops.sum(mask * differences, axis=1) / ops.maximum(ops.sum(mask, axis=1), 1.0)
    return temperature**2 * differences


def _divergence(teacher: Any, student: Any, log_of: Callable[[Any], Any]) -> Any:
    log_teacher = log_of(teacher)
    return ops.exp(log_teacher) * (log_teacher - log_of(student))


def open_teacher(
    make_task: Callable[..., Task], task: Task, devices: training.Devices
) -> Teacher | None:
    """Checks `--teacher` and returns it without loading its weights; None if it is not set.

    Raises:
        UserError: the teacher was trained with a different script, task, label list, vocabulary or
            length, or the task does not support distillation.
    """
    folder = task.options.teacher
    if not folder:
        return None
    if not task.soft_targets:
        raise UserError(f"--teacher: {type(task).__name__} does not support distillation")
    if devices.workers > 1:
        raise UserError("--teacher runs in one process: unset TF_CONFIG")
    _require_same_rows(folder, task)
    # As for a Predictor: reads no data.
    options = run_metadata.read_options(folder)
    teacher = make_task(options, *load_config_and_tokenizer(options))
    return Teacher(task, teacher, trained_checkpoint(folder), devices)


def _require_same_rows(folder: str, task: Task) -> None:
    """Raises a UserError unless the teacher was trained for this task, on rows of the same form."""
    options, script = task.options, registry.script_of(type(task.options))
    teacher_script, flags = run_metadata.read_run(folder)
    if teacher_script != script:
        absence = files.describe_absence(os.path.join(folder, run_metadata.RUN))
        reason = f"{teacher_script}.py trained it" if teacher_script else f"no run.json: {absence}"
        raise UserError(f"--teacher={folder} is not an output_dir of {script}.py ({reason})")
    task_name = requested_task(options)
    labels = os.path.join(folder, label_map.LABELS_FILE)
    pairs: dict[str, tuple[Any, Any]] = {
        "task": (run_metadata.other_task(folder, task_name) or task_name, task_name),
        "labels": (label_map.read(labels) if files.exists(labels) else [], [*task.labels]),
    }
    for name in _SAME_FLAGS:
        pairs[name] = flags.get(name), getattr(options, name, None)
    for name, (theirs, ours) in pairs.items():
        if theirs != ours:
            raise UserError(
                f"--teacher={folder} was trained with {name}={theirs}, but this run has "
                f"{name}={ours}. Both must be the same"
            )
    teacher_vocab, vocab = os.path.join(folder, run_metadata.VOCAB), options.vocab_file or ""
    if files.read_text(teacher_vocab).rstrip() != files.read_text(vocab).rstrip():
        raise UserError(
            f"The vocabulary of --teacher, {teacher_vocab}, differs from that of this run, {vocab}"
        )
