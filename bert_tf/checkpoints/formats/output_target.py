"""Where a converted model goes: which format by which ending, and nothing half-written."""

import contextlib
import os
import re
from collections.abc import Iterator

from bert_tf import files, locks
from bert_tf.checkpoints.formats.keras_files import WEIGHTS, WHOLE
from bert_tf.errors import UserError

FORMATS = ("original", "hugging_face", "keras", "weights_h5")

_PREFIX = "bert_model.ckpt"
_PREFIX_ENDING = re.compile(r"\.ckpt(-\d+)?$")
_FILE_ENDINGS = {"keras": WHOLE, "weights_h5": WEIGHTS}


class Target:
    """A temporary folder to write into.

    Attributes:
        folder: it.
        path: prefix or file to write; of a folder of transformers nothing.
    """

    def __init__(self, folder: str, name: str) -> None:
        self.folder = folder
        self.path = os.path.join(folder, name)

    def write_beside(self, name: str, content: bytes) -> None:
        """Writes a file that belongs to the model."""
        files.write_bytes(os.path.join(self.folder, name), content)


class Place:
    """A place to write a model to.

    Args:
        output: prefix that ends in `.ckpt` or `.ckpt-N`, file, or else a folder.
        to: one of `FORMATS`; None where the ending says it.

    Attributes:
        format: one of `FORMATS`.
        is_folder: whether the output is a folder of its own.

    Raises:
        UserError: there is no ending that says it, or it says something else.
    """

    def __init__(self, output: str, to: str | None) -> None:
        self.output = output.rstrip("/") or output
        if os.path.islink(self.output):
            self.output = files.resolved(self.output)
        by_ending = _by_ending(self.output)
        if by_ending is None and to is None:
            raise UserError(
                f"--output={output} does not say which format to write: pass --to=original or "
                "--to=hugging_face for a folder, or an ending, .ckpt, .keras or .weights.h5"
            )
        if by_ending != to and to is not None and (by_ending or to in _FILE_ENDINGS):
            needed = _FILE_ENDINGS.get(to)
            raise UserError(
                f"--to={to} does not fit --output={output}: "
                + (f"its name has to end in {needed}" if needed else "that has to be a folder")
            )
        self.format: str = to or by_ending or ""
        self.is_folder = by_ending is None
        self._name = _PREFIX if self.is_folder else os.path.basename(self.output)

    def check(self) -> None:
        """Looks whether the place is free.

        Raises:
            UserError: it is not, or a file stands where a folder has to be.
        """
        if files.is_remote(self.output):
            raise UserError(f"--output={self.output}: write to this machine, and copy it then")
        parent = os.path.dirname(self.output)
        while parent and not files.exists(parent):
            parent = os.path.dirname(parent)
        if parent and not files.is_dir(parent):
            raise UserError(f"--output={self.output}: {parent} is a file, and no folder")
        taken = files.list_dir(self.output) if self.is_folder else []
        if taken:
            raise UserError(
                f"--output={self.output} has files already ({', '.join(taken[:8])}): pass the name "
                "of a new folder"
            )
        if files.exists(self.output) and not (self.is_folder and files.is_dir(self.output)):
            raise UserError(f"--output={self.output} is there already: pass another name")
        if files.exists(f"{self.output}.index"):
            raise UserError(f"There is a checkpoint {self.output} already: pass another name")

    @contextlib.contextmanager
    def staged(self) -> Iterator[Target]:
        """Gives a folder to write into; at the end what is in it takes its place.

        Raises:
            UserError: it cannot be written, or another file has the name of one of it.
        """
        parent, base = os.path.split(self.output)
        # Always the same: what a killed conversion left is removed, and does not pile up.
        folder = os.path.join(parent, f".{base}.tmp")
        with locks.exclusive(locks.beside(self.output), f"--output={self.output}"):
            files.remove_tree(folder)
            files.make_dirs(folder)
            try:
                yield Target(folder, self._name)
                self._put_in_place(folder, parent)
            finally:
                files.remove_tree(folder)

    def _put_in_place(self, folder: str, parent: str) -> None:
        written = files.list_dir(folder)
        if not self.is_folder:
            written = [name for name in written if not self._is_same(folder, parent, name)]
        destination = self.output if self.is_folder else parent
        try:
            if self.is_folder and not files.exists(destination):
                os.rename(folder, destination)
                written = []
            # The index is the last: without it there is no checkpoint.
            for name in sorted(written, key=lambda name: name.endswith(".index")):
                os.replace(os.path.join(folder, name), os.path.join(destination, name))
            files.sync(destination or ".")
        except OSError as error:
            raise UserError(f"Cannot write {self.output}: {error.strerror or error}") from error

    def _is_same(self, folder: str, parent: str, name: str) -> bool:
        """Whether a file is there already as it is to be.

        Raises:
            UserError: it is there, and another one.
        """
        there = os.path.join(parent, name)
        if not files.exists(there):
            return False
        with (
            files.open_binary(there) as old,
            files.open_binary(os.path.join(folder, name)) as new,
        ):
            if old.read().rstrip() == new.read().rstrip():
                return True
        raise UserError(
            f"{there} is there already, and does not belong to this model: pass another folder in "
            "--output"
        )


def _by_ending(output: str) -> str | None:
    if _PREFIX_ENDING.search(output):
        return "original"
    for name, ending in _FILE_ENDINGS.items():
        if output.endswith(ending):
            return name
    return None
