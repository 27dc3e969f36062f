"""Interleaved timing for all benchmarks, and result files with package versions and machine."""

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


def interleaved(functions: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Times functions in turn, so that other load on the machine affects all of them.

    Args:
        functions: functions by name; each is called once before the first round to warm up.
        rounds: number of measurements of each.

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


def interleaved_processes(
    makers: Mapping[str, Callable[[], Callable[[], Any]]], rounds: int
) -> dict[str, list[float]]:
    """Times functions as `interleaved` does, each in a separate process.

    Args:
        makers: picklable functions by name; each returns, in its process, the function to time.
        rounds: number of measurements of each.
    """
    return interleaved_measurements(
        {name: functools.partial(_timed, make) for name, make in makers.items()}, rounds
    )


def interleaved_measurements(
    makers: Mapping[str, Callable[[], Callable[[], Any]]], rounds: int
) -> dict[str, list[Any]]:
    """Calls measuring functions in turn, each in a separate process.

    Args:
        makers: picklable functions by name; each returns, in its process, a measuring function,
            which is called once before the first round to warm up.
        rounds: number of measurements by each.

    Returns:
        The measurements of each round, by name.
    """

    def receive(name: str) -> Any:
        try:
            return connections[name].recv()
        except EOFError:
            sys.exit(f"The process of {name} failed, see above")

    context = multiprocessing.get_context("spawn")
    measured: dict[str, list[Any]] = {name: [] for name in makers}
    connections: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        for name, make in makers.items():
            connections[name], theirs = context.Pipe()
            process = context.Process(target=_serve, args=(make, theirs), daemon=True)
            process.start()
            theirs.close()
            stack.callback(process.join)
            stack.callback(connections[name].close)
            receive(name)
        for _ in range(rounds):
            for name, connection in connections.items():
                connection.send(None)
                measured[name].append(receive(name))
    return measured


def run_in_process(function: Callable[..., Any], *arguments: Any) -> None:
    """Calls a function in a separate process, whose memory is freed afterwards."""
    process = multiprocessing.get_context("spawn").Process(target=function, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        sys.exit(f"{function.__name__} failed, see above")


def _serve(make: Callable[[], Callable[[], Any]], connection: Any) -> None:
    measure = make()
    measure()
    connection.send(None)
    while True:
        try:
            connection.recv()
        except EOFError:
            return
        connection.send(measure())


def _timed(make: Callable[[], Callable[[], Any]]) -> Callable[[], float]:
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
    """Ends the benchmark with a message if a check of the results fails."""
    if not condition:
        sys.exit(message)


def ratio(slow: list[float], fast: list[float]) -> float:
    """Returns how many times faster `fast` is: the median of the rounds' ratios."""
    return statistics.median(a / b for a, b in zip(slow, fast, strict=True))


def use_one_core() -> None:
    """Binds this process, and the threads it starts afterwards, to one core."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    os.environ["RAYON_NUM_THREADS"] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


def processor() -> str:
    """Returns the name of the CPU and its widest instruction set for matrix products."""
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
    """Writes `results/<name>.json`: command, versions, processor, cores and results."""
    script, arguments = f"benchmarks/{Path(sys.argv[0]).name}", sys.argv[1:]
    contents = {
        # Folder names of this machine are removed.
        "command": " ".join(["python", script, *(re.sub("=.*/", "=", a) for a in arguments)]),
        "python": platform.python_version(),
        **{package: importlib.metadata.version(package) for package in packages},
        "cpu": processor(),
        "cores": len(os.sched_getaffinity(0)),
        **results,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(contents, indent=1) + "\n")
