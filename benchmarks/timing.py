"""Interleaved timing for all benchmarks, and result files with versions and hardware."""

import contextlib
import datetime
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


def time_interleaved(
    functions: Mapping[str, Callable[[], Any]], rounds: int
) -> dict[str, list[float]]:
    """Times functions in turn, so that other load on the machine affects all of them alike.

    Args:
        functions: functions by name; each is called once to warm up.
        rounds: number of measurements per function.

    Returns:
        The seconds of each round, by name.
    """
    for function in functions.values():
        function()
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def time_in_processes(
    makers: Mapping[str, Callable[[], Callable[[], Any]]], rounds: int
) -> dict[str, list[float]]:
    """Like `time_interleaved`, but runs each function in a separate process.

    Args:
        makers: picklable functions by name; each returns, in its process, the function to time.
        rounds: number of measurements per function.
    """
    return measure_in_processes(
        {name: functools.partial(_make_timer, make) for name, make in makers.items()}, rounds
    )


def measure_in_processes(
    makers: Mapping[str, Callable[[], Callable[[], Any]]], rounds: int
) -> dict[str, list[Any]]:
    """Calls measuring functions in turn, each in a separate process.

    Args:
        makers: picklable functions by name; each returns, in its process, a measuring function,
            which is called once to warm up.
        rounds: number of measurements per function.

    Returns:
        The measurements of each round, by name.
    """

    def receive(name: str) -> Any:
        try:
            return connections[name].recv()
        except EOFError:
            sys.exit(f"The process for {name} failed; see its output above")

    context = multiprocessing.get_context("spawn")
    measurements: dict[str, list[Any]] = {name: [] for name in makers}
    connections: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        for name, make in makers.items():
            connections[name], child_connection = context.Pipe()
            process = context.Process(
                target=_serve_measurements, args=(make, child_connection), daemon=True
            )
            process.start()
            child_connection.close()
            stack.callback(process.join)
            stack.callback(connections[name].close)
            receive(name)
        for _ in range(rounds):
            for name, connection in connections.items():
                connection.send(None)
                measurements[name].append(receive(name))
    return measurements


def run_in_process(function: Callable[..., Any], *arguments: Any) -> None:
    """Calls a function in a separate process, whose memory is freed afterwards."""
    process = multiprocessing.get_context("spawn").Process(target=function, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        sys.exit(f"{function.__name__} failed; see its output above")


def _serve_measurements(make: Callable[[], Callable[[], Any]], connection: Any) -> None:
    measure = make()
    measure()
    connection.send(None)
    while True:
        try:
            connection.recv()
        except EOFError:
            return
        connection.send(measure())


def _make_timer(make: Callable[[], Callable[[], Any]]) -> Callable[[], float]:
    function = make()

    def measure() -> float:
        start = time.perf_counter()
        function()
        return time.perf_counter() - start

    return measure


def peak_bytes() -> int:
    """Returns the peak memory of this process in bytes."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"^VmHWM:\s+(\d+) kB", status, re.M)[1]) * 1024  # type: ignore[index]


def require(condition: bool, message: str) -> None:
    """Exits with a message if a check of the results fails."""
    if not condition:
        sys.exit(message)


def median_ratio(numerators: list[float], denominators: list[float]) -> float:
    """Returns the median over the rounds of the ratio of two times."""
    return statistics.median(a / b for a, b in zip(numerators, denominators, strict=True))


def use_one_core() -> None:
    """Pins this process, and threads started afterwards, to one core."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    os.environ["RAYON_NUM_THREADS"] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


def processor_name() -> str:
    """Returns the CPU's name and its most capable instruction set for matrix products."""
    text = Path("/proc/cpuinfo").read_text()
    name = re.search(r"^model name\s*: (.*)$", text, re.M)
    instruction_sets = {
        "amx_bf16": "AMX",
        "avx512_bf16": "AVX-512 with bfloat16",
        "avx512f": "AVX-512",
        "avx2": "AVX2",
    }
    sets = [label for flag, label in instruction_sets.items() if re.search(rf"\b{flag}\b", text)]
    return ", ".join([name[1] if name else platform.processor(), *sets[:1]])


def write_results(name: str, results: Mapping[str, Any], *packages: str) -> None:
    """Writes `results/<name>.json` with command, versions, date, processor, cores and results."""
    script, arguments = f"benchmarks/{Path(sys.argv[0]).name}", sys.argv[1:]
    contents = {
        # Strip local folder names.
        "command": " ".join(["python", script, *(re.sub("=.*/", "=", a) for a in arguments)]),
        "python": platform.python_version(),
        **{package: importlib.metadata.version(package) for package in packages},
        "date": datetime.date.today().isoformat(),
        "cpu": processor_name(),
        "cores": len(os.sched_getaffinity(0)),
        **results,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(contents, indent=1) + "\n")
