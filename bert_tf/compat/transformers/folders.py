"""Finds the folder of a model that code names as on the Hugging Face Hub."""

import os
from typing import Any

from bert_tf import releases
from bert_tf.base import files
from bert_tf.base.errors import UserError
from bert_tf.checkpoints.folder import advice_for_model_id
from bert_tf.checkpoints.formats.hugging_face import CONFIG, HuggingFaceSource
from bert_tf.checkpoints.formats.sentence_transformers import encoder_folder
from bert_tf.checkpoints.formats.source import TOKENIZER_CONFIG, Source
from bert_tf.checkpoints.run_folder import CONFIG as ORIGINAL_CONFIG
from bert_tf.checkpoints.run_folder import RunFolder
from bert_tf.config import BertConfig

# Settings of a tokenizer, and their defaults.
SETTINGS = {"padding_side": "right", "do_basic_tokenize": True}
SETTINGS |= {"clean_up_tokenization_spaces": True}


def find_folder(name: str | os.PathLike) -> str:
    """Returns the path `name` if it exists, or the folder of that name in $BERT_TF_MODELS.

    There, `bert-base-uncased` may also have the name of its archive, `uncased_L-12_H-768_A-12`.
    Raises a UserError if there is neither.
    """
    path = os.path.expanduser(os.fspath(name))
    base = os.path.basename(path.rstrip("/"))
    names = [path, base, *(r.name for r in releases.RELEASES if base == r.hub_name)]
    models = os.path.expanduser(os.environ.get("BERT_TF_MODELS", ""))
    for folder in (path, *(os.path.join(models, x) for x in names if models and x)):
        if files.exists(folder):
            return folder
    fix = "Pass its folder, or set BERT_TF_MODELS to the folder that has it"
    raise UserError(f"No model {path}{advice_for_model_id(path)}", fix=fix)


class TokenizerFolder(HuggingFaceSource):
    """The `arguments` of a tokenizer from a model's folder of any format, maybe without weights."""

    def __init__(self, folder: str) -> None:
        folder = encoder_folder(folder)
        Source.__init__(self, folder, folder)
        read_json = RunFolder(folder).read_json
        sizes = read_json(CONFIG) or read_json(ORIGINAL_CONFIG)
        # Added tokens must fit into the vocabulary of the model.
        self._config = BertConfig(int(sizes.get("vocab_size") or 1 << 20))
        self._read_tokenizer(folder)
        self.read_run(folder)
        release = releases.named(os.path.abspath(folder))
        if self.do_lower_case is None and release:
            self.do_lower_case = not release.cased
        self.log_notes()
        settings = read_json(TOKENIZER_CONFIG)
        accents = self.tokenizer_settings.get("strip_accents")
        length = settings.get("model_max_length", sizes.get("max_position_embeddings"))
        self.arguments: dict[str, Any] = {
            **{name: settings[name] for name in SETTINGS if name in settings},
            "do_lower_case": self.do_lower_case is not False,
            "strip_accents": None if accents is None else accents == "true",
            "model_max_length": length,
            "special_tokens": self.tokenizer_settings.get("special_tokens"),
        }
