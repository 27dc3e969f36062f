"""From word pieces back to the text that they come from, as the original does it."""

from collections.abc import Iterable

from bert_tf.tokenization import BasicTokenizer


def join_pieces(pieces: Iterable[str]) -> str:
    """The text of word pieces, with spaces between words."""
    text = " ".join(pieces).replace(" ##", "").replace("##", "")
    return " ".join(text.split())


def get_final_text(pred_text: str, orig_text: str, do_lower_case: bool) -> str:
    """The part of a text that was predicted, from the predicted part of its normalized form.

    Args:
        pred_text: predicted: lower-cased, say, and with punctuation apart.
        orig_text: whole words of the text.
        do_lower_case: how the text was normalized.
    """
    tokens = BasicTokenizer(do_lower_case=do_lower_case).tokenize(orig_text)
    return project(pred_text, orig_text, " ".join(tokens))


def project(pred_text: str, orig_text: str, normalized: str) -> str:
    """Finds a part of a normalized text, and the same characters in the text.

    Both must have the same number of characters beside spaces; otherwise, or if the part is not
    there, it is the whole text. So an answer in a word with accents, which normalization takes off
    as characters of their own, may be right or may be the whole word.

    Args:
        pred_text: the part.
        orig_text: the text.
        normalized: the text, normalized.
    """
    start = normalized.find(pred_text)
    if start < 0 or pred_text != pred_text.strip(" ") or not pred_text:
        return orig_text
    if _solid(orig_text) != _solid(normalized):
        return orig_text
    last = start + len(pred_text) - 1
    first, last = (place - normalized.count(" ", 0, place) for place in (start, last))
    return orig_text[_place(orig_text, first) : _place(orig_text, last) + 1]


def _solid(text: str) -> int:
    """How many characters are not spaces."""
    return len(text) - text.count(" ")


def _place(text: str, number: int) -> int:
    """Where the character of this number is, counted without spaces."""
    begin = 0
    for word in text.split(" "):
        if number < len(word):
            break
        number -= len(word)
        begin += len(word) + 1
    return begin + number
