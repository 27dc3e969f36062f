"""Maps predicted word pieces back to the text of the document, as the original BERT code does."""

from collections.abc import Iterable

from bert_tf.tokenization import BasicTokenizer


def join_pieces(pieces: Iterable[str]) -> str:
    """Joins word pieces into words, separated by spaces."""
    text = " ".join(pieces).replace(" ##", "").replace("##", "")
    return " ".join(text.split())


def get_final_text(pred_text: str, orig_text: str, do_lower_case: bool) -> str:
    """Returns the part of `orig_text`, a sequence of whole words, that matches `pred_text`."""
    tokens = BasicTokenizer(do_lower_case=do_lower_case).tokenize(orig_text)
    return align(pred_text, orig_text, " ".join(tokens))


def align(part: str, text: str, normalized: str) -> str:
    """Finds `part` in the normalized text; returns the corresponding characters of `text`.

    Returns all of `text` if `part` is not found, or if normalization changed the number of
    non-space characters, for instance by removing combining accents.
    """
    start = normalized.find(part)
    if start < 0 or part != part.strip(" ") or not part:
        return text
    # Positions of the non-space characters, which correspond one to one.
    text_positions, normalized_positions = (
        [index for index, char in enumerate(chars) if char != " "] for chars in (text, normalized)
    )
    if len(text_positions) != len(normalized_positions):
        return text
    first, last = map(normalized_positions.index, (start, start + len(part) - 1))
    return text[text_positions[first] : text_positions[last] + 1]
