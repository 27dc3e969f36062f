"""Masked language modeling and next sentence prediction; the work of `run_pretraining.py`."""

import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf import checkpoints, file_names, files, training
from bert_tf.checkpoints.run_folder import VOCAB, RunFolder
from bert_tf.config import BertConfig
from bert_tf.data.feature_specs import Feature
from bert_tf.data.records import count_records
from bert_tf.errors import UserError
from bert_tf.finetuning import output_dir, run_metadata
from bert_tf.finetuning.initialization import restore_weights
from bert_tf.finetuning.model_files import check_length, find_model_files
from bert_tf.finetuning.output_dir import Results
from bert_tf.finetuning.run_checks import check_resumed, describe_data
from bert_tf.modeling import BertPretrainer
from bert_tf.modeling.losses import MASKED_LM_EPSILON, cross_entropy
from bert_tf.progress import log
from bert_tf.tasks.pretraining.instance_records import record_features
from bert_tf.tasks.pretraining.options import PretrainingOptions
from bert_tf.tasks.pretraining.record_description import check_records
from bert_tf.tokenization import load_vocab, vocab_digest

# Number of records in the shuffle buffer; files are also read in random order.
_SHUFFLE_BUFFER = 20_000
# Entry of `run.json`: the paths of the training records, one per line.
_TRAINED_ON = "trained_on"
# Number of batches whose next sentence labels are unlikely to be the same by chance.
_MANY_BATCHES = 4


def run(options: PretrainingOptions) -> Results:
    """Trains a model on pre-training records, and evaluates it, as the options say."""
    options.check()
    options = find_model_files(options)
    config = BertConfig.from_json_file(options.bert_config_file or "")
    check_length(options, config)
    paths = file_names.expand(options.input_file or "")
    # Connect workers before reading records: TensorFlow must not compute anything before.
    devices = training.open_devices(options)
    with training.explained_errors(devices.workers), output_dir.locked(options, devices.is_chief):
        known_vocabulary = _find_vocabulary(options.init_checkpoint)
        vocabulary = check_records(paths, options, config, known_vocabulary)
        try:
            return _train_and_evaluate(options, config, paths, devices, vocabulary)
        except (tf.errors.DataLossError, UserError) as error:
            if tf.errors.DataLossError in (type(error), type(error.__cause__)):
                for path in paths:
                    count_records(path)  # Raises an error that names the damaged file.
            raise


def _find_vocabulary(checkpoint: str | None) -> str | None:
    if not checkpoint:
        return None
    folder = RunFolder.of(checkpoint)
    vocab_file = folder.find(VOCAB)
    if vocab_file:
        return vocab_digest(load_vocab(vocab_file))
    return folder.entry(run_metadata.VOCABULARY)


def _train_and_evaluate(
    options: PretrainingOptions,
    config: BertConfig,
    paths: Sequence[str],
    devices: training.Devices,
    vocabulary: str | None,
) -> Results:
    folder = options.output_dir or ""
    sizes = [(os.path.basename(path), files.size(path)) for path in paths]
    data = describe_data(sizes, unit="files")
    check_resumed(options, data)
    if options.do_eval and not options.do_train:
        _check_evaluation(options, paths)
    keras.utils.set_random_seed(options.random_seed)
    build, will_restore = functools.partial(BertPretrainer, config), bool(options.init_checkpoint)
    model = training.build_model(
        build, devices, options.recompute_layers, zero_init_encoder=will_restore
    )
    if options.do_train:
        training.check_training(model, options, devices)
    restored = restore_weights(model, options)
    step = checkpoints.step_of(restored) if restored else 0
    state, metadata = None, {}
    if options.do_train:
        trained_on = "\n".join(map(files.resolve, paths))
        extra: Any = {run_metadata.VOCABULARY: vocabulary, _TRAINED_ON: trained_on}
        metadata = run_metadata.run_files(options, bool(restored), data, **extra)
    if options.do_train and step < options.num_train_steps:
        state = training.create_train_state(
            model,
            options,
            devices,
            restore_from=restored,
            num_train_steps=options.num_train_steps,
            num_warmup_steps=options.num_warmup_steps,
        )
    elif options.do_train:
        log.warning("Skipping training: %s is already at step %d", restored, step)
    if devices.is_chief:
        RunFolder(folder).create(output_dir.EVAL_RESULTS)
    devices.require_equal(step, "step that training resumes from", "--output_dir")
    devices.require_equal(len(paths), "number of files", "--input_file")
    devices.require_equal_options(options)

    features = record_features(options)
    results = Results()
    if state:
        if devices.is_chief:
            files.write_texts(folder, metadata)
        _train(options, state, paths, features, devices)
        step = state.step
    if options.do_eval:
        metrics = _evaluate(options, model, paths, features, devices)
        results.metrics = {"global_step": step, **metrics}
        results.files += [os.path.join(folder, name) for name in output_dir.EVAL_FILES]
        if devices.is_chief:
            num_examples = options.max_eval_steps * options.eval_batch_size
            output_dir.write_metrics(folder, results.metrics, num_examples)
    # Wait, as all processes do here, until the chief has written its files.
    devices.from_chief(0)
    return results


def _check_evaluation(options: PretrainingOptions, paths: Sequence[str]) -> None:
    """Warns if the model was trained on the files, or without the next sentence loss."""
    folder = RunFolder.used_by(options)
    saved = folder.flags
    if folder.script != "run_pretraining":
        return
    if options.use_next_sentence and not saved.get("use_next_sentence", True):
        message = "%s was trained with --use_next_sentence=false: pass it, too"
        log.warning(message, folder)
    trained_on = {*(folder.entry(_TRAINED_ON) or "").split("\n")}
    if count := sum(files.resolve(path) in trained_on for path in paths):
        message = "%s was trained on %d of these %d files. Check --input_file"
        log.warning(message, folder, count, len(paths))


def _train(
    options: PretrainingOptions,
    state: training.TrainState,
    paths: Sequence[str],
    features: Sequence[Feature],
    devices: training.Devices,
) -> None:
    num_steps, lengths = options.num_train_steps, _full_length(options)
    devices = training.for_training(devices, options, num_steps, lengths)
    batches = training.training_batches(
        paths, features, options, devices, num_records=_SHUFFLE_BUFFER, skip_batches=state.step
    )
    loss = _make_loss(options.use_next_sentence)
    train_step = training.make_train_step(state, loss, options, devices, batches.element_spec)
    training.train(train_step, state, batches, options, devices, options.num_train_steps)


def _full_length(options: PretrainingOptions) -> training.Lengths:
    # Instances fill up `max_seq_length`, except for a few short ones.
    return training.Lengths(options.max_seq_length, [0] * options.max_seq_length + [1])


def _make_loss(use_next_sentence: bool) -> training.Loss:
    """Makes the loss: the mean over masked tokens plus, if used, the mean next sentence loss."""

    def totals(batch: Mapping[str, Any]) -> dict[str, Any]:
        return {"weights": tf.reduce_sum(batch["masked_lm_weights"])}

    def replica_loss(outputs: Any, batch: Mapping[str, Any], totals: Mapping[str, Any]) -> Any:
        rows = _compute_row_metrics(outputs, batch)
        loss = tf.reduce_sum(rows["masked_lm_loss"]) / (totals["weights"] + MASKED_LM_EPSILON)
        if use_next_sentence:
            loss += tf.reduce_sum(rows["next_sentence_loss"]) / totals["sequences"]
        return loss

    return training.Loss(totals, replica_loss)


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
        "next_sentence_labels": next_labels,
        "next_sentence_loss": cross_entropy(sentence_logits, next_labels),
        "next_sentence_correct": tf.cast(next_correct, tf.float32),
    }


def _evaluate(
    options: PretrainingOptions,
    model: keras.Model,
    paths: Sequence[str],
    features: Sequence[Feature],
    devices: training.Devices,
) -> dict[str, Any]:
    """Evaluates `max_eval_steps` batches; repeats them if there are fewer, like the original."""
    batch_size = options.eval_batch_size
    num_rows = options.max_eval_steps * batch_size
    devices = training.for_inference(devices, num_rows, _full_length(options))
    inference = training.Inference(model, _compute_row_metrics, features, devices, batch_size)
    rows = inference.predict_records(paths, num_rows, "eval")
    batches = {name: values.reshape(-1, batch_size) for name, values in rows.items()}
    # As in the original, `loss` is a mean over batches, but `masked_lm_loss` a mean over tokens.
    loss = batches["masked_lm_loss"].sum(1) / (
        batches["masked_lm_weights"].sum(1) + MASKED_LM_EPSILON
    )
    num_tokens = max(rows["masked_lm_weights"].sum(), np.float32(MASKED_LM_EPSILON))
    metrics = {
        "masked_lm_accuracy": rows["masked_lm_correct"].sum() / num_tokens,
        "masked_lm_loss": rows["masked_lm_loss"].sum() / num_tokens,
    }
    if options.use_next_sentence:
        if len(loss) >= _MANY_BATCHES and np.ptp(rows["next_sentence_labels"]) == 0:
            problem = "All records have the same next sentence label"
            log.warning("%s: the model cannot learn to predict it", problem)
        loss = loss + batches["next_sentence_loss"].mean(1)
        metrics["next_sentence_accuracy"] = rows["next_sentence_correct"].mean()
        metrics["next_sentence_loss"] = rows["next_sentence_loss"].mean()
    metrics["loss"] = loss.mean()
    return {name: np.float32(value) for name, value in metrics.items()}
