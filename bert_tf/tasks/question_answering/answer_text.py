"""Maps predicted word pieces back to the original text, as the original does."""

from collections.abc import Iterable

from bert_tf.tokenization import BasicTokenizer


def join_pieces(pieces: Iterable[str]) -> str:
    """Joins word pieces to words, with a space between words."""
    text = " ".join(pieces).replace(" ##", "").replace("##", "")
    return " ".join(text.split())


def get_final_text(pred_text: str, orig_text: str, do_lower_case: bool) -> str:
    """Returns the part of `orig_text`, whole words, that the joined pieces `pred_text` mean."""
    tokens = BasicTokenizer(do_lower_case=do_lower_case).tokenize(orig_text)
    return align(pred_text, orig_text, " ".join(tokens))


def align(part: str, text: str, normalized: str) -> str:
    """Finds `part` in the normalized text, and returns the same characters of `text`.

    Returns all of `text` if there is no such part, or if the two texts differ in their number of
    characters other than spaces. So an answer in a word with combining accents, which
    normalization removes, may be exact or the whole word.
    """
    start = normalized.find(part)
    if start < 0 or part != part.strip(" ") or not part:
        return text
    if _count_non_spaces(text) != _count_non_spaces(normalized):
        return text
    end = start + len(part) - 1
    first, last = (index - normalized.count(" ", 0, index) for index in (start, end))
    return text[_index_in(text, first) : _index_in(text, last) + 1]


def _count_non_spaces(text: str) -> int:
    return len(text) - text.count(" ")


def _index_in(text: str, number: int) -> int:
    """Index of the character that has this number if spaces are not counted."""
    start = 0
    for word in text.split(" "):
        if number < len(word):
            break
        number -= len(word)
        start += len(word) + 1
    return start + number
