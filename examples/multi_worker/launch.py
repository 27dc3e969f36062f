"""Launches a training command as N worker processes on this machine.

usage: python examples/multi_worker/launch.py --workers=2 python run_classifier.py --do_train ...

Each process gets a TF_CONFIG with the addresses of all workers and its own index, as each host of
a real cluster does (docs/distributed.md). Output lines are prefixed with the worker's index. If a
worker fails, the others have a grace period to exit before they are killed. The exit code is that
of the first worker that failed. After exit code 75 (a worker was lost), the same command resumes
from the last checkpoint; --restarts repeats it automatically.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

# TensorFlow sends a heartbeat every 30 seconds, and retries before it reports a worker as lost.
GRACE_PERIOD = 120.0  # seconds
WORKER_LOST = 75


def main() -> int:
    """Parses the command line and runs the workers; returns the exit code."""
    parser = argparse.ArgumentParser(description="Run a command as several workers.")
    parser.add_argument("--workers", type=int, default=2, help="number of processes (default 2)")
    parser.add_argument("--restarts", type=int, default=0, help="restarts if a worker is lost")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="command that each worker runs")
    arguments = parser.parse_args()
    if arguments.workers < 1 or not arguments.command:
        parser.error("a command and at least one worker are required")
    if shutil.which(arguments.command[0]) is None:
        parser.error(f"command not found: {arguments.command[0]}")
    for _ in range(arguments.restarts):
        code = run(arguments.workers, arguments.command)
        if code != WORKER_LOST:
            return code
        print("A worker was lost; restarting all workers.", flush=True)
    return run(arguments.workers, arguments.command)


def run(workers: int, command: list[str]) -> int:
    """Runs the command as N workers; returns the exit code of the first that failed."""
    addresses = [f"127.0.0.1:{port}" for port in find_free_ports(workers)]
    processes = [start(index, addresses, command) for index in range(workers)]
    readers = [
        threading.Thread(target=print_output, args=(index, process), daemon=True)
        for index, process in enumerate(processes)
    ]
    for reader in readers:
        reader.start()
    received: list[int] = []

    def forward_signal(number: int, _: object) -> None:
        received.append(number)
        for process in processes:
            process.send_signal(number)

    signal.signal(signal.SIGTERM, forward_signal)
    # Shell scripts start background programs (`&`) with SIGINT ignored; keep that.
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, forward_signal)
    code = wait(processes)
    for reader in readers:
        reader.join()
    # A job that was stopped by a signal is not restarted.
    return 128 + received[0] if received and code else code


def start(index: int, addresses: list[str], command: list[str]) -> subprocess.Popen:
    """Starts one worker."""
    task = {"type": "worker", "index": index}
    environment = {
        **os.environ,
        "TF_CONFIG": json.dumps({"cluster": {"worker": addresses}, "task": task}),
    }
    process = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        # Only this process receives Ctrl-C, and forwards it once.
        start_new_session=True,
    )
    print(f"worker {index}: process {process.pid}, {addresses[index]}", flush=True)
    return process


def print_output(index: int, process: subprocess.Popen) -> None:
    """Prints the output of a worker, each line prefixed with its index."""
    for line in process.stdout or ():
        print(f"[{index}] {line.rstrip()}", flush=True)


def wait(processes: list[subprocess.Popen]) -> int:
    """Waits for all workers, for at most `GRACE_PERIOD` after the first failure.

    Returns:
        The exit code of the first worker that failed, 0 if none failed.
    """
    failed, deadline = 0, float("inf")
    while True:
        codes = [process.poll() for process in processes]
        failures = [code for code in codes if code]
        if failures and not failed:
            # A worker killed by a signal has no exit code: it counts as lost.
            failed = failures[0] if failures[0] > 0 else WORKER_LOST
            deadline = time.monotonic() + GRACE_PERIOD
        if None not in codes:
            return failed
        if time.monotonic() > deadline:
            for process in processes:
                process.kill()
        time.sleep(0.2)


def find_free_ports(count: int) -> list[int]:
    """Returns ports that are not in use at the moment."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for free_socket in sockets:
            free_socket.bind(("127.0.0.1", 0))
        return [free_socket.getsockname()[1] for free_socket in sockets]


if __name__ == "__main__":
    sys.exit(main())
