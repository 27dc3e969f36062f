"""Knowledge distillation: training on the logits of a teacher (Hinton et al. 2015), or its vectors.

In shapes, B is the batch size, S `max_seq_length`, L the number of labels (or endings), T the
number of texts of a row, and D the size of a vector.
"""

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from keras import ops

from bert_tf import checkpoints, training
from bert_tf.base import files
from bert_tf.base.errors import UserError, note
from bert_tf.checkpoints.formats import find_source
from bert_tf.checkpoints.run_folder import RUN, VOCAB, RunFolder, fingerprint
from bert_tf.data.features import Feature
from bert_tf.finetuning import run_metadata
from bert_tf.finetuning.engines import checkpoint_id, loaded, open_model
from bert_tf.finetuning.model_files import read_model_files
from bert_tf.finetuning.run_checks import give_schema
from bert_tf.finetuning.task import Task
from bert_tf.inference.row_batches import RowBatches
from bert_tf.options import registry
from bert_tf.options.declare import MODEL, ROWS

_PAD_LOGIT = -1e9

RowLoss = Callable[[Any, Mapping[str, Any]], Any]


class Teacher:
    """A trained model whose logits become features of the training records.

    Attributes:
        features: record features with its logits: [L], [S] or, for token labels, [L, S].
        identity: digest of what its targets depend on; if it changes, the records are rewritten.
    """

    def __init__(
        self, student: Task, teacher: Task, prefix: str, devices: training.Devices
    ) -> None:
        self._student, self._teacher, self._prefix = student, teacher, prefix
        self._devices = devices
        # Name of the feature -> (model output, kind of its logits).
        self._soft_targets = {
            f"teacher_{target[0]}": target for target in student.traits.soft_targets
        }
        length, num_labels = student.options.max_seq_length, max(len(student.schema.labels), 1)
        shapes = {"positions": length, "tokens": (num_labels, length)}
        self.features = tuple(
            Feature(name, shapes.get(kind, num_labels), "float32", per_token=kind in shapes)
            for name, (_, kind) in self._soft_targets.items()
        )
        # The checkpoint's index file contains checksums of all weights.
        with files.open_binary(f"{prefix}.index") as index:
            self.identity = self._identify(index.read())

    def _identify(self, weights: Any) -> str:
        options, precision = self._teacher.options, self._student.options.precision
        texts = [files.read_text(x or "") for x in (options.bert_config_file, options.vocab_file)]
        return fingerprint(weights, options.values(ROWS | MODEL), precision, *texts)

    def add_targets(
        self, batches: Iterable[Mapping[str, np.ndarray]], examples: Sequence[Any]
    ) -> Iterator[dict[str, np.ndarray]]:
        """Yields the rows of the examples with the teacher's logits; frees its model at the end."""
        note(f"Teacher: computing the logits of {self._prefix} for the training set")
        inference = self._open(self._student.features("predict"))
        for rows in batches:
            yield {**rows, **inference.predict(rows)}

    def _open(self, inputs: Sequence[Feature]) -> RowBatches:
        options = self._teacher.options
        return open_model(
            RunFolder(options.output_dir or ""),
            loaded(self._teacher.build_model, self._load_weights),
            self._fetch,
            inputs,
            options,
            self._student.options.predict_batch_size,
            devices=self._devices,
        )

    def _load_weights(self, model: Any) -> None:
        checkpoints.load_weights(model, self._prefix).require_exact()

    def _fetch(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> dict[str, Any]:
        padded_logits = {}
        for feature in self.features:
            name, kind = self._soft_targets[feature.name]
            logits = ops.cast(outputs[name], "float32")
            logits = ops.swapaxes(logits, 1, 2) if kind == "tokens" else logits
            # The batch may have been trimmed to its longest row: pad the logits to S.
            padding = feature.shape[-1] - ops.shape(logits)[-1]
            logits = ops.pad(logits, [*[[0, 0]] * len(feature.shape), [0, padding]])
            padded_logits[feature.name] = ops.reshape(logits, (-1, *feature.shape))
        return padded_logits

    def mix_with(self, label_loss: RowLoss) -> RowLoss:
        """Returns a loss, (outputs, batch) -> [B], that combines `label_loss` and distillation."""
        options = self._student.options
        weight, temperature = options.teacher_weight, options.teacher_temperature

        def mixed(outputs: Any, batch: Mapping[str, Any]) -> Any:
            losses = [
                row_loss(kind, outputs[name], batch[key], batch.get("input_mask"), temperature)
                for key, (name, kind) in self._soft_targets.items()
            ]
            distillation = sum(losses) / float(len(losses))
            if weight == 1:
                return distillation
            return (1 - weight) * label_loss(outputs, batch) + weight * distillation

        return mixed if weight else label_loss


class VectorTeacher(Teacher):
    """An encoder whose vectors of texts become features; it may have other layers and vocabulary.

    `texts` returns the T texts of an example, as examples of `teacher`. The soft targets are the
    vector of the first, [D], and those of the others, [T - 1, D]. `shape` is T, D.
    """

    def __init__(
        self,
        student: Task,
        teacher: Task,
        texts: Callable[[Any], Iterable[Any]],
        shape: tuple[int, int],
        devices: training.Devices,
    ) -> None:
        self._student, self._teacher, self._devices = student, teacher, devices
        self._texts, self._shape = texts, shape
        self._source = find_source(teacher.options.init_checkpoint or "")
        self._soft_targets = {f"teacher_{x[0]}": x for x in student.traits.soft_targets}
        sizes = zip(self._soft_targets, (shape[1], (shape[0] - 1, shape[1])), strict=True)
        self.features = tuple(Feature(name, size, "float32") for name, size in sizes)
        path = self._source.path
        self.identity = self._identify(checkpoint_id(os.path.dirname(path), path, teacher.options))

    def add_targets(
        self, batches: Iterable[Mapping[str, np.ndarray]], examples: Sequence[Any]
    ) -> Iterator[dict[str, np.ndarray]]:
        """Yields the rows of the examples with its vectors; frees its model at the end."""
        note(f"Teacher: computing the vectors of {self._source.path} for the training set")
        inference, remaining = self._open(self._teacher.features("predict")), iter(examples)
        for rows in batches:
            chunk = itertools.islice(remaining, len(rows["input_ids"]))
            texts = [text for example in chunk for text in self._texts(example)]
            outputs = inference.predict(self._teacher.featurize(texts, "predict"))
            vectors = outputs["vectors"].reshape(-1, *self._shape)
            parts = zip(self._soft_targets, (vectors[:, 0], vectors[:, 1:]), strict=True)
            yield {**rows, **dict(parts)}

    def _load_weights(self, model: Any) -> None:
        note(checkpoints.load_weights(model, self._source).describe())

    def _fetch(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> dict[str, Any]:
        return {"vectors": ops.cast(outputs[self._student.traits.soft_targets[0][0]], "float32")}


def row_loss(kind: str, student: Any, teacher: Any, input_mask: Any, temperature: float) -> Any:
    """Computes T^2 KL(teacher || student) of the probabilities at temperature T for each row, [B].

    `kind` says how logits become probabilities, and how their losses are reduced to one per row:

    - classes [B, L]: softmax over L.
    - labels [B, L]: sigmoid, mean over L.
    - number [B, 1]: the squared difference instead, without temperature.
    - positions [B, S]: softmax over the positions that are not padding.
    - tokens [B, S, L] (teacher: [B, L, S]): softmax over L, mean over S without padding.
    - vectors [B, D] or [B, T, D]: the squared distance of both, scaled to length 1, instead,
      without temperature; mean over T.
    """
    student = ops.cast(student, "float32")
    if kind == "vectors":
        distances = ops.sum(ops.square(ops.normalize(student) - ops.normalize(teacher)), axis=-1)
        return ops.mean(ops.reshape(distances, (ops.shape(distances)[0], -1)), axis=1)
    if kind == "number":
        return ops.mean(ops.square(student - teacher), axis=-1)
    if kind == "tokens":
        teacher = ops.swapaxes(teacher, 1, 2)
    student, teacher = student / temperature, teacher / temperature
    if kind == "positions":
        student, teacher = (ops.where(input_mask != 0, x, _PAD_LOGIT) for x in (student, teacher))
    if kind == "labels":
        # The two terms of a label: for its presence and for its absence.
        divergence = ops.mean(_kl_terms(teacher, student, ops.log_sigmoid), axis=-1)
        divergence += ops.mean(_kl_terms(-teacher, -student, ops.log_sigmoid), axis=-1)
    else:
        divergence = ops.sum(_kl_terms(teacher, student, ops.log_softmax), axis=-1)
    if kind == "tokens":
        mask = ops.cast(input_mask, "float32")
        divergence = ops.sum(mask * divergence, axis=1) / ops.maximum(ops.sum(mask, axis=1), 1.0)
    return temperature**2 * divergence


def _kl_terms(teacher: Any, student: Any, to_log_probabilities: Callable[[Any], Any]) -> Any:
    log_teacher = to_log_probabilities(teacher)
    return ops.exp(log_teacher) * (log_teacher - to_log_probabilities(student))


def open_teacher(
    make_task: Callable[..., Task], task: Task, devices: training.Devices
) -> Teacher | None:
    """Checks `--teacher` and returns the teacher, with weights not loaded yet; None if it is unset.

    Raises a UserError if the task or the devices do not support distillation, or if the teacher
    was trained for other rows or outputs (see `_require_same_rows`).
    """
    folder = task.options.teacher
    if not folder:
        return None
    if teacher := task.open_teacher(devices):
        return teacher
    if not task.traits.soft_targets:
        raise UserError(f"--teacher: {type(task).__name__} does not support distillation")
    _require_same_rows(folder, task)
    # With the options for a Predictor, the task reads no data.
    options = run_metadata.options_for_model(folder)
    teacher = give_schema(make_task(*read_model_files(options)))
    outputs = [dict(x.traits.soft_targets) for x in (teacher, task)]
    _require_same(folder, {"outputs": outputs})
    return Teacher(task, teacher, RunFolder(folder).checkpoint(), devices)


def _require_same_rows(folder: str, task: Task) -> None:
    """Raises a UserError unless task, labels, inputs and vocabulary are the teacher's."""
    options, script = task.options, registry.script_of(type(task.options))
    run = RunFolder(folder)
    run.require_one_run()
    teacher_script, flags = run.script, run.require_flags()
    if not teacher_script:
        raise UserError(f"No such file: {run.file(RUN)} ({files.describe_parent(run.file(RUN))})")
    _require_same(folder, {"script": (teacher_script, script)})
    vocabularies = run.file(VOCAB), options.vocab_file or ""
    is_same = len({files.read_text(path).rstrip() for path in vocabularies}) == 1
    settings = {
        "task": (run_metadata.other_task(run, options) or options.task, options.task),
        "labels": (run.labels() or [], [*task.schema.labels]),
        "do_lower_case": (flags.get("do_lower_case"), options.do_lower_case),
        "special_tokens": (flags.get("special_tokens") or None, options.special_tokens or None),
        "max_seq_length": (flags.get("max_seq_length"), options.max_seq_length),
        "vocabulary": ("", "") if is_same else vocabularies,
    }
    _require_same(folder, settings)
    run_metadata.warn_of_other_inputs(run, options, options.max_seq_length)


def _require_same(folder: str, settings: Mapping[str, Sequence[Any]]) -> None:
    for name, (theirs, ours) in settings.items():
        if theirs != ours:
            raise UserError(f"--teacher={folder} was trained with {name}={theirs}, not {ours}")
