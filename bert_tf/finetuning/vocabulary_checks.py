"""Warns if a vocabulary is not the model's, is damaged, or has the wrong casing."""

import os
from collections.abc import Iterator, Sequence
from itertools import pairwise, zip_longest

from bert_tf import files
from bert_tf.checkpoints.formats import Source
from bert_tf.progress import log
from bert_tf.tokenization import count_capitals, is_cased

# A model may round its vocab_size up to a multiple of 8 to 64.
_MOST_SPARE_ROWS, _ROUNDED_TO = 64, 8
_CONSECUTIVE = ("[UNK]", "[CLS]", "[SEP]", "[MASK]")


def check_vocabulary(
    path: str, lower_case: bool, vocab_size: int = 0, sources: Sequence[Source] = ()
) -> None:
    """Warns if a vocabulary is probably not the model's, or does not fit `lower_case`.

    It is compared with the model's `vocab_size` and with the vocabularies of `sources`, the
    checkpoints to restore.
    """
    entries = _entries(path)
    own = next((source.vocab_file for source in sources if source.vocab_file), None)
    is_other = own and os.path.realpath(own) != os.path.realpath(path)
    problem = _difference(entries, own) if is_other else next(_unusual(entries, vocab_size), None)
    if problem:
        log.warning("%s %s. Check that --vocab_file is the model's own", path, problem)
    # The training with the same flag has warned already.
    if any(source.do_lower_case is lower_case for source in sources):
        return
    lower = sum("a" <= entry.removeprefix("##")[:1] <= "z" for entry in entries)
    if lower_case == is_cased(entries) and (lower or lower_case):
        found = f"{lower} lower-case pieces and {count_capitals(entries)} with capitals"
        effect = "are never found. For a " if lower_case else "become [UNK]. For an un"
        flag = f"--do_lower_case={str(not lower_case).lower()}"
        log.warning("%s has %s; capitals %scased model pass %s", path, found, effect, flag)


def _entries(path: str) -> list[str]:
    # Blank lines at the end have no effect. Line 344 of the Chinese release is U+2028, not blank.
    lines = (line.strip(" \t") for line in files.read_lines(path))
    return "\n".join(lines).rstrip("\n").split("\n")


def _difference(entries: Sequence[str], own: str) -> str | None:
    pairs = list(zip_longest(entries, _entries(own), fillvalue=""))
    changed = [(line, *pair) for line, pair in enumerate(pairs, start=1) if pair[0] != pair[1]]
    # [unusedN] are free for the user's own words.
    is_free = all(entry and other.startswith("[unused") for _, entry, other in changed)
    if not changed or (is_free and len(set(entries)) == len(entries)):
        return None
    line, entry, other = changed[0]
    first = f"first in line {line}: {entry!r} instead of {other!r}"
    return f"differs from {own} in {len(changed)} of {len(pairs)} entries, {first}"


def _unusual(entries: Sequence[str], vocab_size: int) -> Iterator[str]:
    lines: dict[str, int] = {}
    for line, entry in enumerate(entries, start=1):
        if not entry or lines.setdefault(entry, line) != line:
            twice = f"has {entry!r} in lines {lines.get(entry)} and {line}"
            yield twice if entry else f"is blank in line {line}"
    if entries[0] != "[PAD]":
        yield f"begins with {entries[0]!r} instead of '[PAD]'"
    found = [lines[token] for token in _CONSECUTIVE if token in lines]
    if any(after - before != 1 for before, after in pairwise(found)):
        yield f"has {', '.join(_CONSECUTIVE)} in lines {found}, not one after the other"
    if vocab_size - len(entries) > (0 if vocab_size % _ROUNDED_TO else _MOST_SPARE_ROWS):
        yield f"has {len(entries)} entries, but the model's vocab_size is {vocab_size}"
