"""A run in a directory that already holds a training: what is warned of, refused and written."""

import dataclasses
import json
import shutil

import pytest

from bert_tf.errors import UserError
from bert_tf.finetuning import run_checks, run_metadata
from bert_tf.finetuning.initialization import load_config_and_tokenizer
from bert_tf.finetuning.multi_seed import write_summary
from bert_tf.finetuning.output_dir import Results
from bert_tf.options import (
    ClassifierOptions,
    ExportOptions,
    NerOptions,
    PretrainingOptions,
    SquadOptions,
)
from bert_tf.options.fields import check_values
from bert_tf.predictor import Predictor
from bert_tf.tasks import classification
from bert_tf.tasks.export_model import export_model
from tests.tasks.classification.test_task import options

TRAINING = {"do_train": True, "num_train_epochs": 1.0, "warmup_proportion": 0.5}


@pytest.fixture(scope="module")
def trained(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    classification.run(options(tiny, folder, **TRAINING, do_eval=True))
    return folder / "out"


@pytest.fixture
def out(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "out")
    return tmp_path / "out"


def contents(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def warnings(said):
    return [
        record.getMessage()
        for record in said.records
        # TensorFlow warns of functions that are traced often.
        if record.levelname == "WARNING" and record.name.startswith("bert_tf")
    ]


def test_a_skipped_training_warns_of_differences_and_writes_nothing(tiny, out, tmp_path, said):
    before = contents(out)
    classification.run(options(tiny, tmp_path, **TRAINING))
    (skipped,) = warnings(said)
    assert skipped.startswith("Skipping training")
    said.clear()
    data = tmp_path / "inverted"
    shutil.copytree(tiny.folder / "mrpc", data)
    header, *rows = (data / "train.tsv").read_text().splitlines()
    rows = [f"{1 - int(row[0])}{row[1:]}" for row in rows]
    (data / "train.tsv").write_text("\n".join([header, *rows]) + "\n")
    changes = {"train_batch_size": 6, "max_seq_length": 20, "learning_rate": 1e-3}
    changes |= {"random_seed": 5, "warmup_proportion": 0.1, "eval_every": "1"}
    run = {**TRAINING, **changes, "data_dir": str(data)}
    classification.run(options(tiny, tmp_path, **run))
    found = warnings(said)
    assert f"{out}: train_batch_size was 4, now 6" in found
    assert f"{out}: max_seq_length was 24, now 20" in found
    assert f"{out}: learning_rate was 5e-05, now 0.001" in found
    assert f"{out}: random_seed was 12345, now 5" in found
    assert f"{out}: warmup_proportion was 0.5, now 0.1" in found
    (changed,) = [message for message in found if "training data changed: was 18 rows" in message]
    assert "now 18 rows" in changed
    assert contents(out) == before
    # With an evaluation only that is written.
    classification.run(options(tiny, tmp_path, **run, do_eval=True))
    after = contents(out)
    written = {path.name for path in after if after[path] != before.get(path)}
    written = {name for name in written if "tfevents" not in name}
    assert written <= {"eval_results.txt", "eval_results.json", "confusion_matrix.png",
                       "eval.tf_record", "records.json"}  # fmt: skip


def test_more_epochs_are_no_warning(tiny, out, tmp_path, said):
    classification.run(options(tiny, tmp_path, **{**TRAINING, "num_train_epochs": 1.5}))
    assert f"{out}: num_train_epochs was 1.0, now 1.5" in said.text
    assert warnings(said) == []
    assert json.loads((out / "run.json").read_text())["flags"]["num_train_epochs"] == 1.5


def test_a_training_of_another_task_is_refused(tiny, out, tmp_path):
    before = contents(out)
    message = "task=MRPC, but this one has task=CoLA. Choose another .*--init_checkpoint="
    with pytest.raises(UserError, match=message):
        classification.run(options(tiny, tmp_path, **TRAINING, task_name="CoLA"))
    assert contents(out) == before


@pytest.mark.parametrize(("name", "was"), [("script", "run_ner"), ("problem_type", "multilabel")])
def test_another_kind_of_output_is_refused(tiny, out, tmp_path, name, was):
    run = json.loads((out / "run.json").read_text())
    place = run if name == "script" else run["flags"]
    place[name] = was
    if name == "script":
        run["flags"] = {"max_seq_length": 24}
    (out / "run.json").write_text(json.dumps(run))
    for steps in (TRAINING, {"do_eval": True}):
        message = f"contains a run with {name}={was}|was trained by {was}.py: use that script"
        with pytest.raises(UserError, match=message):
            classification.run(options(tiny, tmp_path, **steps))


def test_results_of_another_task_do_not_overwrite(tiny, out, tmp_path, said):
    before = {name: (out / name).read_text() for name in ("eval_results.txt", "eval_results.json")}
    run = options(tiny, tmp_path, task_name="CoLA", do_eval=True, do_predict=True)
    results = classification.run(run)
    assert warnings(said) == [f"{out}: trained for task MRPC, used for task CoLA"]
    assert {name: (out / name).read_text() for name in before} == before
    names = {"eval_results_cola.txt", "eval_results_cola.json", "confusion_matrix_cola.png"}
    names |= {"test_results_cola.tsv", "test_predictions_cola.tsv"}
    assert names == {path.rsplit("/", 1)[1] for path in results.files}
    assert all((out / name).exists() for name in names)
    assert not (out / "test_results.tsv").exists()


@pytest.mark.parametrize(
    ("trained_as", "asked", "suffix"),
    [
        ("MNLI", "XNLI", ""),
        ("mnli", "AX", ""),
        ("XNLI", "mnli-mm", ""),
        ("MRPC", "mrpc", ""),
        ("MRPC", "WNLI", "_wnli"),
        ("tsv", "MRPC", "_mrpc"),
        (None, "MRPC", ""),
    ],
)
def test_tasks_that_are_meant_for_each_other(tmp_path, said, trained_as, asked, suffix):
    (tmp_path / "run.json").write_text(json.dumps({"flags": {"task_name": trained_as}}))
    run = ClassifierOptions(task_name=asked, do_eval=True, output_dir=str(tmp_path))
    assert run_checks.result_suffix(run) == suffix
    expected = [f"{tmp_path}: trained for task {trained_as}, used for task {asked}"]
    assert warnings(said) == (expected if suffix else [])


@pytest.mark.parametrize(
    "text", ["{", "[]", "{}", None, '{"script": "run_classifier", "flags": {}}']
)
def test_the_directory_of_an_older_run(tiny, out, tmp_path, said, text):
    (out / "run.json").unlink() if text is None else (out / "run.json").write_text(text)
    classification.run(options(tiny, tmp_path, **{**TRAINING, "train_batch_size": 6}))
    (skipped,) = warnings(said)
    assert skipped.startswith("Skipping training")


def test_files_of_the_model_are_those_of_the_training(tiny, out, tmp_path):
    run = {"bert_config_file": None, "vocab_file": None, "init_checkpoint": None}
    run = options(tiny, tmp_path, **run, do_predict=True)
    classification.run(run)
    assert len((out / "test_results.tsv").read_text().splitlines()) == 13
    (out / "vocab.txt").unlink()
    with pytest.raises(UserError, match=f"--vocab_file is not set, and --output_dir={out}"):
        classification.run(run)
    elsewhere = {"vocab_file": None, "init_checkpoint": None, "output_dir": str(tmp_path / "new")}
    with pytest.raises(UserError, match="Required, but missing: --vocab_file"):
        classification.run(options(tiny, tmp_path, **elsewhere, do_predict=True))


def test_rows_with_one_label(tiny, tmp_path, said):
    shutil.copytree(tiny.folder / "mrpc", tmp_path / "data")
    path = tmp_path / "data" / "train.tsv"
    path.write_text(path.read_text().replace("\n0\t", "\n1\t"))
    classification.run(options(tiny, tmp_path, **TRAINING, data_dir=str(tmp_path / "data")))
    (warning,) = warnings(said)
    assert warning.startswith(f"{path}: all 18 rows have the label '1'")


@pytest.mark.parametrize(
    ("run", "found"),
    [
        (NerOptions(), []),
        (NerOptions(learning_rate=0.01, warmup_proportion=0.9), []),
        (NerOptions(learning_rate=2), ["--learning_rate=2 exceeds 0.01"]),
        (NerOptions(warmup_proportion=1.0), ["--warmup_proportion=1.0 leaves no steps"]),
        (PretrainingOptions(), []),
        (PretrainingOptions(num_train_steps=5), ["--num_warmup_steps=10000 leaves no steps"]),
        (PretrainingOptions(learning_rate=0.02, optimizer="lamb"), []),
        (PretrainingOptions(learning_rate=0.02), ["--learning_rate=0.02 exceeds"]),
    ],
)
def test_values_with_which_a_training_hardly_learns(run, found):
    notes = run.training_notes()
    assert len(notes) == len(found)
    for note, beginning in zip(notes, found, strict=True):
        assert note.startswith(beginning)


def test_runs_that_all_predict_one_label(tmp_path, said):
    for figures, warned in (([0.0, 0.0], True), ([0.0, 0.2], False), ([None, None], False)):
        said.clear()
        runs = [Results({"eval_accuracy": 0.7}) for _ in figures]
        for run, figure in zip(runs, figures, strict=True):
            run.metrics |= {} if figure is None else {"eval_matthews": figure}
        write_summary(str(tmp_path), runs, [1, 2], 0)
        assert len(warnings(said)) == warned
        assert ("eval_matthews is 0: all 2 runs" in said.text) == warned


def test_a_training_by_another_script_is_refused_by_its_name(tiny, out, tmp_path):
    run = PretrainingOptions(
        output_dir=str(out), do_train=True, bert_config_file=tiny.flags["bert_config_file"]
    )
    message = "script=run_classifier, but this one has script=run_pretraining"
    with pytest.raises(UserError, match=message):
        run_checks.check_resumed(run, "")


def test_a_training_in_the_folder_of_the_model_that_it_begins_from(tiny, tmp_path, said):
    (tmp_path / "out").mkdir()
    for path in tiny.folder.glob("bert_model.ckpt*"):
        shutil.copy(path, tmp_path / "out")
    begun = {"init_checkpoint": str(tmp_path / "out" / "bert_model.ckpt")}
    classification.run(options(tiny, tmp_path, **TRAINING, **begun))
    assert "out contains the --init_checkpoint" in said.text


def write_run(folder, script, **flags):
    (folder / "run.json").write_text(json.dumps({"script": script, "flags": flags}))
    for name in ("bert_config.json", "vocab.txt"):
        (folder / name).touch()
    return str(folder)


def test_a_model_of_another_script_is_refused(tmp_path):
    folder = write_run(tmp_path, "run_ner", label_column=4)
    for script in (None, "run_ner", "extract_features"):
        run_metadata.read_options(folder, script)
    for script in ("run_classifier", "run_squad"):
        with pytest.raises(UserError, match=r"was trained by run_ner.py: use that script"):
            run_metadata.read_options(folder, script)
    write_run(tmp_path, "run_pretraining")
    run_metadata.require_script(folder, "run_classifier")


def test_a_program_that_names_another_task(tmp_path, said):
    folder = write_run(tmp_path, "run_classifier", task_name="tsv")
    run_metadata.read_options(folder, task_name="tsv")
    assert warnings(said) == []
    run_metadata.read_options(folder, task_name="MRPC")
    assert warnings(said) == [f"{tmp_path}: trained for task tsv, used for task MRPC"]


@pytest.mark.parametrize(("trained", "asked"), [(True, True), (False, False), (False, True)])
def test_questions_without_answers_for_a_model_that_has_seen_none(tmp_path, said, trained, asked):
    folder = write_run(tmp_path, "run_squad", version_2_with_negative=trained)
    run = SquadOptions(output_dir=folder, version_2_with_negative=asked)
    run_checks.result_suffix(run)
    assert ("was trained without --version_2_with_neg" in said.text) == (asked and not trained)


def test_the_checkpoint_before_the_first_step(said):
    for prefix, do_train in (("out/model.ckpt-0", True), ("out/model.ckpt-10", False)):
        run_metadata.warn_if_untrained(prefix, do_train)
    assert warnings(said) == []
    run_metadata.warn_if_untrained("out/model.ckpt-0")
    assert "out/model.ckpt-0 was written before the first training step" in said.text


def test_a_configuration_that_gives_other_results(tiny, tmp_path, said):
    other = tmp_path / "other.json"
    for change, found in (
        ({}, None),
        ({"hidden_dropout_prob": 0.3}, None),
        ({"num_attention_heads": 4}, "num_attention_heads is 4, but the configuration of"),
        ({"hidden_act": "relu"}, "hidden_act is relu, but the configuration of"),
    ):
        said.clear()
        other.write_text(json.dumps({**tiny.config.to_dict(), **change}))
        load_config_and_tokenizer(options(tiny, tmp_path, bert_config_file=str(other)))
        assert [found in message for message in warnings(said)] == [True] * bool(found)


def test_values_of_another_type_are_named():
    for flag, value, kind in (
        ("do_train", "false", "bool"),
        ("max_seq_length", "32", "int"),
        ("learning_rate", "1e-4", "float"),
        ("train_batch_size", True, "int"),
    ):
        with pytest.raises(UserError, match=f"--{flag} must be of type {kind}. Received: "):
            check_values(ClassifierOptions(**{flag: value}))
    check_values(ClassifierOptions(learning_rate=1))


def test_files_that_were_changed_after_the_training(tiny, out, tmp_path, said):
    evaluation = options(tiny, tmp_path, do_eval=True, vocab_file=None, bert_config_file=None)
    own = dataclasses.replace(evaluation, init_checkpoint=None)
    pair = ("the film", "was good")

    def changed():
        found = [each for each in warnings(said) if "was changed after training" in each]
        said.clear()
        return found

    classification.run(own)
    # Line ends do not count.
    vocabulary = out / "vocab.txt"
    lines = vocabulary.read_text().splitlines()
    vocabulary.write_bytes(("\r\n".join(lines) + "\r\n").encode())
    Predictor.from_output_dir(out)(pair)
    assert changed() == []
    vocabulary.write_text("\n".join([*lines[:5], *reversed(lines[5:])]) + "\n")
    expected = f"{vocabulary} was changed after training. Make sure that this was intentional"
    classification.run(own)
    assert changed() == [expected]
    Predictor.from_output_dir(out)(pair)
    assert changed() == [expected]
    (out / "labels.txt").write_text("no\nyes\n")
    export_model.run(ExportOptions(model_dir=str(out), export_dir=str(tmp_path / "export")))
    assert changed() == [expected, expected.replace("vocab.txt", "labels.txt")]
    # A training of an earlier release says nothing of its files.
    run = json.loads((out / "run.json").read_text())
    assert run.pop("digests").keys() >= {"vocab.txt", "labels.txt"}
    (out / "run.json").write_text(json.dumps(run))
    Predictor.from_output_dir(out)(pair)
    assert changed() == []
