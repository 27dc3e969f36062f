"""Finds out whether models and vocabularies are cased."""

import re
from collections.abc import Collection, Iterable

from bert_tf import releases
from bert_tf.base.errors import UserError, counted, excerpt, warn

# Captures the name of a checkpoint's folder. As in the original, the dot is not escaped.
_CHECKPOINT_FOLDER = re.compile("([A-Za-z0-9_-]+)/bert_model.ckpt")
# A quarter of the pieces in cased vocabularies have capitals.
_MIN_CAPITALS_SHARE = 0.01
_CAPITAL = re.compile("[A-Z]")


def validate_case_matches_checkpoint(do_lower_case: bool, init_checkpoint: str | None) -> None:
    """Checks `do_lower_case` if the checkpoint's folder has the name of a published model.

    Raises a UserError if that model was trained with the other casing. As in the original, only the
    folder of a `bert_model.ckpt` is checked; but the original knows only seven of the `releases`.
    """
    match = _CHECKPOINT_FOLDER.search(init_checkpoint) if init_checkpoint else None
    if not match:
        return
    folder = match.group(1)
    release = releases.named(folder)
    if release is None or release.cased != do_lower_case:
        return
    actual, required = ("true", "false") if release.cased else ("false", "true")
    kind = "a cased model" if release.cased else "an uncased model"
    raise UserError(
        f"--do_lower_case={actual} does not match --init_checkpoint="
        f"{init_checkpoint}: the name {folder} is that of {kind}",
        fix=f"Pass --do_lower_case={required}, or rename the folder",
    )


def find_capitals(pieces: Iterable[str]) -> list[str]:
    """Returns the pieces with capitals A to Z, except special tokens such as `[CLS]` and `<S>`."""
    capitalized = filter(_CAPITAL.search, pieces)
    return [piece for piece in capitalized if piece[0] + piece[-1] not in ("[]", "<>")]


def is_cased(pieces: Collection[str]) -> bool:
    """Guesses from the pieces of a vocabulary whether its model is cased."""
    return len(find_capitals(pieces)) > _MIN_CAPITALS_SHARE * len(pieces)


_warned_vocabularies: set[str] = set()


def warn_if_cased(vocab_file: str, pieces: Collection[str]) -> None:
    """Warns, once per file, if a vocabulary for lower-cased text has tokens with capitals."""
    found = [piece for piece in find_capitals(pieces) if not piece.startswith("##")]
    if found and vocab_file not in _warned_vocabularies:
        _warned_vocabularies.add(vocab_file)
        tokens = counted(len(found), "token", "with capitals")
        problem = f"{tokens}, such as {excerpt(found[0])}, which lower-cased text never matches"
        advice = "For a cased model, set do_lower_case to false" if is_cased(pieces) else None
        warn(problem, at=vocab_file, fix=advice)
