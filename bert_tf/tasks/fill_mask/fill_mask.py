"""Predicts the words for `[MASK]` with a pre-trained model, for `predict_masked.py`.

Texts are processed in chunks, so that neither input nor output has to fit into memory.
Masks are referred to by their index among all masks of the texts. Shapes: M masks, R rows, each
with one mask to predict, W word pieces in its place, K candidates, V vocabulary size, S
max_seq_length.
"""

import functools
import itertools
import json
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf import checkpoints, training
from bert_tf.base import file_names, files, signals
from bert_tf.base.errors import Input, Place, UserError, Where, counted, excerpt, note, warn
from bert_tf.base.progress import bar
from bert_tf.checkpoints.formats import find_source
from bert_tf.checkpoints.run_folder import RunFolder
from bert_tf.data.features import Feature, sequence_features
from bert_tf.data.packing import pack_batch, truncated_lengths
from bert_tf.data.parallel import chunks
from bert_tf.data.texts import check_lines
from bert_tf.finetuning.engines import loaded, open_model
from bert_tf.finetuning.model_files import read_model_files
from bert_tf.finetuning.prediction import TextCheck, require_texts
from bert_tf.modeling import BertPretrainer
from bert_tf.tables.texts import STDIN, display_name, lines, read_columns
from bert_tf.tasks.fill_mask.options import MaskedWordsOptions
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.fast import BatchTokenizer
from bert_tf.tokenization.ragged_ids import RaggedIds

MASK = "[MASK]"
_OTHER_MASK = re.compile(r"<mask>|[\[{]mask[\]}]|_{3,}", re.IGNORECASE)

# What a mask stands for: any word piece, the first piece of a word, or a later piece of a word.
ANY, BEGIN, CONTINUATION = range(3)
STDOUT = "-"
# Prefix of the variables of the masked-LM head.
_HEAD = "cls/predictions/"
# Maximum number of texts, and of rows, in a chunk.
_MAX_TEXTS = _MAX_ROWS = 4096
# Decimal places of probabilities in JSON lines, as in extract_features.py.
_DECIMALS = 6
# Maximum number of masks side by side in a table, so that their candidates fit on a line.
_MASKS_PER_LINE = 4


class Candidate(NamedTuple):
    """A candidate word for a mask, with its probability."""

    word: str
    probability: float


def run(options: MaskedWordsOptions) -> None:
    """Writes the candidates for all masks; leaves no output file if an error occurs."""
    options.check()
    input_file, output_file = options.input_file or "", options.output_file
    to_stdout = output_file == STDOUT
    if not to_stdout:
        file_names.require_distinct([output_file], [input_file] if input_file else [])
        file_names.require_writable(output_file)
    # Read the whole input first to find errors early, unless it is a stream.
    is_stream = input_file == STDIN or files.is_stream(input_file)
    total = 0 if is_stream else sum(1 for _ in _read(options))
    model = FillMask(options)
    format_text = FORMATS[options.output_format]
    output = signals.standard_output() if to_stdout else files.open_atomically(output_file)
    with output as file, bar(total, "texts") as progress:
        texts = _read(options)
        while chunk := list(itertools.islice(texts, _MAX_TEXTS)):
            if not (model.num_texts or options.text_column):
                name, advice = display_name(input_file), "Select a column with --text_column"
                for problem in check_lines(name, [text for _, text in chunk], advice):
                    warn(problem, at=name)
            predicted = model.fill([text for _, text in chunk])
            for (line_number, text), masks in zip(chunk, predicted, strict=True):
                formatted = format_text(line_number, text, masks)
                # Text from the command line may contain bytes that are not UTF-8; keep them.
                file.write(formatted.encode("utf-8", "surrogateescape"))
            progress.update(len(chunk))
        if not model.num_texts:
            raise UserError(f"{display_name(input_file)} contains no text")
    if not to_stdout:
        num_texts = counted(model.num_texts, "text")
        note(f"Predictions for the masks in {num_texts}: {output_file}")
    if model.num_truncated:
        cut = f"are longer than --max_seq_length={options.max_seq_length}: only the text around a "
        warn(counted(model.num_truncated, "text", f"{cut}[MASK] was read", model.num_texts))


def _read(options: MaskedWordsOptions) -> Iterator[tuple[int, str]]:
    if options.input_file:
        return read_masked_texts(options.input_file, options.text_column, **options.layout())
    text = " ".join((options.text or "").split())
    require_mask(text, "--text")
    return iter([(1, text)])


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
        have = f"have {others[0]}, which is read as text: write {MASK}"
        warn(counted(len(others), "text", have, len(texts)))


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
    """Texts as model inputs: `[CLS] word pieces [SEP]`; the tokenizer keeps `[MASK]`.

    Each mask gets a row, with the whole text or, if that is too long, the surrounding word pieces,
    equally many on both sides if possible.

    `max_seq_length` must be at least 3.

    Attributes:
        pieces: word pieces of the texts, including masks.
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


class FillMask:
    """Predicts masked words with a pre-trained model, loaded once; thread-safe.

    `num_texts` counts the texts so far, and `num_truncated` the truncated texts among them.
    """

    def __init__(self, options: MaskedWordsOptions) -> None:
        options, config, tokenizer = read_model_files(options)
        if MASK not in tokenizer.vocab:
            raise UserError(f"lacks {MASK}", at=options.vocab_file)
        tokenizer.basic_tokenizer.keep([MASK])
        self.num_texts = self.num_truncated = 0
        self._lock = threading.Lock()
        self.tokenizer = BatchTokenizer(tokenizer)
        self._check_texts = TextCheck(tokenizer, display_name(options.input_file or "Inputs"))
        self._max_seq_length = options.max_seq_length
        allowed = allowed_pieces(tokenizer.inv_vocab, config.vocab_size)
        self._num_allowed = allowed.sum(axis=1).tolist()
        self._top_k = min(options.top_k, self._num_allowed[ANY])
        self._find_candidates, self._masks_per_chunk = self._top_candidates, _MAX_ROWS
        if options.whole_word:
            max_pieces = options.max_word_pieces if self._num_allowed[CONTINUATION] else 1
            self._find_candidates = WordSearch(self._top_pieces, tokenizer, self._top_k, max_pieces)
            # The search makes up to top_k rows for each mask.
            self._masks_per_chunk = max(_MAX_ROWS // self._top_k, 1)
        inputs = sequence_features(options.max_seq_length)
        features = (*inputs, Feature("masked_lm_positions", 1), Feature("kinds"))
        folder = RunFolder.of(options.init_checkpoint or "")
        load = functools.partial(_load, options.init_checkpoint or "")
        get_model = loaded(functools.partial(BertPretrainer, config), load)
        fetch = functools.partial(_select, allowed, self._top_k)
        # Scores for the whole vocabulary take too much memory for larger batches.
        self._inference = open_model(
            folder, get_model, fetch, features, options, options.batch_size, grow=False
        )

    def __call__(self, inputs: Sequence[Any]) -> list[list[list[Candidate]]]:
        """Returns the candidates for the masks of texts, for a `Predictor`."""
        require_texts(inputs, [1], "a string with [MASK]")
        for index, text in enumerate(inputs):
            require_mask(text, Input(index))
        return self.fill(inputs)

    def fill(self, texts: Sequence[str]) -> list[list[list[Candidate]]]:
        """Returns at most `top_k` candidates for each `[MASK]` in each text.

        Candidates are word pieces with their softmax probability over the whole vocabulary or, with
        `whole_word`, words (see `WordSearch`).
        """
        warn_of_other_masks(texts)
        self._check_texts(texts)
        masked = MaskedTexts(texts, self.tokenizer, self._max_seq_length)
        with self._lock:
            self.num_texts += len(texts)
            self.num_truncated += masked.num_truncated
        results: list[list[list[Candidate]]] = [[] for _ in texts]
        with training.explained_errors():
            for numbers in chunks(range(len(masked.positions)), self._masks_per_chunk):
                masks = np.array(numbers)
                found = self._find_candidates(masked, masks)
                for text_index, candidates in zip(masked.text_indices[masks], found, strict=True):
                    results[text_index].append(candidates)
        return results

    def _top_candidates(self, texts: MaskedTexts, masks: np.ndarray) -> list[list[Candidate]]:
        vocab, tokens = self.tokenizer.reference.vocab, self.tokenizer.reference.inv_vocab
        unfilled = np.full((len(masks), 1), vocab[MASK], np.int32)
        top = self._top_pieces(texts.rows(masks, unfilled, 0), ANY)
        return [
            [Candidate(tokens[id_], probability) for id_, probability in zip(*mask, strict=True)]
            for mask in zip(*map(np.ndarray.tolist, top), strict=True)
        ]

    def _top_pieces(
        self, rows: Mapping[str, np.ndarray], kind: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns ids and probabilities of the K best pieces of a kind for each mask, [R, K]."""
        kinds = np.full(len(rows["input_ids"]), kind, np.int32)
        outputs = self._inference.predict({**rows, "kinds": kinds})
        count = self._num_allowed[kind]
        return outputs["ids"][..., :count], outputs["probabilities"][..., :count]


class _Word(NamedTuple):
    """A word, or only its first pieces so far, in place of the mask with the index `mask`."""

    mask: int
    pieces: tuple[int, ...]
    probability: float


@dataclass(frozen=True)
class WordSearch:
    """Finds the most probable words of up to `max_pieces` word pieces, for `whole_word`.

    A mask is replaced by 1, 2, ... masks, which are filled from left to right; a beam keeps the
    `top_k` most probable prefixes. The probability of a word is the product of the probabilities of
    its word pieces, each relative to the pieces allowed at its position. Words of different lengths
    are compared directly, so the probabilities of all words may add up to more than 1.
    """

    # That of `FillMask`.
    top_pieces: Callable[[Mapping[str, np.ndarray], int], tuple[np.ndarray, np.ndarray]]
    tokenizer: FullTokenizer
    top_k: int
    max_pieces: int

    def __call__(self, texts: MaskedTexts, masks: np.ndarray) -> list[list[Candidate]]:
        """Returns the `top_k` words for each mask."""
        best: dict[int, list[_Word]] = {mask: [] for mask in masks.tolist()}
        for num_pieces in range(1, self.max_pieces + 1):
            words = [_Word(mask, (), 1.0) for mask in best]
            for _ in range(num_pieces):
                words = self._extend(texts, words, num_pieces)
                # Probabilities only decrease: drop prefixes that cannot become one of the best.
                words = [
                    word
                    for word in words
                    if len(complete := best[word.mask]) < self.top_k
                    or word.probability > complete[-1].probability
                ]
            for word in words:
                best[word.mask].append(word)
            best = {mask: self._prune(words) for mask, words in best.items()}
        return [[Candidate(self._join(w), w.probability) for w in words] for words in best.values()]

    def _extend(self, texts: MaskedTexts, words: list[_Word], num_pieces: int) -> list[_Word]:
        """Extends incomplete words of `num_pieces` pieces, all equally long so far, by a piece."""
        if not words:
            return []
        num_found = len(words[0].pieces)
        fills = np.full((len(words), num_pieces), self.tokenizer.vocab[MASK], np.int32)
        fills[:, :num_found] = [word.pieces for word in words]
        rows = texts.rows(np.array([word.mask for word in words]), fills, num_found)
        ids, probabilities = self.top_pieces(rows, CONTINUATION if num_found else BEGIN)
        extended_words = defaultdict(list)
        for word, *top in zip(words, ids.tolist(), probabilities.tolist(), strict=True):
            extended_words[word.mask] += [
                _Word(word.mask, (*word.pieces, piece), word.probability * probability)
                for piece, probability in zip(*top, strict=True)
            ]
        return [word for words in extended_words.values() for word in self._prune(words)]

    def _prune(self, words: list[_Word]) -> list[_Word]:
        """Returns the `top_k` most probable words that the tokenizer splits into these pieces."""
        ordered = sorted(words, key=lambda word: -word.probability)
        return list(itertools.islice(filter(self._matches_tokenizer, ordered), self.top_k))

    def _matches_tokenizer(self, word: _Word) -> bool:
        # Also prunes incomplete words: if the tokenizer splits a word into these pieces, it splits
        # their first n, joined, into the same n.
        tokens = self.tokenizer.convert_ids_to_tokens(word.pieces)
        return len(tokens) == 1 or self.tokenizer.tokenize(self._join(word)) == tokens

    def _join(self, word: _Word) -> str:
        tokens = self.tokenizer.convert_ids_to_tokens(word.pieces)
        return "".join(token.removeprefix("##") for token in tokens)


def _select(allowed: np.ndarray, top_k: int, outputs: Any, batch: Any) -> dict[str, Any]:
    logits = tf.cast(outputs["masked_lm_logits"][:, 0], tf.float32)  # [B, V]
    is_allowed = tf.gather(tf.constant(allowed), batch["kinds"])  # [3, V] -> [B, V]
    # Rank by log-probability: an allowed piece with probability 0, by underflow, must stay ahead of
    # pieces that are not allowed.
    scores = tf.nn.log_softmax(tf.where(is_allowed, logits, -np.inf))
    values, ids = tf.math.top_k(scores, top_k)
    return {"ids": ids, "probabilities": tf.exp(values)}


def _load(checkpoint: str, model: BertPretrainer) -> None:
    restored = checkpoints.load_weights(model, find_source(checkpoint))
    missing = [name for name in restored.new if name.startswith(_HEAD)]
    if missing:
        problem = f"no masked-LM head ({checkpoints.summarize(missing)})"
        raise UserError(problem, at=restored.prefix, fix="Pass a published or pre-trained model")
    note(restored.describe())


def json_line(line_number: int, text: str, masks: Sequence[Sequence[Candidate]]) -> str:
    """Returns a JSON object with `line`, `text`, and `masks`: the candidates for each mask."""
    candidates_of_masks = [
        [{"word": c.word, "probability": round(c.probability, _DECIMALS)} for c in candidates]
        for candidates in masks
    ]
    line = {"line": line_number, "text": text, "masks": candidates_of_masks}
    return json.dumps(line, ensure_ascii=False) + "\n"


def table(line_number: int, text: str, masks: Sequence[Sequence[Candidate]]) -> str:
    """Returns the text, with a column of candidates for each mask below it."""
    starts = range(0, len(masks), _MASKS_PER_LINE)
    blocks = [masks[start : start + _MASKS_PER_LINE] for start in starts]
    return "\n".join([text, *map(_format_block, blocks)]) + "\n"


def _format_block(masks: Sequence[Sequence[Candidate]]) -> str:
    widths = [max((len(c.word) for c in candidates), default=0) for candidates in masks]
    lines = []
    for row in itertools.zip_longest(*masks, fillvalue=None):
        cells = [
            f"{c.word:{width}} {c.probability:6.1%}" if c else " " * (width + 7)
            for c, width in zip(row, widths, strict=True)
        ]
        lines.append(("    " + "    ".join(cells)).rstrip() + "\n")
    return "".join(lines)


FORMATS = {"jsonl": json_line, "table": table}
