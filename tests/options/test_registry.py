"""The registry lists all scripts, which have entry points and docs pages."""

import re

import pytest

from bert_tf import options
from bert_tf.base.errors import UserError
from bert_tf.options import registry
from tests.oracle import ROOT

SCRIPTS = sorted(registry.SCRIPTS)


def test_scripts_have_entry_points_and_docs_pages():
    assert sorted(path.stem for path in ROOT.glob("*.py") if path.stem != "setup") == SCRIPTS
    assert sorted(path.stem for path in (ROOT / "docs" / "scripts").glob("*.md")) == SCRIPTS
    setup = (ROOT / "setup.py").read_text()
    assert sorted(re.findall(r"bert_tf\.scripts:(\w+)", setup)) == SCRIPTS
    assert "py_modules" not in setup
    pages = re.findall(r"scripts/(\w+)\.md", (ROOT / "mkdocs.yml").read_text())
    assert sorted(pages) == SCRIPTS


@pytest.mark.parametrize("name", SCRIPTS)
def test_registered_functions_exist(name):
    script = registry.SCRIPTS[name]
    assert registry.script_of(script.options_class) == name
    for reference in filter(None, (script.make_task, script.run, script.make_predict_fn)):
        assert callable(registry.load(reference))
    assert bool(script.make_task) != bool(script.run)


def test_names_of_heads_are_those_of_the_models():
    for script in registry.SCRIPTS.values():
        model = registry.load(script.model)
        assert script.head == (model.head_format.name if model else None)


def test_unregistered_class_has_no_script():
    with pytest.raises(UserError, match="str belongs to no registered task"):
        registry.run("tsv")


def test_options_classes_are_listed():
    assert {"NerOptions", "PretrainingDataOptions", "FineTuningOptions"} <= {*dir(options)}
    with pytest.raises(ImportError, match=r"no CreatePretrainingDataOptions, only .*DataOptions"):
        _ = options.CreatePretrainingDataOptions
    assert not hasattr(options, "ner")
    # The table in the docs is complete.
    names = set(
        re.findall(
            r"^\| `(\w+)\.py` \| `(\w+)` \|$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE
        )
    )
    expected = {(n, script.options_class.__name__) for n, script in registry.SCRIPTS.items()}
    assert names == expected
