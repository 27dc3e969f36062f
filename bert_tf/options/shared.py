"""Mix-ins with options shared by several scripts."""

import dataclasses
import os

from bert_tf.base import files
from bert_tf.base.errors import UserError
from bert_tf.base.extras import RUNTIMES, import_extra
from bert_tf.config import BertConfig
from bert_tf.options.declare import (
    DEVICES,
    MODEL,
    NOTHING,
    PATH,
    ROWS,
    RUN,
    WEIGHTS,
    DefaultInt,
    Options,
    check_required,
    check_values,
    option,
)
from bert_tf.tokenization import FullTokenizer, validate_case_matches_checkpoint

_TPU_FLAGS = ("tpu_name", "tpu_zone", "gcp_project")


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderOptions(Options, affects=PATH):
    """Encoder options."""

    # The values for scripts that lack these flags.
    engine = "tensorflow"
    resume = "never"
    num_runs = 1
    early_stopping_patience = 0
    init_layer_numbers = ()

    bert_config_file: str | None = option(
        None,
        "Model configuration (bert_config.json); by default the one next to --init_checkpoint.",
        required=True,
    )
    init_checkpoint: str | None = option(
        None,
        "Checkpoint to start from: a prefix (bert_model.ckpt, model.ckpt-N), a folder (its best "
        "checkpoint if there is one, otherwise the newest) or the zip of a release; also a Hugging "
        "Face folder with safetensors, a .keras file or a TensorFlow Hub SavedModel. A checkpoint "
        "in output_dir takes precedence: training resumes from it.",
        affects=RUN | PATH,
    )
    max_seq_length: int = option(
        DefaultInt(128),
        "Maximum input length in word pieces and special tokens; longer texts are truncated.",
        affects=ROWS | MODEL,
    )

    def check_required(self) -> None:
        """Raises a UserError that lists the required flags without a value."""
        not_needed, model = self._not_needed(), ""
        file = self.__dataclass_fields__["bert_config_file"]
        given = self.bert_config_file or getattr(self, "vocab_file", None)
        if file.metadata["required"] and not given and file.name not in not_needed:
            # A first run: instead of two files, ask for the one flag that also finds them.
            not_needed |= {"init_checkpoint", "bert_config_file", "vocab_file"}
            model = "--init_checkpoint=FOLDER (Folder of the model. Or pass its files by name.)"
        check_required(self, not_needed, model)

    def config(self) -> BertConfig:
        """Returns the configuration; UserError if the file cannot be read, or is invalid."""
        return BertConfig.from_json_file(self.bert_config_file or "")

    def _not_needed(self) -> set[str]:
        """Returns the required options that may be unset: their files are next to a checkpoint."""
        folder = getattr(self, "output_dir", None)
        # An exported folder is refused with a reason, when it is opened.
        marks = ("checkpoint", "model.onnx", "model.tflite") if folder else ()
        found = any(files.exists(os.path.join(str(folder), name)) for name in marks)
        return {"bert_config_file", "vocab_file"} if self.init_checkpoint or found else set()


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerOptions(Options, affects=ROWS | MODEL):
    """Tokenizer options."""

    vocab_file: str | None = option(
        None,
        "The model's vocabulary; by default the one next to --init_checkpoint.",
        affects=PATH,
        required=True,
    )
    do_lower_case: bool = option(
        True, "Lower-case the text and strip accents: true for uncased models, false for cased."
    )
    strip_accents: str = option(
        "auto",
        "Whether to strip accents. auto: as the model's folder says, otherwise as --do_lower_case.",
        new=True,
        choices=("auto", "true", "false"),
    )
    special_tokens: str | None = option(
        None,
        "Strings that stay one piece, such as [E1],[/E1]. One that is not in the vocabulary takes "
        "the place of its next [unusedN], or of the one named, as in [E1]=[unused5]. By default, "
        "those of the model's folder.",
        new=True,
    )
    pretokenized: bool = option(
        False,
        "The texts are tokens separated by spaces; only split them into word pieces, without "
        "lower-casing.",
        new=True,
    )

    def tokenizer(self) -> FullTokenizer:
        """Returns the tokenizer; UserError if the vocabulary cannot be read, or has no place."""
        strip = {"true": True, "false": False}.get(self.strip_accents)
        settings = self.do_lower_case, strip, self.special_tokens, self.pretokenized
        return FullTokenizer(self.vocab_file or "", *settings)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelOptions(TokenizerOptions, EncoderOptions, affects=PATH):
    """Encoder and tokenizer options."""

    def check_model(self) -> None:
        """Raises a UserError if model or input options are invalid; reads no files."""
        self.check_case()
        check_values(self)

    def check_case(self) -> None:
        """Raises a UserError if `do_lower_case` contradicts the checkpoint's release name."""
        path = self.init_checkpoint
        if path and files.is_dir(path):
            path = os.path.join(path, "bert_model.ckpt")
        validate_case_matches_checkpoint(self.do_lower_case, path)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingOptions(Options, affects=WEIGHTS):
    """Training options."""

    # Only pre-training has a choice.
    optimizer = "adamw"

    output_dir: str | None = option(
        None, "Folder for checkpoints, records and results.", affects=RUN | PATH, required=True
    )
    train_batch_size: int = option(32, "Batch size for training, over all devices.")
    learning_rate: float = option(5e-5, "Peak learning rate.", limits=(1e-30, 1e30))
    save_checkpoints_steps: int = option(
        1000, "Number of steps between checkpoints.", affects=NOTHING
    )
    keep_checkpoint_max: int = option(
        5,
        "Number of checkpoints to keep in --output_dir, the newest ones. 0: all.",
        affects=NOTHING,
        new=True,
        limits=(0, 2**31 - 1),
    )
    random_seed: int = option(
        12345,
        "Random seed for new weights, dropout and the order of the training examples.",
        new=True,
        limits=(0, 2**32 - 1),
    )
    adam_bias_correction: bool = option(
        False, "Apply Adam's bias correction, which the original omits.", new=True
    )
    resume: str = option(
        "auto",
        "Use of checkpoints in output_dir. auto: resume from the newest; must: fail if "
        "there is none; never: fail with --do_train if there are any, otherwise ignore them.",
        affects=RUN,
        new=True,
        choices=("auto", "never", "must"),
    )
    gradient_accumulation_steps: int = option(
        1,
        "Split each batch into this many micro-batches to save memory. The result is the same, "
        "except for the random numbers of dropout.",
        new=True,
    )
    gradient_clip_scope: str = option(
        "batch",
        "Which gradients to clip. batch: their sum over all devices, whose number then does not "
        "change the result; replica: those of each device, as the original does on TPUs.",
        new=True,
        choices=("batch", "replica"),
    )
    recompute_layers: bool = option(
        False,
        "Recompute activations in the backward pass: saves memory, but takes a third longer.",
        affects=DEVICES,
        new=True,
    )
    length_grouping: bool = option(
        False,
        "Group texts of similar length into batches, to reduce padding, and shuffle the batches.",
        new=True,
    )
    verbose_logging: bool = option(
        False, "Also log the first examples as tokens and ids.", affects=NOTHING, new=True
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceOptions(Options, affects=DEVICES):
    """Device and precision options."""

    distribution_strategy: str = option(
        "auto",
        "Devices to run on. auto: a TPU if --use_tpu is set, several processes if TF_CONFIG lists "
        "them, all GPUs of this machine if it has several, otherwise one device. Each batch is "
        "split across devices.",
        new=True,
        choices=("auto", "one_device", "mirrored", "multi_worker", "tpu"),
    )
    precision: str = option(
        "float32",
        "Compute precision; weights and optimizer state stay in float32. tf32 rounds the inputs of "
        "matrix products on GPUs, and is faster there; elsewhere it is the same as float32.",
        affects=DEVICES | WEIGHTS,
        new=True,
        choices=("float32", "tf32", "bfloat16", "float16"),
    )
    fixed_shapes: bool = option(
        False,
        "Pad each batch to --max_seq_length instead of to its longest text; always on with TPUs.",
        new=True,
    )
    jit_compile: str = option(
        "auto",
        "Compile steps with XLA, and pad batches to the longest text of the data, or to "
        "--max_seq_length with --fixed_shapes=true. auto: on TPUs; on one GPU if there is enough "
        "work to be worth it; on several GPUs with --fixed_shapes=true; not on CPUs.",
        new=True,
        choices=("auto", "true", "false"),
    )
    use_tpu: bool = option(False, "Run on a TPU.")
    tpu_name: str | None = option(
        None, "Name or address of the TPU; omit it on a TPU VM. Used with --use_tpu."
    )
    tpu_zone: str | None = option(None, "Zone of the TPU. Used with --use_tpu.")
    gcp_project: str | None = option(None, "Project of the TPU. Used with --use_tpu.")
    master: str | None = option(None, "No effect: TensorFlow 2 has no sessions.")
    num_tpu_cores: int = option(8, "No effect: all cores of the TPU are used.")
    iterations_per_loop: int = option(1000, "No effect: each TPU call runs one step.")

    def ignored_flag_warnings(self) -> list[str]:
        """Returns a warning for each flag that was set but has no effect."""
        ignored = ["master", "num_tpu_cores", "iterations_per_loop"]
        if not self.use_tpu and self.distribution_strategy != "tpu":
            ignored += _TPU_FLAGS
        note = "No effect without --use_tpu=true."
        return [
            f"--{field.name}={getattr(self, field.name)}: "
            + (note if field.name in _TPU_FLAGS else field.metadata["help"])
            for field in dataclasses.fields(DeviceOptions)
            if field.name in ignored and getattr(self, field.name) != field.default
        ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineOptions(DeviceOptions, affects=DEVICES):
    """Device, precision and inference engine options."""

    precision: str = option(
        "float32",
        "Precision of the computation. bfloat16, float16: the weights stay in float32. tf32: "
        "faster than float32 on GPUs, and less exact. int8: quantized weights, with --engine=onnx "
        "or litert only.",
        affects=DEVICES | WEIGHTS,
        new=True,
        choices=("float32", "tf32", "bfloat16", "float16", "int8"),
    )
    engine: str = option(
        "tensorflow",
        "Library that runs a trained model. onnx: ONNX Runtime, faster for single texts on a CPU. "
        "litert: LiteRT, fastest with int8. For these two, the model is exported once, to a folder "
        "next to its checkpoint.",
        new=True,
        choices=("tensorflow", "onnx", "litert"),
    )

    def check_engine(self) -> None:
        """Raises a UserError if the engine is not installed, or does not support other flags."""
        reduced = ("tf32", "bfloat16", "float16") if self.engine == "tensorflow" else ("int8",)
        supported = ("float32", *reduced)
        unsupported = [] if self.precision in supported else ["precision"]
        if self.engine != "tensorflow":
            has_strategy = self.distribution_strategy not in ("auto", "one_device")
            unsupported += ["distribution_strategy"] * has_strategy + ["use_tpu"] * self.use_tpu
            unsupported += ["jit_compile"] * (self.jit_compile == "true")
        if unsupported:
            flag = f"--{unsupported[0]}={getattr(self, unsupported[0])}"
            raise UserError(f"--engine={self.engine} does not support {flag}")
        if self.engine != "tensorflow":
            import_extra(RUNTIMES[self.engine], self.engine)
