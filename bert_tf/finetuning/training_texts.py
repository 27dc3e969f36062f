"""Finds evaluation examples that the model was trained on, by hashes of their texts."""

import hashlib
import io
import os
import re
from collections.abc import Iterable

import numpy as np

from bert_tf import files
from bert_tf.checkpoints.formats.source import BEST_FOLDER
from bert_tf.errors import UserError
from bert_tf.progress import log

HASHES = "train_texts.npy"
_WORD = re.compile(r"\w+")
# Shares of the examples above which a message, or a warning, is logged. In CoNLL-2003, a well-known
# dataset with many short sentences, the share is 12%.
_NOTABLE, _HIGH = 0.01, 0.15


def hash_texts(texts: Iterable[Iterable[str]]) -> np.ndarray:
    """Returns a hash of the texts of each example, uint64 [examples].

    It does not depend on case, white space and punctuation.
    """
    words = (((_WORD.findall(text.casefold()) or [text]) for text in item) for item in texts)
    normalized = ("\0".join(map(" ".join, item)) for item in words)
    encoded = (text.encode("utf-8", "surrogatepass") for text in normalized)
    digests = (hashlib.blake2b(item, digest_size=8).digest() for item in encoded)
    return np.frombuffer(b"".join(digests), "<u8")


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


def report_shared_examples(
    eval_hashes: np.ndarray, train_hashes: np.ndarray, trained: str = "the model"
) -> None:
    """Logs how many evaluation examples are training examples; warns if these are many."""
    count, num_shared = len(eval_hashes), int(np.isin(eval_hashes, train_hashes).sum())
    if num_shared > _NOTABLE * count:
        message = f"%d of %d evaluation examples (%.1f%%) were also used to train {trained}"
        log_message = log.warning if num_shared > _HIGH * count else log.info
        share = 100 * num_shared / count
        log_message(f"{message}: the metrics are too high", num_shared, count, share)
