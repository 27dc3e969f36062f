"""Token classification (named entity recognition): fine-tuning, evaluation and prediction."""

from typing import Any

from bert_tf import registry


def run(options: Any) -> Any:
    """Runs `run_ner.py`; see `bert_tf.tasks.classification.run`."""
    return registry.run(options)
