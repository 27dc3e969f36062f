"""Pre-training on masked words and next sentences: what `run_pretraining.py` runs."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf import checkpoint, file_names, files, training
from bert_tf.config import BertConfig
from bert_tf.data.records import Feature, count_records
from bert_tf.errors import UserError
from bert_tf.finetuning import run_metadata
from bert_tf.finetuning.initialization import check_length, located, restore_weights
from bert_tf.finetuning.output_dir import Results, prepare_output_dir, reserved, write_metrics
from bert_tf.finetuning.run_checks import check_resumed, describe_data
from bert_tf.modeling import BertPretrainer
from bert_tf.modeling.losses import MASKED_LM_EPSILON, cross_entropy
from bert_tf.options import PretrainingOptions
from bert_tf.progress import log
from bert_tf.tasks.agreement import require_same, require_same_options
from bert_tf.tasks.engine import Engine
from bert_tf.tasks.pretraining.create_data import features
from bert_tf.tasks.pretraining.instance_records import check_records
from bert_tf.tasks.pretraining.instances import Recipe

# Records in memory to be shuffled; files are read in turn besides.
_SHUFFLED_RECORDS = 20_000


def run(options: PretrainingOptions) -> Results:
    """Trains and evaluates, as the options say.

    Returns:
        The figures of the evaluation.

    Raises:
        UserError: options, configuration, checkpoint or records are not right; nothing in
            `output_dir` has been changed then. Or a file cannot be written.
    """
    options.check()
    options = located(options)
    config = BertConfig.from_json_file(options.bert_config_file or "")
    check_length(options, config)
    paths = file_names.expand(options.input_file or "")
    # Before the records are looked at: workers must be connected before anything is computed.
    engine = Engine(options)
    devices = engine.devices
    with training.explained_errors(devices.workers), reserved(options, devices.is_chief):
        check_records(
            paths,
            options.max_seq_length,
            options.max_predictions_per_seq,
            config,
            _vocab_beside(options.init_checkpoint or ""),
        )
        try:
            return _run(options, config, paths, engine)
        except (tf.errors.DataLossError, UserError) as error:
            if tf.errors.DataLossError in (type(error), type(error.__cause__)):
                for path in paths:
                    count_records(path)  # Names the file that is damaged.
            raise


def _vocab_beside(init_checkpoint: str) -> str:
    """The vocabulary in the folder of a published checkpoint; empty if there is none."""
    folder = init_checkpoint if files.is_dir(init_checkpoint) else os.path.dirname(init_checkpoint)
    path = os.path.join(folder, "vocab.txt")
    return path if init_checkpoint and files.exists(path) else ""


def _run(
    options: PretrainingOptions, config: BertConfig, paths: Sequence[str], engine: Engine
) -> Results:
    data = describe_data((os.path.basename(path), files.size(path)) for path in paths)
    check_resumed(options, data)
    keras.utils.set_random_seed(options.random_seed)
    model = engine.build_model(
        lambda **kwargs: BertPretrainer(config, **kwargs),
        options.recompute_layers,
        blank_encoder=bool(options.init_checkpoint),
    )
    if options.do_train:
        engine.check_training(model)
    output_dir = options.output_dir or ""
    restored = restore_weights(
        model, output_dir, options.init_checkpoint, options.do_train, options.resume
    )
    step = checkpoint.step_of(restored) if restored else 0
    trainer = None
    if options.do_train and step < options.num_train_steps:
        trainer = engine.make_trainer(
            model, options.num_train_steps, options.num_warmup_steps, restored, options.optimizer
        )
    elif options.do_train:
        log.warning("Skipping training: %s is at step %d already", restored, step)
    kept = run_metadata.contents(options, bool(restored), data) if options.do_train else {}
    if engine.devices.is_chief:
        prepare_output_dir(output_dir, kept)
    require_same(engine.devices, step, "step that it goes on from", "--output_dir")
    require_same(engine.devices, len(paths), "number of files", "--input_file")
    require_same_options(engine.devices, engine.options)

    declared = features(Recipe(options.max_seq_length, options.max_predictions_per_seq))
    results = Results()
    if trainer:
        if engine.devices.is_chief:
            run_metadata.write(output_dir, kept)
        batches = engine.training_dataset(paths, declared, _SHUFFLED_RECORDS, step)
        engine.train(model, trainer, _loss(options.use_next_sentence), batches)
        step = options.num_train_steps
    if options.do_eval:
        count = options.max_eval_steps * options.eval_batch_size
        results.metrics = _evaluate(options, model, engine, paths, declared, step)
        if engine.devices.is_chief:
            results.files.append(write_metrics(output_dir, results.metrics, step, count))
    # Nobody leaves before the chief has written.
    engine.devices.from_chief(0)
    return results


def _loss(use_next_sentence: bool) -> training.Loss:
    """Masked words over all positions that carry weight, and next sentences over all rows."""

    def totals(batch: Mapping[str, Any]) -> dict[str, Any]:
        return {"weights": tf.reduce_sum(batch["masked_lm_weights"])}

    def share(outputs: Any, batch: Mapping[str, Any], totals: Mapping[str, Any]) -> Any:
        rows = _row_figures(outputs, batch)
        words = tf.reduce_sum(rows["word_loss"]) / (totals["weights"] + MASKED_LM_EPSILON)
        if not use_next_sentence:
            return words
        return words + tf.reduce_sum(rows["sentence_loss"]) / totals["sequences"]

    return training.Loss(totals, share)


def _row_figures(outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> dict[str, Any]:
    """Of each row [B]: losses, right answers and weights of its masked words, and its sentence."""
    words, sentences = outputs["masked_lm_logits"], outputs["next_sentence_logits"]
    labels, weights = batch["masked_lm_ids"], batch["masked_lm_weights"]
    follows = batch["next_sentence_labels"][:, 0]
    right = tf.argmax(words, axis=-1, output_type=tf.int32) == labels
    sentence_right = tf.argmax(sentences, axis=-1, output_type=tf.int32) == follows
    return {
        "word_loss": tf.reduce_sum(weights * cross_entropy(words, labels), axis=1),
        "word_right": tf.reduce_sum(weights * tf.cast(right, tf.float32), axis=1),
        "words": tf.reduce_sum(weights, axis=1),
        "sentence_loss": cross_entropy(sentences, follows),
        "sentence_right": tf.cast(sentence_right, tf.float32),
    }


def _evaluate(
    options: PretrainingOptions,
    model: keras.Model,
    engine: Engine,
    paths: Sequence[str],
    declared: Sequence[Feature],
    step: int,
) -> dict[str, Any]:
    """As the original: so many batches of the files, which are repeated where they do not last."""
    size = options.eval_batch_size
    run = engine.batch_runner(
        model,
        _row_figures,
        paths,
        declared,
        num_examples=options.max_eval_steps * size,
        batch_size=size,
        what="eval",
    )
    rows = run()
    batches = {name: values.reshape(-1, size) for name, values in rows.items()}
    per_batch = batches["word_loss"].sum(1) / (batches["words"].sum(1) + MASKED_LM_EPSILON)
    if options.use_next_sentence:
        per_batch = per_batch + batches["sentence_loss"].mean(1)
    words = max(rows["words"].sum(), np.float32(MASKED_LM_EPSILON))
    return {
        "global_step": step,
        "loss": np.float32(per_batch.mean()),
        "masked_lm_accuracy": np.float32(rows["word_right"].sum() / words),
        "masked_lm_loss": np.float32(rows["word_loss"].sum() / words),
        "next_sentence_accuracy": np.float32(rows["sentence_right"].mean()),
        "next_sentence_loss": np.float32(rows["sentence_loss"].mean()),
    }
