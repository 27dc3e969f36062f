"""Keeps the programs that XLA compiles, for later processes, if BERT_TF_XLA_CACHE is set.

TensorFlow can store compiled programs in a folder, but its cache needs care: an entry from another
version or card stops the program, and so do a full disk and a read-only folder. It never deletes
anything. XLA's cache of autotuning results is not used: if it cannot write, it aborts the process.
"""

import contextlib
import glob
import hashlib
import logging
import os
import re
import shutil
import tempfile
import time

VARIABLE = "BERT_TF_XLA_CACHE"

# A program of BERT-Base has about 20 MB.
_MAX_BYTES = 2_000_000_000
_MIN_FREE_BYTES = 1_000_000_000
_SECONDS_PER_DAY = 86_400


def enable() -> None:
    """Makes TensorFlow use the folder in BERT_TF_XLA_CACHE; call it before importing TensorFlow.

    Each version of TensorFlow, kind of device, driver and value of XLA_FLAGS has its own subfolder.
    The least recently written programs are removed while there are more than 2 GB. If nothing can
    be written, or less than 1 GB is free, stored programs are used, but none is added. Has no
    effect if TF_XLA_FLAGS already names a cache, if the package is not called tensorflow, or if
    another user could write to the folder.
    """
    parent, flags = os.environ.get(VARIABLE), os.environ.get("TF_XLA_FLAGS", "")
    platform = _describe_platform() if parent and "persistent_cache" not in flags else None
    if not parent or not platform:
        return
    folder = os.path.join(os.path.abspath(os.path.expanduser(parent)), platform)
    if not _is_private(folder):
        message = "%s=%s is not used: other users can change the folder. Pass one that only you can"
        return logging.getLogger(__name__).warning(message, VARIABLE, parent)
    quoted = re.sub(r'(["\\])', r"\\\1", folder)
    flags += f' --tf_xla_persistent_cache_directory="{quoted}"'
    if not _make_room(folder):
        flags += " --tf_xla_persistent_cache_read_only=true"
    os.environ["TF_XLA_FLAGS"] = flags.strip()


def _is_private(folder: str) -> bool:
    """Creates a folder; returns whether only this user and root can place programs in it."""
    with contextlib.suppress(OSError, AttributeError):  # it cannot be created; on Windows
        os.makedirs(folder, mode=0o700, exist_ok=True)
        own, parent = os.stat(folder), os.stat(os.path.dirname(folder))
        # In a parent with the sticky bit, such as /tmp, others cannot replace the folder.
        is_writable = own.st_mode & 0o022 or parent.st_mode & 0o1002 == 0o002
        return {own.st_uid, parent.st_uid} <= {0, os.getuid()} and not is_writable
    return True


def _describe_platform() -> str | None:
    """Returns a name for everything that a program depends on, but that is not part of its key."""
    from importlib import metadata  # slow to import

    try:
        version = metadata.version("tensorflow")
    except metadata.PackageNotFoundError:  # another package contains the module
        return None
    cards = "".join(map(_read, sorted(glob.glob("/proc/driver/nvidia/gpus/*/information"))))
    names = sorted(set(re.findall(r"^Model:\s*(.+)$", cards, re.MULTILINE)))
    driver = _read("/proc/driver/nvidia/version")
    processor = re.findall(r"^(?:model name|flags|Features)\s*:.*$", _read("/proc/cpuinfo"), re.M)
    variables = [os.environ.get(name, "") for name in ("XLA_FLAGS", "CUDA_VISIBLE_DEVICES")]
    settings = [driver, *variables, *sorted(set(processor))]
    digest = hashlib.sha256(repr(settings).encode()).hexdigest()[:12]
    device = re.sub(r"\W+", "_", "-".join(names) or "cpu")
    return f"tensorflow-{version}-{device}-{digest}"


def _read(path: str) -> str:
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
    return ""


def _make_room(folder: str) -> bool:
    """Removes old programs, also of other folders; returns whether there is room for new ones."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
        programs = []
        # Names end with .pb or, while a program is written, with .pb, other characters and .tmp.
        pattern = os.path.join(glob.escape(os.path.dirname(folder)), "tensorflow-*", "*.pb*")
        for path in glob.glob(pattern):
            with contextlib.suppress(FileNotFoundError):  # another process may remove it, too
                programs.append((os.path.getmtime(path), os.path.getsize(path), path))
        total = 0
        for modified, size, path in sorted(programs, reverse=True):
            total += size
            is_temporary = not path.endswith(".pb")
            # A process that was killed leaves temporary files, a power failure empty ones.
            is_leftover = not size or (is_temporary and modified < time.time() - _SECONDS_PER_DAY)
            if is_leftover or (total > _MAX_BYTES and not is_temporary):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
        return shutil.disk_usage(folder).free >= _MIN_FREE_BYTES
    except OSError:
        return False
