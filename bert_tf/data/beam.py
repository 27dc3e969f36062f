"""Work on the files of a corpus with Apache Beam, on one machine or on many."""

import contextlib
import dataclasses
import json
import os
import re
import shlex
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from bert_tf.base import file_names, files, locks
from bert_tf.base.errors import UserError, counted, note
from bert_tf.base.extras import import_extra
from bert_tf.options.declare import DEVICES, Options, option

# Name of the file that says how the results in a folder were made.
_PLAN = "shards.json"
# What Beam's direct runner says in a thread if a worker process was killed.
_WORKER_DIED = "Worker subprocess exited"
_KILLED = (
    "a worker process was killed. If memory ran out, use fewer workers. Then run the same command "
    "again to continue"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BeamOptions(Options, affects=DEVICES):
    """Options of scripts that run on Apache Beam."""

    beam_runner: str | None = option(
        None,
        "Apache Beam runner, such as DataflowRunner, that does the work, on many machines.",
        new=True,
    )
    beam_options: str | None = option(
        None,
        "Options for the runner, such as project=my-project,region=europe-west1. Beam's own syntax "
        "also works: '--project=my-project --labels=a,b'.",
        new=True,
        needs=("beam_runner",),
    )


def for_each_on_beam(
    function: Callable[[Any], object], items: Sequence[Any], runner: str, options: str
) -> Iterator[Any]:
    """Calls a function on each item, on a Beam runner's workers; yields all items at the end.

    The function is pickled by name, so this package must be installed on the workers. `options` are
    `name=value` pairs separated by commas or, if values have commas, `--name=value --other=value`.

    Raises:
        UserError: the pipeline failed; the message is that of a UserError of `function`, if any.
    """
    beam = import_extra("apache_beam", "beam")
    pipeline_options = import_extra("apache_beam.options.pipeline_options", "beam")
    pairs = (f"--{option.strip()}" for option in options.split(",") if option.strip())
    has_dashes = options.lstrip().startswith("--")
    arguments = [f"--runner={runner}", *(shlex.split(options) if has_dashes else pairs)]
    try:
        beam_options = pipeline_options.PipelineOptions(arguments)
        with _stop_with_worker(), beam.Pipeline(options=beam_options) as pipeline:
            _ = (
                pipeline
                | "Units" >> beam.Create(list(items))
                # Otherwise one worker would process all items, as they come from one source.
                | "Spread" >> beam.Reshuffle()
                | "Do" >> beam.Map(function)
            )
    # Beam raises SystemExit for an option that it does not know.
    except (Exception, SystemExit) as error:
        reason = (str(error).strip() or repr(error)).splitlines()[-1].strip()
        reason = reason.removeprefix("bert_tf.base.errors.UserError: ")
        reason = re.sub(r" \[while running '.*'\]$", "", reason)
        raise UserError(f"The Beam pipeline failed: {reason}") from error
    yield from items


@contextlib.contextmanager
def _stop_with_worker() -> Iterator[None]:
    """Raises a RuntimeError if a process of the direct runner dies: Beam would wait for a lock."""
    main_thread = threading.main_thread()
    if threading.current_thread() is not main_thread or not hasattr(signal, "SIGUSR1"):
        yield
        return

    def notice(exception: threading.ExceptHookArgs) -> None:
        report(exception)
        if _WORKER_DIED in str(exception.exc_value):
            signal.pthread_kill(main_thread.ident or 0, signal.SIGUSR1)

    def stop(signal_number: int, frame: Any) -> None:
        raise RuntimeError(_KILLED)

    report, handler = threading.excepthook, signal.signal(signal.SIGUSR1, stop)
    threading.excepthook = notice
    try:
        yield
    finally:
        threading.excepthook = report
        signal.signal(signal.SIGUSR1, handler)


def convert_files(
    function: Callable[[tuple[str, str]], object],
    paths: Sequence[str],
    folder: str,
    extension: str,
    settings: Any,
    workers: Callable[[Any, Sequence[tuple[str, str]]], Iterable[Any]],
) -> None:
    """Converts each file to one in `folder`, of the same name with `extension` added.

    Keeps finished files, so that the same command continues after an interruption. `function` takes
    the paths of a file and of its result, which it must write atomically. `settings` are what
    results depend on besides the files, as JSON. `workers` calls a function on each item.

    Raises:
        UserError: names of files are repeated, or the folder has results of other settings or of
            files that changed since.
    """
    names = [os.path.basename(path) + extension for path in paths]
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        raise UserError(f"{count} files would be written to {name}: rename files, or split the run")
    with locks.exclusive(locks.lock_path(folder), f"--output_file={folder}"):
        files.make_dirs(folder)
        file_names.require_writable(os.path.join(folder, _PLAN))
        stamps = (list(files.size_and_mtime(path)) for path in paths)
        _check_plan(folder, json.loads(json.dumps(settings)), dict(zip(names, stamps, strict=True)))
        results = [os.path.join(folder, name) for name in names]
        shards = zip(paths, results, strict=True)
        missing = [shard for shard in shards if not files.exists(shard[1])]
        if len(missing) < len(paths):
            finished = counted(len(paths) - len(missing), "file", "are already done", of=len(paths))
            note(f"{folder}: {finished}")
        for _ in workers(function, missing) if missing else ():
            pass
        if absent := [result for _, result in missing if not files.exists(result)]:
            raise UserError(f"{absent[0]} was not written: can workers write to this folder?")


def _check_plan(folder: str, settings: Any, stamps: dict[str, Any]) -> None:
    """Compares the finished results in the folder with their plan, and adds to the plan."""
    path = os.path.join(folder, _PLAN)
    plan = files.read_json(path) if files.exists(path) else {"settings": None, "files": {}}
    known = plan["files"]
    finished = {n for n in {*known, *stamps} if files.exists(os.path.join(folder, n))}
    changed = sorted(n for n in finished & stamps.keys() if known.get(n) != stamps[n])
    is_other = plan["settings"] != settings
    if changed or (finished and is_other):
        which = "another model or other flags" if is_other else f"other input files ({changed[0]})"
        raise UserError(f"{folder} has results of {which}: pass another --output_file")
    plan = {"settings": settings, "files": {**known, **stamps}}
    files.write_json(path, plan)
