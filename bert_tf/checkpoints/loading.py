"""Creates models from checkpoints: `BertModel.from_checkpoint`."""

import logging
import os
from typing import Any

from bert_tf.checkpoints.formats import Source, find_source
from bert_tf.checkpoints.model import Restored, restore
from bert_tf.errors import UserError

_logger = logging.getLogger("bert_tf")


def load_model(model_class: Any, path: str | os.PathLike, **kwargs: Any) -> Any:
    """Creates a model with the weights of a checkpoint; see `ConfiguredModel.from_checkpoint`."""
    source = find_source(os.fspath(path))
    config = source.config()
    if config is None:
        raise UserError(
            f"No configuration next to {source.path}: put bert_config.json there, or create "
            "the model from a BertConfig and call bert_tf.checkpoint.restore(model, path)"
        )
    model = model_class(config, zero_init_encoder=True, **kwargs)
    _logger.info("%s", restore_source(model, source).describe())
    return model


def restore_source(model: Any, source: Source) -> Restored:
    """Restores a model from a source of any format, and logs the source's notes as warnings."""
    for note in source.notes:
        _logger.warning("%s", note)
    return restore(model, source.path, source)
