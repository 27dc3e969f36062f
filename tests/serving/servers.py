"""Servers for tests: in this process, and in one of their own."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import time

import httpx

from bert_tf.serving.app import make_app
from bert_tf.serving.batching import Batcher
from bert_tf.serving.gate import Gate
from bert_tf.serving.metrics import Metrics
from bert_tf.serving.models import Model
from bert_tf.serving.options import ServingOptions
from tests.oracle import ROOT


class Server:
    """A server in this process, whose calls need no network."""

    def __init__(self, options, models=None, keys=()):
        metrics, self.options = Metrics(), options
        if models is None:
            models = [Model(name, path, options) for name, path in options.folders().items()]
        self.batchers = {m.name: Batcher(m, options, metrics, lambda: None) for m in models}
        self.app = Gate(make_app(self.batchers, options, metrics), options, keys, metrics)

    def wait(self):
        """Waits until the models are loaded."""
        while not all(b.is_ready for b in self.batchers.values()):
            for batcher in self.batchers.values():
                if batcher.error:
                    raise batcher.error
            time.sleep(0.01)
        return self

    async def send(self, method, path, **kwargs):
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.request(method, path, **kwargs)

    def get(self, path, **kwargs):
        return asyncio.run(self.send("GET", path, **kwargs))

    def post(self, path, body=None, **kwargs):
        """Returns the reply's JSON; fails for an error."""
        reply = asyncio.run(self.send("POST", path, json=body, **kwargs))
        assert reply.status_code == 200, reply.text
        return reply.json()

    def error(self, path, body=None, method="POST", **kwargs):
        """Returns status and message of an error."""
        kwargs |= {} if body is None else {"json": body}
        reply = asyncio.run(self.send(method, path, **kwargs))
        assert [*reply.json()] == ["error"], reply.text
        error = reply.json()["error"]
        return reply.status_code, error if isinstance(error, str) else error["message"]

    def close(self):
        for batcher in self.batchers.values():
            batcher.close()


@contextlib.contextmanager
def in_process(**flags):
    server = Server(ServingOptions(**flags))
    try:
        yield server.wait()
    finally:
        server.close()


class Process:
    """`serve_model.py` in a process of its own."""

    def __init__(self, *flags, log):
        self._log_path = log
        command = [sys.executable, str(ROOT / "serve_model.py"), "--port=0", *flags]
        env = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "PYTHONUNBUFFERED": "1"}
        with log.open("wb") as file:
            self.process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=file, stderr=file)

    @property
    def log(self):
        return self._log_path.read_text()

    def wait(self):
        """Waits until the server is ready; sets its `url` and `port`."""
        while not (found := re.search(r"listening at (http://127.0.0.1:(\d+))", self.log)):
            assert self.process.poll() is None, self.log
            time.sleep(0.05)
        self.url, self.port = found[1], int(found[2])
        while True:
            assert self.process.poll() is None, self.log
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{self.url}/health", timeout=60).status_code == 200:
                    return self
            time.sleep(0.05)

    def stop(self):
        """Sends SIGTERM; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=120)


@contextlib.contextmanager
def in_new_process(*flags, folder):
    server = Process(*flags, log=folder / "server.log")
    try:
        yield server.wait()
    finally:
        server.process.kill()
        server.process.wait()


def shape_of(value):
    """Returns the structure of JSON: names and types, of a list those of its first item."""
    if isinstance(value, dict):
        return {name: shape_of(x) for name, x in value.items()}
    if isinstance(value, list):
        return [shape_of(x) for x in value[:1]]
    return float if isinstance(value, int | float) else type(value)
