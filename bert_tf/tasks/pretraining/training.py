"""Masked language modeling and next sentence prediction; the work of `run_pretraining.py`."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf import training
from bert_tf.base import file_names, files
from bert_tf.base.errors import UserError, counted, warn
from bert_tf.checkpoints.run_folder import PLANNED_STEPS, VOCAB, VOCABULARY, RunFolder, fingerprint
from bert_tf.config import BertConfig
from bert_tf.data.records import count_records
from bert_tf.finetuning import run_metadata
from bert_tf.finetuning.model_files import check_length, find_model_files
from bert_tf.finetuning.run_checks import check_resumed, describe_data
from bert_tf.modeling import BertPretrainer
from bert_tf.modeling.losses import MASKED_LM_EPSILON, cross_entropy
from bert_tf.runs import output_dir
from bert_tf.runs.output_dir import Results
from bert_tf.runs.training_run import Plan, TrainingRecords, TrainingRun
from bert_tf.tasks.pretraining.options import PretrainingOptions
from bert_tf.tasks.pretraining.records import check_records, log_epochs, record_features
from bert_tf.tokenization import load_vocab, vocab_digest
from bert_tf.training.evaluation import Monitor

# Number of records in the shuffle buffer; files are also read in random order.
_SHUFFLE_BUFFER = 20_000
# Entry of `run.json`: the paths of the training records, one per line.
_TRAINED_ON = "trained_on"


def run(options: PretrainingOptions) -> Results:
    """Trains a model on pre-training records, and evaluates it, as the options say."""
    options.check()
    options, _ = find_model_files(options)
    config = options.config()
    check_length(options.max_seq_length, config)
    paths = file_names.expand(options.input_file or "")
    # Connect workers before reading records: until then, TensorFlow must not compute anything.
    devices = training.open_devices(options)
    lock = output_dir.locked(options.output_dir or "", devices.is_chief, options.do_train)
    with training.explained_errors(devices.workers), lock:
        vocabulary = check_records(paths, options, config, _find_vocabularies(options))
        try:
            monitor = Monitor("loss", [("loss", True)])
            return PretrainingRun(options, devices, monitor, config, paths, vocabulary).run()
        except (tf.errors.DataLossError, UserError) as error:
            if tf.errors.DataLossError in (type(error), type(error.__cause__)):
                for path in paths:
                    count_records(path)  # Raises an error that names the damaged file.
            raise


def _find_vocabularies(options: PretrainingOptions) -> dict[str, str]:
    """Returns digest -> flag for the vocabulary of the model to start from, if it is known."""
    folder = RunFolder.used_by(options)
    vocab_file = folder.find(VOCAB)
    digest = vocab_digest(load_vocab(vocab_file)) if vocab_file else folder.entry(VOCABULARY)
    flag = "init_checkpoint" if folder.model else "output_dir"
    return {digest: f"--{flag}={getattr(options, flag)}"} if digest else {}


@dataclasses.dataclass(eq=False)
class PretrainingRun(TrainingRun):
    """Pre-training and evaluation on the records in the files `paths`.

    `vocabulary` is the digest of their vocabulary, if known.
    """

    config: BertConfig
    paths: Sequence[str]
    vocabulary: str | None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._features = record_features(self.options)
        # Instances fill up `max_seq_length`, except for a few short ones.
        length = self.options.max_seq_length
        self._lengths = training.Lengths(length, [0] * length + [1])
        self._inference: training.Inference | None = None

    def prepare(self) -> Plan:
        """Compares the run with the one that it resumes; `run` has already checked the records."""
        options = self.options
        sizes = [(os.path.basename(path), files.size(path)) for path in self.paths]
        training_data = describe_data(sizes, unit="files")
        continues = check_resumed(options, training_data)
        shared = {"number of files (--input_file)": len(self.paths)}
        if not options.do_train:
            _check_evaluation(options, self.paths)
            return Plan(shared=shared)
        log_epochs(self.paths, options)
        trained_on = "\n".join(map(files.resolve, self.paths))
        entries: Any = {VOCABULARY: self.vocabulary, _TRAINED_ON: trained_on}
        entries[PLANNED_STEPS] = options.num_train_steps
        return Plan(
            num_train_steps=options.num_train_steps,
            num_warmup_steps=options.num_warmup_steps,
            eval_interval=options.eval_every or None,
            eval_examples=fingerprint(options.max_eval_steps, options.eval_batch_size, sizes),
            continues=continues,
            metadata=run_metadata.run_files(options, training_data, **entries),
            shared=shared,
        )

    def build_model(self, **kwargs: Any) -> BertPretrainer:
        """Builds the model with both heads."""
        return BertPretrainer(self.config, **kwargs)

    def training_records(self) -> TrainingRecords:
        """Returns all records, with the size of the shuffle buffer."""
        return TrainingRecords(self.paths, self._features, _SHUFFLE_BUFFER, self._lengths)

    def loss(self) -> training.Loss:
        """Returns the mean over masked tokens plus, if used, the mean next sentence loss."""

        def totals(batch: Mapping[str, Any]) -> dict[str, Any]:
            return {"weights": tf.reduce_sum(batch["masked_lm_weights"])}

        def share(outputs: Any, batch: Mapping[str, Any], totals: Mapping[str, Any]) -> Any:
            rows = _compute_row_metrics(outputs, batch)
            loss = tf.reduce_sum(rows["masked_lm_loss"]) / (totals["weights"] + MASKED_LM_EPSILON)
            if self.options.use_next_sentence:
                loss += tf.reduce_sum(rows["next_sentence_loss"]) / totals["sequences"]
            return loss

        return training.Loss(totals, share)

    def evaluate_and_predict(self) -> Results:
        """Evaluates if the options say so; pre-training predicts nothing."""
        if not self.options.do_eval:
            return Results()
        metrics = {"global_step": self.step, **self.compute_metrics()}
        if self.devices.is_chief:
            num_examples = self.options.max_eval_steps * self.options.eval_batch_size
            output_dir.write_metrics(self.folder.path, metrics, num_examples)
        return Results(metrics, [self.folder.file(name) for name in output_dir.EVAL_FILES])

    def compute_metrics(self) -> dict[str, Any]:
        """Evaluates `max_eval_steps` batches; repeats records as needed, like the original."""
        batch_size = self.options.eval_batch_size
        num_rows = self.options.max_eval_steps * batch_size
        if self._inference is None:
            devices = training.for_inference(self.devices, num_rows, self._lengths)
            self._inference = training.Inference(
                self.model, _compute_row_metrics, self._features, devices, batch_size
            )
        else:
            self._inference.refresh()
        rows = self._inference.predict_records(self.paths, num_rows, "eval")
        batches = {name: values.reshape(-1, batch_size) for name, values in rows.items()}
        # As in the original, `loss` is a mean over batches; `masked_lm_loss` one over tokens.
        num_tokens_of_batches = batches["masked_lm_weights"].sum(1) + MASKED_LM_EPSILON
        loss = batches["masked_lm_loss"].sum(1) / num_tokens_of_batches
        num_tokens = max(rows["masked_lm_weights"].sum(), np.float32(MASKED_LM_EPSILON))
        metrics = {
            "masked_lm_accuracy": rows["masked_lm_correct"].sum() / num_tokens,
            "masked_lm_loss": rows["masked_lm_loss"].sum() / num_tokens,
        }
        if self.options.use_next_sentence:
            loss = loss + batches["next_sentence_loss"].mean(1)
            metrics["next_sentence_accuracy"] = rows["next_sentence_correct"].mean()
            metrics["next_sentence_loss"] = rows["next_sentence_loss"].mean()
        metrics["loss"] = loss.mean()
        return {name: np.float32(value) for name, value in metrics.items()}


def _check_evaluation(options: PretrainingOptions, paths: Sequence[str]) -> None:
    folder = RunFolder.used_by(options)
    if folder.script != "run_pretraining":
        return
    if options.use_next_sentence and not folder.flags.get("use_next_sentence", True):
        warn(f"{folder} was trained with --use_next_sentence=false")
    trained_on = {*(folder.entry(_TRAINED_ON) or "").split("\n")}
    if count := sum(files.resolve(path) in trained_on for path in paths):
        warn(f"{folder} was trained on {count} of these {counted(len(paths), 'file')}")


def _compute_row_metrics(outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> dict[str, Any]:
    """Computes losses and correct predictions of each row [B], added over its masked tokens."""
    token_logits, sentence_logits = outputs["masked_lm_logits"], outputs["next_sentence_logits"]
    labels, weights = batch["masked_lm_ids"], batch["masked_lm_weights"]  # [B, P]
    next_labels = batch["next_sentence_labels"][:, 0]
    correct = tf.argmax(token_logits, axis=-1, output_type=tf.int32) == labels
    next_correct = tf.argmax(sentence_logits, axis=-1, output_type=tf.int32) == next_labels
    return {
        "masked_lm_loss": tf.reduce_sum(weights * cross_entropy(token_logits, labels), axis=1),
        "masked_lm_correct": tf.reduce_sum(weights * tf.cast(correct, tf.float32), axis=1),
        "masked_lm_weights": tf.reduce_sum(weights, axis=1),
        "next_sentence_loss": cross_entropy(sentence_logits, next_labels),
        "next_sentence_correct": tf.cast(next_correct, tf.float32),
    }
