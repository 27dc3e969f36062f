"""The code of docs/own_tasks.md: `page` has its classes, and `PROGRAM` is what the page runs."""

import ast
import re
import sys
import types
from typing import Any

from tests.oracle import ROOT

_TEXT = (ROOT / "docs/own_tasks.md").read_text(encoding="utf-8")
_BODY = ast.parse("\n".join(re.findall(r"^```python\n(.*?)^```$", _TEXT, re.M | re.S))).body


def _is_definition(node: ast.stmt) -> bool:
    is_registration = ast.unparse(node).startswith("bert_tf.register(")
    return is_registration or isinstance(node, ast.Import | ast.ImportFrom | ast.ClassDef)


page: Any = types.ModuleType("own_tasks_page")
sys.modules[page.__name__] = page
exec("\n".join(ast.unparse(node) for node in _BODY if _is_definition(node)), vars(page))
PROGRAM = "\n".join(ast.unparse(node) for node in _BODY if not _is_definition(node))
