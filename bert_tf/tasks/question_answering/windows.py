"""Converts questions and their texts to input rows: `[CLS] question [SEP] window [SEP]`.

A window is the part of a text that fits into a row; a long text has several, which overlap.
Shapes: N windows, T tokens and W words of all texts, S max_seq_length; n selected windows.
"""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_tf.data.packing import pack_batch
from bert_tf.tasks.question_answering.options import NUM_SPECIAL_TOKENS
from bert_tf.tasks.question_answering.squad_reader import SquadExample
from bert_tf.tokenization.fast import BatchTokenizer, encode_words
from bert_tf.tokenization.ragged_ids import enumerate_groups

# The `unique_ids` of windows count from this number, as in the original BERT code.
FIRST_UNIQUE_ID = 1_000_000_000


class Windows(Sequence[Any]):
    """The windows of questions. A slice is a view, but its attributes describe all windows.

    Args:
        questions: the questions.
        tokenizer: tokenizer with the model's vocabulary.
        max_seq_length: S; greater than `max_query_length` + 3.
        doc_stride: number of tokens between the starts of consecutive windows.
        max_query_length: longer questions are truncated.

    Attributes:
        question_index: index of the question that each window belongs to, int64 [N], ascending.
        window_index: index of each window among the windows of its question, int64 [N].
        start: index, in its text, of the first token of each window, int64 [N].
        length: number of text tokens in each window, int64 [N].
        offset: position, in its row, of the first text token of each window, int64 [N].
        words: words of all texts, in one list.
        token_ids: ids of the tokens of all texts, int32 [T].
        token_words: index in `words` of the word that each token is part of, int64 [T].
        word_splits: index in `token_ids` of each word's first token, followed by T; int64 [W + 1].
        answer_lengths: number of tokens of each question's training answer, int64 [questions].
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
        self._tokenize_texts(tokenizer)
        self._query_ids = tokenizer.encode([question.question_text for question in questions])
        self._answer_ids = tokenizer.encode([q.orig_answer_text or "" for q in questions])
        self.answer_lengths = self._answer_ids.lengths
        query_lengths = np.minimum(self._query_ids.lengths, max_query_length)
        self.num_cut_questions = int(np.sum(self._query_ids.lengths > max_query_length))

        text_lengths = self._text_tokens[self._text_index + 1] - self._text_tokens[self._text_index]
        room = max_seq_length - query_lengths - NUM_SPECIAL_TOKENS
        step = np.minimum(room, doc_stride)
        excess = np.maximum(text_lengths - room, 0)
        window_counts = np.where(text_lengths > 0, 1 + -(-excess // step), 0)
        self.question_index, self.window_index = question_of, _ = enumerate_groups(window_counts)
        self.start = self.window_index * step[question_of]
        self.length = np.minimum(text_lengths[question_of] - self.start, room[question_of])
        self.offset = query_lengths[question_of] + 2
        self._min_overlap = int(np.min(room - step, initial=max_seq_length))
        # Highest number of windows, on either side of a window, that overlap with it.
        self._max_overlaps = int(np.max(-(-room // step), initial=1)) - 1
        self._rows = range(len(question_of))

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, rows: Any) -> "Windows":
        view = copy.copy(self)
        view._rows = self._rows[rows]
        return view

    def _tokenize_texts(self, tokenizer: BatchTokenizer) -> None:
        # Questions about the same text share one list object, which is tokenized only once.
        texts = {id(question.doc_tokens): question.doc_tokens for question in self.questions}
        index_of = {key: index for index, key in enumerate(texts)}
        self._text_index = np.array([index_of[id(q.doc_tokens)] for q in self.questions], np.int64)
        self.words = [word for words in texts.values() for word in words]
        self._tokens = tokens = encode_words(self.words, tokenizer)
        self.token_ids, self.word_splits = tokens.ids, tokens.row_splits
        self.token_words = np.repeat(np.arange(len(self.words)), tokens.lengths)
        # Index of the first word, and of the first token, of each text; followed by W, and T.
        word_counts = list(map(len, texts.values()))
        self._text_words = np.concatenate([[0], np.cumsum(word_counts, dtype=np.int64)])
        self._text_tokens = self.word_splits[self._text_words]

    def first_word(self, question: int) -> int:
        """Returns the index in `words` of the first word of a question's text."""
        return int(self._text_words[self._text_index[question]])

    def inputs(self) -> dict[str, np.ndarray]:
        """Returns the rows of this view: `unique_ids`, int64 [n], and the inputs of the encoder."""
        rows = np.array(self._rows, np.int64)
        question_of = self.question_index[rows]
        queries = self._query_ids.take(question_of, 0, self.offset[rows] - 2)
        first_words = self._text_words[self._text_index[question_of]]
        windows = self._tokens.take(first_words, self.start[rows], self.length[rows])
        packed = pack_batch(queries, windows, self._max_seq_length, *self._special_ids)
        return {"unique_ids": FIRST_UNIQUE_ID + rows, **packed}

    def first_token(self, rows: np.ndarray) -> np.ndarray:
        """Returns the index in `token_ids` of the first token of each of the windows `rows` [n]."""
        return self._text_tokens[self._text_index[self.question_index[rows]]] + self.start[rows]

    def targets(self) -> dict[str, np.ndarray]:
        """Returns the targets of this view, int64 [n]: answer positions, and `is_impossible`.

        As in the original, if a window lacks any part of the answer, its target is `[CLS]`.
        """
        rows = np.array(self._rows, np.int64)
        question_of = self.question_index[rows]
        spans = {index: self._answer_tokens(index) for index in np.unique(question_of)}
        start, end = np.array([spans[index] for index in question_of], np.int64).reshape(-1, 2).T
        window_start = self.start[rows]
        impossible = np.array([self.questions[index].is_impossible for index in question_of], bool)
        inside = (start >= window_start) & (end < window_start + self.length[rows]) & ~impossible
        shift = self.offset[rows] - window_start
        return {
            "start_positions": np.where(inside, start + shift, 0),
            "end_positions": np.where(inside, end + shift, 0),
            "is_impossible": impossible.astype(np.int64),
        }

    def num_split_answers(self, max_length: int) -> int:
        """Counts the answers of up to `max_length` tokens that no window has as a whole."""
        if self._min_overlap >= max_length:  # every such answer is in a window
            return 0
        is_whole = self.targets()["start_positions"] > 0
        answered = np.array([not question.is_impossible for question in self.questions], bool)
        answered[self.question_index[is_whole]] = False
        return int(np.sum(answered & (self.answer_lengths <= max_length)))

    def _answer_tokens(self, question_index: int) -> tuple[int, int]:
        """Locates the first and last token of an answer in its text; (-1, -1) without an answer."""
        question = self.questions[question_index]
        if question.is_impossible or question.start_position is None:
            return -1, -1
        text = self._text_index[question_index]
        first, stop = self._text_words[text], self._text_words[text + 1]
        splits = self.word_splits[first : stop + 1] - self._text_tokens[text]
        start = int(splits[:-1][question.start_position])
        end = int(splits[min((question.end_position or 0) + 1, stop - first)]) - 1
        # Finds the answer inside its words, as in "(1895" for the answer "1895".
        answer = self._answer_ids[question_index]
        tokens = self.token_ids[self._text_tokens[text] :]
        for position in range(start, end - len(answer) + 2):
            if len(answer) and np.array_equal(tokens[position : position + len(answer)], answer):
                return position, position + len(answer) - 1
        return start, end

    def is_max_context(self, rows: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """Returns whether windows `rows` [n] give `tokens` [n, K] the most context of all windows.

        Context is the number of tokens before or after a token in its window, whichever is smaller,
        plus a hundredth of the window's length; ties go to the first window. `tokens` are indices
        in the window; the result is False if they are outside the window.
        """
        current, is_best = self._context(rows, tokens)
        text_tokens = self.start[rows][:, None] + tokens
        for shift in range(-self._max_overlaps, self._max_overlaps + 1):
            others = (rows + shift).clip(0, len(self.start) - 1)
            same_question = self.question_index[others] == self.question_index[rows]
            same_question &= others == rows + shift
            if shift and same_question.any():
                context, inside = self._context(others, text_tokens - self.start[others][:, None])
                better = context >= current if shift < 0 else context > current
                is_best &= ~(same_question[:, None] & inside & better)
        return is_best

    def _context(self, rows: np.ndarray, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the context of tokens in windows, and whether they are inside the windows."""
        length = self.length[rows][:, None]
        context = np.minimum(tokens, length - 1 - tokens) + 0.01 * length
        return context, (tokens >= 0) & (tokens < length)
