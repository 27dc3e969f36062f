"""Finds the folder of a model that code names as on the Hugging Face Hub."""

import os

from bert_tf.base import files
from bert_tf.base.errors import UserError
from bert_tf.checkpoints.folder import advice_for_model_id

# Environment variable with the folder in which model names are looked up.
MODELS = "BERT_TF_MODELS"


def find_folder(name: str | os.PathLike) -> str:
    """Returns the folder of a model: `name`, or the folder of that name in $BERT_TF_MODELS.

    Raises:
        UserError: there is neither.
    """
    path = os.path.expanduser(os.fspath(name))
    models = os.environ.get(MODELS, "")
    for folder in (path, os.path.join(models, path), os.path.join(models, os.path.basename(path))):
        if files.exists(folder) and (models or folder == path):
            return folder
    fix = f"Pass its folder, or set {MODELS} to the folder that has it"
    raise UserError(f"No model {path}{advice_for_model_id(path)}", fix=fix)
