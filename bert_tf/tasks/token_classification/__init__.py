"""Fine-tunes and applies models that label words, such as named entities."""

from typing import Any

from bert_tf import registry


def run(options: Any) -> Any:
    """Runs `run_ner.py`; see `bert_tf.tasks.classification.run`."""
    return registry.run(options)
