"""Starts a training as N processes on this machine, which work together as N hosts would.

usage: python examples/multi_worker/launch.py --workers=2 python run_classifier.py --do_train ...

Each process gets a TF_CONFIG that names all of them and says which of them it is; that is all that
real hosts need, too (docs/distributed.md). What they print is marked with their number. When one
ends with an error, the others are given time to notice, then they are ended. The exit code is that
of the first that failed; on 75 (a worker was lost) the same command goes on from the last
checkpoint, and --restarts does so by itself.
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

# TensorFlow asks every 30 seconds whether the others are alive, and asks again before it gives up.
PATIENCE = 120.0
LOST = 75


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Run a command as several workers.")
    parser.add_argument("--workers", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--restarts", type=int, default=0, help="tries after a lost worker")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="what each worker runs")
    arguments = parser.parse_args()
    if arguments.workers < 1 or not arguments.command:
        parser.error("there must be a command, and at least one worker to run it")
    if shutil.which(arguments.command[0]) is None:
        parser.error(f"there is no command {arguments.command[0]}")
    for _ in range(arguments.restarts):
        code = run(arguments.workers, arguments.command)
        if code != LOST:
            return code
        print("A worker was lost; starting all of them again.", flush=True)
    return run(arguments.workers, arguments.command)


def run(workers: int, command: list[str]) -> int:
    """Runs the command as so many workers; gives the exit code of the first that failed."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(workers)]
    processes = [start(index, addresses, command) for index in range(workers)]
    readers = [
        threading.Thread(target=show, args=(index, process), daemon=True)
        for index, process in enumerate(processes)
    ]
    for reader in readers:
        reader.start()
    told: list[int] = []

    def hand_on(number: int, _: object) -> None:
        told.append(number)
        for process in processes:
            process.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, hand_on)
    code = wait(processes)
    for reader in readers:
        reader.join()
    # Who was told to end is not started again.
    return 128 + told[0] if told and code else code


def start(index: int, addresses: list[str], command: list[str]) -> subprocess.Popen:
    """One worker."""
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
        # Ctrl-C goes to this process alone, which hands it on once.
        start_new_session=True,
    )
    print(f"worker {index}: process {process.pid}, {addresses[index]}", flush=True)
    return process


def show(index: int, process: subprocess.Popen) -> None:
    """Prints what a worker prints."""
    for line in process.stdout or ():
        print(f"[{index}] {line.rstrip()}", flush=True)


def wait(processes: list[subprocess.Popen]) -> int:
    """Waits for all; after the first failure only for a while.

    Returns:
        The exit code of the first that failed, 0 when none did.
    """
    failed, deadline = 0, float("inf")
    while True:
        codes = [process.poll() for process in processes]
        failures = [code for code in codes if code]
        if failures and not failed:
            # A worker that was killed has no code of its own: to the others, it is lost.
            failed = failures[0] if failures[0] > 0 else LOST
            deadline = time.monotonic() + PATIENCE
        if None not in codes:
            return failed
        if time.monotonic() > deadline:
            for process in processes:
                process.kill()
        time.sleep(0.2)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on at this moment."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


if __name__ == "__main__":
    sys.exit(main())
