"""Questions with windows of their texts, as rows of the model: `[CLS] question [SEP] window [SEP]`.

N windows, E questions, S max_seq_length, T tokens and W words of all texts. A text that is too long
for one row is cut into windows that overlap; each is a row of its own.
"""

from collections.abc import Sequence

import numpy as np

from bert_tf.data.packing import put
from bert_tf.data.squad import SquadExample
from bert_tf.tokenization.fast import BatchTokenizer

# `unique_ids` count from here, as in the original.
FIRST_UNIQUE_ID = 1_000_000_000
_SPECIAL_TOKENS = 3


class Windows:
    """All windows of some questions; their rows are made when they are asked for.

    Args:
        examples: E questions.
        tokenizer: of the model's vocabulary.
        max_seq_length: length of the rows.
        doc_stride: tokens from the begin of a window to that of the next.
        max_query_length: tokens of a question that are kept; less than `max_seq_length` - 3.

    Attributes:
        examples: the questions.
        example: int64 [N]; the question of each window, which rises.
        number: int64 [N]; counts the windows of a question from 0.
        start: int64 [N]; the token of the text that it begins with.
        length: int64 [N]; its tokens.
        offset: int64 [N]; the place of its first token in the row.
        words: of all texts, one text after the other.
        token_ids: int32 [T]; the tokens of all texts.
        token_words: int64 [T]; the word that each of them is from.
        word_splits: int64 [W + 1]; the first token of each word.
    """

    def __init__(
        self,
        examples: Sequence[SquadExample],
        tokenizer: BatchTokenizer,
        max_seq_length: int,
        doc_stride: int,
        max_query_length: int,
    ) -> None:
        self.examples = examples
        self._max_seq_length = max_seq_length
        vocab = tokenizer.reference.vocab
        self._cls, self._sep = vocab["[CLS]"], vocab["[SEP]"]
        self._read_texts(tokenizer)
        self._questions = tokenizer.encode([example.question_text for example in examples])
        self._answers = tokenizer.encode([example.orig_answer_text or "" for example in examples])
        kept = np.minimum(self._questions.lengths, max_query_length)

        lengths = self._text_splits[self._text + 1] - self._text_splits[self._text]
        room = max_seq_length - kept - _SPECIAL_TOKENS
        step = np.minimum(room, doc_stride)
        rest = np.maximum(lengths - room, 0)
        counts = np.where(lengths > 0, 1 + -(-rest // step), 0)
        self.example = np.repeat(np.arange(len(examples)), counts)
        self.number = np.arange(len(self.example)) - np.repeat(np.cumsum(counts) - counts, counts)
        self.start = self.number * step[self.example]
        self.length = np.minimum(lengths[self.example] - self.start, room[self.example])
        self.offset = kept[self.example] + 2
        # How many windows before and after may have the same token.
        self._reach = int(np.max(-(-room // step), initial=1)) - 1

    def __len__(self) -> int:
        return len(self.example)

    def _read_texts(self, tokenizer: BatchTokenizer) -> None:
        """Tokenizes each text once, and each word once in all of them."""
        # Questions about one text share its list of words.
        texts = {id(example.doc_tokens): example.doc_tokens for example in self.examples}
        numbers_of_texts = {key: number for number, key in enumerate(texts)}
        of = [numbers_of_texts[id(example.doc_tokens)] for example in self.examples]
        self._text = np.array(of, np.int64)
        self.words = [word for words in texts.values() for word in words]
        known: dict[str, int] = {}
        numbers = np.array([known.setdefault(word, len(known)) for word in self.words], np.int64)
        found = tokenizer.encode(list(known)).take(numbers)
        self.token_ids, self.word_splits = found.ids, found.row_splits
        self.token_words = np.repeat(np.arange(len(self.words)), found.lengths)
        # Where the texts begin among the words, and among the tokens.
        counts = list(map(len, texts.values()))
        self._text_words = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        self._text_splits = self.word_splits[self._text_words]

    def inputs(self, first: int, last: int) -> dict[str, np.ndarray]:
        """Rows of the windows from `first` up to, not including, `last`.

        Returns:
            `unique_ids` int64 [n]; `input_ids`, `input_mask`, `segment_ids` int32 [n, S].
        """
        rows = np.arange(first, last)
        example, offset, length = self.example[rows], self.offset[rows], self.length[rows]
        every = np.arange(len(rows))
        input_ids = np.zeros((len(rows), self._max_seq_length), np.int32)
        input_ids[:, 0] = self._cls
        questions = self._questions
        put(input_ids, questions.ids, questions.row_splits[example], offset - 2, np.ones_like(rows))
        input_ids[every, offset - 1] = self._sep
        put(input_ids, self.token_ids, self.first_token(rows), length, offset)
        input_ids[every, offset + length] = self._sep
        places = np.arange(self._max_seq_length)
        mask = places <= (offset + length)[:, None]
        return {
            "unique_ids": FIRST_UNIQUE_ID + rows,
            "input_ids": input_ids,
            "input_mask": mask.astype(np.int32),
            "segment_ids": (mask & (places >= offset[:, None])).astype(np.int32),
        }

    def first_token(self, rows: np.ndarray) -> np.ndarray:
        """Where windows begin among the tokens of all texts."""
        return self._text_splits[self._text[self.example[rows]]] + self.start[rows]

    def targets(self, first: int, last: int) -> dict[str, np.ndarray]:
        """What to learn from windows of questions that have an answer to train on.

        As in the original, a window without the whole answer has none, and stays.

        Returns:
            `start_positions`, `end_positions`, `is_impossible`: int64 [n].
        """
        rows = np.arange(first, last)
        spans = {index: self._answer_tokens(index) for index in np.unique(self.example[rows])}
        start, end = np.array([spans[index] for index in self.example[rows]]).reshape(-1, 2).T
        begin = self.start[rows]
        impossible = np.array([self.examples[n].is_impossible for n in self.example[rows]], bool)
        inside = (start >= begin) & (end < begin + self.length[rows]) & ~impossible
        shift = self.offset[rows] - begin
        return {
            "start_positions": np.where(inside, start + shift, 0),
            "end_positions": np.where(inside, end + shift, 0),
            "is_impossible": impossible.astype(np.int64),
        }

    def _answer_tokens(self, index: int) -> tuple[int, int]:
        """First and last token of the answer in its text; as many words as it touches, or less."""
        example = self.examples[index]
        if example.is_impossible or example.start_position is None or example.end_position is None:
            return -1, -1
        text = self._text[index]
        first, last = self._text_words[text], self._text_words[text + 1]
        splits = self.word_splits[first : last + 1] - self._text_splits[text]
        start = int(splits[:-1][example.start_position])
        end = int(splits[min(example.end_position + 1, last - first)]) - 1
        # The words may have more than the answer: "(1895" has 1895.
        answer = self._answers[index]
        tokens = self.token_ids[self._text_splits[text] :]
        for begin in range(start, end - len(answer) + 2):
            if len(answer) and np.array_equal(tokens[begin : begin + len(answer)], answer):
                return begin, begin + len(answer) - 1
        return start, end

    def has_most_context(self, rows: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Which tokens of windows have the most context there, of all windows that have them.

        Context is the fewer of the tokens before and after it in the window, and a hundredth of
        the window's length; of equals the first window has it.

        Args:
            rows: int64 [n]; windows.
            places: integers [n, K]; tokens, counted from the begin of the window.

        Returns:
            bool [n, K]; False for places outside of the window.
        """
        own, found = self._context(rows, places)
        tokens = self.start[rows][:, None] + places
        for shift in (s for reach in range(1, self._reach + 1) for s in (-reach, reach)):
            others = (rows + shift).clip(0, len(self) - 1)
            same = (others == rows + shift) & (self.example[others] == self.example[rows])
            if same.any():
                context, inside = self._context(others, tokens - self.start[others][:, None])
                better = context >= own if shift < 0 else context > own
                found &= ~(same[:, None] & inside & better)
        return found

    def _context(self, rows: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of places in windows: the context, and whether they are inside."""
        length = self.length[rows][:, None]
        context = np.minimum(places, length - 1 - places) + 0.01 * length
        return context, (places >= 0) & (places < length)
