"""Converts models between checkpoint formats; the work of `convert_checkpoint.py`."""

from bert_tf import file_names, files
from bert_tf.checkpoints import label_map
from bert_tf.checkpoints.formats import Request, convert, describe, find_source
from bert_tf.errors import UserError
from bert_tf.finetuning.vocabulary_checks import check_vocabulary
from bert_tf.tasks.conversion.options import ConversionOptions


def run(options: ConversionOptions) -> None:
    """Converts a model or, with `--inspect`, describes it. Writes nothing if an error occurs."""
    options.check()
    source = find_source(options.input or "")
    if options.inspect:
        with files.standard_output() as output:
            output.write(describe(source, options.bert_config_file).encode())
        return
    vocab_file = options.vocab_file or source.vocab_file
    if vocab_file and options.do_lower_case is not None:
        check_vocabulary(vocab_file, options.do_lower_case, sources=[source])
    request = Request(
        output=options.output or "",
        to=None if options.to == "auto" else options.to,
        head=options.head,
        bert_config_file=options.bert_config_file,
        vocab_file=options.vocab_file,
        do_lower_case=options.do_lower_case,
        labels=_parse_labels(options.labels) if options.labels else None,
        strip_optimizer=options.strip_optimizer,
    )
    convert(source, request)


def _parse_labels(value: str) -> list[str]:
    """Reads labels from a file with that name, if there is one, or from a comma-separated list."""
    if files.exists(value):
        return label_map.read(value)
    labels = file_names.split(value)
    if len(set(labels)) < len(labels):
        raise UserError(f"--labels={value} contains duplicate labels")
    return labels
