"""The processes of a distributed run: `TF_CONFIG`, and waiting until all of them are up.

TensorFlow waits by itself, but ignores Ctrl-C and SIGTERM meanwhile and does not say which worker
is missing.
"""

import dataclasses
import json
import os
import socket
import time
from collections.abc import Sequence
from typing import Any

from bert_tf.errors import UserError
from bert_tf.progress import log

_PAUSE = 0.3
_MESSAGE_EVERY = 30.0
_EXAMPLE = (
    '{"cluster": {"worker": ["host1:2222", "host2:2222"]}, "task": {"type": "worker", "index": 0}}'
)


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The addresses (`host:port`) of all workers, the chief first, and the index of this one."""

    workers: tuple[str, ...]
    worker: int


def read_cluster() -> Cluster | None:
    """Parses the environment variable `TF_CONFIG`; returns None if it is not set."""
    text = os.environ.get("TF_CONFIG", "").strip()
    if not text:
        return None
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
            f"{_EXAMPLE}. Received: {text}"
        ) from error
    if not jobs:
        return None
    if not jobs.keys() <= {"chief", "worker"} or kind not in jobs:
        raise UserError(
            f"TF_CONFIG must have the jobs chief or worker, and that of the task, {kind}. It has: "
            f"{', '.join(sorted(jobs))}"
        )
    workers = (*jobs.get("chief", ()), *jobs.get("worker", ()))
    if not 0 <= index < len(jobs[kind]):
        raise UserError(f"TF_CONFIG: there is no {kind} {index}, the cluster has {len(jobs[kind])}")
    return Cluster(workers, index + (len(jobs.get("chief", ())) if kind == "worker" else 0))


def _addresses(found: Any) -> list[str]:
    if not isinstance(found, list) or len(set(map(str, found))) < len(found):
        raise ValueError(f"not a list of different addresses: {found}")
    for address in found:
        host, port = _host_and_port(str(address))
        if not host or not 0 < port < 2**16:
            raise ValueError(f"not host:port: {address}")
    return found


def wait_for_workers(addresses: Sequence[str], worker: int) -> None:
    """Waits until every worker can be reached at its address (`host:port`).

    Meanwhile this worker, of index `worker`, listens at its own; then the port is free for
    TensorFlow.
    """
    address = addresses[worker]
    log.info("Worker %d of %d, at %s", worker, len(addresses), address)
    try:
        # The system itself accepts as many connections.
        server = socket.create_server(("", _host_and_port(address)[1]), backlog=len(addresses))
    except OSError as error:
        explained = f"The address {address} of TF_CONFIG: it cannot listen there"
        raise UserError(f"{explained}: {error.strerror}. Is the port in use?") from error
    missing = [other for other in addresses if other != address]
    announced = time.monotonic() - _MESSAGE_EVERY + 3.0
    with server:
        while missing := [other for other in missing if not _answers(other)]:
            if time.monotonic() - announced > _MESSAGE_EVERY:
                announced = time.monotonic()
                # A warning, because workers other than the chief log nothing below that.
                log.warning("Waiting for the workers at %s", ", ".join(missing))
            time.sleep(_PAUSE)


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _answers(address: str) -> bool:
    try:
        with socket.create_connection(_host_and_port(address), timeout=2.0):
            return True
    except OSError:
        return False
