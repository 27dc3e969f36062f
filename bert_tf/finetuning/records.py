"""Reads a task's examples, and writes their records or reuses those of an earlier run.

Also finds evaluation examples that the model was trained on, by hashes of their texts.
"""

import contextlib
import functools
import hashlib
import itertools
import logging
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf import lint
from bert_tf.base import files
from bert_tf.base.errors import UserError, counted, note, warn
from bert_tf.base.progress import bar, log
from bert_tf.checkpoints.run_folder import fingerprint
from bert_tf.data import records
from bert_tf.data.features import NUM_LOGGED, Feature, log_rows
from bert_tf.data.packing import CUT_TOKENS
from bert_tf.data.parallel import chunks, map_in_order
from bert_tf.finetuning.distillation import Teacher
from bert_tf.finetuning.run_checks import describe_data
from bert_tf.finetuning.task import Task
from bert_tf.inference.row_batches import unpadded_lengths
from bert_tf.options.declare import ROWS
from bert_tf.tokenization import load_vocab
from bert_tf.tokenization.special_tokens import place, unmarked
from bert_tf.training import Devices, Lengths

_CHUNK_EXAMPLES = 1024
# Increment this when a code change gives different records for the same examples.
_FORMAT_VERSION = 2
_WORD = re.compile(r"\w+")
# Shares of the examples above which a message, or a warning, is logged. In CoNLL-2003, a well-known
# dataset with many short sentences, the share is 12%.
_NOTABLE, _HIGH = 0.01, 0.15


class Splits:
    """Reads each split once; caches examples, digests, hashes and records.

    With a `teacher`, the training records include its logits.
    """

    def __init__(self, task: Task, devices: Devices, teacher: Teacher | None) -> None:
        self.task, self._devices = task, devices
        self._folder = task.options.output_dir or ""
        self.teacher = teacher
        # (split) -> what looks wrong in it, and, in the chief, counts of its rows.
        self.problems: dict[str, list[str]] = {}
        self.stats: dict[str, Counter[str]] = {}
        # (split) -> its examples.
        self.examples = functools.cache(self._read_and_log)
        # (splits) -> None: reads the splits, and logs what looks wrong in them, once.
        self.check = functools.cache(self._check)
        # (split) -> digest of its `Task.identity`, description of the data for `run.json`.
        self.digest = functools.cache(self._compute_digest)
        # (split) -> hash of the texts of each example.
        self.hashes = functools.cache(self._hash_texts)
        # (split) -> path, number and lengths of its records. The chief writes the file if needed.
        self.records = functools.cache(self._find_records)

    def _read_and_log(self, split: str) -> Sequence[Any]:
        examples = self.task.read(split)
        if log.isEnabledFor(logging.DEBUG):
            rows = self.task.featurize(examples[:NUM_LOGGED], split)
            log_rows(split, rows, self.task.options.tokenizer())
        return examples

    def _check(self, *splits: str) -> None:
        examples = {split: self.examples(split) for split in splits}
        for split in splits:
            problems = self.task.check(split, examples[split], examples.get("train", ()))
            self.problems[split] = list(problems)
            if split == "train" and (special_tokens := self.task.options.special_tokens):
                # Those of the vocabulary are the model's, whose texts may be others.
                vocab = load_vocab(self.task.options.vocab_file or "")
                kept = map(unmarked, place(special_tokens, vocab)[1])
                tokens = [token for token in kept if token not in vocab]
                texts = (text for _, texts in self.task.identity(examples[split]) for text in texts)
                if not any(token in text for text in texts for token in tokens):
                    self.problems[split] += lint.unseen(tokens, (), kind="special token")
            for problem in self.problems[split]:
                warn(problem)

    def _compute_digest(self, split: str) -> tuple[str, str]:
        identities, counter = self.task.identity(self.examples(split)), itertools.count()
        # No list, which memory might not hold.
        items = (item for (item, _), _ in zip(identities, counter, strict=False))
        digest = fingerprint(examples=items)
        return digest, describe_data(range(next(counter)), digest)

    def _hash_texts(self, split: str) -> np.ndarray:
        identities = self.task.identity(self.examples(split))
        return hash_texts(texts for _, texts in identities if texts)

    def features(self, split: str) -> tuple[Feature, ...]:
        """Returns the features of the records of a split."""
        logits = self.teacher.features if self.teacher and split == "train" else ()
        return (*self.task.features(split), *logits)

    def _find_records(self, split: str) -> tuple[str, int, Lengths]:
        path = os.path.join(self._folder, f"{split}.tf_record")  # as in the original
        num_records, counts = 0, []
        if self._devices.is_chief:
            num_records, counts = self._write_records(split, path)
        (num_records,) = self._devices.from_chief([num_records])
        if not files.exists(path):
            problem = "written by worker 0 on a file system that this worker does not share"
            raise UserError(problem, at=path)
        return path, num_records, Lengths(self.task.options.max_seq_length, counts)

    def _write_records(self, split: str, path: str) -> tuple[int, Sequence[int]]:
        """Writes the records, unless they exist; returns their number and `Lengths.counts`."""
        task, options, features = self.task, self.task.options, self.features(split)
        teacher = self.teacher if split == "train" else None
        vocabulary = files.read_text(options.vocab_file or "")
        # The digest of the examples stands for the flags that say how to read them.
        entries = sorted(task.schema.entries.items())  # such as the unit of numbers
        settings = options.values(ROWS), list(task.schema.labels), vocabulary, features, *entries
        identity = (teacher.identity,) if teacher else ()
        digest = fingerprint(*settings, *identity, self.digest(split)[0])
        key = f"{_FORMAT_VERSION} {digest}"
        stats: Counter[str] = Counter(records.read_stats(path, key))
        if stats:
            note(f"Reusing {path}, which was written from the same data and flags")
        else:
            examples = self.examples(split)
            stats["examples"] = len(examples)
            unknown_id = load_vocab(options.vocab_file or "").get("[UNK]", -1)
            rows = _featurize(task, examples, split, stats, unknown_id)
            rows = teacher.add_targets(rows, examples) if teacher else rows
            stats["records"] = records.write_records(path, features, rows)
            records.write_stats(path, key, stats)
        self.stats[split] = stats
        _report(split, stats, options.max_seq_length)
        # All counts are 0 if an older version wrote the records.
        counts = [stats[f"length_{length}"] for length in range(options.max_seq_length + 1)]
        return stats["records"], counts


def _featurize(
    task: Task, examples: Sequence[Any], split: str, stats: Counter[str], unknown_id: int
) -> Iterator[Mapping[str, np.ndarray]]:
    """Yields rows chunk by chunk; counts truncated examples, and rows by length, in `stats`."""
    names = [feature.name for feature in task.features(split)]

    def convert(chunk: Sequence[Any]) -> tuple[int, Mapping[str, np.ndarray]]:
        return len(chunk), task.featurize(chunk, split)

    converted = map_in_order(convert, chunks(examples, _CHUNK_EXAMPLES))
    with contextlib.closing(converted), bar(len(examples), f"{split} features") as progress_bar:
        for num_examples, rows in converted:
            cut_tokens = rows.get(CUT_TOKENS, np.zeros(0, int))
            stats["cut_examples"] += int((cut_tokens > 0).sum())
            stats["cut_tokens"] += int(cut_tokens.sum())
            stats["most_cut"] = max(stats["most_cut"], int(cut_tokens.max(initial=0)))
            if "input_ids" in rows:
                stats["unknown_tokens"] += int((rows["input_ids"] == unknown_id).sum())
            if "input_mask" in rows:
                stats["tokens"] += int(rows["input_mask"].sum())
                lengths = unpadded_lengths(rows["input_mask"])
                stats.update(f"length_{length}" for length in lengths)
            yield {name: rows[name] for name in names}
            progress_bar.update(num_examples)


def _report(split: str, stats: Counter[str], max_seq_length: int) -> None:
    num_examples, num_truncated = stats["examples"], stats["cut_examples"]
    if stats["records"] > num_examples:
        into = f"were split into {counted(stats['records'], 'window')}"
        note(f"{split}: {counted(num_examples, 'example', into)}")
    if num_truncated:
        share, mean = num_truncated / num_examples, stats["cut_tokens"] / num_truncated
        cut = (
            f"({share:.1%}) are longer than --max_seq_length={max_seq_length} and were truncated, "
            f"by {mean:.0f} word pieces on average and {stats['most_cut']} at most"
        )
        note(f"{split}: {counted(num_truncated, 'example', cut, of=num_examples)}")


def hash_texts(texts: Iterable[Iterable[str]]) -> np.ndarray:
    """Returns a hash of the texts of each example, uint64 [examples].

    It does not depend on case, white space and punctuation.
    """
    words = (((_WORD.findall(text.casefold()) or [text]) for text in item) for item in texts)
    normalized = ("\0".join(map(" ".join, item)) for item in words)
    encoded = (text.encode("utf-8", "surrogatepass") for text in normalized)
    digests = (hashlib.blake2b(item, digest_size=8).digest() for item in encoded)
    return np.fromiter((int.from_bytes(digest, "little") for digest in digests), np.uint64)


def report_shared_examples(
    eval_hashes: np.ndarray, train_hashes: np.ndarray, trained: str = "the model"
) -> None:
    """Logs how many evaluation examples are training examples; warns if these are many."""
    count, num_shared = len(eval_hashes), int(np.isin(eval_hashes, train_hashes).sum())
    if num_shared > _NOTABLE * count:
        used = f"({num_shared / count:.1%}) were also used to train {trained}"
        shared = counted(num_shared, "evaluation example", used, of=count)
        (warn if num_shared > _HIGH * count else note)(f"{shared}: the metrics are too high")
