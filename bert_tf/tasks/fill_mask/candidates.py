"""Words for masks, written for programs and for people."""

import itertools
import json
from collections.abc import Sequence
from typing import NamedTuple

# Those of extract_features.py, for programs.
_DECIMALS = 6
# Masks that stand side by side in a table: more would be longer than a line.
_SIDE_BY_SIDE = 4


class Candidate(NamedTuple):
    """What may stand in the place of a mask, with its probability."""

    word: str
    probability: float


def json_line(number: int, text: str, masks: Sequence[Sequence[Candidate]]) -> str:
    """An object with `line`, `text`, and for each mask its words and their probabilities.

    Letters are written as they are, and not as `\\u` with a number.

    Args:
        number: of the line.
        text: with its masks.
        masks: their candidates.
    """
    found = [
        [{"word": c.word, "probability": round(c.probability, _DECIMALS)} for c in candidates]
        for candidates in masks
    ]
    line = {"line": number, "text": text, "masks": found}
    return json.dumps(line, ensure_ascii=False) + "\n"


def table(number: int, text: str, masks: Sequence[Sequence[Candidate]]) -> str:
    """The text, and below it a column for each mask, in the order of the masks.

    Args:
        number: of the line.
        text: with its masks.
        masks: their candidates.
    """
    blocks = [masks[n : n + _SIDE_BY_SIDE] for n in range(0, len(masks), _SIDE_BY_SIDE)]
    return "\n".join([text, *map(_block, blocks)]) + "\n"


def _block(masks: Sequence[Sequence[Candidate]]) -> str:
    widths = [max((len(candidate.word) for candidate in of_mask), default=0) for of_mask in masks]
    lines = []
    for row in itertools.zip_longest(*masks):
        cells = [
            f"{candidate.word:{width}} {candidate.probability:6.1%}"
            if candidate
            else " " * (width + 7)
            for candidate, width in zip(row, widths, strict=True)
        ]
        lines.append(("    " + "    ".join(cells)).rstrip() + "\n")
    return "".join(lines)


FORMATS = {"jsonl": json_line, "table": table}
