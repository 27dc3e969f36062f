"""The framework knows no flag of a single task: what it needs, options and tasks declare."""

import ast
import dataclasses
import re

import pytest

from bert_tf import registry
from bert_tf.options.fine_tuning import FineTuningOptions
from tests.oracle import ROOT

FRAMEWORK = ("finetuning", "inference", "options", "runs", "training")
# Names that are also those of arguments.
OTHER_MEANINGS = {"batch_size", "num_train_steps", "num_warmup_steps"}
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
    for path in (ROOT / "bert_tf" / folder).glob("*.py"):
        found = flags & {*used_names(ast.parse(path.read_text()))}
        assert not found, f"{path.name}: {found}"
