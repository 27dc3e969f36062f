"""Waiting until all processes of a distributed run are there.

TensorFlow waits by itself, but deaf to Ctrl-C and SIGTERM and without a word about who is missing.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Sequence

from bert_tf.errors import UserError
from bert_tf.progress import log

_PAUSE = 0.3
_MESSAGE_EVERY = 30.0


def wait_for_workers(addresses: Sequence[str], worker: int) -> None:
    """Returns when every worker could be reached at its address.

    While it waits it can be reached itself; then the port is free for TensorFlow. Who is reached
    may be waiting here, too, or be in TensorFlow already.

    Args:
        addresses: `host:port` of all workers, checked before.
        worker: number of this one.

    Raises:
        UserError: this worker's port is taken.
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
                # A warning, so that workers speak too that only speak of trouble.
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
    """Accepts connections to a port, and closes them."""
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
