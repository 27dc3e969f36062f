"""Gives special tokens, strings that stay one piece such as `[E1]`, an id in a vocabulary.

`(?i)` before a token, as in `(?i)covid`, finds it in any spelling that the tokenizer normalizes to
the same text.
"""

import re
from collections.abc import Iterator, Mapping

from bert_tf.base.errors import UserError

_UNUSED = re.compile(r"[\[<]unused\D?\d+[\]>]", re.IGNORECASE)
# Entries that no text can have, so that a special token may take their place.
_RESERVED = re.compile(r"\[.+\]|<.+>")
USED = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# The mark of a token that is found in any spelling.
ANY_SPELLING = "(?i)"


def unmarked(token: str) -> str:
    """Returns a token without its mark."""
    return token.removeprefix(ANY_SPELLING)


def place(special_tokens: str, vocab: Mapping[str, int]) -> tuple[dict[str, int], list[str]]:
    """Returns the vocabulary with special tokens in place of unused entries, and the marked tokens.

    `special_tokens` lists them, separated by commas. `[E1]=[unused5]` names the entry to replace;
    without it, a token in the vocabulary keeps its id, and another gets the first free `[unusedN]`.

    Raises a UserError if a token or entry is unsuitable, missing or listed twice, or none is free.
    """
    placed = [_split(entry.strip(), vocab) for entry in special_tokens.split(",")]
    pairs = [(unmarked(token), entry) for token, entry in placed]
    tokens = [token for token, _ in pairs]
    places = [entry for _, entry in pairs if entry]
    problems = [*_find_problems(tokens, dict(pairs), vocab)]
    for listed in (tokens, places):
        problems += [f"{name} occurs twice" for name in listed if listed.count(name) > 1]
    unused = [*filter(_UNUSED.fullmatch, vocab)]
    free = (piece for piece in unused if piece not in places)
    renamed = {entry or next(free, ""): token for token, entry in pairs if entry != token}
    if "" in renamed:
        problems.append(f"no entry for {renamed['']}: the vocabulary has {len(unused)} [unusedN]")
    if problems:
        raise UserError(f"--special_tokens={special_tokens}: {problems[0]}")
    new_vocab = {renamed.get(piece, piece): index for piece, index in vocab.items()}
    return new_vocab, [token for token, _ in placed]


def _split(entry: str, vocab: Mapping[str, int]) -> tuple[str, str | None]:
    """Returns a token and the entry that it replaces: itself if it has one; None to choose one."""
    if unmarked(entry) in vocab:
        return entry, unmarked(entry)
    token, separator, place = entry.rpartition("=")
    return (token.strip(), place.strip()) if separator else (entry, None)


def _find_problems(
    tokens: list[str], place_of: Mapping[str, str | None], vocab: Mapping[str, int]
) -> Iterator[str]:
    for token in tokens:
        place = place_of[token]
        if not token or place == "" or (len(token.split()) > 1 and token not in vocab):
            yield f"{token!r} is empty or contains a space"
        elif place is not None and place != token and token in vocab:
            yield f"{token} is in the vocabulary. Pass it without ={place}"
        elif place is not None and (
            place not in vocab
            or (place != token and (place in USED or not _RESERVED.fullmatch(place)))
        ):
            yield f"{place} is no unused entry of the vocabulary, such as [unused1]"
