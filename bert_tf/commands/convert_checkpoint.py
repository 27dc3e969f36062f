"""Converts models between checkpoint formats; the work of `convert_checkpoint.py`."""

from bert_tf.base import signals
from bert_tf.checkpoints.formats import convert, describe, find_source
from bert_tf.checkpoints.run_folder import RunFolder
from bert_tf.commands.options import ConversionOptions


def run(options: ConversionOptions) -> None:
    """Converts a model or, with `--inspect`, describes it. Writes nothing if an error occurs."""
    options.check()
    source = find_source(options.input or "")
    if options.inspect:
        with signals.standard_output() as output:
            output.write(describe(source, options.bert_config_file).encode())
        return
    RunFolder.of(source.path).check_files()
    convert(source, options)
