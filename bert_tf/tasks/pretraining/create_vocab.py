"""Learns a WordPiece vocabulary from text files, for `create_vocab.py`.

The package's tokenizer splits the texts into words; the learner is from TensorFlow Text.
"""

import itertools
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf import file_names, files
from bert_tf.data.texts import warn_about_columns
from bert_tf.errors import UserError
from bert_tf.progress import bar, log
from bert_tf.tasks.pretraining.options import VocabularyOptions
from bert_tf.tokenization import BasicTokenizer

# In the published vocabularies [PAD] is 0, 99 unused tokens follow, then the special tokens.
_UNUSED_BEFORE = 99
_SPECIAL = ("[UNK]", "[CLS]", "[SEP]", "[MASK]")

_BATCH_LINES = 1000
# Minimum fraction of words that consist only of characters that fit into the vocabulary.
_MIN_COVERAGE = 0.9


def run(options: VocabularyOptions) -> list[str]:
    """Learns and writes a vocabulary; returns its `vocab_size` tokens in the order of their ids.

    If there are too few word pieces, missing characters and then `[unusedN]` fill the rest of it.
    """
    options.check()
    learner = _import_learner()
    output = options.output_file or ""
    file_names.require_writable(output)
    siblings = set(files.list_dir(os.path.dirname(output) or "."))
    if os.path.basename(output) in siblings and siblings & {"run.json", "bert_config.json"}:
        raise UserError(f"--output_file={output} belongs to a model: choose a different name")
    paths = file_names.expand(options.input_file or "")
    file_names.require_distinct([output], paths)
    counts = count_words(paths, BasicTokenizer(options.do_lower_case))
    if not counts:
        raise UserError(f"No words in {', '.join(paths[:5])}: nothing to learn")
    total, distinct = f"{counts.total():,}", f"{len(counts):,}"
    message = "Learning from %s words (%s distinct); this can take several minutes"
    log.info(message, total, distinct)
    reserved = reserved_tokens(options.num_unused_tokens)
    tokens = learn(counts, options.vocab_size, reserved, learner)
    tokens += _find_missing_characters(counts, tokens)[: options.vocab_size - len(tokens)]
    num_unused = options.num_unused_tokens + options.vocab_size - len(tokens)
    tokens += [f"[unused{n}]" for n in range(options.num_unused_tokens, num_unused)]
    files.write_text(output, "\n".join(tokens) + "\n")
    log.info("%s: %d tokens, %d of them [unusedN]", output, len(tokens), num_unused)
    return tokens


def reserved_tokens(num_unused_tokens: int) -> list[str]:
    """Returns the first tokens of the vocabulary, ordered as in the published vocabularies."""
    unused = [f"[unused{number}]" for number in range(num_unused_tokens)]
    return ["[PAD]", *unused[:_UNUSED_BEFORE], *_SPECIAL, *unused[_UNUSED_BEFORE:]]


def count_words(paths: Sequence[str], tokenizer: BasicTokenizer) -> Counter[str]:
    """Counts the words in text files."""
    counts: Counter[str] = Counter()
    with bar(len(paths), "files") as progress:
        for path in paths:
            lines = iter(files.read_lines(path))
            warn_about_columns(path, first := [*itertools.islice(lines, _BATCH_LINES)])
            lines = itertools.chain(first, lines)
            while batch := list(itertools.islice(lines, _BATCH_LINES)):
                counts.update(tokenizer.tokenize("\n".join(batch)))
            progress.update()
    return counts


def learn(
    counts: Mapping[str, int], vocab_size: int, reserved: Sequence[str], learner: Any
) -> list[str]:
    """Learns at most `vocab_size` tokens from word frequencies.

    Returns the reserved tokens, then single characters, then word pieces, most frequent first.
    """
    # Punctuation and ideographs only occur as single-character words, and need no `##` form.
    in_words = set().union(*(word for word in counts if len(word) > 1))
    standalone = sorted(
        (word for word in counts if len(word) == 1 and word not in in_words),
        key=lambda word: (-counts[word], word),
    )
    room = vocab_size - len(reserved)
    first = [*reserved, *sorted(standalone[: room // 2])]
    words = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    words = [(word, count) for word, count in words if len(word) > 1 or word in in_words]
    # A character takes two tokens: one at the start of a word, and one with `##`.
    max_chars = max((vocab_size - len(first)) // 3, 1)
    allowed = learner.get_allowed_chars(words, max_chars)
    covered = sum(count for word, count in words if allowed.issuperset(word))
    if covered < _MIN_COVERAGE * sum(dict(words).values()) or len(first) >= vocab_size:
        content = f"the characters of the text and {len(reserved)} reserved tokens"
        raise UserError(f"--vocab_size={vocab_size} has no room for {content}: pass a larger one")
    if not words:
        return first
    # `slack_ratio` keeps the size close to the requested one.
    settings = {"lower_thresh": 2, "max_unique_chars": max_chars, "slack_ratio": 0.01}
    tokens = learner.learn(words, vocab_size, first, **settings)
    # The rarest word pieces come last.
    return tokens[:vocab_size]


def _find_missing_characters(counts: Mapping[str, int], tokens: Sequence[str]) -> list[str]:
    """Returns characters without a token, most frequent first; those inside words with `##`."""
    frequencies: Counter[str] = Counter()
    for word, count in counts.items():
        frequencies.update({f"##{char}" if i else char: count for i, char in enumerate(word)})
    missing = frequencies.keys() - set(tokens)
    return sorted(missing, key=lambda token: (-frequencies[token], token))


def _import_learner() -> Any:
    try:
        from tensorflow_text.tools.wordpiece_vocab import wordpiece_tokenizer_learner_lib
    except Exception as error:
        advice = "install the version of tensorflow-text that matches TensorFlow"
        raise UserError(f"TensorFlow Text cannot be used ({error}): {advice}") from error
    return wordpiece_tokenizer_learner_lib
