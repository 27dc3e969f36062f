"""Options of `run_pretraining.py` and `create_pretraining_data.py`."""

import dataclasses

from bert_tf.base import file_names
from bert_tf.base.errors import UserError, warn
from bert_tf.data.beam import BeamOptions
from bert_tf.options.declare import (
    DATA,
    DEVICES,
    DURATION,
    MODEL,
    NOTHING,
    PATH,
    RESULTS,
    ROWS,
    RUN,
    WEIGHTS,
    check_needs,
    check_required,
    check_values,
    option,
)
from bert_tf.options.shared import DeviceOptions, EncoderOptions, TokenizerOptions, TrainingOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingOptions(EncoderOptions, TrainingOptions, DeviceOptions, affects=WEIGHTS):
    """Options of `run_pretraining.py`."""

    input_file: str | None = option(
        None,
        "Comma-separated TFRecord files from create_pretraining_data.py, patterns "
        "(data/*.tfrecord) or folders.",
        affects=DATA | PATH,
        required=True,
    )
    max_seq_length: int = option(
        128, "Length of the records, as in create_pretraining_data.py.", affects=ROWS | MODEL
    )
    max_predictions_per_seq: int = option(
        20,
        "Maximum number of masked pieces per example, as in the records.",
        affects=ROWS | MODEL,
        limits=(1, 2**31 - 1),
    )
    do_train: bool = option(False, "Train.", affects=RUN)
    do_eval: bool = option(False, "Evaluate on the records in --input_file.", affects=RUN)
    eval_batch_size: int = option(8, "Batch size for evaluation.", affects=RESULTS)
    num_train_steps: int = option(100000, "Total number of training steps.", affects=DURATION)
    num_warmup_steps: int = option(
        10000, "Number of steps over which the learning rate warms up.", limits=(0, 2**31 - 1)
    )
    max_eval_steps: int = option(
        100, "Number of evaluation batches; records are reused if needed.", affects=RESULTS
    )
    eval_every: int = option(
        0,
        "Number of steps between evaluations during training, on the records in --input_file. The "
        "weights with the lowest loss are saved as best/model.ckpt in output_dir and used at the "
        "end. 0: no such evaluations.",
        affects=RUN | WEIGHTS,
        new=True,
        limits=(0, 2**31 - 1),
        needs=("do_train",),
    )
    optimizer: str = option(
        "adamw",
        "adamw: the original's optimizer; lamb: LAMB, for batches of thousands of examples.",
        new=True,
        choices=("adamw", "lamb"),
    )
    use_next_sentence: bool = option(
        True, "Train on next sentence prediction as well as on masked words.", new=True
    )

    def check(self) -> None:
        """Checks the options without reading any files."""
        self.check_required()
        if not (self.do_train or self.do_eval):
            raise UserError("Nothing to do: pass --do_train=true, --do_eval=true, or both")
        check_values(self)
        check_needs(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingDataOptions(BeamOptions, TokenizerOptions):
    """Options of `create_pretraining_data.py`."""

    input_file: str | None = option(
        None,
        "Comma-separated text files (also .gz), patterns (books/*.txt) or folders; one sentence "
        "per line, with blank lines between documents.",
        affects=DATA | PATH,
        required=True,
    )
    output_file: str | None = option(
        None,
        "Comma-separated TFRecord files; each gets an equal share of the examples.",
        affects=RUN | PATH,
        required=True,
    )
    vocab_file: str | None = option(
        None,
        "Vocabulary of the model, one word piece per line.",
        affects=ROWS | PATH,
        required=True,
    )
    do_whole_word_mask: bool = option(
        False, "Mask all pieces of a word together.", affects=ROWS | MODEL
    )
    max_seq_length: int = option(
        128,
        "Maximum length of an example in word pieces, including special tokens.",
        affects=ROWS | MODEL,
        # Three special tokens, and one token for each of the two segments.
        limits=(5, 2**31 - 1),
    )
    max_predictions_per_seq: int = option(
        20,
        "Maximum number of masked pieces per example; about max_seq_length * masked_lm_prob.",
        affects=ROWS | MODEL,
        limits=(1, 2**31 - 1),
    )
    random_seed: int = option(12345, "Random seed.")
    dupe_factor: int = option(
        10, "Number of times each document is used, with different masks.", limits=(1, 2**31 - 1)
    )
    masked_lm_prob: float = option(0.15, "Fraction of word pieces to mask.", limits=(0, 1))
    short_seq_prob: float = option(
        0.1, "Probability that a document is split into shorter examples.", limits=(0, 1)
    )
    verbose_logging: bool = option(False, "Log the first examples.", affects=NOTHING, new=True)
    whole_word_segments: str | None = option(
        None,
        "Word segmentation for --do_whole_word_mask in languages without spaces, such as Chinese: "
        "a file with one word per line, or a Python function such as jieba:lcut.",
        new=True,
        needs=("do_whole_word_mask",),
    )
    num_workers: int = option(
        0,
        "Number of processes that create the examples shard by shard, for corpora of any size. It "
        "does not change the examples, but 0 gives others: those of the original, which keeps the "
        "corpus in memory.",
        affects=DEVICES,
        new=True,
        limits=(0, 1024),
    )
    shard_mb: float = option(
        4.0,
        "Megabytes of text per shard, with --num_workers or --beam_runner. Each process keeps one "
        "shard in memory, and draws random next sentences from it.",
        new=True,
        limits=(0.001, 4096),
    )

    @property
    def uses_shards(self) -> bool:
        """Whether texts are processed shard by shard, not all in memory as in the original."""
        return bool(self.num_workers or self.beam_runner)

    @property
    def shard_bytes(self) -> int:
        """Approximate size of a shard of text in bytes."""
        return int(self.shard_mb * 1e6)

    @property
    def outputs(self) -> list[str]:
        """Paths of the record files."""
        return file_names.split(self.output_file or "")

    def check(self) -> None:
        """Checks the options without reading any files."""
        check_required(self)
        check_values(self)
        check_needs(self)
        count = round(self.max_seq_length * self.masked_lm_prob)
        if self.max_predictions_per_seq < count:
            problem = f"masks fewer pieces than --masked_lm_prob, which needs {count}"
            warn(f"--max_predictions_per_seq={self.max_predictions_per_seq} {problem}")
        if self.beam_runner and self.num_workers:
            raise UserError("Pass --num_workers or --beam_runner, not both")
