"""Serializes batches of `tf.train.Example`s.

TensorFlow encodes all records at once, because creating an object per record takes several times as
long. The bytes equal those of `tf.train.Example.SerializeToString(deterministic=True)`.
"""

from collections.abc import Mapping

import numpy as np

from bert_tf.backend import tf


def encode_examples(batch: Mapping[str, np.ndarray]) -> list[bytes]:
    """Serializes n records; `batch` maps each feature's name to integers or float32 [n, ...]."""
    entries = []
    for name in sorted(batch, key=str.encode):
        values = batch[name].reshape(len(batch[name]), int(np.prod(batch[name].shape[1:])))
        if values.dtype == np.float32:
            feature = _encode("Feature", float_list=_encode("FloatList", value=values))
        else:
            numbers = _encode("Int64List", value=values.astype(np.int64))
            feature = _encode("Feature", int64_list=numbers)
        keys = np.array([name.encode()] * len(values), object)
        entries.append(_encode("Features.FeatureEntry", key=keys, value=feature))
    features = _encode("Features", feature=np.stack(entries, axis=1))
    return _encode("Example", features=features).tolist()


def _encode(message: str, **fields: np.ndarray) -> np.ndarray:
    """Serializes n messages with the same fields: one value [n] or a list of values [n, length]."""
    columns = [values[:, None] if values.ndim == 1 else values for values in fields.values()]
    sizes = np.array([[column.shape[1] for column in columns]] * len(columns[0]), np.int32)
    encoded = tf.io.encode_proto(
        sizes.reshape(-1, len(columns)), columns, list(fields), f"tensorflow.{message}"
    )
    return encoded.numpy()
