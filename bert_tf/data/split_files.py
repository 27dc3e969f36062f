"""Where a user's own texts lie: files are told apart by their names."""

import logging
import os
from collections.abc import Collection, Sequence

from bert_tf import files
from bert_tf.errors import UserError

_logger = logging.getLogger(__name__)

# Split -> how files for it are called; the first one is the usual name.
NAMES = {
    "train": ("train",),
    "eval": ("dev", "valid", "validation", "eval"),
    "predict": ("test",),
}
_ENDINGS = (".tsv", ".csv", ".jsonl", ".json", ".ndjson", ".txt")
FLAGS = {"train": "--train_file", "eval": "--eval_file", "predict": "--predict_file"}
# Files that come with data and are none.
_NO_DATA = ("readme", "license", "licence")


def find_files(
    data_dir: str,
    train_file: str | None = None,
    eval_file: str | None = None,
    predict_file: str | None = None,
    splits: Collection[str] = ("train", "eval", "predict"),
) -> dict[str, str]:
    """Finds a user's files.

    A file that is named is looked for as it is, then in the folder. Otherwise it is called `train`,
    `dev` (`valid`, `validation`, `eval`) or `test`, with an ending that `tables` knows or `.txt`,
    and `.gz` where it is compressed. A file that is alone in the folder, beside those that are
    named, is the training file.

    Args:
        data_dir: the folder; may be empty where a file is named.
        train_file: what is named, or None.
        eval_file: the same.
        predict_file: the same.
        splits: what is needed, "train", "eval" or "predict". Files of others are not looked for,
            so nothing can be wrong with them.

    Returns:
        Split -> path, for those of `splits` that are found.

    Raises:
        UserError: there is no such folder or no such file, or two are called so.
    """
    given = {"train": train_file, "eval": eval_file, "predict": predict_file}
    named = {split: name for split, name in given.items() if name}
    found = {
        split: _named_file(name, data_dir, FLAGS[split])
        for split, name in named.items()
        if split in splits
    }
    missing = [split for split in NAMES if split in splits and split not in found]
    if not data_dir:
        if missing and not named:
            raise UserError(f"Pass --data_dir, the folder with the texts, or {FLAGS[missing[0]]}")
        return found
    if not files.is_dir(data_dir):
        if files.exists(data_dir):
            raise UserError(f"--data_dir={data_dir} is a file. Pass it as --train_file")
        raise UserError(
            f"There is no folder --data_dir={data_dir} ({files.describe_absence(data_dir)})"
        )
    names = files.list_dir(data_dir)
    called = {
        split: os.path.join(data_dir, name)
        for split in missing
        if (name := _only_one(names, split, data_dir))
    }
    if "train" in missing and not called:
        # What is named for a split that is not needed is no training file either.
        unread = [name for split, name in named.items() if split not in found]
        taken = [*found.values(), *unread, *(os.path.join(data_dir, name) for name in unread)]
        if name := _alone(names, data_dir, {os.path.realpath(path) for path in taken}):
            called["train"] = os.path.join(data_dir, name)
            _logger.info(
                "%s: the only file of its folder, so it is the training file", called["train"]
            )
    return found | called


def _named_file(name: str, data_dir: str, flag: str) -> str:
    for path in (name, os.path.join(data_dir, name)):
        if files.exists(path):
            return path
    nor = f" nor in {data_dir}" if data_dir and not os.path.isabs(name) else ""
    where = files.describe_absence(os.path.join(data_dir, name))
    raise UserError(f"{flag}={name}: no such file here{nor} ({where})")


def _of_split(names: Sequence[str], split: str) -> list[str]:
    possible = {stem + end + gz for stem in NAMES[split] for end in _ENDINGS for gz in ("", ".gz")}
    return [name for name in names if name.lower() in possible]


def _only_one(names: Sequence[str], split: str, data_dir: str) -> str | None:
    """The file of a folder that is called as the split."""
    found = _of_split(names, split)
    if len(found) > 1:
        raise UserError(
            f"{data_dir} has {' and '.join(found[:3])}. Pass the one to read as {FLAGS[split]}"
        )
    return found[0] if found else None


def _alone(names: Sequence[str], data_dir: str, taken: Collection[str]) -> str | None:
    """The file that is alone in a folder, beside hidden ones and those about the data set.

    Args:
        names: what is in the folder.
        data_dir: the folder.
        taken: real paths of files that are named.
    """
    found = [
        name
        for name in names
        if not name.lower().startswith((".", *_NO_DATA))
        and not name.lower().endswith(".md")
        and os.path.realpath(os.path.join(data_dir, name)) not in taken
        and not files.is_dir(os.path.join(data_dir, name))
    ]
    # One that is called as a split is for that, whether it is needed or not.
    if len(found) != 1 or any(_of_split(found, split) for split in NAMES):
        return None
    return found[0]
