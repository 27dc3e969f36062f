"""Finds a user's training, evaluation and prediction files, and options of all their layouts."""

import dataclasses
import os
import re
from collections.abc import Collection
from typing import Any

from bert_tf.base import files
from bert_tf.base.errors import UserError, note, warn
from bert_tf.options.declare import DATA, PATH, Options, option, value_for
from bert_tf.tables.read import SPLIT_NAMES as NAMES

_EXTENSIONS = (".tsv", ".csv", ".jsonl", ".json", ".ndjson", ".txt")
# Prefixes of files that hold no data, or that a run writes to its folder.
_IGNORED = re.compile(
    r"\.|readme|licen|(label|entities)_test|predicted_|(eval|test)_(results|predictions)"
    r"|(dataset_(info|dict)|state)\.json$",  # of datasets.save_to_disk
    re.I,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitFileOptions(Options, affects=DATA | PATH):
    """Options of `find_files`."""

    data_dir: str | None = option(
        None,
        "Folder with the data files. Not needed if all files are passed by name.",
        required=True,
    )
    train_file: str | None = option(
        None,
        "Training file: a path, or a name in --data_dir; by default train.tsv (or .txt, .jsonl), "
        "or the only file in --data_dir.",
        new=True,
    )
    eval_file: str | None = option(
        None, "Evaluation file; by default dev.tsv, valid.tsv or similar.", new=True
    )
    predict_file: str | None = option(
        None, "File to make predictions for; by default test.tsv or similar.", new=True
    )

    def _not_needed(self) -> set[str]:
        others: set[str] = super()._not_needed()  # type: ignore[misc]  # of a class beside this one
        names_files = self.train_file or self.eval_file or self.predict_file
        return others | ({"data_dir"} if names_files else set())


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayoutOptions(Options, affects=DATA):
    """Options of how one's own tables are read."""

    has_header: str = option(
        "auto",
        "Whether the first row has column names. auto: yes if a column is given by name.",
        new=True,
        choices=("auto", "yes", "no"),
        by_split=True,
    )
    quoted: str = option(
        "auto",
        'Whether cells may be enclosed in quotes ("), and then contain line breaks and delimiters. '
        "auto: yes for CSV; for TSV, only if some cells need them, as those that pandas or Excel "
        "write.",
        new=True,
        choices=("auto", "yes", "no"),
        by_split=True,
    )

    def check_layout(self, *names: str) -> None:
        """Raises a UserError if an option of tables, or one of `names`, lacks `text_column`."""
        for name in (*names, "has_header", "quoted"):
            if getattr(self, name) not in (None, "auto") and not vars(self)["text_column"]:
                raise UserError(f"--{name} needs --text_column")

    def layout(self, split: str = "") -> dict[str, str]:
        """Returns the arguments `quoted` and `has_header` of `tables.texts.read_rows`."""
        return {name: value_for(getattr(self, name), split) for name in ("quoted", "has_header")}


def find_files(
    options: Any, splits: Collection[str], more_extensions: Collection[str] = ()
) -> dict[str, str]:
    """Finds the files of splits from the options `data_dir` and `<split>_file`.

    A file option is a path or, if there is no such path, a name in the folder. Without a file
    option, a file is found in the folder by its name: one of `NAMES` with a known extension,
    optionally followed by `.gz`; or else by a part of its name, such as `ARC-Easy-Train.jsonl` or
    `esp.testa`. The only data file besides those passed is the training file, unless it has such a
    name. If there is no file, subfolders with these names are found.

    Args:
        options: the options; those of other splits are not checked.
        splits: some of "train", "eval" and "predict".
        more_extensions: extensions that files may also have.

    Returns:
        Split -> path, for each of `splits` that has a file.

    Raises:
        UserError: the folder or a file is missing, or a split has several files.
    """
    data_dir = options.data_dir or ""
    specified = {split: name for split in NAMES if (name := getattr(options, f"{split}_file"))}
    paths = {
        split: _find_specified(name, data_dir, f"--{split}_file")
        for split, name in specified.items()
        if split in splits
    }
    missing = [split for split in NAMES if split in splits and split not in paths]
    if not data_dir:
        if missing and not specified:
            raise UserError(f"Pass --data_dir (the folder with the data) or --{missing[0]}_file")
        return paths
    if not files.is_dir(data_dir):
        problem = f"no such folder ({files.describe_parent(data_dir)})"
        raise UserError(problem, at=f"--data_dir={data_dir}")
    existing = _list_data_files(data_dir)
    # A file that was passed for any split is no other split by a part of its name.
    passed = [*specified.values(), *(os.path.join(data_dir, f) for f in specified.values())]
    used = {*map(os.path.realpath, passed)}
    others = [n for n in existing if os.path.realpath(os.path.join(data_dir, n)) not in used]
    for split in missing:
        names = [name for name in existing if _find_split(name, more_extensions) == split]
        if not names and (len(others) > 1 or "train" not in missing):
            names = [name for name in others if _find_split(name, more_extensions, True) == split]
        if len(names) > 1:
            problem = f"{data_dir} contains {' and '.join(names[:3])}"
            raise UserError(problem, fix=f"Pass one of them as --{split}_file")
        if names:
            paths[split] = os.path.join(data_dir, names[0])
    is_train_missing = "train" in missing and paths.keys() <= specified.keys()
    if is_train_missing and len(others) == 1 and not _find_split(others[0], more_extensions):
        paths["train"] = os.path.join(data_dir, others[0])
        only = "the only other" if specified else "the only"
        note(f"Training file: {paths['train']}, {only} data file in the folder")
    if not paths:
        folders = [(split, os.path.join(data_dir, n)) for split in missing for n in NAMES[split]]
        paths = {split: path for split, path in reversed(folders) if files.is_dir(path)}
    return paths


def no_file(split: str, data_dir: str | None, advice: str = "") -> UserError:
    """Returns the error for a split without a file; lists the folder."""
    advice = f"pass --{split}_file, or put {NAMES[split][0]}.tsv into --data_dir{advice}"
    reason = files.describe_folder(data_dir or "")
    return UserError(f"There is no {split} file: {advice} ({reason})")


def _find_specified(name: str, data_dir: str, flag: str) -> str:
    candidates = [name, os.path.join(data_dir, name)]
    matches = list(filter(files.exists, candidates))
    if len({*map(os.path.realpath, matches)}) > 1:
        used, other = map(os.path.abspath, matches)
        warn(f"reading {used}, not {other}", at=f"{flag}={name}")
    if matches:
        return matches[0]
    elsewhere = f", and none in {data_dir}" if data_dir and not os.path.isabs(name) else ""
    reason = files.describe_parent(os.path.join(data_dir, name))
    raise UserError(f"no such file{elsewhere} ({reason})", at=f"{flag}={name}")


def _find_split(
    name: str, more_extensions: Collection[str] = (), anywhere: bool = False
) -> str | None:
    """Returns the split whose name is that of a file or, with `anywhere`, a part of it."""
    base = name.lower().removesuffix(".gz")
    stem, extension = os.path.splitext(base)
    parts = re.split("[-_.]", base) if anywhere else [stem]
    found = {split for split, stems in NAMES.items() if not {*stems}.isdisjoint(parts)}
    is_data = extension in (*_EXTENSIONS, *more_extensions)
    is_data |= anywhere and extension[1:] in sum(NAMES.values(), ())
    return found.pop() if len(found) == 1 and is_data else None


def _list_data_files(data_dir: str) -> list[str]:
    return [
        name
        for name in files.list_dir(data_dir)
        if not _IGNORED.match(name)
        and not name.lower().endswith(".md")
        # A folder with the extension of a table is refused when it is read.
        and (name.endswith(_EXTENSIONS) or not files.is_dir(os.path.join(data_dir, name)))
    ]
