"""Fine-tunes and applies models that choose one of several endings of a text."""

from typing import Any

from bert_tf import registry


def run(options: Any) -> Any:
    """Does what `run_multiple_choice.py` does; see `bert_tf.tasks.classification.run`.

    Args:
        options: `bert_tf.options.MultipleChoiceOptions`.
    """
    return registry.run(options)
