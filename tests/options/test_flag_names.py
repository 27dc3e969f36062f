"""The framework knows no flag of a single task: what it needs, options and tasks declare."""

import ast
import dataclasses
import re

import pytest

from bert_tf.finetuning.options import FineTuningOptions
from bert_tf.options import registry
from tests.oracle import ROOT

FRAMEWORK = ("finetuning", "inference", "options", "runs", "training")
# Names that are also those of arguments.
OTHER_MEANINGS = {"batch_size", "loss_scale", "num_train_steps", "num_warmup_steps"}
# Advice for all scripts that have such a flag, and for all that export.
ALLOWED = {"eval_batch_size", "export_dir"}


def task_flags():
    names = {
        field.name
        for script in registry.SCRIPTS.values()
        for field in dataclasses.fields(script.options_class)
    }
    # Single words, such as "labels", have other meanings, too.
    own = {name for name in names if "_" in name and not hasattr(FineTuningOptions, name)}
    return own - OTHER_MEANINGS - ALLOWED


def used_names(tree):
    """Yields attributes of options, strings, and flags in messages."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and "options" in ast.unparse(node.value):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from (node.value, *re.findall(r"--(\w+)", node.value))


@pytest.mark.parametrize("folder", FRAMEWORK)
def test_framework_knows_no_flag_of_a_single_task(folder):
    flags = task_flags()
    assert {"long_text", "null_score_diff_threshold", "task_name", "doc_stride"} <= flags
    paths = {*(ROOT / "bert_tf" / folder).glob("*.py")}
    for path in paths - {ROOT / "bert_tf/options/registry.py"}:  # describes all scripts
        found = flags & {*used_names(ast.parse(path.read_text()))}
        assert not found, f"{path.name}: {found}"


# Flags of absl, placeholders, and a flag of Beam.
NO_OPTIONS = {"flagfile", "help", "helpfull", "helpshort", "flag", "name", "runner"}
SCRIPT_NAME = re.compile(r"\b(\w+)\.py\b")
# A complete name, and a value that is one word.
FLAG = re.compile(r"--([a-z]\w*)(?![\w{%])(?:=([a-z]\w*)(?![\w{%.]))?")


def messages(tree):
    """Yields strings that are not docstrings; in f-strings, {} stands for each value."""
    skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped |= {*map(id, node.values)}
            yield "".join(
                part.value if isinstance(part, ast.Constant) else "{}" for part in node.values
            )
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in skipped
        ):
            yield node.value


def options_of(path, message):
    """Returns (name, option) for the scripts that a message names, or whose code it is in."""
    scripts, folder = registry.SCRIPTS, path.relative_to(ROOT / "bert_tf").parts[:-1]
    found = scripts.keys() & {*SCRIPT_NAME.findall(message)}
    if folder and folder[0] in ("tasks", "commands"):
        package = ".".join(("bert_tf", *folder))
        found |= {name for name in scripts if scripts[name].options.startswith(package)}
    classes = [scripts[name].options_class for name in found or scripts]
    return [(field.name, field) for cls in classes for field in dataclasses.fields(cls)]


def is_valid(name, value, options):
    """Returns whether an option has this name and, if it has choices, this value."""
    found = [field for other, field in options if other == name]
    choices = [
        ("true", "false") if isinstance(field.default, bool) else field.metadata["choices"]
        for field in found
    ]
    return any(not value or not values or value in values for values in choices)


def test_messages_name_flags_that_exist():
    found = []
    for path in (ROOT / "bert_tf").rglob("*.py"):
        for message in messages(ast.parse(path.read_text())):
            flags = [flag for flag in FLAG.findall(message) if flag[0] not in NO_OPTIONS]
            if "Beam's own syntax" in message or "tf_xla" in message:
                continue
            found += flags
            for name, value in flags:
                options = options_of(path, message)
                assert is_valid(name, value, options), f"{path}: --{name}={value} in {message!r}"
    assert len(found) > 100


@pytest.mark.parametrize(
    "message", ["Pass --quotes=yes", "--quoted=true", "--top_k=3 (run_ner.py)"]
)
def test_other_flags_are_found(message):
    options = options_of(ROOT / "bert_tf/tasks/classification/options.py", message)
    ((name, value),) = FLAG.findall(message)
    assert not is_valid(name, value, options)
