"""run_pretraining as a library, with a tiny model: files, resumption, incompatible records."""

import glob
import json
import shutil

import numpy as np
import pytest

from bert_tf import checkpoint, training
from bert_tf.api.predictor import Predictor
from bert_tf.base.errors import UserError
from bert_tf.commands import convert_checkpoint
from bert_tf.data.records import count_records
from bert_tf.modeling import BertModel
from bert_tf.options import ConversionOptions, PretrainingOptions
from bert_tf.tasks import pretraining
from bert_tf.tasks.pretraining import create_data
from tests.base.test_locks import hold
from tests.tasks.pretraining.test_create_data import corpus  # noqa: F401
from tests.tasks.pretraining.test_create_data import options as data_options


@pytest.fixture
def records(tiny, corpus):  # noqa: F811
    create_data.run(data_options(tiny, corpus, output_file=f"{corpus}/a.tfr,{corpus}/b.tfr"))
    return corpus


def options(tiny, records, **changes):
    return PretrainingOptions(
        **{
            "bert_config_file": tiny.flags["bert_config_file"],
            "input_file": f"{records}/*.tfr",
            "output_dir": f"{records}/out",
            "max_seq_length": 24,
            "max_predictions_per_seq": 4,
            "train_batch_size": 8,
            "num_train_steps": 6,
            "num_warmup_steps": 2,
            "learning_rate": 1e-2,
            "save_checkpoints_steps": 4,
            "max_eval_steps": 5,
            **changes,
        }
    )


def read_tensors(folder, step):
    prefix = f"{folder}/model.ckpt-{step}"
    return dict(checkpoint.read(prefix, checkpoint.shapes(prefix)))


def assert_same_tensors(folder, other, step):
    expected, actual = read_tensors(folder, step), read_tensors(other, step)
    assert expected.keys() == actual.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(actual[name], value, err_msg=name)


def test_training_and_evaluation(tiny, records):
    results = pretraining.run(options(tiny, records, do_train=True, do_eval=True))
    out = records / "out"
    assert checkpoint.names_in(str(out)) == ["model.ckpt-0", "model.ckpt-4", "model.ckpt-6"]
    lines = (out / "eval_results.txt").read_text().splitlines()
    tasks = ("masked_lm", "next_sentence")
    names = [f"{task}_{name}" for task in tasks for name in ("accuracy", "loss")]
    assert [line.split(" = ")[0] for line in lines] == ["global_step", "loss", *names]
    assert results.metrics["global_step"] == 6
    assert results.metrics["loss"] < 4.5
    # Much better than chance over the 19 entries of the vocabulary.
    longer = options(tiny, records, do_train=True, do_eval=True, num_train_steps=60)
    assert pretraining.run(longer).metrics["masked_lm_loss"] < results.metrics["masked_lm_loss"]


def test_resumed_training_equals_uninterrupted_training(tiny, records, monkeypatch):
    uninterrupted_dir, resumed_dir = str(records / "whole"), str(records / "parts")
    pretraining.run(options(tiny, records, do_train=True, output_dir=uninterrupted_dir))
    train = training.train

    def stop_early(step, state, batches, options, devices, num_train_steps, *more):
        train(step, state, batches, options, devices, 3, *more)

    monkeypatch.setattr(training, "train", stop_early)
    pretraining.run(options(tiny, records, do_train=True, output_dir=resumed_dir))
    monkeypatch.undo()
    pretraining.run(options(tiny, records, do_train=True, output_dir=resumed_dir))
    assert_same_tensors(uninterrupted_dir, resumed_dir, 6)


def test_evaluation_during_training(tiny, records, run_log):
    changes = {"do_train": True, "eval_every": 2, "learning_rate": 0.5}
    results = pretraining.run(options(tiny, records, do_eval=True, **changes))
    out = records / "out"
    history = json.loads((out / "evaluations.json").read_text())
    losses = {evaluation["step"]: evaluation["loss"] for evaluation in history["evaluations"]}
    assert list(losses) == [2, 4, 6]
    best = min(losses, key=losses.get)
    # With this learning rate, the loss rises in the end.
    assert best < 6
    assert checkpoint.step_of(str(out / "best" / "model.ckpt")) == best
    assert results.metrics["global_step"] == best
    assert results.metrics["loss"] == pytest.approx(losses[best])
    rows = (out / "training_curve.tsv").read_text().splitlines()
    assert [row.split("\t")[0] for row in rows] == ["step", *"123456"]
    assert (out / "training_curve.png").read_bytes().startswith(b"\x89PNG")
    # Later runs use the best weights, but training continues from the newest.
    assert pretraining.run(options(tiny, records, do_eval=True)).metrics["global_step"] == best
    assert Predictor.from_output_dir(str(out / "best"), vocab_file=tiny.flags["vocab_file"])
    longer = {**changes, "num_train_steps": 8}
    pretraining.run(options(tiny, records, **longer))
    assert f"Resuming from {out}/model.ckpt-6" in run_log.text
    history = json.loads((out / "evaluations.json").read_text())
    assert [evaluation["step"] for evaluation in history["evaluations"]] == [2, 4, 6, 8]
    assert len((out / "training_curve.tsv").read_text().splitlines()) == 9


def test_complete_training_is_skipped(tiny, records, run_log):
    run = options(tiny, records, do_train=True)
    pretraining.run(run)
    saved = json.loads((records / "out" / "run.json").read_text())
    assert (saved["planned_steps"], saved["ended"]) == (6, True)
    # From scratch, this is as it should be.
    (message,) = [r for r in run_log.records if "initialized randomly" in r.getMessage()]
    assert message.levelname == "INFO"
    pretraining.run(run)
    message = "model.ckpt-6: Skipping training: it ended at step 6 of 6; to continue, raise --num_t"
    assert message in run_log.text


def test_micro_batches_equal_the_full_batch(tiny, records):
    """Rows have different numbers of masked words, so a mean of means would be wrong."""
    config = dict(tiny.config.to_dict(), hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    (records / "config.json").write_text(json.dumps(config))
    weights_per_run = []
    flags = {"bert_config_file": str(records / "config.json"), "learning_rate": 1e-3}
    for micro_batches in (1, 4):
        out = str(records / f"micro_batches{micro_batches}")
        flags |= {"output_dir": out, "gradient_accumulation_steps": micro_batches}
        pretraining.run(options(tiny, records, do_train=True, **flags))
        weights_per_run.append(read_tensors(out, 6))
    for name, value in weights_per_run[0].items():
        np.testing.assert_allclose(weights_per_run[1][name], value, atol=2e-5, err_msg=name)


def test_lamb_learns_and_resumes(tiny, records):
    flags = {"optimizer": "lamb", "learning_rate": 0.02, "num_warmup_steps": 2, "do_train": True}
    first = pretraining.run(options(tiny, records, do_eval=True, **flags))
    longer = options(tiny, records, do_eval=True, num_train_steps=30, **flags)
    assert pretraining.run(longer).metrics["masked_lm_loss"] < first.metrics["masked_lm_loss"]


def test_unused_next_sentence_head_does_not_change(tiny, records, run_log):
    pretraining.run(options(tiny, records, do_train=True, use_next_sentence=False))
    before, after = (read_tensors(records / "out", step) for step in (0, 6))
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    untouched = {name for name in before if "seq_relationship" in name or "pooler" in name}
    assert untouched
    assert not untouched & changed
    assert "cls/predictions/output_bias" in changed
    metrics = pretraining.run(options(tiny, records, do_eval=True, use_next_sentence=False)).metrics
    assert metrics["loss"] == pytest.approx(metrics["masked_lm_loss"], rel=0.05)
    assert "next_sentence_loss" not in metrics
    assert "use_next_sentence" not in run_log.text
    pretraining.run(options(tiny, records, do_eval=True))
    assert "out was trained with --use_next_sentence=false" in run_log.text


def test_xla_compiles_training_and_evaluation(tiny, records, run_log):
    flags = {"num_train_steps": 2, "max_eval_steps": 1, "jit_compile": "true"}
    run = options(tiny, records, do_train=True, do_eval=True, **flags)
    pretraining.run(run)
    assert "Compiled the training step in" in run_log.text
    length = run.max_seq_length
    for compiled in ("training step", "model"):
        assert f"XLA compiles the {compiled} first" in run_log.text
    assert run_log.text.count(f"padding to {length} tokens") == 2


def test_evaluation_on_training_records_warns(tiny, records, run_log):
    pretraining.run(options(tiny, records, do_train=True, do_eval=True, num_train_steps=1))
    assert "was trained on" not in run_log.text
    trained, other = sorted(records.glob("*.tfr"))[0], records / "other.tfrecord"
    shutil.copy(trained, other)
    pretraining.run(options(tiny, records, do_eval=True, input_file=str(other)))
    assert "was trained on" not in run_log.text
    pretraining.run(options(tiny, records, do_eval=True, input_file=f"{other},{trained}"))
    assert "out was trained on 1 of these 2 files" in run_log.text


def test_number_of_epochs_is_logged(tiny, records, run_log):
    count = sum(count_records(path) for path in glob.glob(f"{records}/*.tfr"))
    changes = {"num_train_steps": 2, "train_batch_size": 21 * count}
    pretraining.run(options(tiny, records, do_train=True, **changes))
    (record,) = [record for record in run_log.records if "has about" in record.getMessage()]
    expected = f"--input_file has about {count} records, read 42.0 times each"
    assert (record.getMessage(), record.levelname) == (expected, "WARNING")


def test_evaluation_repeats_a_small_dataset(tiny, records):
    short_run = options(tiny, records, do_eval=True, eval_batch_size=1, max_eval_steps=1)
    long_run = options(tiny, records, do_eval=True, eval_batch_size=64, max_eval_steps=40)
    assert pretraining.run(long_run).metrics["loss"] > 0
    assert pretraining.run(short_run).metrics["global_step"] == 0


# ---- Incompatible records ------------------------------------------------------------------


@pytest.mark.parametrize("has_metadata", [True, False])
def test_lengths_must_match_the_records(tiny, records, has_metadata):
    if not has_metadata:  # The original writes no metadata.
        for path in records.glob("*.tfr.json"):
            path.unlink()

    def assert_rejected(message, **changes):
        with pytest.raises(UserError, match=message):
            pretraining.run(options(tiny, records, do_train=True, **changes))
        assert not (records / "out").exists()

    assert_rejected(r"a\.tfr: made with --max_seq_length=24, not 16", max_seq_length=16)
    assert_rejected("--max_predictions_per_seq=4, not 5", max_predictions_per_seq=5)
    pretraining.run(options(tiny, records, do_eval=True))


def test_invalid_record_files(tiny, records):
    def assert_rejected(message, name, content=None):
        if content is not None:
            (records / name).write_bytes(content)
        with pytest.raises(UserError, match=message):
            pretraining.run(options(tiny, records, do_train=True, input_file=f"{records}/{name}"))

    assert_rejected("No file matches", "absent*")
    assert_rejected("empty: damaged, or no TFRecord file", "empty", b"")
    assert_rejected("text: damaged, or no TFRecord file", "text", b"no record at all, but text\n")
    (records / "a.tfr.json").write_text("{")
    assert_rejected(r"a\.tfr\.json:1: invalid JSON", "a.tfr")


def test_incompatible_vocabularies(tiny, records):
    path = records / "b.tfr.json"
    metadata = json.loads(path.read_text())
    path.write_text(json.dumps({**metadata, "vocab_sha256": "other"}))
    with pytest.raises(UserError, match=r"a\.tfr and .*b\.tfr use different vocab"):
        pretraining.run(options(tiny, records, do_train=True))
    path.write_text(json.dumps({**metadata, "vocab_size": 20}))
    with pytest.raises(UserError, match="made with 20 or more vocabulary entries, not 19"):
        pretraining.run(options(tiny, records, do_train=True, input_file=f"{records}/b.tfr"))


def test_resumed_run_with_another_vocabulary_is_rejected(tiny, records, tmp_path):
    flags = {"output_dir": str(tmp_path / "run"), "input_file": f"{records}/a.tfr"}
    pretraining.run(options(tiny, records, do_train=True, num_train_steps=1, **flags))
    path = records / "a.tfr.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "vocab_sha256": "other"}))
    message = r"--output_dir=.*run and .*a\.tfr use different vocabularies"
    for task in ({"do_train": True, "num_train_steps": 2}, {"do_eval": True}):
        with pytest.raises(UserError, match=message):
            pretraining.run(options(tiny, records, **task, **flags))


def test_evaluation_of_a_model_without_the_heads_names_the_script(tiny, records, run_log, tmp_path):
    BertModel(tiny.config).save(tmp_path / "encoder.keras")
    start = {"do_eval": True, "init_checkpoint": str(tmp_path / "encoder.keras")}
    pretraining.run(options(tiny, records, **start))
    assert "initialized randomly: cls/" in run_log.text


def test_vocabulary_next_to_the_checkpoint(tiny, records, tmp_path):
    for path in tiny.folder.glob("bert_model.ckpt*"):
        shutil.copy(path, tmp_path)
    start = {"do_eval": True, "init_checkpoint": str(tmp_path / "bert_model.ckpt")}
    shutil.copy(tiny.flags["vocab_file"], tmp_path / "vocab.txt")
    pretraining.run(options(tiny, records, **start))
    lines = (tmp_path / "vocab.txt").read_text().split()
    (tmp_path / "vocab.txt").write_text("\n".join([*lines[:-2], lines[-1], lines[-2]]) + "\n")
    with pytest.raises(UserError, match=r"init_checkpoint=.* and .*a\.tfr use different vocabular"):
        pretraining.run(options(tiny, records, **start))


def test_other_vocabulary_than_in_pretraining_warns(tiny, records, tmp_path, run_log):
    pretraining.run(options(tiny, records, do_train=True, num_train_steps=1))
    out = options(tiny, records).output_dir
    run = {"script": "predict_masked", "max_seq_length": 16}
    Predictor.from_output_dir(out, vocab_file=tiny.flags["vocab_file"], **run)
    assert "different vocabulary than" not in run_log.text
    lines = (tiny.folder / "vocab.txt").read_text().split()
    (tmp_path / "vocab.txt").write_text("\n".join([*lines[:-2], lines[-1], lines[-2]]) + "\n")
    Predictor.from_output_dir(out, vocab_file=str(tmp_path / "vocab.txt"), **run)
    message = f"{out} was pre-trained with a different vocabulary than {tmp_path}"
    assert run_log.text.count(message) == 1
    flags = {"input": out, "output": f"{tmp_path}/hf", "to": "hugging_face"}
    convert_checkpoint.run(ConversionOptions(**flags, vocab_file=str(tmp_path / "vocab.txt")))
    assert run_log.text.count(message) == 2


def test_truncated_records(tiny, records):
    content = (records / "a.tfr").read_bytes()
    (records / "a.tfr").write_bytes(content[: len(content) // 2 + 60])
    with pytest.raises(UserError, match=r"a\.tfr: incomplete: \d+ of \d+ bytes"):
        pretraining.run(options(tiny, records, do_train=True))
    assert not (records / "out").exists()
    (records / "a.tfr.json").unlink()  # The original writes no metadata.
    with pytest.raises(UserError, match=r"a\.tfr is not a complete TFRecord file"):
        pretraining.run(options(tiny, records, do_train=True, num_train_steps=60))


def test_no_step_requested(tiny, records):
    with pytest.raises(UserError, match="Nothing to do"):
        pretraining.run(options(tiny, records))


@pytest.mark.parametrize("task", ["do_train", "do_eval"])
def test_out_of_range_ids(tiny, records, task):
    (records / "a.tfr.json").unlink()
    (records / "small.json").write_text(json.dumps({**tiny.config.to_dict(), "vocab_size": 8}))
    small = {"bert_config_file": str(records / "small.json"), "input_file": f"{records}/a.tfr"}
    with pytest.raises(UserError, match="made with 19 or more vocabulary entries, not 8"):
        pretraining.run(options(tiny, records, **{task: True}, **small))


def test_output_dir_locked_by_concurrent_training_run(tiny, records):
    process = hold(f"{records}/out/.lock")
    with pytest.raises(UserError, match=f"out is in use by process {process.pid} on"):
        pretraining.run(options(tiny, records, do_train=True))
    process.communicate("")
    assert process.returncode == 0
