"""Learns a WordPiece vocabulary from text files; the work of `create_vocab.py`.

bert_tf's tokenizer splits the texts into words; TensorFlow Text learns word pieces from them.
"""

import itertools
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.base import file_names, files
from bert_tf.base.errors import UserError, counted, note, reason, warn
from bert_tf.base.progress import bar
from bert_tf.checkpoints.run_folder import CONFIG, RUN
from bert_tf.commands.options import VocabularyOptions
from bert_tf.data.texts import check_lines
from bert_tf.tokenization import BasicTokenizer

# In the published vocabularies, [PAD] has id 0, and 99 unused tokens precede the special tokens.
_UNUSED_BEFORE_SPECIAL = 99
_SPECIAL_TOKENS = ("[UNK]", "[CLS]", "[SEP]", "[MASK]")

_NUM_CHECKED = 1000  # lines of each file
# Tolerated fraction of the text's characters that have no token.
_MAX_MISSING = 0.005
# Minimum fraction of the text's words whose characters are all in the vocabulary.
_MIN_COVERAGE = 0.9


def run(options: VocabularyOptions) -> list[str]:
    """Learns and writes a vocabulary; returns its `vocab_size` tokens in the order of their ids.

    If fewer tokens are learned, characters without a token are added, and then `[unusedN]`.
    """
    options.check()
    learner = _import_learner()
    output = options.output_file or ""
    file_names.require_writable(output)
    folder_names = set(files.list_dir(os.path.dirname(output) or "."))
    if os.path.basename(output) in folder_names and folder_names & {RUN, CONFIG}:
        raise UserError(f"--output_file={output} belongs to a model")
    paths = file_names.expand(options.input_file or "")
    file_names.require_distinct([output], paths)
    counts = count_words(paths, BasicTokenizer(options.do_lower_case))
    if not counts:
        raise UserError(f"No words in {', '.join(paths[:5])}")
    note(f"Learning from {counted(counts.total(), 'word')} ({len(counts):,} distinct)")
    reserved = reserved_tokens(options.num_unused_tokens)
    tokens = learn(counts, options.vocab_size, reserved, learner)
    missing = _find_missing_characters(counts, tokens)
    room = options.vocab_size - len(tokens)
    tokens += [token for token, _ in missing[:room]]
    num_unused = options.num_unused_tokens + options.vocab_size - len(tokens)
    tokens += [f"[unused{n}]" for n in range(options.num_unused_tokens, num_unused)]
    files.write_text(output, "\n".join(tokens) + "\n")
    note(f"{output}: {len(tokens)} tokens, {num_unused} of them [unusedN]")
    num_missing = sum(count for _, count in missing[room:])
    num_chars = sum(len(word) * count for word, count in counts.items())
    if num_missing > _MAX_MISSING * num_chars:
        share = f"({num_missing / num_chars:.1%} of the text) have no token at this --vocab_size"
        warn(counted(len(missing[room:]), "character", share))
    return tokens


def reserved_tokens(num_unused_tokens: int) -> list[str]:
    """Returns the first tokens of the vocabulary, ordered as in the published vocabularies."""
    unused = [f"[unused{n}]" for n in range(num_unused_tokens)]
    before, after = unused[:_UNUSED_BEFORE_SPECIAL], unused[_UNUSED_BEFORE_SPECIAL:]
    return ["[PAD]", *before, *_SPECIAL_TOKENS, *after]


def count_words(paths: Sequence[str], tokenizer: BasicTokenizer) -> Counter[str]:
    """Counts the words in text files."""
    counts: Counter[str] = Counter()
    with bar(len(paths), "files") as progress:
        for path in paths:
            lines = files.read_lines(path)
            first_lines = [*itertools.islice(lines, _NUM_CHECKED)]
            for problem in check_lines(path, first_lines):
                warn(problem, at=path)
            for line in itertools.chain(first_lines, lines):
                counts.update(tokenizer.tokenize(line))
            progress.update()
    return counts


def learn(
    counts: Mapping[str, int], vocab_size: int, reserved: Sequence[str], learner: Any
) -> list[str]:
    """Learns at most `vocab_size` tokens from word frequencies.

    Returns the reserved tokens, then single characters, then word pieces, most frequent first.
    """
    # Punctuation and ideographs are always words of their own, so they need no `##` token.
    inner_chars = set().union(*(word for word in counts if len(word) > 1))
    standalone = sorted(
        (word for word in counts if len(word) == 1 and word not in inner_chars),
        key=lambda word: (-counts[word], word),
    )
    # Standalone characters may take up half of the vocabulary.
    room = vocab_size - len(reserved)
    first_tokens = [*reserved, *sorted(standalone[: room // 2])]
    words = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    words = [(word, count) for word, count in words if len(word) > 1 or word in inner_chars]
    # A character takes two tokens, with and without `##`; a third of the room is for longer pieces.
    max_chars = max((vocab_size - len(first_tokens)) // 3, 1)
    allowed_chars = learner.get_allowed_chars(words, max_chars)
    covered = sum(count for word, count in words if allowed_chars.issuperset(word))
    if covered < _MIN_COVERAGE * sum(dict(words).values()) or len(first_tokens) >= vocab_size:
        raise UserError(
            f"--vocab_size={vocab_size} has no room for the characters of the text and "
            f"{len(reserved)} reserved tokens"
        )
    if not words:
        return first_tokens
    # A small `slack_ratio` keeps the number of tokens close to `vocab_size`.
    settings = {"lower_thresh": 2, "max_unique_chars": max_chars, "slack_ratio": 0.01}
    tokens = learner.learn(words, vocab_size, first_tokens, **settings)
    # If there are too many tokens, drop the rarest word pieces, which come last.
    return tokens[:vocab_size]


def _find_missing_characters(
    counts: Mapping[str, int], tokens: Sequence[str]
) -> list[tuple[str, int]]:
    """Returns (token, count) of missing characters, with `##` in words, most frequent first."""
    char_counts: Counter[str] = Counter()
    for word, count in counts.items():
        char_counts.update({f"##{char}" if i else char: count for i, char in enumerate(word)})
    for token in tokens:
        char_counts.pop(token, None)
    return sorted(char_counts.items(), key=lambda item: (-item[1], item[0]))


def _import_learner() -> Any:
    try:
        from tensorflow_text.tools.wordpiece_vocab import wordpiece_tokenizer_learner_lib
    except Exception as error:
        problem = f"TensorFlow Text cannot be used: {reason(error)}"
        raise UserError(problem, fix="Install the version that matches TensorFlow") from error
    return wordpiece_tokenizer_learner_lib
