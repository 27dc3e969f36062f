"""The processes of a distributed run: `TF_CONFIG`, and waiting until all of them are up.

TensorFlow waits by itself, but ignores Ctrl-C and SIGTERM meanwhile and does not say which worker
is missing.
"""

import contextlib
import dataclasses
import json
import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from bert_tf.errors import UserError
from bert_tf.progress import log

_PAUSE = 0.3
_MESSAGE_EVERY = 30.0


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The workers of a distributed run.

    Attributes:
        workers: addresses (`host:port`), the chief first.
        worker: index of this process.
    """

    workers: tuple[str, ...]
    worker: int


def read_cluster() -> Cluster | None:
    """Parses the environment variable `TF_CONFIG`; returns None if it is not set.

    Raises:
        UserError: its value is invalid.
    """
    text = os.environ.get("TF_CONFIG", "").strip()
    if not text:
        return None
    example = (
        '{"cluster": {"worker": ["host1:2222", "host2:2222"]}, '
        '"task": {"type": "worker", "index": 0}}'
    )
    try:
        config = json.loads(text)
        jobs = {name: _addresses(found) for name, found in config.get("cluster", {}).items()}
        task = config.get("task", {})
        if not task and sum(map(len, jobs.values())) < 2:
            task = {"type": next(iter(jobs), "worker"), "index": 0}
        kind, index = str(task["type"]), int(task["index"])
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(
            f"The environment variable TF_CONFIG cannot be read ({error!r}). It should look like "
            f"{example}. Received: {text}"
        ) from error
    if not jobs:
        return None
    others = sorted(set(jobs) - {"chief", "worker"})
    if others or kind not in jobs:
        raise UserError(
            f"TF_CONFIG may have the jobs chief and worker, and the task must be in one of them. "
            f"Received: jobs {', '.join(sorted(jobs))}, task {kind}. Example: {example}"
        )
    workers = (*jobs.get("chief", ()), *jobs.get("worker", ()))
    if not 0 <= index < len(jobs[kind]):
        raise UserError(
            f"TF_CONFIG: there is no {kind} {index}, the cluster has {len(jobs[kind])} of them"
        )
    return Cluster(workers, index + (len(jobs.get("chief", ())) if kind == "worker" else 0))


def _addresses(found: Any) -> list[str]:
    """Validates the addresses of a job.

    Raises:
        ValueError: they are not a list of distinct `host:port` strings.
    """
    if not isinstance(found, list) or len(set(map(str, found))) < len(found):
        raise ValueError(f"not a list of different addresses: {found}")
    for address in found:
        host, _, port = str(address).rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 2**16:
            raise ValueError(f"not host:port: {address}")
    return found


def wait_for_workers(addresses: Sequence[str], worker: int) -> None:
    """Waits until every worker can be reached at its address.

    Meanwhile this worker listens at its own; afterwards the port is free for TensorFlow.

    Args:
        addresses: `host:port` of all workers.
        worker: index of this process.

    Raises:
        UserError: this worker's port is in use.
    """
    places = [_place(address) for address in addresses]
    log.info("Worker %d of %d, at %s", worker, len(addresses), addresses[worker])
    missing = [index for index in range(len(addresses)) if index != worker]
    announced = time.monotonic() - _MESSAGE_EVERY + 3.0
    with _listening(places[worker][1], addresses[worker]):
        while missing:
            missing = [index for index in missing if not _answers(places[index])]
            if missing and time.monotonic() - announced > _MESSAGE_EVERY:
                announced = time.monotonic()
                absent = ", ".join(addresses[index] for index in missing)
                # A warning, because workers other than the chief log nothing below that.
                log.warning("Waiting for the workers at %s", absent)
            time.sleep(_PAUSE if missing else 0.0)


def _place(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _answers(place: tuple[str, int]) -> bool:
    try:
        with socket.create_connection(place, timeout=2.0):
            return True
    except OSError:
        return False


@contextlib.contextmanager
def _listening(port: int, address: str) -> Iterator[None]:
    """Accepts and closes connections to a port."""
    try:
        server = socket.create_server(("", port))
    except OSError as error:
        raise UserError(
            f"TF_CONFIG gives this worker the address {address}, but it cannot listen there: "
            f"{error.strerror}. Is another process, or an earlier run, using the port?"
        ) from error
    done = threading.Event()
    server.settimeout(_PAUSE)

    def accept() -> None:
        while not done.is_set():
            with contextlib.suppress(OSError):
                server.accept()[0].close()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        server.close()
