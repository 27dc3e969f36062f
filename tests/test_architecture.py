"""Import rules: a module may only import modules of lower rows of `ROWS`."""

import ast
import re
import sys

import pytest

from tests.oracle import ROOT
from tests.processes import run_python

PACKAGE = ROOT / "bert_tf"

ROWS = [
    # Documented aliases.
    [
        "backend",
        "batch_tokenization",
        "checkpoint",
        "cli",
        "conversion",
        "declare",
        "errors",
        "estimators",
    ],
    ["extract_features", "predictor", "quiet", "registry", "run_classifier", "run_squad"],
    ["text_inputs"],
    ["scripts"],
    ["compat", "serving"],
    ["search"],
    ["api"],
    ["commands", "tasks"],
    ["finetuning"],
    ["report"],
    ["runs"],
    ["saved_models"],
    ["training"],
    ["inference"],
    ["checkpoints"],
    ["optimization"],
    ["data"],
    ["modeling"],
    # The registry names functions of all rows and imports them lazily.
    ["options"],
    ["tokenization"],
    ["releases"],
    ["config"],
    ["lint"],
    ["tables"],
    ["base"],
]
LEVEL = {package: level for level, row in enumerate(ROWS) for package in row}

# Allowed third-party imports of packages and modules; the most specific path applies.
ALLOWED_IMPORTS = {
    "__init__": set(),
    # Inside functions only.
    "api": {"numpy", "sklearn"},
    "api/predictor": {"numpy"},
    "api/rows": {"numpy"},
    "api/text_inputs": {"numpy"},
    "base": set(),
    # Matplotlib inside functions only.
    "base/charts": {"matplotlib", "numpy"},
    # Inside functions only, for paths on remote file systems.
    "base/files": {"tensorflow"},
    "base/progress": {"tqdm"},
    "base/quiet": {"tensorflow"},
    "checkpoints": {"keras", "numpy", "tensorflow"},
    "checkpoints/formats/keras_files": {"h5py", "keras", "numpy"},
    "checkpoints/formats/keras_h5": {"h5py", "numpy"},
    # Inside functions only.
    "checkpoints/formats/hugging_face": {"numpy", "safetensors"},
    "compat": {"numpy"},
    "compat/transformers": {"keras", "numpy", "optree"},
    "config": set(),
    "data": {"numpy"},
    "data/input_pipeline": {"tensorflow"},
    "data/records": {"numpy", "tensorflow"},
    "inference": {"numpy"},
    "lint": {"numpy"},
    "modeling": {"keras"},
    "optimization": {"keras"},
    "options": set(),
    # absl flags are only used here.
    "options/cli": {"absl"},
    "releases": set(),
    "report": {"numpy"},
    "scripts": set(),
    "serving": {"fastapi", "numpy", "prometheus_client", "pydantic", "starlette", "uvicorn"},
    "serving/options": set(),
    "serving/connections": {"uvicorn"},
    # Inside functions only.
    "serving/server": {"uvicorn"},
    "tasks/classification": {"numpy"},
    # Inside functions only.
    "tasks/classification/custom_dataset": {"sklearn"},
    "tasks/classification/metrics": {"matplotlib", "numpy", "scipy", "sklearn"},
    "commands/create_vocab": {"tensorflow_text"},
    "tables": set(),
    "tokenization": set(),
    "tokenization/fast": {"numpy"},
    # Inside functions where possible.
    "tokenization/fast_wordpiece": {"tensorflow", "tensorflow_text"},
    "tokenization/graph": {"numpy", "tensorflow"},
    "tokenization/ragged_ids": {"numpy"},
    "training/curve": {"numpy", "tensorflow"},
}
# Modules of options, which load without third-party packages.
OPTION_MODULES = re.compile(r"(commands|finetuning|search|tasks/\w+)/(\w*options|__init__)")
DEFAULT_IMPORTS = {"keras", "numpy", "tensorflow", "tqdm"}

MODULES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))


def _imports(module):
    for node in ast.walk(ast.parse((PACKAGE / module).read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: imports must be absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("module", MODULES)
def test_imports_only_lower_rows(module):
    package = module.removesuffix(".py").split("/")[0]
    if package == "__init__":
        assert set(_imports(module)) <= {"importlib.import_module", "typing.Any"}
    for name in _imports(module):
        parts = name.split(".")
        if parts[0] != "bert_tf":
            continue
        assert parts[1] in LEVEL, f"{module} imports {name}, which is not in ROWS"
        same_package = parts[1] == package and "/" in module
        assert same_package or LEVEL[parts[1]] > LEVEL[package], f"{module} may not import {name}"


@pytest.mark.parametrize("module", [module for module in MODULES if module.count("/") == 2])
def test_tasks_do_not_import_each_other(module):
    package, task, _ = module.split("/")
    for name in _imports(module) if package == "tasks" else ():
        parts = name.split(".")
        if parts[:2] == ["bert_tf", "tasks"]:
            assert parts[2] == task, f"{module} may not import {name}"


@pytest.mark.parametrize("module", MODULES)
def test_third_party_imports_are_allowed(module):
    path = module.removesuffix(".py")
    prefixes = [path.rsplit("/", depth)[0] for depth in range(path.count("/") + 1)]
    allowed = next(
        (ALLOWED_IMPORTS[prefix] for prefix in prefixes if prefix in ALLOWED_IMPORTS),
        DEFAULT_IMPORTS,
    )
    if OPTION_MODULES.fullmatch(path):
        allowed = set()
    third_party = {name.split(".")[0] for name in _imports(module)} - {"bert_tf"}
    assert third_party - set(sys.stdlib_module_names) <= allowed


@pytest.mark.parametrize(
    "module",
    [
        "tokenization",
        "tokenization.fast",
        "options",
        "data.features",
        "data.packing",
        "predictor",
        "serving.app",
        "tasks.classification.glue",
        "tasks.classification.task",
        "tasks.feature_extraction.extraction",
        "tasks.multiple_choice.task",
        "tasks.question_answering.task",
        "tasks.token_classification.task",
        "compat.run_classifier",
        "compat.run_squad",
        "compat.extract_features",
    ],
)
def test_module_does_not_import_tensorflow(module):
    code = f"import sys, bert_tf.{module}; print({{'tensorflow', 'keras'}} & set(sys.modules))"
    result = run_python("-c", code)
    assert result.stdout.strip() == "set()", result.stderr


def test_help_does_not_import_numpy():
    code = "import sys, bert_tf.options.cli, bert_tf.options as o; o.SquadOptions; "
    code += "o.ClassifierOptions; print('numpy' in sys.modules)"
    result = run_python("-c", code)
    assert result.stdout.strip() == "False", result.stderr
