"""Options of `run_squad.py`."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from bert_tf.base import files
from bert_tf.base.errors import UserError
from bert_tf.finetuning.options import FineTuningOptions
from bert_tf.options.declare import DATA, MODEL, NOTHING, PATH, RESULTS, ROWS, RUN, WEIGHTS, option

# [CLS] and two [SEP], in `[CLS] question [SEP] window [SEP]`.
NUM_SPECIAL_TOKENS = 3
_POSITIVE = (1, 2**31 - 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SquadOptions(FineTuningOptions, affects=RESULTS):
    """Options of `run_squad.py`."""

    train_file: str | None = option(
        None,
        "Training questions: JSON in the format of SQuAD, or JSON lines. Required with --do_train.",
        affects=DATA | PATH,
    )
    predict_file: str | None = option(
        None,
        "Questions to answer: JSON in the format of SQuAD, or JSON lines. Required with "
        "--do_predict and --do_eval.",
        affects=DATA | PATH,
    )
    max_seq_length: int = option(
        384,
        "Maximum input length in word pieces: a question and a window of its text.",
        affects=ROWS | MODEL,
    )
    doc_stride: int = option(
        128,
        "Number of word pieces between the starts of consecutive windows.",
        affects=ROWS,
        limits=_POSITIVE,
    )
    max_query_length: int = option(
        64,
        "Maximum length of a question in word pieces; the rest is truncated.",
        affects=ROWS | MODEL,
        limits=_POSITIVE,
    )
    n_best_size: int = option(
        20,
        "Number of answers per question in nbest_predictions.json, and of answer starts and ends "
        "considered per window.",
        limits=_POSITIVE,
    )
    max_answer_length: int = option(
        30, "Maximum length of an answer in word pieces.", limits=_POSITIVE
    )
    version_2_with_negative: bool = option(
        False,
        "Whether some questions have no answer, as in SQuAD 2.0.",
        affects=DATA | MODEL | WEIGHTS,
    )
    null_score_diff_threshold: float | str = option(
        0.0,
        "Predict 'no answer' if its score exceeds that of the best answer by more than this. "
        "auto, with --do_eval: the threshold with the best F1 on --predict_file.",
        keywords=("auto",),
    )
    do_predict: bool = option(False, "Answer the questions in --predict_file.", affects=RUN)
    do_eval: bool = option(
        False,
        "Answer the questions in --predict_file, and score the answers: exact match and F1.",
        affects=RUN,
        new=True,
    )
    answer_scoring: str = option(
        "auto",
        "With --do_eval. words: exact match and F1 of words; characters: also of characters, as in "
        "CMRC 2018 or, for Korean, KorQuAD 1.0; auto: characters if most characters of the answers "
        "are Han, kana, Thai or Hangul.",
        new=True,
        choices=("auto", "words", "characters"),
    )
    fixed_shapes: bool = option(
        True,
        "Pad every batch to --max_seq_length, as in the original, where padding affects the loss "
        "and the n-best answers. false: pad only to the longest row, which is faster, with "
        "slightly different results.",
        affects=WEIGHTS | RESULTS,
        new=True,
    )
    verbose_logging: bool = option(
        False,
        "Log the first examples, and the ids of questions whose answer is not in the text.",
        affects=NOTHING,
    )

    @property
    def predict_split(self) -> str:
        """Evaluation and prediction both answer the questions in `predict_file`."""
        return "eval"

    @classmethod
    def complete(
        cls, flags: dict[str, Any], passed: Mapping[str, Any], folder: Any
    ) -> dict[str, Any]:
        """Replaces the threshold "auto" by the one that the training run found."""
        values = super().complete(flags, passed, folder)
        if values.get("null_score_diff_threshold") == "auto":
            path = folder.file("eval_results.json")
            try:
                found = float(files.read_json(path)["null_score_diff_threshold"])
            except (UserError, ValueError, KeyError, TypeError) as error:
                raise UserError("no valid null_score_diff_threshold", at=path) from error
            values["null_score_diff_threshold"] = found
        return values

    def check_folder(self, folder: Any) -> Iterator[str]:
        """Yields a sentence if the model was trained with another kind of threshold."""
        found_threshold = folder.flags.get("null_score_diff_threshold") == "auto"
        if found_threshold and self.null_score_diff_threshold == 0.0:
            flag = "--null_score_diff_threshold"
            yield f"{folder} was trained with {flag}=auto: pass that of its eval_results.json"

    def ignored_flag_warnings(self) -> list[str]:
        """Returns a warning for each flag that was set but has no effect."""
        warnings = super().ignored_flag_warnings()
        if self.null_score_diff_threshold and not self.version_2_with_negative:
            needed = "--version_2_with_negative=true"
            warnings.append(f"--null_score_diff_threshold is ignored without {needed}")
        return warnings

    def check(self) -> None:
        """Checks all options, in the original's order."""
        super().check()
        for flag in ("do_train", "do_predict", "do_eval", "eval_every"):
            name = "train_file" if flag == "do_train" else "predict_file"
            if getattr(self, flag) and not getattr(self, name):
                raise UserError(f"--{flag} needs --{name}")
        self._check_lengths()
        for flag in ("version_2_with_negative", "do_eval"):
            if self.null_score_diff_threshold == "auto" and not getattr(self, flag):
                raise UserError(f"--null_score_diff_threshold=auto needs --{flag}=true")

    def check_model(self) -> None:
        """Checks the options that are needed to use a trained model."""
        super().check_model()
        if self.null_score_diff_threshold == "auto":
            raise UserError("null_score_diff_threshold=auto needs evaluation data: pass a number")
        self._check_lengths()

    def _check_lengths(self) -> None:
        if self.max_seq_length <= self.max_query_length + NUM_SPECIAL_TOKENS:
            least = f"--max_query_length={self.max_query_length} + {NUM_SPECIAL_TOKENS}"
            raise UserError(f"--max_seq_length={self.max_seq_length} must be more than {least}")
