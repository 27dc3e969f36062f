"""Writes checkpoints in a thread, so that training does not wait for the disk."""

import concurrent.futures

from bert_tf import checkpoints
from bert_tf.progress import log


class AsyncSaver:
    """Writes checkpoints to a folder in order, one at a time.

    A snapshot costs nothing until the next update: TensorFlow copies a value that is still in use
    when it changes the variable.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "checkpoints")
        self._writing: concurrent.futures.Future[str] | None = None

    def save(self, snapshot: checkpoints.Snapshot) -> None:
        """Starts to write a checkpoint; raises a UserError if this and the last one failed."""
        earlier = self._finish()
        self._writing = self._thread.submit(checkpoints.save_snapshot, self._folder, snapshot)
        if earlier:
            # The disk may have space again.
            self.wait()
            log.warning("%s", earlier)

    def check(self) -> None:
        """Raises the UserError of a failure, without waiting."""
        if self._writing and self._writing.done():
            self.wait()

    def wait(self) -> None:
        """Waits until the checkpoint is on disk, or raises a UserError."""
        if error := self._finish():
            raise error

    def close(self) -> None:
        """Finishes writing; a failure does not hide the error that ends the training."""
        self._finish()
        self._thread.shutdown()

    def _finish(self) -> BaseException | None:
        writing, self._writing = self._writing, None
        return writing.exception() if writing else None
