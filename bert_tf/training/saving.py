"""Checkpoints written beside the training, by a thread: the next steps do not wait for the disk."""

import concurrent.futures

from bert_tf import checkpoint
from bert_tf.errors import UserError
from bert_tf.progress import log


class BackgroundSaver:
    """Writes checkpoints in their order, one at a time.

    Args:
        folder: the training's.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "checkpoints")
        self._writing: concurrent.futures.Future[str] | None = None

    def save(self, snapshot: checkpoint.Snapshot) -> None:
        """Begins to write; the one before is finished first.

        Raises:
            UserError: neither the one before nor this one could be written.
        """
        earlier = self._finish()
        self._writing = self._thread.submit(checkpoint.save_snapshot, self._folder, snapshot)
        if earlier:
            # There may be space again.
            self.wait()
            log.warning("%s", earlier)

    def check(self) -> None:
        """Says at once that what was begun has failed; waits for nothing.

        Raises:
            UserError: it could not be written.
        """
        if self._writing and self._writing.done():
            self.wait()

    def wait(self) -> None:
        """Returns when what was begun is on the disk.

        Raises:
            UserError: it could not be written.
        """
        error = self._finish()
        if error:
            raise error

    def close(self) -> None:
        """Finishes what was begun; an error that ends the training is not hidden by another one."""
        self._finish()
        self._thread.shutdown()

    def _finish(self) -> UserError | None:
        writing, self._writing = self._writing, None
        try:
            if writing:
                writing.result()
        except UserError as error:
            return error
        return None
