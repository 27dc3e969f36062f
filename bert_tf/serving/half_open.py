"""Connections whose client has sent all its requests, and still waits for the replies."""

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

# Seconds until the server finds out whether such a client still waits.
_INTERVAL = 2.0


class HalfOpenProtocol(H11Protocol):
    """Keeps a half-closed connection open until its complete requests have replies.

    A client that has left looks the same until the server writes something: meanwhile, it writes
    "100 Continue", which clients skip. The second time, this fails if the client has left.
    """

    _is_half_open = False

    def eof_received(self) -> bool:  # noqa: D102
        self._is_half_open = not (self.cycle is None or self._is_idle())
        if self._is_half_open and self.scope["http_version"] != "1.0":
            self.loop.call_later(_INTERVAL, self._probe)
        return self._is_half_open

    def on_response_complete(self) -> None:  # noqa: D102
        super().on_response_complete()
        if self._is_half_open and self._is_idle():
            self.transport.close()

    def _is_idle(self) -> bool:
        return self.cycle.response_complete or self.cycle.more_body

    def _probe(self) -> None:
        if self.conn.our_state is h11.SEND_RESPONSE and not self.transport.is_closing():
            event = h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")
            self.transport.write(self.conn.send(event) or b"")
            self.loop.call_later(_INTERVAL, self._probe)
