"""The import table: a row may import only what stands in the rows below it."""

import ast
import subprocess
import sys

import pytest

from tests.oracle import ROOT

PACKAGE = ROOT / "bert_tf"

ROWS = [
    ["scripts"],
    ["cli", "compat", "predictor"],
    ["tasks"],
    ["serving"],
    ["options", "training"],
    ["conversion"],
    ["progress"],
    ["evaluation"],
    ["optimization", "checkpoint"],
    ["data"],
    ["modeling"],
    ["batch_tokenization"],
    ["character_table", "fast_wordpiece", "token_offsets"],
    ["token_ids"],
    ["tokenization"],
    ["releases"],
    ["config"],
    ["file_names", "locks"],
    ["files", "replaced"],
    ["backend"],
    ["errors", "quiet"],
]
LEVEL = {room: level for level, row in enumerate(ROWS) for room in row}

# What may be imported from outside of the standard library, where it is not everything.
ALLOWED = {
    "__init__": set(),
    "compat": {"numpy"},
    "replaced": set(),
    "modeling": {"keras"},
    "conversion": {"h5py", "keras", "numpy", "tensorflow"},
    # Inside of functions.
    "conversion/safetensors_files": {"numpy", "safetensors"},
    "conversion/names": set(),
    "optimization": {"keras"},
    "evaluation": {"numpy"},
    # Inside of functions: an extra, and what takes long to import.
    "evaluation/entities": {"seqeval"},
    "evaluation/metrics": {"numpy", "scipy", "sklearn"},
    "evaluation/plots": {"matplotlib", "numpy", "sklearn"},
    "batch_tokenization": {"numpy"},
    # Inside of functions, where it can be.
    "fast_wordpiece": {"tensorflow", "tensorflow_text"},
    "character_table": {"numpy"},
    "token_ids": {"numpy"},
    "token_offsets": set(),
    "tokenization": set(),
    "releases": set(),
    "config": set(),
    "errors": set(),
    "locks": set(),
    "options": set(),
    "data/features": {"numpy"},
    "data/packing": {"numpy"},
    "data/text_windows": {"numpy"},
    "data/pretraining": {"numpy"},
    "data/corpus": set(),
    "data/shards": set(),
    "data/squad": set(),
    "data/squad_windows": {"numpy"},
    "data/masked_texts": {"numpy"},
    "data/conll": set(),
    "data/word_windows": {"numpy"},
    "data/word_segments": {"numpy"},
    "data/parallel": set(),
    "data/example_encoding": {"numpy"},
    "data/glue": set(),
    "data/tsv": set(),
    "data/tables": set(),
    "data/cell_values": set(),
    "data/csv_reader": set(),
    "data/split_files": set(),
    "data/label_inference": set(),
    "data/column_mapping": set(),
    # Inside of a function.
    "data/custom_dataset": {"sklearn"},
    "data/task_module": set(),
    "data/datasets": set(),
    "data/records": {"numpy", "tensorflow"},
    "data/input_pipeline": {"tensorflow"},
    "file_names": set(),
    "tasks/candidates": set(),
    # Inside of functions, for paths that name another file system.
    "files": {"tensorflow"},
    "quiet": {"tensorflow"},
    "backend": {"keras"},
    "scripts": set(),
    # Inside of a function: an extra.
    "tasks/beam_units": {"apache_beam"},
    "tasks/vocabulary": {"tensorflow_text"},
    # Flags here, and nowhere else.
    "cli": {"absl", "tensorflow"},
}
ANYWHERE_ELSE = {"keras", "numpy", "tensorflow", "tqdm"}

MODULES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))


def _imports(module):
    for node in ast.walk(ast.parse((PACKAGE / module).read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_downwards(module):
    room = module.removesuffix(".py").split("/")[0]
    if room == "__init__":
        assert set(_imports(module)) <= {"importlib.import_module", "typing.Any"}
    for name in _imports(module):
        parts = name.split(".")
        if parts[0] != "bert_tf":
            continue
        assert parts[1] in LEVEL, f"{module} imports {name}, which has no row"
        inside = parts[1] == room and "/" in module
        assert inside or LEVEL[parts[1]] > LEVEL[room], f"{module} may not import {name}"


@pytest.mark.parametrize("module", MODULES)
def test_outside_imports_are_those_of_the_table(module):
    path = module.removesuffix(".py")
    allowed = ALLOWED.get(path, ALLOWED.get(path.split("/")[0], ANYWHERE_ELSE))
    outside = {name.split(".")[0] for name in _imports(module)} - {"bert_tf"}
    assert outside - set(sys.stdlib_module_names) <= allowed


@pytest.mark.parametrize(
    "module",
    [
        "tokenization",
        "options",
        "data.features",
        "data.glue",
        "compat.run_classifier",
        "compat.run_squad",
        "compat.extract_features",
    ],
)
def test_text_is_handled_without_tensorflow(module):
    code = f"import sys, bert_tf.{module}; print({{'tensorflow', 'keras'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "set()", done.stderr
