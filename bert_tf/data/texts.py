"""Texts and text pairs, one per line of a file; and what looks wrong in them."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from bert_tf import lint
from bert_tf.base.errors import UserError, counted
from bert_tf.tables.texts import lines

# The first group is greedy, so that a line with several separators is split at the last.
_PAIR = re.compile(r"(.*) \|\|\| (.*)")
_TABLE = re.compile(r"\.(csv|jsonl?|ndjson)(\.gz)?$")


class Text(NamedTuple):
    """A text, or a pair of texts; `text_b` is None for a single text."""

    text_a: str
    text_b: str | None = None


def read_lines(path: str) -> Iterator[Text]:
    """Yields one text, or one pair `A ||| B`, per line of a file.

    As in the original BERT code, lines are stripped, a blank line is an empty text, and the
    separator includes the spaces around `|||`.
    """
    for line in lines(path):
        line = line.strip()
        pair = _PAIR.fullmatch(line)
        yield Text(*pair.groups()) if pair else Text(line)


def check_prefix(texts: Iterable[str], prefix: str) -> Iterator[str]:
    """Yields a sentence if most texts already begin with the prefix."""
    found = [text.startswith(prefix) for text in texts] if prefix.strip() else []
    if 2 * sum(found) > len(found):
        problem = f"have the prefix {prefix!r} already, and it is added once more"
        yield counted(sum(found), "text", problem, of=len(found))


def require_room(flag: str, prefix: Sequence[str], length: int) -> None:
    """Raises a UserError if rows of `length` tokens have none for a text after the prefix."""
    if len(prefix) + 3 > length:  # [CLS], a token of the text and [SEP]
        problem = f"takes {len(prefix)} of {length} tokens: there is no room for a text"
        raise UserError(f"--{flag} {problem}")


def check_lines(path: str, lines: Sequence[str], advice: str = "") -> Iterator[str]:
    """Yields a sentence for each problem in the first lines of a file of texts.

    It is named like a table; or most lines are blank, JSON, columns, HTML or tags of WikiExtractor.
    """
    advice = f". {advice}" if advice else ""
    if _TABLE.search(path):
        yield f"each line is read as one text{advice}"
        return
    if lines and not any(map(str.strip, lines)):
        yield f"the first {counted(len(lines), 'line', 'are blank')}"
    yield from (problem + advice for problem in lint.values("line", lines))
