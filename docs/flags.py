"""Generates the flag tables in docs/scripts/ from the scripts' options.

usage: python docs/flags.py

A test checks that the tables are up to date.
"""

import dataclasses
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bert_tf.options.cli import describe_default, describe_range, option_groups
from bert_tf.options.registry import SCRIPTS

PAGES = Path(__file__).parent / "scripts"
# Scripts that the original lacks; all their flags are marked as new.
NEW_SCRIPTS = ("run_ner", "run_multiple_choice", "predict_masked", "create_vocab")
NEW_SCRIPTS += ("run_embeddings", "run_ranking", "search_texts", "convert_checkpoint")
NEW_SCRIPTS += ("export_model", "serve_model")
_TABLE = re.compile(r"<!-- flags -->\n.*<!-- end of flags -->", re.S)


def page(script: str) -> str:
    """Returns the Markdown page of a script, with an updated flag table."""
    text = (PAGES / f"{script}.md").read_text(encoding="utf-8")
    updated, count = _TABLE.subn(lambda _: table(script), text)
    if count != 1:
        raise ValueError(f"docs/scripts/{script}.md must contain the flag markers exactly once")
    return updated


def table(script: str) -> str:
    """Returns a Markdown table of all flags of a script."""
    rows = ["| flag | default | since | description |", "|---|---|---|---|"]
    is_new = script in NEW_SCRIPTS
    for heading, options in option_groups(SCRIPTS[script].options_class).items():
        rows.append(f"| **{heading}** | | | |")
        rows += [_row(field, is_new) for field in options]
    since = "new" if is_new else "2018"
    rows += [f"| `--flagfile` | | {since} | Reads flags from a file, one per line. |"]
    return "\n".join(["<!-- flags -->", *rows, "<!-- end of flags -->"])


def _row(field: dataclasses.Field, is_new: bool) -> str:
    metadata = field.metadata
    required = metadata["required"]
    default = describe_default(field) if required else _format_default(field.default)
    description = metadata["help"] + describe_range(field)
    if metadata["choices"]:
        values = ", ".join(f"`{choice}`" for choice in metadata["choices"])
        description += f" Values: {values}."
    since = "new" if is_new or metadata["new"] else "2018"
    cells = (f"`--{field.name}`", default, since, description)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _format_default(default: Any) -> str:
    if default is None or default == "":
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def main() -> None:
    """Updates the flag tables of all pages."""
    for script in SCRIPTS:
        text = page(script)
        (PAGES / f"{script}.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
