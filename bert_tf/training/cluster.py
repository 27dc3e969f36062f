"""Parses `TF_CONFIG` and waits until all workers of a distributed run are up.

TensorFlow also waits for them, but meanwhile it ignores Ctrl-C and SIGTERM, and it does not log
which worker is missing.
"""

import json
import os
import socket
import time
from collections.abc import Sequence
from typing import Any

from bert_tf.base.errors import UserError, note, warn

_POLL_SECONDS = 0.3
_LOG_SECONDS = 30.0
_EXAMPLE = (
    '{"cluster": {"worker": ["host1:2222", "host2:2222"]}, "task": {"type": "worker", "index": 0}}'
)


def read_cluster() -> tuple[list[str], int]:
    """Parses the environment variable `TF_CONFIG`.

    Returns the addresses (`host:port`) of all workers, chief first, and the index of this worker;
    ([], 0) without a cluster.
    """
    text = os.environ.get("TF_CONFIG", "").strip()
    if not text:
        return [], 0
    try:
        config = json.loads(text)
        jobs = {job: _check_addresses(hosts) for job, hosts in config.get("cluster", {}).items()}
        task = config.get("task", {})
        if not task and sum(map(len, jobs.values())) < 2:
            task = {"type": next(iter(jobs), "worker"), "index": 0}  # the only one there is
        job, index = str(task["type"]), int(task["index"])
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(
            f"The environment variable TF_CONFIG cannot be parsed ({error!r})",
            fix=f"It should look like {_EXAMPLE}. Received: {text}",
        ) from error
    if not jobs:
        return [], 0
    if not jobs.keys() <= {"chief", "worker"} or job not in jobs:
        raise UserError(
            "TF_CONFIG: the cluster may only have the jobs chief and worker, and "
            f"must include the task's type, {job}",
            fix=f"Found: {', '.join(sorted(jobs))}",
        )
    chief = jobs.get("chief", [])
    if not 0 <= index < (count := len(jobs[job])):
        message = f"TF_CONFIG: the index of a {job} task must be in [0, {count}); got {index}"
        raise UserError(message)
    worker = len(chief) + index if job == "worker" else index
    return [*chief, *jobs.get("worker", [])], worker


def _check_addresses(addresses: Any) -> list[str]:
    if not isinstance(addresses, list) or len(set(map(str, addresses))) < len(addresses):
        raise ValueError(f"not a list of unique addresses: {addresses}")
    for address in addresses:
        host, port = _host_and_port(str(address))
        if not host or not 0 < port < 2**16:
            raise ValueError(f"not host:port: {address}")
    return addresses


def wait_for_workers(addresses: Sequence[str], worker: int) -> None:
    """Waits until every worker accepts connections at its address (`host:port`).

    Meanwhile this worker, whose index is `worker`, listens at its own address; afterwards it frees
    the port for TensorFlow. Raises a UserError if this port is in use.
    """
    address = addresses[worker]
    note(f"Worker {worker} of {len(addresses)}, at {address}")
    try:
        # The operating system accepts connections up to the backlog; no accept() is needed.
        server = socket.create_server(("", _host_and_port(address)[1]), backlog=len(addresses))
    except OSError as error:
        message = f"Cannot listen at {address}, this worker's address in TF_CONFIG"
        raise UserError(f"{message}: {error.strerror}", fix="Is the port in use?") from error
    missing = [other for other in addresses if other != address]
    last_logged = time.monotonic() - _LOG_SECONDS + 3.0  # logs for the first time after 3 s
    with server:
        while missing := [other for other in missing if not _accepts_connections(other)]:
            if time.monotonic() - last_logged > _LOG_SECONDS:
                last_logged = time.monotonic()
                # A warning, because workers other than the chief do not log below that level.
                warn(f"Waiting for the workers at {', '.join(missing)}, which TF_CONFIG lists")
            time.sleep(_POLL_SECONDS)


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _accepts_connections(address: str) -> bool:
    try:
        with socket.create_connection(_host_and_port(address), timeout=2.0):
            return True
    except OSError:
        return False
