"""Texts and text pairs, one per line of a file; and what looks wrong in them."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from bert_tf.base.errors import UserError, counted
from bert_tf.tables.texts import lines

# The first group is greedy, so that a line with several separators is split at the last.
_PAIR = re.compile(r"(.*) \|\|\| (.*)")
# A list of frequencies, and not a few texts such as "Chapter 1", has at least as many lines.
_MIN_COUNTED = 20
_is_counted_word = re.compile(r"[^\W\d]+ \d+\s*").fullmatch
_TABLE = re.compile(r"\.(csv|jsonl?|ndjson)(\.gz)?$")
_AS_TEXTS = "each line is read as one text"
_HTML_TAG = re.compile(r"</\w+>|<\w+ \w+=")


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
    """Yields a sentence if texts already begin with the prefix, or would have no space after it."""
    if prefix.isascii() and prefix[-1:].isalnum():  # Chinese needs no space
        yield f"there is no space between the prefix {prefix!r} and the text: add it to the prefix"
    found = [text.startswith(prefix) for text in texts] if prefix.strip() else []
    if 2 * sum(found) > len(found):
        share = counted(sum(found), "text", f"have the prefix {prefix!r} already", of=len(found))
        yield f"{share}: it is added once more. Remove it from the texts, or pass an empty prefix"


def require_room(flag: str, prefix: Sequence[str], length: int) -> None:
    """Raises a UserError if rows of `length` tokens have none for a text after the prefix."""
    if len(prefix) + 3 > length:  # [CLS], a token of the text and [SEP]
        problem = f"takes {len(prefix)} of {length} tokens: there is no room for a text"
        raise UserError(f"--{flag} {problem}")


def check_lines(path: str, lines: Sequence[str], advice: str = "Pass plain text") -> Iterator[str]:
    """Yields a sentence for each problem in the first lines of a file of texts.

    It is named like a table, most lines are JSON, columns or HTML, any is a tag of WikiExtractor,
    or it is a vocabulary.
    """
    if _TABLE.search(path):
        yield f"{_AS_TEXTS}. {advice}"
        return
    if lines and lines[0].strip() == "[PAD]":
        yield "this is a vocabulary, not text. Check --input_file"
    num_counted = sum(bool(_is_counted_word(line)) for line in lines)
    if num_counted >= _MIN_COUNTED and 2 * num_counted > len(lines):
        yield "most lines are a word and a number: a list of frequencies is read as text"
    count, num_texts = sum(map(_is_not_plain, lines)), sum(map(bool, map(str.strip, lines)))
    if lines and not num_texts:
        yield f"the first {counted(len(lines), 'line', 'are blank')}. Check --input_file"
    if any(line.startswith(("<doc ", "</doc>")) for line in lines):
        command = "sed -e '/^$/d' -e '/^<doc /d' -e 's|^</doc>||'"
        yield f"WikiExtractor's <doc ...> and </doc> are read as text. To remove them: {command}"
    elif 2 * count > num_texts:
        share = counted(count, "line", "have tabs, JSON or HTML", of=len(lines))
        yield f"{share.replace(' of ', ' of the first ', 1)}: {_AS_TEXTS}. {advice}"


def _is_not_plain(line: str) -> bool:
    # No single expression: `.*` before a tab would take quadratic time for a long line.
    line = line.strip()
    is_object = line.startswith("{") and line.endswith("}")
    return "\t" in line or is_object or bool(_HTML_TAG.search(line))
