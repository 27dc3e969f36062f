"""Connections whose client has sent all its requests, and still waits for the replies."""

from uvicorn.protocols.http.h11_impl import H11Protocol

# Seconds until the server finds out whether such a client still waits.
_INTERVAL = 2.0


class HalfOpenProtocol(H11Protocol):
    """Keeps a half-closed connection open until its complete requests have replies.

    A client that has left looks the same until the server writes something: meanwhile, it writes
    "100 Continue", which clients skip. The second time, this fails if the client has left.
    """

    _is_half_open = False

    def eof_received(self) -> bool:
        """Returns whether to keep the connection open."""
        self._is_half_open = self.cycle is not None and not self._is_idle()
        if self._is_half_open and self.scope["http_version"] != "1.0":
            self.loop.call_later(_INTERVAL, self._probe)
        return self._is_half_open

    def on_response_complete(self) -> None:
        """Closes the connection after the last reply."""
        super().on_response_complete()
        if self._is_half_open and self._is_idle():
            self.transport.close()

    def _is_idle(self) -> bool:
        return self.cycle.response_complete or self.cycle.more_body

    def _probe(self) -> None:
        if not (self.cycle.response_started or self.transport.is_closing()):
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.loop.call_later(_INTERVAL, self._probe)
