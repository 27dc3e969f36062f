"""Questions about texts, answered by a part of the text: what `run_squad.py` runs."""

import os
import random
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import keras
import numpy as np
from keras import ops

from bert_tf import files
from bert_tf.config import BertConfig
from bert_tf.data.records import Feature, sequence_features
from bert_tf.data.squad import Paragraph, SquadExample, read_squad_examples
from bert_tf.data.squad_windows import Windows
from bert_tf.errors import UserError
from bert_tf.evaluation import answers, squad
from bert_tf.modeling import BertSpanLabeler
from bert_tf.modeling.losses import span_loss
from bert_tf.options import SquadOptions
from bert_tf.progress import log
from bert_tf.tasks import finetune
from bert_tf.tasks.base import RECORD_FILES, Part, Task, parts
from bert_tf.tasks.prediction import require_texts
from bert_tf.tasks.squad_predictions import (
    NBEST_PREDICTIONS,
    NULL_ODDS,
    PREDICTIONS,
    AnswerPrediction,
    Predictions,
)
from bert_tf.tasks.start import load_config_and_tokenizer, located
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.fast import BatchTokenizer

# The original's: examples come in another order than in their file, always the same.
_SHUFFLE_SEED = 12345
_SHOWN = 20
# Windows of a question from which on an epoch is pointed out to be something else.
_MANY_WINDOWS = 1.5


class Questions(Sequence[SquadExample]):
    """Questions, with the windows of their texts.

    Args:
        windows: of the questions.
    """

    def __init__(self, windows: Windows) -> None:
        self.windows = windows

    def __len__(self) -> int:
        return len(self.windows.examples)

    def __getitem__(self, index: Any) -> Any:
        return self.windows.examples[index]


class Squad(Task):
    """Files in the format of SQuAD as a fine-tuning task.

    Args:
        options: files, lengths, and what an answer is.
        config: the model.
        tokenizer: fits the model's vocabulary.
    """

    # Its evaluation compares texts.
    evaluation_split = "predict"
    record_files = MappingProxyType({**RECORD_FILES, "predict": "eval.tf_record"})
    result_files = (PREDICTIONS, NBEST_PREDICTIONS, NULL_ODDS)

    @property
    def best_metrics(self) -> Sequence[str]:
        """Those of the official script for the version; first those by characters, if asked for."""
        by_words = ("f1", "exact" if self.options.version_2_with_negative else "exact_match")
        if self.options.answer_scoring == "characters":
            return ("f1_characters", "exact_characters", *by_words)
        return by_words

    def __init__(self, options: SquadOptions, config: BertConfig, tokenizer: FullTokenizer) -> None:
        self.options = options
        self.config = config
        self.tokenizer = BatchTokenizer(tokenizer)

    def features(self, split: str) -> tuple[Feature, ...]:
        """`unique_ids`, `input_ids`, `input_mask`, `segment_ids`; and where answers are."""
        inputs = sequence_features(self.options.max_seq_length)
        targets = ("start_positions", "end_positions", "is_impossible")
        return (
            Feature("unique_ids"),
            *inputs,
            *(Feature(name) for name in targets if split == "train"),
        )

    def read_examples(self, split: str) -> Questions:
        """The questions of the split's file, and their windows; there is at least one."""
        options = self.options
        path = (options.train_file if split == "train" else options.predict_file) or ""
        examples = read_squad_examples(path, split == "train", options.version_2_with_negative)
        if split == "train":
            random.Random(_SHUFFLE_SEED).shuffle(examples)
        elif options.evaluates:
            _require_answers(examples, path, options.version_2_with_negative)
            if options.answer_scoring == "auto" and squad.uses_characters(examples):
                log.info(
                    "%s: most characters of the answers are Han, kana or Thai: exact match and F1 "
                    "are computed by characters, too (--answer_scoring=words: by words only)",
                    path,
                )
        texts = [(e.question_text, *e.doc_tokens) for e in examples[:2000]]
        self.tokenizer.warn_of_unknown(path, texts)
        windows = self._windows(examples)
        log.info("%s: %d questions, %d windows", path, len(examples), len(windows))
        if split == "train" and not len(windows):
            raise UserError(f"{path}: all texts are empty, there is nothing to train on")
        if split == "train" and len(windows) > _MANY_WINDOWS * len(examples):
            log.warning(
                "There are %.1f windows for each question, but steps are counted in questions, as "
                "in the original: --num_train_epochs=%.3g shows all windows once",
                len(windows) / len(examples),
                len(windows) / len(examples),
            )
        self._show(windows)
        return Questions(windows)

    def _windows(self, examples: Sequence[SquadExample]) -> Windows:
        options = self.options
        return Windows(
            examples,
            self.tokenizer,
            options.max_seq_length,
            options.doc_stride,
            options.max_query_length,
        )

    def _show(self, windows: Windows) -> None:
        """The first questions, with the first window of each."""
        for index, example in enumerate(windows.examples[:_SHOWN]):
            row = int(np.searchsorted(windows.example, index))
            if row == len(windows) or windows.example[row] != index:
                continue
            ids = windows.inputs(row, row + 1)["input_ids"][0].tolist()
            tokens = self.tokenizer.reference.convert_ids_to_tokens(ids)
            log.debug(
                "%s: %s\n  answer: %s\n  tokens: %s\n  input_ids: %s",
                example.qas_id,
                example.question_text,
                example.orig_answer_text if example.answers is None else example.answers,
                " ".join(tokens),
                " ".join(map(str, ids)),
            )

    def portions(self, examples: Any, split: str) -> Iterator[Part]:
        """Windows, and not questions: one about a book may have thousands."""
        return parts(examples.windows)

    def to_features(self, examples: Any, split: str) -> dict[str, np.ndarray]:
        """A row for each window."""
        windows, first, last = examples.rows, examples.first, examples.last
        targets = windows.targets(first, last) if split == "train" else {}
        return {**windows.inputs(first, last), **targets}

    def build_model(self, **kwargs: Any) -> keras.Model:
        """Encoder, and begin and end of the answer."""
        return BertSpanLabeler(self.config, **kwargs)

    @property
    def reads_padding(self) -> bool:
        """An answer may begin at any place of the row, as in the original."""
        return True

    def loss(self, outputs: Any, batch: Mapping[str, Any]) -> Any:
        """Mean of the cross entropies of begin and end [B]."""
        start, end = outputs["start_logits"], outputs["end_logits"]
        return span_loss(start, end, batch["start_positions"], batch["end_positions"])

    def predict_outputs(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of `answers.Best`: all that is needed of S logits."""
        found = {}
        for name in ("start", "end"):
            logits = ops.cast(outputs[f"{name}_logits"], "float32")
            found |= best_places(
                logits, name, self.options.n_best_size, self.options.max_seq_length
            )
        return found

    def decode(self, examples: Any, results: Mapping[str, np.ndarray]) -> Predictions:
        """The n-best lists; decides the threshold, too, where that is to be found."""
        options = self.options
        lists = self._lists(examples, results)
        threshold = options.null_score_diff_threshold
        if isinstance(threshold, str):
            every = Predictions(examples, lists, 0.0)
            texts = {name: found.best_text() for name, found in every.lists.items()}
            threshold = squad.best_f1_threshold(list(examples), texts, every.null_odds)
            log.info("--null_score_diff_threshold=auto: the best F1 is at %s", threshold)
        return Predictions(examples, lists, threshold)

    def _lists(self, examples: Any, results: Mapping[str, np.ndarray]) -> list[answers.NBest]:
        options = self.options
        if not len(examples.windows):
            results = best_of_nothing()
        return answers.decode(
            examples.windows,
            answers.Best(**results),
            self.tokenizer.reference,
            answers.AnswerOptions(
                options.n_best_size, options.max_answer_length, options.version_2_with_negative
            ),
        )

    def write_predictions(
        self, examples: Any, predictions: Predictions, output_dir: str
    ) -> list[str]:
        """`predictions.json`, `nbest_predictions.json`, and `null_odds.json` for SQuAD 2.0."""
        contents = predictions.contents()
        for name, text in contents.items():
            files.write_text(os.path.join(output_dir, name), text)
        return [os.path.join(output_dir, name) for name in contents]

    def served_outputs(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Logits of begin and end of the answer [B, S], and the ids that they are of."""
        logits = {name: outputs[name] for name in ("start_logits", "end_logits")}
        return {**logits, "input_ids": batch["input_ids"]}

    @property
    def takes_pairs(self) -> bool:
        """A question and a text."""
        return True

    def metrics(self, examples: Any, results: Predictions) -> dict[str, Any]:
        """As the official script for the version, and by characters: see `evaluation.squad`."""
        examples = list(examples)
        scoring = self.options.answer_scoring
        found: dict[str, Any] = {}
        if scoring == "characters" or (scoring == "auto" and squad.uses_characters(examples)):
            found = squad.score(examples, results.texts, squad.BY_CHARACTERS)
        if not self.options.version_2_with_negative:
            return {**squad.score(examples, results.texts), **found}
        found |= squad.score_with_negative(examples, results.texts, results.null_odds)
        return {**found, "null_score_diff_threshold": results.threshold}

    def examples_of(self, inputs: Sequence[Any]) -> Questions:
        """Tuples of a question and a text."""
        require_texts(inputs, [2], "a tuple: question, text")
        texts: dict[str, list[str]] = {}
        examples = []
        for number, (question, text) in enumerate(inputs):
            if text not in texts:
                texts[text] = Paragraph.of(text).words
            examples.append(SquadExample(str(number), question, texts[text]))
        return Questions(self._windows(examples))

    def predictions_of(
        self, examples: Any, results: Mapping[str, np.ndarray]
    ) -> list[AnswerPrediction]:
        """The answers to the questions."""
        threshold = float(self.options.null_score_diff_threshold)
        found = []
        for n_best in self._lists(examples, results):
            texts = [answer.text for answer in n_best.answers]
            pairs = zip(texts, answers.probabilities(n_best.answers), strict=True)
            text = n_best.text(threshold)
            found.append(AnswerPrediction(text, list(pairs), n_best.null_odds))
        return found


def _require_answers(
    examples: Sequence[SquadExample], path: str, version_2_with_negative: bool
) -> None:
    without = [example.qas_id for example in examples if example.answers is None]
    if without:
        raise UserError(
            f"{path} does not say the answers of {len(without)} questions, {without[0]} among "
            "them, and --do_eval needs them to score. Pass a file that has them as "
            "--predict_file, or leave --do_eval out"
        )
    impossible = [example.qas_id for example in examples if not example.answers]
    if impossible and not version_2_with_negative:
        raise UserError(
            f"{path} has {len(impossible)} questions that have no answer, {impossible[0]} among "
            "them: pass --version_2_with_negative=true"
        )


def best_places(logits: Any, name: str, count: int, max_seq_length: int) -> dict[str, Any]:
    """The highest logits of each row, and the first one.

    Args:
        logits: float32 [B, S]; S may be less than `max_seq_length`.
        name: `start` or `end`.
        count: how many; K is not more than `max_seq_length`.
        max_seq_length: longest S.

    Returns:
        `NAME_indexes` int32 and `NAME_logits` float32 [B, K], the highest first, of equals the
        first; `null_NAME_logits` [B].
    """
    first = logits[:, 0]
    count = min(count, max_seq_length)
    if logits.shape[1] != max_seq_length:
        # So that there are K.
        missing = max_seq_length - ops.shape(logits)[1]
        logits = ops.pad(logits, [[0, 0], [0, missing]], constant_values=float("-inf"))
    values, indexes = ops.top_k(logits, count, sorted=True)
    indexes = ops.cast(indexes, "int32")
    return {f"{name}_indexes": indexes, f"{name}_logits": values, f"null_{name}_logits": first}


def best_of_nothing() -> dict[str, np.ndarray]:
    """What `Squad.predict_outputs` gives for no windows."""
    empty = np.zeros((0, 1), np.float32)
    found: dict[str, np.ndarray] = {}
    for name in ("start", "end"):
        found |= {f"{name}_indexes": empty.astype(np.int32), f"{name}_logits": empty}
        found[f"null_{name}_logits"] = empty[:, 0]
    return found


def make_task(options: SquadOptions) -> Squad:
    """The task that the options describe.

    Raises:
        UserError: configuration and vocabulary are not right.
    """
    return Squad(options, *load_config_and_tokenizer(options))


def run(options: SquadOptions) -> finetune.Results:
    """Fine-tunes, answers and scores, as the options say.

    Returns:
        The figures of the evaluation and the files that were written.

    Raises:
        UserError: options, configuration, vocabulary, checkpoint or data are not right; nothing
            in `output_dir` has been changed then.
    """
    options.check()
    options = located(options)
    return finetune.run(make_task(options), options)
