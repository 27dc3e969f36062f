"""User errors: raised before any work starts or files are written, with a one-line message."""

import json
import logging
import os
import shutil

import numpy as np
import pytest

from bert_tf import checkpoint, checkpoints
from bert_tf.base.errors import UserError
from bert_tf.config import BertConfig
from bert_tf.modeling import BertPretrainer
from bert_tf.options import ClassifierOptions, cli
from bert_tf.tasks import classification
from tests.base.test_locks import hold
from tests.checkpoints.formats.conftest import values_of
from tests.conftest import SIZES
from tests.oracle import golden
from tests.tasks.classification.test_task import options

SUFFIXES = ("index", "data-00000-of-00001")


def _assert_user_error(run_options, message):
    with pytest.raises(UserError, match=message) as error:
        classification.run(run_options)
    assert "\n" not in str(error.value)
    out = run_options.output_dir
    if out and os.path.isdir(out):
        assert not [name for name in os.listdir(out) if "tf_record" in name]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"do_eval": False}, "Nothing to do: pass --do_train"),
        (
            {"task_name": "sst2"},
            "--task_name must be one of tsv .*, ax, cola, .*, wnli, xnli.*sst2",
        ),
        ({"data_dir": None}, "--data_dir"),
        ({"data_dir": "{tmp}/absent"}, "no folder .*/absent"),
        ({"vocab_file": "{tmp}/absent/vocab.txt"}, "No such file: .*/absent/vocab.txt"),
        (
            {"bert_config_file": None, "vocab_file": "", "init_checkpoint": None},
            "--init_checkpoint=FOLDER",
        ),
        ({"max_seq_length": 25}, "--max_seq_length=25 exceeds the model's 24 positions"),
        ({"max_seq_length": 2}, "--max_seq_length must be at least 3"),
        ({"num_train_epochs": float("inf")}, "--num_train_epochs must be between 1e-06 and"),
        ({"precision": "int8"}, "--engine=tensorflow does not support --precision=int8"),
        ({"distribution_strategy": "multi_worker"}, "needs the environment variable TF_CONFIG"),
        (
            {"distribution_strategy": "mirrored", "use_tpu": True},
            "--use_tpu=true conflicts with --distribution_strategy=mirrored: omit one",
        ),
        ({"eval_batch_size": 10**20}, "--eval_batch_size must be between 1 and 2147483647"),
        ({"data_dir": "{tmp}/file.tsv"}, "there is no folder .*file.tsv"),
        (
            {"init_checkpoint": "/m/cased_L-12_H-768_A-12/bert_model.ckpt"},
            "--do_lower_case=false",
        ),
        (
            {
                "init_checkpoint": "/m/uncased_L-12_H-768_A-12/bert_model.ckpt",
                "do_lower_case": False,
            },
            "--do_lower_case=true",
        ),
        (
            {"do_train": True, "train_batch_size": 100, "num_train_epochs": 1.0},
            "--num_train_epochs=1.0 of 18 examples are less than one step",
        ),
        ({"task_name": "xnli", "data_dir": "x", "do_predict": True, "do_eval": False}, "no test"),
    ],
)
def test_invalid_flags(tiny, tmp_path, changes, message):
    changes = {"do_eval": True, "data_dir": str(tiny.folder / "mrpc"), **changes}
    (tmp_path / "file.tsv").write_text("")
    for name, value in changes.items():
        if isinstance(value, str):
            changes[name] = value.replace("{tmp}", str(tmp_path))
    _assert_user_error(options(tiny, tmp_path, **changes), message)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"1\t0\ta\tfine\n2\tonly\n", r"dev\.tsv:2: .*needs 4 columns.*Received 2"),
        (b"id,label,a,text\n", r"dev\.tsv:1: .*separated by tabs"),
        (b"1\t0\ta\tx\n2\t2\ta\tx\n", r"dev\.tsv:2: label '2' of task cola is not one of 0, 1"),
        (b"1\t0\ta\tcaf\xe9\n", r"dev\.tsv:1: the file is not UTF-8"),
        ("1\t0\ta\tx\n".encode("utf-16"), "iconv -f utf-16"),
        (b"\n\n", "dev.tsv contains no examples"),
    ],
)
def test_invalid_data_files(tiny, tmp_path, content, message):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "dev.tsv").write_bytes(content)
    run = options(tiny, tmp_path, task_name="cola", data_dir=str(folder), do_eval=True)
    _assert_user_error(run, message)
    assert not (tmp_path / "out").exists()


def test_missing_file_error_lists_existing_files(tiny, tmp_path):
    shutil.copytree(tiny.folder / "mrpc", tmp_path / "data")
    os.remove(tmp_path / "data" / "train.tsv")
    run = options(tiny, tmp_path, data_dir=str(tmp_path / "data"), do_train=True)
    _assert_user_error(run, r"No such file: .*train\.tsv.*has: dev\.tsv, test\.tsv")


def test_file_variants_give_the_same_metrics(tiny, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    text = (tiny.folder / "mrpc" / "dev.tsv").read_text().replace("good", '"good', 1)
    metrics = []
    crlf = text.replace("\n", "\r\n")
    for content in (text, f"\ufeff{crlf}", f"{text}\n\n\n", text.rstrip("\n")):
        (folder / "dev.tsv").write_bytes(content.encode())
        run = options(tiny, tmp_path, data_dir=str(folder), do_eval=True)
        metrics.append(classification.run(run).metrics)
    assert all(found == metrics[0] for found in metrics)


def test_invalid_vocabulary(tiny, tmp_path):
    vocab = (tiny.folder / "vocab.txt").read_text()
    path = tmp_path / "vocab.txt"
    run = options(tiny, tmp_path, vocab_file=str(path), do_eval=True)
    path.write_text(vocab + "more\n")
    _assert_user_error(run, "has 20 entries, but the model has only 19")
    path.write_text(vocab.replace("[SEP]", "\n[SEP]") + " \n")
    _assert_user_error(run, "has 21 entries, but the model has")
    path.write_text(vocab.replace("[CLS]", "CLS"))
    _assert_user_error(run, r"lacks \[CLS\]")
    path.write_bytes(b"\xff\xfe")
    _assert_user_error(run, "not UTF-8")
    path.write_text("\n".join(vocab.splitlines()[:-3]) + "\n")
    assert classification.run(run).metrics["global_step"] == 0


def test_invalid_init_checkpoint(tiny, tmp_path):
    def run(path):
        return options(tiny, tmp_path, init_checkpoint=str(path), do_eval=True)

    message = r"bert\.ckpt\.index does not exist .*bert_model\.ckpt"
    _assert_user_error(run(tiny.folder / "bert.ckpt"), message)
    wide = BertPretrainer(BertConfig(19, **{**SIZES, "hidden_size": 32}))
    prefix = tmp_path / "other.ckpt"
    values = checkpoints.named_variables(wide)
    checkpoint.write(str(prefix), {name: variable.value for name, variable in values.items()})
    _assert_user_error(run(prefix), r"does not fit.*\(checkpoint \[19, 32\], model \[19, 16\]\)")
    truncated = tmp_path / "truncated.ckpt"
    for suffix in SUFFIXES:
        shutil.copyfile(f"{tiny.checkpoint}.{suffix}", f"{truncated}.{suffix}")
    with open(f"{truncated}.data-00000-of-00001", "r+b") as file:
        file.truncate(100)
    _assert_user_error(run(truncated), "missing, damaged or not a checkpoint")
    assert not (tmp_path / "out").exists()


def test_head_with_different_num_labels_is_rejected(tiny, tmp_path):
    run = options(tiny, tmp_path, do_train=True, num_train_epochs=1)
    classification.run(run)
    mnli = tmp_path / "mnli"
    mnli.mkdir()
    row = "\t".join(["x"] * 8 + ["a", "b", "neutral"])
    (mnli / "dev_matched.tsv").write_text(f"header\n{row}\n")
    flags = {"task_name": "mnli", "data_dir": str(mnli), "output_dir": str(tmp_path / "new")}
    flags["init_checkpoint"] = str(tmp_path / "out" / "model.ckpt-4")
    run = options(tiny, tmp_path, **flags, do_eval=True)
    _assert_user_error(run, r"output_weights \(checkpoint \[2, 16\], model \[3, 16\]\)")


def test_output_dir_of_a_different_model_is_rejected(tiny, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    checkpoint.write(str(out / "model.ckpt-5"), {"bert/x": np.float32([1])})
    (out / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-5"\n')
    run = options(tiny, tmp_path, do_train=True)
    _assert_user_error(run, "Cannot load the checkpoint in.*another --output_dir")
    names = [f"model.ckpt-5.{suffix}" for suffix in SUFFIXES]
    for name, suffix in zip(names, SUFFIXES, strict=True):
        shutil.copyfile(f"{tiny.checkpoint}.{suffix}", out / name)
    _assert_user_error(run, "not match this model. Missing variables: output_bias")
    assert {*os.listdir(out)} == {"checkpoint", *names}


def test_output_dir_with_other_num_layers_is_rejected(tiny, tmp_path):
    classification.run(options(tiny, tmp_path, do_train=True, num_train_epochs=1))
    before = sorted(os.listdir(tmp_path / "out"))
    config = {**tiny.config.to_dict(), "num_hidden_layers": tiny.config.num_hidden_layers + 1}
    (tmp_path / "other.json").write_text(json.dumps(config))
    run = options(tiny, tmp_path, do_train=True, bert_config_file=str(tmp_path / "other.json"))
    with pytest.raises(UserError, match="another --output_dir"):
        classification.run(run)
    assert sorted(os.listdir(tmp_path / "out")) == before


@pytest.mark.parametrize("num_bytes", [100, 30000])
def test_damaged_latest_checkpoint_is_skipped(tiny, tmp_path, num_bytes, caplog):
    run = options(tiny, tmp_path, do_train=True, num_train_epochs=1, save_checkpoints_steps=2)
    classification.run(run)
    original = values_of(str(tmp_path / "out" / "model.ckpt-4"))
    data = tmp_path / "out" / "model.ckpt-4.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:-num_bytes])
    caplog.clear()
    classification.run(run)
    assert "model.ckpt-4: damaged, skipping it" in caplog.text
    # Training again from step 2 reproduces the weights.
    for name, value in values_of(str(tmp_path / "out" / "model.ckpt-4")).items():
        np.testing.assert_array_equal(value, original[name], err_msg=name)


def test_only_damaged_checkpoints_are_rejected(tiny, tmp_path):
    classification.run(options(tiny, tmp_path, do_train=True, num_train_epochs=1))
    out = tmp_path / "out"
    for data in out.glob("model.ckpt-[1-9]*.data-*"):
        data.write_bytes(data.read_bytes()[:-100])
    # Only that of step 0 can be read, whose evaluation would overwrite the results.
    with pytest.raises(UserError, match=r"All trained checkpoints in .* are damaged"):
        classification.run(options(tiny, tmp_path, do_eval=True))
    mtime = (out / "train.tf_record").stat().st_mtime_ns
    for data in out.glob("*.data-*"):
        data.write_bytes(data.read_bytes()[:-100])
    with pytest.raises(UserError, match="missing, damaged or not a checkpoint"):
        classification.run(options(tiny, tmp_path, do_train=True, num_train_epochs=2))
    assert (out / "train.tf_record").stat().st_mtime_ns == mtime


def test_indivisible_batch_size_is_rejected(tiny, tmp_path):
    run = options(tiny, tmp_path, do_train=True, gradient_accumulation_steps=3)
    _assert_user_error(run, "--train_batch_size=4 cannot be split for 1 device and --gradient")


def test_resume_must_and_never(tiny, tmp_path):
    flags = {"do_train": True, "num_train_epochs": 1}
    run = options(tiny, tmp_path, **flags, resume="must")
    _assert_user_error(run, "resume=must, but .* no checkpoint")
    classification.run(options(tiny, tmp_path, **flags, resume="never"))
    with pytest.raises(UserError, match=r"resume=never, but .*model\.ckpt-4"):
        classification.run(options(tiny, tmp_path, **flags, resume="never"))
    flags |= {"num_train_epochs": 2, "do_eval": True}
    resumed = classification.run(options(tiny, tmp_path, **flags, resume="must"))
    assert resumed.metrics["global_step"] == 9
    # Without training, "never" ignores existing checkpoints.
    eval_only = options(tiny, tmp_path, do_eval=True, resume="never")
    assert classification.run(eval_only).metrics["global_step"] == 0


def test_invalid_flags_of_the_original_are_rejected():
    cases = json.loads(golden("validation.json").read_text())
    cases = [case for case in cases if case["script"] == "run_classifier.py"]
    root = golden("classifier").parent
    for case in cases:
        with pytest.raises(UserError):
            _run_in_folder(root, case["argv"])
    assert len(cases) >= 9
    assert all(case["exit_code"] == 1 for case in cases)


def _run_in_folder(folder, argv):
    working_dir = os.getcwd()
    os.chdir(folder)
    try:
        classification.run(cli.parse(ClassifierOptions, ["script", *argv]))
    finally:
        os.chdir(working_dir)


def test_missing_header_warns(tiny, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("bert_tf"), "propagate", True)
    folder = tmp_path / "data"
    folder.mkdir()
    lines = (tiny.folder / "mrpc" / "dev.tsv").read_text().splitlines(keepends=True)
    (folder / "dev.tsv").write_text("".join(lines[1:]))
    classification.run(options(tiny, tmp_path, data_dir=str(folder), do_eval=True))
    assert "expected a header with '#1 String' as column 4 (mrpc)" in caplog.text


def test_output_dir_is_a_file(tiny, tmp_path):
    (tmp_path / "out").write_text("mine")
    _assert_user_error(options(tiny, tmp_path, do_eval=True), "must be a folder, but is a file")
    assert (tmp_path / "out").read_text() == "mine"


@pytest.mark.parametrize("num_runs", [1, 2])
def test_output_dir_locked_by_another_run(tiny, tmp_path, num_runs):
    """Evaluation is allowed, and so is training once the other process is killed."""
    process = hold(tmp_path / "out" / ".lock")
    training = options(tiny, tmp_path, do_train=True, do_eval=True, num_runs=num_runs)
    with pytest.raises(UserError, match=f"out is in use by process {process.pid} on .*: wait"):
        classification.run(training)
    assert os.listdir(tmp_path / "out") == [".lock"]
    if num_runs == 1:
        classification.run(options(tiny, tmp_path, do_eval=True))
    process.kill()
    process.communicate()
    classification.run(training)
    folder = tmp_path / "out" / ("run_2" if num_runs == 2 else "")
    assert (folder / "checkpoint").exists()
    assert not (tmp_path / "out" / ".lock").exists()


def test_output_dir_that_cannot_be_created(tiny, tmp_path):
    (tmp_path / "mine").write_text("mine")
    run = options(tiny, tmp_path, do_train=True, output_dir=str(tmp_path / "mine" / "b"))
    _assert_user_error(run, "Cannot create the folder .*mine")


def test_data_is_read_before_the_model_is_built(tiny, tmp_path, run_log):
    run = options(tiny, tmp_path, do_eval=True, data_dir=str(tmp_path / "absent"))
    _assert_user_error(run, "no folder .*/absent")
    assert "parameters in float32" not in run_log.text
