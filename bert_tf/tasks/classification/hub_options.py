"""Options of `run_classifier_with_tfhub.py`."""

import dataclasses

from bert_tf.errors import UserError
from bert_tf.options.fields import option
from bert_tf.tasks.classification.options import ClassifierOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class HubClassifierOptions(ClassifierOptions):
    """Options of `run_classifier.py`, plus the Hub module."""

    bert_hub_module_handle: str | None = option(
        None,
        "Folder with an encoder, as a SavedModel for TensorFlow 2: downloaded from TensorFlow Hub "
        "and unpacked, or written by export_model.py --form=encoder.",
        required=True,
    )
    bert_config_file: str | None = option(None, "Not used: it is part of the encoder.")
    init_checkpoint: str | None = option(None, "Not used: see --bert_hub_module_handle.")
    vocab_file: str | None = option(None, "Used only if the encoder has no vocabulary.")
    do_lower_case: bool = option(True, "Used only if the encoder does not specify it.")
    init_layers: str | None = option(None, "Not supported by this script.", new=True)

    def check_case(self) -> None:
        """Does nothing, because the encoder determines the casing."""

    def check(self) -> None:
        """Checks the options without reading any files."""
        if self.init_layers:
            raise UserError("--init_layers is not supported: this script uses the whole encoder")
        super().check()
        handle = self.bert_hub_module_handle or ""
        if "://" in handle and not handle.startswith("gs://"):
            raise UserError(
                f"--bert_hub_module_handle={handle} is a URL, but bert_tf downloads nothing: "
                "download the model for TensorFlow 2, unpack it, and pass its folder"
            )
        if handle.endswith((".tar.gz", ".tgz", ".tar")):
            raise UserError(f"--bert_hub_module_handle={handle} is an archive: unpack it")
