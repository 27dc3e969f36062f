"""Fine-tunes and applies models that choose one of several endings of a text."""

from typing import Any

from bert_tf import registry


def run(options: Any) -> Any:
    """Runs `run_multiple_choice.py`; see `bert_tf.tasks.classification.run`."""
    return registry.run(options)
