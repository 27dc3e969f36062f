"""Converts models between checkpoint formats; the work of `convert_checkpoint.py`."""

import os

from bert_tf.base import signals
from bert_tf.checkpoints.formats import convert, describe, find_source
from bert_tf.checkpoints.run_folder import RunFolder
from bert_tf.commands.options import ConversionOptions
from bert_tf.finetuning.vocabulary_checks import check_vocabulary


def run(options: ConversionOptions) -> None:
    """Converts a model or, with `--inspect`, describes it. Writes nothing if an error occurs."""
    options.check()
    source = find_source(options.input or "")
    if options.inspect:
        with signals.standard_output() as output:
            output.write(describe(source, options.bert_config_file).encode())
        return
    folder = RunFolder(os.path.dirname(source.path))
    folder.check_files()
    vocab_file = options.vocab_file or source.vocab_file
    if vocab_file and (options.vocab_file or options.do_lower_case is not None):
        check_vocabulary(vocab_file, options.do_lower_case, sources=[source])
    convert(source, options)
