"""Converts models between formats: `convert_checkpoint.py`."""

from bert_tf import file_names, files
from bert_tf.checkpoints.formats import Request, convert, describe, find_source
from bert_tf.checkpoints.formats.source import read_labels
from bert_tf.errors import UserError
from bert_tf.finetuning.vocabulary_checks import check_vocabulary
from bert_tf.tasks.conversion.options import ConversionOptions


def run(options: ConversionOptions) -> None:
    """Converts a model, or prints a description of it.

    Raises:
        UserError: options or model are invalid, or the output cannot be written; then nothing has
            been written.
    """
    options.check()
    source = find_source(options.input or "")
    if options.inspect:
        with files.standard_output() as output:
            output.write(describe(source, options.bert_config_file).encode())
        return
    vocab_file = options.vocab_file or source.vocab_file
    if vocab_file and options.do_lower_case is not None:
        check_vocabulary(vocab_file, options.do_lower_case, sources=[source])
    names = ("head", "bert_config_file", "vocab_file", "do_lower_case", "strip_optimizer")
    request = {name: getattr(options, name) for name in names}
    request["to"] = None if options.to == "auto" else options.to
    labels = _labels(options.labels) if options.labels else None
    convert(source, Request(output=options.output or "", labels=labels, **request))


def _labels(value: str) -> list[str]:
    if files.exists(value):
        return read_labels(value)
    labels = file_names.split(value)
    if len(set(labels)) < len(labels):
        raise UserError(f"--labels={value} has a label twice")
    return labels
