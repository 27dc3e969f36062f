"""Finds evaluation examples that the model was trained on, by hashes of their texts."""

import hashlib
import re
from collections.abc import Iterable

import numpy as np

from bert_tf.progress import log

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
