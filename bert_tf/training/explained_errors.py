"""Explains TensorFlow's errors to users."""

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from bert_tf.errors import UserError, WorkerLost

# TensorFlow's errors for a worker that does not answer.
_LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.InternalError,
)


@contextlib.contextmanager
def explained_errors(workers: int = 1) -> Iterator[None]:
    """Turns TensorFlow's errors about memory, files and lost workers into `UserError`s."""
    try:
        yield
    except tf.errors.ResourceExhaustedError as error:
        wanted = error.message.split("\n")[0][:160]
        if "No space left" in wanted:
            raise UserError(f"The disk is full: {wanted}") from error
        raise UserError(
            "The memory of the device does not suffice. What helps, without changing the result: "
            "--gradient_accumulation_steps=2 (or 4, 8, ...), --recompute_layers=true; almost "
            "without: --precision=bfloat16; and for short texts a lower --max_seq_length. In "
            "evaluation, prediction and extraction: a lower --eval_batch_size, "
            "--predict_batch_size or --batch_size. "
            f"(TensorFlow says: {wanted})"
        ) from error
    except tf.errors.NotFoundError as error:
        reason = " ".join(error.message.split())[:160]
        raise UserError(
            "A file has been removed that was there when the work began; the same command goes on "
            f"from the last checkpoint. (TensorFlow says: {reason})"
        ) from error
    except tf.errors.DataLossError as error:
        raise UserError(
            f"A file of records is damaged: make it anew. (TensorFlow says: {error.message})"
        ) from error
    except _LOST as error:
        if workers == 1:
            raise
        # TensorFlow appends a traceback.
        reason = " ".join(error.message.split()).partition(" defined at ")[0][:200]
        raise WorkerLost(
            "Another worker is gone, so this one ends too. Start all workers again with the same "
            f"command: they go on from the last checkpoint. (TensorFlow says: {reason})"
        ) from error
