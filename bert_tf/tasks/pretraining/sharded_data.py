"""Creates pre-training records for a corpus of any size: shard by shard, in several processes.

A unit is a piece of the corpus that one worker processes, as a sequence of shards (see `shards`).
Its records depend only on its text, its index and the options. Therefore, the number of workers
does not affect the result, and an interrupted run resumes with the missing units. The records of
each unit are written to part files in a folder next to the output, one part for each output file;
at the end, the parts of all units are joined.
"""

import contextlib
import functools
import hashlib
import itertools
import json
import operator
import os
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from bert_tf.base import files
from bert_tf.base.errors import UserError, counted, note, warn
from bert_tf.base.progress import bar
from bert_tf.base.quiet import pause_gc
from bert_tf.data.records import encode_examples
from bert_tf.options.declare import ROWS
from bert_tf.tasks.pretraining.corpus import load_encoder
from bert_tf.tasks.pretraining.instances import (
    Document,
    Instance,
    VocabInfo,
    create_instances_from_document,
    warn_about_single_lines,
)
from bert_tf.tasks.pretraining.options import PretrainingDataOptions
from bert_tf.tasks.pretraining.records import record_batches

# Maximum size of a document, in shards; larger ones suggest a file without blank lines.
_MAX_SHARDS_PER_DOCUMENT = 8

# Path, offset of the first byte, and offset after the last byte; None for a compressed file.
Range = tuple[str, int, int | None]


@dataclass(frozen=True)
class Unit:
    """A unit of work for one worker."""

    index: int
    ranges: tuple[Range, ...]
    size: int  # bytes on disk


def plan(paths: Sequence[str], shard_bytes: int) -> list[Unit]:
    """Divides files, in order, into units, so that shards have about `shard_bytes` each."""
    groups: list[list[Range]] = []
    room = -1  # bytes that small files may add to the last group; -1: no file can be added
    for path in paths:
        size = files.size(path)
        with files.open_binary(path) as file:
            is_gzip = files.is_gzip(path, file)
        if is_gzip:
            groups.append([(path, 0, None)])
            room = -1
        elif size > shard_bytes:
            for start in range(0, size, shard_bytes):
                groups.append([(path, start, min(start + shard_bytes, size))])
            room = -1
        else:
            if size > room:
                groups.append([])
                room = shard_bytes
            groups[-1].append((path, 0, size))
            room -= size
    sizes = (sum((stop or files.size(p)) - start for p, start, stop in group) for group in groups)
    return [Unit(n, tuple(x), size) for n, (x, size) in enumerate(zip(groups, sizes, strict=True))]


def read_shards(unit: Unit, shard_bytes: int) -> Iterator[list[list[str]]]:
    """Yields the shards of a unit: lists of documents, which are lists of non-blank lines.

    Unlike in the original BERT code, the end of a file also ends a document.
    """
    documents = _read_with_shard_index(unit, shard_bytes)
    for _, shard in itertools.groupby(documents, key=operator.itemgetter(0)):
        yield [document for _, document in shard]


def _read_with_shard_index(unit: Unit, shard_bytes: int) -> Iterator[tuple[int, list[str]]]:
    for path, start, stop in unit.ranges:
        with files.open_decompressed(path, regular_only=True) as file:
            for blank_start, document in _read_documents(path, file, start, stop, shard_bytes):
                # Only a compressed file, which has no `stop`, has more than one shard.
                yield 0 if stop else blank_start // shard_bytes, document


def _read_documents(
    path: str, file: Any, start: int, stop: int | None, shard_bytes: int
) -> Iterator[tuple[int, list[str]]]:
    """Yields each document of a byte range, with the offset of the blank line before it."""
    blank_start, in_range = start, start == 0
    if start:
        # The line that contains the byte before `start` belongs to the previous range.
        file.seek(start - 1, os.SEEK_SET)
        file.readline()
    offset, size = file.tell(), 0
    document: list[str] = []
    for raw_line in file:
        line = _decode(path, raw_line)
        if line and in_range:
            document.append(line)
            size += len(raw_line)
            if size > _MAX_SHARDS_PER_DOCUMENT * shard_bytes:
                problem = f"no blank line in the {size / 1e6:.3g} MB after byte {blank_start}"
                raise UserError(f"{problem}: pass a larger --shard_mb", at=path)
        else:
            if document:
                yield blank_start, document
            if not line:
                document, size, blank_start, in_range = [], 0, offset, True
            if stop is not None and offset >= stop:
                return
        offset += len(raw_line)
    if document:
        yield blank_start, document


def _decode(path: str, raw: bytes) -> str:
    try:
        # As in the original, every CR is removed, even within a line.
        return raw.decode("utf-8").replace("\r", "").strip()
    except UnicodeDecodeError:
        for _ in files.read_lines(path):
            pass  # Reading all lines raises an error that names the line.
        raise


# Name of the file that describes the parts in a folder. If it would differ, they are rebuilt.
_PLAN = "plan.json"
# Increment this when a change of the code leads to different records for the same plan.
_FORMAT = 3

# Loaded once per process.
_load_encoder = functools.lru_cache(maxsize=1)(load_encoder)

# Calls a function on each item in a worker process; yields each item after its call, in any order.
UnorderedMap = Callable[[Callable[[Any], object], Sequence[Any]], Iterable[Any]]


def write_parts(
    options: PretrainingDataOptions, paths: Sequence[str], folder: str, workers: UnorderedMap
) -> list[Unit]:
    """Writes the parts of all units to a folder that no other run is using; returns the units.

    After an error, the parts of complete units remain, and the same command resumes with the rest.
    """
    units = plan(paths, options.shard_bytes)
    _prepare_folder(options, units, folder)
    missing = [unit for unit in units if not _is_complete(unit, folder)]
    if len(missing) < len(units):
        count = len(units) - len(missing)
        note(counted(count, "unit", "are already done", of=len(units)))
    total_bytes = sum(unit.size for unit in units)
    complete_bytes = total_bytes - sum(unit.size for unit in missing)
    # Start the workers before the bar starts its thread: forking a process with threads is unsafe.
    work = workers(functools.partial(write_unit, options, folder), missing)
    with bar(total_bytes, "text", initial=complete_bytes, unit="B") as progress:
        for unit in work:
            progress.update(unit.size)
    return units


def _prepare_folder(options: PretrainingDataOptions, units: Sequence[Unit], folder: str) -> None:
    """Creates the folder; deletes parts that were made with other options, texts or `_FORMAT`."""
    texts = sorted({path for unit in units for path, *_ in unit.ranges})
    description = {
        "format": _FORMAT,
        "options": options.values(ROWS),
        "outputs": len(options.outputs),
        "digests": [_hash_file(options.vocab_file), _hash_file(options.whole_word_segments)],
        "texts": [(path, *files.size_and_mtime(path)) for path in texts],
        "units": [unit.ranges for unit in units],
    }
    text = json.dumps(description, indent=1, sort_keys=True)
    path = os.path.join(folder, _PLAN)
    existing = files.read_text(path) if files.exists(path) else ""
    if existing != text and files.exists(folder):
        if existing:
            note("made with other options or input files; starting over", at=folder)
        files.remove_tree(folder)
    files.make_dirs(folder)
    files.write_text(path, text + "\n")


def _hash_file(path: str | None) -> str:
    """Returns the digest of a file; "" if there is none: a segmenter may be a Python function."""
    if not path or not files.exists(path):
        return ""
    with files.open_binary(path) as file:
        return hashlib.sha256(file.read()).hexdigest()


def _is_complete(unit: Unit, folder: str) -> bool:
    report = _report_path(folder, unit)
    if not files.exists(report):
        return False
    sizes = enumerate(files.read_json(report)["bytes"])
    parts = ((_part_path(folder, unit, output), size) for output, size in sizes)
    # After a power failure, a file may be empty or truncated.
    return all(files.exists(path) and files.size(path) == size for path, size in parts)


def _report_path(folder: str, unit: Unit) -> str:
    return os.path.join(folder, f"{unit.index:06d}.json")


def _part_path(folder: str, unit: Unit, output: int) -> str:
    return os.path.join(folder, f"{unit.index:06d}-{output:03d}.tfrecord")


# At module level because multiprocessing and Beam pickle it by name.
def write_unit(options: PretrainingDataOptions, folder: str, unit: Unit) -> None:
    """Writes the parts of a unit, and then its report.

    On a cluster, two workers may be given the same unit. This does no harm: their temporary files
    have different names, and their final files are identical.
    """
    parts = [_part_path(folder, unit, output) for output in range(len(options.outputs))]
    counts: Counter[str] = Counter()
    with contextlib.ExitStack() as stack:
        stack.enter_context(pause_gc())
        names = [stack.enter_context(files.atomic_write(part)) for part in parts]
        # Without this, an error in any part would name the last one.
        stack.enter_context(files.wrap_errors("write to", folder))
        writers = [stack.enter_context(tf.io.TFRecordWriter(name)) for name in names]
        for documents, records in _make_shards(options, unit):
            counts["single_document_shards"] += len(documents) == 1
            counts["documents"] += len(documents)
            counts["single_lines"] += sum(len(document) == 1 for document in documents)
            for record in records:
                writers[counts["examples"] % len(writers)].write(record)
                counts["examples"] += 1
    sizes = [files.size(part) for part in parts]
    report = {**counts, "bytes": sizes}
    files.write_text(_report_path(folder, unit), json.dumps(report))


def _make_shards(
    options: PretrainingDataOptions, unit: Unit
) -> Iterator[tuple[list[Document], list[bytes]]]:
    encode = _load_encoder(options)
    for shard_index, texts in enumerate(read_shards(unit, options.shard_bytes)):
        rows = iter(encode([line for text in texts for line in text]))
        encoded = ([ids for ids in itertools.islice(rows, len(text)) if ids] for text in texts)
        documents = [document for document in encoded if document]
        seed_key = f"{options.random_seed} {unit.index} {shard_index}"
        instances = _make_instances(options, documents, encode.vocab, seed_key)
        batches = map(encode_examples, record_batches(instances, options))
        records = list(itertools.chain.from_iterable(batches))
        _make_rng(seed_key).shuffle(records)
        yield documents, records


def _make_instances(
    options: PretrainingDataOptions, documents: list[Document], vocab: VocabInfo, seed_key: str
) -> Iterator[Instance]:
    """Yields the instances of a shard; each document has a random number generator of its own."""
    for index in range(len(documents)):
        rng = _make_rng(f"{seed_key} {index}")
        for _ in range(options.dupe_factor):
            yield from create_instances_from_document(documents, index, rng, options, vocab)


def _make_rng(seed_key: str) -> random.Random:
    digest = hashlib.blake2b(seed_key.encode(), digest_size=8).digest()
    return random.Random(int.from_bytes(digest, "big"))


def join_parts(
    units: Sequence[Unit], folder: str, outputs: Sequence[str], workers: UnorderedMap
) -> int:
    """Joins the parts into the output files, removes the folder, and returns the record count."""
    counts: Counter[str] = Counter()
    for unit in units:
        report = files.read_json(_report_path(folder, unit))
        counts.update({name: count for name, count in report.items() if name != "bytes"})
    if not counts["examples"]:
        files.remove_tree(folder)
        raise UserError("No tokens in the input files: nothing to train on")
    warn_about_single_lines(counts["single_lines"], counts["documents"])
    if counts["single_document_shards"]:
        problem = "have only one document, from which random next sentences come"
        warn(counted(counts["single_document_shards"], "shard", problem))
    for _ in workers(functools.partial(_join_output, units, folder), list(enumerate(outputs))):
        pass
    files.remove_tree(folder)
    return counts["examples"]


# Pickled by name, like `write_unit`.
def _join_output(units: Sequence[Unit], folder: str, output: tuple[int, str]) -> None:
    index, path = output
    files.concatenate([_part_path(folder, unit, index) for unit in units], path)
