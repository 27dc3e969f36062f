"""What all estimators have in common: parameters, training, the files of the model, history."""

import dataclasses
import difflib
import inspect
import itertools
import json
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert_tf import checkpoints, files, registry
from bert_tf.checkpoints.run_folder import CURVE, EVAL_RESULTS_JSON, EVALUATIONS, RUN, RunFolder
from bert_tf.declare import DEVICES, RESULTS
from bert_tf.errors import UserError
from bert_tf.estimators.rows import Data, kept_random_state, to_array, write_rows
from bert_tf.predictor import Predictor
from bert_tf.progress import show_table
from bert_tf.text_inputs import items_of

# Number of texts that `predict` passes to the model at a time, which bounds its memory.
_CHUNK_SIZE = 4096
# Files of a run that a saved model does not need; the checkpoint is written anew.
_NOT_SAVED = re.compile(r".*\.tf_record.*|records\.json|events\..*|checkpoint|.*\.ckpt.*|\..*")
# The entry of `run.json` with `classes` and `as_columns`, which only an estimator knows.
_ENTRY = "estimator"


class Estimator:
    """Base class; a subclass says which script it is, and what texts and labels are."""

    _script = "run_classifier"
    # Options that are no parameters, and defaults that differ from the script's: a second `fit`
    # starts anew.
    _hidden: frozenset[str] = frozenset()
    _defaults: Mapping[str, Any] = {"resume": "never"}
    _estimator_type: str | None = None  # of scikit-learn

    def __init_subclass__(cls) -> None:
        fields = dataclasses.fields(registry.SCRIPTS[cls._script].options_class)
        options = {field.name: field.default for field in fields if field.name not in cls._hidden}
        cls._defaults = {"init_checkpoint": None, **options, **cls._defaults}
        # Shown by editors.
        names, keyword = iter(cls._defaults), inspect.Parameter.KEYWORD_ONLY
        first = inspect.Parameter(
            next(names), inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None
        )
        others = [inspect.Parameter(x, keyword, default=cls._defaults[x]) for x in names]
        cls.__signature__ = inspect.Signature([first, *others])

    def __init__(self, init_checkpoint: Any = None, **flags: Any) -> None:
        vars(self).update(self._defaults)
        self.history: dict[str, np.ndarray] = {}
        self._folder: RunFolder | None = None  # of the trained model
        self._predictor: Predictor | None = None
        self._remove_folder: Any = int  # does nothing
        self.set_params(init_checkpoint=init_checkpoint, **flags)

    @classmethod
    def from_checkpoint(cls, init_checkpoint: str | os.PathLike, **flags: Any) -> Any:
        """Returns an estimator that `fit` trains from a checkpoint; the same as the constructor."""
        return cls(init_checkpoint, **flags)

    @classmethod
    def load(cls, folder: str | os.PathLike, **flags: Any) -> Any:
        """Opens a trained model: a folder that `save` or the script wrote.

        Args:
            folder: path of the folder.
            flags: flags that override those of the training: of devices and batches, such as
                `engine`, for predictions; all others for `fit`.

        Raises:
            UserError: it is not the folder of such a model.
        """
        trained = RunFolder(os.path.expanduser(os.fspath(folder)))
        if not trained.find(RUN):
            raise UserError(f"{trained} is not the folder of a trained model: it has no {RUN}")
        trained.require_script(cls._script)
        known = {name: value for name, value in trained.flags.items() if name in cls._defaults}
        estimator = cls(**known | {"output_dir": None, "resume": "never"} | flags)
        estimator._use(trained)
        estimator._require_kind()
        estimator._open()
        return estimator

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Returns the flags by name; `deep` has no effect."""
        return {name: getattr(self, name) for name in self._defaults}

    def set_params(self, **flags: Any) -> Any:
        """Sets flags for the next `fit`; raises a UserError if one does not exist."""
        for name in flags.keys() - self._defaults.keys():
            close = difflib.get_close_matches(name, self._defaults, n=1)
            advice = f"Did you mean {close[0]}?" if close else "get_params() lists them"
            raise UserError(f"{type(self).__name__} has no parameter {name!r}. {advice}")
        vars(self).update(flags)
        self._predictor = None
        return self

    def fit(self, texts: Any, labels: Any, validation: Any = None, **flags: Any) -> Any:
        """Trains a model from `init_checkpoint`, as the script does with the same data and flags.

        After Ctrl-C, or the stop button of a notebook, the model trained so far can be used.

        Args:
            texts: a list, tuple, array, Series, generator or another iterable.
            labels: the same, with a label for each text.
            validation: (texts, labels) to evaluate on after training and, with `eval_every`, at
                intervals, to keep the best weights.
            flags: flags for this call only.

        Returns:
            The estimator itself.

        Raises:
            UserError: texts, labels or flags are invalid. An earlier model remains.
        """
        values = type(self)(**self.get_params() | flags).get_params()
        if values["output_dir"] and values["resume"] == "never":
            if newest := RunFolder(os.fspath(values["output_dir"])).newest:
                advice = "Choose another one, or pass resume='auto' to continue that run"
                raise UserError(f"output_dir already has a run: {newest}. {advice}")
        if values["eval_every"] and validation is None and not values.get("dev_fraction"):
            raise UserError("eval_every needs fit(..., validation=(texts, labels))")
        with tempfile.TemporaryDirectory(prefix="bert_tf_") as temporary:
            data = Data(os.path.join(temporary, "train.jsonl"))
            write_rows(data, texts, labels, self._to_row)
            values |= self._run_flags(data) | {"train_file": data.path, "do_train": True}
            eval_data = dataclasses.replace(data, path=f"{data.path[:-11]}eval.jsonl")
            eval_data.unit = "validation text"
            if validation is not None:
                write_rows(eval_data, *validation, self._to_row)
                values |= {"eval_file": eval_data.path, "do_eval": True}
            if not values["output_dir"]:
                # Only the last checkpoint is of use.
                values |= {"output_dir": os.path.join(temporary, "run"), "keep_checkpoint_max": 1}
            self._train(values, data, eval_data)
        return self

    def _to_row(self, text: Any, label: Any, data: Data) -> dict[str, Any]:
        """Converts a text and its label to a row of the file that the script reads."""
        raise NotImplementedError

    def _to_input(self, text: Any, place: str) -> Any:
        """Converts a text to the input of a `Predictor`."""
        raise NotImplementedError

    def _run_flags(self, data: Data) -> dict[str, Any]:
        """Returns the flags with which the script reads the rows."""
        return {}

    def _require_kind(self) -> None:
        """Raises a UserError if the model is one for another estimator."""

    def _train(self, values: Mapping[str, Any], data: Data, eval_data: Data) -> None:
        """Runs the script and uses its model; also after Ctrl-C, if it has a checkpoint."""
        options_class, folder = registry.SCRIPTS[self._script].options_class, values["output_dir"]
        try:
            with kept_random_state(), data.named_in_messages(), eval_data.named_in_messages():
                registry.run(options_class(**values))
        except KeyboardInterrupt:
            newest = RunFolder(folder).newest
            if newest and checkpoints.step_of(newest):
                self._adopt(RunFolder(folder), data)
            raise
        self._adopt(RunFolder(folder), data)
        names = [name for name in self.history if name.startswith("eval_")]
        columns = [self.history[name].tolist() for name in names]
        show_table([name.removeprefix("eval_") for name in names], zip(*columns, strict=True))

    def _adopt(self, folder: RunFolder, data: Data) -> None:
        """Uses the model of a run; notes in `run.json` what only an estimator knows."""
        classes = [data.names.get(name, name) for name in folder.labels() or []]
        values = [x.item() if isinstance(x, np.generic) else x for x in classes]
        entry = {_ENTRY: {"classes": values, "as_columns": data.as_columns}}
        run = files.read_json(folder.file(RUN)) | entry
        files.write_text(folder.file(RUN), json.dumps(run, indent=1) + "\n")
        is_temporary = os.path.dirname(folder.path) == os.path.dirname(data.path)
        if is_temporary:
            run_folder, folder = folder, RunFolder(tempfile.mkdtemp(prefix="bert_tf_"))
            _copy_model(run_folder, folder.path)
        self._use(folder, classes, is_temporary)

    def _use(self, folder: RunFolder, classes: Sequence[Any] = (), owned: bool = False) -> None:
        """Uses the model in a folder, which is removed with the estimator if it is `owned`."""
        self._remove_folder()
        if owned:
            self._remove_folder = weakref.finalize(self, shutil.rmtree, folder.path, True)
        self._folder, self._predictor = folder, None
        self._saved = folder.entry(_ENTRY, kind=dict) or {}
        if labels := folder.labels():
            self.classes_ = to_array([*(classes or self._saved.get("classes") or labels)])
        self.history = _read_history(folder)

    def _predictions(self, texts: Any) -> Iterator[Any]:
        """Yields what a `Predictor` returns for each text."""
        predictor = self._open()
        inputs = (self._to_input(x, f"text {i}") for i, x in enumerate(items_of(texts, "texts")))
        # The sentences of one document belong together.
        size = None if self._trained().flags.get("doc_context") else _CHUNK_SIZE
        while chunk := list(itertools.islice(inputs, size)):
            yield from predictor(chunk)

    def _open(self) -> Predictor:
        predictor = self._predictor
        if predictor is None:
            flags = self._device_flags()
            predictor = Predictor(self._trained().path, self._script, **flags)
            self._predictor = predictor
        return predictor

    def _device_flags(self) -> dict[str, Any]:
        names = registry.SCRIPTS[self._script].options_class.names(DEVICES | RESULTS)
        return {name: getattr(self, name) for name in names if name in self._defaults}

    def _is(self, problem_type: str) -> bool:
        return self._trained().entry("problem_type") == problem_type

    def _trained(self) -> RunFolder:
        if self._folder is None:
            from sklearn.exceptions import NotFittedError

            class NotFitted(UserError, NotFittedError):
                """The error of scikit-learn's estimators."""

            raise NotFitted(f"This {type(self).__name__} is not trained: first call fit, or load")
        return self._folder

    def save(self, folder: str | os.PathLike, overwrite: bool = False) -> None:
        """Saves the model, without the state of its training, for `load`, `Predictor` and scripts.

        Raises:
            UserError: the folder is not empty, unless it has a model and `overwrite` is set.
        """
        source, path = self._trained(), os.path.expanduser(os.fspath(folder))
        if os.path.realpath(path) == os.path.realpath(source.path):
            return
        is_model = overwrite and files.exists(os.path.join(path, RUN))
        if (
            files.list_dir(path) or (files.exists(path) and not files.is_dir(path))
        ) and not is_model:
            advice = "Choose another folder, or pass overwrite=True if it has a model"
            raise UserError(f"{path} exists and is not empty. {advice}")
        with files.temporary_folder_at(files.temporary_name(path)) as temporary:
            _copy_model(source, temporary)
            files.remove_tree(path)
            files.rename(temporary, path)

    def __getstate__(self) -> dict[str, Any]:
        own = ("_folder", "_predictor", "_remove_folder")
        state = {name: value for name, value in vars(self).items() if name not in own}
        if self._folder:
            with tempfile.TemporaryDirectory(prefix="bert_tf_") as temporary:
                _copy_model(self._folder, temporary)
                state["_files"] = {
                    path.name: path.read_bytes() for path in Path(temporary).iterdir()
                }
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        contents = state.pop("_files", {})
        vars(self).update(state, _folder=None, _predictor=None, _remove_folder=int)
        if contents:
            folder = RunFolder(tempfile.mkdtemp(prefix="bert_tf_"))
            for name, content in contents.items():
                files.write_bytes(folder.file(name), content)
            self._use(folder, [*getattr(self, "classes_", ())], owned=True)

    def __repr__(self) -> str:
        flags = self.get_params().items()
        changed = [f"{name}={value!r}" for name, value in flags if value != self._defaults[name]]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_is_fitted__(self) -> bool:
        return self._folder is not None

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, RegressorTags, Tags, TargetTags

        return Tags(
            estimator_type=self._estimator_type,
            target_tags=TargetTags(required=True, multi_output=True),
            classifier_tags=ClassifierTags() if self._estimator_type == "classifier" else None,
            regressor_tags=RegressorTags() if self._estimator_type == "regressor" else None,
            input_tags=InputTags(two_d_array=False, string=True),
        )


def _copy_model(source: RunFolder, path: str) -> None:
    """Writes the weights of a run, its model files and its results to a folder."""
    from bert_tf.checkpoints.model import is_training_state

    files.make_dirs(path)
    for name in files.list_dir(source.path):
        if not _NOT_SAVED.fullmatch(name) and not files.is_dir(source.file(name)):
            with files.open_binary(source.file(name)) as file:
                files.write_bytes(os.path.join(path, name), file.read())
    prefix = source.checkpoint(check=False)
    step = checkpoints.step_of(prefix)
    names = [name for name in checkpoints.shapes(prefix) if not is_training_state(name)]
    weights = {**dict(checkpoints.read(prefix, names)), checkpoints.GLOBAL_STEP: np.int64(step)}
    checkpoints.write(os.path.join(path, f"model.ckpt-{step}"), weights)
    checkpoints.add_newest(path, f"model.ckpt-{step}")


def _read_history(folder: RunFolder) -> dict[str, np.ndarray]:
    """Returns the losses and the evaluations of a run, as far as there are any."""
    history = {}
    if path := folder.find(CURVE):
        rows = [line.split("\t") for line in files.read_lines(path)]
        table = np.array(rows[1:], np.float64).reshape(-1, len(rows[0]))
        history = dict(zip(rows[0], table.T, strict=True))
        history["step"] = history["step"].astype(int)
    evaluations: list[dict[str, Any]] = []
    if path := folder.find(EVALUATIONS):
        evaluations = files.read_json(path)["evaluations"]
    elif path := folder.find(EVAL_RESULTS_JSON):
        entry = files.read_json(path)
        evaluations = [{"step": entry.pop("global_step"), **entry}]
    for name, value in (evaluations[0] if evaluations else {}).items():
        key = f"eval_{name.removeprefix('eval_')}"
        # `loss` is the mean over batches, as in the original.
        if isinstance(value, int | float) and (key == name or key not in evaluations[0]):
            history[key] = np.array([evaluation[name] for evaluation in evaluations])
    return history
