"""Pre-training: vocabularies, records of masked texts, training."""

from typing import Any

from bert_tf import registry


def run(options: Any) -> Any:
    """Does the work of `run_pretraining.py`: trains and evaluates, as the options say.

    Args:
        options: `bert_tf.options.PretrainingOptions`.

    Returns:
        `bert_tf.finetuning.output_dir.Results`: metrics of the evaluation, and paths of the files
        that were written.

    Raises:
        UserError: options, configuration, checkpoint or records are invalid; then nothing in
            `output_dir` has changed. Or a file cannot be written.
    """
    return registry.run(options)
