"""Pre-training: learns vocabularies, creates training records, and trains."""

from typing import Any

from bert_tf import registry


def run(options: Any) -> Any:
    """Pre-trains and evaluates a model, like `run_pretraining.py`.

    Args:
        options: `bert_tf.options.PretrainingOptions`.

    Returns:
        `bert_tf.finetuning.output_dir.Results`: evaluation metrics, and paths of the files written.

    Raises:
        UserError: options, configuration, checkpoint or records are invalid (`output_dir` is then
            unchanged), or a file cannot be written.
    """
    return registry.run(options)
