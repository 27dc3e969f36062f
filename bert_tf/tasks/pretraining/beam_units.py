"""Runs work on a cluster as an Apache Beam pipeline (Dataflow, Flink, Spark; the extra `beam`)."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from bert_tf.errors import UserError

Item = TypeVar("Item")


def for_each_on_beam(
    function: Callable[[Item], object], items: Sequence[Item], runner: str, options: str
) -> Iterator[Item]:
    """Calls a function with each item on the workers of a Beam runner; yields the items afterwards.

    The function is pickled by name, so the workers need this package and its files. Options are
    `name=value` separated by commas, or `--name=value --other=value` if values have commas.
    """
    try:
        import apache_beam as beam  # pyright: ignore[reportMissingImports]
        from apache_beam.options import (  # pyright: ignore[reportMissingImports]
            pipeline_options,
        )
    except ImportError as error:
        advice = "pip install 'bert_tf[beam]'"
        raise UserError(f"--beam_runner needs Apache Beam ({error}): {advice}") from error
    given = (f"--{option.strip()}" for option in options.split(",") if option.strip())
    is_spelled_out = options.lstrip().startswith("--")
    arguments = [f"--runner={runner}", *(shlex.split(options) if is_spelled_out else given)]
    try:
        with beam.Pipeline(options=pipeline_options.PipelineOptions(arguments)) as pipeline:
            _ = (
                pipeline
                | "Units" >> beam.Create(list(items))
                # Otherwise one worker would process all items of the same source.
                | "Spread" >> beam.Reshuffle()
                | "Do" >> beam.Map(function)
            )
    # Beam exits the process if it does not understand an option.
    except (Exception, SystemExit) as error:
        last = (str(error).strip() or repr(error)).splitlines()[-1].strip()
        last = last.removeprefix("bert_tf.errors.UserError: ")
        raise UserError(f"The Beam pipeline failed: {last}") from error
    yield from items
