"""Finds the configuration, vocabulary and initial weights for all scripts."""

import contextlib
import dataclasses
import logging
import os
from typing import Any

import keras

from bert_tf import checkpoints, files
from bert_tf.checkpoints.formats import SavedModelSource, Source, find_source, temporary_folder
from bert_tf.checkpoints.formats.configs import warn_of_other_config
from bert_tf.checkpoints.formats.original import OriginalSource
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

# Every input has these.
_REQUIRED_TOKENS = ("[CLS]", "[SEP]", "[UNK]")


def find_model_files(options: Any) -> Any:
    """Adds configuration and vocabulary from beside `init_checkpoint` to options without them.

    Without `init_checkpoint`, takes those that a training left in `output_dir`. Raises a UserError
    if a file is missing, or `do_lower_case` is not the model's.
    """
    flags = ("bert_config_file", "vocab_file")
    missing = [name for name in flags if not getattr(options, name, "not needed")]
    folders = _folders_of_runs(options)
    own = [newest for newest in map(checkpoints.latest, folders) if newest]
    for newest in own:
        _require_same_casing(OriginalSource(newest), "output_dir", options)
    resumes = folders and len(own) == len(folders)
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
    available = {"bert_config_file": _config_file(source), "vocab_file": source.vocab_file}
    for name in missing:
        if available[name] is None:
            raise UserError(f"--{name} is not given, and there is none beside --{flag}={path}")
    shown = {**available, "bert_config_file": source.config_file or source.path}
    log.info("Found beside --%s: %s", flag, ", ".join(str(shown[name]) for name in missing))
    return dataclasses.replace(options, **{name: available[name] for name in missing})


def _folders_of_runs(options: Any) -> list[str]:
    """Returns the folders whose checkpoints take precedence over `init_checkpoint`, one per run."""
    if getattr(options, "resume", "never") == "never":
        return []
    folder, count = options.output_dir or "", getattr(options, "num_runs", 1)
    return [folder] if count == 1 else [os.path.join(folder, name) for name in run_names(count)]


def _require_same_casing(source: Source, flag: str, options: Any) -> None:
    lower = source.do_lower_case
    # Pre-training reads no texts and has no such flag.
    if lower in (None, getattr(options, "do_lower_case", lower)):
        return
    # For the original's releases, `options.check` already checks casing by the name of the release.
    if source.kind == "original" and not source.has_run:
        return
    raise UserError(
        f"--do_lower_case={str(options.do_lower_case).lower()}, but --{flag}="
        f"{getattr(options, flag)} was trained on texts that were "
        f"{'' if lower else 'not '}lower-cased: pass --do_lower_case={str(lower).lower()}"
    )


def _config_file(source: Source) -> str | None:
    """Returns the configuration of a model as a file in the original's format."""
    path = source.config_file
    if source.kind == "original" or (path and os.path.basename(path) == run_metadata.CONFIG):
        return path
    config = source.config()
    if config is None:
        return None
    path = os.path.join(temporary_folder(), run_metadata.CONFIG)
    files.write_text(path, config.to_json_string())
    return path


def load_config_and_tokenizer(options: ModelOptions) -> tuple[BertConfig, FullTokenizer]:
    """Loads configuration and tokenizer, and checks them against each other and the options."""
    config = BertConfig.from_json_file(options.bert_config_file or "")
    check_length(options, config)
    tokenizer = FullTokenizer(options.vocab_file or "", do_lower_case=options.do_lower_case)
    size = max(tokenizer.vocab.values(), default=-1) + 1
    if size > config.vocab_size:
        raise UserError(
            f"The vocabulary {options.vocab_file} has {size} entries, the model only "
            f"{config.vocab_size}. Pass the vocab.txt that came with the model"
        )
    missing = [token for token in _REQUIRED_TOKENS if token not in tokenizer.vocab]
    if missing:
        lacks = ", ".join(missing)
        raise UserError(
            f"The vocabulary {options.vocab_file} lacks {lacks}: it is not one of BERT's, "
            "with one piece on each line"
        )
    folders = _folders_of_runs(options)
    paths = [*filter(None, map(checkpoints.latest, folders))]
    if options.init_checkpoint and (not folders or len(paths) < len(folders)):
        paths.append(options.init_checkpoint)
    sources = list(map(find_source, paths))
    files_read = [options.vocab_file or "", *(source.vocab_file or "" for source in sources)]
    for folder in dict.fromkeys(map(os.path.dirname, files_read)):
        run_metadata.warn_of_changes(folder)
    check_vocabulary(options.vocab_file or "", options.do_lower_case, config.vocab_size, sources)
    for source in sources:
        warn_of_other_config(config, options.bert_config_file or "", source)
    return config, tokenizer


def check_length(options: EncoderOptions, config: BertConfig) -> None:
    """Raises a UserError if inputs may be longer than the model's positions."""
    if options.max_seq_length > config.max_position_embeddings:
        raise UserError(
            f"--max_seq_length={options.max_seq_length} is more than the model's "
            f"{config.max_position_embeddings} positions: pass a smaller one"
        )


def restore_from(model: keras.Model, path: str) -> checkpoints.Restored:
    """Loads weights in any format that `find_source` reads."""
    source = find_source(path)
    restored = restore_source(model, source)
    if isinstance(source, SavedModelSource) and source.is_encoder:
        require_same_outputs(source, model.config)
    deeper = [name for name in restored.unused if name.startswith("bert/encoder/")]
    if deeper:
        message = "The checkpoint has more layers than the configuration asks for; not used: %s"
        log.warning(message, checkpoints.summarize(deeper))
    return restored


def restore_weights(model: keras.Model, options: Any) -> str | None:
    """Loads the newest checkpoint of `output_dir`, otherwise `init_checkpoint`.

    Skips damaged checkpoints, for instance after a power cut. Returns the checkpoint that the run
    resumes from; None for a new run. Raises a UserError if the checkpoint does not fit, or `resume`
    forbids to use it.
    """
    output_dir, init_checkpoint = options.output_dir or "", options.init_checkpoint
    newest = _own_checkpoint(output_dir, options.do_train, options.resume)
    if newest:
        _resume(model, newest, options)
        return newest
    if not init_checkpoint:
        log.warning(
            "No --init_checkpoint: all weights of the model start from random values%s",
            "" if options.do_train else ", and without --do_train=true they stay random",
        )
        return None
    restored = restore_from(model, init_checkpoint)
    is_own = os.path.normpath(os.path.dirname(restored.prefix)) == os.path.normpath(output_dir)
    if options.do_train and is_own:
        log.warning(
            "--output_dir=%s has the model of --init_checkpoint, which this training would hide: "
            "choose another --output_dir",
            output_dir,
        )
    log.info("%s", restored.describe())
    run_metadata.warn_if_untrained(restored.prefix, options.do_train)
    if restored.new and not options.do_train:
        log.warning(
            "Random, because not in %s: %s. Without --do_train=true the results are random: pass a "
            "fine-tuned model.ckpt-N as --init_checkpoint",
            restored.prefix,
            checkpoints.summarize(restored.new),
        )
    return None


def _resume(model: keras.Model, newest: str, options: Any) -> None:
    try:
        restored = restore_all(model, newest)
    except UserError as error:
        cannot = (
            f"--output_dir={options.output_dir} has a checkpoint that this run cannot resume from"
        )
        advice = "Choose another --output_dir, or empty this one to start anew"
        raise UserError(f"{cannot}. {error}. {advice}") from error
    log.info("Resuming from %s (%d variables)", newest, len(restored.restored))
    run_metadata.warn_if_untrained(newest, options.do_train)
    init_checkpoint = options.init_checkpoint
    if init_checkpoint and not _is_same(init_checkpoint, newest):
        begun = run_metadata.hint(options.output_dir, "begun_from")
        another = options.do_train and begun and not _is_same(begun, init_checkpoint)
        log.log(
            logging.WARNING if another else logging.INFO,
            "--init_checkpoint=%s is not read: --output_dir has checkpoints of its own%s",
            init_checkpoint,
            f", of a training that began from {begun}" if begun else "",
        )


def _is_same(*checkpoint_paths: str) -> bool:
    """Returns whether paths name the same checkpoint, such as a folder and the prefix in it."""
    prefixes = set()
    for path in checkpoint_paths:
        with contextlib.suppress(UserError):
            path = checkpoints.resolve(path)
        prefixes.add(os.path.normpath(path))
    return len(prefixes) == 1


def _own_checkpoint(output_dir: str, do_train: bool, resume: str) -> str | None:
    """Returns the newest readable checkpoint, or without a training the best, if there is one."""
    newest, damaged = None, []
    if do_train or resume != "never":
        best = None if do_train else run_metadata.best_prefix(output_dir)
        newest, damaged = (best, []) if best else checkpoints.newest_readable(output_dir)
    for prefix in damaged:
        log.warning("%s is damaged; skipping it", prefix)
    if newest and resume == "never":
        raise UserError(
            f"--resume=never, but --output_dir={output_dir} has checkpoints: {newest}. Choose "
            "another --output_dir, or empty this one"
        )
    if not newest and resume == "must":
        found = files.describe_absence(os.path.join(output_dir, "*"))
        raise UserError(f"--resume=must, but --output_dir={output_dir} has no checkpoint ({found})")
    return newest


def restore_all(model: keras.Model, prefix: str) -> checkpoints.Restored:
    """Restores a checkpoint that must have exactly the variables of the model."""
    restored = checkpoints.restore(model, prefix)
    if restored.new or restored.unused:
        new, unused = (
            checkpoints.summarize(names) or "nothing" for names in (restored.new, restored.unused)
        )
        raise UserError(
            f"{prefix} is the checkpoint of another model: it lacks {new}, and has beyond this "
            f"model {unused}"
        )
    return restored
