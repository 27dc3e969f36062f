"""The folder of a model: its files, `run.json`, labels, checkpoints, and data of earlier runs."""

import contextlib
import hashlib
import io
import json
import os
import sys
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from bert_tf.base import files
from bert_tf.base.errors import Place, UserError, counted, excerpt, warn
from bert_tf.checkpoints.folder import STEP_NAME, latest, newest_readable, resolve
from bert_tf.checkpoints.tensors import step_of
from bert_tf.options import registry
from bert_tf.options.declare import check_values

CONFIG = "bert_config.json"
VOCAB = "vocab.txt"
LABELS = "labels.txt"
RUN = "run.json"
# Entry of `run.json`: mean and deviation of each target of a regression that was standardized.
TARGET_SCALE = "target_scale"
# Entries of `run.json`: the number of steps that training will have made, and whether it ended.
PLANNED_STEPS, ENDED = "planned_steps", "ended"
# The `vocab_digest` of pre-training records, in their descriptions and in `run.json`.
VOCABULARY = "vocab_sha256"
# The subfolder with the best weights of a training run with --eval_every, and their name.
BEST_FOLDER, BEST_NAME = "best", "model.ckpt"
# The summary of a run with several seeds, and the metrics of an evaluation.
RUNS, EVAL_RESULTS_JSON = "runs.json", "eval_results.json"
# The loss and the learning rate of each step.
CURVE = "training_curve.tsv"
_TEXT_HASHES = "train_texts.npy"


class RunFolder:
    """The folder of a model. It may be that of a training run, an export or a download, or missing.

    Nothing is cached, because a run may change the files. A missing file is an error only where a
    docstring says so. Only methods that begin with `write` change the folder.

    Attributes:
        path: path of the folder; "" is the current one.
        model: the path that the user passed as the model: the folder, or a prefix or file in it;
            None for other folders, such as an `output_dir`.
    """

    def __init__(self, path: str, model: str | None = None) -> None:
        self.path, self.model = path, model

    @classmethod
    def of(cls, model: str) -> "RunFolder":
        """Returns the folder of a model, given as a folder, or as a prefix or file in it."""
        return cls(model if files.is_dir(model) else os.path.dirname(model), model)

    @classmethod
    def used_by(cls, options: Any) -> "RunFolder":
        """Returns the folder of the model that a fine-tuning or pre-training run starts from.

        This is `output_dir` if its checkpoint may be used, or if there is no `init_checkpoint`.
        """
        output = cls(options.output_dir or "")
        if not options.init_checkpoint or output.will_be_resumed_by(options):
            return output
        return cls.of(options.init_checkpoint)

    def __str__(self) -> str:
        return self.path

    # Files.

    def file(self, name: str) -> str:
        """Returns the path of a file in the folder, which need not exist."""
        return os.path.join(self.path, name)

    def find(self, name: str) -> str | None:
        """Returns the path of a file in the folder; None if it does not exist."""
        return self.file(name) if files.exists(self.file(name)) else None

    def read_json(self, name: str) -> dict[str, Any]:
        """Returns the content of a JSON file; {} if it is missing; UserError if it is damaged."""
        return files.read_json(self.file(name)) if self.find(name) else {}

    # run.json: `script`, `flags`, `digests`, and entries of scripts and tasks.

    def entry(self, *keys: str, kind: type = str) -> Any:
        """Returns the value of type `kind` at nested keys of `run.json`; None if there is none."""
        value: Any = self.read_json(RUN)
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return value if isinstance(value, kind) else None

    def require_flags(self) -> dict[str, Any]:
        """Like `flags`; UserError if `run.json` is damaged, or its script is not registered."""
        path, script = self.find(RUN), self.script
        if not path:
            return {}
        if script and script not in registry.entries():
            register = f"import the module that calls bert_tf.register({script!r}, ...)"
            raise UserError(f"{script} is not a registered task: first {register}", at=path)
        try:
            flags = dict(self.read_json(RUN)["flags"])
            options_class = registry.entries()[script or ""].options_class
            known = {n: flags[n] for n in flags.keys() & typing.get_type_hints(options_class)}
            check_values(options_class(**known))
            return known
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"damaged ({error})", at=path) from error

    @property
    def script(self) -> str | None:
        """The script that trained or exported the model; None if unknown."""
        return self.entry("script")

    @property
    def flags(self) -> dict[str, Any]:
        """The script's flags in `run.json`, without flags that no longer exist; {} if unknown."""
        try:
            return self.require_flags()
        except UserError:
            return {}

    @property
    def task(self) -> str | None:
        """The task that the model was trained for, such as MRPC; None for scripts with only one."""
        script = registry.entries().get(self.script or "")
        return (script and script.options_class.task_of(self.flags)) or None

    def require_script(self, script: str) -> None:
        """Raises a UserError if a different script, with a different head, fine-tuned the model."""
        tasks = [name for name, entry in registry.entries().items() if entry.make_task]
        trained_by = self.script
        if trained_by != script and {trained_by, script}.issubset(tasks):
            raise UserError(f"{self} was fine-tuned with {trained_by}, not {script}")

    def require_one_run(self) -> None:
        """Raises a UserError if the folder contains several runs with different seeds."""
        # An interrupted command has not written the summary yet.
        if self.find(RUNS) or (self.find("run_1") and not self.find(RUN)):
            best = self.read_json(RUNS).get("best", {}).get("folder")
            which = f"the {'best' if best else 'first'} is {self.file(best or 'run_1')}"
            raise UserError(f"{self} contains several runs: pass one of them; {which}")

    def subfolders(self, count: int) -> "list[RunFolder]":
        """Returns the folders of `count` runs with different seeds."""
        return [RunFolder(self.file(f"run_{number}")) for number in range(1, count + 1)]

    def require_same(self, contents: Mapping[str, str], source: str) -> None:
        """Raises a UserError if a file differs from the copy that an earlier run saved."""
        for name, text in contents.items():
            path = self.find(name)
            # Trailing blank lines are not significant.
            if path and files.read_text(path).rstrip() != text.rstrip():
                problem = f"{path}, which an earlier training run saved, differs from {source}"
                raise UserError(problem, fix="Choose another --output_dir, or empty this one")

    def check_files(self) -> None:
        """Warns about changed or missing files of a training run; UserError if one is damaged."""
        newest = self.newest or ""
        # The original, whose checkpoints have the same names, also writes a .meta file.
        if "model.ckpt-" in newest and not (self.find(RUN) or files.exists(f"{newest}.meta")):
            warn(f"no {RUN}: the flags of its training are unknown", at=newest)
        if self.script in registry.entries():
            self.require_flags()
        for name in (VOCAB, LABELS):
            path, before = self.find(name), self.entry("digests", name)
            if before and fingerprint(files.read_text(path).rstrip() if path else "") != before:
                warn(f"{self.file(name)} was {'changed' if path else 'removed'} after training")

    # Labels.

    def labels(self) -> list[str] | None:
        """Returns the labels in `labels.txt`, see `read_labels`; None without the file."""
        path = self.find(LABELS)
        return read_labels(path) if path else None

    def require_labels(
        self, is_label: Callable[[str], object] = str.strip, advice: str = ""
    ) -> list[str]:
        """Returns the labels of the model, from `labels.txt` or from its configuration.

        `is_label` checks a label; `advice` says what else a user can do.

        Raises:
            UserError: they are unknown or invalid, or their number is not that of the outputs.
        """
        if path := self.find(LABELS):
            labels = read_labels(path, is_label)
            # Exports have a config.json. For multiple choice, labels name endings, not outputs.
            count = len(self.read_json("config.json").get("id2label", ()))
            if 1 < count != len(labels):
                listed = counted(len(labels), "label")
                raise UserError(f"{listed}, but the model has {count} outputs", at=path)
            return labels
        if (declared := self.declared_labels()) and all(map(is_label, declared)):
            return declared
        raise UserError(
            f"No such file: {self.file(LABELS)} ({files.describe_folder(self.path)})",
            fix=f"Pass --do_train=true, or the --output_dir of a training run{advice}",
        )

    def declared_labels(self) -> list[str] | None:
        """Returns the names of the outputs in `labels.txt` or a configuration; None if unknown."""
        if path := self.find(LABELS) or self.find(f"assets/{LABELS}"):  # the latter in a SavedModel
            return files.read_small_file_lines(path)
        labels = labels_in(self.read_json("config.json")) if self.model else None
        return labels and [label.strip() for label in labels]

    # Checkpoints.

    @property
    def newest(self) -> str | None:
        """Prefix of the newest checkpoint; None if there is none."""
        return latest(self.path)

    @property
    def best(self) -> str | None:
        """Prefix of the best weights; None if the last run had no `--eval_every`."""
        prefix = self.file(os.path.join(BEST_FOLDER, BEST_NAME))
        # A string in fine-tuning, an integer in pre-training.
        was_set = self.entry("flags", "eval_every", kind=object)
        return prefix if was_set and files.exists(f"{prefix}.index") else None

    def will_be_resumed_by(self, options: Any) -> bool:
        """Returns whether a run with this `output_dir` loads a checkpoint from it."""
        return options.resume != "never" and bool(self.newest)

    def checkpoint(self, *, check: bool = True) -> str:
        """Returns the prefix of the checkpoint to use: `model`, the best, the newest or only one.

        `check` skips damaged checkpoints with a warning.

        Raises:
            UserError: there is no checkpoint, or several, or several runs, or all are damaged.
        """
        if self.model not in (None, self.path):
            return resolve(self.model)
        self.require_one_run()
        # The file `checkpoint` does not list checkpoints that were copied or converted to here.
        return self.best or (check and newest_readable(self.path)) or resolve(self.path)

    def checkpoint_to_resume(self, options: Any) -> str | None:
        """Returns the checkpoint in `output_dir` from which a run starts, or None.

        Training continues from the newest checkpoint. Otherwise, it is the best one or, without
        one, the newest.

        Raises:
            UserError: `resume` is "never" and training finds one, or "must" and there is none.
        """
        found = None
        if options.do_train or options.resume != "never":
            found = (None if options.do_train else self.best) or newest_readable(self.path)
        if found and options.resume == "never":
            problem = f"--resume=never, but --output_dir={self} has checkpoints: {found}"
            raise UserError(problem, fix="Choose another --output_dir, or empty this one")
        if not found and options.resume == "must":
            raise UserError(f"--resume=must, but --output_dir={self} has no checkpoint")
        is_untrained = os.path.basename(found or "") == "model.ckpt-0"
        if is_untrained and not options.do_train and self.newest != found:
            raise UserError(f"All trained checkpoints in {self} are damaged")
        return found

    @property
    def step(self) -> int | None:
        """The step of the checkpoint to use; None if unknown, or only TensorFlow can tell."""
        with contextlib.suppress(UserError):
            prefix = self.checkpoint(check=False)
            if match := STEP_NAME.fullmatch(os.path.basename(prefix)):
                return int(match[1])
            return step_of(prefix) if "tensorflow" in sys.modules else None
        return None

    @property
    def _run(self) -> "RunFolder":
        """The folder of the run: for its best weights, unless they were copied, the parent."""
        parent = RunFolder(os.path.dirname(self.path))
        return parent if os.path.basename(self.path) == BEST_FOLDER and parent.find(RUN) else self

    def progress_notes(self, prefix: str, path: str) -> list[str]:
        """Returns a sentence about a checkpoint if its training has not ended; `path` names it."""
        if os.path.basename(prefix) == "model.ckpt-0":
            return [f"{path} was written before the first training step. Pass a later checkpoint"]
        run = self._run
        planned = run.entry(PLANNED_STEPS, kind=int) or 0
        # A process may be killed after its last checkpoint, and before it writes that it ended.
        if run.entry(ENDED, kind=bool) is not False or run.find(f"model.ckpt-{planned}.index"):
            return []  # A run of version 1.1 does not say whether it ended.
        return [f"{path}: step {step_of(prefix):,} of {planned:,}, the run has not ended"]

    def log_progress(self) -> None:
        """Warns if the training of the checkpoint to use has not ended."""
        with contextlib.suppress(UserError):
            prefix = self.checkpoint(check=False)
            for note in self.progress_notes(prefix, prefix):
                warn(note)

    def write_end(self) -> None:
        """Records that training has ended, unless it began with version 1.1."""
        for folder in (self, RunFolder(self.file(BEST_FOLDER))):
            if folder.entry(ENDED, kind=bool) is False:
                text = json.dumps({**folder.read_json(RUN), ENDED: True}, indent=1)
                files.write_text(folder.file(RUN), text + "\n")

    # What earlier runs left for later ones.

    def text_hashes(self) -> np.ndarray:
        """Returns hashes of the texts that the model was trained on, uint64; empty if unknown."""
        try:
            with files.open_binary(self._run.file(_TEXT_HASHES)) as file:
                return np.load(io.BytesIO(file.read()))
        except (UserError, ValueError, EOFError):
            return np.zeros(0, np.uint64)

    def write_text_hashes(self, hashes: np.ndarray) -> None:
        """Saves the hashes for later runs that start from the model, or evaluate it."""
        content = io.BytesIO()
        np.save(content, hashes)
        files.write_bytes(self.file(_TEXT_HASHES), content.getvalue())


def fingerprint(*settings: Any, examples: Iterable[Any] = ()) -> str:
    """Returns a digest of the `repr` of the settings and the examples."""
    # Keep the 1: without it, the digests in existing run.json files would not match.
    digest = hashlib.blake2b(repr((1, *settings)).encode(errors="surrogatepass"))
    for example in examples:
        digest.update(repr(example).encode(errors="surrogatepass"))
    return digest.hexdigest()[:32]


def read_labels(path: str, is_label: Callable[[str], object] = str.strip) -> list[str]:
    """Reads a model's labels, one per line in the order of its outputs; `is_label` checks a line.

    Raises:
        UserError: the file cannot be read, is empty, or contains a duplicate or invalid label.
    """
    labels = files.read_small_file_lines(path)
    for index, line in enumerate(labels or [""]):
        if not is_label(line) or line in labels[:index]:
            problem = "duplicate" if line in labels[:index] else "invalid"
            raise UserError(f"{problem} label {excerpt(line)}", at=Place(path, index + 1))
    return labels


def labels_file(labels: Iterable[str] | None) -> dict[str, str]:
    """Returns file name -> text for `labels.txt`; empty without labels."""
    return {LABELS: "".join(f"{label}\n" for label in labels)} if labels else {}


def labels_in(settings: Mapping[str, Any]) -> list[str] | None:
    """Returns the labels in a config.json; None if missing, invalid or placeholders (LABEL_0)."""
    id_to_label = settings.get("id2label")
    if not isinstance(id_to_label, dict):
        return None
    ordered = [id_to_label.get(str(index)) for index in range(len(id_to_label))]
    are_valid = all(isinstance(label, str) and label.strip() for label in ordered)
    are_placeholders = all(label == f"LABEL_{index}" for index, label in enumerate(ordered))
    if not are_valid or are_placeholders or len(set(ordered)) < len(ordered):
        return None
    return [str(label) for label in ordered]
