"""What looks wrong in data that can be read: a table of patterns, and rules for columns.

Functions yield sentences with counts, which `warn` logs. Each pattern or rule finds a mistake in a
public file or thread, and finds nothing in good public data: see `tests/test_lint.py`.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.base.errors import Place, brief, counted, excerpt, shortened

_SAMPLE_SIZE = 2000
# With fewer rows or fewer repetitions, a finding may be due to chance.
_MIN_ROWS, _MIN_DISTINCT, _MAX_CONTRADICTORY = 20, 5, 0.1
# Minimum ratio of the spreads of numbers with different units; minimum ratio of an outlier's
# distance to the range of the other numbers.
_OTHER_SPREAD, _FAR = 4, 10
NO_LABEL = r"\A([-?._/]*|-1|(?i:#?n/?a|\\N|nan|null|unsup|unlabell?ed))\Z"


class Pattern(NamedTuple):
    """Values that are probably wrong if more than `share` of the values in a column match."""

    kinds: str  # kinds of columns, separated by "|"; see `values`
    pattern: str  # searched in each value, without white space around it
    share: float
    problem: str  # follows the count; begins with a verb in the plural, see `counted`


PATTERNS = (
    Pattern("text", r"\A(?=.*\d)([\W\d_]+|[!-~]+)\Z", 0.5, "are numbers, dates or ids"),
    Pattern("text", r"\A(?i:nan|null|none)\Z", 0.05, "are nan, null or none"),
    Pattern("text", r"\A([\[(] *|b)(['\"]).*\2 *,?[\])]?\Z", 0.5, "are lists or bytes of Python"),
    # Does not match LaTeX commands, such as \nu, nor strings in program code, such as "%d\n".
    Pattern("text", r"\\[nrt](?![a-z\"'])|\\u[\da-fA-F]{4}|\\x[\da-f]{2}", 0.2, "are escaped"),
    Pattern("text|other text", r"\[(CLS|SEP)\]", 0.01, "have [CLS] or [SEP], which are added"),
    # <s> matches only at the beginning, and </s> at the end: elsewhere, they may be HTML.
    Pattern("text|other text", r"\A<s>|</s>\Z|<\|\w+\|>", 0.01, "have tokens of other models"),
    Pattern("text|other text|word", r"(?<!\S)##\w", 0.01, "have word pieces (##): pass texts"),
    # UTF-8 that was decoded as Latin-1 or Windows-1252, such as "cafÃ©".
    Pattern("text|other text|word", "Ã[©¨¤¶¼§±¡³º]|â€", 0.01, "are garbled: check the encoding"),
    Pattern("word", r"\A\d[\d\W_]*\Z", 0.5, "are numbers"),
    Pattern("word", r"[^\W,;][,;]|[,;][^\W,;]", 0.5, "have , or ;: separate columns by tabs"),
    Pattern("word", r"\A\xa0\Z", 0.0, "are empty, as pandas reads NA"),
    Pattern("line", r"\A</?(doc|top)\b", 0.0, "are tags of WikiExtractor or TREC, read as text"),
    Pattern("line", r"\t|</\w+>|<\w+ \w+=|\A\{.*\}\Z", 0.5, "have tabs, JSON or HTML"),
    Pattern("line", r"\A([^\W\d]+|\S+ Q?0 \S+) \d+\Z", 0.5, "are words and counts, or qrels"),
    Pattern("label", NO_LABEL, 0.0, "may mean that there is none: see --skip_labels"),
    Pattern("label", r"\A\[.*\]\Z", 0.0, "are lists of Python: write a,b for several labels"),
)


def at(path: str, problems: Iterable[str]) -> Iterator[str]:
    """Yields the sentences, each with the name of the file in front."""
    return (f"{Place(path)}: {problem}" for problem in problems)


def sample(items: Sequence[Any]) -> Sequence[Any]:
    """Returns the items to check: all, or fewer than 4,000 that are evenly spaced."""
    return items[:: max(len(items) // _SAMPLE_SIZE, 1)]


def values(kind: str, found: Iterable[str]) -> Iterator[str]:
    """Yields a sentence for each pattern in `PATTERNS` that too many non-blank values match.

    `kind` is the kind of the column, such as "text", and the noun in the sentences.
    """
    found = [*filter(None, (value.strip(" \t\r\n") for value in found))]
    for kinds, pattern, share, problem in PATTERNS:
        search = re.compile(pattern, re.DOTALL).search
        matches = [*filter(None, map(search, found))] if kind in kinds.split("|") else []
        if len(matches) > share * len(found) and len(found) > 1:  # a single text may be anything
            example = matches[0].string[max(matches[0].start() - 30, 0) :]
            count = counted(len(matches), kind, problem, of=len(found))
            yield f"{count}, such as {excerpt(example)}"


def few_distinct(kind: str, found: Sequence[Any]) -> Iterator[str]:
    """Yields a sentence if few values are distinct, so that they are probably names or labels."""
    count = len({*found})
    if len(found) >= _MIN_ROWS * max(count, _MIN_DISTINCT):
        distinct = counted(count, kind, "are distinct", of=len(found))
        yield f"only {distinct}, such as {excerpt(str(found[0]))}"


def same(found: Sequence[Any], others: Sequence[Any], problem: str) -> Iterator[str]:
    """Yields a sentence if most values equal those of another column in the same row."""
    equal = [x for x, y in zip(found, others, strict=True) if x == y]
    if 2 * len(equal) > len(found):
        count = counted(len(equal), "row", of=len(found))
        yield f"{problem} in {count}, such as {excerpt(str(equal[0]))}"


def constant(found: Sequence[Any], name: str = "label") -> Iterator[str]:
    """Yields a sentence if all rows have the same label, or if labels count the rows."""
    if len(found) > 1 and len({*map(str, found)}) == 1:
        yield f"in all {len(found)} rows, the {name} is {excerpt(str(found[0]))}"
    numbers = [int(x) for x in (str(x).removesuffix(".0") for x in found) if x.isdecimal()]
    steps, first = np.diff(numbers), min(numbers, default=0)
    is_index = _MIN_ROWS <= len(numbers) == len(found) and first < _MIN_ROWS
    if is_index and steps.min() > 0 and steps.mean() < 2:  # a part of the rows may be held out
        yield f"the {name} is the number of the row, from {first} to {numbers[-1]}"


def label_names(names: Sequence[str]) -> Iterator[str]:
    """Yields a sentence if labels differ only in case, spaces, leading zeros or the like."""
    # Of white space and invisible characters, only the space is printable.
    forms = (unicodedata.normalize("NFD", x) for x in names)
    visible = ["".join(filter(str.isprintable, x)).replace(" ", "").casefold() for x in forms]
    folded = [(x.lstrip("0") or "0") if x.isdecimal() else x for x in visible]
    if similar := [excerpt(x) for x, y in zip(names, folded, strict=True) if folded.count(y) > 1]:
        yield f"labels that differ only in case, spaces or leading zeros: {shortened(similar)}"


def contradictory(texts: Sequence[Hashable], labels: Sequence[Any]) -> Iterator[str]:
    """Yields a sentence if many rows have a text that also occurs with another label."""
    by_text: dict[Any, set[str]] = defaultdict(set)
    for text, label in zip(texts, labels, strict=True):
        by_text[text].add(str(label))
    found = [text for text in texts if len(by_text[text]) > 1]
    if len(found) > _MAX_CONTRADICTORY * len(texts):
        count = counted(len(found), "row", "repeat a text with another label", of=len(texts))
        names = shortened(brief(sorted(by_text[found[0]])))
        yield f"{count}, such as {excerpt(str(found[0]))}: {names}"


def unseen(found: Sequence[Any], known: Iterable[Any], *, kind: str = "label") -> Iterator[str]:
    """Yields a sentence if labels, or values of another `kind`, are not among the known ones."""
    known = {*known}
    if others := Counter(label for label in found if label not in known):
        count = counted(others.total(), kind, "are not in the training data", of=len(found))
        yield f"{count}: {shortened(brief(sorted(map(str, others))))}"


def far(numbers: np.ndarray) -> Iterator[str]:
    """Yields a sentence if the minimum or maximum, such as -999, is far from all other numbers."""
    distinct = np.unique(numbers)
    if len(numbers) >= _MIN_ROWS and len(distinct) > 2:
        for value, rest in ((distinct[0], distinct[1:]), (distinct[-1], distinct[:-1])):
            if np.abs(rest - value).min() > _FAR * np.ptp(rest):
                count = counted(int((numbers == value).sum()), "number", "are", of=len(numbers))
                yield f"{count} {value:g}, but all others from {rest[0]:g} to {rest[-1]:g}"


def other_range(numbers: np.ndarray, trained: np.ndarray) -> Iterator[str]:
    """Yields a sentence if numbers seem to have a different unit than in the training data."""
    is_other = numbers.min() > trained.max() or numbers.max() < trained.min()
    # Outliers distort only the first measure; mostly equal numbers distort only the second.
    for_all = [(np.std(x), np.ptp(np.percentile(x, (10, 90)))) for x in (numbers, trained)]
    spreads = map(sorted, zip(*for_all, strict=True))
    is_other |= all(0 < low < high / _OTHER_SPREAD for low, high in spreads)
    if len(numbers) >= _MIN_ROWS and is_other:
        here, there = (f"from {x.min():g} to {x.max():g}" for x in (numbers, trained))
        yield f"numbers {here}, but {there} in the training data: check the unit"
