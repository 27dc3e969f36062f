"""Metadata of pre-training records, stored next to them and checked before training."""

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_tf import files, locks
from bert_tf.config import BertConfig
from bert_tf.declare import MODEL
from bert_tf.errors import UserError
from bert_tf.finetuning.run_metadata import VOCABULARY
from bert_tf.progress import log
from bert_tf.tasks.pretraining.options import PretrainingDataOptions, PretrainingOptions
from bert_tf.tokenization import vocab_digest

_MISMATCH = "does not match the records: rebuild them, or delete this file"
_ADVICE = "pass records from create_pretraining_data.py"
# Feature -> the flag that determines its length.
_LENGTH_FLAGS = {"input_ids": "max_seq_length", "masked_lm_positions": "max_predictions_per_seq"}


@contextlib.contextmanager
def describe_outputs(options: PretrainingDataOptions, vocab: Mapping[str, int]) -> Iterator[None]:
    """Locks the record files while they are written, then writes `<output>.json` next to each.

    The lock keeps other runs from writing descriptions of the same files. Outputs that are pipes or
    devices have neither a lock nor a description.
    """
    outputs = [output for output in options.outputs if not files.is_stream(output)]
    description = {
        **options.values(MODEL),
        "vocab_size": max(vocab.values()) + 1,
        VOCABULARY: vocab_digest(vocab),
    }
    with contextlib.ExitStack() as stack:
        # Two runs that take the same locks must do so in the same order, to prevent a deadlock.
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
    paths: Sequence[str], options: PretrainingOptions, config: BertConfig, vocabulary: str | None
) -> str | None:
    """Checks that the descriptions and first records match the flags and the model.

    `vocabulary` is the `vocab_digest` of the model that training starts from; None if unknown.
    Returns that of the records; None if unknown.

    Raises:
        UserError: they do not match, or a file is empty or does not contain pre-training records.
    """
    # Digest of each vocabulary -> where it comes from.
    start = f"--init_checkpoint={options.init_checkpoint}"
    sources: dict[str | None, str] = {vocabulary: start} if vocabulary else {}
    for path in paths:
        first = _read_first_record(path)
        description = _read_description(path)
        lengths = {flag: len(first[feature]) for feature, flag in _LENGTH_FLAGS.items()}
        if description.get("bytes", files.size(path)) != files.size(path):
            sizes = f"{files.size(path)} bytes instead of {description['bytes']}"
            raise UserError(f"{path} has {sizes}: it is incomplete. Copy it again, or rebuild it")
        if description and lengths != {flag: description[flag] for flag in lengths}:
            raise UserError(f"{path}.json {_MISMATCH}")
        for flag, length in lengths.items():
            if length != getattr(options, flag):
                mismatch = f"--{flag}={length}, not --{flag}={getattr(options, flag)}"
                advice = "pass the same value"
                raise UserError(f"The records in {path} were made with {mismatch}: {advice}")
        min_size = max([description.get("vocab_size", 0), *(i + 1 for i in first["input_ids"])])
        if min_size > config.vocab_size:
            sizes = f"at least {min_size} entries, but the model has only {config.vocab_size}"
            advice = "check --bert_config_file, or rebuild the records"
            raise UserError(f"{path} was made with a vocabulary of {sizes}: {advice}")
        sources.setdefault(description.get(VOCABULARY), path)
    unknown = sources.pop(None, None)
    if len(sources) > 1:
        both = " and ".join(list(sources.values())[:2])
        raise UserError(f"{both} use different vocabularies: rebuild the records with only one")
    if options.init_checkpoint and (unknown or not vocabulary):
        source = f"{unknown} has no {unknown}.json" if unknown else "the model has no vocab.txt"
        message = "Cannot compare the vocabularies of the records and the model: %s"
        log.info(message, source)
    return None if unknown else next(iter(sources), None)


def _read_description(path: str) -> dict[str, Any]:
    """Returns the description of a record file; {} for files by the original BERT code."""
    json_path = f"{path}.json"
    if not files.exists(json_path):
        return {}
    try:
        description = files.read_json(json_path)
        return {**description, **{flag: int(description[flag]) for flag in _LENGTH_FLAGS.values()}}
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{json_path} is invalid ({error!r}): rebuild the records, or delete it"
        ) from error


def _read_first_record(path: str) -> dict[str, Sequence[int]]:
    """Returns the features in `_LENGTH_FLAGS` of a file's first record."""
    files.open_binary(path).close()  # Refuses pipes, on which TensorFlow would block.
    try:
        first = next(iter(tf.data.TFRecordDataset(path).take(1)), None)
    except tf.errors.OpError as error:
        problem = f"{path} is not a TFRecord file, or is damaged ({error.message})"
        raise UserError(f"{problem}: {_ADVICE}") from error
    if first is None:
        raise UserError(f"{path} is empty: {_ADVICE}")
    try:
        features = tf.train.Example.FromString(first.numpy()).features.feature
    except Exception as error:
        raise UserError(f"The first record of {path} is not a tf.train.Example: {error}") from error
    missing = [name for name in _LENGTH_FLAGS if name not in features]
    if missing:
        raise UserError(f"The records in {path} lack {', '.join(missing)}: {_ADVICE}")
    return {name: features[name].int64_list.value for name in _LENGTH_FLAGS}
