"""Texts with `[MASK]` as model inputs: `[CLS] word pieces [SEP]`.

A text that fits becomes one row. In a longer text, each mask gets a row with the surrounding word
pieces, the same number on both sides if possible. Shapes: M masks, R rows, P masks per row, W
word pieces in place of a mask, S max_seq_length.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from bert_tf.data.packing import pack_batch
from bert_tf.data.texts import display_name, lines
from bert_tf.errors import UserError
from bert_tf.tokenization.fast import BatchTokenizer
from bert_tf.tokenization.ragged_ids import RaggedIds

MASK = "[MASK]"

# Kinds of masks: for any word piece, for the first one of a word, or for a later one.
ANY, BEGIN, CONTINUATION = range(3)


def read_masked_texts(path: str) -> Iterator[tuple[int, str]]:
    """Yields the 1-based line number and the text of each non-blank line."""
    for number, line in enumerate(lines(path), start=1):
        if text := line.strip():
            require_mask(text, f"{display_name(path)}:{number}")
            yield number, text


def require_mask(text: str, where: str) -> None:
    """Raises a UserError that starts with `where` if a text lacks `[MASK]`."""
    if MASK not in text:
        advice = f"Write {MASK}, in capitals, for the word to predict"
        raise UserError(f"{where}: there is no {MASK}. {advice}. Received: {text[:100]!r}")


def allowed_pieces(names: Mapping[int, str], size: int) -> np.ndarray:
    """Returns which word pieces `ANY`, `BEGIN` and `CONTINUATION` allow, bool [3, size].

    Words contain no special tokens such as `[unused0]`, because the tokenizer splits at brackets.
    Ids without a token are never allowed.
    """
    allowed = np.zeros((3, size), bool)
    for number, name in names.items():
        allowed[ANY, number] = True
        is_special = not name or (len(name) > 2 and name[0] == "[" and name[-1] == "]")
        allowed[CONTINUATION if name.startswith("##") else BEGIN, number] = not is_special
    return allowed


class MaskedTexts:
    """Tokenized texts with `[MASK]` as a special token; `max_seq_length` must be at least 3.

    Attributes:
        pieces: word pieces of the texts, including masks.
        position: index of each mask in `pieces.ids`, int64 [M].
        text: index of the text of each mask, ascending, int64 [M].
        num_truncated: number of texts that do not fit into a row.
    """

    def __init__(
        self, texts: Sequence[str], tokenizer: BatchTokenizer, max_seq_length: int
    ) -> None:
        vocab = tokenizer.reference.vocab
        self._special_ids, self._mask = (vocab["[CLS]"], vocab["[SEP]"]), vocab[MASK]
        self._max_seq_length = max_seq_length
        parts = [text.split(MASK) for text in texts]
        tokens = tokenizer.encode([part for text_parts in parts for part in text_parts])
        counts = np.array([len(text_parts) for text_parts in parts], np.int64)
        first_part = np.concatenate([[0], np.cumsum(counts)])
        # A mask precedes each part except the first of a text.
        follows_mask = np.ones(len(tokens), bool)
        follows_mask[first_part[:-1]] = False
        starts = tokens.row_splits[:-1][follows_mask]
        self.position = starts + np.arange(len(starts))
        self.text = np.repeat(np.arange(len(texts)), counts - 1)
        splits = tokens.row_splits[first_part] + first_part - np.arange(len(texts) + 1)
        self.pieces = RaggedIds(np.insert(tokens.ids, starts, self._mask), splits)
        self.num_truncated = int((self.pieces.lengths > max_seq_length - 2).sum())

    def shared_rows(
        self, masks: np.ndarray, max_masks: int
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Returns rows, each shared by at most P = `max_masks` masks with the same context.

        `masks` are ascending indexes of masks [M].

        Returns:
            The inputs, int32 [R, S], with `masked_lm_positions`, int32 [R, P], padded with 0; and
            the row of each mask and its index among the masks of the row, int64 [M, 2].
        """
        start = self.position[masks] - self._context_sizes(masks, 1)[0]
        differs = np.diff(start, prepend=-1) != 0
        firsts = np.flatnonzero(differs)
        number = np.arange(len(start)) - firsts[np.cumsum(differs) - 1]
        begins_row = number % max_masks == 0
        row = np.cumsum(begins_row) - 1
        first = masks[begins_row]
        rows, _ = self.rows(first, np.full((len(first), 1), self._mask, np.int32))
        positions = np.zeros((len(first), max_masks), np.int32)
        positions[row, number % max_masks] = 1 + self.position[masks] - start
        slots = np.stack([row, number % max_masks], axis=1)
        return {**rows, "masked_lm_positions": positions}, slots

    def rows(
        self, masks: np.ndarray, fills: np.ndarray
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Returns a row for each of R masks, with `fills`, int32 [R, W], in place of the mask.

        Returns:
            The inputs, int32 [R, S]; and the position of the first fill in each row, int64 [R].
        """
        before, after = self._context_sizes(masks, fills.shape[1])
        ids, position = self.pieces.ids.tolist(), self.position[masks]
        columns = (position - before, position, position + 1 + after, fills)
        rows = [
            [*ids[start:mask], *fill, *ids[mask + 1 : end]]
            for start, mask, end, fill in zip(*map(np.ndarray.tolist, columns), strict=True)
        ]
        ragged = RaggedIds.from_lists(rows)
        return pack_batch(ragged, None, self._max_seq_length, *self._special_ids), 1 + before

    def _context_sizes(self, masks: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the number of word pieces before and after each mask in its row, int64 [M] each.

        If one side has too few, the other side gets more.
        """
        position, text = self.position[masks], self.text[masks]
        before = position - self.pieces.row_splits[text]
        after = self.pieces.row_splits[text + 1] - position - 1
        room = self._max_seq_length - 2 - width
        left = np.minimum(before, np.maximum(room // 2, room - after))
        return left, np.minimum(after, room - left)
