"""Finds the configuration and vocabulary of a model for all scripts; imports no TensorFlow."""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from bert_tf import files
from bert_tf.checkpoints import formats
from bert_tf.checkpoints.formats.configs import count_layers, warn_of_other_config
from bert_tf.checkpoints.run_folder import CONFIG, RunFolder
from bert_tf.config import BertConfig
from bert_tf.errors import UserError, counted
from bert_tf.finetuning.vocabulary_checks import check_vocabulary
from bert_tf.options import EncoderOptions, ModelOptions
from bert_tf.progress import log
from bert_tf.tokenization import FullTokenizer

# Tokens that are required to convert texts to inputs.
_REQUIRED_TOKENS = ("[CLS]", "[SEP]", "[UNK]")


def find_model_files(options: Any) -> Any:
    """Fills in unset files and tokenizer options from the folder of `init_checkpoint`.

    Without `init_checkpoint`, uses the files that an earlier run saved in `output_dir`. Raises a
    UserError if a file is missing, or if `do_lower_case` does not match the model.
    """
    flags = ("bert_config_file", "vocab_file")
    unset_flags = [name for name in flags if not getattr(options, name, "not needed")]
    sources, all_resume = _resumed_runs(options)
    for source in sources:
        _require_same_casing(source, "output_dir", options)
        options = follow_tokenizer(source.tokenizer_settings, source.path, options)
    flag = "init_checkpoint" if options.init_checkpoint or not unset_flags else "output_dir"
    path = getattr(options, flag, None)
    # When resuming, `init_checkpoint` is not read and may have been deleted.
    if not path or (all_resume and not unset_flags):
        return options
    source = formats.find_source(path)
    if not all_resume:
        _require_same_casing(source, flag, options)
        options = follow_tokenizer(source.tokenizer_settings, source.path, options)
    if not unset_flags:
        return options
    num_layers = len(options.init_layer_numbers)
    available = {"bert_config_file": _config_file(source, num_layers)}
    available["vocab_file"] = source.vocab_file
    for name in unset_flags:
        if available[name] is None:
            raise UserError(f"Pass --{name}: none was found with --{flag}={path}")
    log_paths = {**available, "bert_config_file": source.config_file or source.path}
    listed = ", ".join(str(log_paths[name]) for name in unset_flags)
    log.info("Using the model files of --%s: %s", flag, listed)
    return dataclasses.replace(options, **{name: available[name] for name in unset_flags})


def follow_tokenizer(settings: Mapping[str, str], model: str, options: Any) -> Any:
    """Fills in unset tokenizer options with the settings of a model; warns of other values."""
    passed = {name: getattr(options, name, value) for name, value in settings.items()}
    unset = {name: settings[name] for name, value in passed.items() if value in (None, "auto")}
    for name, value in settings.items():
        if name in unset:
            log.info("Using --%s=%s, from the folder of %s", name, value, model)
        elif passed[name] != value:
            message = "--%s=%s was passed, but %s needs --%s=%s: tokens will differ"
            log.warning(message, name, passed[name], model, name, value)
    return dataclasses.replace(options, **unset) if unset else options


def _resumed_runs(options: Any) -> tuple[list[formats.Source], bool]:
    """Returns the newest checkpoint of each run in `output_dir`, and whether all runs have one."""
    if options.resume == "never":
        return [], False
    folder, count = RunFolder(options.output_dir or ""), options.num_runs
    newest = [run.newest for run in (folder.subfolders(count) if count > 1 else [folder])]
    return [formats.OriginalSource(prefix) for prefix in newest if prefix], all(newest)


def _require_same_casing(source: formats.Source, flag: str, options: Any) -> None:
    lower_case = source.do_lower_case
    # Pre-training has no flag --do_lower_case, because it reads no text.
    if lower_case in (None, getattr(options, "do_lower_case", lower_case)):
        return
    # `options.check` already checks the casing of Google's released models by their folder names.
    if source.kind == "original" and not source.casing_is_recorded:
        return
    raise UserError(
        f"--do_lower_case={str(options.do_lower_case).lower()}, but --{flag}="
        f"{getattr(options, flag)} was trained on {'lower-' if lower_case else ''}cased text: pass "
        f"--do_lower_case={str(lower_case).lower()}"
    )


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


def load_config_and_tokenizer(options: ModelOptions) -> tuple[BertConfig, FullTokenizer]:
    """Loads the configuration and tokenizer, and checks that they match each other."""
    config = BertConfig.from_json_file(options.bert_config_file or "")
    check_length(options, config)
    layers = options.init_layer_numbers
    if layers and len(layers) != config.num_hidden_layers:
        raise UserError(
            f"--init_layers={','.join(map(str, layers))} selects {counted(len(layers), 'layer')}, "
            f"but {options.bert_config_file} has num_hidden_layers={config.num_hidden_layers}"
        )
    tokenizer = options.tokenizer()
    num_entries = max(tokenizer.vocab.values(), default=-1) + 1
    if num_entries > config.vocab_size:
        raise UserError(
            f"The vocabulary {options.vocab_file} has {num_entries} entries, but the model "
            f"has only {config.vocab_size}. Pass the vocab.txt that came with the model"
        )
    missing = [token for token in _REQUIRED_TOKENS if token not in tokenizer.vocab]
    if missing:
        raise UserError(
            f"The vocabulary {options.vocab_file} lacks {', '.join(missing)}: it is not a BERT "
            "vocabulary, which has one token per line"
        )
    sources, all_resume = _resumed_runs(options)
    if options.init_checkpoint and not all_resume:
        source = formats.find_source(options.init_checkpoint)
        sources.append(source)
        if layers and max(layers) >= (count := count_layers(source.shapes())):
            # Raise this before the data is read.
            existing = counted(count, "layer", "are")
            problem = f"has no layer {max(layers)}: its {existing} numbered from 0"
            raise UserError(f"{source.path} {problem}")
    vocab_files = [options.vocab_file or "", *(source.vocab_file or "" for source in sources)]
    for folder in dict.fromkeys(map(os.path.dirname, vocab_files)):
        RunFolder(folder).warn_of_edits()
    check_vocabulary(options.vocab_file or "", options.do_lower_case, config.vocab_size, sources)
    for source in sources:
        warn_of_other_config(config, options.bert_config_file or "", source)
    return config, tokenizer


def check_length(options: EncoderOptions, config: BertConfig) -> None:
    """Raises a UserError if `max_seq_length` exceeds the model's `max_position_embeddings`."""
    if options.max_seq_length > config.max_position_embeddings:
        raise UserError(
            f"--max_seq_length={options.max_seq_length} exceeds the model's "
            f"{config.max_position_embeddings} positions: pass at most this number"
        )
