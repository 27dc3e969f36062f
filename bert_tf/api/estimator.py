"""The base class of the estimators: flags as parameters, training, and the files of the model."""

import dataclasses
import inspect
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from bert_tf import checkpoints
from bert_tf.api.predictor import Predictor
from bert_tf.api.rows import Rows, RowWords, column_names, require_order, text_items, to_array
from bert_tf.base import files, locks
from bert_tf.base.errors import UserError, excerpt, silent, speaking, warn
from bert_tf.base.foreign_names import ExplainsNames, advice_for_flag, use_instead
from bert_tf.base.progress import show_table
from bert_tf.checkpoints.run_folder import CURVE, EVAL_RESULTS_JSON, RUN, RUNS, RunFolder
from bert_tf.options import registry
from bert_tf.options.declare import DATA, DEVICES, RESULTS, Affects
from bert_tf.training.evaluation import EVALUATIONS

# The files of a run that belong to its model or describe it, apart from the checkpoint.
_MODEL_FILES = re.compile(r"(?!records\.).*\.(json|txt|tsv|npy)")
# Folders of a sentence encoder, such as 1_Pooling.
_MODULE = re.compile(r"\d_\w+")
_SAVED_FILES = re.compile(rf"checkpoint|model\.ckpt-.*|{_MODULE.pattern}|{_MODEL_FILES.pattern}")
# Entry of `run.json`: whether `fit` got a table of labels.
LABELS_ARE_COLUMNS = "labels_are_columns"
# Entry of `run.json`: the names of the columns of the texts that `fit` got.
_FEATURE_NAMES = "feature_names"


class Estimator(ExplainsNames, BaseEstimator):
    """Trains and applies a model as a script does, whose flags are the parameters."""

    _script = "run_classifier"
    # Defaults that differ from the script's: a second `fit` starts anew.
    _defaults: ClassVar[Mapping[str, Any]] = {"resume": "never"}
    _other_kinds: tuple[str, ...] = ()  # problem types of other estimators
    # Flags that affect data and apply to the rows of `fit`; `fit` determines the others.
    _data_flags: tuple[str, ...] = ("labels", "skip_labels")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        fields = dataclasses.fields(cls._options_class())
        options = {field.name: field.default for field in fields}
        cls._defaults = defaults = {"init_checkpoint": None, **options, **cls._defaults}

        def __init__(self: Any, init_checkpoint: Any = None, **flags: Any) -> None:
            vars(self).update(defaults)
            self.set_params(init_checkpoint=init_checkpoint, **flags)

        # Editors and scikit-learn take the parameters from the signature.
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters = [inspect.Parameter(n, kind, default=x) for n, x in defaults.items()]
        first = [*inspect.signature(__init__).parameters.values()][:2]  # self, init_checkpoint
        vars(__init__)["__signature__"] = inspect.Signature([*first, *parameters[1:]])
        cls.__init__ = __init__
        super().__init_subclass__(**kwargs)

    @classmethod
    def _options_class(cls) -> Any:
        return registry.SCRIPTS[cls._script].options_class

    @classmethod
    def from_checkpoint(cls, init_checkpoint: str | os.PathLike, **flags: Any) -> Any:
        """Returns an estimator that `fit` trains from a checkpoint, as the constructor does."""
        return cls(init_checkpoint, **flags)

    @classmethod
    def load(cls, folder: str | os.PathLike, **flags: Any) -> Any:
        """Opens a trained model: a folder that `save` or the script wrote.

        `fit` then continues from this model, which is `init_checkpoint`, for the same labels.

        Args:
            folder: path of the folder.
            flags: flags that override those of the training: of devices and batches, such as
                `engine`, for predictions; all others for `fit`.

        Raises:
            UserError: it is not the folder of such a model.
        """
        trained = RunFolder(os.path.expanduser(os.fspath(folder)))
        if not files.is_dir(trained.path):
            raise UserError(f"No such folder: {trained} ({files.describe_parent(trained.path)})")
        if not trained.find(RUN):
            advice = f"To train from it, use {cls.__name__}.from_checkpoint(folder); to predict "
            advice += f"with a model from elsewhere, Predictor(folder, script={cls._script!r})"
            raise UserError(f"no folder of `save`: it has no {RUN}", at=str(trained), fix=advice)
        trained.require_script(cls._script)
        names = cls._options_class().names(~DATA, without=DATA | Affects.RUN | Affects.PATH)
        saved = {name: value for name, value in trained.flags.items() if name in names}
        estimator = cls(**saved | {"init_checkpoint": files.resolve(trained.path)} | flags)
        estimator._keep(trained)
        estimator._loaded_with = flags
        if estimator._kind in cls._other_kinds:
            raise UserError(f"{trained} is a model for {estimator._kind}, not a {cls.__name__}")
        has_classes = hasattr(estimator, "classes_") and estimator._kind != "regression"
        if has_classes and "labels" in cls._defaults.keys() - flags.keys():
            classes = estimator.classes_.tolist()
            estimator.labels = None if any("," in str(x) for x in classes) else classes
        estimator._open()
        return estimator

    def set_params(self, **flags: Any) -> Any:
        """Sets parameters; raises a UserError if there is none of a name, or a value is a model."""
        for name in flags.keys() - self._defaults:
            advice = advice_for_flag(name, self._defaults) or use_instead(name, type(self))
            raise UserError(f"Invalid parameter {name!r} for {type(self).__name__}", fix=advice)
        for name, value in flags.items():
            if hasattr(value, "save"):  # an estimator or a Keras model
                problem = f"{name} cannot be a {type(value).__name__}"
                raise UserError(f"{problem}: save it, and pass its folder")
        return super().set_params(**flags)

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
        values = type(self)(**self.get_params(False) | flags).get_params(False)
        if validation is not None and not (isinstance(validation, tuple) and len(validation) == 2):
            received = excerpt(" ".join(str(validation).split()))
            raise UserError(f"expected validation=(texts, labels). Received: {received}")
        folder = os.fspath(values["output_dir"] or "")
        needs = dict.fromkeys(("do_export", "resume"), "" if folder else "output_dir")
        evaluation = "fit(..., validation=(texts, labels))" if validation is None else ""
        needs |= dict.fromkeys(("eval_every", "do_eval", "num_runs"), evaluation)
        for name, need in needs.items():
            if need and values[name] != self._defaults[name]:
                raise UserError(f"{name} needs {need}")
        if folder and values["resume"] == "never" and RunFolder(folder).newest:
            advice = f"Choose another, or open the model: {type(self).__name__}.load({folder!r})"
            raise UserError(f"output_dir={folder} has a model", fix=advice)
        with tempfile.TemporaryDirectory(prefix="bert_tf_") as temporary:
            rows = Rows(os.path.join(temporary, "train.jsonl"))
            rows.write(texts, labels, self._to_row)
            if not isinstance(values.get("labels"), str | None):
                values["labels"] = rows.class_names(values["labels"])
            names = ["do_predict", *self._options_class().names(DATA)]
            fixed = {x: self._defaults[x] for x in names if x not in self._data_flags}
            fixed |= self._run_flags(rows)
            fixed |= {"train_file": rows.path, "do_train": True}
            dev_rows = Rows(os.path.join(temporary, "eval.jsonl"), "validation text")
            if validation is not None:
                dev_rows.write(validation[0], validation[1], self._to_row)
                require_order(dev_rows.columns, rows.columns)
                fixed |= {"eval_file": dev_rows.path, "do_eval": True}
            for name, value in fixed.items():
                if values[name] not in (value, self._defaults[name]):
                    use = "fit(texts, labels, validation=(texts, labels)) or predict(texts)"
                    instead = f"Instead of {name}={values[name]!r}, use {use}"
                    raise UserError(f"fit determines {name}. {use_instead(name) or instead}")
            if not values["output_dir"]:
                values |= {"output_dir": f"{temporary}/run", "keep_checkpoint_max": 1}
                values["report"] = False
            options = self._options_class()(**values | fixed)
            try:
                with speaking(RowWords([rows, dev_rows])):
                    registry.run(options)
            except KeyboardInterrupt:
                newest = RunFolder(options.output_dir).newest
                if newest and checkpoints.step_of(newest):
                    self._keep(RunFolder(options.output_dir), rows)
                    warn("The estimator has the weights trained so far")
                raise
            self._keep(RunFolder(options.output_dir), rows)
        columns = [values.tolist() for values in self.evaluations.values()]
        show_table([*self.evaluations], zip(*columns, strict=True))
        return self

    def _to_row(self, text: Any, label: Any, rows: Rows) -> dict[str, Any]:
        """Converts a text and its label to a row of the file that the script reads."""
        raise NotImplementedError

    def _to_input(self, text: Any) -> Any:
        """Converts a text to the input of a `Predictor`."""
        raise NotImplementedError

    def _run_flags(self, rows: Rows) -> dict[str, Any]:
        """Returns the flags with which the script reads the rows."""
        return {}

    def _keep(self, folder: RunFolder, rows: Rows | None = None) -> None:
        """Keeps the model of a run, which `fit` trained on `rows`, or which `load` opens."""
        if summary := folder.find(RUNS):
            folder = RunFolder(folder.file(files.read_json(summary)["best"]["folder"]))
        run, classes = files.read_json(folder.file(RUN)), folder.labels() or []
        if rows:
            classes = [rows.names.get(name, name) for name in classes]
            run["classes"] = [x.item() if isinstance(x, np.generic) else x for x in classes]
            run |= {LABELS_ARE_COLUMNS: "columns" in rows.kinds, _FEATURE_NAMES: rows.columns}
            files.write_json(folder.file(RUN), run)
        else:
            folder.check_files()
            folder.log_progress()
        if classes:
            self.classes_ = to_array(classes if rows else run.get("classes", classes))
        if hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        if names := run.get(_FEATURE_NAMES):
            self.feature_names_in_ = np.array(names, object)
        self._run, self._files, self._predictor = run, _read_model(folder), None
        self._loaded_with: Mapping[str, Any] = {}  # flags that were passed to `load`
        self._kind = run.get("problem_type") or run["flags"].get("problem_type")
        self.history = History(folder)
        self.evaluations = self.history.evaluations

    def _predictions(self, texts: Any) -> list[Any]:
        """Returns what a `Predictor` returns for each text."""
        items = self._items(texts)
        return self._open()([self._to_input(text) for text in items])

    def _items(self, texts: Any) -> list[Any]:
        """Returns texts as a list; the columns of a table must have the order that they had."""
        require_order(column_names(texts), getattr(self, "feature_names_in_", ()))
        return [*text_items(texts)]

    def _warn(self, problems: Iterable[str]) -> None:
        """Warns of what looks wrong in the data for `score`."""
        for problem in problems:
            warn(problem, at="score")

    def _require_model(self) -> None:
        advice = "Call fit(texts, labels). To open a trained model: %(name)s.load(folder)"
        check_is_fitted(self, "_files", msg=f"This %(name)s is not fitted yet. {advice}")

    def _open(self) -> Predictor:
        self._require_model()
        flags = {
            name: getattr(self, name) for name in self._options_class().names(DEVICES | RESULTS)
        }
        if self._predictor is None or self._predictor[0] != flags:
            self._predictor = flags, self._open_copy(self._script, **flags)
        return self._predictor[1]

    def _open_copy(self, script: str, **flags: Any) -> Predictor:
        """Opens a copy of the model, whose path no message names: `load` or `fit` logged all."""
        with tempfile.TemporaryDirectory(prefix="bert_tf_") as folder, silent():
            self.save(f"{folder}/model")
            return Predictor(f"{folder}/model", script, **flags)

    def save(self, folder: str | os.PathLike, overwrite: bool = False) -> None:
        """Writes the model to a folder, for `load`, `Predictor` and the scripts.

        Raises:
            UserError: the folder exists; with `overwrite`, it is not only a saved model.
        """
        self._require_model()
        path = files.resolve(os.path.expanduser(os.fspath(folder)))
        names = files.list_dir(path)
        is_model = RUN in names and all(map(_SAVED_FILES.fullmatch, names))
        if files.exists(path) and not (overwrite and is_model):
            reason = ": pass overwrite=True" if is_model else ", and is not only a saved model"
            raise UserError(f"the folder exists{reason}", at=path)
        lock, (parent, name) = locks.exclusive(locks.lock_path(path)), os.path.split(path)
        with lock, files.temporary_folder_at(os.path.join(parent, f".{name}.tmp")) as temporary:
            for name, content in self._files.items():
                files.make_dirs(os.path.dirname(os.path.join(temporary, name)))
                files.write_bytes(os.path.join(temporary, name), content)
            files.replace_folder(temporary, path)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        return tags

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_predictor": None}


def _read_model(folder: RunFolder) -> dict[str, bytes]:
    """Returns the files of a model, without the state of its training."""
    from bert_tf.checkpoints.model import training_state

    prefix = folder.checkpoint(check=False)
    step = checkpoints.step_of(prefix)
    shapes = checkpoints.shapes(prefix)
    names = shapes.keys() - training_state(shapes)
    weights = {**dict(checkpoints.read(prefix, names)), checkpoints.GLOBAL_STEP: np.int64(step)}
    contents = {}
    with tempfile.TemporaryDirectory(prefix="bert_tf_") as temporary:
        checkpoints.write(os.path.join(temporary, f"model.ckpt-{step}"), weights)
        checkpoints.add_newest(temporary, f"model.ckpt-{step}")
        paths = {name: os.path.join(temporary, name) for name in files.list_dir(temporary)}
        names = files.list_dir(folder.path)
        names += [f"{name}/config.json" for name in names if _MODULE.fullmatch(name)]
        paths |= {x: folder.file(x) for x in names if _MODEL_FILES.fullmatch(x) and folder.find(x)}
        for name, path in paths.items():
            with files.open_binary(path) as file:
                contents[name] = file.read()
    return contents


class History(dict[str, np.ndarray]):
    """Values of each step of a run, by name; `evaluations` has the metrics of each evaluation."""

    def __init__(self, folder: RunFolder) -> None:
        self.evaluations: dict[str, np.ndarray] = {}
        if path := folder.find(CURVE):
            names, *rows = (line.split("\t") for line in files.read_lines(path))
            self.update(zip(names, np.array(rows, np.float64).T, strict=True))
        if path := folder.find(EVALUATIONS) or folder.find(EVAL_RESULTS_JSON):
            content = files.read_json(path)
            rows = content.get("evaluations", [content])
            for name, value in sorted(rows[0].items(), key=lambda item: "step" not in item[0]):
                key = name.removeprefix("eval_").removeprefix("global_")
                # In classification, `loss` is `eval_loss` as a mean over batches, as originally.
                is_shadowed = key == name and f"eval_{key}" in rows[0]
                if isinstance(value, int | float) and not is_shadowed:
                    self.evaluations[key] = np.array([row[name] for row in rows])

    def __missing__(self, name: str) -> np.ndarray:
        if name.startswith("eval_") and (metric := name[len("eval_") :]) in self.evaluations:
            return self.evaluations[metric]
        has = f"history has: {', '.join(self)}; evaluations: {', '.join(self.evaluations)}"
        raise KeyError(f"There is no {name!r}. {has}")
