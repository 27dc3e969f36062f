"""Expands and checks the file names that users pass: input patterns and output paths."""

import os
from collections import Counter
from collections.abc import Sequence

from bert_tf.base import files
from bert_tf.base.errors import UserError, warn


def split(names: str) -> list[str]:
    """Splits a comma-separated list; drops empty entries and whitespace around entries."""
    return [name.strip() for name in names.split(",") if name.strip()]


def expand(patterns: str) -> list[str]:
    """Expands a comma-separated list of files, folders, and patterns such as `books/*.txt`.

    Searches folders recursively; sorts the files of a folder or pattern. Skips files whose name
    begins with `.` or `_`, `.json` files (which describe other files) and unfinished outputs of
    this package, unless they are listed by name, or a pattern matches no other files. As in the
    original BERT code, a file that is listed twice is returned twice; here with a warning.

    Raises:
        UserError: an entry matches nothing, or the file system cannot be read.
    """
    paths: list[str] = []
    for pattern in split(patterns):
        # An existing file is not a pattern: its name may contain brackets.
        matches = [pattern] if files.exists(pattern) else files.glob(pattern)
        matches = [path for path in matches if not _is_skipped(os.path.basename(path))] or matches
        found = [file for path in matches for file in _list_files(path)]
        if not found:
            wanted = os.path.join(pattern, "*") if files.is_dir(pattern) else pattern
            raise UserError(f"No file matches {wanted} ({files.describe_parent(wanted)})")
        paths += found
    repeated = [path for path, count in Counter(paths).items() if count > 1]
    if repeated:
        warn(f"--input_file lists {repeated[0]} more than once")
    return paths


def _is_skipped(name: str) -> bool:
    return name.startswith((".", "_")) or name.endswith((".json", ".parts", ".tmp"))


def _list_files(path: str) -> list[str]:
    """Returns a file itself, or the files in a folder and below it."""
    if not files.is_dir(path):
        return [path]
    names = [name for name in files.list_dir(path) if not _is_skipped(name)]
    return [file for name in names for file in _list_files(os.path.join(path, name))]


def require_writable(path: str) -> None:
    """Checks that a file can be written, before hours of work depend on it."""
    if files.is_dir(path):
        raise UserError(f"{path} must be a file, but is a folder")
    name, extension = os.path.splitext(path)
    if extension.lower() in (".gz", ".bz2", ".xz", ".zip"):
        raise UserError(f"{path} would not be compressed: pass {name}")
    if path.startswith(("/dev/std", "/dev/fd/", "/proc/")) and not files.is_stream(path):
        # Writing replaces the file, which would lose its content and the shell's later output.
        raise UserError(f"{path} is redirected to a file: pass the name of that file")
    if files.is_stream(path):
        if not os.access(path, os.W_OK):
            raise UserError(f"Cannot write {path}: Permission denied")
        return
    folder = os.path.dirname(files.resolve(path))
    if folder and not files.is_remote(path) and not files.is_dir(folder):
        raise UserError(f"Cannot write {path}: there is no folder {folder}")
    probe = files.temporary_name(path)
    try:
        files.write_text(probe, "")
    except UserError as error:
        raise UserError(f"Cannot write to the folder of {path}: {error}") from error
    files.remove(probe)


def require_distinct(outputs: Sequence[str], inputs: Sequence[str]) -> None:
    """Raises a UserError if an output is also an input, or is listed twice."""
    seen = {os.path.realpath(path) for path in inputs}
    for output in outputs:
        if os.path.realpath(output) in seen:
            raise UserError(f"{output} is also an input, or listed twice: pass another output path")
        seen.add(os.path.realpath(output))
