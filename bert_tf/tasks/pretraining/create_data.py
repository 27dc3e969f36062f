"""Creates pre-training records from text files; the work of `create_pretraining_data.py`."""

import functools
import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from bert_tf.base import file_names, files, locks
from bert_tf.base.errors import Terminated, UserError, counted, note, shortened, warn
from bert_tf.base.progress import bar
from bert_tf.base.quiet import import_tensorflow, pause_gc
from bert_tf.checkpoints.formats.matching import check_vocabulary
from bert_tf.data.beam import for_each_on_beam
from bert_tf.data.features import NUM_LOGGED, log_rows
from bert_tf.data.parallel import parallel_for
from bert_tf.data.records import write_records
from bert_tf.data.texts import check_lines
from bert_tf.tasks.pretraining import sharded_data
from bert_tf.tasks.pretraining.corpus import LineEncoder, load_encoder, read_documents
from bert_tf.tasks.pretraining.instances import create_training_instances, warn_about_single_lines
from bert_tf.tasks.pretraining.options import PretrainingDataOptions
from bert_tf.tasks.pretraining.records import describe_outputs, record_batches, record_features

_MAX_PATHS = 5  # number of paths in a message
# Number of lines per file that are checked for unknown tokens.
_NUM_CHECKED_LINES = 2000


def run(options: PretrainingDataOptions) -> list[str]:
    """Creates the records that `run_pretraining.py` trains on; returns the output paths.

    If an error occurs, no output file is created.
    """
    options.check()
    paths = _find_texts(options)
    encode = load_encoder(options)
    check_vocabulary(options.vocab_file or "", options.do_lower_case)
    affected: dict[str, list[str]] = defaultdict(list)  # problem -> files
    for path in paths:
        lines = [*itertools.islice(files.read_lines(path), _NUM_CHECKED_LINES)]
        for problem in encode.tokenizer.check_texts(path, [[line] for line in lines]):
            warn(problem)
        for problem in itertools.chain(check_lines(path, lines), _check_cut(lines, options)):
            affected[problem].append(path)
    for problem, problem_paths in affected.items():
        warn(problem, at=shortened(problem_paths, _MAX_PATHS))
    note(f"Reading {counted(len(paths), 'file')}: {shortened(paths, _MAX_PATHS)}")
    if options.uses_shards:
        _write_in_shards(options, paths, encode.tokenizer.reference.vocab)
    else:
        with pause_gc():
            _write_in_memory(options, paths, encode)
    return options.outputs


def _find_texts(options: PretrainingDataOptions) -> list[str]:
    paths, outputs = file_names.expand(options.input_file or ""), options.outputs
    if not paths or not outputs:
        raise UserError("--input_file and --output_file must name files")
    for path in paths:
        files.open_binary(path).close()  # Refuses pipes: the texts are read twice.
    sources = [*paths, options.vocab_file or "", options.whole_word_segments or ""]
    file_names.require_distinct(outputs, sources)
    for output in outputs:
        file_names.require_writable(output)
    if options.uses_shards and files.is_stream(outputs[0]):
        raise UserError(f"--output_file={outputs[0]} must be a file: shards are stored next to it")
    return paths


def _write_in_shards(
    options: PretrainingDataOptions, paths: Sequence[str], vocab: Mapping[str, int]
) -> None:
    workers: sharded_data.UnorderedMap = functools.partial(
        parallel_for, num_workers=options.num_workers, start=import_tensorflow
    )
    if options.beam_runner:
        workers = functools.partial(
            for_each_on_beam, runner=options.beam_runner, options=options.beam_options or ""
        )
    outputs = options.outputs
    folder = f"{outputs[0]}.parts"
    with locks.exclusive(locks.lock_path(folder), f"--output_file={outputs[0]}"):
        try:
            units = sharded_data.write_parts(options, paths, folder, workers)
            with describe_outputs(options, vocab):
                num_examples = sharded_data.join_parts(units, folder, outputs, workers)
        except (KeyboardInterrupt, Terminated) as stop:
            stop.args = (f"The same command resumes from {folder}.",)
            raise
    note(f"{', '.join(outputs)}: {counted(num_examples, 'example')}")


def _write_in_memory(
    options: PretrainingDataOptions, paths: Sequence[str], encode: LineEncoder
) -> None:
    """Creates all instances in memory, as the original does, and writes their records."""
    documents = read_documents(paths, encode)
    if not documents:
        raise UserError("No tokens in the input files: nothing to train on")
    if len(documents) == 1 and len(documents[0]) > 1:
        problem = "no blank line between documents: random next sentences are from the same text"
        warn(problem, at=shortened(paths, _MAX_PATHS))
    warn_about_single_lines(sum(len(document) == 1 for document in documents), len(documents))
    with bar(len(documents) * options.dupe_factor, "documents") as progress:
        instances = create_training_instances(documents, options, encode.vocab, progress.update)
    tokenizer = encode.tokenizer.reference
    for rows in record_batches(instances[:NUM_LOGGED], options):
        log_rows("Instance", rows, tokenizer)
    features, outputs = record_features(options), options.outputs
    with describe_outputs(options, tokenizer.vocab):
        for index, output in enumerate(outputs):
            batches = record_batches(instances[index :: len(outputs)], options, use_threads=True)
            num_examples = write_records(output, features, batches)
            note(f"{output}: {counted(num_examples, 'example')}")


def _check_cut(lines: Sequence[str], options: PretrainingDataOptions) -> Iterator[str]:
    counts = [len(line.split()) for line in lines]
    share = sum(max(n - options.max_seq_length, 0) for n in counts) / max(sum(counts), 1)
    if share > 0.5:
        yield f"{share:.0%} of the text will be truncated"
