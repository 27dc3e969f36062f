"""Python API of the original BERT release's `run_squad.py`."""

import collections
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace

import numpy as np

from bert_tf import tokenization
from bert_tf.base import files
from bert_tf.base.foreign_names import error_stubs
from bert_tf.tasks.question_answering import decoding, squad_reader
from bert_tf.tasks.question_answering.decoding import get_final_text, join_pieces
from bert_tf.tasks.question_answering.squad_reader import SquadExample
from bert_tf.tasks.question_answering.windows import Windows
from bert_tf.tokenization.fast import BatchTokenizer

globals().update(error_stubs("run_squad"))

# Flags that the functions below use; programs may change them.
FLAGS = SimpleNamespace(version_2_with_negative=False, null_score_diff_threshold=0.0)
RawResult = collections.namedtuple("RawResult", "unique_id start_logits end_logits")
InputFeatures = collections.namedtuple(
    "InputFeatures",
    "unique_id example_index doc_span_index tokens token_to_orig_map token_is_max_context "
    "input_ids input_mask segment_ids start_position end_position is_impossible",
    defaults=(None, None, None),
)


def read_squad_examples(input_file: str, is_training: bool) -> list[SquadExample]:
    """Reads a SQuAD file: version 2.0 with `FLAGS.version_2_with_negative`, otherwise 1.1."""
    return squad_reader.read_squad_examples(input_file, is_training, FLAGS.version_2_with_negative)


def convert_examples_to_features(
    examples: Sequence[SquadExample],
    tokenizer: tokenization.FullTokenizer,
    max_seq_length: int,
    doc_stride: int,
    max_query_length: int,
    is_training: bool,
    output_fn: Callable[[InputFeatures], object],
) -> None:
    """Splits paragraphs into windows, and calls `output_fn` with the features of each window."""
    batch_tokenizer, next_id = BatchTokenizer(tokenizer), 0
    for index, example in enumerate(examples):
        windows = Windows([example], batch_tokenizer, max_seq_length, doc_stride, max_query_length)
        columns = windows.inputs()
        columns["unique_id"] = columns.pop("unique_ids") + next_id
        next_id += len(windows)
        if is_training:
            targets = windows.targets()
            columns["start_position"] = targets["start_positions"]
            columns["end_position"] = targets["end_positions"]
        for row in range(len(windows)):
            values = {name: column[row].tolist() for name, column in columns.items()}
            positions = range(windows.offset[row], windows.offset[row] + windows.length[row])
            word_indices = windows.token_words[windows.start[row] :][: len(positions)]
            is_max = windows.is_max_context(np.array([row]), np.arange(len(positions))[None])[0]
            feature = InputFeatures(
                example_index=index,
                doc_span_index=row,
                tokens=tokenizer.convert_ids_to_tokens(values["input_ids"][: positions.stop + 1]),
                token_to_orig_map=dict(zip(positions, word_indices.tolist(), strict=True)),
                token_is_max_context=dict(zip(positions, is_max.tolist(), strict=True)),
                is_impossible=example.is_impossible,
                **values,
            )
            output_fn(feature)


def write_predictions(
    all_examples: Sequence[SquadExample],
    all_features: Sequence[InputFeatures],
    all_results: Sequence[RawResult],
    n_best_size: int,
    max_answer_length: int,
    do_lower_case: bool,
    output_prediction_file: str,
    output_nbest_file: str,
    output_null_log_odds_file: str,
) -> None:
    """Writes answers, n-best lists and, with `FLAGS.version_2_with_negative`, null log-odds."""
    results = {result.unique_id: result for result in all_results}
    all_windows = collections.defaultdict(list)
    for feature in all_features:
        all_windows[feature.example_index].append((feature, results[feature.unique_id]))
    n_best_lists = []
    for index, example in enumerate(all_examples):
        windows = all_windows[index]
        spans = [
            span
            for feature, result in windows
            for span in _best_spans(feature, result, n_best_size)
        ]
        valid_spans = [span for span in spans if 0 <= span[1] - span[0][1] < max_answer_length]
        valid_spans.sort(key=lambda span: -(span[2] + span[3]))
        null_answer = None
        if FLAGS.version_2_with_negative:
            null_logits = [(result.start_logits[0], result.end_logits[0]) for _, result in windows]
            null_start, null_end = min(null_logits, key=sum, default=(0.0, 0.0))
            null_answer = decoding.Answer("", null_start, null_end)
        find = functools.partial(_find_answer, example.doc_tokens, do_lower_case)
        n_best_lists.append(decoding.make_n_best(valid_spans, null_answer, find, n_best_size))
    threshold = FLAGS.null_score_diff_threshold
    contents = decoding.Predictions(all_examples, n_best_lists, threshold).contents()
    paths = (output_prediction_file, output_nbest_file, output_null_log_odds_file)
    for path, content in zip(paths, contents.values(), strict=False):
        files.write_text(path, content)


def _best_spans(feature: InputFeatures, result: RawResult, size: int) -> Iterator[decoding.Span]:
    """Yields ((features, start), end, start logit, end logit) for the best starts and ends."""
    starts, ends = (
        sorted(range(len(logits)), key=lambda index, logits=logits: -logits[index])[:size]
        for logits in (result.start_logits, result.end_logits)
    )
    for start, end in itertools.product(starts, ends):
        if feature.token_is_max_context.get(start) and end in feature.token_to_orig_map:
            yield (feature, start), end, result.start_logits[start], result.end_logits[end]


def _find_answer(
    words: list[str], do_lower_case: bool, feature_and_start: tuple[InputFeatures, int], end: int
) -> tuple[str, None, None]:
    feature, start = feature_and_start
    span = slice(feature.token_to_orig_map[start], feature.token_to_orig_map[end] + 1)
    pieces = join_pieces(feature.tokens[start : end + 1])
    return get_final_text(pieces, " ".join(words[span]), do_lower_case), None, None
