"""Models as SavedModels in versioned folders, as TensorFlow Serving takes them."""

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping

import keras

from bert_tf import files, locks
from bert_tf.options import ExportOptions, FineTuningOptions
from bert_tf.progress import log
from bert_tf.saved_models import modules
from bert_tf.tasks import model_folder
from bert_tf.tasks.base import Task
from bert_tf.tokenization import FullTokenizer

# Of a version: the model without text operations; what TensorFlow leaves alone.
IDS_FOLDER = "ids"
_EXTRA_FOLDER = "assets.extra"


def export_task(
    task: Task,
    model: keras.Model,
    options: FineTuningOptions,
    export_dir: str,
    how: ExportOptions | None = None,
) -> str:
    """Writes a fine-tuned model.

    Args:
        task: of the model.
        model: with its weights.
        options: of the training.
        export_dir: folder of the versions.
        how: which signatures, and whether XLA compiles them; by default those of the flags.

    Returns:
        The folder of the new version.

    Raises:
        UserError: it cannot be written, or TensorFlow Text is missing.
    """
    how = how or ExportOptions()
    tokenizer = FullTokenizer(options.vocab_file or "", do_lower_case=options.do_lower_case)
    pairs = {"auto": task.takes_pairs, "true": True, "false": False}[how.text_pairs]
    length = options.max_seq_length
    known = {**task.assets(), **model_folder.contents_of(options)}
    with version(export_dir, known) as (folder, assets):
        texts = modules.TextInputs(tokenizer, length) if how.text_input else None
        wanted = {folder: texts}
        if texts and how.ids_model:
            wanted[os.path.join(folder, IDS_FOLDER)] = None
        for path, inputs in wanted.items():
            module = modules.TaskModule(
                model, task.served_outputs, inputs, pairs, length, assets, how.jit_compile
            )
            modules.save(module, path, module.signatures(task.served_names))
    return log_version(export_dir)


def require_text_input(options: FineTuningOptions) -> None:
    """Looks whether a tokenizer can be put into a model, before anything is trained for it.

    Raises:
        UserError: TensorFlow Text is missing, or cannot take the vocabulary.
    """
    tokenizer = FullTokenizer(options.vocab_file or "", do_lower_case=options.do_lower_case)
    modules.TextInputs(tokenizer, options.max_seq_length)


@contextlib.contextmanager
def version(export_dir: str, known: Mapping[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Gives a folder to write to, which becomes the next version when all is written.

    Args:
        export_dir: folder of the versions.
        known: texts that belong to the model, by names of files. Lists, `.txt`, are assets of the
            SavedModel, all others lie beside them.

    Raises:
        UserError: it cannot be written.
    """
    # Another run that exports waits, and writes the version after this one.
    with locks.exclusive(os.path.join(export_dir, ".lock")):
        number = max(_versions(export_dir), default=0) + 1
        with files.temporary_folder_at(os.path.join(export_dir, f"{number}.tmp")) as folder:
            with tempfile.TemporaryDirectory() as temporary:
                assets = {}
                for name, text in known.items():
                    path = os.path.join(temporary, name)
                    files.write_text(path, text)
                    if name.endswith(".txt"):
                        assets[os.path.splitext(name)[0]] = path
                yield folder, assets
            extra = os.path.join(folder, _EXTRA_FOLDER)
            files.make_dirs(extra)
            for name, text in known.items():
                if not name.endswith(".txt"):
                    files.write_text(os.path.join(extra, name), text)
            files.rename(folder, os.path.join(export_dir, str(number)))


def log_version(export_dir: str) -> str:
    """Says which version was written last; its folder."""
    folder = os.path.join(export_dir, str(max(_versions(export_dir))))
    log.info("SavedModel: %s", folder)
    return folder


def _versions(export_dir: str) -> list[int]:
    return [int(name) for name in files.list_dir(export_dir) if name.isdecimal()]
