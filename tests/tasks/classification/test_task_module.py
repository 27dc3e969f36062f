"""User-defined task modules in the interface of the original release."""

import re
import sys
import textwrap

import pytest

from bert_tf.base.errors import UserError
from bert_tf.checkpoints.run_folder import RunFolder
from bert_tf.data.features import InputExample
from bert_tf.options import ClassifierOptions
from bert_tf.tasks.classification.dataset_factory import make_dataset
from bert_tf.tasks.classification.task_module import load_task_module

TASK = """
    from dataclasses import dataclass


    @dataclass
    class Example:
        guid: str
        text_a: str
        text_b: str = None
        label: object = None


    class Mine:
        def get_train_examples(self, data_dir):
            yield Example("a", data_dir, label="no")
            yield Example("b", "text", "pair", "yes")

        def get_test_examples(self, data_dir):
            return [Example("c", "text", None, "whatever")]

        def get_labels(self):
            return ["yes", "no"]
"""


@pytest.fixture
def write(tmp_path):
    def write(content: str | bytes) -> str:
        path = tmp_path / "my_task.py"
        raw = textwrap.dedent(content).encode() if isinstance(content, str) else content
        path.write_bytes(raw)
        return str(path)

    return write


MULTI = 'problem_type = "multilabel"'


def module(examples: str, labels: str = '["yes", "no"]', extra_code: str = "") -> str:
    """Returns the source of a task module with these training examples."""
    return f"""
    from bert_tf.compat.run_classifier import InputExample as Example, PaddingInputExample
    class Mine:
        {extra_code}
        def get_train_examples(self, data_dir):
            return {examples}
        def get_labels(self):
            return {labels}
    """


def test_task_module(write):
    path = write(TASK)
    dataset = load_task_module(path, "folder")
    assert (dataset.name, dataset.problem_type) == ("task Mine", "classification")
    assert dataset.labels == ("yes", "no")
    assert dataset.read("train") == [
        InputExample("a", "folder", None, "no"),
        InputExample("b", "text", "pair", "yes"),
    ]
    assert dataset.read("predict") == [InputExample("c", "text", None, None)]
    assert dataset.describe("train") == f"get_train_examples() of {path}"
    with pytest.raises(UserError, match=r"my_task.py: .* no attribute 'get_dev_examples'"):
        dataset.read("eval")


def test_multi_label_task(write):
    examples = '[Example("a", "x", None, ["no", "yes", "no"]), Example("b", "y", None, ())]'
    dataset = load_task_module(write(module(examples, extra_code=MULTI)), "")
    assert dataset.problem_type == "multilabel"
    assert [example.label for example in dataset.read("train")] == [("yes", "no"), ()]


@pytest.mark.parametrize("attribute", ["label", "labels"])
@pytest.mark.parametrize("labels", ["[1, 0]", "np.array([1.0, 0.0])", "(True, False)", "['yes']"])
def test_lists_are_multi_label(write, attribute, labels):
    """As in the forks of the original for several labels per text."""
    extra = f"""
        import numpy as np
        class Item:
            def __init__(self, text, labels):
                self.guid, self.text_a, self.text_b, self.{attribute} = 1, text, None, labels
        items = [Item("x", {labels}), Item("y", [0, 0])]
    """
    code = module("self.items", extra_code=extra.strip())
    data = load_task_module(write(code), "")
    assert [example.label for example in data.read("train")] == [("yes",), ()]
    assert data.problem_type == "multilabel"


def test_labels_may_be_numbers_and_have_spaces_around_them(write):
    examples = '[Example("a", "x", None, 0), Example("b", "y", None, " 1")]'
    dataset = load_task_module(write(module(examples, '["0", " 1"]')), "")
    assert [example.label for example in dataset.read("train")] == ["0", " 1"]


@pytest.mark.parametrize(
    ("numbers", "labels", "expected"),
    [
        ("2, ' -0.5'", (), ["2", "-0.5"]),
        ("(2, 1.5), [1.0, 0]", ("0", "1"), [("2", "1.5"), ("1.0", "0")]),
        ("{'a': 1, 2: 3}, {'2': 0, 'a': 4}", ("a", "2"), [("1", "3"), ("4", "0")]),
    ],
)
def test_regression_task(write, numbers, labels, expected):
    examples = f'[Example(n, "x", None, label) for n, label in enumerate([{numbers}])]'
    dataset = load_task_module(write(module(examples, "[]")), "")
    assert [example.label for example in dataset.read("train")] == expected
    assert (dataset.problem_type, dataset.labels) == ("regression", labels)
    assert dataset.read("train")[1].guid == "1"


def test_module_imports_from_its_folder(write, tmp_path):
    (tmp_path / "helper_of_my_task.py").write_text("LABELS = ['a', 'b']\n")
    original_path = list(sys.path)
    content = module("[]", "self.labels", "from helper_of_my_task import LABELS as labels")
    dataset = load_task_module(write(content), "")
    assert dataset.labels == ("a", "b")
    assert dataset.read("train") == []
    assert sys.path == original_path


def test_subclassed_processor(write):
    code = TASK + "\n    class Other(Mine):\n        pass\n    Again = Other\n"
    assert load_task_module(write(code), "").name == "task Other"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("x = 1\nclass Mine\n", r":2: SyntaxError: expected ':' \(my_task.py, line 2\)"),
        (b"x = '\xe9'\n", r"(:\d)?: SyntaxError: "),
        ("x = 1\n\nx.y\n", ":3: AttributeError: 'int' object has no attribute 'y'"),
        ("import json\ndef f():\n    json.loads('{')\n\nf()\n", ":3: JSONDecodeError: Expecting"),
        ("raise ValueError('''one\ntwo''')\n", ":1: ValueError: one two"),
        ("raise SystemExit\n", ":1: SystemExit"),
        (
            "x = 1\n",
            ": expected one class that defines at least one of get_train_examples, .* none$",
        ),
        (
            module("[]") + module("[]").replace("Mine", "Yours"),
            r": expected one class .*: Mine, Yours",
        ),
        (
            "class A:\n    get_dev_examples = 1\n",
            ": AttributeError: 'A' object has no attribute 'get_labels'",
        ),
        (
            module("[]", extra_code="def __init__(self, x): pass"),
            ": TypeError: .*missing 1 required",
        ),
        (module("[]", "1 / 0"), ":8: ZeroDivisionError: division by zero"),
        (module("[]", '"yes"'), r": get_labels\(\) must return a list. Received: 'yes'"),
        (
            module("[]", "[0.5, 1]"),
            r": get_labels\(\): label 1 is a duplicate, or not one line of text: 0\.5",
        ),
        (module("[]", '["a", "a"]'), r": get_labels\(\): label 2 is a duplicate"),
        (
            module("[]", extra_code='problem_type = "regression"'),
            r": problem_type must be classification or multilabel .*'regression'",
        ),
        (
            module("[]", "None", MULTI),
            ": problem_type must be regression .*'multilabel'",
        ),
    ],
)
def test_invalid_modules(write, content, message):
    path = write(content)
    with pytest.raises(UserError, match=re.escape(path) + message) as error:
        load_task_module(path, "")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("labels", ["[0, 1]", "list(__import__('numpy').arange(2))"])
def test_labels_may_be_integers(write, labels):
    dataset = load_task_module(write(module('[Example("a", "b", "", 1)]', labels)), "")
    assert (dataset.labels, dataset.read("train")[0].label) == (("0", "1"), "1")
    assert dataset.problem_type == "classification"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (module("None"), ": TypeError: 'NoneType' object is not iterable"),
        (module("open(data_dir)"), ":6: IsADirectoryError: "),
        (
            module("[Example(1)]"),
            ":6: TypeError: .*missing 1 required positional argument: 'text_a'",
        ),
        (
            module("[PaddingInputExample()]"),
            ": example train-0 of .*: expected strings. Received: text_a is None",
        ),
        (module('[Example("a", None)]'), ": example a of .*: text_a is None, text_b is None"),
        (module('[Example("a", "b", 3)]'), ": example a of .*: expected strings. .*text_b is 3"),
        (
            module('[Example("a", "b")]'),
            ": example a of .*: the label must be a string or a finite number",
        ),
        (module('[Example("a", "b", "", "maybe")]'), r"label 'maybe' is not one of yes, no"),
        (module('[Example("a", "b", "", ["n"])]'), "'n' is not one of yes, no"),
        (module('[Example("a", "b", "", [0, 2])]'), "'0' is not one of yes, no"),
        (module('[Example("a", "b", "", "n")]', extra_code=MULTI), "'n' is not one of"),
        (module('[Example("a", "b", "", ["x"])]', extra_code=MULTI), "'x' is not one of"),
        (module('[Example("a", "b", "", float("nan"))]', "None"), "label 'nan' is not a number"),
        (module('[Example("a", "b", "", "x")]', "None"), "label 'x' is not a number"),
    ],
)
def test_invalid_examples(write, tmp_path, content, message):
    path = write(content)
    dataset = load_task_module(path, str(tmp_path))
    with pytest.raises(UserError, match=f"{re.escape(path)}.*{message}") as error:
        dataset.read("train")
    assert "\n" not in str(error.value)


def test_missing_modules(tmp_path):
    with pytest.raises(UserError, match=r"No such file: .*missing\.py"):
        load_task_module(str(tmp_path / "missing.py"), "")
    with pytest.raises(UserError, match="must be a file, but is a folder"):
        load_task_module(str(tmp_path), "")


def test_labels_in_another_order_than_in_training(write, tmp_path):
    (tmp_path / "labels.txt").write_text("no\nyes\n")
    flags = {"task_module": write(TASK), "init_checkpoint": str(tmp_path), "do_predict": True}
    options = ClassifierOptions(**flags)
    with pytest.raises(UserError, match=r"has the labels yes, no, .*no, yes") as error:
        make_dataset(options, RunFolder.used_by(options))
    assert "get_labels() must return the same list" in (error.value.fix or "")
