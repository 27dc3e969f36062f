"""Unpacks BERT releases: a zip of a folder with bert_config.json, vocab.txt, bert_model.ckpt.*."""

import functools
import os
import re
import shutil
import zipfile
import zlib

from bert_tf.base import files
from bert_tf.base.errors import UserError, shortened
from bert_tf.checkpoints.run_folder import CONFIG, VOCAB
from bert_tf.checkpoints.tensors import temporary_folder

# Members to unpack. macOS adds metadata files `__MACOSX/...` and `._*`, which are excluded.
_MEMBER_NAME = re.compile(
    rf"(?!__MACOSX/)(.*/)?({re.escape(CONFIG)}|{re.escape(VOCAB)}|"
    r"(?!\._)[^/]*\.ckpt(-\d+)?\.(index|meta|data-\d{5}-of-\d{5}))"
)
# Weights hardly compress, so a higher ratio indicates a zip bomb, unless the content is small.
_MAX_COMPRESSION_RATIO = 20
_ALWAYS_ALLOWED_BYTES = 1 << 28


@functools.lru_cache
def unpack(path: str) -> str:
    """Unpacks checkpoint, configuration and vocabulary into a new folder, and returns its path.

    The folder is removed at exit. Members are written as regular files under their base names, so
    neither links nor paths such as `../vocab.txt` lead outside the folder.
    """
    try:
        with files.wrap_errors("unpack", path), zipfile.ZipFile(path) as archive:
            members = _select_members(path, archive)
            # Keep the name of the folder in the zip file, by which `releases` knows the model.
            folder_name = os.path.basename(os.path.dirname(next(iter(members.values())).filename))
            folder_name = folder_name or os.path.basename(path).removesuffix(".zip") or "model"
            folder = os.path.join(temporary_folder(), folder_name)
            files.make_dirs(folder)
            for name, member in members.items():
                target = files.open_atomically(os.path.join(folder, name))
                with archive.open(member) as source, target as file:
                    shutil.copyfileobj(source, file, 1 << 22)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise UserError(f"{path} is not a complete zip file ({error}); copy it again") from error
    except RuntimeError as error:  # encrypted, or an unknown compression
        problem = f"Cannot unpack {path} ({error})"
        raise UserError(f"{problem}: unpack it yourself and pass the folder") from error
    return folder


def _select_members(path: str, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Returns the archive members to unpack, by base name; raises a UserError for bad archives."""
    expected = [member for member in archive.infolist() if _MEMBER_NAME.fullmatch(member.filename)]
    paths = [os.path.split(member.filename) for member in expected]
    folders = {folder for folder, name in paths if ".ckpt" in name}
    if len(folders) > 1:
        names = ", ".join(sorted(folders))
        raise UserError(f"{path} contains several checkpoints, in {names}: unpack it and pass one")
    if not folders:
        content = shortened(archive.namelist(), 8) or "nothing"
        advice = "If there is a model in it, unpack it and pass the model's folder"
        problem = f"{path} contains no original BERT checkpoint. It contains: {content}"
        raise UserError(problem, fix=advice)
    selected = [member for member in expected if os.path.dirname(member.filename) in folders]
    size = sum(member.file_size for member in selected)
    packed_size = os.path.getsize(path)
    if size > max(_ALWAYS_ALLOWED_BYTES, _MAX_COMPRESSION_RATIO * packed_size):
        sizes = f"its {packed_size:,} bytes would unpack to {size:,}"
        advice = "If you trust it, unpack it yourself and pass the folder"
        raise UserError(f"Refusing to unpack {path}: {sizes}", fix=advice)
    return {os.path.basename(member.filename): member for member in selected}
