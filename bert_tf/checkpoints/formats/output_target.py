"""The output of a conversion: finds its format, and writes it so that no partial output remains."""

import contextlib
import os
import pathlib
import re
from collections.abc import Iterator

from bert_tf import files, locks
from bert_tf.checkpoints.formats.keras_files import MODEL_EXTENSION, WEIGHTS_EXTENSION
from bert_tf.errors import UserError

# Checkpoint prefix in an output folder.
_PREFIX = "bert_model.ckpt"
_PREFIX_PATTERN = re.compile(r"\.ckpt(-\d+)?$")
_EXTENSIONS = {"keras": MODEL_EXTENSION, "weights_h5": WEIGHTS_EXTENSION}


class OutputTarget:
    """Output path of a conversion: a prefix `*.ckpt` or `*.ckpt-N`, a Keras file, or a folder.

    Attributes:
        output: the path, without trailing slashes and links.
        format: `original`, `hugging_face`, `keras` or `weights_h5`: the argument `to`, or if that
            is "auto", inferred from the path.
        is_folder: whether the output is a folder.
        name: name of the file or checkpoint within its folder.
    """

    def __init__(self, output: str, to: str) -> None:
        self.output = output.rstrip("/") or output
        if os.path.islink(self.output):
            self.output = files.resolve(self.output)
        implied = _format_by_extension(self.output)
        if implied is None and to == "auto":
            problem = f"--output={output} does not determine the format"
            raise UserError(f"{problem}: pass --to, or a path ending in .ckpt, .keras, .weights.h5")
        if to not in (implied, "auto") and (implied or to in _EXTENSIONS):
            extension = _EXTENSIONS.get(to)
            kind = f"a name ending in {extension}" if extension else "a folder or x.ckpt"
            raise UserError(f"--to={to} requires {kind}; got --output={output}")
        self.format: str = (implied or "") if to == "auto" else to
        self.is_folder = implied is None
        self.name = _PREFIX if self.is_folder else os.path.basename(self.output)

    def require_free(self) -> None:
        """Raises a UserError if the output exists or cannot be written."""
        if files.is_remote(self.output):
            raise UserError(f"--output={self.output}: only local files can be written")
        parent = os.path.dirname(self.output)
        while parent and not files.exists(parent):
            parent = os.path.dirname(parent)
        if parent and not files.is_dir(parent):
            raise UserError(f"--output={self.output}: {parent} is a file, not a folder")
        existing = files.list_dir(self.output) if self.is_folder else []
        if existing:
            problem = f"already contains files ({', '.join(existing[:8])})"
            raise UserError(f"--output={self.output} {problem}: pass the name of a new folder")
        for path in (self.output, f"{self.output}.index"):
            if files.exists(path) and not (self.is_folder and files.is_dir(path)):
                raise UserError(f"{path} already exists: pass a different --output")

    @contextlib.contextmanager
    def stage(self) -> Iterator[str]:
        """Yields a temporary folder, and moves its content to the output on success."""
        parent, base = os.path.split(self.output)
        with (
            locks.exclusive(locks.lock_path(self.output), f"--output={self.output}"),
            # The name is fixed, so that the next conversion deletes what a killed one left behind.
            files.temporary_folder_at(os.path.join(parent, f".{base}.tmp")) as folder,
        ):
            yield folder
            self._move(folder, parent)

    def _move(self, folder: str, parent: str) -> None:
        names = files.list_dir(folder)
        destination = self.output if self.is_folder else parent
        with files.wrap_errors("write", self.output):
            if not self.is_folder:
                names = [name for name in names if not _is_same(folder, parent, name)]
            elif not files.exists(destination):
                os.rename(folder, destination)
                names = []
            # Move the index last: without an index, the moved files do not count as a checkpoint.
            for name in sorted(names, key=lambda name: name.endswith(".index")):
                os.replace(os.path.join(folder, name), os.path.join(destination, name))
            files.sync(destination or ".")


def _is_same(folder: str, parent: str, name: str) -> bool:
    """Returns whether `parent` already has this file; raises a UserError if its content differs."""
    old, new = pathlib.Path(parent, name), pathlib.Path(folder, name)
    if not old.exists():
        return False
    if old.read_bytes().rstrip() != new.read_bytes().rstrip():
        raise UserError(f"{old} already exists, with different content: pass a different --output")
    return True


def _format_by_extension(output: str) -> str | None:
    if _PREFIX_PATTERN.search(output):
        return "original"
    return next((name for name, end in _EXTENSIONS.items() if output.endswith(end)), None)
