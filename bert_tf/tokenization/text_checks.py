"""Finds signs that texts are garbled, or do not fit a vocabulary."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from bert_tf.base.errors import counted, excerpt
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.fast_wordpiece import UNKNOWN

# Fraction of distinct texts below which a column is probably not the text, if there are many texts.
_MIN_TEXTS, _MIN_DISTINCT_SHARE = 100, 0.05
# Examples to check, thresholds of unknown tokens, and unknown words to list.
_SAMPLE_SIZE, _MIN_UNKNOWN, _MIN_UNKNOWN_SHARE, _MAX_LISTED_WORDS = 2000, 5, 0.05, 5
# Signs of texts that were changed before they were read, and the tolerated fraction of such texts.
_CHANGED = {
    r"\[(CLS|SEP)\]": "contain [CLS] or [SEP]: remove them; they are added automatically. For "
    "pairs, write two columns (--text_pair_column in run_classifier.py and extract_features.py)",
    # At the beginning or end: elsewhere, <s> may be a tag of HTML.
    r"^<s>|</s>$|<\|\w+\|>": "contain special tokens of another model: remove them",
    r"(?<!\S)##\w": "contain word pieces (##): pass the texts before tokenization",
    # UTF-8 that was decoded as Latin-1 or Windows-1252, such as "cafÃ©".
    "Ã[©¨¤¶¼§±¡³º]|â€": "are garbled: check the encoding, which must be UTF-8",
}
_MAX_CHANGED = 0.01
# What texts of a wrong column or program are, the tolerated fraction of such texts, and advice.
_ARE_TEXTS = "Check that these are the texts"
_NO_TEXTS = {
    r"(?s)(?=.*\d)(?:[\W\d_]+|[!-~]+)": ("numbers, dates or ids", 0.5, _ARE_TEXTS),
    "(?i)nan|null|none": ("missing values", 0.05, _ARE_TEXTS),
    r"(?s)([\[(] *|b)(['\"]).*\2 *,?[\])]?": (
        "lists or bytes of Python",
        0.5,
        "Join the words of a list with spaces, or write its texts to columns; decode bytes",
    ),
    # Neither commands of LaTeX, such as \nu, nor strings in program code, such as "%d\n".
    r"""(?s).*(?:\\[nrt](?![a-z"'])|\\u[\da-fA-F]{4}|\\x[\da-f]{2}).*""": (
        "escaped, with a backslash for some characters",
        0.2,
        "Decode them",
    ),
}


def sample(examples: Sequence[Any]) -> Sequence[Any]:
    """Returns the examples to check: all, or at most 4,000 at the same distance."""
    return examples[:: max(len(examples) // _SAMPLE_SIZE, 1)]


def find_other_values(texts: Sequence[str]) -> Iterator[str]:
    """Yields a sentence if many of the texts are values of another kind, such as numbers."""
    texts = [text.strip() for text in texts]
    for pattern, (kind, tolerated, advice) in _NO_TEXTS.items():
        found = [text for text in texts if re.fullmatch(pattern, text)]
        if len(found) > tolerated * len(texts) and len(texts) > 1:  # One text may be a number.
            share = f"{len(found)} of {len(texts)} texts are {kind}, such as {excerpt(found[0])}"
            yield f"{share}. {advice}"


def find_problems(
    tokenizer: FullTokenizer, examples: Sequence[Sequence[str]], are_words: bool = False
) -> Iterator[str]:
    """Yields a description of each problem in a sample of the examples, lists of texts or words."""
    examples = sample(examples)
    yield from find_other_values([x[0] for x in examples if x and not are_words])
    texts = [" ".join(example) for example in examples]
    basic = tokenizer.basic_tokenizer
    # Special tokens are no words.
    texts = [" ".join(basic.split(text)[::2]) for text in texts]
    words_of = {text: basic.tokenize(text) for text in texts}
    if len(texts) >= _MIN_TEXTS and len(words_of) < _MIN_DISTINCT_SHARE * len(texts):
        ((example, _),) = Counter(texts).most_common(1)
        share = f"only {len(words_of)} of {len(texts)} texts are distinct, such as {example[:50]!r}"
        yield f"{share}. Check that these are the texts"
    found = [text for text in texts if text.strip() and not words_of[text]]
    if found:
        share = counted(len(found), "text", "have no word pieces", of=len(texts))
        yield f"{share}, such as {found[0][:50]!r}. Check the file's encoding"
    for pattern, problem in _CHANGED.items():
        matches = [*filter(None, (re.search(pattern, text) for text in texts))]
        if len(matches) > _MAX_CHANGED * len(texts):
            share = counted(len(matches), "text", problem, of=len(texts))
            example = matches[0].string[max(matches[0].end() - 50, 0) :][:50]
            yield f"{share}. Example: {example!r}"
    words = Counter(word for text in texts for word in words_of[text])
    pieces = {word: tokenizer.wordpiece_tokenizer.split_word(word) for word in words}
    unknown = Counter({word: words[word] for word in words if pieces[word] == [UNKNOWN]})
    count, total = unknown.total(), sum(len(pieces[word]) * words[word] for word in words)
    if count >= max(_MIN_UNKNOWN, _MIN_UNKNOWN_SHARE * total):
        listed = ", ".join(f"{word:.30}" for word, _ in unknown.most_common(_MAX_LISTED_WORDS))
        share = f"{100 * count / total:.1f}% of the tokens ({count} of {total})"
        advice = "Check the vocabulary, --do_lower_case and the file's encoding"
        longest = tokenizer.wordpiece_tokenizer.max_input_chars_per_word
        if 2 * sum(n for word, n in unknown.items() if len(word) > longest) > count:
            advice = f"Split words of more than {longest} characters, which are always [UNK]"
        yield f"{share} are [UNK]; most frequent words: {listed}. {advice}"
