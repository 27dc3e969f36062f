"""Texts with `[MASK]` as model inputs: `[CLS] word pieces [SEP]`.

Each mask gets a row, with the whole text or, if that is too long, the surrounding word pieces,
equally many on both sides if possible. Masks are referred to by their index among all masks of the
texts. Shapes: M masks, R rows, W word pieces in place of a mask, S max_seq_length.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from bert_tf.base.errors import Place, UserError, Where, counted, excerpt, warn
from bert_tf.data.packing import pack_batch, truncated_lengths
from bert_tf.tables.texts import display_name, lines, read_columns
from bert_tf.tokenization.fast import BatchTokenizer
from bert_tf.tokenization.ragged_ids import RaggedIds

MASK = "[MASK]"
_OTHER_MASK = re.compile(r"<mask>|[\[{]mask[\]}]|_{3,}", re.IGNORECASE)

# What a mask stands for: any word piece, the first piece of a word, or a later piece of a word.
ANY, BEGIN, CONTINUATION = range(3)


def read_masked_texts(
    path: str, column: str | None = None, **layout: str
) -> Iterator[tuple[int, str]]:
    """Yields the 1-based number and the text of each non-blank line, or of each row of a table.

    `layout` has further arguments of `read_columns`.
    """
    if column:
        rows = ((at, cells["text"]) for at, cells in read_columns(path, {"text": column}, **layout))
    else:
        rows = ((Place(display_name(path), n), x) for n, x in enumerate(lines(path), start=1))
    for number, (place, text) in enumerate(rows, start=1):
        if text.strip():
            require_mask(text.strip(), place)
            yield number, text.strip()


def require_mask(text: str, where: Where) -> None:
    """Raises a UserError about `where` if a text lacks `[MASK]`, or has `[CLS]` or `[SEP]`."""
    if "[CLS]" in text or "[SEP]" in text or MASK not in text:
        expected = f"expected a text with {MASK}, and without [CLS] and [SEP], which are added"
        raise UserError(f"{expected}. Received: {excerpt(text)}", at=where)


def warn_of_other_masks(texts: Sequence[str]) -> None:
    """Warns about masks of other models in texts."""
    found = [_OTHER_MASK.search(text.replace(MASK, "")) for text in texts]
    if others := [match[0] for match in found if match]:
        warn(
            f"{counted(len(others), 'text', 'have', len(texts))} {others[0]}, which "
            f"is read as text: write {MASK} for each word to predict"
        )


def allowed_pieces(tokens: Mapping[int, str], vocab_size: int) -> np.ndarray:
    """Returns which ids `ANY`, `BEGIN` and `CONTINUATION` allow, bool [3, vocab_size].

    `tokens` maps ids to tokens. Special tokens such as `[unused0]` are not allowed in words,
    because the tokenizer splits at brackets; ids without a token are never allowed.
    """
    allowed = np.zeros((3, vocab_size), bool)
    for id_, token in tokens.items():
        allowed[ANY, id_] = True
        is_special = not token or (len(token) > 2 and token[0] == "[" and token[-1] == "]")
        allowed[CONTINUATION if token.startswith("##") else BEGIN, id_] = not is_special
    return allowed


class MaskedTexts:
    """Tokenized texts; `[MASK]` is a special token of the tokenizer.

    `max_seq_length` must be at least 3.

    Attributes:
        pieces: word pieces of the texts, including masks.
        num_masks: M, the number of masks in all texts.
        positions: index of each mask in `pieces.ids`, int64 [M].
        text_indices: index of the text of each mask, ascending, int64 [M].
        num_truncated: number of texts that do not fit into a row.
    """

    def __init__(
        self, texts: Sequence[str], tokenizer: BatchTokenizer, max_seq_length: int
    ) -> None:
        vocab = tokenizer.reference.vocab
        self._special_ids = vocab["[CLS]"], vocab["[SEP]"]
        self._max_seq_length = max_seq_length
        self.pieces = tokenizer.encode(texts)
        self.positions = np.flatnonzero(self.pieces.ids == vocab[MASK])
        self.num_masks = len(self.positions)
        self.text_indices = np.searchsorted(self.pieces.row_splits, self.positions, "right") - 1
        self.num_truncated = int((self.pieces.lengths > max_seq_length - 2).sum())

    def rows(self, masks: np.ndarray, fills: np.ndarray, index: int) -> dict[str, np.ndarray]:
        """Returns a row for each of R masks, with word pieces `fills` [R, W] in place of the mask.

        Returns:
            The inputs, int32 [R, S]; and `masked_lm_positions`, int32 [R, 1], the position of the
            piece to predict: the one with the given `index` in `fills`.
        """
        positions, texts = self.positions[masks], self.text_indices[masks]
        splits, ids = self.pieces.row_splits, self.pieces.ids.tolist()
        room = self._max_seq_length - 2 - fills.shape[1]
        # If the text is short on one side of the mask, the row gets more from the other side.
        after, before = splits[texts + 1] - positions - 1, positions - splits[texts]
        after, before = truncated_lengths(after, before, room)
        columns = (positions - before, positions, positions + 1 + after, fills)
        rows = [
            [*ids[start:position], *fill, *ids[position + 1 : stop]]
            for start, position, stop, fill in zip(*map(np.ndarray.tolist, columns), strict=True)
        ]
        ragged = RaggedIds.from_lists(rows)
        packed = pack_batch(ragged, None, self._max_seq_length, *self._special_ids)
        return {**packed, "masked_lm_positions": (1 + before + index)[:, None].astype(np.int32)}
