"""Files that training saves next to its checkpoints, and that loading the model requires.

These are copies of `bert_config.json` and `vocab.txt`; `run.json` with the script and its flags;
and `labels.txt` with the names of the outputs.
"""

import dataclasses
import hashlib
import json
import os
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bert_tf import file_names, files, registry
from bert_tf.checkpoints.formats.source import CONFIG_FILE as CONFIG
from bert_tf.checkpoints.formats.source import LABELS_FILE, labels_file, read_run_string
from bert_tf.checkpoints.formats.source import RUN_FILE as RUN
from bert_tf.checkpoints.formats.source import VOCAB_FILE as VOCAB
from bert_tf.errors import UserError
from bert_tf.options.fields import check_type
from bert_tf.options.fine_tuning import require_one_run
from bert_tf.options.shared import EngineOptions
from bert_tf.progress import log

# The `vocab_digest` of pre-training records, in their descriptions and in `run.json`.
VOCABULARY = "vocab_sha256"
EVAL_RESULTS_JSON = "eval_results.json"

# Name of the copy -> flag with the path of the file.
_COPIES = {CONFIG: "bert_config_file", VOCAB: "vocab_file"}
# Flags of a training run that do not apply to a loaded model.
_RUN_FLAGS = {"output_dir", "init_checkpoint", "resume", "init_layers", "teacher"}
# With `eval_every`, loading a model would read the dev set.
_RUN_FLAGS |= {"do_train", "do_eval", "do_predict", "do_export", "eval_every"}
# Flags that determine the inputs of a model, which should be as in training.
_INPUT_FLAGS = ("max_seq_length", "max_query_length", "long_text", "doc_context", "token_column")
_INPUT_FLAGS += ("question_column", "ending_columns", "version_2_with_negative")
# A model trained for one of these tasks may be evaluated on the others.
_MNLI_TASKS = ("mnli", "mnli-mm", "ax", "xnli")


def fingerprint(*settings: Any, examples: Iterable[Any] = ()) -> str:
    """Returns a digest of the `repr` of the settings and the examples."""
    # Digests in existing run.json files depend on the 1.
    digest = hashlib.blake2b(repr((1, *settings)).encode(errors="surrogatepass"))
    for example in examples:
        digest.update(repr(example).encode(errors="surrogatepass"))
    return digest.hexdigest()[:32]


def run_files(
    options: Any, resumes: bool, data_description: str, labels: Sequence[str] = (), **extra: Any
) -> dict[str, str]:
    """Returns file name -> text for a training run; raises a UserError if a saved copy differs."""
    folder = options.output_dir
    begun_from = read_run_string(folder, "begun_from") if resumes else options.init_checkpoint
    extra |= {"begun_from": begun_from, "training_data": data_description}
    contents = model_files(options, labels, **extra)
    for name, flag in _COPIES.items():
        if name in contents:
            require_same(folder, {name: contents[name]}, f"--{flag}={getattr(options, flag)}")
    return contents


def model_files(options: Any, labels: Sequence[str] = (), **extra: Any) -> dict[str, str]:
    """Returns file name -> text for configuration, vocabulary, `labels.txt` if any, and `run.json`.

    `extra` has additional entries for `run.json`.
    """
    run = {"script": registry.script_of(type(options)), "flags": dataclasses.asdict(options)}
    copies = {
        name: files.read_text(getattr(options, flag)) + "\n"
        for name, flag in _COPIES.items()
        if hasattr(options, flag)
    }
    contents = {**labels_file(labels), **copies}
    run["digests"] = {name: fingerprint(text.rstrip()) for name, text in contents.items()}
    return {**contents, RUN: json.dumps({**run, **extra}, indent=1) + "\n"}


def warn_of_changes(folder: str) -> None:
    """Warns about files of a training run that were changed afterwards."""
    for name in (VOCAB, LABELS_FILE):
        path, before = os.path.join(folder, name), read_run_string(folder, "digests", name)
        if before and files.exists(path) and fingerprint(files.read_text(path).rstrip()) != before:
            log.warning("%s was changed after training. Make sure that this was intentional", path)


def require_same(folder: str, contents: Mapping[str, str], source: str) -> None:
    """Raises a UserError if a file differs from the copy that a training run saved."""
    for name, text in contents.items():
        path = os.path.join(folder, name)
        # Trailing blank lines are not significant.
        if files.exists(path) and files.read_text(path).rstrip() != text.rstrip():
            raise UserError(
                f"{path}, which an earlier training run saved, differs from {source}. Choose "
                "another --output_dir, pass what the earlier run used, or remove the saved file"
            )


def run_names(count: int) -> list[str]:
    """Returns the folder names of a training with several seeds, one for each run."""
    return [f"run_{number}" for number in range(1, count + 1)]


def read_options(folder: str, script: str | None = None, **flags: Any) -> Any:
    """Returns the options for using a model from a run's output folder or a downloaded checkpoint.

    Flags of the training run apply, except device flags; `flags` override them. `script` defaults
    to the script that trained the model, or to `predict_masked` after pre-training.
    """
    folder = os.path.expanduser(folder)
    saved_script, saved = read_run(folder)
    scripts = [name for name, entry in registry.SCRIPTS.items() if entry.has_predictor]
    script = script or ("predict_masked" if saved_script == "run_pretraining" else saved_script)
    parent = os.path.dirname(folder)
    require_one_run(folder)
    if not script and files.exists(os.path.join(parent, RUN)):
        raise UserError(f"{folder} is not the folder of a training run or an export: pass {parent}")
    if not script:
        path = os.path.join(folder, RUN)
        raise UserError(
            f"No such file: {path} ({files.describe_absence(path)}). Without it, pass the script: "
            f"one of {', '.join(scripts)}"
        )
    if script not in scripts:
        raise UserError(f"script must be one of {', '.join(scripts)}. Received: {script!r}")
    require_script(folder, script)
    entry = registry.SCRIPTS[script]
    options_class = entry.options_class
    names = {field.name for field in dataclasses.fields(options_class)} - _RUN_FLAGS
    unknown = sorted(flags.keys() - names)
    if unknown:
        valid = ", ".join(sorted(names))
        raise UserError(f"{unknown[0]} is not a flag for a trained {script} model. Valid: {valid}")
    device_flags = {field.name for field in dataclasses.fields(EngineOptions)} - {"fixed_shapes"}
    values = {name: saved[name] for name in (saved.keys() & names) - device_flags}
    for name, flag in _COPIES.items():
        values[flag] = os.path.join(folder, name)
        if flag not in flags and not files.exists(values[flag]):
            absence = files.describe_absence(values[flag])
            advice = f"Pass {flag}="
            if files.exists(os.path.join(folder, "config.json")):
                advice += ", or first convert the model: convert_checkpoint.py --to=original"
            raise UserError(f"No such file: {values[flag]} ({absence}). {advice}")
    types = typing.get_type_hints(options_class)
    values |= {name: check_type(name, value, types[name]) for name, value in flags.items()}
    for passed, other in (("task_name", "task_module"), ("task_module", "task_name")):
        if flags.get(passed):
            values.pop(other, None)
    if values.get("null_score_diff_threshold") == "auto":
        values["null_score_diff_threshold"] = _saved_threshold(folder)
    # Fine-tuning scripts load the model from `output_dir`, other scripts from `init_checkpoint`.
    if entry.make_task:
        options = options_class(**values, init_checkpoint=None, output_dir=folder)
        warn_of_other_inputs(folder, saved, options)
        return options
    return options_class(**values, init_checkpoint=folder)


def requested_task(options: Any) -> str:
    """Returns the task named by the options, or "" if the script has only one."""
    return getattr(options, "task_name", None) or getattr(options, "task_module", None) or ""


def warn_of_other_inputs(folder: str, saved: Mapping[str, Any], options: Any) -> None:
    """Warns about options with another task, or other inputs, than in training (`saved`)."""
    task = requested_task(options)
    if trained_task := other_task(folder, task):
        log.warning("%s was trained for task %s, not %s", folder, trained_task, task)
    for name in _INPUT_FLAGS:
        used = getattr(options, name, None)
        trained = saved.get(name, used)
        # A new file may name its columns differently, but must have as many.
        is_name = name in ("question_column", "ending_columns")
        old, new = (file_names.split(n or "") if is_name else [] for n in (trained, used))
        if trained != used and (len(old) != len(new) or sorted(old) == sorted(new)):
            log.warning("%s was trained with --%s=%r, not %r", folder, name, trained, used)


def require_script(folder: str, script: str) -> None:
    """Raises a UserError if another script fine-tuned the model, which thus has another head."""
    tasks = [name for name, entry in registry.SCRIPTS.items() if entry.make_task]
    saved_script = read_run_string(folder, "script")
    if saved_script != script and saved_script in tasks and script in tasks:
        raise UserError(f"{folder} was trained by {saved_script}.py: use that script, not {script}")


def warn_if_untrained(prefix: str, do_train: bool = False) -> None:
    """Warns if the checkpoint was written before the first training step."""
    if os.path.basename(prefix) == "model.ckpt-0" and not do_train:
        message = "%s was written before the first training step. Pass a later checkpoint"
        log.warning(message, prefix)


def other_task(folder: str, task: str) -> str | None:
    """Returns the task that a folder's model was trained for; None if it is `task` or unknown."""
    trained_task = read_run_string(folder, "flags", "task_name")
    trained_task = trained_task or read_run_string(folder, "flags", "task_module") or task
    names = {os.path.basename(name).lower() for name in (trained_task, task)}
    is_same = len(names) == 1 or names.issubset(_MNLI_TASKS)
    return None if is_same else trained_task


def _saved_threshold(folder: str) -> float:
    path = os.path.join(folder, EVAL_RESULTS_JSON)
    try:
        return float(files.read_json(path)["null_score_diff_threshold"])
    except (UserError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            "The training run had null_score_diff_threshold=auto, but the threshold is not in "
            f"{path}: pass a number as null_score_diff_threshold="
        ) from error


def read_run(folder: str, default: Any = None) -> tuple[str | None, dict[str, Any]]:
    """Returns the script of a training run, and its flags; (None, {}) without a `run.json`.

    If `run.json` is damaged, returns `default`; without a default, raises a UserError.
    """
    path = os.path.join(folder, RUN)
    if not files.exists(path):
        return None, {}
    try:
        run = files.read_json(path)
        script, flags = str(run["script"]), dict(run["flags"])
        options_class = registry.SCRIPTS[script].options_class
        field_types = typing.get_type_hints(options_class)
        names = flags.keys() & field_types
        return script, {name: check_type(name, flags[name], field_types[name]) for name in names}
    except (UserError, ValueError, KeyError, TypeError) as error:
        if default:
            return default
        raise UserError(
            f"{path} is damaged ({error}). Restore it from a copy, or remove it and pass the script"
        ) from error
