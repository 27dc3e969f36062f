"""Runs a function on a cluster with an Apache Beam pipeline (Dataflow, Flink, Spark, ...)."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from bert_tf.errors import UserError
from bert_tf.extras import import_extra

Item = TypeVar("Item")


def for_each_on_beam(
    function: Callable[[Item], object], items: Sequence[Item], runner: str, options: str
) -> Iterator[Item]:
    """Calls a function on each item on the workers of a Beam runner; yields the items at the end.

    The function is pickled by name, so this package must be installed on the workers. Options are
    `name=value` pairs separated by commas, or `--name=value --other=value` if values have commas.
    """
    beam = import_extra("apache_beam", "beam")
    pipeline_options = import_extra("apache_beam.options.pipeline_options", "beam")
    pairs = (f"--{option.strip()}" for option in options.split(",") if option.strip())
    has_dashes = options.lstrip().startswith("--")
    arguments = [f"--runner={runner}", *(shlex.split(options) if has_dashes else pairs)]
    try:
        with beam.Pipeline(options=pipeline_options.PipelineOptions(arguments)) as pipeline:
            _ = (
                pipeline
                | "Units" >> beam.Create(list(items))
                # Otherwise one worker would process all items of the same source.
                | "Spread" >> beam.Reshuffle()
                | "Do" >> beam.Map(function)
            )
    # Beam raises SystemExit for an option that it does not know.
    except (Exception, SystemExit) as error:
        reason = (str(error).strip() or repr(error)).splitlines()[-1].strip()
        reason = reason.removeprefix("bert_tf.errors.UserError: ")
        raise UserError(f"The Beam pipeline failed: {reason}") from error
    yield from items
