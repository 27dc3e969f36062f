"""Zips of the original release: a folder with bert_config.json, vocab.txt, bert_model.ckpt.*."""

import functools
import os
import re
import shutil
import stat
import tempfile
import zipfile
import zlib

from bert_tf import files
from bert_tf.checkpoints.formats.source import CONFIG_FILE, VOCAB_FILE, temporary_folder
from bert_tf.errors import UserError, shortened

_KNOWN = re.compile(
    rf"(?!__MACOSX/)(.*/)?({re.escape(CONFIG_FILE)}|{re.escape(VOCAB_FILE)}|"
    r"(?!\._)[^/]*\.ckpt(-\d+)?\.(index|meta|data-\d{5}-of-\d{5}))"
)
# Weights hardly compress: more than this is a zip bomb.
_MAX_GROWTH = 20
_ALWAYS_ALLOWED = 1 << 28


def unpack(path: str) -> str:
    """Unpacks checkpoint, configuration and vocabulary to a folder that is removed at exit.

    Only the last part of a known name becomes a file name. Even so, zips with links or paths that
    lead out of it are refused.
    """
    return _unpack_once(path, files.size_and_mtime(path))


@functools.lru_cache
def _unpack_once(path: str, size_and_mtime: tuple[int, int]) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            members = _checked(path, archive)
            # Keeps the name of the folder in the zip, by which releases are known.
            name_inside = os.path.basename(os.path.dirname(next(iter(members.values())).filename))
            name_inside = name_inside or os.path.basename(path).removesuffix(".zip") or "model"
            folder = os.path.join(temporary_folder(), name_inside)
            os.mkdir(folder)
            for name, member in members.items():
                with archive.open(member) as source, open(os.path.join(folder, name), "wb") as file:
                    shutil.copyfileobj(source, file, 1 << 22)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise UserError(f"{path} is not a complete zip file ({error}): get it again") from error
    except OSError as error:
        raise UserError(f"Cannot unpack {path}: {error.strerror or error}") from error
    return folder


def _checked(path: str, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Returns the members to unpack by file name."""
    for member in archive.infolist():
        parts = re.split(r"[/\\]", member.filename)
        is_outside = ".." in parts or not parts[0] or ":" in parts[0]
        if is_outside or stat.S_ISLNK(member.external_attr >> 16):
            kind = "file outside of its folder" if is_outside else "link"
            raise UserError(f"{path} has a {kind} ({member.filename}): nothing is unpacked")
    # Macs add metadata files with the names of the files they describe.
    known = [member for member in archive.infolist() if _KNOWN.fullmatch(member.filename)]
    paths = [os.path.split(member.filename) for member in known]
    folders = {folder for folder, name in paths if ".ckpt" in name}
    if len(folders) > 1:
        shown = ", ".join(sorted(folders))
        raise UserError(f"{path} has several checkpoints, in {shown}: unpack it and pass one")
    if not folders:
        inside = shortened(archive.namelist(), 8) or "nothing"
        raise UserError(f"{path} has no checkpoint of the original release. It has: {inside}")
    chosen = [member for member in known if os.path.dirname(member.filename) in folders]
    total, packed = sum(member.file_size for member in chosen), os.path.getsize(path)
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if total > max(_ALWAYS_ALLOWED, _MAX_GROWTH * packed):
        sizes = f"has {packed:,} bytes and would become {total:,}"
        raise UserError(f"{path} {sizes}: nothing is unpacked")
    if total > free:
        raise UserError(f"{path} would become {total:,} bytes, but only {free:,} are free")
    return {os.path.basename(member.filename): member for member in chosen}
