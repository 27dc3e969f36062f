"""Finds the configuration, vocabulary and initial weights for all scripts."""

import contextlib
import dataclasses
import logging
import os
from collections.abc import Sequence
from typing import Any

import keras

from bert_tf import checkpoints, files
from bert_tf.checkpoints.formats import SavedModelSource, Source, find_source, temporary_folder
from bert_tf.checkpoints.formats.configs import warn_of_other_config
from bert_tf.checkpoints.formats.original import OriginalSource
from bert_tf.checkpoints.formats.selected_layers import SelectedLayers
from bert_tf.checkpoints.hub_parity import require_same_outputs
from bert_tf.checkpoints.loading import restore_source
from bert_tf.config import BertConfig
from bert_tf.errors import UserError
from bert_tf.finetuning import run_metadata
from bert_tf.finetuning.multi_seed import run_names
from bert_tf.finetuning.vocabulary_checks import check_vocabulary
from bert_tf.options import EncoderOptions, ModelOptions
from bert_tf.progress import log
from bert_tf.tokenization import FullTokenizer

# Tokens that are required to convert texts to inputs.
_REQUIRED_TOKENS = ("[CLS]", "[SEP]", "[UNK]")


def find_model_files(options: Any) -> Any:
    """Fills in unset `bert_config_file` and `vocab_file` from the folder of `init_checkpoint`.

    Without `init_checkpoint`, uses the files that an earlier run saved in `output_dir`. Raises a
    UserError if a file is missing, or if `do_lower_case` does not match the model.
    """
    flags = ("bert_config_file", "vocab_file")
    missing = [name for name in flags if not getattr(options, name, "not needed")]
    folders = _run_folders(options)
    newest_checkpoints = [newest for newest in map(checkpoints.latest, folders) if newest]
    for newest in newest_checkpoints:
        _require_same_casing(OriginalSource(newest), "output_dir", options)
    resumes = folders and len(newest_checkpoints) == len(folders)
    flag = "init_checkpoint" if options.init_checkpoint or not missing else "output_dir"
    path = getattr(options, flag, None)
    # When resuming, `init_checkpoint` is not read and may have been deleted.
    if not path or (resumes and not missing):
        return options
    source = find_source(path)
    if not resumes:
        _require_same_casing(source, flag, options)
    if not missing:
        return options
    layers = _init_layers(options)
    available = {"bert_config_file": _config_file(source, len(layers))}
    available["vocab_file"] = source.vocab_file
    for name in missing:
        if available[name] is None:
            raise UserError(f"--{name} is not set, and --{flag}={path} has none")
    log_paths = {**available, "bert_config_file": source.config_file or source.path}
    log.info("Found with --%s: %s", flag, ", ".join(str(log_paths[name]) for name in missing))
    return dataclasses.replace(options, **{name: available[name] for name in missing})


def _run_folders(options: Any) -> list[str]:
    """Returns the folders whose checkpoints take precedence over `init_checkpoint`, one per run."""
    if getattr(options, "resume", "never") == "never":
        return []
    folder, count = options.output_dir or "", getattr(options, "num_runs", 1)
    return [folder] if count == 1 else [os.path.join(folder, name) for name in run_names(count)]


def _require_same_casing(source: Source, flag: str, options: Any) -> None:
    lower = source.do_lower_case
    # Pre-training reads no text, so it has no such flag.
    if lower in (None, getattr(options, "do_lower_case", lower)):
        return
    # `options.check` already checks the casing of Google's released models by their folder names.
    if source.kind == "original" and not source.has_run:
        return
    raise UserError(
        f"--do_lower_case={str(options.do_lower_case).lower()}, but --{flag}="
        f"{getattr(options, flag)} was trained on {'lower-' if lower else ''}cased text: pass "
        f"--do_lower_case={str(lower).lower()}"
    )


def _init_layers(options: Any) -> list[int]:
    return getattr(options, "init_layer_numbers", [])


def _config_file(source: Source, num_layers: int = 0) -> str | None:
    """Returns a path of the configuration in the original's format, converting it if needed.

    With `num_layers`, it is the configuration of a model with this many layers.
    """
    path = source.config_file
    is_ours = source.kind == "original" or (path and os.path.basename(path) == run_metadata.CONFIG)
    if is_ours and not num_layers:
        return path
    config = source.config()
    if config is None:
        return None
    config.num_hidden_layers = num_layers or config.num_hidden_layers
    path = os.path.join(temporary_folder(), run_metadata.CONFIG)
    files.write_text(path, config.to_json_string())
    return path


def load_config_and_tokenizer(options: ModelOptions) -> tuple[BertConfig, FullTokenizer]:
    """Loads the configuration and tokenizer, and checks that they match each other."""
    config = BertConfig.from_json_file(options.bert_config_file or "")
    check_length(options, config)
    layers = _init_layers(options)
    if layers and len(layers) != config.num_hidden_layers:
        raise UserError(
            f"--init_layers={options.init_layers} selects {len(layers)} layers, but "
            f"{options.bert_config_file} has num_hidden_layers={config.num_hidden_layers}"
        )
    tokenizer = FullTokenizer(options.vocab_file or "", do_lower_case=options.do_lower_case)
    size = max(tokenizer.vocab.values(), default=-1) + 1
    if size > config.vocab_size:
        raise UserError(
            f"The vocabulary {options.vocab_file} has {size} entries, but the model "
            f"has only {config.vocab_size}. Pass the vocab.txt that came with the model"
        )
    missing = [token for token in _REQUIRED_TOKENS if token not in tokenizer.vocab]
    if missing:
        raise UserError(
            f"The vocabulary {options.vocab_file} lacks {', '.join(missing)}: it is not a BERT "
            "vocabulary, which has one token per line"
        )
    folders = _run_folders(options)
    paths = [*filter(None, map(checkpoints.latest, folders))]
    if options.init_checkpoint and (not folders or len(paths) < len(folders)):
        paths.append(options.init_checkpoint)
        if layers:
            # Raises for a missing layer before the data is read.
            SelectedLayers(find_source(options.init_checkpoint), layers)
    sources = list(map(find_source, paths))
    files_read = [options.vocab_file or "", *(source.vocab_file or "" for source in sources)]
    for folder in dict.fromkeys(map(os.path.dirname, files_read)):
        run_metadata.warn_of_changes(folder)
    check_vocabulary(options.vocab_file or "", options.do_lower_case, config.vocab_size, sources)
    for source in sources:
        warn_of_other_config(config, options.bert_config_file or "", source)
    return config, tokenizer


def check_length(options: EncoderOptions, config: BertConfig) -> None:
    """Raises a UserError if `max_seq_length` exceeds the model's `max_position_embeddings`."""
    if options.max_seq_length > config.max_position_embeddings:
        raise UserError(
            f"--max_seq_length={options.max_seq_length} exceeds the model's "
            f"{config.max_position_embeddings} positions: pass a smaller value"
        )


def restore_from(model: keras.Model, path: str, layers: Sequence[int] = ()) -> checkpoints.Restored:
    """Loads weights in any format that `find_source` recognizes; `layers` selects some layers."""
    source = find_source(path)
    if layers:
        log.info("Initialized from layers %s of %s", ", ".join(map(str, layers)), source.path)
        return restore_source(model, SelectedLayers(source, layers))
    restored = restore_source(model, source)
    if isinstance(source, SavedModelSource) and source.is_encoder:
        require_same_outputs(source, model.config)
    unused_layers = [name for name in restored.unused if name.startswith("bert/encoder/")]
    if unused_layers:
        message = "The checkpoint has more layers than the configuration; unused: %s"
        log.warning(message, checkpoints.summarize(unused_layers))
    return restored


def trained_checkpoint(folder: str) -> str:
    """Returns the best checkpoint of a training run with `--eval_every`, otherwise the newest."""
    prefix = run_metadata.best_prefix(folder) or checkpoints.newest_readable(folder)[0]
    # The folder's list of checkpoints does not name one that was moved or stripped.
    return prefix or checkpoints.resolve(folder)


def restore_weights(model: keras.Model, options: Any) -> str | None:
    """Loads the newest checkpoint in `output_dir`, or `init_checkpoint` if there is none.

    Without training, loads the best instead of the newest one, if known. Skips damaged checkpoints.
    Returns the checkpoint in `output_dir`; None for a new run. Raises a UserError if it does not
    match the model, or if `resume` does not allow it.
    """
    output_dir, init_checkpoint = options.output_dir or "", options.init_checkpoint
    checkpoint = _output_checkpoint(output_dir, options.do_train, options.resume)
    if checkpoint:
        _resume(model, checkpoint, options)
        return checkpoint
    if not init_checkpoint:
        log.warning(
            "No --init_checkpoint: all weights are initialized randomly%s",
            "" if options.do_train else ", and stay random without --do_train=true",
        )
        return None
    restored = restore_from(model, init_checkpoint, _init_layers(options))
    folder = os.path.dirname(restored.prefix)
    if options.do_train and os.path.normpath(folder) == os.path.normpath(output_dir):
        log.warning(
            "--output_dir=%s contains the --init_checkpoint: later runs that are given this folder "
            "would load this run's checkpoints instead. Choose a different --output_dir",
            output_dir,
        )
    log.info("%s", restored.describe())
    run_metadata.warn_if_untrained(restored.prefix, options.do_train)
    if restored.new and not options.do_train:
        log.warning(
            "Not in %s, so initialized randomly: %s. Without --do_train=true the results are "
            "meaningless: pass a fine-tuned model.ckpt-N as --init_checkpoint",
            restored.prefix,
            checkpoints.summarize(restored.new),
        )
    return None


def _resume(model: keras.Model, checkpoint: str, options: Any) -> None:
    try:
        restored = restore_strict(model, checkpoint)
    except UserError as error:
        problem = f"Cannot resume from the checkpoint in --output_dir={options.output_dir}"
        advice = "Choose another --output_dir, or empty this one to start over"
        raise UserError(f"{problem}. {error}. {advice}") from error
    log.info("Resuming from %s (%d variables)", checkpoint, len(restored.restored))
    run_metadata.warn_if_untrained(checkpoint, options.do_train)
    init_checkpoint = options.init_checkpoint
    if init_checkpoint and not _is_same(init_checkpoint, checkpoint):
        start = run_metadata.read_run_string(options.output_dir, "begun_from")
        is_different = options.do_train and start and not _is_same(start, init_checkpoint)
        log.log(
            logging.WARNING if is_different else logging.INFO,
            "--init_checkpoint=%s is ignored: --output_dir has its own checkpoints%s",
            init_checkpoint,
            f", from a run that started from {start}" if start else "",
        )


def _is_same(*checkpoint_paths: str) -> bool:
    """Returns whether paths refer to the same checkpoint, e.g. a folder and a prefix in it."""
    prefixes = set()
    for path in checkpoint_paths:
        with contextlib.suppress(UserError):
            path = checkpoints.resolve(path)
        prefixes.add(os.path.normpath(path))
    return len(prefixes) == 1


def _output_checkpoint(output_dir: str, do_train: bool, resume: str) -> str | None:
    """Returns the newest readable checkpoint, or, without training, the best one if it exists."""
    checkpoint, damaged = None, []
    if do_train or resume != "never":
        best = None if do_train else run_metadata.best_prefix(output_dir)
        checkpoint, damaged = (best, []) if best else checkpoints.newest_readable(output_dir)
    for prefix in damaged:
        log.warning("%s is damaged; skipping it", prefix)
    if checkpoint and resume == "never":
        raise UserError(
            f"--resume=never, but --output_dir={output_dir} has checkpoints: {checkpoint}. Choose "
            "another --output_dir, or empty this one"
        )
    if not checkpoint and resume == "must":
        why = files.describe_absence(os.path.join(output_dir, "*"))
        raise UserError(f"--resume=must, but --output_dir={output_dir} has no checkpoint ({why})")
    return checkpoint


def restore_strict(model: keras.Model, prefix: str) -> checkpoints.Restored:
    """Restores a checkpoint that must have exactly the model's variables."""
    restored = checkpoints.restore(model, prefix)
    if restored.new or restored.unused:
        missing, unexpected = (
            checkpoints.summarize(names) or "none" for names in (restored.new, restored.unused)
        )
        raise UserError(
            f"{prefix} does not match this model. Missing variables: {missing}; unexpected "
            f"variables: {unexpected}"
        )
    return restored
