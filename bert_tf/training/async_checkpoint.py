"""Asynchronous checkpointing: a background thread writes, so that training does not wait."""

import concurrent.futures
from collections.abc import Mapping
from typing import Any

from bert_tf import checkpoints


class AsyncSaver:
    """Writes checkpoints to a folder in a background thread, in order and one at a time.

    Taking a snapshot is free until the next update, when TensorFlow copies each value that the
    snapshot still references instead of overwriting it.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._executor = concurrent.futures.ThreadPoolExecutor(1, "checkpoints")
        self._pending: concurrent.futures.Future[str] | None = None

    def save(self, snapshot: Mapping[str, Any]) -> None:
        """Starts writing a checkpoint; raises a UserError if the previous one failed."""
        self.wait()
        self._pending = self._executor.submit(checkpoints.save_snapshot, self._folder, snapshot)

    def check(self) -> None:
        """Raises a UserError if a finished write failed; does not wait."""
        if self._pending and self._pending.done():
            self.wait()

    def wait(self) -> None:
        """Waits until the checkpoint is on disk; raises a UserError if writing fails."""
        pending, self._pending = self._pending, None
        if pending:
            pending.result()

    def close(self) -> None:
        """Waits for the write; ignores its error, so as not to hide one that ended training."""
        self._executor.shutdown()
