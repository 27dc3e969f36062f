"""Runs in the output directory of an earlier run: warnings, errors and written files."""

import dataclasses
import json
import random
import shutil

import numpy as np
import pytest

from bert_tf import training
from bert_tf.api.predictor import Predictor
from bert_tf.base.errors import UserError
from bert_tf.checkpoints.formats import find_source
from bert_tf.checkpoints.run_folder import RunFolder
from bert_tf.commands import convert_checkpoint, export_model
from bert_tf.finetuning import run_checks, run_metadata
from bert_tf.finetuning.model_files import read_model_files
from bert_tf.modeling import BertModel
from bert_tf.options import (
    ClassifierOptions,
    ConversionOptions,
    ExportOptions,
    NerOptions,
    PretrainingOptions,
    registry,
)
from bert_tf.runs.output_dir import result_path
from bert_tf.tasks import classification
from tests.tasks.classification.test_task import options
from tests.training.helpers import ONE_DEVICE

TRAINING = {"do_train": True, "num_train_epochs": 1.0, "warmup_proportion": 0.5}


@pytest.fixture(scope="module")
def trained(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    classification.run(options(tiny, folder, **TRAINING, do_eval=True))
    return folder / "out"


@pytest.fixture
def out(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "out")


def read_files(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def warning_messages(run_log):
    return [
        record.getMessage()
        for record in run_log.records
        # Ignore TensorFlow's warnings about frequent retracing.
        if record.levelname == "WARNING" and record.name.startswith("bert_tf")
    ]


def test_runs_leave_the_generators_of_the_program_unchanged(tiny, out, tmp_path):
    assert (out / "vocab.txt").read_bytes() == (tiny.folder / "vocab.txt").read_bytes()
    before = random.getstate(), np.random.get_state()
    classification.run(options(tiny, tmp_path, do_eval=True, init_checkpoint=str(out)))
    assert random.getstate() == before[0]
    np.testing.assert_array_equal(np.random.get_state()[1], before[1][1])
    assert np.random.get_state()[2:] == before[1][2:]


def test_skipped_training_warns_about_changes(tiny, out, tmp_path, run_log):
    before = read_files(out)
    classification.run(options(tiny, tmp_path, **TRAINING))
    (skipped,) = warning_messages(run_log)
    assert "Skipping training" in skipped
    run_log.clear()
    data_dir = shutil.copytree(tiny.folder / "mrpc", tmp_path / "flipped")
    header, *rows = (data_dir / "train.tsv").read_text().splitlines()
    rows = [f"{1 - int(row[0])}{row[1:]}" for row in rows]
    (data_dir / "train.tsv").write_text("\n".join([header, *rows]) + "\n")
    changes = {"train_batch_size": 6, "max_seq_length": 20, "learning_rate": 1e-3}
    changes |= {"random_seed": 5, "warmup_proportion": 0.1, "eval_every": "1"}
    run = {**TRAINING, **changes, "data_dir": str(data_dir)}
    classification.run(options(tiny, tmp_path, **run))
    messages = warning_messages(run_log)
    assert f"{out}: train_batch_size was 4, now 6" in messages
    assert f"{out}: max_seq_length was 24, now 20" in messages
    assert f"{out}: learning_rate was 5e-05, now 0.001" in messages
    assert f"{out}: random_seed was 12345, now 5" in messages
    assert f"{out}: warmup_proportion was 0.5, now 0.1" in messages
    (changed,) = [message for message in messages if "the training data was 18 rows" in message]
    assert "now 18 rows" in changed
    assert read_files(out) == before
    # Evaluation writes only its results.
    classification.run(options(tiny, tmp_path, **run, do_eval=True))
    after = read_files(out)
    written = {path.name for path in after if after[path] != before.get(path)}
    written = {name for name in written if "tfevents" not in name}
    assert written <= {"eval_results.txt", "eval_results.json", "confusion_matrix.png",
                       "eval.tf_record", "records.json", "report.html",
                       "eval_predictions.tsv"}  # fmt: skip


def test_more_epochs_do_not_warn(tiny, out, tmp_path, run_log):
    classification.run(options(tiny, tmp_path, **{**TRAINING, "num_train_epochs": 1.5}))
    assert f"{out}: num_train_epochs was 1.0, now 1.5" in run_log.text
    (message,) = warning_messages(run_log)
    assert message.startswith(f"{out}: written before this training, and not renewed: eval_pred")
    assert json.loads((out / "run.json").read_text())["flags"]["num_train_epochs"] == 1.5


def test_checkpoint_of_a_different_task_is_rejected(tiny, out, tmp_path):
    before = read_files(out)
    message = "task=MRPC, not CoLA. Choose another .*--init_checkpoint="
    with pytest.raises(UserError, match=message):
        classification.run(options(tiny, tmp_path, **TRAINING, task_name="CoLA"))
    assert read_files(out) == before


@pytest.mark.parametrize(
    ("name", "value", "is_old"),
    [
        ("script", "run_ner", False),
        ("problem_type", "multilabel", False),
        ("problem_type", "multilabel", True),
    ],
)
def test_different_output_type_is_rejected(tiny, out, tmp_path, name, value, is_old):
    run = json.loads((out / "run.json").read_text())
    run[name] = value
    if is_old:  # version 1.0
        run["flags"][name] = run.pop(name)
    if name == "script":
        run["flags"] = {"max_seq_length": 24}
    (out / "run.json").write_text(json.dumps(run))
    for steps in (TRAINING, {"do_eval": True}):
        with pytest.raises(UserError, match=f"{value}, (not run_classifier|and this run has)"):
            classification.run(options(tiny, tmp_path, **steps))


def test_results_of_another_task_are_not_overwritten(tiny, out, tmp_path, run_log):
    before = {name: (out / name).read_text() for name in ("eval_results.txt", "eval_results.json")}
    run = options(tiny, tmp_path, task_name="CoLA", do_eval=True, do_predict=True)
    results = classification.run(run)
    assert warning_messages(run_log) == [f"{out} was trained for task MRPC, not CoLA"]
    assert {name: (out / name).read_text() for name in before} == before
    names = {"eval_results_cola.txt", "eval_results_cola.json", "confusion_matrix_cola.png"}
    names |= {"test_results_cola.tsv", "test_predictions_cola.tsv"}
    names |= {"report_cola.html", "eval_predictions_cola.tsv"}
    assert names == {path.rsplit("/", 1)[1] for path in results.files}
    assert all((out / name).exists() for name in names)
    assert not (out / "test_results.tsv").exists()


@pytest.mark.parametrize(
    ("trained_task", "task", "suffix"),
    [
        ("XNLI", "mnli-mm", ""),
        ("MRPC", "mrpc", ""),
        ("MRPC", "WNLI", "_wnli"),
        ("tsv", "MRPC", "_mrpc"),
        (None, "MRPC", ""),
    ],
)
def test_result_suffix(tmp_path, run_log, trained_task, task, suffix):
    saved = {"script": "run_classifier", "flags": {"task_name": trained_task}}
    (tmp_path / "run.json").write_text(json.dumps(saved))
    run = ClassifierOptions(task_name=task, do_eval=True, output_dir=str(tmp_path))
    assert run_checks.result_suffix(run) == suffix
    expected = [f"{tmp_path} was trained for task {trained_task}, not {task}"]
    assert warning_messages(run_log) == (expected if suffix else [])


@pytest.mark.parametrize("text", ["{}", '{"script": "run_classifier", "flags": {}}'])
def test_run_json_of_an_older_release(tiny, out, tmp_path, run_log, text):
    (out / "run.json").write_text(text)
    classification.run(options(tiny, tmp_path, **{**TRAINING, "train_batch_size": 6}))
    (skipped,) = warning_messages(run_log)
    assert "Skipping training" in skipped


def test_missing_run_json_warns(tiny, out, tmp_path, run_log):
    flags = {"do_predict": True}
    (out / "run.json").unlink()
    classification.run(options(tiny, tmp_path, **flags))
    assert "/out/model.ckpt-4: no run.json: the flags of its training" in run_log.text
    # The original's checkpoints have a .meta file, and no run.json.
    run_log.clear()
    (out / "run.json").unlink(missing_ok=True)
    (out / "model.ckpt-4.meta").touch()
    classification.run(options(tiny, tmp_path, **flags))
    assert "no run.json" not in run_log.text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "invalid JSON"),
        (
            '{"script": "run_classifier", "flags": {"long_text": "cut"}}',
            "--long_text must be one of truncate, windows. Received: cut",
        ),
    ],
)
def test_damaged_run_json_is_an_error_in_all_scripts(tiny, out, tmp_path, text, problem):
    (out / "run.json").write_text(text)
    message = f"{out}/run.json.*{problem}"
    started_from = {"init_checkpoint": str(out), "output_dir": str(tmp_path / "new")}
    for flags in (TRAINING, {"do_eval": True}, {"do_predict": True}):
        for model in ({}, started_from):
            with pytest.raises(UserError, match=message):
                classification.run(options(tiny, tmp_path, **flags, **model))
    conversion = ConversionOptions(input=str(out), output=str(tmp_path / "x.ckpt"))
    for function, run in (
        (export_model.run, ExportOptions(model_dir=str(out), export_dir=str(tmp_path / "export"))),
        (convert_checkpoint.run, conversion),
        (Predictor, str(out)),
    ):
        with pytest.raises(UserError, match=message):
            function(run)
    assert not (tmp_path / "new").exists()


def test_model_files_are_read_from_the_training_run(tiny, out, tmp_path):
    run = {"bert_config_file": None, "vocab_file": None, "init_checkpoint": None}
    run = options(tiny, tmp_path, **run, do_predict=True)
    classification.run(run)
    assert len((out / "test_results.tsv").read_text().splitlines()) == 13
    (out / "vocab.txt").unlink()
    with pytest.raises(UserError, match=f"none was found with --output_dir={out}"):
        classification.run(run)
    other_dir = {"vocab_file": None, "init_checkpoint": None, "output_dir": str(tmp_path / "new")}
    with pytest.raises(UserError, match="Missing required flags: --vocab_file"):
        classification.run(options(tiny, tmp_path, **other_dir, do_predict=True))


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (NerOptions(learning_rate=0.01, warmup_proportion=0.9), []),
        (NerOptions(learning_rate=2), ["--learning_rate=2 exceeds 0.01"]),
        (PretrainingOptions(learning_rate=0.02, optimizer="lamb"), []),
    ],
)
def test_unusual_hyperparameters_warn(run_log, run, expected, tiny):
    model = BertModel(tiny.config)
    training.check_training(model, dataclasses.replace(run, do_train=True), ONE_DEVICE)
    notes = warning_messages(run_log)
    assert len(notes) == len(expected)
    for note, prefix in zip(notes, expected, strict=True):
        assert note.startswith(prefix)


def test_output_dir_of_another_script_is_rejected(tiny, out, tmp_path):
    flags = {"output_dir": str(out), "bert_config_file": tiny.flags["bert_config_file"]}
    with pytest.raises(UserError, match="has script=run_classifier, not run_pretraining"):
        run_checks.check_resumed(PretrainingOptions(**flags, do_train=True), "")


def write_run_dir(folder, script, **flags):
    (folder / "run.json").write_text(json.dumps({"script": script, "flags": flags}))
    for name in ("bert_config.json", "vocab.txt"):
        (folder / name).touch()
    return str(folder)


def test_model_of_a_different_script_is_rejected(tmp_path):
    folder = write_run_dir(tmp_path, "run_ner", label_column=4)
    for script in (None, "run_ner", "extract_features"):
        run_metadata.options_for_model(folder, script)
    for script in ("run_classifier", "run_squad"):
        with pytest.raises(UserError, match="was fine-tuned with run_ner, not"):
            run_metadata.options_for_model(folder, script)
    write_run_dir(tmp_path, "run_pretraining")
    RunFolder(folder).require_script("run_classifier")


def test_only_submission_files_get_no_suffix():
    assert result_path("out", "eval_results.txt", "_results") == "out/eval_results_results.txt"
    assert result_path("out", "MRPC.tsv", "_mrpc") == "out/MRPC.tsv"


def test_folder_of_several_runs_is_explained(tmp_path):
    (tmp_path / "runs.json").write_text('{"best": {"folder": "run_2"}}')
    message = f"contains several runs: pass one of them; the best is {tmp_path / 'run_2'}"
    with pytest.raises(UserError, match=message):
        run_metadata.options_for_model(str(tmp_path))
    # Also if the folder contains an older single run, whose checkpoint would be loaded.
    write_run_dir(tmp_path, "run_classifier", task_name="tsv")
    start = ClassifierOptions(init_checkpoint=str(tmp_path), output_dir="x")
    export = ExportOptions(model_dir=str(tmp_path), export_dir="x")
    for function, argument in (
        (ClassifierOptions.check, dataclasses.replace(start, output_dir=str(tmp_path))),
        (run_metadata.options_for_model, str(tmp_path)),
        (read_model_files, start),
        (find_source, str(tmp_path)),
        (export_model.run, export),
    ):
        with pytest.raises(UserError, match=message):
            function(argument)
    # A training run may still start there.
    with pytest.raises(UserError, match="Missing required flags"):
        ClassifierOptions(output_dir=str(tmp_path), task_name="tsv", do_train=True).check()


def test_folder_of_interrupted_runs_is_explained(tmp_path):
    (tmp_path / "run_1").mkdir()
    message = f"contains several runs: pass one of them; the first is {tmp_path / 'run_1'}"
    with pytest.raises(UserError, match=message):
        find_source(str(tmp_path))


def test_predictor_with_a_different_task_warns(tmp_path, run_log):
    folder = write_run_dir(tmp_path, "run_classifier", task_name="tsv")
    run_metadata.options_for_model(folder, task_name="tsv")
    assert warning_messages(run_log) == []
    run_metadata.options_for_model(folder, task_name="MRPC")
    assert warning_messages(run_log) == [f"{tmp_path} was trained for task tsv, not MRPC"]
    run_log.clear()
    assert run_metadata.options_for_model(folder, task_module="own.py").task_name is None
    assert warning_messages(run_log) == [f"{tmp_path} was trained for task tsv, not own.py"]


@pytest.mark.parametrize(
    ("script", "flag", "trained", "used", "warns"),
    [
        ("run_squad", "version_2_with_negative", True, False, True),
        ("run_squad", "version_2_with_negative", True, True, False),
        ("run_squad", "max_seq_length", 384, 128, True),
        ("run_ner", "token_column", 1, 2, True),
        # A new file may name its columns differently, but must have as many.
        ("run_multiple_choice", "ending_columns", "a,b,c", "x,y,z", False),
        ("run_multiple_choice", "ending_columns", "a,b,c", "a,b", True),
        ("run_multiple_choice", "ending_columns", "a,b,c", "c,b,a", True),
        ("run_multiple_choice", "question_column", "b", "", True),
        ("run_multiple_choice", "question_column", "", "b", True),
        ("run_multiple_choice", "question_column", "b", "c", False),
    ],
)
def test_other_inputs_than_in_training_warn(tmp_path, run_log, script, flag, trained, used, warns):
    folder = write_run_dir(tmp_path, script, **{flag: trained})
    options_class = registry.SCRIPTS[script].options_class
    run = options_class(output_dir=folder, **{flag: used})
    run_checks.result_suffix(run, longest=128)
    run_metadata.options_for_model(folder, **{flag: used})  # as for a Predictor
    warning = f"was trained with --{flag}={trained!r}, not {used!r}"
    # A `Predictor` has no texts yet: later, it warns if it truncates one.
    count = 1 if flag == "max_seq_length" else 2
    assert run_log.text.count(warning) == count * warns


@pytest.mark.parametrize(("trained", "used"), [(48, 32), (32, 48)])
def test_maximum_length_warns_only_if_texts_are_as_long(tmp_path, run_log, trained, used):
    folder = write_run_dir(tmp_path, "run_classifier", max_seq_length=trained)
    run = ClassifierOptions(task_name="MRPC", output_dir=folder, max_seq_length=used)
    run_checks.result_suffix(run, longest=31)
    assert warning_messages(run_log) == []
    run_checks.result_suffix(run, longest=32)
    warning = f"{folder} was trained with --max_seq_length={trained}, not {used}"
    assert warning_messages(run_log) == [warning]


@pytest.mark.parametrize(("length", "warns"), [(12, True), (None, False)])
def test_exports_with_another_length_warn(tiny, out, tmp_path, run_log, length, warns):
    flags = {"max_seq_length": length} if length else {}
    export = {"model_dir": str(out), "export_dir": str(tmp_path / "export"), "text_input": False}
    export_model.run(ExportOptions(**export, **flags))
    message = "trained with --max_seq_length=24, not 12"
    assert [message in warning for warning in warning_messages(run_log)] == [True] * warns
    run_log.clear()
    classification.run(options(tiny, tmp_path, do_export=True, init_checkpoint=None, **flags))
    assert [message in warning for warning in warning_messages(run_log)] == [True] * warns


@pytest.mark.parametrize(("used", "warns"), [(0.0, True), (1.5, False), ("auto", False)])
def test_found_threshold_must_be_passed(tmp_path, run_log, used, warns):
    folder = write_run_dir(tmp_path, "run_squad", null_score_diff_threshold="auto")
    options_class = registry.SCRIPTS["run_squad"].options_class
    run_checks.result_suffix(options_class(output_dir=folder, null_score_diff_threshold=used))
    assert ("pass that of its eval_results.json" in run_log.text) == warns


def test_changed_config_warns(tiny, tmp_path, run_log):
    config_file = tmp_path / "other.json"
    for change, expected in (
        ({}, None),
        ({"hidden_dropout_prob": 0.3}, None),
        ({"num_attention_heads": 4}, "num_attention_heads is 4, but "),
        ({"hidden_act": "relu"}, "hidden_act is relu, but "),
    ):
        run_log.clear()
        config_file.write_text(json.dumps({**tiny.config.to_dict(), **change}))
        read_model_files(options(tiny, tmp_path, bert_config_file=str(config_file)))
        found = [expected in message for message in warning_messages(run_log)]
        assert found == [True] * bool(expected)


def test_files_changed_after_training_warn(tiny, out, tmp_path, run_log):
    evaluation = options(tiny, tmp_path, do_eval=True, vocab_file=None, bert_config_file=None)
    run = dataclasses.replace(evaluation, init_checkpoint=None)
    pair = ("the film", "was good")

    def changed_file_warnings():
        messages = [m for m in warning_messages(run_log) if "was changed after training" in m]
        run_log.clear()
        return messages

    classification.run(run)
    # Line endings are ignored.
    vocabulary = out / "vocab.txt"
    lines = vocabulary.read_text().splitlines()
    vocabulary.write_bytes(("\r\n".join(lines) + "\r\n").encode())
    Predictor.from_output_dir(out)(pair)
    assert changed_file_warnings() == []
    vocabulary.write_text("\n".join([*lines[:5], *reversed(lines[5:])]) + "\n")
    expected = f"{vocabulary} was changed after training"
    classification.run(run)
    assert changed_file_warnings() == [expected]
    Predictor.from_output_dir(out)(pair)
    assert changed_file_warnings() == [expected]
    (out / "labels.txt").write_text("no\nyes\n")
    export = {"model_dir": str(out), "export_dir": str(tmp_path / "export"), "text_input": False}
    export_model.run(ExportOptions(**export))
    assert changed_file_warnings() == [expected, expected.replace("vocab.txt", "labels.txt")]
    conversion = {"input": str(out), "to": "hugging_face"}
    convert_checkpoint.run(ConversionOptions(**conversion, output=str(tmp_path / "changed")))
    assert changed_file_warnings() == [expected, expected.replace("vocab.txt", "labels.txt")]
    labels = (out / "labels.txt").rename(out / "labels.bak")
    convert_checkpoint.run(ConversionOptions(**conversion, output=str(tmp_path / "removed")))
    assert f"{out}/labels.txt was removed after training" in run_log.text
    assert changed_file_warnings() == [expected]
    labels.rename(out / "labels.txt")
    # Earlier releases did not record file digests.
    metadata = json.loads((out / "run.json").read_text())
    assert metadata.pop("digests").keys() >= {"vocab.txt", "labels.txt"}
    (out / "run.json").write_text(json.dumps(metadata))
    Predictor.from_output_dir(out)(pair)
    assert changed_file_warnings() == []
