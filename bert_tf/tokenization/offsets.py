"""Where in a text its WordPiece tokens come from, in the tokens of `tokenization.FullTokenizer`.

The original release has nothing like it; its tasks map words, not characters, to tokens. Needs no
TensorFlow.
"""

import re
import unicodedata

from bert_tf.tokenization.reference import BasicTokenizer, FullTokenizer, convert_to_unicode


def tokenize_with_offsets(
    tokenizer: FullTokenizer, text: str | bytes
) -> tuple[list[str], list[tuple[int, int]]]:
    """Tokens of a text, and the characters that each comes from.

    Args:
        tokenizer: what `tokenizer.tokenize(text)` gives are the tokens.
        text: any text; bytes are read as `convert_to_unicode` does.

    Returns:
        The tokens, and for each `(start, end)`: it comes from `text[start:end]`. Characters that
        leave nothing in a token (an accent on its own under lower-casing, a control character)
        are part of a span only between others. The span of `[UNK]` is its whole word.

    Raises:
        ValueError: the text is neither str nor bytes.
    """
    text = convert_to_unicode(text)
    sources = _sources(tokenizer.basic_tokenizer, text)
    tokens: list[str] = []
    spans: list[tuple[int, int]] = []
    for word in re.finditer(r"\S+", tokenizer.basic_tokenizer.normalize(text)):
        pieces = tokenizer.wordpiece_tokenizer.tokenize(word.group())
        at = word.start()
        for index, piece in enumerate(pieces):
            if piece == tokenizer.wordpiece_tokenizer.unk_token and len(pieces) == 1:
                end = word.end()
            else:
                end = at + len(piece) - (2 if index else 0)
            spans.append((sources[at][0], sources[end - 1][1]))
            at = end
        tokens += pieces
    return tokens, spans


def _sources(basic: BasicTokenizer, text: str) -> list[tuple[int, int]]:
    """For each character of the normalized text the span of the text that it comes from.

    Most characters are normalized each by itself. Marks that combine with the one before may
    change places with each other, so these share a span.
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
            for place, form in enumerate(forms, start):
                sources += [(place, place + 1)] * len(form)
        else:
            sources += [(start, end)] * len(whole)
        start = end
    return sources


def _combines(basic: BasicTokenizer, char: str) -> bool:
    # What is dropped does not keep those around it apart.
    form = unicodedata.normalize("NFD", char.lower()) if basic.do_lower_case else char
    return not basic.normalize(char) or unicodedata.combining(form[0]) > 0
