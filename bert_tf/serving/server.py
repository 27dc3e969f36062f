"""Runs a server; implements the script `serve_model.py`."""

import contextlib
import functools
import socket
from collections.abc import Iterator
from typing import Any

from bert_tf.base import files, signals
from bert_tf.base.errors import UserError, note
from bert_tf.base.extras import import_extra
from bert_tf.serving.options import ServingOptions

_BACKLOG = 2048  # connections that the system holds until they are accepted


def run(options: ServingOptions) -> None:
    """Serves models until a signal. Then accepts no more requests, and finishes those in progress.

    Raises:
        UserError: a folder or the file of keys cannot be used, or the port is taken.
    """
    options.check()
    for package in ("fastapi", "uvicorn", "prometheus_client"):
        import_extra(package, "serve")
    import uvicorn

    from bert_tf.serving import connections
    from bert_tf.serving.app import make_app
    from bert_tf.serving.batching import Batcher
    from bert_tf.serving.gate import Gate
    from bert_tf.serving.metrics import Metrics
    from bert_tf.serving.models import Model

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            # That of uvicorn raises the signal again in the end: the exit code would not be 0.
            with signals.preserve_signal_handlers():
                signals.handle_signals(self.handle_exit)
                yield

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            listener.listen(_BACKLOG)

        async def on_tick(self, counter: int) -> bool:
            connections.close_slow(self.server_state.connections, options.receive_timeout)
            return await super().on_tick(counter)

    keys, metrics = _read_keys(options.api_key_file), Metrics()
    models = [Model(name, folder, options) for name, folder in options.folders().items()]
    limit = connections.limit_by_files(options.max_connections)
    open_connection: Any = functools.partial(connections.Connection, limit)
    with listen(options) as listener:
        batchers: dict[str, Batcher] = {}
        app = make_app(batchers, options, metrics)
        host, port = listener.getsockname()[:2]
        config = uvicorn.Config(
            Gate(app, options, keys, metrics, host),
            log_config=None,
            access_log=False,  # `Gate` writes it
            ws="none",
            http=open_connection,
            backlog=connections.BACKLOG,
            server_header=False,
            timeout_graceful_shutdown=round(options.timeout) + 1,
        )
        server = Server(config)

        def stop() -> None:
            server.should_exit = True

        batchers |= {model.name: Batcher(model, options, metrics, stop) for model in models}
        shown = f"[{host}]" if ":" in host else host
        note(f"Loading {', '.join(batchers)}; listening at http://{shown}:{port}")
        server.run(sockets=[listener])
        for batcher in batchers.values():
            batcher.close()
    for error in filter(None, (batcher.error for batcher in batchers.values())):
        raise error
    note("Stopped: all requests are finished")


def _read_keys(path: str | None) -> list[bytes]:
    if not path:
        return []
    keys = [line.strip().encode() for line in files.read_text(path).splitlines() if line.strip()]
    if not keys:
        raise UserError(f"--api_key_file={path} has no keys: write one on each line")
    return keys


def listen(options: ServingOptions) -> socket.socket:
    """Binds the port; raises a UserError if that fails."""
    address = f"--host={options.host} --port={options.port}"
    try:
        info = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(info[4][:2], family=info[0], backlog=_BACKLOG)
        # Connections inherit it. asyncio sets it only for sockets that it creates itself; without
        # it, each reply waits 40 ms for the client's acknowledgement of the headers.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        raise UserError(str(error.strerror).partition(" (while")[0], at=address) from error
    return listener
