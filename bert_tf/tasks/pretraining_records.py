"""What is known of records for pre-training, written beside them and checked before a training."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from bert_tf import files
from bert_tf.config import BertConfig
from bert_tf.errors import UserError
from bert_tf.options import PretrainingDataOptions

# Features whose length is a flag.
_LENGTHS = {"input_ids": "max_seq_length", "masked_lm_positions": "max_predictions_per_seq"}


def write_description(output: str, options: PretrainingDataOptions, vocab_size: int) -> None:
    """Writes what a training has to know of the records, as JSON beside them."""
    with files.open_binary(options.vocab_file or "") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    description = {
        "max_seq_length": options.max_seq_length,
        "max_predictions_per_seq": options.max_predictions_per_seq,
        "do_lower_case": options.do_lower_case,
        "do_whole_word_mask": options.do_whole_word_mask,
        "vocab_size": vocab_size,
        "vocab_sha256": digest,
    }
    files.write_text(f"{output}.json", json.dumps(description, indent=1) + "\n")


def check_records(
    paths: Sequence[str], max_seq_length: int, max_predictions_per_seq: int, config: BertConfig
) -> None:
    """Compares the records with the flags and the model; those of the original, which have no
    description, by the first record of each file.

    Raises:
        UserError: they do not fit, or a file is no file of such records, or empty.
    """
    flags = {
        "max_seq_length": max_seq_length,
        "max_predictions_per_seq": max_predictions_per_seq,
    }
    vocabularies: dict[str, str] = {}
    for path in paths:
        description = _description(path) or _of_first_record(path)
        for name, value in flags.items():
            if description[name] != value:
                raise UserError(
                    f"The records in {path} were made with --{name}={description[name]}, this is "
                    f"--{name}={value}: pass the value that they were made with"
                )
        if description.get("vocab_size", 0) > config.vocab_size:
            raise UserError(
                f"The records in {path} were made with a vocabulary of "
                f"{description['vocab_size']} entries, the model has only {config.vocab_size} "
                "(vocab_size in --bert_config_file): they do not belong together"
            )
        if "vocab_sha256" in description:
            vocabularies.setdefault(description["vocab_sha256"], path)
    if len(vocabularies) > 1:
        raise UserError(
            f"The records in {' and '.join(list(vocabularies.values())[:2])} were made with "
            "different vocabularies: the same numbers mean different pieces there"
        )


def _description(path: str) -> dict[str, Any] | None:
    name = f"{path}.json"
    if not files.exists(name):
        return None
    try:
        description = json.loads(files.read_text(name))
        return {**description, **{key: int(description[key]) for key in _LENGTHS.values()}}
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{name} does not describe records of create_pretraining_data.py ({error!r}): make the "
            "records anew, or remove that file"
        ) from error


def _of_first_record(path: str) -> dict[str, Any]:
    try:
        first = next(iter(tf.data.TFRecordDataset(path).take(1)), None)
    except tf.errors.OpError as error:
        raise UserError(f"{path} is not a TFRecord file: {error.message}") from error
    if first is None:
        raise UserError(f"There is not one record in {path}")
    try:
        entries = tf.train.Example.FromString(first.numpy()).features.feature
    except Exception as error:
        raise UserError(f"The first record of {path} is no tf.train.Example: {error}") from error
    missing = [name for name in _LENGTHS if name not in entries]
    if missing:
        raise UserError(
            f"The records in {path} lack {', '.join(missing)}: they are not of "
            "create_pretraining_data.py"
        )
    return {key: len(entries[name].int64_list.value) for name, key in _LENGTHS.items()}
