"""Options of `convert_checkpoint.py`, `export_model.py` and `create_vocab.py`."""

import dataclasses

from bert_tf.base.errors import UserError
from bert_tf.options import registry
from bert_tf.options.declare import Options, check_required, check_values, option

_HEADS = [*dict.fromkeys(script.head for script in registry.SCRIPTS.values() if script.head)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConversionOptions(Options):
    """Options of `convert_checkpoint.py`."""

    input: str | None = option(
        None,
        "Model to convert: an original BERT or Model Garden checkpoint (prefix or folder), the zip "
        "of a release, a Hugging Face transformers folder, a TensorFlow Hub SavedModel, or a "
        ".keras or .weights.h5 file.",
        required=True,
    )
    output: str | None = option(
        None, "Output path: a new folder, or a name ending in .ckpt, .keras or .weights.h5."
    )
    to: str = option(
        "auto",
        "Output format. auto: inferred from the extension of --output. sentence_transformers: as "
        "hugging_face, with pooling, normalization, maximum length and prompts.",
        choices=(
            "auto",
            "original",
            "hugging_face",
            "sentence_transformers",
            "keras",
            "weights_h5",
        ),
    )
    bert_config_file: str | None = option(None, "By default, the configuration next to the model.")
    vocab_file: str | None = option(None, "By default, the vocabulary next to the model.")
    do_lower_case: bool | None = option(
        None,
        "Whether the tokenizer for transformers lower-cases texts. By default, inferred from the "
        "model or its vocabulary.",
    )
    head: str = option(
        "auto",
        "Head to convert with the encoder. auto: the model's head. In original checkpoints, "
        "classification, token and multiple_choice look the same: auto assumes classification, "
        "except for output folders of run_ner.py and run_multiple_choice.py. Values: auto, "
        f"{', '.join(_HEADS)}, or the name of a registered model's head.",
    )
    labels: str | None = option(
        None,
        "Labels in the order of the model's outputs: a file with one label per line, or a "
        "comma-separated list. By default, the labels.txt next to the model.",
    )
    strip_optimizer: bool = option(
        False,
        "Drop Adam slots and step, which take up two thirds of a training checkpoint. Only the "
        "original format can store them.",
    )
    inspect: bool = option(
        False,
        "Print the variables, sizes and head of --input, and the published models of its size; "
        "write nothing.",
    )

    def check(self) -> None:
        """Checks the options without reading any files."""
        is_complete = self.inspect or self.output
        check_required(self, first="--output (or --inspect)" * (not is_complete))
        check_values(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportOptions(Options):
    """Options of `export_model.py`."""

    model_dir: str | None = option(
        None,
        "Folder of a training run (its output_dir, or the subfolder best) or of a published model: "
        "checkpoint, bert_config.json, vocab.txt.",
        required=True,
    )
    export_dir: str | None = option(
        None,
        "Output folder: a SavedModel is written to a new numbered subfolder, files in other "
        "formats to the folder itself.",
        required=True,
    )
    format: str = option(
        "saved_model",
        "saved_model: for TensorFlow Serving, with the tokenizer; onnx: model.onnx, config.json "
        "and tokenizer.json, in the layout that Optimum and transformers.js read; litert: "
        "model.tflite, for LiteRT (TensorFlow Lite) on phones and small boards.",
        choices=("saved_model", "onnx", "litert"),
    )
    precision: str = option(
        "float32",
        "Precision of an ONNX or LiteRT model. int8: quantized weights, for a smaller and faster, "
        "but less exact model.",
        choices=("float32", "int8"),
    )
    pooling: str = option(
        "none",
        "Add the output sentence_embedding to an encoder in ONNX or LiteRT. mean, max: over all "
        "tokens; cls: the vector of [CLS].",
        choices=("none", "mean", "max", "cls"),
    )
    form: str = option(
        "auto",
        "task: the fine-tuned model, which takes texts, ids or tf.train.Examples; encoder: as on "
        "TensorFlow Hub; preprocessor: converts texts to the encoder's inputs. auto: task for a "
        "fine-tuned model, otherwise encoder.",
        choices=("auto", "task", "encoder", "preprocessor"),
    )
    script: str | None = option(
        None, "Fine-tuning script, if the folder does not record it, e.g. run_squad."
    )
    task_name: str | None = option(None, "Task name, if the folder does not record it, e.g. MRPC.")
    max_seq_length: int = option(
        0,
        "Maximum input length in word pieces. 0: as in training, or else the script's default "
        "(encoders: 128).",
        limits=(0, 2**31 - 1),
    )
    do_lower_case: str = option(
        "auto",
        "Lower-case the text: true for uncased models. auto: as in training, or inferred from the "
        "folder's name or vocabulary.",
        choices=("auto", "true", "false"),
    )
    text_input: bool = option(
        True,
        "true: write a model that includes the tokenizer and, in the subfolder ids, one that takes "
        "ids. false: write only the model that takes ids.",
    )
    jit_compile: bool = option(
        False, "Compile the model with XLA when serving, once per batch size and length."
    )

    def check(self) -> None:
        """Checks the options without reading any files."""
        check_required(self)
        check_values(self)
        is_saved_model = self.format == "saved_model"
        names = ("precision", "pooling") if is_saved_model else ("text_input", "jit_compile")
        self.require_defaults(*names, used_for=f"--format={self.format}")
        if self.form == "preprocessor" and not is_saved_model:
            raise UserError("--form=preprocessor needs --format=saved_model")
        scripts = [name for name, script in registry.entries().items() if script.make_task]
        if self.script and self.script not in scripts:
            raise UserError(f"expected --script, one of {scripts}. Received: {self.script}")

    def require_defaults(self, *names: str, used_for: str) -> None:
        """Raises a UserError for an option that was passed, but does not apply."""
        for name in names:
            if getattr(self, name) != getattr(ExportOptions(), name):
                raise UserError(f"--{name} does not apply to {used_for}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabularyOptions(Options):
    """Options of `create_vocab.py`."""

    input_file: str | None = option(
        None, "Comma-separated text files, patterns (books/*.txt) or folders.", required=True
    )
    output_file: str | None = option(
        None, "Vocabulary to write, one piece per line.", required=True
    )
    vocab_size: int = option(30522, "Total number of tokens.", limits=(10, 2**24))
    do_lower_case: bool = option(
        True,
        "Lower-case the text and strip accents; pass the same value when using the vocabulary.",
    )
    num_unused_tokens: int = option(
        99,
        "Number of unused tokens [unused0], [unused1], ... With 99 or more, [UNK], [CLS], [SEP] "
        "and [MASK] have their usual ids, 100 to 103.",
        limits=(0, 100_000),
    )

    def check(self) -> None:
        """Checks the options without reading any files."""
        check_required(self)
        check_values(self)
