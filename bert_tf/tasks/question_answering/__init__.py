"""Fine-tunes and applies models that answer questions on texts (SQuAD)."""

from typing import Any

from bert_tf import registry


def run(options: Any) -> Any:
    """Does what `run_squad.py` does; see `bert_tf.tasks.classification.run`."""
    return registry.run(options)
