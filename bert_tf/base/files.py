"""Reads and writes local files, and remote ones through TensorFlow's file systems (gs://).

Every function raises a `UserError` with the path if the file system reports an error. TensorFlow is
imported only for remote paths, so that tokenization and data preparation work without it.
"""

import contextlib
import ctypes
import glob as glob_module
import gzip
import io
import json
import os
import shutil
import sys
import uuid
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

from bert_tf.base import text_lines
from bert_tf.base.errors import Place, UserError, reason, shortened
from bert_tf.base.quiet import import_tensorflow

_WEB = ("http://", "https://", "hf://")


def is_remote(path: str) -> bool:
    """Returns whether `path` is on a remote file system (`gs://...`), not on the web."""
    path = os.fspath(path)
    if path.startswith(_WEB):
        raise UserError(f"{path} is an address: bert_tf downloads nothing")
    return "://" in path


def _gfile() -> Any:
    import_tensorflow(for_script=False)  # without its log
    import tensorflow as tf

    return tf.io.gfile


@contextlib.contextmanager
def wrap_errors(action: str, path: str) -> Iterator[None]:
    """Converts errors of any file system to a `UserError`: "Cannot <action> <path>"."""
    try:
        yield
    except OSError as error:
        raise UserError(f"Cannot {action} {path}: {error.strerror or error}") from error
    except Exception as error:
        # Checked by module name, because TensorFlow is not imported for local paths.
        if type(error).__module__.startswith("tensorflow"):
            raise UserError(f"Cannot {action} {path}: {reason(error)}") from error
        raise


def exists(path: str) -> bool:
    """Returns whether a file or folder exists."""
    with wrap_errors("look for", path):
        return _gfile().exists(path) if is_remote(path) else os.path.exists(path)


def is_dir(path: str) -> bool:
    """Returns whether `path` is a folder."""
    with wrap_errors("look for", path):
        return _gfile().isdir(path) if is_remote(path) else os.path.isdir(path)


def list_dir(path: str) -> list[str]:
    """Returns the sorted names in a folder; empty if there is no such folder."""
    if not is_dir(path):
        return []
    with wrap_errors("list the folder", path):
        names = _gfile().listdir(path) if is_remote(path) else os.listdir(path)
    return sorted(name.rstrip("/") for name in names)


def glob(pattern: str) -> list[str]:
    """Returns the sorted paths that match a pattern such as `books/*.txt`."""
    with wrap_errors("look for", pattern):
        return sorted(_gfile().glob(pattern) if is_remote(pattern) else glob_module.glob(pattern))


def make_dirs(path: str) -> None:
    """Creates a folder and its parents."""
    if not is_remote(path) and os.path.isfile(path):
        raise UserError(f"{path} must be a folder, but is a file")
    with wrap_errors("create the folder", path):
        _gfile().makedirs(path) if is_remote(path) else os.makedirs(path, exist_ok=True)


def remove(path: str) -> None:
    """Removes a file, if it exists."""
    if exists(path) or os.path.islink(path):
        with wrap_errors("remove", path), contextlib.suppress(FileNotFoundError):
            (_gfile() if is_remote(path) else os).remove(path)


def remove_tree(path: str) -> None:
    """Removes a folder and its content, if it exists."""
    with wrap_errors("remove", path):
        if is_dir(path):
            (_gfile().rmtree if is_remote(path) else shutil.rmtree)(path)


@contextlib.contextmanager
def temporary_folder_at(path: str) -> Iterator[str]:
    """Creates an empty folder, replacing an old one; removes it at the end if it still exists."""
    remove_tree(path)
    make_dirs(path)
    try:
        yield path
    finally:
        # A failure here must not hide the error that ended the block.
        with contextlib.suppress(UserError):
            remove_tree(path)


def write_texts(folder: str, contents: Mapping[str, str]) -> list[str]:
    """Writes `contents`, file name -> text, to a folder and its subfolders; returns the paths."""
    paths = [os.path.join(folder, name) for name in contents]
    for path, text in zip(paths, contents.values(), strict=True):
        make_dirs(os.path.dirname(path) or ".")
        write_text(path, text)
    return paths


def rename(path: str, new_path: str) -> None:
    """Renames a file or folder; a file replaces any file at `new_path`."""
    with wrap_errors("rename", path):
        _replace(path, new_path)


def replace_folder(new: str, path: str) -> None:
    """Moves the folder `new` to `path`; `new` may then have what was there before.

    Linux does this in one step. Elsewhere, if the process is killed in the middle, the old folder
    is left as `<new>.old`, which the next call removes.
    """
    old, here, exchange = f"{new}.old", -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    rename2 = getattr(library, "renameat2", lambda *_: 1)
    if rename2(here, os.fsencode(new), here, os.fsencode(path), exchange):  # failed
        if exists(path):
            remove_tree(old)
            rename(path, old)
        rename(new, path)
    remove_tree(old)


def _replace(path: str, new: str) -> None:
    _gfile().rename(path, new, overwrite=True) if is_remote(path) else os.replace(path, new)


def size(path: str) -> int:
    """Returns the size of a file in bytes."""
    return size_and_mtime(path)[0]


def size_and_mtime(path: str) -> tuple[int, int]:
    """Returns the size of a file in bytes, and its modification time in nanoseconds."""
    with wrap_errors("read", path):
        if is_remote(path):
            remote_stat = _gfile().stat(path)
            return remote_stat.length, remote_stat.mtime_nsec
        stat = os.stat(path)
        return stat.st_size, stat.st_mtime_ns


def concatenate(paths: Sequence[str], path: str) -> None:
    """Concatenates files into `path`, with `atomic_write`."""
    with open_atomically(path) as target:
        for source in paths:
            with open_binary(source) as part:
                shutil.copyfileobj(part, target, 1 << 22)


def sync(path: str) -> None:
    """Flushes a local file or folder to disk, so that its content survives a power failure."""
    if is_remote(path):
        return
    with wrap_errors("write", path):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def describe_parent(path: str) -> str:
    """Describes where `path` was not found: a folder, a broken link, or a file instead."""
    if exists(path):
        return "it is a file, not a folder"
    if not is_remote(path) and os.path.islink(path):
        return f"it links to {os.readlink(path)}, which does not exist"
    return describe_folder(os.path.dirname(path))


def describe_folder(path: str) -> str:
    """Lists a folder; if it does not exist, says so, and lists its nearest parent that does."""
    folder = path = path or os.getcwd()
    while not is_dir(folder) and os.path.dirname(folder) != folder:
        folder = os.path.dirname(folder) or os.getcwd()
    names = [name for name in list_dir(folder) if not name.startswith(".")]
    prefix = "" if folder == path else f"there is no folder {path}; "
    return f"{prefix}the folder {folder} has: {shortened(names, 12) or 'nothing'}"


def open_binary(path: str, regular_only: bool = True) -> IO[bytes]:
    """Opens a file to read bytes; `regular_only` rejects pipes and devices, which may not end."""
    if not exists(path):
        raise UserError(f"No such file: {path} ({describe_parent(path)})")
    kind = f"folder ({describe_folder(path)})" if is_dir(path) else ""
    if not kind and regular_only and not is_remote(path) and not os.path.isfile(path):
        kind = "pipe or a device"
    if kind:
        raise UserError(f"{path} must be a file, but is a {kind}")
    with wrap_errors("read", path):
        return _gfile().GFile(path, "rb") if is_remote(path) else open(path, "rb")


def is_gzip(path: str, file: Any) -> bool:
    """Returns whether an open file is gzipped, by its first bytes if it is local."""
    starts_so = isinstance(file, io.BufferedReader) and file.peek(2)[:2] == b"\x1f\x8b"
    return starts_so or os.fspath(path).endswith(".gz")


@contextlib.contextmanager
def open_decompressed(path: str, regular_only: bool = False) -> Iterator[Any]:
    """Opens a file to read bytes; decompresses gzipped files."""
    with open_binary(path, regular_only) as file, wrap_errors("read", path):
        try:
            yield gzip.GzipFile(fileobj=file) if is_gzip(path, file) else file
        except (gzip.BadGzipFile, zlib.error, EOFError) as error:
            raise UserError(f"{path} is not a complete gzip file: {error}") from error


def read_text(path: str, max_bytes: int = text_lines.MAX_BYTES) -> str:
    """Returns the text of a small UTF-8 file (or `.gz`), without CRs and the final line break."""
    return "\n".join(read_small_file_lines(path, max_bytes))


def read_json(path: str) -> dict[str, Any]:
    """Reads a small file with a JSON object; raises a UserError for any other content."""
    text = read_text(path).removeprefix("\ufeff")
    content = parse_json(text, path)
    if not isinstance(content, dict):
        raise UserError(f"expected a JSON object. Received: {text[:40]!r}", at=path)
    return content


def parse_json(text: str, path: str, line: int = 1, advice: str = "") -> Any:
    """Parses JSON that begins at `line` of a file; `advice` ends the message of a UserError."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        problem = f"{error.msg.removesuffix(' at')} at position {error.colno}"
        line += error.lineno - 1
    except (ValueError, RecursionError) as error:  # huge numbers, deep nesting
        problem = str(error)
    raise UserError(f"invalid JSON: {problem}{advice}", at=Place(path, line))


def read_small_file_lines(path: str, max_bytes: int = text_lines.MAX_BYTES) -> list[str]:
    """Reads the lines of a small file; raises a UserError for pipes, devices and larger files."""
    with open_decompressed(path, regular_only=True) as file:
        if size(path) > max_bytes:
            raise UserError(f"{path} has more than {max_bytes >> 20} MB")
        return list(text_lines.read(path, file, max_bytes))


def read_lines(path: str) -> Iterator[str]:
    r"""Yields the lines of a UTF-8 text file, without line breaks; decompresses `.gz` files.

    As in TensorFlow's file API, which the original BERT code uses, only LF ends a line, and every
    CR is deleted, even inside a line. U+2028 and similar characters do not end a line. Raises a
    UserError such as `train.tsv:12: ...` for a line that is not UTF-8, or has more than 128 MB.
    """
    with open_decompressed(path) as file:
        yield from text_lines.read(path, file)


def resolve(path: str) -> str:
    """Makes a local path absolute and resolves symbolic links."""
    return path if is_remote(path) else os.path.realpath(path)


def is_stream(path: str) -> bool:
    """Returns whether `path` is a pipe or a device."""
    # Test the target of a link: /dev/stdout is a stream if it links to a pipe or a deleted file.
    target = resolve(path)
    is_local = not is_remote(path) and os.path.exists(path)
    return is_local and not (os.path.isfile(target) or os.path.isdir(target))


def temporary_name(path: str) -> str:
    """Returns a unique temporary name in the folder of `path`, or of the file it links to."""
    return f"{resolve(path)}.{uuid.uuid4().hex[:12]}.tmp"


def remove_temporary(folder: str) -> None:
    """Removes files of `temporary_name` that killed processes left in a folder, which is locked."""
    for path in glob(os.path.join(glob_module.escape(folder), f"*.{12 * '[0-9a-f]'}.tmp")):
        remove(path)


@contextlib.contextmanager
def atomic_write(path: str) -> Iterator[str]:
    """Yields a temporary name to write to, and renames the file to `path` at the end.

    No partially written file ever has the final name; if writing fails, the old file remains.
    Follows symbolic links. For pipes and devices it yields `path` itself.
    """
    if is_stream(path):
        with wrap_errors("write", path):
            yield path
        return
    temporary = temporary_name(path)
    try:
        with wrap_errors("write", path):
            yield temporary
            _replace(temporary, resolve(path))
    finally:
        # A failure here must not hide the error that ended the block.
        with contextlib.suppress(UserError):
            remove(temporary)


@contextlib.contextmanager
def open_atomically(path: str) -> Iterator[IO[bytes]]:
    """Opens a file for writing bytes; its name appears only at the end, see `atomic_write`."""
    open_file = _gfile().GFile if is_remote(path) else open
    with atomic_write(path) as temporary, open_file(temporary, "wb") as file:
        yield file


def write_text(path: str, text: str) -> None:
    """Writes a UTF-8 file with `atomic_write`."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: str, content: Any) -> None:
    """Writes a JSON file with `atomic_write`."""
    write_text(path, json.dumps(content, indent=1) + "\n")


def write_bytes(path: str, content: bytes) -> None:
    """Writes a file with `atomic_write`."""
    with open_atomically(path) as file:
        file.write(content)
        file.flush()
        # Without this, a power failure soon after the file was renamed may leave it empty.
        if not (is_remote(path) or is_stream(path)):
            os.fsync(file.fileno())
