"""Finds a user's training, evaluation and prediction files by their names."""

import logging
import os
from collections.abc import Collection, Sequence

from bert_tf import files
from bert_tf.errors import UserError

_logger = logging.getLogger(__name__)

# Split -> names of its file, the most common first.
NAMES = {
    "train": ("train",),
    "eval": ("dev", "val", "valid", "validation", "eval"),
    "predict": ("test",),
}
FLAGS = {"train": "--train_file", "eval": "--eval_file", "predict": "--predict_file"}
_EXTENSIONS = (".tsv", ".csv", ".jsonl", ".json", ".ndjson", ".txt")
# Prefixes of files that are not data.
_NO_DATA = (".", "readme", "license", "licence")


def find_files(
    data_dir: str,
    train_file: str | None = None,
    eval_file: str | None = None,
    predict_file: str | None = None,
    splits: Collection[str] = ("train", "eval", "predict"),
) -> dict[str, str]:
    """Finds the files of splits.

    A given name is a path, or else a name in the folder. Other files are found in the folder by
    their names: `train`, `dev` (`valid`, `validation`, `eval`) or `test` with a known extension,
    and `.gz` if compressed. If there are none, the only other file of the folder is the training
    file.

    Args:
        data_dir: the folder; may be empty if a file is given.
        train_file: name of the training file, if given.
        eval_file: name of the evaluation file, if given.
        predict_file: name of the prediction file, if given.
        splits: the splits needed; others are not checked.

    Returns:
        Split -> path, for those of `splits` that are found.
    """
    named = {"train": train_file, "eval": eval_file, "predict": predict_file}
    given = {split: name for split, name in named.items() if name}
    found = {
        split: _given_file(name, data_dir, FLAGS[split])
        for split, name in given.items()
        if split in splits
    }
    missing = [split for split in NAMES if split in splits and split not in found]
    if not data_dir:
        if missing and not given:
            raise UserError(f"Pass --data_dir, the folder with the texts, or {FLAGS[missing[0]]}")
        return found
    if not files.is_dir(data_dir):
        if files.exists(data_dir):
            flags = ", ".join(FLAGS.values())
            raise UserError(f"--data_dir={data_dir} is a file. Pass it as one of {flags}")
        raise UserError(
            f"There is no folder --data_dir={data_dir} ({files.describe_absence(data_dir)})"
        )
    existing = files.list_dir(data_dir)
    for split in missing:
        names = [name for name in existing if _split_of(name) == split]
        if len(names) > 1:
            shown = " and ".join(names[:3])
            raise UserError(f"{data_dir} has {shown}. Pass the one to read as {FLAGS[split]}")
        if names:
            found[split] = os.path.join(data_dir, names[0])
    if "train" in missing and found.keys() <= given.keys():
        # Files given for splits that are not needed are not training files either.
        paths = [*given.values(), *(os.path.join(data_dir, name) for name in given.values())]
        others = _data_files(existing, data_dir, {os.path.realpath(path) for path in paths})
        if len(others) == 1 and not _split_of(others[0]):
            found["train"] = os.path.join(data_dir, others[0])
            _logger.info("%s: used as training file, the only file there", found["train"])
    return found


def _given_file(name: str, data_dir: str, flag: str) -> str:
    for path in (name, os.path.join(data_dir, name)):
        if files.exists(path):
            return path
    nor = f" nor in {data_dir}" if data_dir and not os.path.isabs(name) else ""
    reason = files.describe_absence(os.path.join(data_dir, name))
    raise UserError(f"{flag}={name}: no such file here{nor} ({reason})")


def _split_of(name: str) -> str | None:
    stem, extension = os.path.splitext(name.lower().removesuffix(".gz"))
    splits = (split for split, stems in NAMES.items() if stem in stems)
    return next(splits, None) if extension in _EXTENSIONS else None


def _data_files(names: Sequence[str], data_dir: str, taken: Collection[str]) -> list[str]:
    return [
        name
        for name in names
        if not name.lower().startswith(_NO_DATA)
        and not name.lower().endswith(".md")
        and os.path.realpath(path := os.path.join(data_dir, name)) not in taken
        and not files.is_dir(path)
    ]
