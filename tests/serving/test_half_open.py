"""Clients that close their side of the connection after the request, and clients that leave."""

import asyncio
import functools

import pytest
import uvicorn

from bert_tf.serving import connections
from bert_tf.serving.options import ServingOptions
from bert_tf.serving.server import listen

REQUEST = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"
INTERVAL = 0.05
CONNECTION = functools.partial(connections.Connection, 100)


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

    settings = {"lifespan": "off", "log_config": None, "http": CONNECTION}
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
def short_interval(monkeypatch):
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
