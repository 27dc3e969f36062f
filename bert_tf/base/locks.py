"""File locks that keep two runs from writing to the same folder or file.

The operating system releases a lock when its process ends, even if it is killed. A lock file that
is left over then locks nothing and need not be removed.
"""

import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator

from bert_tf.base import files
from bert_tf.base.errors import UserError, note, warn

# Held locks, as (process id, path). The operating system grants locks to a process, not a thread:
# this set excludes its other threads. A forked child inherits this set, but not the locks.
_held: set[tuple[int, str]] = set()
# Held while a thread opens or closes a lock file: closing it ends the process's lock on the file.
_guard = threading.Lock()
# Number of attempts to read the holder from a lock file, which is empty for a moment at first.
_HOLDER_READ_ATTEMPTS = 20


def lock_path(path: str) -> str:
    """Returns the path of the hidden lock file next to a file or folder."""
    folder, name = os.path.split(files.resolve(path))
    return os.path.join(folder, f".{name}.lock")


@contextlib.contextmanager
def exclusive(path: str, flag: str = "") -> Iterator[None]:
    """Holds an exclusive lock on the lock file `path`, among all processes and threads.

    Creates the lock file and missing folders, and removes them afterwards, except folders that are
    not empty. If the lock is taken, waits. With a `flag`, raises a UserError instead: `flag` is the
    flag and value that named the locked path, such as `--output_dir=out`.
    """
    if files.is_remote(path):
        if flag:
            note(f"{flag}: remote folders are not locked. Do not start a second run")
        yield
        return
    path = files.resolve(path)
    new_folders, folder = [], os.path.dirname(path)
    while not os.path.exists(folder):
        new_folders.append(folder)
        folder = os.path.dirname(folder)
    attempts = 0
    while not isinstance(lock := _try_lock(path), int):
        attempts += 1
        holder = lock or "another process"
        if flag and (lock or attempts > _HOLDER_READ_ATTEMPTS):
            advice = f"wait until it ends, or pass a different {flag.partition('=')[0]}"
            raise UserError(f"{flag} is in use by {holder}: {advice}")
        if attempts == _HOLDER_READ_ATTEMPTS:
            note(f"Waiting for {holder} to release {path}")
        time.sleep(0.05)
    try:
        yield
    finally:
        with _guard:
            # Remove the file before unlocking it: afterwards, another process may have locked it.
            # Windows cannot remove open files; there, the file remains.
            with contextlib.suppress(OSError):
                os.remove(path)
            os.close(lock)
            _held.discard((os.getpid(), path))
        with contextlib.suppress(OSError):
            for folder in new_folders:
                os.rmdir(folder)


def _try_lock(path: str) -> int | str:
    """Takes a lock and returns its file descriptor; if it is taken, its holder ("" if unknown)."""
    this_process = f"process {os.getpid()} on {socket.gethostname()}"
    with _guard, files.wrap_errors("write", path):
        if (os.getpid(), path) in _held:
            return this_process
        try:
            files.make_dirs(os.path.dirname(path))
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        except FileNotFoundError:  # The holder is removing the folder right now.
            return ""
        try:
            _lock(descriptor)
            # False if the last holder has removed the opened file.
            is_locked = os.path.samestat(os.fstat(descriptor), os.stat(path))
        except (BlockingIOError, PermissionError, FileNotFoundError):
            is_locked = False
        except OSError as error:
            warn(f"Cannot lock {path} ({error})")
            is_locked = True
        os.lseek(descriptor, 0, os.SEEK_SET)
        if not is_locked:
            holder = os.read(descriptor, 1000).decode(errors="replace").strip()
            os.close(descriptor)
            return holder
        with contextlib.suppress(OSError):
            # If this process is killed, the file remains: other users must be able to lock it.
            os.chmod(path, 0o666)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{this_process}\n".encode())
        _held.add((os.getpid(), path))
        return descriptor


def _lock(descriptor: int) -> None:
    if sys.platform == "win32":
        import msvcrt

        # Locks a byte far past the end of the text, which must stay readable.
        os.lseek(descriptor, 1 << 20, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        # Not `flock`: forked children would hold the lock after their parent has ended.
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
