"""Texts with `[MASK]` in place of words, as rows of the model: `[CLS] pieces [SEP]`.

M masks, R rows, P masks of a row, W pieces in place of a mask, S max_seq_length, V pieces of the
vocabulary. A text that fits is a row; of a longer one each mask has a row with the pieces around
it, as many on both sides, as far as the text has them.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from bert_tf.batch_tokenization import BatchTokenizer
from bert_tf.data.packing import put
from bert_tf.data.texts import display_name, lines
from bert_tf.errors import UserError
from bert_tf.token_ids import TokenIds

MASK = "[MASK]"

# What may stand in a place: any piece, one that begins a word, one that goes on with it.
ANY, BEGIN, CONTINUATION = range(3)


def read_masked_texts(path: str) -> Iterator[tuple[int, str]]:
    """Yields number, from 1 on, and text of the lines that are not blank.

    Raises:
        UserError: the file cannot be read, or a line is not UTF-8 or has no `[MASK]`.
    """
    for number, line in enumerate(lines(path), start=1):
        text = line.strip()
        if text:
            require_mask(text, f"{display_name(path)}:{number}")
            yield number, text


def require_mask(text: str, where: str) -> None:
    """Refuses a text without `[MASK]`.

    Raises:
        UserError: it is one.
    """
    if MASK not in text:
        raise UserError(
            f"{where}: there is no {MASK}. Write {MASK}, in capitals, in place of the word that is "
            f"looked for. Received: {text[:100]!r}"
        )


def fitting_pieces(names: Mapping[int, str], size: int) -> np.ndarray:
    """Which pieces may stand where, bool [3, size]: the rows are `ANY`, `BEGIN`, `CONTINUATION`.

    Special pieces are no part of a word. They are those in brackets, `[unused0]` too: in texts
    brackets are pieces of their own.

    Args:
        names: of the pieces, by their ids.
        size: V, or more; ids without a name fit nowhere.
    """
    fits = np.zeros((3, size), bool)
    for number, name in names.items():
        fits[ANY, number] = True
        is_special = not name or (len(name) > 2 and name[0] == "[" and name[-1] == "]")
        fits[CONTINUATION if name.startswith("##") else BEGIN, number] = not is_special
    return fits


class MaskedTexts:
    """Texts that were cut at `[MASK]` and turned into pieces.

    Args:
        texts: in which every `[MASK]` is a mask, in these letters.
        tokenizer: of the model's vocabulary, which has `[MASK]`.
        max_seq_length: S; at least 3.

    Attributes:
        pieces: of the texts, masks included.
        place: int64 [M]; where the masks are in `pieces.ids`.
        text: int64 [M]; the text of each mask. These rise.
        cut: how many texts do not fit into a row.
    """

    def __init__(
        self, texts: Sequence[str], tokenizer: BatchTokenizer, max_seq_length: int
    ) -> None:
        vocab = tokenizer.reference.vocab
        self._cls, self._sep, self._mask = (vocab[name] for name in ("[CLS]", "[SEP]", MASK))
        self._max_seq_length = max_seq_length
        parts = [text.split(MASK) for text in texts]
        found = tokenizer.encode([part for of_text in parts for part in of_text])
        counts = np.array([len(of_text) for of_text in parts], np.int64)
        first_part = np.concatenate([[0], np.cumsum(counts)])
        # A mask stands before each part but the first of a text.
        after_mask = np.ones(len(found), bool)
        after_mask[first_part[:-1]] = False
        places = found.row_splits[:-1][after_mask]
        self.place = places + np.arange(len(places))
        self.text = np.repeat(np.arange(len(texts)), counts - 1)
        splits = found.row_splits[first_part] + first_part - np.arange(len(texts) + 1)
        self.pieces = TokenIds(np.insert(found.ids, places, self._mask), splits)
        self.cut = int((self.pieces.lengths > max_seq_length - 2).sum())

    def shared_rows(self, masks: np.ndarray, most: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Rows in which masks that have the same surroundings stand together.

        Args:
            masks: int64 [M]; numbers of masks, which rise.
            most: P.

        Returns:
            `input_ids`, `input_mask`, `segment_ids`: int32 [R, S], and `masked_lm_positions`:
            int32 [R, P], filled up with 0; and for each mask its row and its number in the row,
            int64 [M, 2].
        """
        start = self.place[masks] - self._surroundings(masks, 1)[0]
        is_other = np.diff(start, prepend=-1) != 0
        firsts = np.flatnonzero(is_other)
        number = np.arange(len(start)) - firsts[np.cumsum(is_other) - 1]
        begins_row = number % most == 0
        row = np.cumsum(begins_row) - 1
        first = masks[begins_row]
        rows, _ = self.rows(first, np.full((len(first), 1), self._mask, np.int32))
        positions = np.zeros((len(first), most), np.int32)
        positions[row, number % most] = 1 + self.place[masks] - start
        return {**rows, "masked_lm_positions": positions}, np.stack([row, number % most], axis=1)

    def rows(
        self, masks: np.ndarray, fills: np.ndarray
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """A row for each mask, with other pieces in its place.

        Args:
            masks: int64 [R]; numbers of masks.
            fills: int32 [R, W]; the pieces; W is at most S - 2.

        Returns:
            `input_ids`, `input_mask`, `segment_ids`: int32 [R, S]; and where in the row the first
            of the pieces is, int64 [R].
        """
        width = fills.shape[1]
        before, after = self._surroundings(masks, width)
        place, first = self.place[masks], 1 + before
        input_ids = np.zeros((len(masks), self._max_seq_length), np.int32)
        input_ids[:, 0] = self._cls
        put(input_ids, self.pieces.ids, place - before, before, np.ones_like(before))
        every = np.arange(len(masks))[:, None]
        input_ids[every, first[:, None] + np.arange(width)] = fills
        put(input_ids, self.pieces.ids, place + 1, after, first + width)
        end = first + width + after
        input_ids[every[:, 0], end] = self._sep
        mask = np.arange(self._max_seq_length) <= end[:, None]
        return {
            "input_ids": input_ids,
            "input_mask": mask.astype(np.int32),
            "segment_ids": np.zeros_like(input_ids),
        }, first

    def _surroundings(self, masks: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
        """How many pieces before and after each mask are in its row, both int64 [M].

        What the text lacks on one side the other side gets.
        """
        place, text = self.place[masks], self.text[masks]
        before = place - self.pieces.row_splits[text]
        after = self.pieces.row_splits[text + 1] - place - 1
        room = self._max_seq_length - 2 - width
        left = np.minimum(before, np.maximum(room // 2, room - after))
        return left, np.minimum(after, room - left)
