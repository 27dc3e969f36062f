"""Options of `export_model.py`."""

import dataclasses

from bert_tf import registry
from bert_tf.declare import Options, check_required, check_values, option
from bert_tf.errors import UserError


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
        "and tokenizer.json, as Optimum and ONNX Runtime use them; litert: model.tflite, for "
        "LiteRT (TensorFlow Lite) on phones and small boards.",
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
        "For an encoder in ONNX or LiteRT: add the output sentence_embedding, the mean or "
        "maximum over all tokens, or the vector of [CLS].",
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
        0, "Maximum input length in word pieces. 0: as in training, or 128.", limits=(0, 2**31)
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
        "ids. false: write only the model that takes ids, for programs without TensorFlow Text.",
    )
    jit_compile: bool = option(
        False, "Compile the model with XLA when serving, once per batch size and length."
    )

    def check(self) -> None:
        """Checks the options without reading any files."""
        check_required(self)
        check_values(self)
        defaults = ExportOptions()
        is_saved_model = self.format == "saved_model"
        names = ("precision", "pooling") if is_saved_model else ("text_input", "jit_compile")
        for name in names:
            if getattr(self, name) != getattr(defaults, name):
                raise UserError(f"--{name} does not apply to --format={self.format}")
        if self.form == "preprocessor" and not is_saved_model:
            reason = "a model in another format takes token ids, not texts"
            raise UserError(f"--form=preprocessor needs --format=saved_model: {reason}")
        scripts = [name for name, script in registry.entries().items() if script.make_task]
        if self.script and self.script not in scripts:
            known = ", ".join(scripts)
            raise UserError(f"--script must be one of {known}. Received: {self.script}")
