"""Command line: the original's flags, one-line errors, quiet output, no effect of keras.json."""

import json
import os
import shlex
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.base.errors import UserError
from bert_tf.options import (
    ClassifierOptions,
    DeviceOptions,
    ExtractionOptions,
    MaskedWordsOptions,
    SearchOptions,
    SquadOptions,
    cli,
    registry,
)
from tests.oracle import ROOT, golden

ORIGINAL_FLAGS = json.loads(golden("flags.json").read_text())


@pytest.fixture(scope="module")
def tiny(tiny_of_two_layers):
    return tiny_of_two_layers


def _run_script(*arguments, cwd=ROOT, **environment):
    command = [sys.executable, str(ROOT / "run_classifier.py"), *map(str, arguments)]
    # Use TensorFlow's default log level, as users do.
    env = {key: value for key, value in os.environ.items() if key != "TF_CPP_MIN_LOG_LEVEL"}
    env |= environment
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)


@pytest.mark.parametrize("script", ORIGINAL_FLAGS)
def test_flags_match_the_original(script):
    rows = ORIGINAL_FLAGS[script]
    fields = registry.SCRIPTS[script.removesuffix(".py")].options_class.__dataclass_fields__
    for row in rows:
        field = fields[row["name"]]
        assert not field.metadata["new"], row
        assert field.default == row["default"], row
        assert field.metadata["required"] == row["required"], row
    new = {name for name, field in fields.items() if field.metadata["new"]}
    # The original's extract_features.py lacks some of the device flags.
    shared = DeviceOptions.__dataclass_fields__ if script == "extract_features.py" else {}
    assert new - set(shared) == fields.keys() - {row["name"] for row in rows} - set(shared)


@pytest.mark.parametrize(
    ("argument", "name", "value"),
    [
        ("-do_train", "do_train", True),
        ("--nodo_lower_case", "do_lower_case", False),
        ("--do_lower_case=False", "do_lower_case", False),
        ("--num_train_epochs=3", "num_train_epochs", 3.0),
        ("--train_batch_size=0x10", "train_batch_size", 16),
        ("--data_dir=", "data_dir", ""),
    ],
)
def test_flag_values_are_parsed(argument, name, value):
    assert getattr(cli.parse(ClassifierOptions, ["script", argument]), name) == value


def test_value_may_follow_a_space():
    options = cli.parse(ClassifierOptions, ["script", "--task_name", "MRPC", "--do_eval"])
    assert (options.task_name, options.do_eval) == ("MRPC", True)


@given(st.text(alphabet=st.characters(blacklist_categories=["Cs"]), min_size=1))
def test_any_text_is_a_valid_value(text):
    text = f"x{text}"
    assert cli.parse(ClassifierOptions, ["script", f"--data_dir={text}"]).data_dir == text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--do_trian=true"], r"There is no flag --do_trian\. Did you mean --do_train\?"),
        (["--epochs=3"], r"Did you mean --num_train_epochs\?"),
        (["--lr=3e-5"], r"Did you mean --learning_rate\?"),
        (["--per_device_train_batch_size=9"], r"Did you mean --train_batch_size\?"),
        (["--model_name_or_path=x"], r"Did you mean --init_checkpoint\?"),
        (["--zzz=1"], r"^There is no flag --zzz\. --help lists all flags$"),
        (["--eval_=x"], r"Did you mean --eval_every or --eval_file or --eval_batch_size\?"),
        (["--max_seq_length=long"], "--max_seq_length must be a whole number. Received: long"),
        (["--do_train=maybe"], "--do_train must be true or false. Received: maybe"),
        (["--do_train", "true"], "Unexpected argument 'true'"),
        (["--flagfile=absent/flags.txt"], "absent/flags.txt"),
        (["--output_dir"], "--output_dir has no value"),
        (["--output_dir", "--do_eval"], "--output_dir has no value"),
    ],
)
def test_invalid_flags_are_rejected(arguments, message):
    with pytest.raises(UserError, match=message):
        cli.parse(ClassifierOptions, ["script", *arguments])


@pytest.mark.parametrize(
    ("options_class", "name", "meant"),
    [
        (SearchOptions, "k", "top_k or --rerank_top_k"),
        (ExtractionOptions, "data_dir", "input_file"),
        (SquadOptions, "eval_file", "predict_file"),
    ],
)
def test_flags_of_other_libraries_and_scripts(options_class, name, meant):
    with pytest.raises(UserError, match=rf"There is no flag --{name}\. Did you mean --{meant}\?"):
        cli.parse(options_class, ["script", f"--{name}=3"])


def test_number_or_keyword_flag():
    flag = "null_score_diff_threshold"
    parsed = [cli.parse(SquadOptions, ["", f"--{flag}={text}"]) for text in ("-1", "auto", "abc")]
    # `check` rejects the last one.
    assert [getattr(options, flag) for options in parsed] == [-1.0, "auto", "abc"]


def test_non_utf8_paths_are_rejected():
    with pytest.raises(UserError, match=r"--output_dir='a\\udcff' has bytes that are not UTF-8"):
        cli.parse(ClassifierOptions, ["script", "--output_dir=a\udcff"])
    options = cli.parse(MaskedWordsOptions, ["script", "--text=caf\udce9 [MASK]"])
    assert options.text == "caf\udce9 [MASK]"


def test_flagfile(tmp_path):
    path = tmp_path / "flags.txt"
    path.write_text("# a comment\n--do_train=true\n--learning_rate=3e-5\n")
    options = cli.parse(ClassifierOptions, ["script", f"--flagfile={path}", "--do_eval"])
    assert (options.do_train, options.do_eval, options.learning_rate) == (True, True, 3e-5)


def test_help_lists_every_flag():
    result = _run_script("--help")
    assert result.returncode == 0
    assert max(map(len, result.stdout.splitlines())) <= 100
    text = " ".join(result.stdout.split())
    for name, field in ClassifierOptions.__dataclass_fields__.items():
        choices = field.metadata["choices"]
        value = "=" + "|".join(choices) if choices else ""
        assert f"--{name}{value} (" in result.stdout
        assert field.metadata["help"] in text
    assert "--random_seed (default 12345, new)" in result.stdout
    assert "(new: not in the original)" in result.stdout
    assert "--data_dir (required with exceptions)" in result.stdout
    assert "--resume=auto|never|must (default auto, new)" in result.stdout
    headings = ["Run:", "Data:", "Model and inputs:", "Training:", "Results:", "Devices:", "Other:"]
    assert [line for line in result.stdout.splitlines() if line in headings] == headings


@pytest.mark.parametrize("name", registry.SCRIPTS)
def test_help_has_an_example(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    entry = registry.SCRIPTS[name]
    text = cli.help_text(entry, f"{name}.py")
    lines = text[text.index("example: ") : text.index("\n\n", text.index("example: "))].split("\n")
    assert max(map(len, lines)) <= 80
    assert [line.endswith(" \\") for line in lines] == [True] * (len(lines) - 1) + [False]
    words = shlex.split("".join(line.removesuffix("\\") for line in lines))[1:]
    assert words[:2] == ["python", f"{name}.py"]
    cli.parse(entry.options_class, words[1:]).check()
    assert "example: bert-x --" in cli.help_text(entry, "bert-x")


@pytest.mark.parametrize("name", ["run_pretraining", "run_squad", "predict_masked"])
def test_first_run_without_a_model_names_its_folder(name, tmp_path):
    options_class = registry.SCRIPTS[name].options_class
    message = r"^Missing required flags: --init_checkpoint=FOLDER \("
    with pytest.raises(UserError, match=message) as error:
        options_class().check()
    for flag in ("--init_checkpoint ", "--bert_config_file", "--vocab_file"):
        assert flag not in str(error.value)
    # Who passes one of the files is told about the others.
    if name != "run_pretraining":
        with pytest.raises(UserError, match="--vocab_file") as error:
            options_class(bert_config_file="bert_config.json").check()
        assert "--init_checkpoint=FOLDER" not in str(error.value)
    with pytest.raises(UserError) as error:
        options_class(init_checkpoint="folder").check()
    assert "--init_checkpoint" not in str(error.value)


def test_a_program_goes_on_after_success_only():
    with cli.exit_with_message():
        pass
    with pytest.raises(SystemExit, match=r"^1$"), cli.exit_with_message():
        raise UserError("wrong")


def test_empty_values_of_new_flags_warn():
    result = _run_script("--teacher=", "--tpu_name=", "--task_name=")
    warning, error = result.stderr.splitlines()
    assert warning == "WARNING: --teacher is empty"
    assert error.startswith("ERROR: Missing required flags: ")
    assert (result.returncode, result.stdout) == (1, "")


@pytest.fixture(scope="module")
def run_on_mrpc(tiny, tmp_path_factory):
    """Returns a function that runs the script on the tiny MRPC."""
    flags = [f"--{name}={value}" for name, value in tiny.flags.items()]
    flags += ["--task_name=mrpc", f"--data_dir={tiny.folder / 'mrpc'}"]
    flags += [f"--init_checkpoint={tiny.checkpoint}"]

    def run(*arguments, **environment):
        out = tmp_path_factory.mktemp("out")
        # Relative paths refer to the working directory.
        result = _run_script(*flags, "--output_dir=.", *arguments, cwd=out, **environment)
        return result, out

    return run


def test_train_eval_and_predict(run_on_mrpc):
    result, out = run_on_mrpc(
        "--do_train=true", "--do_eval=true", "--do_predict=true", "--num_train_epochs=1"
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == ""
    assert "eval_accuracy = 0." in (out / "eval_results.txt").read_text()
    assert len((out / "test_results.tsv").read_text().splitlines()) == 13
    assert (out / "model.ckpt-4.index").exists()


@pytest.fixture(scope="module")
def default_prediction(run_on_mrpc):
    return run_on_mrpc("--do_predict")


@pytest.mark.parametrize(
    "settings",
    [
        '{"floatx": "float16", "backend": "jax", "epsilon": 1e-3}',
        '{"floatx": "float12"}',
        pytest.param('["not", "settings"]', marks=pytest.mark.slow),
    ],
)
def test_predictions_ignore_keras_settings(run_on_mrpc, default_prediction, tmp_path, settings):
    (tmp_path / "keras.json").write_text(settings)
    default, expected_dir = default_prediction
    changed, out = run_on_mrpc("--do_predict", KERAS_BACKEND="jax", KERAS_HOME=str(tmp_path))
    assert default.returncode == changed.returncode == 0, changed.stderr
    assert "\n".join(changed.stderr.splitlines()) == "\n".join(default.stderr.splitlines())
    name = "test_results.tsv"
    # The head is initialized with a fixed seed.
    assert (out / name).read_text() == (expected_dir / name).read_text()


@pytest.mark.parametrize(
    "environment", [{}, pytest.param({"TF_CPP_MIN_LOG_LEVEL": "3"}, marks=pytest.mark.slow)]
)
def test_output_is_quiet_by_default(run_on_mrpc, environment):
    result, _ = run_on_mrpc("--do_predict", "--do_eval", **environment)
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 11, result.stderr
    assert lines[0].startswith("BertClassifier with ")
    assert lines[3].split() == ["label", "precision", "recall", "f1", "support"]
    assert "Evaluation of 11 examples: eval_accuracy = " in lines[8]
    assert "Predictions for 13 examples: " in lines[10]


def test_input_file_error_is_one_line(run_on_mrpc, tiny):
    result, out = run_on_mrpc("--do_predict", "--data_dir=a\nb")
    assert result.returncode == 1
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("ERROR")]
    assert "there is no folder a b" in line
    assert list(out.iterdir()) == []


def test_errors_of_the_system_are_one_line():
    with pytest.raises(SystemExit) as raised, cli.exit_with_message():
        raise OSError(28, "No space left on device", "/x")
    assert raised.value.code == "ERROR: [Errno 28] No space left on device: '/x'"


def test_verbose_logging_prints_examples(run_on_mrpc):
    result, _ = run_on_mrpc("--do_predict", "--verbose_logging")
    assert result.stderr.count("\n  tokens: [CLS] ") == 5
