"""Extractive question answering (SQuAD): fine-tuning, evaluation and prediction."""

from typing import Any

from bert_tf import registry


def run(options: Any) -> Any:
    """Runs question answering like `run_squad.py`; see `bert_tf.tasks.classification.run`."""
    return registry.run(options)
