"""Warns if a vocabulary does not belong to the model, is damaged, or has the wrong casing."""

import os
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from bert_tf import tokenization
from bert_tf.base import files
from bert_tf.base.errors import warn
from bert_tf.checkpoints.formats.source import Source
from bert_tf.checkpoints.run_folder import RunFolder
from bert_tf.finetuning import run_metadata
from bert_tf.tokenization import casing

# A model's vocab_size may be the number of entries rounded up to a multiple of 8, 16, 32 or 64.
_MAX_PADDING, _PADDING_MULTIPLE = 64, 8


def check_vocabulary(
    path: str, lower_case: bool | None, vocab_size: int = 0, sources: Sequence[Source] = ()
) -> None:
    """Warns if a vocabulary does not seem to match the model, or is that of an uncased model.

    For the latter, `lower_case` must be False. (`FullTokenizer` warns of the opposite.)
    Compares the vocabulary with the first one found next to `sources`, the checkpoints to restore.
    Without another vocabulary, compares its size with `vocab_size`, and looks for signs of damage.
    """
    entries = _read_entries(path)
    model_vocab = next((source.vocab_file for source in sources if source.vocab_file), None)
    if model_vocab and os.path.realpath(model_vocab) != os.path.realpath(path):
        problem = _describe_difference(entries, model_vocab)
    else:
        problem = next(_find_problems(entries, vocab_size), None)
    if problem:
        warn(problem, at=path, fix="Check that --vocab_file belongs to the model")
    for folder in (os.path.dirname(source.path) for source in sources):
        trained_on = RunFolder(folder).entry(run_metadata.VOCABULARY)
        if trained_on and trained_on != tokenization.vocab_digest(tokenization.load_vocab(path)):
            warn(f"{folder} was pre-trained with a different vocabulary than {path}")
    # If a checkpoint records the same casing, trust it even if the vocabulary is unusual.
    if any(source.do_lower_case is lower_case for source in sources):
        return
    num_lower = sum("a" <= entry.removeprefix("##")[:1] <= "z" for entry in entries)
    if lower_case is False and num_lower and not casing.is_cased(entries):
        num_capitals = len(casing.find_capitals(entries))
        problem = f"{num_capitals} tokens with capitals, and {num_lower} without"
        warn(problem, at=path, fix="For an uncased model, pass --do_lower_case=true")


def _read_entries(path: str) -> list[str]:
    # Blank lines at the end have no effect. Line 344 of the Chinese release is U+2028, not blank.
    lines = (line.strip(" \t") for line in files.read_lines(path))
    return "\n".join(lines).rstrip("\n").split("\n")


def _describe_difference(entries: Sequence[str], model_vocab: str) -> str | None:
    pairs = list(zip_longest(entries, _read_entries(model_vocab), fillvalue=""))
    changed = [(line, *pair) for line, pair in enumerate(pairs, start=1) if pair[0] != pair[1]]
    # Users may replace [unusedN] with their own words.
    only_unused = all(entry and expected.startswith("[unused") for _, entry, expected in changed)
    if not changed or (only_unused and len(set(entries)) == len(entries)):
        return None
    line, entry, expected = changed[0]
    first_change = f"first on line {line}: {entry!r} instead of {expected!r}"
    return f"differs from {model_vocab} in {len(changed)} of {len(pairs)} entries, {first_change}"


def _find_problems(entries: Sequence[str], vocab_size: int) -> Iterator[str]:
    line_of_entry: dict[str, int] = {}
    for line, entry in enumerate(entries, start=1):
        if not entry:
            yield f"has a blank line (line {line})"
        elif line_of_entry.setdefault(entry, line) != line:
            yield f"has {entry!r} on lines {line_of_entry[entry]} and {line}"
    if entries[0] != "[PAD]":  # as when a program has sorted the entries
        yield f"starts with {entries[0]!r} instead of '[PAD]'"
    if vocab_size - len(entries) > (0 if vocab_size % _PADDING_MULTIPLE else _MAX_PADDING):
        sizes = f"has {len(entries)} entries, but the model's vocab_size is {vocab_size}"
        yield f"{sizes}: if a line was removed, the ids of the next ones are wrong"
