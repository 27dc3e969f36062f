"""What is known of records for pre-training, written beside them and checked before a training."""

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_tf import files, locks
from bert_tf.config import BertConfig
from bert_tf.errors import UserError
from bert_tf.options import PretrainingDataOptions
from bert_tf.tokenization import load_vocab

# Features whose length is a flag.
_LENGTHS = {"input_ids": "max_seq_length", "masked_lm_positions": "max_predictions_per_seq"}


@contextlib.contextmanager
def describing(
    outputs: Sequence[str], options: PretrainingDataOptions, vocab: Mapping[str, int]
) -> Iterator[None]:
    """Writes what a training has to know of records beside them, as JSON, when they are written.

    Only one run at a time writes the same records, so that they are not described by another. What
    goes to a pipe or a device is not described.
    """
    outputs = [output for output in outputs if not files.is_stream(output)]
    description = {
        "max_seq_length": options.max_seq_length,
        "max_predictions_per_seq": options.max_predictions_per_seq,
        "do_lower_case": options.do_lower_case,
        "do_whole_word_mask": options.do_whole_word_mask,
        "vocab_size": max(vocab.values()) + 1,
        "vocab_sha256": _digest(vocab),
    }
    with contextlib.ExitStack() as held:
        # In the same order everywhere, or two runs would wait for each other.
        for lock in sorted(map(locks.beside, outputs)):
            held.enter_context(locks.exclusive(lock))
        # It would be that of other records if this run ended before it writes its own.
        for path in {*outputs, *map(files.resolved, outputs)}:
            files.remove(f"{path}.json")
        yield
        for output in outputs:
            text = json.dumps({**description, "bytes": files.size(output)}, indent=1)
            files.write_text(f"{output}.json", f"{text}\n")


def _digest(vocab: Mapping[str, int]) -> str:
    lines = [f"{index} {token}" for token, index in sorted(vocab.items(), key=lambda item: item[1])]
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()


def check_records(
    paths: Sequence[str],
    max_seq_length: int,
    max_predictions_per_seq: int,
    config: BertConfig,
    vocab_file: str = "",
) -> None:
    """Compares the records with the flags and the model, by their description, which those of the
    original do not have, and by the first record of each file.

    Args:
        paths: of the records.
        max_seq_length: of the training.
        max_predictions_per_seq: of the training.
        config: of the model.
        vocab_file: of the model, if it is known.

    Raises:
        UserError: they do not fit, or a file is no file of such records, or empty.
    """
    flags = {
        "max_seq_length": max_seq_length,
        "max_predictions_per_seq": max_predictions_per_seq,
    }
    vocabularies = {_digest(load_vocab(vocab_file)): vocab_file} if vocab_file else {}
    for path in paths:
        first = _first_record(path)
        description = _description(path)
        found = {name: len(first[feature]) for feature, name in _LENGTHS.items()}
        if description.get("bytes", files.size(path)) != files.size(path):
            raise UserError(
                f"{path} has {files.size(path)} bytes, and had {description['bytes']} when it was "
                "written: it is not complete. Copy it again, or make it anew"
            )
        if description and any(description[name] != found[name] for name in found):
            raise UserError(
                f"{path}.json is not of the records in {path}: make them anew, or remove that file"
            )
        for name, value in flags.items():
            if found[name] != value:
                raise UserError(
                    f"The records in {path} were made with --{name}={found[name]}, this is "
                    f"--{name}={value}: pass the value that they were made with"
                )
        size = max([description.get("vocab_size", 0), *(index + 1 for index in first["input_ids"])])
        if size > config.vocab_size:
            raise UserError(
                f"The records in {path} were made with a vocabulary of {size} entries or more, the "
                f"model has only {config.vocab_size} (vocab_size in --bert_config_file): they do "
                "not belong together"
            )
        if "vocab_sha256" in description:
            vocabularies.setdefault(description["vocab_sha256"], path)
    if len(vocabularies) > 1:
        raise UserError(
            f"{' and '.join(list(vocabularies.values())[:2])} are of different vocabularies: the "
            "same numbers mean different pieces there"
        )


def _description(path: str) -> dict[str, Any]:
    name = f"{path}.json"
    if not files.exists(name):
        return {}
    try:
        description = json.loads(files.read_text(name))
        return {**description, **{key: int(description[key]) for key in _LENGTHS.values()}}
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{name} does not describe records of create_pretraining_data.py ({error!r}): make the "
            "records anew, or remove that file"
        ) from error


def _first_record(path: str) -> dict[str, Sequence[int]]:
    files.open_binary(path).close()  # TensorFlow would wait for a pipe.
    try:
        first = next(iter(tf.data.TFRecordDataset(path).take(1)), None)
    except tf.errors.DataLossError as error:
        raise UserError(
            f"{path} is not a TFRecord file, or is damaged: --input_file takes what "
            "create_pretraining_data.py has written"
        ) from error
    except tf.errors.OpError as error:
        raise UserError(f"{path} cannot be read: {error.message}") from error
    if first is None:
        raise UserError(f"{path} is empty: pass records of create_pretraining_data.py")
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
    return {name: entries[name].int64_list.value for name in _LENGTHS}
