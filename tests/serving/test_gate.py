"""Limits, keys, timeouts and the log, around an application that does what a test says."""

import asyncio
import json
import logging
from types import SimpleNamespace

import pytest
from fastapi.responses import JSONResponse

from bert_tf.serving.gate import Gate
from bert_tf.serving.metrics import Metrics
from bert_tf.serving.options import ServingOptions


class Call:
    """A request: gives the messages of its client, and keeps the reply.

    After the parts, the client waits until `ends` is set, by default by the reply, and then leaves.
    With `stops`, the last part is not the end of the body.
    """

    def __init__(
        self, parts=(b"{}",), leaves=False, stops=False, method="POST", path="/embed", **headers
    ):
        self.parts, self.stops, self.ends = [*parts], stops, asyncio.Event()
        if leaves:
            self.ends.set()
        names = [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()]
        self.scope = {"type": "http", "method": method, "path": path, "headers": names}
        self.status, self.body, self.headers = None, b"", {}

    async def receive(self):
        if self.parts:
            part, more = self.parts.pop(0), bool(self.parts) or self.stops
            return {"type": "http.request", "body": part, "more_body": more}
        await self.ends.wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], dict(message["headers"])
        else:
            self.body += message["body"]
            self.ends.set()

    @property
    def error(self):
        return json.loads(self.body)["error"]


async def echo(scope, receive, send):
    body = (await receive())["body"]
    await JSONResponse({"body": body.decode()})(scope, receive, send)


def handle(call, app=echo, keys=(), metrics=None, **flags):
    gate = Gate(app, ServingOptions(**flags), keys, metrics or Metrics())
    asyncio.run(gate(call.scope, call.receive, call.send))
    return call


def test_body_is_whole_and_json():
    call = handle(Call([b'{"a"', b": 1}"], content_type="application/x-www-form-urlencoded"))
    assert (call.status, json.loads(call.body)["body"]) == (200, '{"a": 1}')
    assert dict(call.scope["headers"])[b"content-type"] == b"application/json"


def test_pages_of_other_sites_are_refused():
    call = handle(Call(origin="http://evil.example", host="localhost", content_type="text/plain"))
    assert (call.status, call.error[:29]) == (403, "Pages of http://evil.example ")


def test_long_bodies_are_refused_with_and_without_a_length():
    for call in (
        Call([b"x" * 11], content_length="11"),
        Call([b"x" * 6, b"x" * 5]),
        Call([], content_length="11", expect="100-continue"),
        # A body without an end is not read to its end.
        Call([b"x" * 10] * 1000),
    ):
        handle(call, max_body_bytes=10)
        assert (call.status, call.headers[b"connection"]) == (413, b"close")
        assert "--max_body_bytes=10" in call.error
        assert len(call.parts) < 990 or not call.parts
    assert handle(Call([b"x" * 10]), max_body_bytes=10).status == 200


def test_compressed_bodies_are_refused():
    call = handle(Call([b"\x1f\x8b\x08"], content_encoding="gzip"))
    assert (call.status, "'gzip'" in call.error) == (415, True)
    assert handle(Call(content_encoding="identity")).status == 200


def test_requests_beyond_the_limit_get_429_until_others_have_finished():
    release = asyncio.Event()

    async def wait(scope, receive, send):
        await release.wait()
        await echo(scope, receive, send)

    async def run():
        gate = Gate(wait, ServingOptions(max_concurrent=2), (), Metrics())
        calls = [Call() for _ in range(5)]
        tasks = [asyncio.create_task(gate(c.scope, c.receive, c.send)) for c in calls]
        await asyncio.sleep(0.01)
        get = Call(method="GET", path="/health")
        health = asyncio.create_task(gate(get.scope, get.receive, get.send))
        assert [call.status for call in calls] == [None, None, 429, 429, 429]
        assert int(calls[-1].headers[b"retry-after"]) > 0
        release.set()
        await asyncio.gather(*tasks, health)
        calls.append(Call())
        await gate(calls[-1].scope, calls[-1].receive, calls[-1].send)
        assert get.status == 200
        return [call.status for call in calls]

    assert asyncio.run(run()) == [200, 200, 429, 429, 429, 200]


def test_bodies_in_progress_have_a_limit():
    """Clients that stop in the middle of a body take memory, but no place of a request."""

    async def run():
        gate = Gate(echo, ServingOptions(max_concurrent=1), (), Metrics())
        slow = [Call([b"x" * 1_800_000], stops=True) for _ in range(40)]
        tasks = [asyncio.create_task(gate(c.scope, c.receive, c.send)) for c in slow]
        await asyncio.sleep(0.01)
        assert [call.status for call in slow] == [None] * 17 + [429] * 23
        assert slow[-1].headers[b"connection"] == b"close"
        assert b"retry-after" in slow[-1].headers
        await gate((call := Call()).scope, call.receive, call.send)
        for other in slow:
            other.ends.set()
        await asyncio.gather(*tasks)
        assert gate._num_bytes == 0
        return call.status

    assert asyncio.run(run()) == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ('["' + "a,[{" * 20_000 + '"]', 200),
        ('["' + '\\"' * 20_000 + ",[{" * 20_000 + '\\\\\\\\"]', 200),
        ('{"words": [' + '"a",' * 10_000 + '"b"]}', 200),
        ('{"inputs": [' + "1," * 20_000 + "1]}", 413),
        ('{"inputs": [' + "[]," * 20_000 + "1]}", 413),
        ('["a"' + ', "\\\\"' * 20_000 + "]", 413),
    ],
)
def test_values_of_a_body_are_counted_before_it_is_parsed(body, status):
    call = handle(Call([body.encode()]), max_inputs=10)
    assert call.status == status
    assert status == 200 or "--max_inputs=10" in call.error


@pytest.mark.parametrize("reason", ["client leaves", "timeout", "client leaves while it sends"])
def test_request_is_cancelled(reason, run_log):
    cancelled = []

    async def never(scope, receive, send):
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    if reason == "timeout":
        call = handle(Call(), never, timeout=0.1)
        assert (call.status, call.error) == (503, "The request took longer than 0.1 seconds")
    elif reason == "client leaves":
        assert handle(Call(leaves=True), never).status is None
        assert '"status": 499' in run_log.text
    else:
        assert handle(Call([b"{"], leaves=True, stops=True), never).status is None
    assert cancelled == ([] if "sends" in reason else [True])


def test_slow_body_is_cut_off():
    assert handle(Call([]), timeout=0.1).status == 503


def test_failure_gives_no_details(run_log):
    async def fail(scope, receive, send):
        raise RuntimeError(f"secret {(await receive())['body']}")

    call = handle(Call([b"text"]), fail)
    assert (call.status, call.error) == (500, "The request failed: the server's log says why")
    assert "/embed failed: RuntimeError" in run_log.text
    assert "in fail" in run_log.text
    assert "b'text'" not in run_log.text


def test_keys(run_log):
    keys = [b"one", b"two"]
    for headers in ({}, {"authorization": "Bearer three"}, {"authorization": "Basic one"}):
        call = handle(Call(**headers), keys=keys)
        assert (call.status, call.headers[b"www-authenticate"]) == (401, b"Bearer")
    error = handle(Call(path="/v1/embeddings"), keys=keys).error
    assert error["message"].startswith("A key is needed")
    for method, path in (("GET", "/metrics"), ("GET", "/v1/models"), ("GET", "/info")):
        assert handle(Call(method=method, path=path), keys=keys).status == 401
    for key in ("Bearer one", "bearer two"):
        assert handle(Call(authorization=key), keys=keys).status == 200
        assert key.split()[1] not in run_log.text
    for path in ("/", "/docs", "/openapi.json", "/health"):
        assert handle(Call(method="GET", path=path), keys=keys).status == 200


def test_log_and_metrics(run_log):
    metrics = Metrics()
    call = Call(path='/a"\n')

    async def note(scope, receive, send):
        scope["record"] = {"model": "m", "inputs": 2, "tokens": 7}
        await echo(scope, receive, send)

    handle(call, note, metrics=metrics)
    messages = [x.getMessage() for x in run_log.records if x.levelno == logging.INFO]
    record = json.loads(messages[-1])
    expected = {"path": '/a"\n', "status": 200, "model": "m", "inputs": 2, "tokens": 7}
    assert {name: record[name] for name in expected} == expected
    assert "\n" not in messages[-1]
    health = Call(method="GET", path="/health")
    health.scope["route"] = SimpleNamespace(path="/health")
    handle(health)
    assert json.loads(run_log.records[-1].getMessage()) == record
    assert 'bert_requests_total{route="other",status="200"} 1.0' in metrics.render().decode()
