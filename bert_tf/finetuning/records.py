"""Reads the examples of a task, and writes their records or reuses those of an earlier run."""

import contextlib
import dataclasses
import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf import files
from bert_tf.data import records
from bert_tf.data.packing import CUT_TOKENS
from bert_tf.data.parallel import chunks, map_in_order
from bert_tf.data.records import Feature
from bert_tf.errors import UserError
from bert_tf.finetuning.distillation import Teacher
from bert_tf.finetuning.record_cache import fingerprint, read_stats, write_stats
from bert_tf.finetuning.run_checks import describe_data
from bert_tf.finetuning.task import Task
from bert_tf.options import FineTuningOptions
from bert_tf.progress import bar, log
from bert_tf.training import Devices

# Number of examples to featurize at a time.
_CHUNK_EXAMPLES = 1024


def record_file(split: str) -> str:
    """Returns the name of the record file of a split, as in the original."""
    return f"{split}.tf_record"


class Splits:
    """The examples of a task by split, and their records in a folder.

    With a `teacher`, the training records have its logits.
    """

    def __init__(
        self, task: Task, folder: str, devices: Devices, teacher: Teacher | None = None
    ) -> None:
        self._task, self._folder, self._devices = task, folder, devices
        self.teacher = teacher
        self._read = functools.cache(task.read)
        self._digests: dict[str, tuple[str, str]] = {}
        self._records: dict[str, tuple[str, int]] = {}

    def __getitem__(self, split: str) -> Sequence[Any]:
        return self._read(split)

    def digest(self, split: str) -> tuple[str, str]:
        """Returns a digest of `Task.identity` of a split, and a description of the data."""
        if split not in self._digests:
            rows = list(self._task.identity(self[split]))
            digest = fingerprint(examples=rows)
            self._digests[split] = digest, describe_data(rows, digest)
        return self._digests[split]

    def features(self, split: str) -> tuple[Feature, ...]:
        """Declares the records of a split."""
        soft = self.teacher.features if self.teacher and split == "train" else ()
        return (*self._task.features(split), *soft)

    def records(self, split: str) -> tuple[str, int]:
        """Returns path and number of the records; the chief writes them, the others wait."""
        if split in self._records:
            return self._records[split]
        path = os.path.join(self._folder, record_file(split))
        count = self._write_records(split, path) if self._devices.is_chief else 0
        count = self._devices.from_chief(count)
        if not files.exists(path):
            raise UserError(
                f"Worker 0 wrote {path}, and this one does not see it: --output_dir must be in a "
                "file system that all workers share"
            )
        self._records[split] = path, count
        return path, count

    def _write_records(self, split: str, path: str) -> int:
        task, options, features = self._task, self._task.options, self.features(split)
        teacher = self.teacher if split == "train" else None
        vocabulary = files.read_text(options.vocab_file or "")
        # Flags of training and devices do not change the rows, and the digest covers the files.
        shared = {field.name for field in dataclasses.fields(FineTuningOptions)}
        own = {
            name: value
            for name, value in dataclasses.asdict(options).items()
            if name not in shared and not name.endswith(("_batch_size", "_dir", "_file"))
        }
        settings = own, list(task.labels), options.do_lower_case, vocabulary, features
        taught = (teacher.identity,) if teacher else ()
        key = fingerprint(*settings, *taught, self.digest(split)[0])
        stats = read_stats(path, key)
        if stats:
            log.info("Reusing %s, which was written from the same data and flags", path)
        else:
            examples = self[split]
            stats = {"examples": len(examples), "cut_examples": 0, "cut_tokens": 0, "most_cut": 0}
            rows = _featurize(task, examples, split, stats)
            rows = teacher.add_logits(rows) if teacher else rows
            stats["records"] = records.write_records(path, features, rows)
            write_stats(path, key, stats)
        _report(split, stats, options.max_seq_length)
        return stats["records"]


def _featurize(
    task: Task, examples: Sequence[Any], split: str, stats: dict[str, int]
) -> Iterator[Mapping[str, np.ndarray]]:
    """Yields the rows of all examples chunk by chunk, and counts the truncated ones."""
    names = [feature.name for feature in task.features(split)]

    def convert(chunk: Sequence[Any]) -> tuple[int, Mapping[str, np.ndarray]]:
        return len(chunk), task.featurize(chunk, split)

    converted = map_in_order(convert, list(chunks(examples, _CHUNK_EXAMPLES)))
    with contextlib.closing(converted), bar(len(examples), f"{split} features") as shown:
        for count, rows in converted:
            cut = rows.get(CUT_TOKENS, np.zeros(0, int))
            stats["cut_examples"] += int((cut > 0).sum())
            stats["cut_tokens"] += int(cut.sum())
            stats["most_cut"] = max(stats["most_cut"], int(cut.max(initial=0)))
            yield {name: rows[name] for name in names}
            shown.update(count)


def _report(split: str, stats: Mapping[str, int], max_seq_length: int) -> None:
    """Logs the number of windows, if there are more than examples, and of truncated examples."""
    examples, cut = stats["examples"], stats["cut_examples"]
    if stats["records"] > examples:
        log.info("%s: %d examples are read in %d windows", split, examples, stats["records"])
    if cut:
        log.info(
            "%s: %d of %d examples (%.1f %%) are longer than --max_seq_length=%d and were cut, by "
            "%.0f word pieces on average and %d at most",
            split,
            cut,
            examples,
            100 * cut / examples,
            max_seq_length,
            stats["cut_tokens"] / cut,
            stats["most_cut"],
        )
