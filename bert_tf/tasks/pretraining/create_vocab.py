"""Learns a WordPiece vocabulary from text files: `create_vocab.py`.

Words are those of the package's tokenizer; the learner is TensorFlow Text's.
"""

import itertools
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf import file_names, files
from bert_tf.data.texts import warn_of_columns
from bert_tf.errors import UserError
from bert_tf.progress import bar, log
from bert_tf.tasks.pretraining.options import VocabularyOptions
from bert_tf.tokenization import BasicTokenizer

# In the published vocabularies [PAD] is 0, 99 unused tokens follow, then the special tokens.
_UNUSED_BEFORE = 99
_SPECIAL = ("[UNK]", "[CLS]", "[SEP]", "[MASK]")

# The learner's defaults, except for `slack_ratio` and `max_unique_chars`: the result should be
# close to the requested size, and have room for the thousands of characters of Chinese.
_LEARNER_PARAMS = {
    "upper_thresh": 10_000_000,
    "lower_thresh": 2,
    "num_iterations": 4,
    "max_input_tokens": 5_000_000,
    "max_token_length": 50,
    "slack_ratio": 0.01,
    "include_joiner_token": True,
    "joiner": "##",
}
_BATCH_SIZE = 1000
# Fraction of the words that must remain after dropping those with characters that do not fit.
_MIN_COVERAGE = 0.9


def run(options: VocabularyOptions) -> list[str]:
    """Learns and writes a vocabulary, and returns its `vocab_size` tokens in the order of ids.

    If there are not enough word pieces, the last ones are missing characters and then `[unusedN]`.
    """
    options.check()
    learner = _import_learner()
    output = options.output_file or ""
    file_names.require_writable(output)
    beside = set(files.list_dir(os.path.dirname(output) or "."))
    if os.path.basename(output) in beside and beside & {"run.json", "bert_config.json"}:
        raise UserError(f"--output_file={output} is the vocabulary of a model: choose another name")
    paths = file_names.expand(options.input_file or "")
    file_names.require_distinct([output], paths)
    counts = count_words(paths, BasicTokenizer(options.do_lower_case))
    if not counts:
        raise UserError(f"No words in {', '.join(paths[:5])}: nothing to learn")
    total, different = f"{counts.total():,}", f"{len(counts):,}"
    message = "Learning from %s words, %s of them different, which can take minutes"
    log.info(message, total, different)
    reserved = reserved_tokens(options.num_unused_tokens)
    tokens = learn(counts, options.vocab_size, reserved, learner)
    tokens += _missing_characters(counts, tokens)[: options.vocab_size - len(tokens)]
    first, missing = options.num_unused_tokens, options.vocab_size - len(tokens)
    tokens += [f"[unused{number}]" for number in range(first, first + missing)]
    files.write_text(output, "\n".join(tokens) + "\n")
    log.info("%s: %d tokens, %d of them [unusedN]", output, len(tokens), first + missing)
    return tokens


def reserved_tokens(num_unused_tokens: int) -> list[str]:
    """Returns the first tokens, as in the published vocabularies."""
    unused = [f"[unused{number}]" for number in range(num_unused_tokens)]
    return ["[PAD]", *unused[:_UNUSED_BEFORE], *_SPECIAL, *unused[_UNUSED_BEFORE:]]


def count_words(paths: Sequence[str], tokenizer: BasicTokenizer) -> Counter[str]:
    """Counts the words in files."""
    counts: Counter[str] = Counter()
    with bar(len(paths), "files") as shown:
        for path in paths:
            lines = iter(files.read_lines(path))
            warn_of_columns(path, first := [*itertools.islice(lines, _BATCH_SIZE)])
            lines = itertools.chain(first, lines)
            while batch := list(itertools.islice(lines, _BATCH_SIZE)):
                counts.update(tokenizer.tokenize("\n".join(batch)))
            shown.update()
    return counts


def learn(
    counts: Mapping[str, int], vocab_size: int, reserved: Sequence[str], learner: Any
) -> list[str]:
    """Learns at most `vocab_size` tokens from the frequencies of words.

    Returns the reserved tokens, single characters, and then word pieces, the most frequent first.
    """
    # Punctuation and ideographs are always single words, and need no `##` form.
    inside = set().union(*(word for word in counts if len(word) > 1))
    alone = sorted(
        (word for word in counts if len(word) == 1 and word not in inside),
        key=lambda word: (-counts[word], word),
    )
    room = vocab_size - len(reserved)
    first = [*reserved, *sorted(alone[: room // 2])]
    room = vocab_size - len(first)
    params = learner.Params(
        vocab_size=vocab_size,
        # Each takes two tokens: for the beginning and for the inside of a word.
        max_unique_chars=max(room // 3, 1),
        reserved_tokens=first,
        **_LEARNER_PARAMS,
    )
    words = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    words = [(word, count) for word, count in words if len(word) > 1 or word in inside]
    words = learner.get_input_words(words, params.reserved_tokens, params.max_token_length)
    allowed = learner.get_allowed_chars(words, params.max_unique_chars)
    total = sum(count for _, count in words)
    words = learner.filter_input_words(words, allowed, params.max_input_tokens)
    if sum(count for _, count in words) < _MIN_COVERAGE * total or len(first) >= vocab_size:
        content = f"the characters of the text and {len(reserved)} reserved tokens"
        raise UserError(f"--vocab_size={vocab_size} has no room for {content}: pass a larger one")
    if not words:
        return first
    upper, lower = learner.get_search_threshs(words, params.upper_thresh, params.lower_thresh)
    tokens = learner.learn_binary_search(words, lower, upper, params)
    # The rarest word pieces come last.
    return tokens[:vocab_size]


def _missing_characters(counts: Mapping[str, int], tokens: Sequence[str]) -> list[str]:
    """Characters without a token, the most frequent first; with `##` inside of words."""
    frequencies: Counter[str] = Counter()
    for word, count in counts.items():
        frequencies.update({f"##{char}" if i else char: count for i, char in enumerate(word)})
    missing = frequencies.keys() - set(tokens)
    return sorted(missing, key=lambda token: (-frequencies[token], token))


def _import_learner() -> Any:
    try:
        from tensorflow_text.tools.wordpiece_vocab import wordpiece_tokenizer_learner_lib
    except Exception as error:
        advice = "install tensorflow-text of TensorFlow's version"
        raise UserError(f"TensorFlow Text cannot be used ({error}): {advice}") from error
    return wordpiece_tokenizer_learner_lib
