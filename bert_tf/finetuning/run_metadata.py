"""Files that a training run keeps beside its checkpoints: all that a model needs.

Copies of `bert_config.json` and `vocab.txt`; `run.json` with the script and its flags; and
`labels.txt` with the names of the outputs.
"""

import dataclasses
import json
import os
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf import files, registry
from bert_tf.checkpoints import label_map
from bert_tf.checkpoints.formats.source import BEST_FOLDER, BEST_NAME
from bert_tf.checkpoints.formats.source import CONFIG_FILE as CONFIG
from bert_tf.checkpoints.formats.source import RUN_FILE as RUN
from bert_tf.checkpoints.formats.source import VOCAB_FILE as VOCAB
from bert_tf.checkpoints.label_map import LABELS_FILE as LABELS
from bert_tf.errors import UserError
from bert_tf.finetuning.output_dir import EVAL_RESULTS_JSON
from bert_tf.finetuning.record_cache import fingerprint
from bert_tf.options.fields import checked
from bert_tf.options.shared import DeviceOptions
from bert_tf.progress import log

_COPIES = {CONFIG: "bert_config_file", VOCAB: "vocab_file"}
# Flags that a loaded model does not have.
_OF_A_RUN = {"output_dir", "init_checkpoint", "resume"}
_OF_A_RUN |= {"do_train", "do_eval", "do_predict", "do_export"}
# A model of one of these tasks may be evaluated on the others.
_LIKE_MNLI = ("mnli", "mnli-mm", "ax", "xnli")


def training_files(
    options: Any, resumes: bool, training_data: str, labels: Sequence[str] = ()
) -> dict[str, str]:
    """Returns the contents of a training's files by name, or raises a UserError if some differ."""
    begun = hint(options.output_dir, "begun_from") if resumes else options.init_checkpoint
    contents = model_files(options, labels, begun_from=begun, training_data=training_data)
    for name, flag in _COPIES.items():
        if name in contents:
            source = f"--{flag}={getattr(options, flag)}"
            require_same(options.output_dir, {name: contents[name]}, source)
    return contents


def labels_file(labels: Sequence[str]) -> dict[str, str]:
    """Returns the content of `labels.txt` by its name; nothing without labels."""
    return {LABELS: label_map.to_text(labels)} if labels else {}


def model_files(options: Any, labels: Sequence[str] = (), **more: Any) -> dict[str, str]:
    """Returns the contents of configuration, vocabulary, `labels.txt` and `run.json` by name.

    Without labels there is no `labels.txt`; `more` are further entries of `run.json`.
    """
    run = {"script": registry.script_of(type(options)), "flags": dataclasses.asdict(options)}
    copies = {
        name: files.read_text(getattr(options, flag))
        for name, flag in _COPIES.items()
        if hasattr(options, flag)
    }
    contents = {**labels_file(labels), **copies}
    run["digests"] = {name: fingerprint(text.rstrip()) for name, text in contents.items()}
    return {**contents, RUN: json.dumps({**run, **more}, indent=1) + "\n"}


def warn_of_changes(folder: str) -> None:
    """Warns about files of a training that were changed after it."""
    for name in (VOCAB, LABELS):
        path, before = os.path.join(folder, name), hint(folder, "digests", name)
        if before and files.exists(path) and fingerprint(files.read_text(path).rstrip()) != before:
            log.warning("%s was changed after the training. Check that this is on purpose", path)


def require_same(folder: str, contents: Mapping[str, str], source: str) -> None:
    """Raises a UserError if a file differs from the copy that a training run keeps of it."""
    for name, text in contents.items():
        path = os.path.join(folder, name)
        # The copy has no blank lines at its end.
        if files.exists(path) and files.read_text(path).rstrip() != text.rstrip():
            raise UserError(
                f"{path} differs from {source}, of which a training keeps a copy there. Choose "
                "another --output_dir, or what its training began with, or remove this file"
            )


def write(folder: str, contents: Mapping[str, str]) -> None:
    """Writes the files of a training run."""
    for name, text in contents.items():
        files.write_text(os.path.join(folder, name), text)


def hint(folder: str, *names: str) -> str | None:
    """Returns the text under nested keys of `run.json`; None if it is absent or damaged."""
    path = os.path.join(folder, RUN)
    try:
        value: Any = json.loads(files.read_text(path)) if files.exists(path) else None
        for name in names:
            value = value[name]
    except (UserError, ValueError, KeyError, TypeError):
        return None
    return value if isinstance(value, str) else None


def best_prefix(folder: str) -> str | None:
    """Returns the best weights, or None if the last training ran without `--eval_every`."""
    prefix = os.path.join(folder, BEST_FOLDER, BEST_NAME)
    evaluated = hint(folder, "flags", "eval_every")
    return prefix if evaluated and files.exists(f"{prefix}.index") else None


def read_options(folder: str, script: str | None = None, **flags: Any) -> Any:
    """Returns the options for using a model that was trained in a folder, or published as one.

    Flags of the training apply, except those of devices; `flags` override them. The default of
    `script` is the one that trained the model, and `predict_masked` after pre-training.
    """
    if folder.startswith("~/"):
        folder = os.path.expanduser(folder)
    trained, saved = read_run(folder)
    scripts = [name for name, entry in registry.SCRIPTS.items() if entry.has_predictor]
    script = script or ("predict_masked" if trained == "run_pretraining" else trained)
    if not script:
        path = os.path.join(folder, RUN)
        raise UserError(
            f"No such file: {path} ({files.describe_absence(path)}). Without it pass script=, one "
            f"of {', '.join(scripts)}"
        )
    if script not in scripts:
        raise UserError(f"script must be one of {', '.join(scripts)}. Received: {script!r}")
    require_script(folder, script)
    entry = registry.SCRIPTS[script]
    options_class = entry.options_class
    names = {field.name for field in dataclasses.fields(options_class)} - _OF_A_RUN
    unknown = sorted(flags.keys() - names)
    if unknown:
        raise UserError(f"{script} has no flag {unknown[0]}. It has: {', '.join(sorted(names))}")
    devices = {field.name for field in dataclasses.fields(DeviceOptions)} - {"fixed_shapes"}
    values = {name: saved[name] for name in (saved.keys() & names) - devices}
    for name, flag in _COPIES.items():
        values[flag] = os.path.join(folder, name)
        if flag not in flags and not files.exists(values[flag]):
            absence = files.describe_absence(values[flag])
            raise UserError(f"No such file: {values[flag]} ({absence}). Pass {flag}=")
    types = typing.get_type_hints(options_class)
    values |= {name: checked(name, value, types[name]) for name, value in flags.items()}
    asked = flags.get("task_name") or flags.get("task_module")
    if asked and (other := other_task(folder, asked)):
        log.warning("%s: trained as %s, asked as %s", folder, other, asked)
    if values.get("null_score_diff_threshold") == "auto":
        values["null_score_diff_threshold"] = _saved_threshold(folder)
    place = {"init_checkpoint": None, "output_dir": folder}
    return options_class(**values, **(place if entry.make_task else {"init_checkpoint": folder}))


def require_script(folder: str, script: str) -> None:
    """Requires that a model was not fine-tuned by another script, for outputs of another kind.

    Raises:
        UserError: it was.
    """
    tasks = [name for name, entry in registry.SCRIPTS.items() if entry.make_task]
    trained = hint(folder, "script")
    if trained != script and trained in tasks and script in tasks:
        raise UserError(f"{folder} was trained by {trained}.py: use that script, not {script}")


def warn_if_untrained(prefix: str, do_train: bool = False) -> None:
    """Warns about results of the checkpoint that a training run writes before its first step."""
    if os.path.basename(prefix) == "model.ckpt-0" and not do_train:
        message = "%s is the model before the first step of its training. Pass a later checkpoint"
        log.warning(message, prefix)


def other_task(folder: str, asked: str) -> str | None:
    """Returns the task of the training in a folder, if it is known and not the one asked for."""
    trained = hint(folder, "flags", "task_name") or hint(folder, "flags", "task_module") or asked
    one, other = (os.path.basename(task).lower() for task in (trained, asked))
    same = one == other or (one in _LIKE_MNLI and other in _LIKE_MNLI)
    return None if same else trained


def _saved_threshold(folder: str) -> float:
    """Returns the threshold that an evaluation with `null_score_diff_threshold=auto` found."""
    path = os.path.join(folder, EVAL_RESULTS_JSON)
    try:
        return float(json.loads(files.read_text(path))["null_score_diff_threshold"])
    except (UserError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            "The training had null_score_diff_threshold=auto, and what that found is not in "
            f"{path}: pass null_score_diff_threshold= with a number"
        ) from error


def read_run(folder: str, damaged: Any = None) -> tuple[str | None, dict[str, Any]]:
    """Returns the script that trained a model, or None if that is unknown, and its flags.

    For a damaged file it returns `damaged`, and without that raises a UserError.
    """
    path = os.path.join(folder, RUN)
    if not files.exists(path):
        return None, {}
    try:
        run = json.loads(files.read_text(path))
        script, flags = str(run["script"]), dict(run["flags"])
        kind = registry.SCRIPTS[script].options_class
        known = typing.get_type_hints(kind)
        names = flags.keys() & known
        return script, {name: checked(name, flags[name], known[name]) for name in names}
    except (UserError, ValueError, KeyError, TypeError) as error:
        if damaged:
            return damaged
        raise UserError(f"{path} is damaged ({error}): remove it, and pass script=") from error
