"""Finds signs that texts do not fit a vocabulary."""

from collections import Counter
from collections.abc import Iterator, Sequence

from bert_tf import lint
from bert_tf.base.errors import counted, excerpt
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.fast_wordpiece import UNKNOWN

# Thresholds of unknown tokens, and unknown words to list.
_MIN_UNKNOWN, _MIN_UNKNOWN_SHARE, _MAX_LISTED_WORDS = 5, 0.05, 5


def find_problems(
    tokenizer: FullTokenizer, examples: Sequence[Sequence[str]], are_words: bool = False
) -> Iterator[str]:
    """Yields a sentence for each problem in a sample of the examples, lists of texts or words."""
    examples, basic = lint.sample(examples), tokenizer.basic_tokenizer
    if are_words:
        words = [word for example in examples for word in example]
        yield from lint.values("word", words)
        yield from lint.few_distinct("word", lint.sample(words))
    # Special tokens are no words.
    rows = [[" ".join(basic.split(text)[::2]) for text in example] for example in examples]
    texts = [" ".join(row) for row in rows]
    if not are_words:
        yield from lint.values("text", [row[0] for row in rows if row])
        yield from lint.values("other text", [text for row in rows for text in row[1:]])
        yield from lint.few_distinct("text", texts)
    words_of = {text: basic.tokenize(text) for text in texts}
    if found := [text for text in texts if text.strip() and not words_of[text]]:
        share = counted(len(found), "text", "have no word pieces", of=len(texts))
        yield f"{share}, such as {excerpt(found[0])}"
    counts = Counter(word for text in texts for word in words_of[text])
    pieces = {word: tokenizer.wordpiece_tokenizer.split_word(word) for word in counts}
    unknown = Counter({word: counts[word] for word in counts if pieces[word] == [UNKNOWN]})
    count, total = unknown.total(), sum(len(pieces[word]) * counts[word] for word in counts)
    if count >= max(_MIN_UNKNOWN, _MIN_UNKNOWN_SHARE * total):
        listed = ", ".join(f"{word:.30}" for word, _ in unknown.most_common(_MAX_LISTED_WORDS))
        share = f"{100 * count / total:.1f}% of the tokens ({count} of {total})"
        advice = "Check the vocabulary, --do_lower_case and the file's encoding"
        yield f"{share} are [UNK]; most frequent words: {listed}. {advice}"
