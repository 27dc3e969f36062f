"""Finds checkpoints by prefix or folder, and maintains the `checkpoint` file that lists them."""

import os
import re

from bert_tf import releases
from bert_tf.base import files
from bert_tf.base.errors import UserError, warn
from bert_tf.checkpoints.tensors import UnreadableCheckpoint, read, shapes

# Lists the checkpoints of its folder, in TensorFlow's format.
STATE_FILE = "checkpoint"
MAX_TO_KEEP = 5

STEP_NAME = re.compile(r"model\.ckpt-(\d+)")
# Temporary files that remain if the process is killed while TensorFlow writes a checkpoint.
_TEMPORARY_FILE = re.compile(r"model\.ckpt-\d+\..*tempstate\d+$")
# Looks like a model id on the Hugging Face Hub, not like a file: bert-base-uncased, google-bert/...
_MODEL_ID = re.compile(
    r"(?!.*\.(ckpt|index|h5|json|onnx|tflite|keras|zip))([\w-]+/)?\w*(bert|-)[\w.-]*", re.I
)
_FILE_SUFFIX = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})$")
_SKIPPED = "damaged, skipping it"


def resolve(path: str) -> str:
    """Returns the prefix of the checkpoint at a path.

    The path may be a prefix (`bert_model.ckpt`), one of a checkpoint's files, or a folder, which
    resolves to its newest checkpoint if a training run wrote it, or else to its only checkpoint.

    Raises:
        UserError: there is no such checkpoint; the message describes what is there instead.
    """
    path = os.fspath(path)
    for prefix in (path, _FILE_SUFFIX.sub("", path)):
        if files.exists(f"{prefix}.index"):
            return prefix
    if files.is_dir(path):
        newest, prefixes = latest(path), _list_prefixes(path)
        if newest or len(prefixes) == 1:
            return newest or os.path.join(path, prefixes[0])
        problem = f"contains no checkpoint ({files.describe_folder(path)})"
        if prefixes:
            problem = f"has {len(prefixes)} checkpoints. Pass one of them: {', '.join(prefixes)}"
        raise UserError(f"{path} {problem}")
    if files.exists(path) and not _FILE_SUFFIX.search(path):
        problem = "this file is not a checkpoint of TensorFlow or another model"
        raise UserError(problem, at=path, fix="If it is an archive, unpack it first")
    folder = os.path.dirname(path) or "."
    prefixes = _list_prefixes(folder)
    hint = f"(checkpoints in {folder}: {', '.join(prefixes)})"
    if not prefixes:
        hint = f"({files.describe_parent(path)}){advice_for_model_id(path)}"
    name = os.path.basename(path)
    raise UserError(f"No checkpoint {path}: file {name}.index does not exist {hint}")


def advice_for_model_id(path: str) -> str:
    """Returns advice if a path that does not exist looks like a model id on a hub; otherwise ""."""
    if not _MODEL_ID.fullmatch(path) or files.exists(os.path.dirname(path) or path):
        return ""
    name = os.path.basename(path)
    urls = [r.url for r in releases.RELEASES if name in (r.name, r.hub_name)]
    archive = f". To download it: {urls[0]}" if urls else ""
    return f". Models are not downloaded: pass the folder of an unpacked model{archive}"


def latest(folder: str) -> str | None:
    """Returns the prefix of the newest checkpoint in a training folder; None if there is none."""
    names = names_in(folder)
    return os.path.join(folder, names[-1]) if names else None


def names_in(folder: str) -> list[str]:
    """Returns the names of the complete checkpoints in a training folder, the newest last.

    The `checkpoint` file lists them. If it is missing, or a crash left it empty, returns every
    `model.ckpt-<step>` in the order of the steps, so that training resumes from the last one
    instead of overwriting it.
    """
    prefixes = set(_list_prefixes(folder))
    # Ignore the directories: the file may contain absolute paths, and the folder may have moved.
    listed = [os.path.basename(path) for path in _read_state(folder)]
    complete = [name for name in dict.fromkeys(listed) if name in prefixes]
    if complete:
        return complete
    by_step = {int(m[1]): m[0] for m in map(STEP_NAME.fullmatch, prefixes) if m}
    return [by_step[step] for step in sorted(by_step)]


def newest_readable(folder: str) -> str | None:
    """Returns the newest checkpoint that can be read; warns about newer ones that are damaged.

    In a folder without checkpoints, returns None. If all are damaged, raises a UserError.
    """
    prefixes = [os.path.join(folder, name) for name in reversed(names_in(folder))]
    warn_if_incomplete(folder)
    for prefix in prefixes:
        try:
            for _ in read(prefix, shapes(prefix)):
                pass
            return prefix
        except UnreadableCheckpoint:
            if prefix == prefixes[-1]:
                raise
            warn(_SKIPPED, at=prefix)
    return None


def warn_if_incomplete(folder: str) -> None:
    """Warns about each listed checkpoint in a training folder that has lost its data."""
    listed = {os.path.basename(path) for path in _read_state(folder)}
    for name in sorted(listed.difference(_list_prefixes(folder))):
        if files.exists(os.path.join(folder, f"{name}.index")):
            warn(_SKIPPED, at=os.path.join(folder, name))


def add_newest(folder: str, name: str, max_to_keep: int = MAX_TO_KEEP) -> None:
    """Records a complete checkpoint as the newest in its folder, and removes the oldest ones.

    `max_to_keep` is the number of checkpoints that remain; 0 for all.

    The list of checkpoints is written before old checkpoints are removed, so that a crash in
    between leaves all listed checkpoints intact.
    """
    names = [*(other for other in names_in(folder) if other != name), name]
    kept = names[-max_to_keep:]  # [-0:] is everything
    outdated = names[: len(names) - len(kept)]
    lines = [f'model_checkpoint_path: "{name}"']
    lines += [f'all_model_checkpoint_paths: "{other}"' for other in kept]
    files.write_text(os.path.join(folder, STATE_FILE), "\n".join(lines) + "\n")
    remove(folder, *outdated)


def remove(folder: str, *names: str) -> None:
    """Removes the files of checkpoints, and all temporary files of interrupted writes."""
    for file in files.list_dir(folder):
        prefix = _FILE_SUFFIX.sub("", file)
        if (prefix != file and prefix in names) or _TEMPORARY_FILE.match(file):
            files.remove(os.path.join(folder, file))


def _read_state(folder: str) -> list[str]:
    """Returns the paths listed in the `checkpoint` file, the newest last; [] without the file."""
    try:
        text = files.read_text(os.path.join(folder, STATE_FILE))
    except UserError:
        return []
    # The newest checkpoint is on the last line with the first key, and again with the second key.
    keys = ("all_model_checkpoint_paths", "model_checkpoint_path")
    return [path for key in keys for path in re.findall(f'^{key}: "(.*)"$', text, re.M)]


def _list_prefixes(folder: str) -> list[str]:
    names = files.list_dir(folder)
    with_index = {name.removesuffix(".index") for name in names if name.endswith(".index")}
    with_data = {_FILE_SUFFIX.sub("", name) for name in names if ".data-" in name}
    return sorted(with_index & with_data)
