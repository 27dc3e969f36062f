"""Compares vocabulary, casing and configuration with each other, and with the model's own."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from bert_tf.base import files
from bert_tf.base.errors import UserError, warn
from bert_tf.checkpoints.formats.configs import Shapes, infer_sizes
from bert_tf.checkpoints.formats.source import Source
from bert_tf.checkpoints.run_folder import VOCABULARY, RunFolder
from bert_tf.config import BertConfig
from bert_tf.tokenization import casing, load_vocab, vocab_digest

# A model's vocab_size may be the number of entries rounded up to a multiple of 8, 16, 32 or 64.
_MAX_PADDING, _PADDING_MULTIPLE = 64, 8


def read_config(source: Source, path: str | None, shapes: Shapes) -> BertConfig | None:
    """Returns the configuration in `path`, or else the source's; None if there is none.

    Raises a UserError if it does not match the weights.
    """
    config = BertConfig.from_json_file(path) if path else source.config()
    if config is None:
        return None
    file = path or source.config_file or source.path
    mismatches = [
        f"{key} is {configured}, but {size} in the weights"
        for key, size in infer_sizes(shapes).items()
        if (configured := getattr(config, key)) != size
    ]
    if mismatches:
        raise UserError(f"not the configuration of {source.path}: {'; '.join(mismatches)}", at=file)
    check_config(config, file, source)
    return config


def check_config(config: BertConfig, file: str, source: Source) -> None:
    """Warns if `config` and the source's differ in settings that the shapes do not show."""
    own = None
    with contextlib.suppress(UserError):
        own = source.config() if file != source.config_file else None
    for name in ("num_attention_heads", "hidden_act") if own else ():
        value, expected = getattr(config, name), getattr(own, name)
        if str(value).lower() != str(expected).lower():
            warn(f"{name} is {value}, but {expected} in that of {source.path}", at=file)


def check_vocabulary(
    path: str,
    lower_case: bool | None,
    vocab_size: int | None = None,
    sources: Sequence[Source] = (),
) -> None:
    """Warns if a vocabulary does not seem to match the model, or is that of an uncased model.

    For the latter, `lower_case` must be False. (`FullTokenizer` warns of the opposite.)
    Compares the vocabulary with the first one found next to `sources`, the checkpoints to restore.
    Without another vocabulary, compares its size with `vocab_size`, and looks for signs of damage.

    Raises:
        UserError: the vocabulary has more entries than the model has embeddings, `vocab_size`.
    """
    vocab, entries = load_vocab(path), _read_entries(path)
    count = max(vocab.values(), default=-1) + 1
    if vocab_size is not None and count > vocab_size:
        problem = f"has {count} entries, but the model has only {vocab_size}"
        raise UserError(problem, at=path, fix="Pass the vocab.txt that came with the model")
    model_vocab = next((source.vocab_file for source in sources if source.vocab_file), None)
    if model_vocab and os.path.realpath(model_vocab) != os.path.realpath(path):
        problem = _describe_difference(entries, model_vocab)
    else:
        problem = next(_find_problems(entries, vocab_size or 0), None)
    if problem:
        warn(problem, at=path, fix="Check that --vocab_file belongs to the model")
    for folder in (RunFolder.of(source.path) for source in sources):
        if folder.entry(VOCABULARY) not in (None, vocab_digest(vocab)):
            warn(f"{folder} was pre-trained with a different vocabulary than {path}")
    # If a checkpoint records the same casing, trust it even if the vocabulary is unusual.
    if any(source.do_lower_case is lower_case for source in sources):
        return
    num_lower = sum("a" <= entry.removeprefix("##")[:1] <= "z" for entry in entries)
    if lower_case is False and num_lower and not casing.is_cased(entries):
        capitals = f"{len(casing.find_capitals(entries))} tokens with capitals"
        problem = f"{capitals}, and {num_lower} without: words with capitals become [UNK]"
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
    lines: dict[str, int] = {}
    for line, entry in enumerate(entries, start=1):
        if not entry or lines.setdefault(entry, line) != line:
            yield f"has a blank line or a duplicate, {entry!r}, on line {line}"
    if "[PAD]" not in entries[:2]:  # as when a program has sorted the entries
        yield f"starts with {entries[0]!r} instead of '[PAD]'"
    if vocab_size - len(entries) > (0 if vocab_size % _PADDING_MULTIPLE else _MAX_PADDING):
        yield f"has {len(entries)} entries, but the model's vocab_size is {vocab_size}"
