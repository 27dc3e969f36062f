"""Options that several scripts share, as mix-ins."""

import dataclasses
import os

from bert_tf import files
from bert_tf.errors import UserError
from bert_tf.options.fields import check_values, option
from bert_tf.tokenization import validate_case_matches_checkpoint

_FLAGS_OF_TPUS = ("tpu_name", "tpu_zone", "gcp_project")
_OF_TPUS = "Without effect without --use_tpu=true."


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderOptions:
    """The model."""

    bert_config_file: str | None = option(
        None,
        "Model configuration (bert_config.json); by default the one beside --init_checkpoint.",
        required=True,
    )
    init_checkpoint: str | None = option(
        None,
        "Checkpoint to start from: a prefix (bert_model.ckpt, model.ckpt-N), or the folder or zip "
        "of a release; also a Hugging Face folder with safetensors, a .keras file or a TensorFlow "
        "Hub SavedModel. A checkpoint in output_dir takes precedence and is resumed.",
    )
    max_seq_length: int = option(
        128, "Maximum input length in word pieces, including special tokens; longer texts are cut."
    )

    def _not_needed(self) -> set[str]:
        """Returns names of required options whose files are found beside a checkpoint."""
        folder = getattr(self, "output_dir", None)
        trained = folder and files.exists(os.path.join(folder, "checkpoint"))
        return {"bert_config_file", "vocab_file"} if self.init_checkpoint or trained else set()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelOptions(EncoderOptions):
    """The model, and its tokenization."""

    vocab_file: str | None = option(
        None, "The model's vocabulary; by default the one beside --init_checkpoint.", required=True
    )
    do_lower_case: bool = option(
        True, "Lower-case the text and strip accents: true for uncased models, false for cased."
    )

    def check_model(self) -> None:
        """Raises a UserError if options of model and inputs are invalid; reads no file."""
        self.check_case()
        check_values(self)

    def check_case(self) -> None:
        """Raises a UserError unless `do_lower_case` fits the release that the path names."""
        path = self.init_checkpoint
        if path and files.is_dir(path):
            path = os.path.join(path, "bert_model.ckpt")
        validate_case_matches_checkpoint(self.do_lower_case, path)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """The training."""

    output_dir: str | None = option(
        None, "Folder for checkpoints, records and results.", required=True
    )
    train_batch_size: int = option(32, "Batch size for training, over all devices.")
    learning_rate: float = option(5e-5, "Peak learning rate of Adam.")
    save_checkpoints_steps: int = option(1000, "Steps between two checkpoints.")
    random_seed: int = option(
        12345,
        "Seed of new weights, dropout and the order of the training examples.",
        new=True,
        limits=(0, 2**32 - 1),
    )
    adam_bias_correction: bool = option(
        False, "Correct the bias of Adam's moments, which the original does not.", new=True
    )
    resume: str = option(
        "auto",
        "What to do with checkpoints in output_dir. auto: resume from the newest; must: fail if "
        "there is none; never: fail if there is one, and do not evaluate or predict with it.",
        new=True,
        choices=("auto", "never", "must"),
    )
    gradient_accumulation_steps: int = option(
        1,
        "Number of micro-batches of a batch: less memory, and the same result.",
        new=True,
    )
    gradient_clip_scope: str = option(
        "batch",
        "Gradients to clip. batch: their sum over all devices, so that N devices equal one; "
        "replica: those of each device, as the original on a TPU.",
        new=True,
        choices=("batch", "replica"),
    )
    recompute_layers: bool = option(
        False,
        "Recompute activations in the backward pass: less memory, about a third more time.",
        new=True,
    )
    length_grouping: bool = option(
        False,
        "Form batches of texts of similar length, in random order, for less padding.",
        new=True,
    )
    profile_steps: str | None = option(
        None, "First and last step to record with TensorFlow's profiler, as in 10,20.", new=True
    )
    verbose_logging: bool = option(
        False, "Print the first examples as tokens and ids, too.", new=True
    )

    def training_notes(self) -> list[str]:
        """Returns a warning for each value with which a training run hardly learns."""
        found = []
        rate = self.learning_rate
        if rate > 0.01 and getattr(self, "optimizer", "adamw") == "adamw":
            found.append(f"--learning_rate={rate:g} is above 0.01: check the exponent")
        pairs = {"num_warmup_steps": getattr(self, "num_train_steps", 1), "warmup_proportion": 1}
        for flag, whole in pairs.items():
            if getattr(self, flag, 0) >= whole:
                found.append(f"--{flag}={getattr(self, flag)} is not shorter than the training")
        return found

    def profiled_steps(self) -> tuple[int, int] | None:
        """Parses the first and the last step to profile; raises a UserError if invalid."""
        if not self.profile_steps:
            return None
        try:
            first, last = (int(step) for step in self.profile_steps.split(","))
        except ValueError:
            first, last = 0, 0
        if not 1 <= first <= last:
            expected = "--profile_steps must be the first and the last step, as in 10,20"
            raise UserError(f"{expected}. Received: {self.profile_steps}")
        return first, last


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceOptions:
    """Devices and precision."""

    distribution_strategy: str = option(
        "auto",
        "auto: a TPU with --use_tpu, several processes if TF_CONFIG names them, all GPUs of this "
        "machine if there are several, otherwise one device. Devices share each batch.",
        new=True,
        choices=("auto", "one_device", "mirrored", "multi_worker", "tpu"),
    )
    precision: str = option(
        "float32",
        "Precision of the computation; weights and optimizer stay in float32.",
        new=True,
        choices=("float32", "bfloat16", "float16"),
    )
    fixed_shapes: bool = option(
        False,
        "Pad to --max_seq_length instead of the longest text of a batch, as always on TPUs and "
        "under XLA.",
        new=True,
    )
    jit_compile: str = option(
        "auto",
        "Compile steps with XLA, which needs fixed shapes. auto: on TPUs, and on GPUs with "
        "--fixed_shapes=true; not on CPUs, where it does not pay.",
        new=True,
        choices=("auto", "true", "false"),
    )
    use_tpu: bool = option(False, "Run on a TPU.")
    tpu_name: str | None = option(
        None, "Name or address of the TPU; on a TPU VM leave it out. Used with --use_tpu."
    )
    tpu_zone: str | None = option(None, "Zone of the TPU. Used with --use_tpu.")
    gcp_project: str | None = option(None, "Project of the TPU. Used with --use_tpu.")
    master: str | None = option(None, "Without effect: TensorFlow 2 has no sessions.")
    num_tpu_cores: int = option(8, "Without effect: all cores of the TPU are used.")
    iterations_per_loop: int = option(1000, "Without effect: one step is one TPU call.")

    def notes(self) -> list[str]:
        """Returns a warning for each flag that was set but has no effect."""
        silent = ["master", "num_tpu_cores", "iterations_per_loop"]
        if not self.use_tpu and self.distribution_strategy != "tpu":
            silent += _FLAGS_OF_TPUS
        return [
            f"--{field.name}={getattr(self, field.name)}: "
            + (_OF_TPUS if field.name in _FLAGS_OF_TPUS else field.metadata["help"])
            for field in dataclasses.fields(DeviceOptions)
            if field.name in silent and getattr(self, field.name) != field.default
        ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineOptions(DeviceOptions):
    """Devices, precision and the library that computes predictions."""

    precision: str = option(
        "float32",
        "Precision of the computation; weights and optimizer stay in float32. int8: quantized "
        "weights, with --engine=onnx only.",
        new=True,
        choices=("float32", "bfloat16", "float16", "int8"),
    )
    engine: str = option(
        "tensorflow",
        "Library that computes predictions of a trained model. onnx: ONNX Runtime, which answers "
        "single texts faster on a CPU; it exports the model once, to the folder onnx next to it.",
        new=True,
        choices=("tensorflow", "onnx"),
    )

    def check_engine(self) -> None:
        """Raises a UserError if engine and precision do not fit together."""
        other = ("int8",) if self.engine == "onnx" else ("bfloat16", "float16")
        usable = ("float32", *other)
        if self.precision not in usable:
            raise UserError(
                f"--precision={self.precision} is not for --engine={self.engine}, which has "
                f"{' and '.join(usable)}"
            )
