"""Output formats of `predict_masked.py`: human-readable tables, and JSON lines."""

import itertools
import json
from collections.abc import Sequence
from typing import NamedTuple

# As in extract_features.py.
_DECIMALS = 6
# Maximum number of masks side by side in a table, so that they fit on a line.
_COLUMNS = 4


class Candidate(NamedTuple):
    """A candidate word for a mask, with its probability."""

    word: str
    probability: float


def json_line(number: int, text: str, masks: Sequence[Sequence[Candidate]]) -> str:
    """Returns a JSON object with `line`, `text`, and `masks`: the candidates for each mask."""
    words = [
        [{"word": c.word, "probability": round(c.probability, _DECIMALS)} for c in candidates]
        for candidates in masks
    ]
    line = {"line": number, "text": text, "masks": words}
    return json.dumps(line, ensure_ascii=False) + "\n"


def table(number: int, text: str, masks: Sequence[Sequence[Candidate]]) -> str:
    """Returns the text, followed by a column of candidates for each mask."""
    blocks = [masks[n : n + _COLUMNS] for n in range(0, len(masks), _COLUMNS)]
    return "\n".join([text, *map(_format_block, blocks)]) + "\n"


def _format_block(masks: Sequence[Sequence[Candidate]]) -> str:
    widths = [max((len(c.word) for c in candidates), default=0) for candidates in masks]
    lines = []
    for row in itertools.zip_longest(*masks, fillvalue=None):
        cells = [
            f"{c.word:{width}} {c.probability:6.1%}" if c else " " * (width + 7)
            for c, width in zip(row, widths, strict=True)
        ]
        lines.append(("    " + "    ".join(cells)).rstrip() + "\n")
    return "".join(lines)


FORMATS = {"jsonl": json_line, "table": table}
