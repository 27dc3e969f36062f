"""The output of a conversion: its format, and writing it without ever leaving half of it."""

import contextlib
import os
import pathlib
import re
from collections.abc import Iterator

from bert_tf import files, locks
from bert_tf.checkpoints.formats.keras_files import WEIGHTS, WHOLE
from bert_tf.errors import UserError

_PREFIX = "bert_model.ckpt"
_PREFIX_ENDING = re.compile(r"\.ckpt(-\d+)?$")
_FILE_ENDINGS = {"keras": WHOLE, "weights_h5": WEIGHTS}


class OutputTarget:
    """Where a model is written: a prefix `*.ckpt` or `*.ckpt-N`, a Keras file, or else a folder.

    Attributes:
        format: `original`, `hugging_face`, `keras` or `weights_h5`: `to`, otherwise by the ending.
        is_folder: whether the output is a folder of its own.
        name: name of the checkpoint or file in the folder that it is written to.
    """

    def __init__(self, output: str, to: str | None) -> None:
        self.output = output.rstrip("/") or output
        if os.path.islink(self.output):
            self.output = files.resolved(self.output)
        by_ending = _format_by_ending(self.output)
        if by_ending is None and to is None:
            problem = f"--output={output} does not say which format to write"
            raise UserError(f"{problem}: pass --to, or end it in .ckpt, .keras or .weights.h5")
        if by_ending != to and to is not None and (by_ending or to in _FILE_ENDINGS):
            needed = _FILE_ENDINGS.get(to)
            kind = f"its name has to end in {needed}" if needed else "that has to be a folder"
            raise UserError(f"--to={to} does not fit --output={output}: {kind}")
        self.format: str = to or by_ending or ""
        self.is_folder = by_ending is None
        self.name = _PREFIX if self.is_folder else os.path.basename(self.output)

    def require_free(self) -> None:
        """Refuses to overwrite anything, and paths that cannot be written."""
        if files.is_remote(self.output):
            raise UserError(f"--output={self.output}: only local files can be written")
        parent = os.path.dirname(self.output)
        while parent and not files.exists(parent):
            parent = os.path.dirname(parent)
        if parent and not files.is_dir(parent):
            raise UserError(f"--output={self.output}: {parent} is a file, not a folder")
        taken = files.list_dir(self.output) if self.is_folder else []
        if taken:
            shown = f"already contains files ({', '.join(taken[:8])})"
            raise UserError(f"--output={self.output} {shown}: pass the name of a new folder")
        for path in (self.output, f"{self.output}.index"):
            if files.exists(path) and not (self.is_folder and files.is_dir(path)):
                raise UserError(f"{path} already exists: pass another --output")

    @contextlib.contextmanager
    def staged(self) -> Iterator[str]:
        """Yields a temporary folder; at the end its content is moved to the output."""
        parent, base = os.path.split(self.output)
        with (
            locks.exclusive(locks.lock_path(self.output), f"--output={self.output}"),
            # The same name each time, so that a killed conversion leaves nothing for good.
            files.temporary_folder_at(os.path.join(parent, f".{base}.tmp")) as folder,
        ):
            yield folder
            self._move(folder, parent)

    def _move(self, folder: str, parent: str) -> None:
        names = files.list_dir(folder)
        destination = self.output if self.is_folder else parent
        with files.explained("write", self.output):
            if not self.is_folder:
                names = [name for name in names if not _is_same(folder, parent, name)]
            elif not files.exists(destination):
                os.rename(folder, destination)
                names = []
            # The index goes last: without it there is no checkpoint.
            for name in sorted(names, key=lambda name: name.endswith(".index")):
                os.replace(os.path.join(folder, name), os.path.join(destination, name))
            files.sync(destination or ".")


def _is_same(folder: str, parent: str, name: str) -> bool:
    """Whether `parent` already has this file; another of the same name is an error."""
    old, new = pathlib.Path(parent, name), pathlib.Path(folder, name)
    if not old.exists():
        return False
    if old.read_bytes().rstrip() != new.read_bytes().rstrip():
        raise UserError(f"{old} already exists and is not this model's: pass another --output")
    return True


def _format_by_ending(output: str) -> str | None:
    if _PREFIX_ENDING.search(output):
        return "original"
    return next((name for name, end in _FILE_ENDINGS.items() if output.endswith(end)), None)
