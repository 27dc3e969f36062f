"""Maps the tokens of `FullTokenizer` to the characters they come from; needs no TensorFlow."""

import re
import unicodedata

from bert_tf.tokenization.reference import BasicTokenizer, FullTokenizer, convert_to_unicode


def tokenize_with_offsets(
    tokenizer: FullTokenizer, text: str | bytes
) -> tuple[list[str], list[tuple[int, int]]]:
    """Returns the tokens of `tokenizer.tokenize(text)`, and the span of each, `text[start:end]`.

    Characters that are dropped (accents under lower-casing, control characters) belong to a span
    only inside it. The span of `[UNK]` is its whole word.
    """
    text = convert_to_unicode(text)
    sources = _sources(tokenizer.basic_tokenizer, text)
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
            spans.append((sources[start][0], sources[end - 1][1]))
            start = end
        tokens += pieces
    return tokens, spans


def _sources(basic: BasicTokenizer, text: str) -> list[tuple[int, int]]:
    """Returns, for each character of the normalized text, the span that it comes from.

    Combining marks may be reordered, so they share a span with the character before them.
    """
    sources: list[tuple[int, int]] = []
    start = 0
    for end in range(1, len(text) + 1):
        if end < len(text) and _combines(basic, text[end]):
            continue
        run = text[start:end]
        forms = [basic.normalize(char) for char in run]
        whole = basic.normalize(run)
        if "".join(forms) == whole:
            for index, form in enumerate(forms, start):
                sources += [(index, index + 1)] * len(form)
        else:
            sources += [(start, end)] * len(whole)
        start = end
    return sources


def _combines(basic: BasicTokenizer, char: str) -> bool:
    # Marks around a dropped character combine, too.
    form = unicodedata.normalize("NFD", char.lower()) if basic.do_lower_case else char
    return not basic.normalize(char) or unicodedata.combining(form[0]) > 0
