"""Where checkpoints are: prefixes, folders, and the `checkpoint` file that names the newest."""

import os
import re

from bert_tf import files
from bert_tf.checkpoints.tensors import UnreadableCheckpoint, read, shapes
from bert_tf.errors import UserError

STATE_FILE = "checkpoint"
KEPT_CHECKPOINTS = 5

_OWN_NAME = re.compile(r"model\.ckpt-(\d+)")
# What TensorFlow leaves when it is stopped while it writes.
_UNFINISHED = re.compile(r"model\.ckpt-\d+\..*tempstate\d+$")
_NAME_ON_A_HUB = re.compile(
    r"(?!.*\.(ckpt|index|h5|json|onnx|keras|zip))([\w-]+/)?[\w-]*bert[\w.-]*", re.I
)
_SUFFIXES = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})$")


def resolve(path: str) -> str:
    """The prefix of a checkpoint that a user named.

    Args:
        path: a prefix (`bert_model.ckpt`), one of the files of a checkpoint, or a folder: its
            newest checkpoint, or the only one in it.

    Raises:
        UserError: nothing there is a checkpoint; the message says what is there instead.
    """
    path = os.fspath(path)
    if files.exists(f"{path}.index"):
        return path
    without_suffix = _SUFFIXES.sub("", path)
    if without_suffix != path and files.exists(f"{without_suffix}.index"):
        return without_suffix
    if files.is_dir(path):
        newest = latest(path)
        if newest:
            return newest
        found = _prefixes_in(path)
        if len(found) == 1:
            return os.path.join(path, found[0])
        raise UserError(
            f"{path} is a folder with {len(found)} checkpoints. Name one of them: "
            f"{', '.join(found)}"
            if found
            else f"{path} holds no checkpoint ({files.describe_absence(os.path.join(path, '*'))})"
        )
    found = _prefixes_in(os.path.dirname(path) or ".")
    here = f"checkpoints in {os.path.dirname(path) or 'the current folder'}: {', '.join(found)}"
    hint = here if found else files.describe_absence(path)
    # bert-base-uncased, or google-bert/bert-base-uncased.
    named = not found and not files.exists(path) and _NAME_ON_A_HUB.fullmatch(path)
    raise UserError(
        f"No checkpoint {path}: there is no file {os.path.basename(path)}.index ({hint})"
        + (". Nothing is downloaded: pass the folder that a model was unpacked to" if named else "")
    )


def latest(folder: str) -> str | None:
    """Prefix of the newest checkpoint of a training folder; None where there is none."""
    names = names_in(folder)
    return os.path.join(folder, names[-1]) if names else None


def names_in(folder: str) -> list[str]:
    """Names of the complete checkpoints of a training folder, the newest last.

    They come from the `checkpoint` file. Without a usable one (lost, or emptied by a crash) they
    are the `model.ckpt-<step>` files in order of their steps, so that they are gone on from and
    not overwritten.
    """
    there = set(_prefixes_in(folder))
    # Folders are moved, and absolute paths may stand in the file: only the names count.
    named = [os.path.basename(path) for path in _paths_in_state(folder)]
    complete = [name for name in dict.fromkeys(named) if name in there]
    if complete:
        return complete
    steps = {int(step[1]): step[0] for step in map(_OWN_NAME.fullmatch, there) if step}
    return [steps[step] for step in sorted(steps)]


def newest_readable(folder: str) -> tuple[str | None, list[str]]:
    """The newest checkpoint whose files can be read to their end, and the newer ones that cannot.

    Raises:
        UserError: the newest cannot be read, and there is no older one that can be; or one is of
            another kind.
    """
    damaged: list[str] = []
    for name in reversed(names_in(folder)):
        prefix = os.path.join(folder, name)
        try:
            for _ in read(prefix, shapes(prefix)):
                pass
        except UnreadableCheckpoint:
            if len(damaged) + 1 == len(names_in(folder)):
                raise
            damaged.append(prefix)
        else:
            return prefix, damaged
    return None, []


def add_newest(folder: str, name: str) -> None:
    """Makes a complete checkpoint the newest of its folder, and removes all but the newest five.

    The state file is changed before old files are removed, so that a crash leaves the folder with
    a good checkpoint.

    Raises:
        UserError: the state file cannot be written.
    """
    names = [*(other for other in names_in(folder) if other != name), name]
    dropped, kept = names[:-KEPT_CHECKPOINTS], names[-KEPT_CHECKPOINTS:]
    lines = [f'model_checkpoint_path: "{name}"']
    lines += [f'all_model_checkpoint_paths: "{other}"' for other in kept]
    files.write_text(os.path.join(folder, STATE_FILE), "\n".join(lines) + "\n")
    remove(folder, *dropped)


def remove(folder: str, *names: str) -> None:
    """Removes the files of checkpoints, and what writes that were stopped have left."""
    for file in files.list_dir(folder):
        of_a_checkpoint = _SUFFIXES.search(file) and _SUFFIXES.sub("", file) in names
        if of_a_checkpoint or _UNFINISHED.match(file):
            files.remove(os.path.join(folder, file))


def _paths_in_state(folder: str) -> list[str]:
    path = os.path.join(folder, STATE_FILE)
    if not files.exists(path):
        return []
    try:
        text = files.read_text(path)
    except UserError:
        return []
    # The last of `all_` is the newest; the line without `all_` repeats it.
    return re.findall(r'^all_model_checkpoint_paths: "(.*)"$', text, re.M) + re.findall(
        r'^model_checkpoint_path: "(.*)"$', text, re.M
    )


def _prefixes_in(folder: str) -> list[str]:
    names = set(files.list_dir(folder))
    prefixes = [name.removesuffix(".index") for name in names if name.endswith(".index")]
    data = {_SUFFIXES.sub("", name) for name in names if ".data-" in name}
    return sorted(prefix for prefix in prefixes if prefix in data)
