"""Records for pre-training from a corpus of any size: shard by shard, by several processes.

The work is cut into units (`data.shards`). Each unit is a function of its text, the options and the
seed, whoever does it and when: so the number of workers changes nothing, and a run that was killed
goes on with what is missing. The records of a unit wait in a folder beside the output; in the end
they are joined.
"""

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import json
import os
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from bert_tf import files
from bert_tf.data.corpus import LineEncoder
from bert_tf.data.example_encoding import encode_examples
from bert_tf.data.pretraining import (
    Document,
    FewDraws,
    Instance,
    Pieces,
    Recipe,
    instances_of_document,
    to_arrays,
    without_cycle_search,
)
from bert_tf.data.shards import Unit, plan, read_shards
from bert_tf.data.word_segments import load_segmenter
from bert_tf.errors import UserError
from bert_tf.progress import bar, log
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.fast import BatchTokenizer

# Examples that become records together.
_TOGETHER = 1024
# Describes what the parts in a folder are of.
_PLAN = "plan.json"
# To be counted up when the same plan gives other records than before.
_FORMAT = 1


@dataclasses.dataclass(frozen=True)
class Job:
    """All that the records depend on, beside the text.

    Attributes:
        vocab_file: path.
        do_lower_case: of the tokenizer.
        recipe: see there.
        dupe_factor: how often each document is used.
        random_seed: of all draws.
        shard_bytes: text of a shard, about.
        outputs: how many files the examples go to in turn.
        whole_word_segments: see `load_segmenter`; empty for none.
    """

    vocab_file: str
    do_lower_case: bool
    recipe: Recipe
    dupe_factor: int
    random_seed: int
    shard_bytes: int
    outputs: int
    whole_word_segments: str = ""


# Does items by a function, somewhere, and yields each when it is done.
Workers = Callable[[Callable[[Any], object], Sequence[Any]], Iterable[Any]]


def write_parts(job: Job, paths: Sequence[str], folder: str, workers: Workers) -> list[Unit]:
    """Makes all records of a corpus, in a folder that nobody else writes to meanwhile.

    Args:
        job: how.
        paths: text files.
        folder: for the parts, see `join`.
        workers: `do_by_processes` or `do_by_beam`.

    Returns:
        The units that the parts belong to.

    Raises:
        UserError: a text is not right, there is none, or a file cannot be written. What is done is
            kept, and the same command goes on from there.
    """
    units = plan(paths, job.shard_bytes)
    prepare(job, units, folder)
    waiting = [unit for unit in units if not is_done(unit, folder)]
    if len(waiting) < len(units):
        log.info("%d of %d units are done already", len(units) - len(waiting), len(units))
    total = sum(unit.size for unit in units)
    done = total - sum(unit.size for unit in waiting)
    # Before the bar, which has a thread of its own.
    work = workers(functools.partial(write_unit, job, folder), waiting)
    with bar(total, "text", initial=done, unit="B") as shown:
        for unit in work:
            shown.update(unit.size)
    return units


def prepare(job: Job, units: Sequence[Unit], folder: str) -> None:
    """Makes the folder of the parts; one of another command, text or version is emptied."""
    texts = sorted({path for unit in units for path, *_ in unit.ranges})
    described = {
        "format": _FORMAT,
        "job": dataclasses.asdict(job),
        "digests": [_digest(path) for path in (job.vocab_file, job.whole_word_segments)],
        "texts": [(path, *files.size_and_mtime(path)) for path in texts],
        "units": [unit.ranges for unit in units],
    }
    description = json.dumps(described, indent=1)
    path = os.path.join(folder, _PLAN)
    known = files.read_text(path) if files.exists(path) else ""
    if known != description and files.exists(folder):
        if known:
            log.warning("%s is of another command or another text: it is made anew", folder)
        _discard(folder)
    files.make_dirs(folder)
    files.write_text(path, description + "\n")


def _discard(folder: str) -> None:
    # The plan first: parts without it are not taken for those of any command.
    files.remove(os.path.join(folder, _PLAN))
    files.remove_tree(folder)


def _digest(path: str) -> str:
    """Of a file; the other segmenters are known by their name alone."""
    if not files.exists(path):
        return ""
    with files.open_binary(path) as file:
        return hashlib.sha256(file.read()).hexdigest()


def is_done(unit: Unit, folder: str) -> bool:
    """Whether all parts of a unit are there, as long as they were when they were written."""
    if not files.exists(_report(folder, unit)):
        return False
    sizes = _read_report(folder, unit)["bytes"]
    parts = [_part(folder, unit, number) for number in range(len(sizes))]
    # A power cut can leave a name without what was written.
    return all(files.exists(p) and files.size(p) == n for p, n in zip(parts, sizes, strict=True))


def _report(folder: str, unit: Unit) -> str:
    """The file that says what the parts of a unit have; it is written last."""
    return os.path.join(folder, f"{unit.number:06d}.json")


def _read_report(folder: str, unit: Unit) -> dict[str, Any]:
    return json.loads(files.read_text(_report(folder, unit)))


def _part(folder: str, unit: Unit, output: int) -> str:
    return os.path.join(folder, f"{unit.number:06d}-{output:03d}.tfrecord")


def write_unit(job: Job, folder: str, unit: Unit) -> None:
    """Writes the parts of a unit, and then a report of them.

    Two that do the same unit, as clusters have it, do not meet: each writes under names of its own,
    and what they rename in the end is the same.

    Raises:
        UserError: the text is not right, or a file cannot be written.
    """
    parts = [_part(folder, unit, output) for output in range(job.outputs)]
    count = single = 0
    with contextlib.ExitStack() as stack:
        stack.enter_context(without_cycle_search())
        names = [stack.enter_context(files.atomic_write(part)) for part in parts]
        try:
            writers = [stack.enter_context(tf.io.TFRecordWriter(name)) for name in names]
            for documents, records in shards_of_unit(job, unit):
                single += documents == 1
                for record in records:
                    writers[count % job.outputs].write(record)
                    count += 1
        except tf.errors.OpError as error:
            raise UserError(f"Cannot write into {folder}: {error.message}") from error
    report = {"examples": count, "single": single, "bytes": [files.size(part) for part in parts]}
    files.write_text(_report(folder, unit), json.dumps(report))


def shards_of_unit(job: Job, unit: Unit) -> Iterator[tuple[int, list[bytes]]]:
    """How many documents each shard of a unit has, and its records, shuffled."""
    encode, pieces = _tools(job.vocab_file, job.do_lower_case, job.whole_word_segments)
    for number, texts in enumerate(read_shards(unit, job.shard_bytes)):
        documents = _documents(texts, encode)
        address = f"{job.random_seed} {unit.number} {number}"
        records: list[bytes] = []
        for some in _some(_instances(job, documents, pieces, address)):
            records += encode_examples(to_arrays(some, job.recipe))
        FewDraws(_random(address)).shuffle(records)
        yield len(documents), records


@functools.lru_cache(maxsize=1)
def _tools(vocab_file: str, do_lower_case: bool, segments: str) -> tuple[LineEncoder, Pieces]:
    """Made once in each process."""
    tokenizer = FullTokenizer(vocab_file, do_lower_case)
    pieces = Pieces(tokenizer.vocab)
    segmenter = load_segmenter(segments) if segments else None
    return LineEncoder(BatchTokenizer(tokenizer), pieces.size, segmenter), pieces


def _documents(texts: list[list[str]], encode: LineEncoder) -> list[Document]:
    rows = iter(encode([line for text in texts for line in text]))
    documents = [[ids for ids in itertools.islice(rows, len(text)) if ids] for text in texts]
    return [document for document in documents if document]


def _instances(
    job: Job, documents: list[Document], pieces: Pieces, address: str
) -> Iterator[Instance]:
    for index in range(len(documents)):
        draws = FewDraws(_random(f"{address} {index}"))
        for _ in range(job.dupe_factor):
            yield from instances_of_document(documents, index, draws, job.recipe, pieces)


def _random(address: str) -> random.Random:
    """A stream of its own for each address."""
    digest = hashlib.blake2b(address.encode(), digest_size=8).digest()
    return random.Random(int.from_bytes(digest, "big"))


def _some(instances: Iterable[Instance]) -> Iterator[list[Instance]]:
    waiting: list[Instance] = []
    for instance in instances:
        waiting.append(instance)
        if len(waiting) == _TOGETHER:
            yield waiting
            waiting = []
    if waiting:
        yield waiting


def join(units: Sequence[Unit], folder: str, outputs: Sequence[str], workers: Workers) -> int:
    """Puts the parts of all units, in their order, into the output files; removes the folder.

    Returns:
        The number of examples.

    Raises:
        UserError: a file cannot be written, or there is not one example.
    """
    reports = [_read_report(folder, unit) for unit in units]
    count = sum(report["examples"] for report in reports)
    if not count:
        _discard(folder)
        raise UserError("There is not one token in the input files: nothing to train on")
    single = sum(report["single"] for report in reports)
    if single:
        log.warning(
            "%d shards have one document only: the random next sentence comes from the same text "
            "there. Put a blank line between documents, or pass a larger --shard_mb",
            single,
        )
    for _ in workers(functools.partial(_join, units, folder), list(enumerate(outputs))):
        pass
    _discard(folder)
    return count


def _join(units: Sequence[Unit], folder: str, output: tuple[int, str]) -> None:
    number, path = output
    files.concatenate([_part(folder, unit, number) for unit in units], path)
