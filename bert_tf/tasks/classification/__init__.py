"""Classification of texts and text pairs: fine-tuning, evaluation and prediction."""

from typing import Any

from bert_tf import registry


def run(options: Any) -> Any:
    """Runs `run_classifier.py` with the given options.

    Args:
        options: `bert_tf.options.ClassifierOptions`.

    Returns:
        `bert_tf.finetuning.output_dir.Results`: metrics of the evaluation, and paths of the output
        files.

    Raises:
        UserError: options, configuration, vocabulary, checkpoint or data are invalid, in which
            case `output_dir` is unchanged; or a file cannot be written.
    """
    return registry.run(options)
