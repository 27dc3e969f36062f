"""A WordPiece vocabulary learned from texts: what `create_vocab.py` runs.

The words are those of the package's own tokenizer, the learner is TensorFlow Text's.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf import file_names, files
from bert_tf.errors import UserError
from bert_tf.options import VocabularyOptions
from bert_tf.progress import bar, log
from bert_tf.tokenization import BasicTokenizer

# In the published vocabularies [PAD] is 0, so many unused tokens follow, and then the others.
_UNUSED_BEFORE = 99
_SPECIAL = ("[UNK]", "[CLS]", "[SEP]", "[MASK]")

# Of the learner: its own values, but that it comes closer to the size that was asked for, and that
# Chinese, which has thousands of characters, finds room.
_LEARNER = {
    "upper_thresh": 10_000_000,
    "lower_thresh": 2,
    "num_iterations": 4,
    "max_input_tokens": 5_000_000,
    "max_token_length": 50,
    "slack_ratio": 0.01,
    "include_joiner_token": True,
    "joiner": "##",
}
_LINES_TOGETHER = 1000
# Words that have to be left, after those with characters that find no room are not counted.
_KEPT = 0.9


def run(options: VocabularyOptions) -> list[str]:
    """Learns a vocabulary and writes it.

    Returns:
        Its tokens, in the order of their ids; exactly `vocab_size` of them. Where there were not
        enough pieces, the last ones are missing characters, and then `[unusedN]`.

    Raises:
        UserError: options or texts are not right, TensorFlow Text is missing, or the file cannot
            be written.
    """
    options.check()
    learner = _learner()
    output = options.output_file or ""
    file_names.require_writable(output)
    paths = file_names.expand(options.input_file or "")
    file_names.require_distinct([output], paths)
    counts = count_words(paths, BasicTokenizer(options.do_lower_case))
    if not counts:
        raise UserError(f"There is not one word in {', '.join(paths[:5])}: nothing to learn")
    log.info(
        "Learning from %s words, %s of them different, which can take minutes",
        f"{counts.total():,}",
        f"{len(counts):,}",
    )
    reserved = reserved_tokens(options.num_unused_tokens)
    tokens = learn(counts, options.vocab_size, reserved, learner)
    tokens += _missing_characters(counts, tokens)[: options.vocab_size - len(tokens)]
    unused = options.num_unused_tokens
    while len(tokens) < options.vocab_size:
        tokens.append(f"[unused{unused}]")
        unused += 1
    files.write_text(output, "\n".join(tokens) + "\n")
    log.info("%s: %d tokens, %d of them [unusedN]", output, len(tokens), unused)
    return tokens


def reserved_tokens(num_unused_tokens: int) -> list[str]:
    """What stands before the pieces, as in the published vocabularies: with 99 unused tokens or
    more, `[UNK]`, `[CLS]`, `[SEP]`, `[MASK]` have the ids 100 to 103."""
    unused = [f"[unused{number}]" for number in range(num_unused_tokens)]
    return ["[PAD]", *unused[:_UNUSED_BEFORE], *_SPECIAL, *unused[_UNUSED_BEFORE:]]


def count_words(paths: Sequence[str], tokenizer: BasicTokenizer) -> Counter[str]:
    """How often each word is in some files.

    Raises:
        UserError: a file cannot be read.
    """
    counts: Counter[str] = Counter()
    with bar(len(paths), "files") as shown:
        for path in paths:
            waiting: list[str] = []
            for line in files.read_lines(path):
                waiting.append(line)
                if len(waiting) == _LINES_TOGETHER:
                    counts.update(tokenizer.tokenize("\n".join(waiting)))
                    waiting = []
            counts.update(tokenizer.tokenize("\n".join(waiting)))
            shown.update()
    return counts


def learn(
    counts: Mapping[str, int], vocab_size: int, reserved: Sequence[str], learner: Any
) -> list[str]:
    """Pieces for words.

    Args:
        counts: how often each word is there.
        vocab_size: tokens at most.
        reserved: what comes first.
        learner: TensorFlow Text's module.

    Returns:
        The reserved tokens, single characters, and then pieces, the commonest first.

    Raises:
        UserError: there is no room for the characters of most words.
    """
    # Punctuation and ideographs are words by themselves: they need no form for inside of a word.
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
        # Each is there twice, at the beginning of a word and inside.
        max_unique_chars=max(room // 3, 1),
        reserved_tokens=first,
        **_LEARNER,
    )
    words = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    words = [(word, count) for word, count in words if len(word) > 1 or word in inside]
    words = learner.get_input_words(words, params.reserved_tokens, params.max_token_length)
    allowed = learner.get_allowed_chars(words, params.max_unique_chars)
    total = sum(count for _, count in words)
    words = learner.filter_input_words(words, allowed, params.max_input_tokens)
    if sum(count for _, count in words) < _KEPT * total or len(first) >= vocab_size:
        raise UserError(
            f"--vocab_size={vocab_size} has no room for the characters of the text beside "
            f"{len(reserved)} reserved tokens: pass a larger one"
        )
    if not words:
        return first
    upper, lower = learner.get_search_threshs(words, params.upper_thresh, params.lower_thresh)
    tokens = learner.learn_binary_search(words, lower, upper, params)
    # What is too much are the rarest pieces.
    return tokens[:vocab_size]


def _missing_characters(counts: Mapping[str, int], tokens: Sequence[str]) -> list[str]:
    """Characters without a token, the most frequent first; inside of words they have `##`."""
    found: Counter[str] = Counter()
    for word, count in counts.items():
        found.update({f"##{char}" if place else char: count for place, char in enumerate(word)})
    return sorted(found.keys() - set(tokens), key=lambda token: (-found[token], token))


def _learner() -> Any:
    try:
        from tensorflow_text.tools.wordpiece_vocab import wordpiece_tokenizer_learner_lib
    except Exception as error:
        raise UserError(
            f"A vocabulary is learned by TensorFlow Text, which cannot be used here ({error}). "
            "Install tensorflow-text of TensorFlow's version"
        ) from error
    return wordpiece_tokenizer_learner_lib
