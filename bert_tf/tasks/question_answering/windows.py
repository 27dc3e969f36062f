"""Questions with windows of their texts, as model inputs: `[CLS] question [SEP] window [SEP]`.

A text that does not fit into one row is split into overlapping windows. Shapes: N windows, T
tokens and W words of all texts, S max_seq_length.
"""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_tf.data.packing import pack_batch
from bert_tf.tasks.question_answering.options import SPECIAL_TOKENS
from bert_tf.tasks.question_answering.squad_reader import SquadExample
from bert_tf.tokenization.fast import BatchTokenizer, encode_words
from bert_tf.tokenization.ragged_ids import enumerate_groups

# `unique_ids` count from here, as in the original.
FIRST_UNIQUE_ID = 1_000_000_000


class Windows(Sequence[Any]):
    """Windows of questions. A slice is a view, whose attributes still describe all windows.

    Args:
        questions: the questions.
        tokenizer: tokenizer with the model's vocabulary.
        max_seq_length: S; greater than `max_query_length` + 3.
        doc_stride: number of tokens between the starts of consecutive windows.
        max_query_length: longer questions are truncated.

    Attributes:
        question_index: int64 [N], ascending; the question of each window.
        window_index: int64 [N]; index of each window among those of its question.
        start: int64 [N]; index of the first token of each window in the text.
        length: int64 [N]; number of text tokens in each window.
        offset: int64 [N]; position of the first token of each window in the row.
        words: words of all texts.
        token_ids: int32 [T]; tokens of all texts.
        token_words: int64 [T]; index of the word that each token is part of.
        word_splits: int64 [W + 1]; index of the first token of each word.
    """

    def __init__(
        self,
        questions: Sequence[SquadExample],
        tokenizer: BatchTokenizer,
        max_seq_length: int,
        doc_stride: int,
        max_query_length: int,
    ) -> None:
        self.questions = questions
        self._max_seq_length = max_seq_length
        vocab = tokenizer.reference.vocab
        self._special_ids = vocab["[CLS]"], vocab["[SEP]"]
        self._read_texts(tokenizer)
        self._query_ids = tokenizer.encode([question.question_text for question in questions])
        self._answer_ids = tokenizer.encode([q.orig_answer_text or "" for q in questions])
        query_lengths = np.minimum(self._query_ids.lengths, max_query_length)

        text_lengths = self._text_splits[self._text_index + 1] - self._text_splits[self._text_index]
        room = max_seq_length - query_lengths - SPECIAL_TOKENS
        step = np.minimum(room, doc_stride)
        remaining = np.maximum(text_lengths - room, 0)
        counts = np.where(text_lengths > 0, 1 + -(-remaining // step), 0)
        self.question_index, self.window_index = question_of, _ = enumerate_groups(counts)
        self.start = self.window_index * step[question_of]
        self.length = np.minimum(text_lengths[question_of] - self.start, room[question_of])
        self.offset = query_lengths[question_of] + 2
        # Number of windows on either side that may overlap with a window.
        self._max_overlap = int(np.max(-(-room // step), initial=1)) - 1
        self._rows = range(len(question_of))

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, rows: Any) -> "Windows":
        view = copy.copy(self)
        view._rows = self._rows[rows]
        return view

    def _read_texts(self, tokenizer: BatchTokenizer) -> None:
        # Questions about one text share its list of words.
        texts = {id(question.doc_tokens): question.doc_tokens for question in self.questions}
        index_of = {key: index for index, key in enumerate(texts)}
        self._text_index = np.array([index_of[id(q.doc_tokens)] for q in self.questions], np.int64)
        self.words = [word for words in texts.values() for word in words]
        self._tokens = tokens = encode_words(self.words, tokenizer)
        self.token_ids, self.word_splits = tokens.ids, tokens.row_splits
        self.token_words = np.repeat(np.arange(len(self.words)), tokens.lengths)
        # Index of the first word, and of the first token, of each text.
        counts = list(map(len, texts.values()))
        self._text_words = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        self._text_splits = self.word_splits[self._text_words]

    def inputs(self) -> dict[str, np.ndarray]:
        """Returns rows: `unique_ids` int64 [N]; all others, see `pack_batch`, int32 [N, S]."""
        rows = np.array(self._rows, np.int64)
        question_of = self.question_index[rows]
        questions = self._query_ids.take(question_of, 0, self.offset[rows] - 2)
        first_words = self._text_words[self._text_index[question_of]]
        texts = self._tokens.take(first_words, self.start[rows], self.length[rows])
        packed = pack_batch(questions, texts, self._max_seq_length, *self._special_ids)
        return {"unique_ids": FIRST_UNIQUE_ID + rows, **packed}

    def first_token(self, rows: np.ndarray) -> np.ndarray:
        """Returns the index, in the tokens of all texts, of the first token of windows [n]."""
        return self._text_splits[self._text_index[self.question_index[rows]]] + self.start[rows]

    def targets(self) -> dict[str, np.ndarray]:
        """Returns the answers in the windows, as targets int64 [N].

        As in the original, a window that lacks part of the answer gets the position of `[CLS]`.
        """
        rows = np.array(self._rows, np.int64)
        question_of = self.question_index[rows]
        spans = {index: self._answer_tokens(index) for index in np.unique(question_of)}
        start, end = np.array([spans[index] for index in question_of], np.int64).reshape(-1, 2).T
        first_token = self.start[rows]
        impossible = np.array([self.questions[index].is_impossible for index in question_of], bool)
        inside = (start >= first_token) & (end < first_token + self.length[rows]) & ~impossible
        shift = self.offset[rows] - first_token
        return {
            "start_positions": np.where(inside, start + shift, 0),
            "end_positions": np.where(inside, end + shift, 0),
            "is_impossible": impossible.astype(np.int64),
        }

    def _answer_tokens(self, index: int) -> tuple[int, int]:
        """Returns the first and last token of the answer in its text; (-1, -1) if there is none."""
        question = self.questions[index]
        if question.is_impossible or question.start_position is None:
            return -1, -1
        text = self._text_index[index]
        first, stop = self._text_words[text], self._text_words[text + 1]
        splits = self.word_splits[first : stop + 1] - self._text_splits[text]
        start = int(splits[:-1][question.start_position])
        end = int(splits[min((question.end_position or 0) + 1, stop - first)]) - 1
        # The words may contain more than the answer: "(1895" for the answer "1895".
        answer = self._answer_ids[index]
        tokens = self.token_ids[self._text_splits[text] :]
        for position in range(start, end - len(answer) + 2):
            if len(answer) and np.array_equal(tokens[position : position + len(answer)], answer):
                return position, position + len(answer) - 1
        return start, end

    def is_max_context(self, rows: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """Returns whether windows [n] give their tokens [n, K] the most context of all windows.

        Context is the number of tokens before or after a token in the window, whichever is smaller,
        plus a hundredth of the window's length; ties go to the first window. Tokens are indexes
        into the window; the result is False for indexes outside of it.
        """
        current, is_best = self._context(rows, tokens)
        text_tokens = self.start[rows][:, None] + tokens
        for shift in (s for reach in range(1, self._max_overlap + 1) for s in (-reach, reach)):
            others = (rows + shift).clip(0, len(self.start) - 1)
            same = self.question_index[others] == self.question_index[rows]
            same &= others == rows + shift
            if same.any():
                context, inside = self._context(others, text_tokens - self.start[others][:, None])
                better = context >= current if shift < 0 else context > current
                is_best &= ~(same[:, None] & inside & better)
        return is_best

    def _context(self, rows: np.ndarray, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the context of tokens in windows, and whether they are inside."""
        length = self.length[rows][:, None]
        context = np.minimum(tokens, length - 1 - tokens) + 0.01 * length
        return context, (tokens >= 0) & (tokens < length)
