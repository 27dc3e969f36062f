"""Pre-training: vocabularies, records of masked texts, training."""

from typing import Any

from bert_tf import registry


def run(options: Any) -> Any:
    """Does the work of `run_pretraining.py`, see `training.run`.

    Importing this module does not import TensorFlow.
    """
    return registry.run(options)
