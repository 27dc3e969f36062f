"""Slow clients, clients that close their side or leave, and the limits of connections and files."""

import asyncio
import contextlib
import functools
import socket
import time

import httpx
import pytest
import uvicorn

from bert_tf.serving import connections
from bert_tf.serving.connections import limit_by_files
from bert_tf.serving.options import ServingOptions
from bert_tf.serving.server import listen
from tests.oracle import ROOT
from tests.serving.servers import in_new_process

resource = pytest.importorskip("resource")
HEADER = b"POST /v1/models/m:predict HTTP/1.1\r\nHost: localhost\r\n"
STARTS = {"header": HEADER + b"X-A: ", "body": HEADER + b"Content-Length: 9\r\n\r\n{", "none": b""}


def is_open(connection):
    connection.settimeout(0.01)
    try:
        while connection.recv(65536):
            pass
    except TimeoutError:
        return True
    except ConnectionError:
        pass
    return False


def test_slow_clients_are_closed(tmp_path):
    """Over the limit, those that have waited the longest; at the deadline, all."""
    flags = ["--max_connections=12", "--receive_timeout=4"]
    model = f"--model=m={ROOT / 'examples/small_bert'}"
    with in_new_process(model, *flags, folder=tmp_path) as server, contextlib.ExitStack() as stack:
        slow, starts = [], [*STARTS.values()] * 14
        for number, start in enumerate(starts, start=1):
            address = ("127.0.0.1", server.port)
            slow.append(stack.enter_context(socket.create_connection(address, timeout=60)))
            slow[-1].sendall(start)
            # The kernel hands over all connections before this one; it would drop more than 16.
            if number % 7 == 0:
                assert httpx.get(f"{server.url}/health").status_code == 200
        begin = time.monotonic()
        while sum(kept := [is_open(connection) for connection in slow]) > 12:
            assert time.monotonic() - begin < 3
        assert not any(kept[:28])
        while any(map(is_open, slow)):
            for start, connection in zip(starts[-3:], slow[-3:], strict=True):
                with contextlib.suppress(OSError):
                    connection.sendall(b" " if start else b"")
            assert time.monotonic() - begin < 12
        assert httpx.post(f"{server.url}/embed", json={"inputs": "a"}).status_code == 200
        assert "Traceback" not in server.log
        assert server.stop() == 0


def test_limit_of_files_is_raised(monkeypatch):
    limits = [64, 256]
    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", lambda _, new: limits.__setitem__(0, new[0]))
    assert limit_by_files(1000) == 160
    assert limits == [256, 256]
    limits[:] = [256, 100_000]
    assert limit_by_files(1000) == 1000
    limits[:] = [resource.RLIM_INFINITY] * 2
    assert limit_by_files(1000) == 1000


REQUEST = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"
INTERVAL = 0.05


async def call(content, seconds, leaves=False):
    """Sends bytes to an application that takes some time; returns the reply, and if it ended."""
    ended = []

    async def app(scope, receive, send):
        await receive()
        waiting = asyncio.ensure_future(receive())
        done, _ = await asyncio.wait([waiting], timeout=seconds)
        waiting.cancel()
        ended.append("left" if done else "replied")
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})

    settings = {
        "lifespan": "off",
        "log_config": None,
        "http": functools.partial(connections.Connection, 100),
    }
    server = uvicorn.Server(uvicorn.Config(app, **settings))
    with listen(ServingOptions(port=0)) as listener:
        serving = asyncio.ensure_future(server.serve(sockets=[listener]))
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(content)
        if leaves:
            await writer.drain()
            writer.close()
            reply = b""
        else:
            writer.write_eof()
            reply = await asyncio.wait_for(reader.read(), 10)
            writer.close()
        while len(ended) < content.count(REQUEST):
            await asyncio.sleep(INTERVAL)
        server.should_exit = True
        await serving
    return reply, ended


@pytest.fixture(autouse=True)
def _short_interval(monkeypatch):
    monkeypatch.setattr(connections, "_PROBE_INTERVAL", INTERVAL)


def test_half_closed_clients_get_their_replies():
    reply = asyncio.run(call(REQUEST, INTERVAL / 5))[0]
    assert reply.startswith(b"HTTP/1.1 200 OK")
    assert reply.endswith(b"ok")
    reply, ended = asyncio.run(call(REQUEST * 3, INTERVAL / 5))
    assert (reply.count(b"HTTP/1.1 200 OK"), ended) == (3, ["replied"] * 3)
    # The last request is not complete.
    reply, ended = asyncio.run(call(REQUEST + REQUEST[:-1], INTERVAL / 5))
    assert (reply.count(b"HTTP/1.1 200 OK"), ended[0]) == (1, "replied")


def test_replies_that_take_long():
    reply = asyncio.run(call(REQUEST, 5 * INTERVAL))[0]
    assert reply.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n")
    assert reply.endswith(b"ok")
    old = REQUEST.replace(b"HTTP/1.1", b"HTTP/1.0")  # which does not know this status
    reply = asyncio.run(call(old, 5 * INTERVAL))[0]
    assert b"100 Continue" not in reply


def test_clients_that_leave_are_noticed():
    assert asyncio.run(call(REQUEST, 10, leaves=True))[1] == ["left"]
