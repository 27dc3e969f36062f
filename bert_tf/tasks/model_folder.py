"""What a training keeps beside its checkpoints: its folder is all that is needed to use the model.

`bert_config.json` and `vocab.txt` are copies; `run.json` has the script and its flags.
"""

import dataclasses
import json
import os
import typing
from collections.abc import Mapping
from typing import Any

from bert_tf import files
from bert_tf.checkpoints.formats.source import BEST_FOLDER, BEST_NAME
from bert_tf.checkpoints.formats.source import CONFIG_FILE as CONFIG
from bert_tf.checkpoints.formats.source import RUN_FILE as RUN
from bert_tf.checkpoints.formats.source import VOCAB_FILE as VOCAB
from bert_tf.errors import UserError
from bert_tf.options import (
    ClassifierOptions,
    DeviceOptions,
    ExtractionOptions,
    MaskedWordsOptions,
    NerOptions,
    PretrainingOptions,
    SquadOptions,
)
from bert_tf.tasks.results import EVAL_RESULTS_JSON

# The scripts whose work a loaded model can do.
SCRIPTS: dict[str, type] = {
    "run_classifier": ClassifierOptions,
    "run_squad": SquadOptions,
    "run_ner": NerOptions,
    "predict_masked": MaskedWordsOptions,
    "extract_features": ExtractionOptions,
}
_PRETRAINING = "run_pretraining"
_TRAININGS = {**SCRIPTS, _PRETRAINING: PretrainingOptions}
# What a loaded model is not told.
_OF_A_RUN = {"output_dir", "init_checkpoint", "resume"}
_OF_A_RUN |= {"do_train", "do_eval", "do_predict", "do_export"}


def contents(options: Any, goes_on: bool, data: str) -> dict[str, str]:
    """The files of a training, by their names.

    Args:
        options: of the training.
        goes_on: whether it goes on with what is in `output_dir`.
        data: from `run_directory.describe_data`.

    Raises:
        UserError: `output_dir` has other files under these names.
    """
    begun = hint(options.output_dir, "begun_from") if goes_on else options.init_checkpoint
    found = contents_of(options, begun_from=begun, training_data=data)
    flags = {CONFIG: "bert_config_file", VOCAB: "vocab_file"}
    for name in found.keys() & flags.keys():
        source = f"--{flags[name]}={getattr(options, flags[name])}"
        require_same(options.output_dir, name, found[name], source)
    return found


def require_same(folder: str, name: str, text: str, source: str) -> None:
    """Refuses a file that differs from the copy that a training keeps of it.

    Raises:
        UserError: it does.
    """
    path = os.path.join(folder, name)
    # Of lines at the end that are empty the copy has one less.
    if files.exists(path) and files.read_text(path).rstrip() != text.rstrip():
        raise UserError(
            f"{path} is not the same as {source}, and a training keeps a copy of that there. "
            "Choose another --output_dir, or what its training began with, or remove this file"
        )


def write(output_dir: str, kept: Mapping[str, str]) -> None:
    """Writes the files of a training.

    Raises:
        UserError: they cannot be written.
    """
    for name, text in kept.items():
        files.write_text(os.path.join(output_dir, name), text)


def contents_of(options: Any, **more: Any) -> dict[str, str]:
    """Configuration and vocabulary of a model, and the flags of what it was made by, and `more`."""
    run = {"script": script_of(type(options)), "flags": dataclasses.asdict(options), **more}
    copies = {CONFIG: "bert_config_file", VOCAB: "vocab_file"}
    return {
        **{
            name: files.read_text(getattr(options, flag))
            for name, flag in copies.items()
            if hasattr(options, flag)
        },
        RUN: json.dumps(run, indent=1) + "\n",
    }


def script_of(kind: type) -> str:
    """The script whose options are of a class."""
    return next(name for name, known in _TRAININGS.items() if known is kind)


def hint(folder: str, *names: str) -> str | None:
    """What `run.json` says under these names, one in the other, where that is a text.

    None where it says nothing, or is damaged.
    """
    path = os.path.join(folder, RUN)
    try:
        found: Any = json.loads(files.read_text(path)) if files.exists(path) else None
        for name in names:
            found = found[name]
    except (UserError, ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, str) else None


def best_prefix(folder: str) -> str | None:
    """The best weights of a training with `--eval_every`; None where there are none.

    Only where the last training in the folder had it: others have gone on without looking.
    """
    prefix = os.path.join(folder, BEST_FOLDER, BEST_NAME)
    evaluated = hint(folder, "flags", "eval_every")
    return prefix if evaluated and files.exists(f"{prefix}.index") else None


def read_options(folder: str, script: str | None = None, **flags: Any) -> Any:
    """The options to use what was trained in a folder, or published as one.

    Of a training's flags those about the model and its input count, and not the devices it ran on.

    Args:
        folder: with checkpoints, configuration and vocabulary.
        script: one of `SCRIPTS`; by default the one that trained it, and for pre-training
            `predict_masked`.
        flags: what is to be otherwise, or is not known from the folder.

    Returns:
        An object of the class in `SCRIPTS`.

    Raises:
        UserError: the folder or a file that is needed is not there, or there is no such script or
            flag.
    """
    if folder.startswith("~/"):
        folder = os.path.expanduser(folder)
    trained, saved = read_run(folder)
    script = script or ("predict_masked" if trained == _PRETRAINING else trained)
    known = ", ".join(SCRIPTS)
    if not script:
        path = os.path.join(folder, RUN)
        raise UserError(
            f"No such file: {path} ({files.describe_absence(path)}). A training writes it. For "
            f"what was not trained with this package pass script=, one of {known}"
        )
    if script not in SCRIPTS:
        raise UserError(f"script must be one of {known}. Received: {script!r}")
    kind = SCRIPTS[script]
    names = {field.name for field in dataclasses.fields(kind)} - _OF_A_RUN
    unknown = sorted(flags.keys() - names)
    if unknown:
        raise UserError(f"{script} has no flag {unknown[0]}. It has: {', '.join(sorted(names))}")
    devices = {field.name for field in dataclasses.fields(DeviceOptions)} - {"fixed_shapes"}
    values = {name: saved[name] for name in (saved.keys() & names) - devices}
    for flag, name in (("bert_config_file", CONFIG), ("vocab_file", VOCAB)):
        values[flag] = os.path.join(folder, name)
        if flag not in flags and not files.exists(values[flag]):
            raise UserError(
                f"No such file: {values[flag]} ({files.describe_absence(values[flag])}). Pass "
                f"{flag}= with the one that the model was trained with"
            )
    values |= {name: _checked(kind, name, value) for name, value in flags.items()}
    if values.get("null_score_diff_threshold") == "auto":
        values["null_score_diff_threshold"] = _found_threshold(folder)
    if script in ("predict_masked", "extract_features"):
        return kind(**{**values, "init_checkpoint": folder})
    return kind(**{**values, "init_checkpoint": None, "output_dir": folder, "do_predict": True})


def _checked(kind: type, name: str, value: Any) -> Any:
    """The value of a flag, a path as str.

    Raises:
        UserError: it is of another type.
    """
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    wanted = typing.get_type_hints(kind)[name]
    is_float = isinstance(value, int) and isinstance(1.0, wanted)
    if not (isinstance(value, wanted) or is_float) or (isinstance(value, bool) != (wanted is bool)):
        shown = getattr(wanted, "__name__", str(wanted))
        raise UserError(f"{name} must be of type {shown}. Received: {value!r}")
    return value


def _found_threshold(folder: str) -> float:
    """What `null_score_diff_threshold=auto` found in the evaluation of a training."""
    path = os.path.join(folder, EVAL_RESULTS_JSON)
    try:
        return float(json.loads(files.read_text(path))["null_score_diff_threshold"])
    except (UserError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            "The training had null_score_diff_threshold=auto, and what that found is not in "
            f"{path}: pass null_score_diff_threshold= with a number"
        ) from error


def read_run(folder: str) -> tuple[str | None, dict[str, Any]]:
    """The script that trained a model, and its flags; None where that is not known.

    Raises:
        UserError: `run.json` is damaged.
    """
    path = os.path.join(folder, RUN)
    if not files.exists(path):
        return None, {}
    try:
        run = json.loads(files.read_text(path))
        script, flags = str(run["script"]), dict(run["flags"])
        kind = _TRAININGS[script]
        known = {field.name for field in dataclasses.fields(kind)}
        return script, {name: _checked(kind, name, flags[name]) for name in flags.keys() & known}
    except (UserError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} is damaged ({error}): remove it. Scripts do without it, and a program passes "
            "script= instead"
        ) from error
