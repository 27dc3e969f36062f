"""Words for `[MASK]` in texts by a pre-trained model: `predict_masked.py`.

Texts are read and worked on some at a time, so that neither input nor output has to fit into
memory. R rows, P masks of a row, K candidates, V vocabulary.
"""

import contextlib
import itertools
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf import checkpoint, file_names, files, training
from bert_tf.data.masked_texts import (
    ANY,
    BEGIN,
    CONTINUATION,
    MASK,
    MaskedTexts,
    fitting_pieces,
    read_masked_texts,
    require_mask,
)
from bert_tf.data.records import Feature, sequence_features
from bert_tf.data.texts import STDIN
from bert_tf.errors import UserError
from bert_tf.modeling import BertPretrainer
from bert_tf.options import MaskedWordsOptions
from bert_tf.progress import bar, log
from bert_tf.tasks.agreement import require_one_process
from bert_tf.tasks.candidates import FORMATS, Candidate
from bert_tf.tasks.engine import Engine
from bert_tf.tasks.start import load_config_and_tokenizer, located, restore_from
from bert_tf.tokenization.fast import BatchTokenizer

STDOUT = "-"
_HEAD = "cls/predictions/"
# P: most texts have one mask or a few, and all P cost as much.
_MASKS_OF_A_ROW = 4
_TEXTS_TOGETHER = _ROWS_TOGETHER = 4096


def run(options: MaskedWordsOptions) -> None:
    """Writes words for all masks of all texts.

    Raises:
        UserError: a file cannot be read or written, a text has no `[MASK]`, or the checkpoint does
            not fit; nothing has been written to a file then.
    """
    input_file, output_file = options.input_file or "", options.output_file
    if output_file != STDOUT:
        file_names.require_distinct([output_file], [input_file] if input_file else [])
        file_names.require_writable(output_file)
    # What is not right is to be found before the work; in the standard input it cannot be.
    total = 0 if input_file == STDIN else sum(1 for _ in _read(options))
    masked_words = MaskedWords(options)
    write = FORMATS[options.output_format]
    with _opened(output_file) as file, bar(total, "texts") as shown:
        texts = _read(options)
        while part := list(itertools.islice(texts, _TEXTS_TOGETHER)):
            with training.explained_errors():
                found = masked_words.fill([text for _, text in part])
            for (number, text), masks in zip(part, found, strict=True):
                # A text of the command line may have bytes that are no UTF-8: they come back.
                file.write(write(number, text, masks).encode("utf-8", "surrogateescape"))
            shown.update(len(part))
    if output_file != STDOUT:
        log.info("Words for the masks of %d texts: %s", masked_words.texts, output_file)
    if masked_words.cut:
        log.warning(
            "%d of %d texts are longer than --max_seq_length=%d: for each %s only what stands "
            "around it was read",
            masked_words.cut,
            masked_words.texts,
            options.max_seq_length,
            MASK,
        )


def _read(options: MaskedWordsOptions) -> Iterator[tuple[int, str]]:
    if options.input_file:
        return read_masked_texts(options.input_file)
    text = " ".join((options.text or "").split())
    require_mask(text, "--text")
    return iter([(1, text)])


@contextlib.contextmanager
def _opened(path: str) -> Iterator[IO[bytes]]:
    if path == STDOUT:
        with files.standard_output() as file:
            yield file
        return
    with files.atomic_write(path) as temporary, tf.io.gfile.GFile(temporary, "wb") as file:
        yield file


def _outputs_fn(fits: np.ndarray, top_k: int) -> Callable[[Any, Any], dict[str, Any]]:
    """What is brought back: `ids` and `probabilities` [B, P, K], the likeliest first.

    Args:
        fits: bool [kinds, V].
        top_k: K.
    """

    def outputs_fn(outputs: Any, batch: Any) -> dict[str, Any]:
        logits = tf.cast(outputs["masked_lm_logits"], tf.float32)
        fitting = tf.gather(tf.constant(fits), batch["kinds"])  # [B, P, V]
        # Logarithms do not become 0, so that no piece that does not fit is as good as another.
        scores = tf.nn.log_softmax(tf.where(fitting, logits, -np.inf))
        values, ids = tf.math.top_k(scores, top_k)
        return {"ids": ids, "probabilities": tf.exp(values)}

    return outputs_fn


class _Word(NamedTuple):
    """Pieces that may stand in the place of a mask, and how probable they are."""

    mask: int
    pieces: tuple[int, ...]
    probability: float


class MaskedWords:
    """A pre-trained model, loaded once, and the words that it expects; for several threads.

    Args:
        options: of which `input_file`, `text`, `output_file` and `output_format` are not looked at.

    Attributes:
        texts: how many were worked on.
        cut: how many of them were too long.

    Raises:
        UserError: the checkpoint cannot be read, does not fit or has no masked-LM head, the
            vocabulary has no `[MASK]`, or there are several processes.
    """

    def __init__(self, options: MaskedWordsOptions) -> None:
        engine = Engine(options)
        require_one_process(engine.devices)
        options = located(options)
        config, tokenizer = load_config_and_tokenizer(options)
        if MASK not in tokenizer.vocab:
            raise UserError(
                f"The vocabulary {options.vocab_file} has no {MASK}: pass the one that the model "
                "was pre-trained with"
            )
        self.texts = self.cut = 0
        self._lock = threading.Lock()
        self._tokenizer = BatchTokenizer(tokenizer)
        self._max_seq_length = options.max_seq_length
        fits = fitting_pieces(tokenizer.inv_vocab, config.vocab_size)
        self._counts = fits.sum(axis=1).tolist()
        self._top_k = min(options.top_k, self._counts[ANY])
        # The pieces of the longest word; 0 for pieces that need not be words.
        self._word_pieces = options.max_word_pieces if options.whole_word else 0
        if not self._counts[CONTINUATION]:
            self._word_pieces = min(self._word_pieces, 1)
        with training.explained_errors():
            model = engine.build_model(
                lambda **kwargs: BertPretrainer(config, **kwargs), blank_encoder=True
            )
            _require_head(restored := restore_from(model, options.init_checkpoint or ""))
            log.info("%s", restored.describe())
            masks = 1 if options.whole_word else _MASKS_OF_A_ROW
            features = (
                *sequence_features(options.max_seq_length),
                Feature("masked_lm_positions", masks),
                Feature("kinds", masks),
            )
            outputs_fn = _outputs_fn(fits, self._top_k)
            # The scores of all pieces take much room.
            self._runner = engine.row_runner(
                model, outputs_fn, features, options.batch_size, grow=False
            )

    def fill(self, texts: Sequence[str]) -> list[list[list[Candidate]]]:
        """Words for each `[MASK]` of each text, the likeliest first.

        Without `whole_word` they are pieces, as they stand in the vocabulary, and the probabilities
        are the softmax over all of it, special pieces included.

        With it, a word may have up to `max_word_pieces` pieces: so many masks are put in the place
        of one, while others in the text stay one mask. They are filled from left to right, and
        what is likeliest after each of them is gone on with (a beam of `top_k` words). A word's
        probability is the product of its pieces' probabilities, each among those that may stand
        there. Words of all lengths are compared by it as they are, which takes all lengths for
        equally likely before the text is seen; so the sum over all of them may be above 1.

        Args:
            texts: any number; one without `[MASK]` gets no words.

        Returns:
            For each text, for each of its masks, `top_k` candidates; fewer where no more fit.
        """
        blanks = MaskedTexts(texts, self._tokenizer, self._max_seq_length)
        with self._lock:
            self.texts += len(texts)
            self.cut += blanks.cut
        fill = self._whole_words if self._word_pieces else self._pieces
        together = max(_ROWS_TOGETHER // (self._top_k if self._word_pieces else 1), 1)
        found: list[list[list[Candidate]]] = [[] for _ in texts]
        for first in range(0, len(blanks.text), together):
            masks = np.arange(first, min(first + together, len(blanks.text)))
            for text, candidates in zip(blanks.text[masks], fill(blanks, masks), strict=True):
                found[text].append(candidates)
        return found

    def _pieces(self, blanks: MaskedTexts, masks: np.ndarray) -> list[list[Candidate]]:
        rows, places = blanks.shared_rows(masks, _MASKS_OF_A_ROW)
        ids, probabilities = self._likeliest(rows, ANY)
        names, (row, number) = self._tokenizer.reference.inv_vocab, places.T
        return [
            [Candidate(names[index], value) for index, value in zip(*of_mask, strict=True)]
            for of_mask in zip(
                ids[row, number].tolist(), probabilities[row, number].tolist(), strict=True
            )
        ]

    def _whole_words(self, blanks: MaskedTexts, masks: np.ndarray) -> list[list[Candidate]]:
        found: dict[int, list[_Word]] = {mask: [] for mask in masks.tolist()}
        for size in range(1, self._word_pieces + 1):
            words = [_Word(mask, (), 1.0) for mask in found]
            for _ in range(size):
                words = self._longer(blanks, words, size)
                # What is no better than the words that there are only gets worse.
                words = [
                    word
                    for word in words
                    if len(best := found[word.mask]) < self._top_k
                    or word.probability > best[-1].probability
                ]
            for word in words:
                found[word.mask].append(word)
            found = {mask: self._best(of_mask) for mask, of_mask in found.items()}
        return [
            [Candidate(self._name(word), word.probability) for word in words]
            for words in found.values()
        ]

    def _longer(self, blanks: MaskedTexts, words: list[_Word], size: int) -> list[_Word]:
        """Gives words of `size` pieces, which all have as many so far, their next piece."""
        if not words:
            return []
        place = len(words[0].pieces)
        fills = np.full((len(words), size), self._tokenizer.reference.vocab[MASK], np.int32)
        fills[:, :place] = [word.pieces for word in words]
        rows, first = blanks.rows(np.array([word.mask for word in words]), fills)
        rows["masked_lm_positions"] = (first + place)[:, None].astype(np.int32)
        ids, probabilities = self._likeliest(rows, CONTINUATION if place else BEGIN)
        longer = defaultdict(list)
        for word, *found in zip(
            words, ids[:, 0].tolist(), probabilities[:, 0].tolist(), strict=True
        ):
            longer[word.mask] += [
                _Word(word.mask, (*word.pieces, piece), word.probability * probability)
                for piece, probability in zip(*found, strict=True)
            ]
        return [word for of_mask in longer.values() for word in self._best(of_mask)]

    def _best(self, words: list[_Word]) -> list[_Word]:
        """The likeliest `top_k` of words that the tokenizer would cut in this way.

        What it would cut otherwise the model has never seen so, and it may be among the words of
        fewer pieces, too.
        """
        ordered = sorted(words, key=lambda word: -word.probability)
        return list(itertools.islice(filter(self._is_as_cut, ordered), self._top_k))

    def _is_as_cut(self, word: _Word) -> bool:
        # The begin of a word that is cut so is cut so itself, so it can be asked for at once.
        if len(word.pieces) == 1:
            return True
        reference = self._tokenizer.reference
        return reference.tokenize(self._name(word)) == [*map(reference.inv_vocab.get, word.pieces)]

    def _name(self, word: _Word) -> str:
        names = (self._tokenizer.reference.inv_vocab[piece] for piece in word.pieces)
        return "".join(name.removeprefix("##") for name in names)

    def _likeliest(
        self, rows: Mapping[str, np.ndarray], kind: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Pieces for each mask of rows, int32 [R, P, K], and their probabilities, float32."""
        rows = {**rows, "kinds": np.full_like(rows["masked_lm_positions"], kind)}
        shape = (*rows["kinds"].shape, self._top_k)
        ids, probabilities = np.empty(shape, np.int32), np.empty(shape, np.float32)
        for numbers, outputs in self._runner(rows):
            ids[numbers], probabilities[numbers] = outputs["ids"], outputs["probabilities"]
        count = self._counts[kind]
        return ids[..., :count], probabilities[..., :count]


def _require_head(restored: checkpoint.Restored) -> None:
    missing = [name for name in restored.new if name.startswith(_HEAD)]
    if missing:
        raise UserError(
            f"The checkpoint {restored.prefix} has no masked-LM head: it was fine-tuned, or saved "
            f"without {checkpoint.summarize(missing)}. Pass bert_model.ckpt as published, or a "
            "model.ckpt-N of run_pretraining.py"
        )
