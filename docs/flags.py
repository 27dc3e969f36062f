"""Writes the tables of flags in docs/scripts/, from the options of the scripts.

usage: python docs/flags.py

A test compares the pages with what this would write.
"""

import dataclasses
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bert_tf.cli import ordered_options
from bert_tf.registry import SCRIPTS

PAGES = Path(__file__).parent / "scripts"
# Whole scripts that the original has not, so that no flag of theirs is marked.
NEW_SCRIPTS = ("run_ner", "run_multiple_choice", "predict_masked", "create_vocab")
NEW_SCRIPTS += ("convert_checkpoint", "export_model")
_TABLE = re.compile(r"<!-- flags -->\n.*<!-- end of flags -->", re.S)


def page(script: str) -> str:
    """The page of a script with the table as it should be."""
    text = (PAGES / f"{script}.md").read_text(encoding="utf-8")
    found, count = _TABLE.subn(lambda _: table(script), text)
    if count != 1:
        raise ValueError(f"docs/scripts/{script}.md needs one place for its flags")
    return found


def table(script: str) -> str:
    """All flags of a script in Markdown."""
    rows = ["| flag | default | of | what it does |", "|---|---|---|---|"]
    rows += [
        _row(field, script in NEW_SCRIPTS)
        for field in ordered_options(SCRIPTS[script].options_class)
    ]
    rows += ["| `--flagfile` | | 2018 | Reads flags from a file, one on a line. |"]
    return "\n".join(["<!-- flags -->", *rows, "<!-- end of flags -->"])


def _row(field: dataclasses.Field, is_new: bool) -> str:
    known = field.metadata
    values = [f"`{choice}`" for choice in known["choices"] or known["words"]]
    if known["limits"]:
        least, most = known["limits"]
        values.append(f"from {least} to {most}" if most < 2**31 - 1 else f"{least} or more")
    default = "required" if known["required"] else _shown(field.default)
    if known["required"] and "by default" in known["help"]:
        default = "required, or found"
    what = known["help"] + (f" Values: {', '.join(values)}." if known["choices"] else "")
    if values and not known["choices"]:
        what += f" {'Here also' if known['words'] else 'Range:'} {', '.join(values)}."
    since = "new" if is_new or known["new"] else "2018"
    cells = (f"`--{field.name}`", default, since, what)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _shown(default: Any) -> str:
    if default is None or default == "":
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def main() -> None:
    """Writes all pages."""
    for script in SCRIPTS:
        text = page(script)
        (PAGES / f"{script}.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
