"""`run_classifier_with_tfhub.py`: `run_classifier.py` with an encoder from TensorFlow Hub."""

import dataclasses

from bert_tf.base import files
from bert_tf.base.errors import UserError, note, warn
from bert_tf.checkpoints.formats import SavedModelSource
from bert_tf.checkpoints.run_folder import RunFolder
from bert_tf.options import registry
from bert_tf.runs.output_dir import Results
from bert_tf.tasks.classification.options import ClassifierOptions, HubClassifierOptions


def run(options: HubClassifierOptions) -> Results:
    """Fine-tunes, evaluates and predicts, like `run_classifier.py`."""
    options.check()
    return registry.run(with_module(options))


def with_module(options: HubClassifierOptions) -> ClassifierOptions:
    """Returns the options of `run_classifier.py`, with the module's weights, vocabulary, casing."""
    folder = options.bert_hub_module_handle or ""
    if not files.is_dir(folder):
        reason = files.describe_parent(folder)
        advice = "download the model for TensorFlow 2, unpack it, and pass its folder"
        problem = f"--bert_hub_module_handle={folder} is not a folder ({reason})"
        raise UserError(f"{problem}. bert_tf downloads nothing: {advice}")
    module = SavedModelSource(folder)
    if not module.is_encoder:
        raise UserError(f"{folder} has no encoder: export one with export_model.py --form=encoder")
    vocab_file = module.vocab_file or options.vocab_file
    if vocab_file is None:
        raise UserError(f"{folder} has no vocabulary: pass the model's vocabulary as --vocab_file")
    for name in ("bert_config_file", "init_checkpoint", "vocab_file"):
        value = getattr(options, name)
        if value and value != vocab_file:
            warn(f"--{name}={value} is ignored: the module determines it")
    run = RunFolder(options.output_dir or "")
    is_lower, was_lower = module.do_lower_case, run.entry("flags", "do_lower_case", kind=bool)
    if run.will_be_resumed_by(options) and {is_lower, was_lower} == {True, False}:
        now, before = ("uncased" if lower else "cased" for lower in (is_lower, was_lower))
        problem = f"{folder} is {now}, but the encoder of the run in --output_dir={run} is {before}"
        raise UserError(f"{problem}: pass that encoder as --bert_hub_module_handle")
    lower_case = options.do_lower_case if is_lower is None else is_lower
    note(f"Vocabulary {vocab_file}, do_lower_case={str(lower_case).lower()}")
    names = [field.name for field in dataclasses.fields(ClassifierOptions)]
    overrides = {
        "init_checkpoint": folder,
        "bert_config_file": None,
        "vocab_file": vocab_file,
        "do_lower_case": lower_case,
    }
    return ClassifierOptions(**{name: getattr(options, name) for name in names} | overrides)
