"""Translates TensorFlow's errors into messages for users."""

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from bert_tf.base.errors import UserError, WorkerLost, reason
from bert_tf.training.memory import SAVE_MEMORY

# The errors that TensorFlow raises when a worker does not respond.
_WORKER_LOST_ERRORS = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.InternalError,
)
_WORKER_LOST = (
    "Another worker was lost, so this one stops. Start all workers again with the same command to "
    "resume from the last checkpoint"
)
_EXPLANATIONS = {
    tf.errors.ResourceExhaustedError: f"Out of device memory. To save memory in training, "
    f"{SAVE_MEMORY}. For evaluation and prediction, lower --eval_batch_size, --predict_batch_size "
    "or --batch_size",
    tf.errors.NotFoundError: "A file was removed during the run. Run the same command again to "
    "resume from the last checkpoint",
    tf.errors.DataLossError: "A record file is corrupted; create it again",
}


@contextlib.contextmanager
def explained_errors(workers: int = 1) -> Iterator[None]:
    """Converts TensorFlow's errors about memory, files and lost workers to `UserError`s."""
    try:
        yield
    except tf.errors.OpError as error:
        cause = reason(error)
        if isinstance(error, tf.errors.ResourceExhaustedError) and "No space left" in cause:
            raise UserError(f"The disk is full: {cause}") from error
        for error_type, explanation in _EXPLANATIONS.items():
            if isinstance(error, error_type):
                raise UserError(f"{explanation}. (TensorFlow says: {cause})") from error
        if isinstance(error, _WORKER_LOST_ERRORS) and workers > 1:
            raise WorkerLost(f"{_WORKER_LOST}. (TensorFlow says: {cause})") from error
        raise
