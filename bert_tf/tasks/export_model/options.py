"""Options of `export_model.py`."""

import dataclasses

from bert_tf import registry
from bert_tf.errors import UserError
from bert_tf.options.fields import check_required, check_values, option

_ANY_LENGTH = 128


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Options of `export_model.py`."""

    model_dir: str | None = option(
        None,
        "Folder of a training (output_dir, or best in it), or with a published model: checkpoint, "
        "bert_config.json, vocab.txt.",
        new=True,
        required=True,
    )
    export_dir: str | None = option(
        None,
        "Folder for the SavedModel, which becomes version 1 in it, or the next one.",
        new=True,
        required=True,
    )
    form: str = option(
        "auto",
        "task: the fine-tuned model, on texts, ids and tf.train.Examples; encoder: the encoder "
        "alone, as TensorFlow Hub has them; preprocessor: texts to the inputs of that. auto: task "
        "where the folder is of a fine-tuning, encoder otherwise.",
        new=True,
        choices=("auto", "task", "encoder", "preprocessor"),
    )
    script: str | None = option(
        None,
        "Script that trained the model, if the folder does not say it: run_classifier, run_squad "
        "or another one that fine-tunes.",
        new=True,
    )
    task_name: str | None = option(
        None, "Its --task_name, where the folder does not say it.", new=True
    )
    max_seq_length: int = option(
        0,
        "Word pieces of a text or pair. 0: as in the training, or 128.",
        new=True,
        limits=(0, 2**31),
    )
    do_lower_case: str = option(
        "auto",
        "Lower-case the text: true for uncased models. auto: as in the training, or as the name of "
        "the folder says.",
        new=True,
        choices=("auto", "true", "false"),
    )
    text_pairs: str = option(
        "auto",
        "Whether serving_default takes two texts. auto: as the task has them; the signature pairs "
        "always does.",
        new=True,
        choices=("auto", "true", "false"),
    )
    text_input: bool = option(
        True,
        "Put the tokenizer into the model; without it the model takes ids.",
        new=True,
    )
    ids_model: bool = option(
        True,
        "Also write the model without text operations, in the folder ids, for programs that have "
        "no TensorFlow Text, saved_model_cli run for instance.",
        new=True,
    )
    jit_compile: bool = option(
        False, "Have the model compiled by XLA where it is run, anew for each length.", new=True
    )
    verbose_logging: bool = option(False, "Say more.", new=True)

    def check(self) -> None:
        """Checks what can be checked without reading a file.

        Raises:
            UserError: a required option is missing or a value makes no sense.
        """
        check_required(self)
        # 0 stands for another number here, and is no length.
        check_values(dataclasses.replace(self, max_seq_length=self.max_seq_length or _ANY_LENGTH))
        scripts = [name for name, script in registry.SCRIPTS.items() if script.make_task]
        if self.script and self.script not in scripts:
            raise UserError(
                f"--script must be one of {', '.join(scripts)}. Received: {self.script}"
            )
