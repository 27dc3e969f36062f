"""Pre-training records: their features, and the metadata stored next to them.

Shapes: n instances, S max_seq_length, P max_predictions_per_seq.
"""

import contextlib
import functools
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.base import files, locks
from bert_tf.base.errors import UserError, counted, note, warn
from bert_tf.checkpoints.run_folder import VOCABULARY
from bert_tf.config import BertConfig
from bert_tf.data.features import Feature, sequence_features
from bert_tf.data.parallel import map_in_order
from bert_tf.options.declare import MODEL
from bert_tf.tasks.pretraining.instances import Instance
from bert_tf.tasks.pretraining.options import PretrainingDataOptions, PretrainingOptions
from bert_tf.tokenization import load_vocab, vocab_digest

_BATCH_SIZE = 1024
# BERT was trained for about 40 epochs. With more, a model memorizes the records and their masks.
_MANY_EPOCHS = 40
# Feature -> the flag that determines its length.
_LENGTH_FLAGS = {"input_ids": "max_seq_length", "masked_lm_positions": "max_predictions_per_seq"}


def record_features(options: PretrainingDataOptions | PretrainingOptions) -> tuple[Feature, ...]:
    """Returns the names, lengths and types of the features of a record."""
    max_predictions = options.max_predictions_per_seq
    return (
        *sequence_features(options.max_seq_length),
        Feature("masked_lm_positions", max_predictions),
        Feature("masked_lm_ids", max_predictions),
        Feature("masked_lm_weights", max_predictions, "float32"),
        Feature("next_sentence_labels", 1),
    )


def record_batches(
    instances: Iterable[Instance], options: PretrainingDataOptions, use_threads: bool = False
) -> Iterator[dict[str, np.ndarray]]:
    """Yields the features of the instances in batches of at most `_BATCH_SIZE`."""
    iterator = iter(instances)
    batches = iter(lambda: list(itertools.islice(iterator, _BATCH_SIZE)), [])
    convert = functools.partial(_to_arrays, options=options)
    return map_in_order(convert, batches) if use_threads else map(convert, batches)


def _to_arrays(
    instances: Sequence[Instance], options: PretrainingDataOptions
) -> dict[str, np.ndarray]:
    """Returns token features [n, S], masked-LM features [n, P], and next sentence labels [n, 1]."""
    max_length, max_predictions = options.max_seq_length, options.max_predictions_per_seq
    input_ids, input_mask = _pad([instance.input_ids for instance in instances], max_length)
    positions, weights = _pad([instance.positions for instance in instances], max_predictions)
    labels, _ = _pad([instance.labels for instance in instances], max_predictions)
    first_lengths = np.array([instance.first_length for instance in instances], np.int32)
    is_second = np.arange(max_length) >= first_lengths[:, None]  # [n, S]
    is_random_next = np.array([instance.is_random_next for instance in instances], np.int32)
    return {
        "input_ids": input_ids,
        "input_mask": input_mask.astype(np.int32),
        "segment_ids": (input_mask & is_second).astype(np.int32),
        "masked_lm_positions": positions,
        "masked_lm_ids": labels,
        "masked_lm_weights": weights.astype(np.float32),
        "next_sentence_labels": is_random_next[:, None],
    }


def _pad(rows: list[list[int]], length: int) -> tuple[np.ndarray, np.ndarray]:
    """Pads rows with zeros to int32 [n, length]; also returns a mask, which is False at padding."""
    lengths = np.array([len(row) for row in rows], np.int64)
    mask = np.arange(length) < lengths[:, None]
    padded = np.zeros(mask.shape, np.int32)
    values = itertools.chain.from_iterable(rows)
    padded[mask] = np.fromiter(values, np.int32, int(lengths.sum()))
    return padded, mask


@contextlib.contextmanager
def describe_outputs(options: PretrainingDataOptions, vocab: Mapping[str, int]) -> Iterator[None]:
    """Locks the record files while they are written, then writes `<output>.json` next to each.

    The locks prevent other runs from writing the same files. Outputs that are pipes or devices have
    neither a lock nor a description.
    """
    outputs = [output for output in options.outputs if not files.is_stream(output)]
    description = {
        **options.values(MODEL),
        "vocab_size": max(vocab.values()) + 1,
        # Without the special tokens of `--special_tokens`: they do not make it another vocabulary.
        VOCABULARY: vocab_digest(load_vocab(options.vocab_file or "")),
    }
    with contextlib.ExitStack() as stack:
        # Runs must take the same locks in the same order, to prevent a deadlock.
        for lock in sorted(map(locks.lock_path, outputs)):
            stack.enter_context(locks.exclusive(lock))
        # If this run fails, no description of the old records may remain.
        for path in {*outputs, *map(files.resolve, outputs)}:
            files.remove(f"{path}.json")
        yield
        for output in outputs:
            text = json.dumps({**description, "bytes": files.size(output)}, indent=1)
            files.write_text(f"{output}.json", f"{text}\n")


def check_records(
    paths: Sequence[str],
    options: PretrainingOptions,
    config: BertConfig,
    vocabularies: Mapping[str, str],
) -> str | None:
    """Checks that the descriptions and first records match the flags and the model.

    `vocabularies` maps the `vocab_digest` of the model that training starts from, if known, to the
    flag that names the model. Returns the digest of the records' vocabulary; None if unknown.

    Raises:
        UserError: they do not match, or a file is empty or does not contain pre-training records.
    """
    # Digest of each vocabulary -> where it comes from.
    sources: dict[str | None, str] = {**vocabularies}
    for path in paths:
        first = _read_first_record(path)
        # The original BERT code writes no description.
        description = files.read_json(f"{path}.json") if files.exists(f"{path}.json") else {}
        lengths = {flag: len(first[feature]) for feature, flag in _LENGTH_FLAGS.items()}
        if (size := files.size(path)) != (whole := description.get("bytes", size)):
            raise UserError(f"incomplete: {size} of {whole} bytes", at=path)
        for flag, length in lengths.items():
            if length != (wanted := getattr(options, flag)):
                raise UserError(f"made with --{flag}={length}, not {wanted}", at=path)
        min_size = max([description.get("vocab_size", 0), *(i + 1 for i in first["input_ids"])])
        if min_size > config.vocab_size:
            problem = f"made with {min_size} or more vocabulary entries, not {config.vocab_size}"
            raise UserError(problem, at=path)
        sources.setdefault(description.get(VOCABULARY), path)
    unknown = sources.pop(None, None)
    if len(sources) > 1:
        first, second, *_ = sources.values()
        raise UserError(f"{first} and {second} use different vocabularies")
    if options.init_checkpoint and (unknown or not vocabularies):
        source = f"{unknown} has no {unknown}.json" if unknown else "the model has no vocab.txt"
        note(f"Cannot compare the vocabularies of the records and the model: {source}")
    return None if unknown else next(iter(sources), None)


def log_epochs(paths: Sequence[str], options: PretrainingOptions) -> None:
    """Logs how often training reads the records, whose number is estimated from the first ones."""
    records = tf.data.TFRecordDataset(paths).take(_BATCH_SIZE).as_numpy_iterator()
    sizes = [len(record) + 16 for record in records]  # with length and checksums
    count = round(sum(map(files.size, paths)) * len(sizes) / sum(sizes))
    epochs = options.num_train_steps * options.train_batch_size / count
    tell = warn if epochs > _MANY_EPOCHS else note
    tell(f"--input_file has about {counted(count, 'record')}, read {epochs:.1f} times each")


def _read_first_record(path: str) -> dict[str, Sequence[int]]:
    files.open_binary(path).close()  # Refuses pipes, on which TensorFlow would block.
    try:
        first = next(tf.data.TFRecordDataset(path).take(1).as_numpy_iterator(), b"")
        features = tf.train.Example.FromString(first).features.feature
        # A dict raises a KeyError for a missing feature; the map would return an empty one.
        return {name: dict(features)[name].int64_list.value for name in _LENGTH_FLAGS}
    except Exception as error:  # of TensorFlow or of protobuf
        raise UserError("damaged, or no TFRecord file of pre-training data", at=path) from error
