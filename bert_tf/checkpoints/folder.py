"""Finds checkpoints by prefix or folder, and maintains the `checkpoint` file that lists them."""

import os
import re

from bert_tf import files
from bert_tf.checkpoints.tensors import UnreadableCheckpoint, read, shapes
from bert_tf.errors import UserError

STATE_FILE = "checkpoint"
MAX_TO_KEEP = 5

_STEP_NAME = re.compile(r"model\.ckpt-(\d+)")
# Temporary files that TensorFlow leaves behind when it is killed while writing.
_TEMPORARY_FILE = re.compile(r"model\.ckpt-\d+\..*tempstate\d+$")
_MODEL_ID = re.compile(
    r"(?!.*\.(ckpt|index|h5|json|onnx|tflite|keras|zip))([\w-]+/)?[\w-]*bert[\w.-]*", re.I
)
_FILE_SUFFIX = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})$")


def resolve(path: str) -> str:
    """Returns the prefix of the checkpoint at a path.

    The path may be a prefix (`bert_model.ckpt`), one of a checkpoint's files, or a folder, which
    resolves to its newest or only checkpoint.

    Raises:
        UserError: there is no checkpoint; the message describes what is there instead.
    """
    path = os.fspath(path)
    for prefix in (path, _FILE_SUFFIX.sub("", path)):
        if files.exists(f"{prefix}.index"):
            return prefix
    if files.is_dir(path):
        newest, prefixes = latest(path), _list_prefixes(path)
        if newest or len(prefixes) == 1:
            return newest or os.path.join(path, prefixes[0])
        content = files.describe_absence(os.path.join(path, "*"))
        problem = f"contains no checkpoint ({content})"
        if prefixes:
            problem = f"has {len(prefixes)} checkpoints. Pass one of them: {', '.join(prefixes)}"
        raise UserError(f"{path} {problem}")
    folder = os.path.dirname(path) or "."
    prefixes = _list_prefixes(folder)
    hint = f"(checkpoints in {folder}: {', '.join(prefixes)})"
    if not prefixes:
        hint = f"({files.describe_absence(path)})"
        # A model id, such as bert-base-uncased or google-bert/bert-base-uncased.
        if not files.exists(path) and _MODEL_ID.fullmatch(path):
            hint += ". Models are not downloaded: pass the folder of an unpacked model"
    name = os.path.basename(path)
    raise UserError(f"No checkpoint {path}: file {name}.index does not exist {hint}")


def latest(folder: str) -> str | None:
    """Returns the prefix of the newest checkpoint in a training folder; None if there is none."""
    names = names_in(folder)
    return os.path.join(folder, names[-1]) if names else None


def names_in(folder: str) -> list[str]:
    """Returns the names of the complete checkpoints in a training folder, the newest last.

    The `checkpoint` file lists them. If it is missing, or empty after a crash, the
    `model.ckpt-<step>` files are used in order of their steps, so that training resumes from them
    instead of overwriting them.
    """
    prefixes = set(_list_prefixes(folder))
    # Ignore the directories: the file may contain absolute paths, and the folder may have moved.
    listed = [os.path.basename(path) for path in _read_state(folder)]
    complete = [name for name in dict.fromkeys(listed) if name in prefixes]
    if complete:
        return complete
    by_step = {int(m[1]): m[0] for m in map(_STEP_NAME.fullmatch, prefixes) if m}
    return [by_step[step] for step in sorted(by_step)]


def newest_readable(folder: str) -> tuple[str | None, list[str]]:
    """Returns the newest intact checkpoint and newer, damaged ones; raises if all are damaged."""
    prefixes = [os.path.join(folder, name) for name in reversed(names_in(folder))]
    for index, prefix in enumerate(prefixes):
        try:
            for _ in read(prefix, shapes(prefix)):
                pass
        except UnreadableCheckpoint:
            if prefix == prefixes[-1]:
                raise
        else:
            return prefix, prefixes[:index]
    return None, []


def add_newest(folder: str, name: str) -> None:
    """Records a complete checkpoint as the newest in its folder, and removes all but the last five.

    The state file is written before old checkpoints are removed, so that a crash in between leaves
    all listed checkpoints intact.
    """
    names = [*(other for other in names_in(folder) if other != name), name]
    outdated, kept = names[:-MAX_TO_KEEP], names[-MAX_TO_KEEP:]
    lines = [f'model_checkpoint_path: "{name}"']
    lines += [f'all_model_checkpoint_paths: "{other}"' for other in kept]
    files.write_text(os.path.join(folder, STATE_FILE), "\n".join(lines) + "\n")
    remove(folder, *outdated)


def remove(folder: str, *names: str) -> None:
    """Removes the files of the named checkpoints, and temporary files of interrupted writes."""
    for file in files.list_dir(folder):
        prefix = _FILE_SUFFIX.sub("", file)
        if (prefix != file and prefix in names) or _TEMPORARY_FILE.match(file):
            files.remove(os.path.join(folder, file))


def _read_state(folder: str) -> list[str]:
    try:
        text = files.read_text(os.path.join(folder, STATE_FILE))
    except UserError:
        return []
    # The last `all_` line names the newest checkpoint, which the line without `all_` repeats.
    keys = ("all_model_checkpoint_paths", "model_checkpoint_path")
    return [path for key in keys for path in re.findall(f'^{key}: "(.*)"$', text, re.M)]


def _list_prefixes(folder: str) -> list[str]:
    names = set(files.list_dir(folder))
    prefixes = [name.removesuffix(".index") for name in names if name.endswith(".index")]
    data = {_FILE_SUFFIX.sub("", name) for name in names if ".data-" in name}
    return sorted(prefix for prefix in prefixes if prefix in data)
