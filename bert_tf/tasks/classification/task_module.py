"""A dataset from a user's Python file, whose class has the methods of BERT's `DataProcessor`.

Of `get_train_examples`, `get_dev_examples` and `get_test_examples`, a run needs only those whose
examples it reads. `get_labels` returns strings or integers, which name classes, or None if labels
are numbers. If the class sets `problem_type = "multilabel"`, or labels are lists, a text has any
number of labels: the attribute `label` or `labels` lists them, or has 0 or 1 for each class. If
`get_labels` returns None, it may also be a list of numbers, or a dict of numbers by name.
"""

import contextlib
import functools
import numbers
import os
import sys
import traceback
import types
from collections.abc import Iterator
from typing import Any

from bert_tf.base import files
from bert_tf.base.errors import UserError, counted, note, warn
from bert_tf.data.features import InputExample
from bert_tf.tasks.classification.datasets import SPLIT_NAMES, TextDataset, require_valid_labels
from bert_tf.tasks.classification.label_inference import LabelParser, target_names
from bert_tf.tasks.classification.options import CLASSIFICATION, MULTILABEL, REGRESSION

# Entry of `run.json` for `has_pairs`, and its values.
INPUTS = "inputs"
KINDS = {False: "single texts", True: "pairs", None: "single texts and pairs"}
_METHODS = {split: f"get_{name}_examples" for split, name in SPLIT_NAMES.items()}
_SHOWN_CHARACTERS = 200


class ModuleDataset(TextDataset):
    """A dataset of the examples that the methods of a user's object return for `data_dir`."""

    def __init__(self, task: Any, path: str, data_dir: str) -> None:
        self._task, self._path, self._data_dir = task, path, data_dir
        self.read = functools.cache(self.read)
        self.name = f"task {type(task).__name__}"
        labels = task.get_labels()
        if not isinstance(labels, list | tuple | None):
            expected = "get_labels() must return a list"
            raise UserError(f"{expected}. Received: {_short(labels)}", at=path)
        names = (str(x) if isinstance(x, numbers.Integral) else x for x in labels or ())
        self.labels = tuple(names)
        require_valid_labels(self.labels, f"{path}: get_labels()")
        allowed = (CLASSIFICATION, MULTILABEL) if self.labels else (REGRESSION,)
        self.problem_type = getattr(task, "problem_type", None) or allowed[0]
        if self.problem_type not in allowed:
            expected = f"problem_type must be {' or '.join(allowed)} with these get_labels()"
            raise UserError(f"{expected}. Received: {self.problem_type!r}", at=path)

    def read(self, split: str) -> list[InputExample]:
        """Calls the method for a split and checks its examples; for prediction, drops labels.

        From those for training, infers whether texts are pairs.
        """
        method = _METHODS[split]
        with _user_code(self._path):
            examples = list(getattr(self._task, method)(self._data_dir))
        labels = [_label_of(item) for item in examples if split != "predict"]
        are_lists = any(isinstance(label, list | dict) for label in labels)
        if are_lists and self.problem_type != REGRESSION:
            self.problem_type = MULTILABEL
        count = counted(len(examples), "example")
        are_numbers = self.problem_type == REGRESSION
        reason = ", because get_labels() returns no labels" * are_numbers
        note(f"{self.describe(split)}: {count}; {self.problem_type}{reason}")
        if are_numbers and split == "train" and examples:
            self.labels = target_names(labels[0])
        examples = [self._convert(item, split, index) for index, item in enumerate(examples)]
        are_pairs = {bool(example.text_b) for example in examples}
        if split == "train":
            self.has_pairs = are_pairs.pop() if len(are_pairs) == 1 else None
            self.entries = {INPUTS: KINDS[self.has_pairs]}
        elif self.has_pairs is not None and are_pairs != {self.has_pairs}:
            kind = KINDS[self.has_pairs]
            warn(f"the model was trained on {kind}", at=self.describe(split))
        return examples

    def describe(self, split: str) -> str:
        """Returns the name of the method that returns the split, and the user's file."""
        return f"{_METHODS[split]}() of {self._path}"

    def _convert(self, item: Any, split: str, index: int) -> InputExample:
        guid = getattr(item, "guid", None)
        guid = f"{SPLIT_NAMES[split]}-{index}" if guid is None else str(guid)
        place = f"{self._path}: example {' '.join(guid.split())} of {_METHODS[split]}()"
        text_a, text_b = getattr(item, "text_a", None), getattr(item, "text_b", None)
        if not isinstance(text_a, str) or not isinstance(text_b, str | None):
            texts = f"text_a is {_short(text_a)}, text_b is {_short(text_b)}"
            raise UserError(f"expected strings. Received: {texts}", at=place)
        if split == "predict":
            return InputExample(guid, text_a, text_b)
        label = _label_of(item)
        if isinstance(label, list) and len(label) == len(self.labels):
            values = [{"0.0": "0", "1.0": "1", "False": "0", "True": "1"}.get(x, x) for x in label]
            if {*values} <= {"0", "1"} and not {*values} <= {*self.labels}:
                label = dict(zip(self.labels, values, strict=True))
        parser = LabelParser(self.problem_type, tuple(self.labels))
        return InputExample(guid, text_a, text_b, parser.parse(label, place))


def _label_of(item: Any) -> Any:
    """Returns the label of an example as text, or a list or dict of texts; None if it has none."""
    label = getattr(item, "label", None)
    label = getattr(item, "labels", None) if label is None else label
    label = getattr(label, "tolist", lambda: label)()  # of NumPy
    if isinstance(label, dict):
        return {str(name): str(value) for name, value in label.items()}
    is_list = isinstance(label, list | tuple | set | frozenset)
    return [*map(str, label)] if is_list else None if label is None else str(label)


def load_task_module(path: str, data_dir: str) -> ModuleDataset:
    """Runs a user's Python file, and creates a dataset from its only class with task methods.

    Raises:
        UserError: the file is missing, is not Python or fails, or it does not have exactly one such
            class; the message names the line of an error in the file.
    """
    with files.open_binary(path) as file:
        source = file.read()
    stem = os.path.splitext(os.path.basename(path))[0]
    # Use a unique module name: the file may be called json.py.
    module = types.ModuleType(f"bert_tf_user_task_{stem}")
    module.__file__ = path
    # Dataclasses and pickle look up modules in `sys.modules`.
    sys.modules[module.__name__] = module
    with _user_code(path):
        exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)
        return ModuleDataset(_find_task_class(module, path)(), path, data_dir)


def _find_task_class(module: types.ModuleType, path: str) -> type:
    """Returns the only class with task methods in a module; its base classes do not count."""
    methods = _METHODS.values()
    classes = {
        value
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__
        if any(hasattr(value, method) for method in methods)
    }
    leaf_classes = [c for c in classes if not any(c in other.__mro__[1:] for other in classes)]
    if len(leaf_classes) != 1:
        found = ", ".join(sorted(cls.__name__ for cls in leaf_classes)) or "none"
        expected = f"one class that defines at least one of {', '.join(methods)}"
        raise UserError(f"expected {expected}. Received: {found}", at=path)
    return leaf_classes[0]


@contextlib.contextmanager
def _user_code(path: str) -> Iterator[None]:
    """Context for running a user's code: allows imports from its folder; errors name its line."""
    folder = os.path.dirname(os.path.abspath(path))
    sys.path.append(folder)
    try:
        yield
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [f":{frame.lineno}" for frame in frames if frame.filename == path]
        if isinstance(error, SyntaxError) and error.filename == path and error.lineno:
            lines.append(f":{error.lineno}")
        message = f"{type(error).__name__}: {_short(error)}".removesuffix(": ")
        raise UserError(f"{path}{lines[-1] if lines else ''}: {message}") from error
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(folder)


def _short(value: Any) -> str:
    """Shows a value, or the message of an error, on one line."""
    text = str(value) if isinstance(value, BaseException) else repr(value)
    return " ".join(text.split())[:_SHOWN_CHARACTERS]
