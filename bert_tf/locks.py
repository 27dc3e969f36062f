"""File locks, which keep two runs from writing to the same folder or file.

The operating system releases a lock when its process ends, even by a kill. The lock file that is
left then locks nothing and need not be removed.
"""

import contextlib
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator

from bert_tf import files
from bert_tf.errors import UserError

_logger = logging.getLogger(__name__)
# Process and path, because the system does not tell the threads of a process apart. A forked child
# inherits the set, but no lock.
_held: set[tuple[int, str]] = set()
# To open and close a file releases the lock of the process on it.
_guard = threading.Lock()
# A lock that is being taken or released may not have a name of its holder yet.
_ATTEMPTS = 20


def beside(path: str) -> str:
    """Returns the lock file of a file or folder: hidden, in the same folder."""
    folder, name = os.path.split(files.resolved(path))
    return os.path.join(folder, f".{name}.lock")


@contextlib.contextmanager
def exclusive(path: str, flag: str = "") -> Iterator[None]:
    """Holds the lock of a file, exclusively over all processes and threads.

    The lock file and missing folders are created, and removed afterwards unless folders are no
    longer empty. If the lock is held, the call waits; with `flag`, which is what is locked as the
    user passed it (`--output_dir=out`), it raises a UserError.
    """
    if files.is_remote(path):
        if flag:
            _logger.info("%s: nothing is locked there, so start no second run", flag)
        yield
        return
    path = files.resolved(path)
    created, folder = [], os.path.dirname(path)
    while not os.path.exists(folder):
        created.append(folder)
        folder = os.path.dirname(folder)
    attempts = 0
    while not isinstance(found := _try(path), int):
        attempts += 1
        holder = found or "another process"
        if flag and (found or attempts > _ATTEMPTS):
            raise UserError(
                f"{flag} is in use, {holder} writes to it: wait until that has ended, or pass "
                f"another {flag.partition('=')[0]}"
            )
        if attempts == _ATTEMPTS:
            _logger.info("Waiting for %s, which holds %s", holder, path)
        time.sleep(0.05)
    try:
        yield
    finally:
        with _guard:
            # Still locked, so that it cannot be another's. Windows removes no open file.
            with contextlib.suppress(OSError):
                os.remove(path)
            os.close(found)
            _held.discard((os.getpid(), path))
        with contextlib.suppress(OSError):
            for folder in created:
                os.rmdir(folder)


def _try(path: str) -> int | str:
    """Takes a lock and returns its descriptor, or else its holder, "" if that is unknown yet."""
    this = f"process {os.getpid()} on {socket.gethostname()}"
    with _guard, files.explained("write", path):
        if (os.getpid(), path) in _held:
            return this
        try:
            files.make_dirs(os.path.dirname(path))
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        except FileNotFoundError:  # Whoever holds it just removes its folder.
            return ""
        try:
            _lock(descriptor)
            is_mine = os.path.samestat(os.fstat(descriptor), os.stat(path))
        except (BlockingIOError, PermissionError, FileNotFoundError):
            is_mine = False
        except OSError as error:
            _logger.warning("%s: cannot be locked (%s). Let nobody else write there", path, error)
            is_mine = True
        os.lseek(descriptor, 0, os.SEEK_SET)
        if not is_mine:
            holder = os.read(descriptor, 1000).decode(errors="replace").strip()
            os.close(descriptor)
            return holder
        with contextlib.suppress(OSError):
            os.chmod(path, 0o666)  # After a kill others who share the folder need it.
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{this}\n".encode())
        _held.add((os.getpid(), path))
        return descriptor


def _lock(descriptor: int) -> None:
    if sys.platform == "win32":
        import msvcrt

        # Far behind the text, which must stay readable.
        os.lseek(descriptor, 1 << 20, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        # Not `flock`, which forked children would hold longer than their parent.
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
