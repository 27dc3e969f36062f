"""Checkpoints written beside the training, by a thread: the next steps do not wait for the disk."""

import concurrent.futures
import contextlib
from collections.abc import Callable

from bert_tf import checkpoint


class BackgroundSaver:
    """Writes checkpoints in their order, one at a time.

    Args:
        folder: the training's.
        on_written: called in the thread of the training, some time after one was written.
    """

    def __init__(self, folder: str, on_written: Callable[[], None]) -> None:
        self._folder = folder
        self._on_written = on_written
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "checkpoints")
        self._writing: concurrent.futures.Future[str] | None = None

    def save(self, snapshot: checkpoint.Snapshot) -> None:
        """Begins to write; the one before is finished first.

        Raises:
            UserError: the one before could not be written.
        """
        self.wait()
        self._writing = self._thread.submit(checkpoint.save_snapshot, self._folder, snapshot)

    def wait(self) -> None:
        """Returns when what was begun is on the disk.

        Raises:
            UserError: it could not be written.
        """
        writing, self._writing = self._writing, None
        if writing:
            writing.result()
            self._on_written()

    def close(self) -> None:
        """Finishes what was begun. An error that ends the training is not hidden by another one."""
        with contextlib.suppress(Exception):
            self.wait()
        self._thread.shutdown()
