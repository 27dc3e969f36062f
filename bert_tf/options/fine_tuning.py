"""Options of the scripts that fine-tune."""

import dataclasses
import os
import re

from bert_tf.errors import UserError
from bert_tf.options.fields import check_required, check_values, option
from bert_tf.options.shared import DeviceOptions, ModelOptions, TrainingOptions

# [CLS] question [SEP] window [SEP]
_SPECIAL_TOKENS_OF_A_WINDOW = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuningOptions(ModelOptions, TrainingOptions, DeviceOptions):
    """What the fine-tuning scripts share: three steps, and training counted in epochs."""

    do_train: bool = option(False, "Fine-tune on the training set.")
    do_eval: bool = option(False, "Evaluate on the dev set.")
    do_predict: bool = option(False, "Write predictions for the test set.")
    do_export: bool = option(
        False,
        "In the end write the model as a SavedModel, a new version in the folder export of "
        "output_dir; see export_model.py.",
        new=True,
    )
    num_train_epochs: float = option(3.0, "Passes over the training set; may be a fraction.")
    warmup_proportion: float = option(
        0.1,
        "Part of the training over which the learning rate rises: 0.1 is a tenth.",
        limits=(0, 1),
    )
    predict_batch_size: int = option(8, "Examples in a batch of the prediction.")
    eval_every: str | None = option(
        None,
        "Evaluate on the dev set during the training, too: every so many steps (200) or epochs "
        "(1epoch, 0.5epoch). The best weights are kept as best/model.ckpt in output_dir, and are "
        "those that are evaluated and predicted with in the end.",
        new=True,
    )
    best_metric: str = option(
        "auto",
        "Figure by which --eval_every finds the best weights, without its eval_: accuracy, f1, "
        "loss and so on. auto: what is usual for the task.",
        new=True,
    )
    early_stopping_patience: int = option(
        0,
        "End the training when so many evaluations of --eval_every in a row were not better than "
        "the best one before. 0: never.",
        new=True,
        limits=(0, 2**31 - 1),
    )
    num_runs: int = option(
        1,
        "Train so many times, with --random_seed and the numbers after it, in the folders run_1, "
        "run_2 and so on of output_dir; runs.json has mean, deviation and best of their figures.",
        new=True,
        limits=(1, 1000),
    )
    freeze_layers: int = option(
        0,
        "Leave the embeddings and so many of the first layers as they are, which is faster and "
        "takes less memory.",
        new=True,
        limits=(0, 1000),
    )

    @property
    def evaluates(self) -> bool:
        """Whether the dev set is needed, in the end or on the way."""
        return self.do_eval or bool(self.eval_every)

    def batch_size(self, split: str) -> int:
        """Rows of a batch of `train`, `eval` or `predict`."""
        return getattr(self, f"{split}_batch_size")

    def check(self) -> None:
        """Checks what can be checked without reading a file, in the original's order.

        Raises:
            UserError: a required option is missing, nothing is to be done, or a value makes no
                sense; the message names the flag.
        """
        check_required(self, self._not_needed())
        self.check_case()
        if os.path.isfile(self.output_dir or ""):
            raise UserError(f"--output_dir={self.output_dir} is a file: pass a folder")
        if not (self.do_train or self.do_eval or self.do_predict or self.do_export):
            raise UserError(
                "Nothing to do: pass at least one of --do_train=true, --do_eval=true, "
                "--do_predict=true, --do_export=true"
            )
        check_values(self)
        self.profiled_steps()
        self._check_evaluations()

    def _check_evaluations(self) -> None:
        if self.eval_every:
            self.steps_between_evaluations(steps_per_epoch=1.0)
            if not self.do_train:
                raise UserError("--eval_every needs --do_train=true")
        for name in ("early_stopping_patience", "best_metric"):
            if not self.eval_every and getattr(self, name) not in (0, "auto"):
                raise UserError(f"--{name} needs --eval_every, which says how often to evaluate")
        if self.freeze_layers and not self.do_train:
            raise UserError("--freeze_layers needs --do_train=true")
        if self.num_runs > 1 and not (self.do_train and self.do_eval):
            raise UserError("--num_runs needs --do_train=true and --do_eval=true")

    def steps_between_evaluations(self, steps_per_epoch: float) -> int | None:
        """What `eval_every` is in steps, at least 1; None where it is not given.

        Raises:
            UserError: it is neither steps nor epochs.
        """
        if not self.eval_every:
            return None
        found = re.fullmatch(r"(\d+(?:\.\d+)?) *(steps?|epochs?)?", self.eval_every.strip())
        number = float(found[1]) if found else 0.0
        in_epochs = bool(found and found[2] and found[2].startswith("epoch"))
        if not found or not 0 < number < 2**31 or not (in_epochs or number.is_integer()):
            raise UserError(
                "--eval_every must be a number of steps, as in 200, or of epochs, as in 1epoch or "
                f"0.5epoch. Received: {self.eval_every}"
            )
        return max(1, round(number * steps_per_epoch)) if in_epochs else int(number)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SquadOptions(FineTuningOptions):
    """Options of `run_squad.py`."""

    train_file: str | None = option(
        None, "Questions to train on: JSON as train-v1.1.json of SQuAD. Needed with --do_train."
    )
    predict_file: str | None = option(
        None,
        "Questions to answer: JSON as dev-v1.1.json of SQuAD. Needed with --do_predict and "
        "--do_eval.",
    )
    max_seq_length: int = option(
        384, "Longest input in word pieces: a question and a window of its text."
    )
    doc_stride: int = option(
        128,
        "Word pieces from the begin of one window of a long text to the next.",
        limits=(1, 2**31 - 1),
    )
    max_query_length: int = option(
        64, "Word pieces of a question; the rest is cut.", limits=(1, 2**31 - 1)
    )
    n_best_size: int = option(
        20,
        "Answers of a question in nbest_predictions.json, and begins and ends of answers that are "
        "looked at in each window.",
        limits=(1, 2**31 - 1),
    )
    max_answer_length: int = option(30, "Longest answer in word pieces.", limits=(1, 2**31 - 1))
    version_2_with_negative: bool = option(
        False, "Whether there are questions without an answer, as in SQuAD 2.0."
    )
    null_score_diff_threshold: float | str = option(
        0.0,
        "A question has no answer if that is so much more probable than the best answer (in "
        "logits). auto, with --do_eval: the threshold with the best F1 on --predict_file.",
        words=("auto",),
    )
    do_predict: bool = option(False, "Answer the questions of --predict_file.")
    do_eval: bool = option(
        False,
        "Answer the questions of --predict_file, and score the answers: exact match and F1.",
        new=True,
    )
    answer_scoring: str = option(
        "auto",
        "With --do_eval: characters adds exact match and F1 by characters, as CMRC 2018 counts "
        "them. auto: where most characters of the answers are Han, kana or Thai.",
        new=True,
        choices=("auto", "words", "characters"),
    )
    fixed_shapes: bool = option(
        True,
        "Pad every batch to --max_seq_length, as the original does, whose loss and best answers "
        "count padding, too. false: only to the longest row, which is faster; results differ a "
        "little.",
        new=True,
    )
    verbose_logging: bool = option(
        False, "Print the first examples, and the answers that are not in their texts."
    )

    def check(self) -> None:
        """Checks what can be checked without reading a file, in the original's order.

        Raises:
            UserError: a required option is missing, nothing is to be done, or a value makes no
                sense; the message names the flag.
        """
        super().check()
        for flag, name in (
            ("do_train", "train_file"),
            ("do_predict", "predict_file"),
            ("do_eval", "predict_file"),
            ("eval_every", "predict_file"),
        ):
            if getattr(self, flag) and not getattr(self, name):
                raise UserError(f"--{flag} needs --{name}")
        self._check_lengths()
        for flag in ("version_2_with_negative", "do_eval"):
            if self.null_score_diff_threshold == "auto" and not getattr(self, flag):
                raise UserError(f"--null_score_diff_threshold=auto needs --{flag}=true")

    def check_model(self) -> None:
        """Checks what concerns model and inputs alone."""
        super().check_model()
        self._check_lengths()

    def _check_lengths(self) -> None:
        if self.max_seq_length <= self.max_query_length + _SPECIAL_TOKENS_OF_A_WINDOW:
            raise UserError(
                f"--max_seq_length={self.max_seq_length} must be greater than --max_query_length="
                f"{self.max_query_length} and {_SPECIAL_TOKENS_OF_A_WINDOW} special tokens, to "
                "have room for the text"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class NerOptions(FineTuningOptions):
    """Options of `run_ner.py`."""

    data_dir: str | None = option(
        None,
        "Folder with files of words and labels in columns, as those of CoNLL-2003: train.txt, "
        "dev.txt or valid.txt, test.txt.",
        new=True,
        required=True,
    )
    token_column: int = option(
        1, "Column of the words, from 1 on.", new=True, limits=(1, 2**31 - 1)
    )
    label_column: int = option(
        -1,
        "Column of the labels, from 1 on; -1 for the last one. A test file may do without.",
        new=True,
        limits=(-1, 2**31 - 1),
    )
    max_seq_length: int = option(
        128,
        "Longest input in word pieces, special ones included; longer sentences are read in "
        "windows that overlap.",
        new=True,
    )
    doc_context: bool = option(
        False,
        "Fill the input up to --max_seq_length with what stands before and after a sentence in its "
        "document, without labels: more to go by, and more to compute.",
        new=True,
    )
    eval_batch_size: int = option(8, "Sentences in a batch of the evaluation.", new=True)

    def check(self) -> None:
        """Checks what can be checked without reading a file.

        Raises:
            UserError: a required option is missing, nothing is to be done, or a value makes no
                sense; the message names the flag.
        """
        super().check()
        if self.label_column == 0:
            raise UserError("--label_column counts from 1 on, or is -1 for the last. Received: 0")
        if self.label_column == self.token_column:
            raise UserError(
                f"--token_column and --label_column are both {self.token_column}: words and labels "
                "must be in different columns"
            )
