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
            "Out of device memory. These need less, with the same result: "
            "--gradient_accumulation_steps=2 (or 4, 8, ...), --recompute_layers=true; with almost "
            "the same: --precision=bfloat16; for short texts: a lower --max_seq_length. In "
            "evaluation, prediction and extraction: a lower --eval_batch_size, "
            f"--predict_batch_size or --batch_size. (TensorFlow says: {wanted})"
        ) from error
    except tf.errors.NotFoundError as error:
        reason = " ".join(error.message.split())[:160]
        raise UserError(
            "A file has been removed during the run; the same command resumes from the last "
            f"checkpoint. (TensorFlow says: {reason})"
        ) from error
    except tf.errors.DataLossError as error:
        raise UserError(
            f"A record file is damaged: create it again. (TensorFlow says: {error.message})"
        ) from error
    except _LOST as error:
        if workers == 1:
            raise
        # TensorFlow appends a traceback.
        reason = " ".join(error.message.split()).partition(" defined at ")[0][:200]
        raise WorkerLost(
            "Another worker is gone, so this one ends too. Start all workers again with the same "
            f"command: they resume from the last checkpoint. (TensorFlow says: {reason})"
        ) from error
