"""Explains TensorFlow's errors to users."""

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from bert_tf.errors import UserError, WorkerLost

# TensorFlow's errors when a worker does not respond.
_LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.InternalError,
)
_ANOTHER_IS_GONE = (
    "Another worker is gone, so this one ends too. Start all workers again with the same "
    "command: they resume from the last checkpoint"
)
_EXPLANATIONS = {
    tf.errors.ResourceExhaustedError: "Out of device memory. These need less, with the same "
    "result: --gradient_accumulation_steps=2 (or 4, 8, ...), --recompute_layers=true; with almost "
    "the same: --precision=bfloat16; for short texts: a lower --max_seq_length. Without training: "
    "a lower --eval_batch_size, --predict_batch_size or --batch_size",
    tf.errors.NotFoundError: "A file has been removed during the run; the same command resumes "
    "from the last checkpoint",
    tf.errors.DataLossError: "A record file is damaged: create it again",
}


@contextlib.contextmanager
def explained_errors(workers: int = 1) -> Iterator[None]:
    """Turns TensorFlow's errors about memory, files and lost workers into `UserError`s."""
    try:
        yield
    except tf.errors.OpError as error:
        no_memory = isinstance(error, tf.errors.ResourceExhaustedError)
        message = error.message.split("\n")[0] if no_memory else error.message
        # TensorFlow appends a traceback.
        reason = " ".join(message.split()).partition(" defined at ")[0][:200]
        if no_memory and "No space left" in reason:
            raise UserError(f"The disk is full: {reason}") from error
        for kind, text in _EXPLANATIONS.items():
            if isinstance(error, kind):
                raise UserError(f"{text}. (TensorFlow says: {reason})") from error
        if isinstance(error, _LOST) and workers > 1:
            raise WorkerLost(f"{_ANOTHER_IS_GONE}. (TensorFlow says: {reason})") from error
        raise
