"""Handles requests before and after their routes: limits, keys, log and metrics."""

import asyncio
import contextlib
import hmac
import json
import re
import socket
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from fastapi import HTTPException
from fastapi.responses import JSONResponse

from bert_tf.base.progress import log
from bert_tf.serving.metrics import Metrics
from bert_tf.serving.options import ServingOptions

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

FAILED = "The request failed: the server's log says why"
# Routes that need no key: they return no data, or a load balancer polls them.
_OPEN = ("/", "/docs", "/openapi.json", "/health")
# The status in the log if the client has left, as in nginx.
_CLIENT_LEFT = 499
# A body over the limit is read up to this multiple of the limit; then the connection is closed. The
# bodies of all requests in progress may add up to this multiple of 2 MB, or of a greater limit.
_MAX_BODIES = 16
# Maximum number of JSON values in a body, per input of `--max_inputs`: parsing takes time for each.
_VALUES_PER_INPUT = 8
_MIN_VALUES = 16_384  # always allowed: a few sentences may have as many words
_SHORT_BODY = 4096  # parsed without waiting for a turn
_BROWSER_HEADERS = (b"host", b"origin", b"sec-fetch-site", b"sec-fetch-mode")
_RETRY, _CLOSE = {"retry-after": "1"}, {"connection": "close"}


def error_body(path: str, message: str) -> dict[str, Any]:
    """Returns the body of an error: in OpenAI's layout for its routes, else `{"error": "..."}`."""
    if path.startswith("/v1/") and not path.startswith("/v1/models/"):
        fields = {"type": "invalid_request_error", "param": None, "code": None}
        return {"error": {"message": message, **fields}}
    return {"error": message}


class _ClientLeft(Exception):
    pass


class Gate:
    """Wraps an ASGI application: refuses requests over the limits, and logs each on one line.

    The application receives each body in one piece, with the content type JSON, which `curl -d`
    does not set. It awaits `scope["turn"]()` before each costly step, and stores what should be
    logged in `scope["record"]`. It is cancelled at the timeout, or when the client leaves.
    """

    def __init__(
        self,
        app: App,
        options: ServingOptions,
        keys: Sequence[bytes],
        metrics: Metrics,
        address: str = "0.0.0.0",
    ) -> None:
        self._app, self._options, self._metrics = app, options, metrics
        self._keys, self._num_requests, self._num_bytes = keys, 0, 0
        self._check_browser, self._turns = BrowserCheck(options, address), asyncio.Lock()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Handles a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.perf_counter(), 0
        scope["record"], refusal = {}, None

        async def note_status(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self._handle(scope, receive, note_status)
        except HTTPException as error:
            refusal = error
        except _ClientLeft:
            status = status or _CLIENT_LEFT
        except TimeoutError:
            problem = f"The request took longer than {self._options.timeout:g} seconds"
            refusal = HTTPException(503, problem, _RETRY)
        except Exception as error:  # do not log its message, which may quote the request
            where = "".join(traceback.format_tb(error.__traceback__))
            log.error("%s failed: %s\n%s", scope["path"], type(error).__name__, where)
            refusal = HTTPException(500, FAILED)
        finally:
            if refusal and not status:
                body = error_body(scope["path"], refusal.detail)
                reply = JSONResponse(body, refusal.status_code, refusal.headers)
                with contextlib.suppress(OSError):
                    await reply(scope, receive, note_status)
            self._note(scope, status, time.perf_counter() - start)

    async def _handle(self, scope: Message, receive: Receive, send: Send) -> None:
        limit, headers = self._options.max_concurrent, dict(scope["headers"])
        self._check_browser(scope["method"], scope["path"], headers)
        if self._keys and scope["path"] not in _OPEN:
            kind, _, key = headers.get(b"authorization", b"").partition(b" ")
            is_known = any(hmac.compare_digest(key.strip(), known) for known in self._keys)
            if kind.lower() != b"bearer" or not is_known:
                advice = "A key is needed: send the header `Authorization: Bearer KEY`"
                raise HTTPException(401, advice, {"www-authenticate": "Bearer"})
        if scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        body, has_body = bytearray(), False
        try:
            async with asyncio.timeout(self._options.timeout):
                await self._read(receive, headers, body)
                if self._num_requests >= limit:
                    problem = f"--max_concurrent={limit} is reached: retry later"
                    raise HTTPException(429, problem, _RETRY)
                has_body = True
                self._num_requests += 1
                encoding = headers.get(b"content-encoding", b"identity").decode("latin-1")
                if encoding.lower() != "identity":
                    raise HTTPException(415, f"Unsupported Content-Encoding: {encoding[:20]!r}")
                others = [x for x in scope["headers"] if x[0] != b"content-type"]
                scope["headers"] = [*others, (b"content-type", b"application/json")]
                scope["turn"] = self._wait_for_turn
                if len(body) > _SHORT_BODY:
                    await self._wait_for_turn()
                    self._check_values(body)
                await self._run(scope, bytes(body), receive, send)
        finally:
            self._num_requests -= has_body
            self._num_bytes -= len(body)

    async def _read(self, receive: Receive, headers: dict[bytes, bytes], body: bytearray) -> None:
        """Reads the complete body, with or without a Content-Length."""
        limit, num_bytes = self._options.max_body_bytes, 0
        length = headers.get(b"content-length", b"")
        is_refused = length.isdigit() and int(length) > limit and b"expect" in headers
        # Many clients read the reply only after they have sent everything.
        while not is_refused and num_bytes <= _MAX_BODIES * limit:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _ClientLeft
            num_bytes += len(part := message.get("body", b""))
            if num_bytes <= limit:
                body += part
                self._num_bytes += len(part)
            if self._num_bytes > _MAX_BODIES * max(limit, 2_000_000):
                problem = "The bodies of all requests in progress are too long: retry later"
                raise HTTPException(429, problem, _RETRY | _CLOSE)
            if not message.get("more_body"):
                break
        if is_refused or num_bytes > limit:
            problem = f"The body has more than --max_body_bytes={limit} bytes"
            raise HTTPException(413, problem, _CLOSE)

    async def _wait_for_turn(self) -> None:
        """Delays a costly step, so that the event loop serves other requests between two steps."""
        async with self._turns:
            for _ in range(5):  # enough to accept, read and answer a request for /health
                await asyncio.sleep(0)

    def _check_values(self, body: bytearray) -> None:
        """Refuses a body with too many JSON values, which would take long to parse."""
        chars = np.frombuffer(body.replace(b"\\\\", b"").replace(b'\\"', b""), np.uint8)
        is_text = np.logical_xor.accumulate(chars == ord('"'))
        # Each value but the first follows one of these characters.
        num_values = sum(np.count_nonzero((chars == x) & ~is_text) for x in b",[{")
        if num_values > max(_VALUES_PER_INPUT * (limit := self._options.max_inputs), _MIN_VALUES):
            problem = f"The body has {num_values:,} values, too many for --max_inputs={limit}"
            raise HTTPException(413, problem)

    async def _run(self, scope: Message, body: bytes, receive: Receive, send: Send) -> None:
        """Runs the application until it has replied, or the client has left."""
        bodies = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def replay() -> Message:
            return next(bodies, None) or await receive()

        async def wait_for_client() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        reply = asyncio.ensure_future(self._app(scope, replay, send))
        client = asyncio.ensure_future(wait_for_client())
        try:
            await asyncio.wait({reply, client}, return_when=asyncio.FIRST_COMPLETED)
            if not reply.done():
                raise _ClientLeft
            await reply
        finally:
            for task in (reply, client):
                task.cancel()
            await asyncio.gather(reply, client, return_exceptions=True)

    def _note(self, scope: Message, status: int, seconds: float) -> None:
        # Use the template of the route as the label, because labels should have few values.
        route = getattr(scope.get("route"), "path", "other")
        self._metrics.requests.labels(route, status).inc()
        self._metrics.seconds.labels(route).observe(seconds)
        if route != "/health":  # asked too often for the log
            record = {"time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "ms": round(seconds * 1000, 1)}
            record |= {"method": scope["method"], "path": scope["path"], "status": status}
            client = (scope.get("client") or [""])[0]
            log.info(json.dumps({**record, **scope["record"], "client": client}))


class BrowserCheck:
    """Refuses requests that browsers send for pages of other sites.

    Without CORS headers, such a page cannot read replies, but its simple requests arrive. It can
    read replies if its own host name resolves to this machine (DNS rebinding). Only the header
    `Host` reveals this.
    """

    def __init__(self, options: ServingOptions, address: str) -> None:
        self._allowed = (options.allowed_hosts or "").lower().split(",")
        self._own = [socket.gethostname().lower(), options.host.lower(), "localhost", "*.localhost"]
        self._checks_host = bool(options.allowed_hosts) or address.startswith(("127.", "::1"))

    def __call__(self, method: str, path: str, headers: Mapping[bytes, bytes]) -> None:
        """Raises an HTTPException, status 403, if a request is for, or comes from, another host.

        The header `Host` is checked only at a loopback address, or with `--allowed_hosts`.
        """
        host, origin, site, mode = (
            headers.get(x, b"").decode("latin-1").lower() for x in _BROWSER_HEADERS
        )
        sender, name = _without_port(origin.partition("//")[2]), _without_port(host)
        is_address = name.startswith("[") or not name.strip("0123456789.")
        is_known = is_address or any(fnmatchcase(name, x) for x in self._own + self._allowed)
        if self._checks_host and not is_known and path != "/health":
            advice = "call it by an IP address or as localhost, or pass --allowed_hosts="
            raise HTTPException(403, f"The server has no host {name[:100]}: {advice}{name[:100]}")
        # A proxy may change `Host`, but not what the browser says in the other headers.
        is_link = method == "GET" and mode == "navigate"
        is_allowed = sender and any(fnmatchcase(sender, x) for x in self._allowed)
        if is_link or is_allowed or site in ("same-origin", "none"):
            return
        if site == "cross-site" or origin not in ("", f"http://{host}", f"https://{host}"):
            problem = f"Pages of {origin[:100] or 'other sites'} may not call this server"
            raise HTTPException(403, f"{problem}, unless --allowed_hosts lists their host")


def _without_port(host: str) -> str:
    return re.sub(r"\.?(:\d*)?$", "", host)
