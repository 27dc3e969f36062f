"""From text files to records for pre-training: what `create_pretraining_data.py` runs."""

import functools
import itertools
import random
from collections.abc import Iterator, Sequence

from bert_tf import file_names, files, locks
from bert_tf.data.corpus import LineEncoder, read_documents
from bert_tf.data.parallel import chunks, do_by_processes, map_in_order
from bert_tf.data.pretraining import (
    Draws,
    Instance,
    Pieces,
    Recipe,
    all_instances,
    to_arrays,
    without_cycle_search,
)
from bert_tf.data.records import Feature, sequence_features, write_records
from bert_tf.data.word_segments import Segmenter, load_segmenter
from bert_tf.errors import Terminated, UserError
from bert_tf.options import PretrainingDataOptions
from bert_tf.progress import bar, log
from bert_tf.quiet import import_tensorflow
from bert_tf.tasks import sharded_data
from bert_tf.tasks.beam_units import do_by_beam
from bert_tf.tasks.pretraining_records import describing
from bert_tf.tasks.vocabulary_checks import check_vocabulary
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.fast import BatchTokenizer

# Examples that become arrays together.
_TOGETHER = 1024
_SHOWN = 20


def run(options: PretrainingDataOptions) -> list[str]:
    """Makes the records that `run_pretraining.py` trains on.

    Returns:
        Paths of the files that were written.

    Raises:
        UserError: options, vocabulary or texts are not right, or a file cannot be written;
            nothing stands under the name of an output file then that was not there before.
    """
    options.check()
    paths = file_names.expand(options.input_file or "")
    outputs = file_names.split(options.output_file or "")
    if not paths or not outputs:
        raise UserError("--input_file and --output_file must name files")
    sources = [*paths, options.vocab_file or "", options.whole_word_segments or ""]
    file_names.require_distinct(outputs, sources)
    for output in outputs:
        file_names.require_writable(output)
    tokenizer = FullTokenizer(options.vocab_file or "", do_lower_case=options.do_lower_case)
    check_vocabulary(options.vocab_file or "", options.do_lower_case)
    pieces = Pieces(tokenizer.vocab)
    for path in paths:
        lines = [[line] for line in itertools.islice(files.read_lines(path), 2000)]
        BatchTokenizer(tokenizer).warn_of_unknown(path, lines)
    recipe = Recipe(
        options.max_seq_length,
        options.max_predictions_per_seq,
        options.short_seq_prob,
        options.masked_lm_prob,
        options.do_whole_word_mask,
    )
    _compare_predictions(options)
    name = options.whole_word_segments
    # Here and now, so that one that is not there is known before the work begins.
    segmenter = load_segmenter(name) if name else None
    log.info("Reading %d files: %s", len(paths), ", ".join(paths[:5]) + " ..." * (len(paths) > 5))
    if options.in_shards:
        if files.is_stream(outputs[0]):
            raise UserError(
                f"--output_file={outputs[0]} is not a file, and shards are kept beside it: leave "
                "out --num_workers and --beam_runner, or write to a file"
            )
        job = sharded_data.Job(
            options.vocab_file or "",
            options.do_lower_case,
            recipe,
            options.dupe_factor,
            options.random_seed,
            int(options.shard_mb * 1e6),
            len(outputs),
            options.whole_word_segments or "",
        )
        folder, workers = f"{outputs[0]}.parts", _workers(options)
        with locks.exclusive(locks.beside(folder), f"--output_file={outputs[0]}"):
            try:
                units = sharded_data.write_parts(job, paths, folder, workers)
                with describing(outputs, options, tokenizer.vocab):
                    count = sharded_data.join(units, folder, outputs, workers)
            except (KeyboardInterrupt, Terminated) as stop:
                raise type(stop)(f"The same command resumes from {folder}.") from None
        log.info("%s: %d examples", ", ".join(outputs), count)
    else:
        with without_cycle_search():
            _write_as_the_original(options, recipe, paths, outputs, tokenizer, pieces, segmenter)
    return outputs


def _workers(options: PretrainingDataOptions) -> sharded_data.Workers:
    if options.beam_runner:
        return functools.partial(
            do_by_beam, runner=options.beam_runner, options=options.beam_options or ""
        )
    return functools.partial(
        do_by_processes, num_workers=options.num_workers, start=import_tensorflow
    )


def _write_as_the_original(
    options: PretrainingDataOptions,
    recipe: Recipe,
    paths: Sequence[str],
    outputs: Sequence[str],
    tokenizer: FullTokenizer,
    pieces: Pieces,
    segmenter: Segmenter | None,
) -> None:
    documents = read_documents(
        paths, LineEncoder(BatchTokenizer(tokenizer), pieces.size, segmenter)
    )
    if not documents:
        raise UserError(f"There is not one token in {', '.join(paths[:5])}: nothing to train on")
    _warn_of_documents(documents, paths)
    draws = Draws(random.Random(options.random_seed))
    total = len(documents) * options.dupe_factor
    with bar(total, "documents") as shown:
        instances = all_instances(
            documents, options.dupe_factor, draws, recipe, pieces, lambda: shown.update()
        )
    for instance in instances[:_SHOWN]:
        log.debug("%s", _describe(instance, tokenizer))
    with describing(outputs, options, tokenizer.vocab):
        for number, output in enumerate(outputs):
            part = instances[number :: len(outputs)]
            count = write_records(output, features(recipe), _batches(part, recipe))
            log.info("%s: %d examples", output, count)


def features(recipe: Recipe) -> tuple[Feature, ...]:
    """Declares the records."""
    predictions = recipe.max_predictions_per_seq
    return (
        *sequence_features(recipe.max_seq_length),
        Feature("masked_lm_positions", predictions),
        Feature("masked_lm_ids", predictions),
        Feature("masked_lm_weights", predictions, "float32"),
        Feature("next_sentence_labels", 1),
    )


def _batches(instances: Sequence[Instance], recipe: Recipe) -> Iterator[dict]:
    return map_in_order(lambda part: to_arrays(part, recipe), chunks(instances, _TOGETHER))


def _compare_predictions(options: PretrainingDataOptions) -> None:
    """Points out that fewer tokens are to be predicted than the length asks for.

    Raises:
        UserError: with shards, where no old command line expects the original's silence.
    """
    wanted = round(options.max_seq_length * options.masked_lm_prob)
    if options.max_predictions_per_seq >= wanted:
        return
    message = (
        f"--max_predictions_per_seq={options.max_predictions_per_seq} is less than {wanted}, which "
        f"is --masked_lm_prob={options.masked_lm_prob} of --max_seq_length="
        f"{options.max_seq_length}: pass --max_predictions_per_seq={wanted}, here and to "
        "run_pretraining.py, or a smaller --masked_lm_prob"
    )
    if options.in_shards:
        raise UserError(message)
    log.warning("%s", message)


def _warn_of_documents(documents: Sequence, paths: Sequence[str]) -> None:
    sentences = max(map(len, documents))
    if len(documents) == 1 and sentences > 1:
        log.warning(
            "%s: all lines are one document, because no line is blank. The random next sentence "
            "then comes from the same text: put a blank line between documents",
            ", ".join(paths[:5]),
        )
    elif len(documents) > 1 and sentences == 1:
        log.warning(
            "%s: each document is a single line, of which only the beginning is used, and no next "
            "sentence is the real one: put each sentence on a line of its own",
            ", ".join(paths[:5]),
        )


def _describe(instance: Instance, tokenizer: FullTokenizer) -> str:
    def tokens(ids: Sequence[int]) -> str:
        return " ".join(tokenizer.convert_ids_to_tokens(ids))

    return (
        f"tokens: {tokens(instance.input_ids)}\n  is_random_next: {instance.is_random_next}\n"
        f"  masked_lm_positions: {instance.positions}\n"
        f"  masked_lm_labels: {tokens(instance.labels)}"
    )
