"""Slow clients, and the limits of connections and files."""

import asyncio
import contextlib
import errno
import socket
import time

import httpx
import pytest

from bert_tf.serving.connections import limit_by_files, log_errors_of_files_once
from tests.oracle import ROOT
from tests.serving.servers import in_new_process

resource = pytest.importorskip("resource")
HEADER = b"POST /v1/models/m:predict HTTP/1.1\r\nHost: x\r\n"
STARTS = {"header": HEADER + b"X-A: ", "body": HEADER + b"Content-Length: 9\r\n\r\n{", "none": b""}


def is_open(connection):
    connection.settimeout(0.01)
    try:
        return connection.recv(1) != b""
    except TimeoutError:
        return True
    except ConnectionError:
        return False


def test_slow_clients_are_closed(tmp_path):
    """Over the limit, those that have waited the longest; at the deadline, all."""
    flags = ["--max_connections=12", "--receive_timeout=2"]
    model = f"--model=m={ROOT / 'examples/small_bert'}"
    with in_new_process(model, *flags, folder=tmp_path) as server, contextlib.ExitStack() as stack:
        for start in STARTS.values():
            slow = []
            for _ in range(40):
                address = ("127.0.0.1", server.port)
                slow.append(stack.enter_context(socket.create_connection(address, timeout=60)))
                slow[-1].sendall(start)
            begin = time.monotonic()
            assert httpx.get(f"{server.url}/health").status_code == 200
            assert time.monotonic() - begin < 1
            kept = [is_open(connection) for connection in slow]
            assert sum(kept) <= 12
            assert not any(kept[:28])
            while any(map(is_open, slow)):
                with contextlib.suppress(OSError):
                    slow[-1].sendall(b" " if start else b"")
                assert time.monotonic() - begin < 10
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


def test_too_many_open_files_are_logged_once(run_log):
    async def run():
        log_errors_of_files_once()
        for error in (OSError(errno.EMFILE, "x"), OSError(errno.ENFILE, "x"), KeyError("other")):
            asyncio.get_running_loop().call_exception_handler({"message": "", "exception": error})

    asyncio.run(run())
    assert run_log.text.count("Too many open files") == 1
    assert "KeyError: 'other'" in run_log.text
