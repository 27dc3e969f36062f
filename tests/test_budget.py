"""Budgets of the code: messages, checks, names of other libraries, modules at the top.

To add a message or a check beyond its budget, remove another. CONTRIBUTING.md gives the rules.
"""

import ast
import re

from tests.oracle import ROOT

PACKAGE = ROOT / "bert_tf"
SOURCES = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in PACKAGE.rglob("*.py")}
TREES = {name: ast.parse(source) for name, source in SOURCES.items()}
NUM_LINES = sum(source.count("\n") for source in SOURCES.values())
NUM_LINES += sum(path.read_text().count("\n") for path in ROOT.glob("*_*.py"))
CHECK = re.compile(r"_*(check|warn|require|report)(?!point)")
_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


def called(node):
    """Returns the name of the function that an expression calls."""
    function = node.func if isinstance(node, ast.Call) else None
    return getattr(function, "id", getattr(function, "attr", ""))


def template(node, values, depth=3):
    """Returns a text with {} for each value; names stand for what a function assigns to them."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.Name) and node.id in values and depth:
        return template(values[node.id], values, depth - 1)
    if isinstance(node, ast.JoinedStr):
        return "".join(template(x, values, depth) for x in node.values)
    if isinstance(node, ast.FormattedValue):
        return template(node.value, values, depth) if isinstance(node.value, ast.Name) else "{}"
    if isinstance(node, ast.BinOp):
        return template(node.left, values, depth) + template(node.right, values, depth)
    if isinstance(node, ast.IfExp):
        return f"{template(node.body, values, depth)}|{template(node.orelse, values, depth)}"
    return "{}"


def messages():
    """Returns the templates of problems and fixes in errors and warnings, and what checks yield."""
    errors = {"ValueError", "TypeError", "AttributeError", "KeyError", "ImportError", "UserError"}
    errors |= {
        node.name
        for tree in TREES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and {"UserError", "Exception"} & {*map(ast.unparse, node.bases)}
    }
    found = set()
    for tree in TREES.values():
        for function in (node for node in ast.walk(tree) if isinstance(node, _FUNCTION)):
            nodes = [*ast.walk(function)]
            assigned = [x for x in [*tree.body, *nodes] if isinstance(x, ast.Assign)]
            values = {
                x.targets[0].id: x.value for x in assigned if isinstance(x.targets[0], ast.Name)
            }
            texts = [
                text
                for node in nodes
                if called(node) in {*errors, "warn", "warning"}
                for text in [*node.args[:1], *(keyword.value for keyword in node.keywords)]
            ]
            if CHECK.match(function.name):
                texts += [x.value for x in nodes if isinstance(x, ast.Yield) and x.value]
            found |= {template(text, values) for text in texts}
    return {text for text in found if " " in text.strip("{} ")}


def check_lines():
    """Returns the numbers of lines of code that check or warn, and of all lines of code."""
    num_checks = num_all = 0
    for tree in TREES.values():
        lines, checks = set(), set()
        for node in (x for x in ast.walk(tree) if isinstance(x, ast.stmt)):
            is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            if is_text or isinstance(node, ast.Import | ast.ImportFrom):
                continue
            body = getattr(node, "body", None)
            end = max(node.lineno, body[0].lineno - 1) if body else node.end_lineno
            lines |= {*range(node.lineno, end + 1)}
            is_check = isinstance(node, ast.FunctionDef) and CHECK.match(node.name)
            if is_check or says(node):
                checks |= {*range(node.lineno, node.end_lineno + 1)}
        num_checks, num_all = num_checks + len(lines & checks), num_all + len(lines)
    return num_checks, num_all


def says(node):
    """Returns whether a statement only raises a UserError, or warns, under whatever condition."""
    if isinstance(node, ast.Raise):
        return "UserError" in ast.unparse(node)
    if isinstance(node, ast.If):
        return all(map(says, [*node.body, *node.orelse]))
    return isinstance(node, ast.Expr) and called(node.value) in ("warn", "warning")


def test_messages_are_few():
    assert len(messages()) <= 19 * NUM_LINES / 1000


def test_checks_are_a_small_part():
    num_checks, num_all = check_lines()
    assert num_checks <= 0.105 * num_all


def test_top_of_the_package_is_a_hall():
    modules = [n for n, s in SOURCES.items() if "/" not in n and s.count("\n") > 10]
    assert sorted(modules) == [
        "__init__.py",
        "config.py",
        "lint.py",
        "optimization.py",
        "releases.py",
        "scripts.py",
    ]


def test_no_code_reads_a_message():
    pattern = r"str\((error|exception)\)\s*\.\s*\w|logging\.Filter|(?<!get_logger\(\))\.addFilter\("
    readers = {name for name, source in SOURCES.items() if re.search(pattern, source)}
    # These reword errors of absl, of TensorFlow and of Beam.
    assert readers <= {"options/cli.py", "base/errors.py", "data/beam.py"}
