"""Limits the connections of a server: their number, and how long each may wait for its client."""

import contextlib
import time
from collections.abc import Iterable
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

# Seconds between the probes that find out whether a half-open client still waits for its reply.
_PROBE_INTERVAL = 2.0
# Number of connections that the event loop accepts at once. The connections that are closed to make
# room for them free their files only some iterations of the loop later.
BACKLOG = 16
_Protocol: Any = AutoHTTPProtocol  # with h11 or httptools


class Connection(_Protocol):
    """A connection of uvicorn. Beyond `limit`, the one that has waited the longest is closed.

    The connection stays open if the client closes only its side after a request (half-open). A
    client that has left looks the same until the server writes to it. Therefore, the server writes
    "100 Continue", which clients skip, until the reply begins. If the client has left, the second
    write fails.
    """

    _is_half_open = False

    def __init__(self, limit: int, **settings: Any) -> None:
        super().__init__(**settings)
        self._limit, self.since = limit, time.monotonic()

    @property
    def is_receiving(self) -> bool:
        """Whether the connection waits for a request, or for the rest of one."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def connection_made(self, transport: Any) -> None:  # noqa: D102
        super().connection_made(transport)
        if len(self.connections) > self._limit:
            slow = [x for x in self.connections if x.is_receiving and not x.transport.is_closing()]
            min(slow, key=lambda x: x.since).transport.abort()

    def eof_received(self) -> bool:  # noqa: D102
        self._is_half_open = not self.is_receiving
        if self._is_half_open and self.scope["http_version"] != "1.0":
            self.loop.call_later(_PROBE_INTERVAL, self._probe)
        return self._is_half_open

    def on_response_complete(self) -> None:  # noqa: D102
        self.since = time.monotonic()
        super().on_response_complete()
        if self._is_half_open and self.is_receiving:
            self.transport.close()

    def _probe(self) -> None:
        if not (self.cycle.response_started or self.transport.is_closing()):
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.loop.call_later(_PROBE_INTERVAL, self._probe)


def close_slow(connections: Iterable[Any], seconds: float) -> None:
    """Closes connections that have waited for their client, or to close, for over `seconds`."""
    end = time.monotonic() - seconds
    for connection in [x for x in connections if x.since < end]:
        if connection.is_receiving or connection.transport.is_closing():
            connection.transport.abort()


def limit_by_files(limit: int) -> int:
    """Raises the limit of open files as far as allowed; returns how many connections fit."""
    try:
        import resource
    except ImportError:  # Windows
        return limit
    with contextlib.suppress(ValueError, OSError):  # macOS allows less than the hard limit
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]  # -1: any number
    return min(limit, max(files - 6 * BACKLOG, files // 2)) if files > 0 else limit
