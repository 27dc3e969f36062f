"""File names as users pass them: lists, patterns and folders to read, and places to write to."""

import os
from collections.abc import Sequence

from bert_tf import files
from bert_tf.errors import UserError


def split(names: str) -> list[str]:
    """The names that stand between commas."""
    return [name.strip() for name in names.split(",") if name.strip()]


def expand(patterns: str) -> list[str]:
    """Files by names, patterns such as `books/*.txt`, and folders, separated by commas.

    Files of a pattern are sorted, and so are those of a folder, which are all at any depth. Names
    that begin with `.` or `_`, `.json` files, which describe other files, and unfinished outputs of
    this package are left out, unless they are named exactly or a pattern matches nothing else. A
    file that is found twice is there twice, as in the original.

    Raises:
        UserError: nothing is found for one of them, or the file system cannot be read.
    """
    paths: list[str] = []
    for pattern in split(patterns):
        found = _matching(pattern)
        if not found:
            raise UserError(f"No file matches {pattern} ({files.describe_absence(pattern)})")
        for path in found:
            inside = _files_below(path) if files.is_dir(path) else [path]
            if not inside:
                raise UserError(f"There is no file in the folder {path}")
            paths += inside
    return paths


def _matching(pattern: str) -> list[str]:
    # A file whose own name has brackets is meant itself.
    found = [pattern] if files.exists(pattern) else files.glob(pattern)
    return [path for path in found if not _is_left_out(os.path.basename(path))] or found


def _is_left_out(name: str) -> bool:
    return name.startswith((".", "_")) or name.endswith((".json", ".parts", ".tmp"))


def _files_below(folder: str) -> list[str]:
    paths = []
    for name in files.list_dir(folder):
        path = os.path.join(folder, name)
        if _is_left_out(name):
            continue
        paths += _files_below(path) if files.is_dir(path) else [path]
    return paths


def require_writable(path: str) -> None:
    """Sees now, and not after hours of work, that a file can be written.

    Raises:
        UserError: it cannot, or is a folder.
    """
    if files.is_dir(path):
        raise UserError(f"{path} is a folder, in place of a file to write")
    if files.is_stream(path):
        if not os.access(path, os.W_OK):
            raise UserError(f"Cannot write {path}: Permission denied")
        return
    if path.startswith(("/dev/std", "/dev/fd/", "/proc/")):
        # Replacing the file would lose what is in it already, and what the shell adds later.
        raise UserError(f"{path} is redirected to a file: pass the name of that file")
    folder = os.path.dirname(files.resolved(path))
    if folder and not files.is_remote(path) and not files.is_dir(folder):
        raise UserError(f"Cannot write {path}: there is no folder {folder}")
    probe = files.temporary_name(path)
    try:
        files.write_text(probe, "")
    except UserError as error:
        raise UserError(
            f"Cannot write {path}: a file beside it cannot be made ({error})"
        ) from error
    files.remove(probe)


def require_others(outputs: Sequence[str], inputs: Sequence[str]) -> None:
    """Refuses to write over what is read, and one file twice.

    Raises:
        UserError: it names the file.
    """
    known = {os.path.realpath(path) for path in inputs}
    for output in outputs:
        if os.path.realpath(output) in known:
            raise UserError(
                f"{output} would be written, but is among the input files too, or named twice: "
                "pass another name"
            )
        known.add(os.path.realpath(output))
