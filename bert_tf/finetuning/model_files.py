"""Finds and reads the files of the model that a run starts from; imports no TensorFlow."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bert_tf.base import files
from bert_tf.base.errors import UserError, counted, note, shortened, warn
from bert_tf.checkpoints import formats
from bert_tf.checkpoints.formats.configs import count_layers
from bert_tf.checkpoints.formats.matching import check_config, check_vocabulary
from bert_tf.checkpoints.formats.source import tokenizer_settings
from bert_tf.checkpoints.run_folder import CONFIG, VOCAB, RunFolder
from bert_tf.config import BertConfig
from bert_tf.finetuning.run_metadata import COPIES
from bert_tf.inference.exported_model import MODEL_FILES
from bert_tf.options import ModelOptions
from bert_tf.tokenization import FullTokenizer

# Tokens that are required to convert texts to inputs.
_REQUIRED_TOKENS = ("[CLS]", "[SEP]", "[UNK]")


class ModelFiles(NamedTuple):
    """What a run starts from; the arguments of `make_task`."""

    options: Any  # the run's, with the files and tokenizer options that it left to the model
    config: BertConfig
    tokenizer: FullTokenizer


def read_model_files(options: Any, export: str | None = None) -> ModelFiles:
    """Finds the files of the model that a run starts from, and reads them.

    If the folder `export` has an export for `options.engine`, they are those of the export.

    Raises:
        UserError: files are missing or invalid, or do not match each other or the model.
    """
    engine, sources = options.engine, []
    if export is not None and engine != "tensorflow" and is_exported(export, engine):
        options = _use_export(options, RunFolder(export))
    else:
        options, sources = find_model_files(options)
    return ModelFiles(options, *load_config_and_tokenizer(options, sources))


def find_model_files(options: Any) -> tuple[Any, list[formats.Source]]:
    """Fills in unset files and tokenizer options from the folder of `init_checkpoint`.

    Without `init_checkpoint`, uses those that an earlier run saved in `output_dir`. Also returns
    the checkpoints to load: the newest of each run in `output_dir` and, unless all runs have one,
    `init_checkpoint`. Raises a UserError if a file is missing, or the casing is another.
    """
    unset_flags = [flag for flag in COPIES.values() if not getattr(options, flag, "not needed")]
    newest: list[str | None] = []
    if options.resume != "never":
        folder, count = RunFolder(options.output_dir or ""), options.num_runs
        newest = [run.newest for run in (folder.subfolders(count) if count > 1 else [folder])]
    sources: list[formats.Source] = [formats.OriginalSource(path) for path in newest if path]
    for source in sources:
        options = _follow_tokenizer(source, "output_dir", options)
    flag = "init_checkpoint" if options.init_checkpoint or not unset_flags else "output_dir"
    path, all_resume = getattr(options, flag, None), bool(newest) and all(newest)
    # When resuming, `init_checkpoint` is not read and may have been deleted.
    if not path or (all_resume and not unset_flags):
        return options, sources
    source = formats.find_source(path)
    if not all_resume:
        options = _follow_tokenizer(source, flag, options)
        if options.init_checkpoint:
            _require_layers(source, options.init_layer_numbers)
            sources.append(source)
    if not unset_flags:
        return options, sources
    config_file = _config_file(source, len(options.init_layer_numbers))
    available = {"bert_config_file": config_file, "vocab_file": source.vocab_file}
    found = {name: available[name] for name in unset_flags}
    for name in unset_flags:
        if found[name] is None:
            raise UserError(f"Pass --{name}: none was found with --{flag}={path}")
    return dataclasses.replace(options, **found), sources


def _follow_tokenizer(source: formats.Source, flag: str, options: Any) -> Any:
    """Like `_follow_settings`, for the model of a flag; UserError if casing was another."""
    _require_casing(options, source.do_lower_case, f"--{flag}={getattr(options, flag)}")
    own, given = RunFolder.of(source.path).file(VOCAB), getattr(options, "vocab_file", None)
    has_more = source.vocab_file not in (None, own)  # such as added tokens
    if has_more and given and os.path.realpath(given) == os.path.realpath(own):
        options = dataclasses.replace(options, vocab_file=source.vocab_file)
    return _follow_settings(source.tokenizer_settings, source.path, options)


def _require_casing(options: Any, lower_case: bool | None, model: str) -> None:
    """Raises a UserError if a model was trained on texts of the other casing."""
    # Pre-training has no flag --do_lower_case, because it reads no text.
    if lower_case not in (None, getattr(options, "do_lower_case", lower_case)):
        passed, needed = f"{options.do_lower_case}".lower(), f"{lower_case}".lower()
        problem = f"{model} was trained on {'lower-' if lower_case else ''}cased text"
        advice = f"Pass --do_lower_case={needed}"
        raise UserError(f"--do_lower_case={passed}, but {problem}", fix=advice)


def _follow_settings(settings: Mapping[str, str], model: str, options: Any) -> Any:
    """Fills in unset tokenizer options with the settings of a model; warns of other values."""
    passed = {name: getattr(options, name, value) for name, value in settings.items()}
    unset = {name: settings[name] for name, value in passed.items() if value in (None, "auto")}
    for name, value in settings.items():
        if name in unset:
            note(f"Using --{name}={shortened(value.split(','))}", at=model)
        elif passed[name] != value:
            warn(f"the model needs --{name}={value}, not {passed[name]}", at=model)
    return dataclasses.replace(options, **unset) if unset else options


def _require_layers(source: formats.Source, layers: Sequence[int]) -> None:
    """Raises a UserError, before the data are read, if a checkpoint lacks some of the layers."""
    if layers and max(layers) >= (count := count_layers(source.shapes())):
        raise UserError(f"no layer {max(layers)}: they are 0 to {count - 1}", at=source.path)


def _config_file(source: formats.Source, num_layers: int) -> str | None:
    """Returns the path of a `bert_config.json` for the model, and writes that file if needed.

    If `num_layers` is not 0, it has this many layers. None if the source has no configuration.
    """
    path = source.config_file
    if path and os.path.basename(path) == CONFIG and not num_layers:
        return path
    config = source.config()
    if config is None:
        return None
    config.num_hidden_layers = num_layers or config.num_hidden_layers
    path = os.path.join(formats.temporary_folder(), CONFIG)
    files.write_text(path, config.to_json_string())
    return path


def is_exported(folder: str, engine: str) -> bool:
    """Returns whether a folder has an export for an engine; UserError if only for others."""
    engines = [name for name, file in MODEL_FILES.items() if RunFolder(folder).find(file)]
    if engines:
        require_exported_with(folder, "engine", engines[0], engine)
    return bool(engines)


def require_exported_with(at: str, name: str, exported: Any, used: Any) -> None:
    """Raises a UserError about an export unless an option has the value that it has there."""
    if used != exported:
        raise UserError(f"exported with --{name}={exported}, not {used}", at=at)


def _use_export(options: Any, folder: RunFolder) -> Any:
    """Like `find_model_files`, for an exported folder: its files are those of the model."""
    options = _follow_settings(tokenizer_settings(folder), folder.path, options)
    _require_casing(options, folder.require_flags().get("do_lower_case"), folder.path)
    paths = {flag: folder.file(name) for name, flag in COPIES.items()}
    for flag, path in paths.items():
        other = getattr(options, flag) or path
        if files.read_text(other).rstrip() != files.read_text(path).rstrip():
            require_exported_with(folder.path, flag, path, other)
    return dataclasses.replace(options, init_checkpoint=None, **paths)


def load_config_and_tokenizer(
    options: ModelOptions, sources: Sequence[formats.Source]
) -> tuple[BertConfig, FullTokenizer]:
    """Loads the configuration and tokenizer; checks that they match each other, and `sources`."""
    config = options.config()
    check_length(options.max_seq_length, config)
    layers = options.init_layer_numbers
    if layers and len(layers) != config.num_hidden_layers:
        count = counted(config.num_hidden_layers, "layer")
        problem = f"has {count}, but --init_layers {len(layers)}"
        raise UserError(problem, at=options.bert_config_file)
    tokenizer = options.tokenizer()
    if missing := [token for token in _REQUIRED_TOKENS if token not in tokenizer.vocab]:
        raise UserError(f"lacks {', '.join(missing)}", at=options.vocab_file)
    vocab_files = [options.vocab_file or "", *(source.vocab_file or "" for source in sources)]
    for folder in dict.fromkeys(map(os.path.dirname, vocab_files)):
        RunFolder(folder).check_files()
    check_vocabulary(options.vocab_file or "", options.do_lower_case, config.vocab_size, sources)
    for source in sources:
        check_config(config, options.bert_config_file or "", source)
    return config, tokenizer


def check_length(length: int, config: BertConfig, name: str = "--max_seq_length") -> None:
    """Raises a UserError if a length exceeds the model's `max_position_embeddings`."""
    if length > (limit := config.max_position_embeddings):
        raise UserError(f"{name}={length} exceeds the model's {limit} positions")
