"""Measures training and inference on a GPU, with bert_tf and, for comparison, other libraries.

usage: python benchmarks/gpu.py --short | --rows=PATTERNS [--list] [--seconds=N] [--output=FILE]
           [--together=N] [--limit=N] [--cache=FOLDER] [--python=PATH] [--peer_python=PATH]
           [--peer_env=VARIABLES]
       python benchmarks/gpu.py --summary=FILE

The other libraries are Hugging Face's transformers on PyTorch, both eager (`torch`: SDPA, fused
AdamW) and compiled (`torch-compile`), and KerasHub. Weights and inputs are random, and nothing is
downloaded. --list prints all jobs, as row/contestant; `Row` in gpu_rows.py explains the names of
rows. --short measures the ratios that have bars. Other examples:

    python benchmarks/gpu.py --rows='train-large-*,infer-large-*/bert_tf'
    python benchmarks/gpu.py --rows='losses-*,first-*,recompute-*'

Each job runs in a process of its own. Its result is appended at once to --output, as a line of
JSON; --summary prints the table of ratios of such a file. When --seconds have passed, no further
job starts. The processes of --together jobs prepare at the same time, which includes compiling, but
only one process at a time measures. So "first step s" is only meaningful with --together=1. --short
sets --together=13, to end within 8 minutes, which takes about 16 cores and 70 GB of GPU memory, and
lets all jobs store the programs that XLA compiles in a new folder. XLA and torch.compile choose
kernels by timing them, here while other jobs do the same: measure a ratio that is close to its bar
again with --together=1. --cache names such a folder; by
default, programs are not stored. The rows `first` measure the first step with an empty folder, and
then again in a second process.

The interpreter of --python needs TensorFlow, and KerasHub for its rows; that of --peer_python needs
torch and transformers. For the latter, --peer_env=A,B=1 removes the variable A and sets B.
--size=tiny replaces the models and shrinks the batches, to try the program without a GPU.
"""

import argparse
import contextlib
import datetime
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import gpu_rows, timing
from benchmarks.gpu_job import RESULT
from benchmarks.gpu_rows import TORCH, Job, Row

JOB_SCRIPT = Path(__file__).resolve().with_name("gpu_job.py")
SHORT_SECONDS, SHORT_TOGETHER = 450.0, 13
# Jobs that have started may exceed --seconds by this.
GRACE_SECONDS = 20.0
# Time to reserve for the measurement of a job that is ready.
MEASURE_SECONDS = 6.0

# Part of a device's name -> precision -> peak of dense matrix products in TFLOP/s.
_HOPPER = {"bfloat16": 989, "float16": 989, "tf32": 494, "float32": 67}
PEAKS: Mapping[str, Mapping[str, float]] = {
    "H100 80GB HBM3": _HOPPER,
    "H200": _HOPPER,
    "A100": {"bfloat16": 312, "float16": 312, "tf32": 156, "float32": 19.5},
}

Result = dict[str, Any]
LATE: Result = {"error": "over the time limit"}


class JobProcess:
    """A process of gpu_job.py, which prepares its job and then waits for `measure`."""

    def __init__(self, job: Job, folder: Path, cache: str, args: argparse.Namespace) -> None:
        folder.mkdir()
        self._folder, self._start = folder, time.monotonic()
        command = [args.peer_python if job.contestant in TORCH else args.python, str(JOB_SCRIPT)]
        command += [*job, str(folder), f"--seconds={args.window_seconds}"]
        command += [f"--size={args.size}"] if args.size else []
        with open(folder / "log", "wb") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                env=make_environment(job, cache, args.peer_env),
                start_new_session=True,
            )

    @property
    def is_preparing(self) -> bool:
        """Whether the job is not ready yet, but has not failed either."""
        return self._process.poll() is None and not (self._folder / "ready").exists()

    def measure(self, limit: float) -> Result:
        """Returns the result of a job that is ready or has failed; ends it after `limit` s."""
        result: Result = LATE
        (self._folder / "go").touch()
        with contextlib.suppress(subprocess.TimeoutExpired):
            code, path = self._process.wait(max(0, limit)), self._folder / RESULT
            log = (self._folder / "log").read_text(errors="replace").strip()
            result = {"error": f"exit code {code}: {log[-1000:]}"}
            result = json.loads(path.read_text()) if path.exists() else result
        self.stop()
        return {**result, "seconds": round(time.monotonic() - self._start, 1)}

    def stop(self) -> None:
        """Ends the process and the processes that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def make_environment(job: Job, cache: str, peer_env: str) -> dict[str, str]:
    """Returns the environment variables of a job."""
    # By default, bert_tf would use all GPUs, and the first TensorFlow process, which may only write
    # a model, all of the memory.
    defaults = {"CUDA_VISIBLE_DEVICES": "0", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    environment = {**defaults, **os.environ, gpu_rows.CACHE_VARIABLE: cache}
    variables = gpu_rows.VARIABLES.get(Row.parse(job.row).kind, {}).get(job.contestant, {})
    for name, value in variables.items():
        # Flags are added to the user's.
        before = os.environ.get(name, "") + " " if name == "XLA_FLAGS" else ""
        environment[name] = before + value.format(cache=cache)
    for assignment in filter(None, peer_env.split(",") if job.contestant in TORCH else ()):
        name, is_set, value = assignment.partition("=")
        environment.pop(name, None)
        environment |= {name: value} if is_set else {}
    return environment


def run_together(
    jobs: Sequence[Job], cache: str, args: argparse.Namespace, deadline: float
) -> Iterator[tuple[Job, Result]]:
    """Starts jobs at the same time, and measures them in turn; yields each result at once.

    Both the preparation and each measurement are limited to `args.limit` seconds, and end in time
    for `deadline`.
    """
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        processes = []
        for index, job in enumerate(jobs):
            processes.append(JobProcess(job, Path(folder) / str(index), cache, args))
            stack.callback(processes[-1].stop)
        end = min(time.monotonic() + args.limit, deadline - len(jobs) * MEASURE_SECONDS)
        while time.monotonic() < end and any(process.is_preparing for process in processes):
            time.sleep(0.05)
        late = [process for process in processes if process.is_preparing]
        for process in late:
            process.stop()
        for job, process in zip(jobs, processes, strict=True):
            limit = min(args.limit, deadline - time.monotonic())
            result = LATE if process in late else process.measure(limit)
            yield job, {**result, "together": len(jobs)} if len(jobs) > 1 else result


def measure_first_step(job: Job, args: argparse.Namespace, deadline: float) -> Result:
    """Measures the first step in two processes, which share an initially empty cache."""
    with tempfile.TemporaryDirectory() as cache:
        [(_, result)] = run_together([job], cache, args, deadline)
        if "error" in result:
            return result
        [(_, second)] = run_together([job], cache, args, deadline)
    if "error" in second:
        return second
    return {**result, "in a second process s": second["first step s"]}


def make_batches(jobs: Sequence[Job], together: int) -> list[list[Job]]:
    """Returns the lists of jobs that start at the same time."""
    batches: list[list[Job]] = []
    for kind_is_first, group in itertools.groupby(jobs, lambda job: job.row.startswith("first-")):
        members, size = list(group), 1 if kind_is_first else together
        batches += [members[start : start + size] for start in range(0, len(members), size)]
    return batches


def run_jobs(jobs: Sequence[Job], args: argparse.Namespace) -> Iterator[tuple[Job, Result]]:
    """Yields the results of all jobs; after `args.seconds`, prints those that are left."""
    end = time.monotonic() + args.seconds
    deadline = end + GRACE_SECONDS
    batches = make_batches(jobs, args.together)
    for index, batch in enumerate(batches):
        if time.monotonic() > end:
            names = ["/".join(job) for rest in batches[index:] for job in rest]
            print("Out of time, not started:", ", ".join(names), flush=True)
            return
        if batch[0].row.startswith("first-"):
            yield batch[0], measure_first_step(batch[0], args, deadline)
        else:
            yield from run_together(batch, args.cache, args, deadline)


def describe_machine(args: argparse.Namespace) -> dict[str, Any]:
    """Returns the names of the device and the driver, and the versions of both environments."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        output = subprocess.run(query, capture_output=True, text=True, check=True).stdout
        device, driver, memory = output.splitlines()[0].split(", ")
    except (OSError, subprocess.CalledProcessError):
        device, driver, memory = timing.processor_name(), "", ""
    versions = {}
    for name, python, contestant in (("", args.python, ""), ("peer ", args.peer_python, TORCH[0])):
        environment = make_environment(Job("train-base-1x8-tf32", contestant), "", args.peer_env)
        process = subprocess.run(
            [python, JOB_SCRIPT, "--versions"], env=environment, capture_output=True, text=True
        )
        lines = process.stdout.splitlines()
        versions[f"{name}versions"] = json.loads(lines[-1]) if lines else process.stderr[-300:]
    return {
        "machine": device,
        "driver": driver,
        "memory": memory,
        "cores": os.cpu_count(),
        "date": datetime.datetime.now().isoformat(timespec="minutes"),
        **versions,
    }


def read_results(path: Path) -> dict[Job, Result]:
    """Returns the last result of each job, or its error, on the machine that was used last."""
    results: dict[Job, Result] = {}
    machine = None
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        if "machine" in entry:
            if entry["machine"] != machine:
                results.clear()
            machine = entry["machine"]
            continue
        job = Job(entry["row"], entry["contestant"])
        if job not in results or "error" not in entry:
            results[job] = entry
    return results


def measure(jobs: Sequence[Job], args: argparse.Namespace) -> None:
    """Runs jobs; prints and appends the results."""
    args.output.parent.mkdir(parents=True, exist_ok=True)
    with open(args.output, "a") as file:

        def write(entry: Mapping[str, Any]) -> None:
            line = json.dumps(entry)
            print(line, flush=True)
            print(line, file=file, flush=True)

        machine = describe_machine(args)
        write(machine)
        peaks = next((PEAKS[name] for name in PEAKS if name in machine["machine"]), {})
        for job, result in run_jobs(jobs, args):
            peak = peaks.get(Row.parse(job.row).precision)
            if peak and "TFLOP/s" in result:
                result["% of peak"] = round(100 * result["TFLOP/s"] / peak, 1)
            write({**job._asdict(), **({"size": args.size} if args.size else {}), **result})


def main() -> None:
    """Measures the selected jobs, and prints the summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--rows", help="glob patterns of row/contestant, separated by commas")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--summary", type=Path)
    parser.add_argument("--output", type=Path, default=timing.RESULTS / "gpu.jsonl")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--limit", type=float, default=300.0, help="seconds of a job")
    parser.add_argument("--window_seconds", type=float, default=4.0, help="seconds to measure")
    parser.add_argument("--together", type=int)
    parser.add_argument("--cache", help="'' for none")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--peer_python", default=sys.executable)
    parser.add_argument("--peer_env", default="")
    parser.add_argument("--size", choices=gpu_rows.SIZES)
    args = parser.parse_args()
    if args.summary:
        print(gpu_rows.summary(read_results(args.summary)))
        return
    jobs = gpu_rows.short_jobs() if args.short else gpu_rows.all_jobs()
    if args.rows:
        patterns = ",".join(p if "/" in p else f"{p}/*" for p in args.rows.split(","))
        jobs = gpu_rows.select(jobs, patterns)
    if args.list:
        print("\n".join("/".join(job) for job in jobs))
        return
    if not jobs or not (args.short or args.rows):
        parser.error("pass --short, or --rows with patterns that match lines of --list")
    for python in (args.python, args.peer_python):
        if not shutil.which(python):
            parser.error(f"no such interpreter: {python}")
    args.seconds = args.seconds or (SHORT_SECONDS if args.short else float("inf"))
    args.together = args.together or (SHORT_TOGETHER if args.short else 1)
    with tempfile.TemporaryDirectory() as new_cache:
        if args.cache is None:
            args.cache = new_cache if args.short else ""
        measure(jobs, args)
    print(gpu_rows.summary(read_results(args.output)))


if __name__ == "__main__":
    main()
