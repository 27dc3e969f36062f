"""run_classifier as a library, with a tiny model: written files, resumption, reproducibility."""

import io
import json
import logging
import os
import random
import shutil

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoint, training
from bert_tf.api.predictor import Predictor
from bert_tf.data import records
from bert_tf.modeling import BertClassifier
from bert_tf.modeling.losses import cross_entropy
from bert_tf.optimization import create_optimizer
from bert_tf.options import ClassifierOptions
from bert_tf.tasks import classification
from bert_tf.tasks.classification.metrics import classification_metrics
from bert_tf.training import build
from tests.checkpoints.formats.conftest import assert_same, values_of
from tests.conftest import WORDS
from tests.modeling.helpers import config, load, set_head
from tests.oracle import golden


def options(tiny, tmp_path, **changes):
    task = changes.pop("task_name", "MRPC")
    flags = {**tiny.flags, "task_name": task, "data_dir": str(tiny.folder / (task or "").lower())}
    flags |= {"init_checkpoint": tiny.checkpoint, "output_dir": str(tmp_path / "out")}
    return ClassifierOptions(**flags | changes)


ALL_STEPS = {"do_train": True, "do_eval": True, "do_predict": True}


@pytest.fixture(scope="module")
def mrpc(tiny, tmp_path_factory):
    """The results and the folder of a run with all steps, and its log."""
    folder, log = tmp_path_factory.mktemp("mrpc"), io.StringIO()
    logger, handler = logging.getLogger("bert_tf"), logging.StreamHandler(log)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    flags = {"num_train_epochs": 2.5, "save_checkpoints_steps": 5}
    results = classification.run(options(tiny, folder, **ALL_STEPS, **flags))
    logger.removeHandler(handler)
    logger.setLevel(level)
    return results.metrics, folder / "out", log.getvalue()


def test_all_steps_write_the_same_files_as_the_original(mrpc):
    metrics, out, log = mrpc
    steps = [0, 5, 10, 11]  # int(18 / 4 * 2.5) = 11
    expected = {"checkpoint", "eval", "eval.tf_record", "eval_results.txt", "predict.tf_record"}
    expected |= {"eval_results.json", "test_results.tsv", "train.tf_record"}
    expected |= {"bert_config.json", "vocab.txt", "labels.txt", "run.json", "records.json"}
    expected |= {"train_texts.npy"}
    expected |= {"test_predictions.tsv", "confusion_matrix.png"}
    expected |= {"report.html", "eval_predictions.tsv"}
    expected |= {"training_curve.tsv", "training_curve.png"}
    for step in steps:
        expected |= {f"model.ckpt-{step}.{x}" for x in ("index", "data-00000-of-00001")}
    names = {path.name for path in out.iterdir()}
    events = {name for name in names if name.startswith("events.out.tfevents.")}
    assert names - events == expected
    assert len(events) == len(list((out / "eval").iterdir())) == 1

    lines = (out / "eval_results.txt").read_text().splitlines()
    names = [line.split(" = ")[0] for line in lines]
    assert names[:4] == ["eval_accuracy", "eval_loss", "global_step", "loss"]
    assert names[4:] == sorted(names[4:])
    assert {"eval_f1", "eval_matthews", "eval_f1_macro"} <= set(names)
    assert f"eval_accuracy = {metrics['eval_accuracy']!s}" in lines
    assert "global_step = 11" in lines
    probabilities = np.loadtxt(out / "test_results.tsv", delimiter="\t")
    assert probabilities.shape == (13, 2)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-6)
    assert "11 steps in all, 1 of them warm-up" in log
    assert "bert_model.ckpt; new head" in log
    assert "on the CPU" in log or "on one GPU" in log


def test_curves_are_written(mrpc):
    _, out, log = mrpc
    speeds = {"sequences_per_second", "tokens_per_second"}
    assert _read_tags(out) == {"loss", "learning_rate", "gradient_norm", *speeds}
    for name in ("training_curve.png", "confusion_matrix.png"):
        assert f": {out / name}\n" in log, "the log names all plots"
    assert {"eval_accuracy", "eval_loss", "loss", "eval_f1"} <= _read_tags(out / "eval")


def _read_tags(folder):
    (path,) = folder.glob("events.out.tfevents.*")
    tags = set()
    for record in tf.data.TFRecordDataset(str(path)):
        event = tf.compat.v1.Event.FromString(record.numpy())
        for value in event.summary.value:
            assert value.metadata.plugin_data.plugin_name == "scalars"
            assert np.isfinite(tf.make_ndarray(value.tensor))
            tags.add(value.tag)
    return tags


def test_later_prediction_equals_prediction_after_training(mrpc, tiny, tmp_path):
    _, out, _ = mrpc
    flags = {"init_checkpoint": str(out / "model.ckpt-11"), "do_predict": True}
    classification.run(options(tiny, tmp_path, **flags))
    results = [(folder / "test_results.tsv").read_text() for folder in (out, tmp_path / "out")]
    assert results[0] == results[1]
    assert not list((tmp_path / "out").glob("model.ckpt*"))


def test_training_resumes_from_output_dir_over_init_checkpoint(tiny, tmp_path, run_log):
    one_epoch = options(tiny, tmp_path, do_train=True, num_train_epochs=1)
    classification.run(one_epoch)
    run_log.clear()
    classification.run(options(tiny, tmp_path, do_train=True, do_eval=True, num_train_epochs=2))
    assert "Resuming from" in run_log.text
    assert checkpoint.step_of(checkpoint.latest(str(tmp_path / "out"))) == 9
    run_log.clear()
    # An empty run.json is not an error. Skipped training keeps it; further training rewrites it.
    (tmp_path / "out" / "run.json").write_text("{}")
    classification.run(options(tiny, tmp_path, do_train=True, num_train_epochs=2))
    assert (tmp_path / "out" / "run.json").read_text() == "{}"
    assert "Skipping training" in run_log.text
    assert "Trained up to" not in run_log.text
    classification.run(options(tiny, tmp_path, do_train=True, num_train_epochs=2.3))
    assert json.loads((tmp_path / "out" / "run.json").read_text())["script"] == "run_classifier"


def test_another_init_checkpoint_is_ignored_with_a_warning(tiny, tmp_path, run_log):
    model = shutil.copytree(os.path.dirname(tiny.checkpoint), tmp_path / "model")
    moved, linked = tmp_path / "moved", tmp_path / "linked"
    linked.symlink_to(model)
    name = os.path.basename(tiny.checkpoint)
    for path, level in (
        (model / name, None),
        (linked / name, None),
        (f"{model}/./{name}", None),
        (f"{model}/{name}.index", None),
        ("elsewhere", "WARNING"),
        (tiny.folder / name, "WARNING"),
        (moved / name, "INFO"),
    ):
        run_log.clear()
        if level == "INFO":
            model.rename(moved)
        flags = {"do_train": True, "num_train_epochs": 1, "init_checkpoint": str(path)}
        classification.run(options(tiny, tmp_path, **flags))
        records = [r for r in run_log.records if "is ignored" in r.getMessage()]
        assert [record.levelname for record in records] == [level] * bool(level), path
        assert all(str(model / name) in record.getMessage() for record in records)


def test_weights_depend_only_on_the_seed(tiny, tmp_path):
    values = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        flags = {"do_train": True, "num_train_epochs": 1, "init_checkpoint": None}
        flags |= {"random_seed": seed, "output_dir": str(tmp_path / name)}
        classification.run(options(tiny, tmp_path, **flags))
        newest = checkpoint.latest(str(tmp_path / name))
        values.append(dict(checkpoint.read(newest, ["output_weights"]))["output_weights"])
    np.testing.assert_array_equal(values[0], values[1])
    assert np.abs(values[0] - values[2]).max() > 1e-3


def test_evaluation_of_an_untrained_model(tiny, tmp_path, run_log):
    run = options(tiny, tmp_path, do_eval=True, tpu_zone="b", iterations_per_loop=500)
    classification.run(run)
    # The records are those of the original.
    path = str(tmp_path / "out" / "eval.tf_record")
    example = tf.train.Example.FromString(next(iter(tf.data.TFRecordDataset(path))).numpy())
    lengths = {n: len(x.int64_list.value) for n, x in example.features.feature.items()}
    expected = dict.fromkeys(["input_ids", "input_mask", "segment_ids"], 24)
    assert lengths == expected | {"label_ids": 1, "is_real_example": 1}
    assert records.count_records(path) == 11
    assert "so initialized randomly: output_bias, output_weights" in run_log.text
    assert "Pass --do_train=true, or another checkpoint" in run_log.text
    assert "--tpu_zone=b: No effect without --use_tpu=true" in run_log.text
    assert "--iterations_per_loop=500: No effect" in run_log.text
    assert "--tpu_name" not in run_log.text
    run_log.clear()
    classification.run(options(tiny, tmp_path, do_predict=True, init_checkpoint=None))
    assert "all weights are initialized randomly" in run_log.text


def test_files_without_effect_warn(tiny, tmp_path, run_log):
    files = {"eval_file": "other.tsv", "predict_file": "new.tsv"}
    training.open_devices(options(tiny, tmp_path, **files))
    assert not run_log.messages  # those of a model that is only loaded
    training.open_devices(options(tiny, tmp_path, **files, do_train=True))
    assert run_log.messages == [
        "--eval_file has no effect without --do_eval=true",
        "--predict_file has no effect without --do_predict=true",
    ]
    run_log.clear()
    training.open_devices(options(tiny, tmp_path, **files, eval_every="1", do_predict=True))
    assert not run_log.messages


def test_yelp_tutorial_command(tiny, tmp_path):
    flags = {"task_name": "cola", "do_lower_case": False, "num_train_epochs": 1.0}
    results = classification.run(options(tiny, tmp_path, **ALL_STEPS, **flags))
    assert results.metrics["global_step"] == 4
    assert len((tmp_path / "out" / "test_results.tsv").read_text().splitlines()) == 7


def test_evaluation_metrics_match_the_original():
    case = np.load(golden("forward/classifier2_eval_metrics.npz"))
    model = load(set_head(BertClassifier(config(), 2), "classifier2"))
    inputs = {key: case[key] for key in ("input_ids", "input_mask", "segment_ids")}
    outputs = model(inputs)
    losses = np.asarray(cross_entropy(outputs["logits"], case["label_ids"]))
    real = case["is_real_example"] == 1
    metrics = classification_metrics(
        np.asarray(outputs["probabilities"])[real], case["label_ids"][real], losses[real]
    )
    assert metrics["eval_accuracy"] == pytest.approx(float(case["eval_accuracy"]), abs=1e-6)
    assert metrics["eval_loss"] == pytest.approx(float(case["eval_loss"]), abs=2e-5)
    assert losses.mean() == pytest.approx(float(case["loss"]), abs=2e-5)
    assert 0 in case["is_real_example"]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        pytest.param(
            {"precision": "bfloat16", "recompute_layers": True, "gradient_accumulation_steps": 2},
            marks=pytest.mark.slow,
        ),
        pytest.param({"precision": "float16", "length_grouping": True}, marks=pytest.mark.slow),
    ],
    ids=["default", "micro-batches", "float16"],
)
def test_resumed_run_equals_uninterrupted_run(tiny, tmp_path, monkeypatch, changes):
    """Bitwise: data order, optimizer slots, step, schedule and dropout are restored."""
    run = {"do_train": True, "num_train_epochs": 2, "learning_rate": 1e-2, **changes}
    classification.run(options(tiny, tmp_path, **run, output_dir=str(tmp_path / "whole")))

    monkeypatch.setattr(training, "train", _make_train_with_steps(4))
    classification.run(options(tiny, tmp_path, **run, output_dir=str(tmp_path / "parts")))
    monkeypatch.undo()
    assert checkpoint.names_in(str(tmp_path / "parts"))[-1] == "model.ckpt-4"
    classification.run(options(tiny, tmp_path, **run, output_dir=str(tmp_path / "parts")))

    whole, parts = (str(tmp_path / name / "model.ckpt-9") for name in ("whole", "parts"))
    assert_same(parts, whole)
    uninterrupted = values_of(whole)
    assert ("loss_scale" in uninterrupted) == (changes.get("precision") == "float16")
    start = dict(checkpoint.read(str(tmp_path / "whole" / "model.ckpt-0"), ["output_weights"]))
    assert np.abs(uninterrupted["output_weights"] - start["output_weights"]).max() > 1e-3


@pytest.mark.parametrize(
    "changes", [{}, {"gradient_accumulation_steps": 2, "recompute_layers": True}]
)
def test_padding_does_not_affect_weights_or_results(tiny, tmp_path, monkeypatch, changes):
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (tmp_path / "config.json").write_text(json.dumps({**tiny.config.to_dict(), **dropout}))
    # Weights larger than any initialization, so that results depend on the texts.
    start = values_of(tiny.checkpoint).items()
    large = {n: tf.constant(v * (15 if "kernel" in n or "word" in n else 1)) for n, v in start}
    checkpoint.write(str(tmp_path / "large.ckpt"), large)
    lengths = []
    make_train_step = training.make_train_step

    def record_lengths(*args):
        step = make_train_step(*args)
        return lambda batch, stop: lengths.append(batch["input_ids"].shape[1]) or step(batch, stop)

    monkeypatch.setattr(training, "make_train_step", record_lengths)
    results = []
    for fixed in (True, False):
        flags = {"bert_config_file": str(tmp_path / "config.json"), "learning_rate": 1e-3}
        flags |= {"init_checkpoint": str(tmp_path / "large.ckpt"), "fixed_shapes": fixed, **changes}
        folder = tmp_path / f"fixed {fixed}"
        run = options(tiny, tmp_path, **ALL_STEPS, **flags, output_dir=str(folder))
        metrics = classification.run(run).metrics
        weights = values_of(checkpoint.latest(run.output_dir))
        results.append((metrics, weights, np.loadtxt(folder / "test_results.tsv")))
    assert set(lengths[:13]) == {24}
    assert set(lengths[13:]) >= {16, 24}
    (padded, weights, rows), (trimmed, other_weights, other_rows) = results
    assert padded.keys() == trimmed.keys()
    for name in padded:
        assert padded[name] == pytest.approx(trimmed[name], rel=1e-5)
    np.testing.assert_allclose(rows, other_rows, rtol=1e-5)
    for name, value in weights.items():
        np.testing.assert_allclose(other_weights[name], value, atol=1e-5, err_msg=name)
    assert np.ptp(rows[:, 0]) > 1e-2


def _make_train_with_steps(steps):
    train = training.train

    def train_fewer_steps(step, state, batches, options, devices, num_train_steps, *more):
        train(step, state, batches, options, devices, steps, *more)

    return train_fewer_steps


def test_options_are_passed_to_the_optimizer_and_dropout(tiny, tmp_path, monkeypatch):
    optimizers, calls, call = [], [], BertClassifier.call

    def create(*arguments):
        optimizers.append(arguments)
        return create_optimizer(*arguments)

    def spy(self, inputs, training=None, dropout_seed=None):
        calls.append((training, dropout_seed is not None))
        return call(self, inputs, training=training, dropout_seed=dropout_seed)

    monkeypatch.setattr(build, "create_optimizer", create)
    monkeypatch.setattr(BertClassifier, "call", spy)
    flags = {"warmup_proportion": 0.5, "adam_bias_correction": True, "learning_rate": 1e-3}
    flags |= {"do_train": True, "do_eval": True, "num_train_epochs": 2}
    classification.run(options(tiny, tmp_path, **flags))
    assert optimizers == [(1e-3, 9, 4, True, "adamw")]
    assert calls == [(True, True), (False, False)]


def test_example_order_depends_on_the_seed(tiny, tmp_path, monkeypatch):
    first_batches = []

    def record_first_batch(step, state, batches, *rest):
        first_batches.append(next(iter(batches))["input_ids"].numpy().tolist())

    monkeypatch.setattr(training, "train", record_first_batch)
    for seed in (1, 1, 2):
        classification.run(options(tiny, tmp_path, do_train=True, random_seed=seed))
    assert first_batches[0] == first_batches[1] != first_batches[2]


def test_loss_is_the_mean_over_batches(tiny, tmp_path, monkeypatch):
    outputs = []
    predict_records = training.Inference.predict_records

    def record_outputs(*arguments):
        outputs.append(predict_records(*arguments))
        return outputs[-1]

    monkeypatch.setattr(training.Inference, "predict_records", record_outputs)
    run = options(tiny, tmp_path, do_eval=True, eval_batch_size=4)
    metrics = classification.run(run).metrics
    losses = outputs[0]["loss"]
    batches = np.split(losses, [4, 8])
    assert [len(batch) for batch in batches] == [4, 4, 3]
    assert metrics["loss"] == pytest.approx(np.mean([batch.mean() for batch in batches]), abs=1e-7)
    assert metrics["eval_loss"] == pytest.approx(losses.mean(), abs=1e-7)
    assert metrics["loss"] != metrics["eval_loss"]


def test_regression(tiny, tmp_path):
    folder = tmp_path / "sts-b"
    folder.mkdir()
    rng = random.Random(4)
    header = "\t".join("abcdefghi")
    for split, rows in (("train", 40), ("dev", 12), ("test", 7)):
        lines = [header if split == "test" else f"{header}\tscore"]
        for row in range(rows):
            words = rng.choices(WORDS, k=5)
            # The target is the number of words "good".
            score = f"\t{float(words.count('good'))}" if split != "test" else ""
            lines.append(f"{row}" + "\t-" * 6 + f"\t{' '.join(words)}\tthe film{score}")
        (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    flags = {"task_name": "STS-B", "data_dir": str(folder), "learning_rate": 3e-3}
    run = options(tiny, tmp_path, **flags, **ALL_STEPS, num_train_epochs=2)
    metrics = classification.run(run).metrics
    metric_names = {"eval_pearson", "eval_spearman", "eval_loss", "eval_mean_absolute_error"}
    assert metrics.keys() == {*metric_names, "loss", "global_step"}
    out = tmp_path / "out"
    values = [float(line) for line in (out / "test_results.tsv").read_text().splitlines()]
    texts = [line.split("\t")[7:9] for line in (folder / "test.tsv").read_text().splitlines()]
    predictor = Predictor.from_output_dir(out)
    assert predictor([tuple(pair) for pair in texts[1:]]) == pytest.approx(values, abs=1e-5)
    # The metrics match the written values.
    again = options(tiny, tmp_path, **flags, do_eval=True)
    assert classification.run(again).metrics == metrics
    rows = [line.split("\t")[7:] for line in (folder / "dev.tsv").read_text().splitlines()[1:]]
    scores = np.array([float(score) for *_, score in rows])
    predictions = np.array(predictor([(a, b) for a, b, _ in rows]))
    assert metrics["eval_loss"] == pytest.approx(np.square(predictions - scores).mean(), rel=1e-4)
    assert metrics["eval_pearson"] == pytest.approx(
        np.corrcoef(predictions, scores)[0, 1], abs=1e-4
    )
