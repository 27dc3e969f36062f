"""Reading and writing files: local paths, and whatever TensorFlow's file system knows (gs://).

TensorFlow is imported only when a path names a remote file system, so that tokenization and
data preparation work without it.
"""

import contextlib
import functools
import glob as glob_module
import gzip
import io
import os
import shutil
import sys
import uuid
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

from bert_tf.errors import UserError

# Of a line of text, and of a configuration, a vocabulary and the like: text8, a corpus of one line,
# has 95 MB.
_MOST_BYTES = 1 << 27


def is_remote(path: str) -> bool:
    """Whether `path` names another file system than the local one (`gs://...`)."""
    return "://" in os.fspath(path)


def _gfile() -> Any:
    import tensorflow as tf

    return tf.io.gfile


@contextlib.contextmanager
def explained(action: str, path: str) -> Iterator[None]:
    """Turns errors of a file system, the local one or TensorFlow's, into errors of the user."""
    try:
        yield
    except OSError as error:
        raise UserError(f"Cannot {action} {path}: {error.strerror or error}") from error
    except Exception as error:
        # Known by its module: TensorFlow is not imported for a local path.
        if type(error).__module__.startswith("tensorflow"):
            reason = " ".join(str(error).split())[:200]
            raise UserError(f"Cannot {action} {path}: {reason}") from error
        raise


def exists(path: str) -> bool:
    """Whether a file or a folder of this name exists."""
    with explained("look for", path):
        return _gfile().exists(path) if is_remote(path) else os.path.exists(path)


def is_dir(path: str) -> bool:
    """Whether `path` is a folder."""
    with explained("look for", path):
        return _gfile().isdir(path) if is_remote(path) else os.path.isdir(path)


def list_dir(path: str) -> list[str]:
    """Names in a folder, sorted; empty when there is no such folder."""
    if not is_dir(path):
        return []
    with explained("look into", path):
        names = _gfile().listdir(path) if is_remote(path) else os.listdir(path)
    return sorted(name.rstrip("/") for name in names)


def glob(pattern: str) -> list[str]:
    """Paths that match a pattern such as `books/*.txt`, sorted.

    Raises:
        UserError: the file system cannot be read.
    """
    with explained("look for", pattern):
        return sorted(_gfile().glob(pattern) if is_remote(pattern) else glob_module.glob(pattern))


def make_dirs(path: str) -> None:
    """Creates a folder and its parents.

    Raises:
        UserError: a file stands in the way, or the folder may not be created.
    """
    if not is_remote(path) and os.path.isfile(path):
        raise UserError(f"{path} is a file, and has to be a folder")
    with explained("create the folder", path):
        _gfile().makedirs(path) if is_remote(path) else os.makedirs(path, exist_ok=True)


def remove(path: str) -> None:
    """Removes a file; one that is not there is no error."""
    with explained("remove", path):
        if not is_remote(path):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                os.remove(path)
        elif _gfile().exists(path):
            _gfile().remove(path)


def remove_tree(path: str) -> None:
    """Removes a folder with all that is in it; nothing happens when it is not there.

    Raises:
        UserError: when it may not be removed.
    """
    with explained("remove", path):
        if is_remote(path):
            if _gfile().exists(path):
                _gfile().rmtree(path)
        elif os.path.isdir(path):
            shutil.rmtree(path)


def rename(path: str, new: str) -> None:
    """Gives a file or a folder another name, which nothing has yet.

    Raises:
        UserError: it cannot be renamed.
    """
    with explained("rename", path):
        _gfile().rename(path, new) if is_remote(path) else os.rename(path, new)


def size(path: str) -> int:
    """Bytes of a file.

    Raises:
        UserError: when there is no such file.
    """
    with explained("read", path):
        return _gfile().stat(path).length if is_remote(path) else os.path.getsize(path)


def stamp(path: str) -> tuple[int, int]:
    """Bytes of a file, and when it was changed, in nanoseconds.

    Raises:
        UserError: when there is no such file.
    """
    with explained("read", path):
        if is_remote(path):
            known = _gfile().stat(path)
            return known.length, known.mtime_nsec
        known = os.stat(path)
        return known.st_size, known.st_mtime_ns


def concatenate(paths: Sequence[str], path: str) -> None:
    """Writes the content of files, one after the other, into a file.

    Raises:
        UserError: as `replacing` and `open_binary`.
    """
    with replacing(path) as temporary:
        create = _gfile().GFile if is_remote(path) else open
        with create(temporary, "wb") as target:
            for source in paths:
                with open_binary(source) as part:
                    _append(part, target)


def _append(source: Any, target: Any) -> None:
    target.flush()
    # By the system, without moving the bytes through this process: on Linux, between local files.
    with contextlib.suppress(AttributeError, TypeError, OSError):
        while os.sendfile(target.fileno(), source.fileno(), None, 1 << 30):
            pass
    # Elsewhere, and to find out about a disk that is full.
    shutil.copyfileobj(source, target, 1 << 22)


def sync(path: str) -> None:
    """Waits until a local file, or the names in a folder, are on the disk.

    Without it, a power cut may empty a new file, or take back that it was renamed.
    """
    if is_remote(path):
        return
    with explained("write", path):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def describe_absence(path: str) -> str:
    """What a user needs to see when `path` is missing: how far it exists, and what lies there."""
    wanted = folder = os.path.dirname(path) or "."
    while not is_dir(folder) and os.path.dirname(folder) != folder:
        folder = os.path.dirname(folder) or "."
    names = [name for name in list_dir(folder) if not name.startswith(".")]
    shown = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    absent = "" if folder == wanted else f"there is no folder {wanted}; "
    return f"{absent}the folder {folder} has: {shown or 'nothing'}"


def open_binary(path: str, regular: bool = True) -> IO[bytes]:
    """Opens a file for reading bytes.

    Args:
        path: of the file.
        regular: refuse pipes and devices, which may have no end.

    Raises:
        UserError: when there is no such file (with what lies there instead), when it is a
            folder, or when it may not be read.
    """
    if not exists(path):
        raise UserError(f"No such file: {path} ({describe_absence(path)})")
    if is_dir(path):
        inside = describe_absence(os.path.join(path, "*"))
        raise UserError(f"{path} is a folder, a file was expected ({inside})")
    if regular and not is_remote(path) and not os.path.isfile(path):
        raise UserError(f"{path} is a pipe or a device: write its content to a file, and pass that")
    with explained("read", path):
        return _gfile().GFile(path, "rb") if is_remote(path) else open(path, "rb")


@contextlib.contextmanager
def open_decompressed(path: str, regular: bool = False) -> Iterator[Any]:
    """Opens a file for reading bytes; one that is called `.gz` is decompressed.

    Raises:
        UserError: as `open_binary`; or it is not a complete gzip file.
    """
    with open_binary(path, regular) as file, explained("read", path):
        compressed = os.fspath(path).endswith(".gz")
        try:
            with gzip.open(file) if compressed else contextlib.nullcontext(file) as lines:
                yield lines
        except (gzip.BadGzipFile, zlib.error, EOFError) as error:
            raise UserError(f"{path} is not a complete gzip file: {error}") from error


def read_text(path: str, most_bytes: int = _MOST_BYTES) -> str:
    """The whole of a UTF-8 file, as the lines of `read_small_lines`."""
    return "\n".join(read_small_lines(path, most_bytes))


def read_small_lines(path: str, most_bytes: int = _MOST_BYTES) -> list[str]:
    """The lines of a configuration, a vocabulary or another file of limited size.

    Raises:
        UserError: as `read_lines`; or it is a pipe or a device, or too large.
    """
    with open_decompressed(path, regular=True) as file:
        if size(path) > most_bytes:
            raise UserError(
                f"{path} has more than {most_bytes >> 20} MB, far too much for a file of its "
                "kind: pass another one"
            )
        return list(decoded(path, raw_lines(path, file, most_bytes)))


def read_lines(path: str) -> Iterator[str]:
    r"""Yields the lines of a UTF-8 text file, without their line ends; `.gz` is decompressed.

    Only LF ends a line and every CR is deleted, also one inside a line: this is how the
    TensorFlow file API, through which the original reads its texts, behaves. U+2028 and its
    like stay in the line.

    Raises:
        UserError: as `open_decompressed`; or a line is not UTF-8 (`train.tsv:12: ...`) or has
            more than 128 MB.
    """
    with open_decompressed(path) as file:
        yield from decoded(path, raw_lines(path, file))


def raw_lines(name: str, file: Any, most_bytes: int = _MOST_BYTES) -> Iterator[bytes]:
    """Yields the lines of an open file, with their line ends.

    Args:
        name: of the file, for messages.
        file: its lines are limited, unless it is on a remote file system.
        most_bytes: of a line.

    Raises:
        UserError: a line has more.
    """
    # TensorFlow's files cannot read a part of a line.
    limited = (functools.partial(file.readline, most_bytes + 1), b"")
    lines = iter(*limited) if isinstance(file, io.IOBase) else iter(file)
    for number, line in enumerate(lines, start=1):
        if len(line) > most_bytes:
            raise UserError(
                f"{name}:{number}: the line has more than {most_bytes >> 20} MB. Is it a text "
                "file? It needs line ends"
            )
        yield line


def decoded(name: str, lines: Iterable[bytes]) -> Iterator[str]:
    """Yields lines as `read_lines` does.

    Args:
        name: of the file, for messages.
        lines: in UTF-8, each with its line end.

    Raises:
        UserError: a line is not UTF-8.
    """
    for number, raw in enumerate(lines, start=1):
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UserError(explain_encoding(name, number, raw, error)) from error
        text = line.rstrip("\n").replace("\r", "")
        # Nothing but CRs after the last LF is nothing at all.
        if text or line.endswith("\n"):
            yield text


def explain_encoding(path: str, number: int, raw: bytes, error: UnicodeDecodeError) -> str:
    """What to tell a user whose file is not UTF-8 in a line (`raw`, from 1 on)."""
    if number == 1 and raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        found, encoding = "it begins with the mark of UTF-16", "utf-16"
    else:
        found = f"byte 0x{raw[error.start]:02x} at position {error.start + 1} of the line"
        encoding = "latin-1"
    return (
        f"{path}:{number}: the file is not UTF-8 ({found}). Convert it first, for instance with: "
        f"iconv -f {encoding} -t utf-8 {os.path.basename(path)}"
    )


def resolved(path: str) -> str:
    """Where a local path leads: absolute, without symbolic links."""
    return path if is_remote(path) else os.path.realpath(path)


def is_stream(path: str) -> bool:
    """Whether `path` is a pipe, a device or the like."""
    # That /dev/stdout is a pipe or a removed file is seen by where it leads: to no file.
    target = resolved(path)
    is_local = not is_remote(path) and os.path.exists(path)
    return is_local and not (os.path.isfile(target) or os.path.isdir(target))


def temporary_name(path: str) -> str:
    """A name that nobody else gets, in the folder of the file that `path` is or links to."""
    return f"{resolved(path)}.{uuid.uuid4().hex[:12]}.tmp"


@contextlib.contextmanager
def replacing(path: str) -> Iterator[str]:
    """Gives a temporary name to write to; at the end the file takes the place of `path`.

    Nobody ever sees a half-written file under its final name, and when writing fails the old
    file is still there. Of several writers the last one replaces all of the file. Symbolic links
    are followed. A pipe or a device is given itself: it is written to directly.

    Raises:
        UserError: when the file cannot be written (no right to, disk full).
    """
    if is_stream(path):
        with explained("write", path):
            yield path
        return
    temporary = temporary_name(path)
    try:
        with explained("write", path):
            yield temporary
            if is_remote(path):
                _gfile().rename(temporary, path, overwrite=True)
            else:
                os.replace(temporary, resolved(path))
    finally:
        # Where it may not be removed, the reason why it was not written says more.
        with contextlib.suppress(UserError):
            remove(temporary)


@contextlib.contextmanager
def standard_output() -> Iterator[IO[bytes]]:
    """Gives the standard output, for bytes. When nobody reads it any more, the work just ends.

    Raises:
        UserError: it cannot be written to (disk full).
    """
    try:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except OSError as error:
        # Python would try to write the rest once more in the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            reason = error.strerror or error
            raise UserError(f"Cannot write to the standard output: {reason}") from error


def write_text(path: str, text: str) -> None:
    """Writes a UTF-8 file under a temporary name and renames it.

    Raises:
        UserError: as `replacing`.
    """
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: str, content: bytes) -> None:
    """Writes a file under a temporary name and renames it.

    Raises:
        UserError: as `replacing`.
    """
    with replacing(path) as temporary:
        if is_remote(path):
            with _gfile().GFile(temporary, "wb") as file:
                file.write(content)
            return
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            # Renamed before its content is on the disk, it would be empty after a power cut.
            if not is_stream(path):
                os.fsync(file.fileno())
