"""Fine-tunes and applies models that label words, such as named entities."""

from typing import Any

from bert_tf import registry


def run(options: Any) -> Any:
    """Does what the script does.

    Args:
        options: `bert_tf.options.NerOptions`.

    Returns:
        `bert_tf.finetuning.output_dir.Results`: metrics of the evaluation, and paths of the files
        that were written.

    Raises:
        UserError: options, configuration, vocabulary, checkpoint or data are invalid; then nothing
            in `output_dir` has changed. Or a file cannot be written.
    """
    return registry.run(options)
