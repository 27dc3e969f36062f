"""What the benchmarks share: interleaved timing, and results with versions and machine."""

import contextlib
import functools
import importlib.metadata
import json
import multiprocessing
import os
import platform
import re
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"


def interleaved(works: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Times pieces of work in turn, so that what else the machine does meets all of them.

    Args:
        works: by name; each is done once before, for what is only made once.
        rounds: how often each is timed.

    Returns:
        Seconds of each round, by name.
    """
    for work in works.values():
        work()
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def interleaved_processes(
    makers: Mapping[str, Callable[[], Callable[[], Any]]], rounds: int
) -> dict[str, list[float]]:
    """As `interleaved`, with a process for each: what one does to the memory slows no other down.

    Args:
        makers: by name, to be pickled: each makes a piece of work, in its process.
        rounds: how often each is timed.
    """
    return interleaved_figures(
        {name: functools.partial(_timed, make) for name, make in makers.items()}, rounds
    )


def interleaved_figures(
    makers: Mapping[str, Callable[[], Callable[[], Any]]], rounds: int
) -> dict[str, list[Any]]:
    """What pieces of work that measure something find, round by round, each in its process.

    Args:
        makers: by name, to be pickled: each makes a piece of work, in its process. It is done once
            before, for what is only made once.
        rounds: how often each is done.
    """

    def receive(name: str) -> Any:
        try:
            return connections[name].recv()
        except EOFError:
            sys.exit(f"{name}: its process has ended, see above")

    context = multiprocessing.get_context("spawn")
    figures: dict[str, list[Any]] = {name: [] for name in makers}
    connections: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        for name, make in makers.items():
            connections[name], theirs = context.Pipe()
            process = context.Process(target=_work, args=(make, theirs), daemon=True)
            process.start()
            theirs.close()
            stack.callback(process.join)
            stack.callback(connections[name].close)
            receive(name)
        for _ in range(rounds):
            for name, connection in connections.items():
                connection.send(None)
                figures[name].append(receive(name))
    return figures


def in_a_process(work: Callable[..., Any], *arguments: Any) -> None:
    """Does something in a process of its own, whose memory is free afterwards."""
    process = multiprocessing.get_context("spawn").Process(target=work, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        sys.exit(f"{work.__name__} has failed, see above")


def _work(make: Callable[[], Callable[[], Any]], connection: Any) -> None:
    work = make()
    work()
    connection.send(None)
    while True:
        try:
            connection.recv()
        except EOFError:
            return
        connection.send(work())


def _timed(make: Callable[[], Callable[[], Any]]) -> Callable[[], float]:
    work = make()

    def timed() -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    return timed


def peak_bytes() -> int:
    """The most memory that this process has had, as the system counts it."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"^VmHWM:\s+(\d+) kB", status, re.M)[1]) * 1024  # type: ignore[index]


def require(is_so: bool, what: str) -> None:
    """Ends the benchmark when results are not equal: then their speeds cannot be compared."""
    if not is_so:
        sys.exit(f"Not so: {what}")


def ratio(slow: list[float], fast: list[float]) -> float:
    """How many times faster: the median of the ratios of the rounds."""
    return statistics.median(a / b for a, b in zip(slow, fast, strict=True))


def use_one_core() -> None:
    """Binds this process, and the threads it will start, to one core. To be called early."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    os.environ["RAYON_NUM_THREADS"] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


def processor() -> str:
    """Its name, and the widest instructions that matrix products may use."""
    text = Path("/proc/cpuinfo").read_text()
    name = re.search(r"^model name\s*: (.*)$", text, re.M)
    known = {
        "amx_bf16": "AMX",
        "avx512_bf16": "AVX-512 with bfloat16",
        "avx512f": "AVX-512",
        "avx2": "AVX2",
    }
    widest = [words for flag, words in known.items() if re.search(rf"\b{flag}\b", text)]
    return ", ".join([name[1] if name else platform.processor(), *widest[:1]])


def write_results(name: str, figures: Mapping[str, Any], *packages: str) -> None:
    """Writes `results/<name>.json`: command, versions, processor, cores, figures."""
    script, arguments = f"benchmarks/{Path(sys.argv[0]).name}", sys.argv[1:]
    result = {
        # Without the folders of this machine.
        "command": " ".join(["python", script, *(re.sub("=.*/", "=", a) for a in arguments)]),
        "python": platform.python_version(),
        **{package: importlib.metadata.version(package) for package in packages},
        "cpu": processor(),
        "cores": len(os.sched_getaffinity(0)),
        **figures,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
