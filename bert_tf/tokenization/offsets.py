"""Maps the tokens of `FullTokenizer` to the characters they come from; needs no TensorFlow."""

import re
import unicodedata

from bert_tf.tokenization import BasicTokenizer, FullTokenizer, convert_to_unicode


def tokenize_with_offsets(
    tokenizer: FullTokenizer, text: str | bytes
) -> tuple[list[str], list[tuple[int, int]]]:
    """Returns the tokens of `tokenizer.tokenize(text)` and their (start, end) spans in `text`.

    Characters that tokenization drops (control characters; accents if it lower-cases) are included
    inside a span, but not at its edges. The span of `[UNK]` is the whole word.
    """
    text = convert_to_unicode(text)
    source_spans = _find_source_spans(tokenizer.basic_tokenizer, text)  # of normalized characters
    tokens: list[str] = []
    spans: list[tuple[int, int]] = []
    for word in re.finditer(r"\S+", tokenizer.basic_tokenizer.normalize(text)):
        pieces = tokenizer.wordpiece_tokenizer.tokenize(word.group())
        start = word.start()
        for index, piece in enumerate(pieces):
            if piece == tokenizer.wordpiece_tokenizer.unk_token and len(pieces) == 1:
                end = word.end()
            else:
                end = start + len(piece) - (2 if index else 0)
            spans.append((source_spans[start][0], source_spans[end - 1][1]))
            start = end
        tokens += pieces
    return tokens, spans


def _find_source_spans(basic: BasicTokenizer, text: str) -> list[tuple[int, int]]:
    """Returns the span in `text` that each character of the normalized text comes from.

    If normalization reorders combining marks, they share a span with the character before them.
    """
    spans: list[tuple[int, int]] = []
    start = 0
    for end in range(1, len(text) + 1):
        if end < len(text) and _joins_previous(basic, text[end]):
            continue
        run = text[start:end]  # a character and its combining marks
        normalized_chars = [basic.normalize(char) for char in run]
        normalized_run = basic.normalize(run)
        if "".join(normalized_chars) == normalized_run:
            for index, normalized in enumerate(normalized_chars, start):
                spans += [(index, index + 1)] * len(normalized)
        else:
            spans += [(start, end)] * len(normalized_run)
        start = end
    return spans


def _joins_previous(basic: BasicTokenizer, char: str) -> bool:
    # Combining marks join, and so do dropped characters, as marks on both sides may be reordered.
    decomposed = unicodedata.normalize("NFD", char.lower()) if basic.do_lower_case else char
    return not basic.normalize(char) or unicodedata.combining(decomposed[0]) > 0
