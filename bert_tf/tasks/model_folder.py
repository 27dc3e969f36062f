"""What a training keeps beside its checkpoints: its folder is all that is needed to use the model.

`bert_config.json` and `vocab.txt` are copies; `run.json` has the script and its flags.
"""

import dataclasses
import json
import os
from typing import Any

from bert_tf import files
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

CONFIG = "bert_config.json"
VOCAB = "vocab.txt"
RUN = "run.json"

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


def contents(options: Any) -> dict[str, str]:
    """The files of a training, by their names.

    Args:
        options: of the training.

    Raises:
        UserError: `output_dir` has other files under these names.
    """
    script = next(name for name, kind in _TRAININGS.items() if type(options) is kind)
    run = {"script": script, "flags": dataclasses.asdict(options)}
    flags = {CONFIG: "bert_config_file", VOCAB: "vocab_file"}
    copies = {
        name: files.read_text(getattr(options, flag))
        for name, flag in flags.items()
        if hasattr(options, flag)
    }
    for name, text in copies.items():
        path = os.path.join(options.output_dir, name)
        if files.exists(path) and files.read_text(path) != text:
            raise UserError(
                f"{path} is not the same as --{flags[name]}={getattr(options, flags[name])}, and a "
                "training keeps a copy of that there. Choose another --output_dir, or the file "
                "that its training began with, or remove this one"
            )
    return {**copies, RUN: json.dumps(run, indent=1) + "\n"}


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
    trained, saved = _read_run(folder)
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
    names = {field.name for field in dataclasses.fields(kind)}
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
    if script in ("predict_masked", "extract_features"):
        values["init_checkpoint"] = folder
    else:
        values |= {"output_dir": folder, "init_checkpoint": None, "resume": "must"}
        values |= {"do_train": False, "do_eval": False, "do_predict": True}
    return kind(**{**values, **flags})


def _read_run(folder: str) -> tuple[str | None, dict[str, Any]]:
    """The script that trained a model, and its flags; None where that is not known."""
    path = os.path.join(folder, RUN)
    if not files.exists(path):
        return None, {}
    try:
        run = json.loads(files.read_text(path))
        return str(run["script"]), dict(run["flags"])
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged ({error}): pass script= and remove it") from error
