"""Finds evaluation rows that the model was trained on, by hashes of their input ids."""

import io
import os
from collections.abc import Sequence

import numpy as np

from bert_tf import files
from bert_tf.checkpoints.formats.source import BEST_FOLDER
from bert_tf.data import records
from bert_tf.data.feature_specs import Feature
from bert_tf.errors import UserError
from bert_tf.progress import log

HASHES = "train_inputs.npy"
_CHUNK_ROWS = 4096
_MULTIPLIER = 0x5851F42D4C957F2D  # odd, so that no bits of a product are lost
# Shares of the rows above which a message, or a warning, is logged. In CoNLL-2003, a well-known
# dataset with many short sentences, the share is 12%.
_NOTABLE, _HIGH = 0.01, 0.15


def hash_inputs(path: str, features: Sequence[Feature]) -> np.ndarray:
    """Returns a hash of each record's input ids, uint64 [records]; padding does not change it."""
    (input_ids,) = (feature for feature in features if feature.name == "input_ids")
    powers = np.cumprod(np.full(input_ids.shape, _MULTIPLIER, np.uint64))
    chunks = records.read_chunks(path, [input_ids], _CHUNK_ROWS)
    rows = (chunk["input_ids"].astype(np.uint64) for chunk in chunks)
    return np.concatenate([ids.reshape(len(ids), -1) @ powers for ids in rows])


def read_hashes(folder: str) -> np.ndarray:
    """Returns the hashes that a training run saved in a folder; empty if there are none."""
    if os.path.basename(folder) == BEST_FOLDER:
        folder = os.path.dirname(folder)
    path = os.path.join(folder, HASHES)
    try:
        with files.open_binary(path) as file:
            return np.load(io.BytesIO(file.read()))
    except (UserError, ValueError, EOFError):
        return np.zeros(0, np.uint64)


def write_hashes(folder: str, hashes: np.ndarray) -> None:
    """Saves hashes for later runs that start from the model in the folder, or evaluate it."""
    content = io.BytesIO()
    np.save(content, hashes)
    files.write_bytes(os.path.join(folder, HASHES), content.getvalue())


def report_shared_rows(eval_hashes: np.ndarray, train_hashes: np.ndarray) -> None:
    """Logs how many evaluation rows are training rows; warns if these are many."""
    num_rows, num_shared = len(eval_hashes), int(np.isin(eval_hashes, train_hashes).sum())
    if num_shared > _NOTABLE * num_rows:
        share = num_shared / num_rows
        message = "%d of %d evaluation rows (%.1f%%) were also used to train the model"
        log_message = log.warning if share > _HIGH else log.info
        log_message(f"{message}: the metrics are too high", num_shared, num_rows, 100 * share)
