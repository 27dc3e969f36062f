"""Finds checkpoints: prefixes, folders, and the `checkpoint` file that names the newest."""

import os
import re

from bert_tf import files
from bert_tf.checkpoints.tensors import UnreadableCheckpoint, read, shapes
from bert_tf.errors import UserError

STATE_FILE = "checkpoint"
MAX_TO_KEEP = 5

_TRAINING_NAME = re.compile(r"model\.ckpt-(\d+)")
# Left by TensorFlow when it is stopped while writing.
_UNFINISHED = re.compile(r"model\.ckpt-\d+\..*tempstate\d+$")
_HUB_NAME = re.compile(
    r"(?!.*\.(ckpt|index|h5|json|onnx|keras|zip))([\w-]+/)?[\w-]*bert[\w.-]*", re.I
)
_SUFFIXES = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})$")


def resolve(path: str) -> str:
    """Returns the prefix of the checkpoint at a path.

    The path is a prefix (`bert_model.ckpt`), one of the files of a checkpoint, or a folder, for its
    newest or its only checkpoint.

    Raises:
        UserError: there is no checkpoint; the message says what is there instead.
    """
    path = os.fspath(path)
    for prefix in (path, _SUFFIXES.sub("", path)):
        if files.exists(f"{prefix}.index"):
            return prefix
    if files.is_dir(path):
        newest, prefixes = latest(path), _prefixes_in(path)
        if newest or len(prefixes) == 1:
            return newest or os.path.join(path, prefixes[0])
        content = files.describe_absence(os.path.join(path, "*"))
        problem = f"contains no checkpoint ({content})"
        if prefixes:
            problem = f"has {len(prefixes)} checkpoints. Name one of them: {', '.join(prefixes)}"
        raise UserError(f"{path} {problem}")
    folder = os.path.dirname(path) or "."
    prefixes = _prefixes_in(folder)
    hint = f"(checkpoints in {folder}: {', '.join(prefixes)})"
    if not prefixes:
        hint = f"({files.describe_absence(path)})"
        # Such as bert-base-uncased or google-bert/bert-base-uncased.
        if not files.exists(path) and _HUB_NAME.fullmatch(path):
            hint += ". Nothing is downloaded: pass the folder of an unpacked model"
    name = os.path.basename(path)
    raise UserError(f"No checkpoint {path}: there is no file {name}.index {hint}")


def latest(folder: str) -> str | None:
    """Returns the prefix of the newest checkpoint in a training folder; None if there is none."""
    names = names_in(folder)
    return os.path.join(folder, names[-1]) if names else None


def names_in(folder: str) -> list[str]:
    """Returns the names of the complete checkpoints in a training folder, the newest last.

    They come from the `checkpoint` file. If it is missing or was emptied by a crash, they are the
    `model.ckpt-<step>` files by step, so that the training resumes and does not overwrite them.
    """
    prefixes = set(_prefixes_in(folder))
    # Only the names count, because a folder with absolute paths in the file may have moved.
    listed = [os.path.basename(path) for path in _paths_in_state(folder)]
    complete = [name for name in dict.fromkeys(listed) if name in prefixes]
    if complete:
        return complete
    steps = {int(step[1]): step[0] for step in map(_TRAINING_NAME.fullmatch, prefixes) if step}
    return [steps[step] for step in sorted(steps)]


def newest_readable(folder: str) -> tuple[str | None, list[str]]:
    """Returns the newest checkpoint that can be read completely, and the damaged newer ones."""
    prefixes = [os.path.join(folder, name) for name in reversed(names_in(folder))]
    for number, prefix in enumerate(prefixes):
        try:
            for _ in read(prefix, shapes(prefix)):
                pass
        except UnreadableCheckpoint:
            if prefix == prefixes[-1]:
                raise
        else:
            return prefix, prefixes[:number]
    return None, []


def add_newest(folder: str, name: str) -> None:
    """Lists a complete checkpoint as the newest of its folder, and removes all but five.

    The state file is written before old checkpoints are removed, so that a crash in between leaves
    a good one.
    """
    names = [*(other for other in names_in(folder) if other != name), name]
    dropped, kept = names[:-MAX_TO_KEEP], names[-MAX_TO_KEEP:]
    lines = [f'model_checkpoint_path: "{name}"']
    lines += [f'all_model_checkpoint_paths: "{other}"' for other in kept]
    files.write_text(os.path.join(folder, STATE_FILE), "\n".join(lines) + "\n")
    remove(folder, *dropped)


def remove(folder: str, *names: str) -> None:
    """Removes the files of checkpoints, and unfinished files of interrupted writes."""
    for file in files.list_dir(folder):
        prefix = _SUFFIXES.sub("", file)
        if (prefix != file and prefix in names) or _UNFINISHED.match(file):
            files.remove(os.path.join(folder, file))


def _paths_in_state(folder: str) -> list[str]:
    try:
        text = files.read_text(os.path.join(folder, STATE_FILE))
    except UserError:
        return []
    # The last `all_` line is the newest; the line without `all_` repeats it.
    keys = ("all_model_checkpoint_paths", "model_checkpoint_path")
    return [path for key in keys for path in re.findall(f'^{key}: "(.*)"$', text, re.M)]


def _prefixes_in(folder: str) -> list[str]:
    names = set(files.list_dir(folder))
    prefixes = [name.removesuffix(".index") for name in names if name.endswith(".index")]
    data = {_SUFFIXES.sub("", name) for name in names if ".data-" in name}
    return sorted(prefix for prefix in prefixes if prefix in data)
