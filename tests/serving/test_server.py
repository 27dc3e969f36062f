"""`serve_model.py` in a process of its own: start, signals, broken requests, other clients."""

import json
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import httpx
import pytest

from bert_tf.base.errors import UserError
from bert_tf.options import RankingOptions, registry
from bert_tf.serving.options import ServingOptions
from bert_tf.serving.server import listen, run
from tests.oracle import ROOT, golden
from tests.serving.servers import Process, in_new_process, shape_of

NAMES = ("run_classifier", "run_ner", "run_squad", "run_classifier_tsv")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = shutil.copytree(golden("run_directories"), tmp_path_factory.mktemp("runs") / "runs")
    return {name: str(folder / name) for name in NAMES}


def model_flags(folders, *names):
    return [f"--model={name}={folders[name]}" for name in names or folders]


def send(port, content, half_close=False, timeout=60):
    """Sends bytes over a connection; returns all that comes back until it is closed."""
    reply = b""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as connection:
        try:
            connection.sendall(content)
            if half_close:
                connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(1 << 16):
                reply += part
        except (ConnectionError, TimeoutError):
            pass
    return reply


def request(body, path="/v1/models/run_classifier:predict", **headers):
    headers = {"host": "localhost", "connection": "close", "content-length": len(body)} | headers
    lines = [f"POST {path} HTTP/1.1", *(f"{n.replace('_', '-')}: {x}" for n, x in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


def status_of(reply):
    return int(reply.split()[1]) if reply else None


GOOD = b'{"instances": ["the good film"]}'


def test_server_from_start_to_end(folders, tmp_path):
    with in_new_process(*model_flags(folders, "run_classifier"), folder=tmp_path) as server:
        body = {"instances": ["the good film"]}
        url = f"{server.url}/v1/models/run_classifier:predict"
        assert "label" in httpx.post(url, json=body).json()["predictions"][0]
        # As `curl -d` sends it.
        headers = {"content-type": "application/x-www-form-urlencoded"}
        assert httpx.post(url, content=GOOD, headers=headers).status_code == 200
        broken = [
            b"",
            b"\r\n",
            b"nonsense\r\n\r\n",
            b"POST / HTTP/9.9\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00",  # TLS
            request(b""),
            request(b"[" * 100_000),
            request(b"\xff" * 100),
            request(GOOD, content_length="x"),
            request(GOOD, content_length="-1"),
            request(b"zz\r\n", transfer_encoding="chunked"),
            request(b"1" * 100, path="/" + "a" * 100_000),
        ]
        for content in broken:
            status = status_of(send(server.port, content, half_close=True))
            assert status is None or 400 <= status < 500, content[:100]
        # A body that is shorter than announced, from a client that leaves.
        reply = send(server.port, request(GOOD, content_length=1000), half_close=True)
        assert status_of(reply) in (None, 400)
        for is_half_closed in (False, True):
            assert status_of(send(server.port, request(GOOD), is_half_closed)) == 200
        assert status_of(send(server.port, request(GOOD, host="evil.example"))) == 403
        assert "Traceback" not in server.log
        assert server.stop() == 0
        assert server.log.endswith("Stopped: all requests are finished\n")
        with pytest.raises(httpx.TransportError):
            httpx.get(server.url)


def test_mistakes_end_the_script_before_it_listens(folders, tmp_path, monkeypatch):
    options = {"model_dir": folders["run_ner"], "port": 0}
    keys = tmp_path / "keys.txt"
    keys.write_text("\n \n")
    with pytest.raises(UserError, match=r"keys.txt has no keys: write one on each line"):
        run(ServingOptions(**options, api_key_file=str(keys)))
    for host in ("1.2.3.4", "host.invalid"):
        with pytest.raises(UserError, match=f"host={host} --port=0: "):
            run(ServingOptions(**options, host=host))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"--port={port}: Address already in use"):
            run(ServingOptions(**{**options, "port": port}))
    with pytest.raises(UserError, match=r"nix: no run\.json .* \(the folder .* has: "):
        run(ServingOptions(model_dir=str(tmp_path / "nix"), port=0))
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "runs.json").write_text('{"best": {"folder": "run_2"}}')
    with pytest.raises(UserError, match=r"several runs: pass one of them; the best is .*run_2"):
        run(ServingOptions(model_dir=str(tmp_path / "runs"), port=0))
    with pytest.raises(UserError, match="--engine=onnx does not support --precision=bfloat16"):
        run(ServingOptions(**options, engine="onnx", precision="bfloat16"))
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(UserError, match=r'uvicorn .*: run pip install "bert_tf\[serve\]"'):
        run(ServingOptions(**options))


def test_replies_are_sent_without_delay():
    with listen(ServingOptions(port=0)) as listener:
        assert listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_error_while_loading_ends_the_script(folders, tmp_path):
    folder = shutil.copytree(folders["run_classifier"], tmp_path / "run")
    for path in folder.glob("**/*.data*"):
        path.write_bytes(path.read_bytes()[:100])
    server = Process(f"--model_dir={folder}", log=tmp_path / "server.log")
    assert server.process.wait(timeout=120) == 1
    assert re.search(r"^ERROR: .* damaged", server.log, re.MULTILINE)
    assert "Traceback" not in server.log


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_under_load_loses_no_accepted_request(folders, tmp_path, number):
    flags = [*model_flags(folders), "--max_delay_ms=20"]
    replies, errors, stop = [], [], threading.Event()

    def call(server, seed):
        rng = random.Random(seed)
        with httpx.Client(base_url=server.url, timeout=60) as client:
            while not stop.is_set():
                texts = ["the good film " * rng.randint(1, 5)] * rng.randint(1, 4)
                path = f"/v1/models/{rng.choice(NAMES[:2])}:predict"
                try:
                    replies.append(client.post(path, json={"instances": texts}).status_code)
                except httpx.TransportError as error:
                    errors.append(error)
                    return

    with in_new_process(*flags, folder=tmp_path) as server:
        threads = [threading.Thread(target=call, args=(server, seed)) for seed in range(16)]
        for thread in threads:
            thread.start()
        time.sleep(3)
        server.process.send_signal(number)
        assert server.process.wait(timeout=120) == 0
        for thread in threads:
            thread.join()
        log = server.log
    records = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    statuses = [x["status"] for x in records if x["method"] == "POST"]
    # Each request that the server began to handle has a complete reply.
    assert {*statuses} == {*replies} == {200}
    assert len(statuses) == len(replies) > 50
    assert len(errors) == 16
    assert "Traceback" not in log


@pytest.mark.slow
def test_only_429_beyond_the_limit_and_then_recovery(folders, tmp_path):
    statuses = []

    def call(url):
        body = {"instances": ["the good film " * 5] * 50}
        reply = httpx.post(f"{url}/v1/models/run_classifier:predict", json=body, timeout=60)
        assert reply.status_code == 200 or reply.headers["retry-after"]
        statuses.append(reply.status_code)

    flags = [*model_flags(folders, "run_classifier"), "--max_concurrent=4"]
    with in_new_process(*flags, folder=tmp_path) as server:
        threads = [threading.Thread(target=call, args=(server.url,)) for _ in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {*statuses} == {200, 429}
        assert len(statuses) == 40
        statuses.clear()
        call(server.url)
        assert statuses == [200]


@pytest.mark.slow
def test_ten_thousand_malformed_requests(folders, tmp_path):
    """Truncated, deeply nested, too long, not UTF-8, to unknown models, cut off."""
    rng = random.Random(3)
    good = {
        "/v1/models/run_classifier:predict": {"instances": [{"text": "a", "text_pair": "b"}]},
        "/v1/models/run_ner:predict": {"inputs": {"text": ["a good film", "b"]}},
        "/v1/models/run_squad:predict": {"instances": [{"question": "a", "context": "b"}]},
        "/predict": {"inputs": [["a"], ["b", "c"]]},
        "/embed": {"inputs": ["a", "b"], "normalize": True},
        "/rerank": {"query": "a", "texts": ["b"]},
        "/v1/embeddings": {"input": ["a"], "model": "run_ner"},
    }

    def make():
        path = rng.choice([*good, "/v1/models/nix:predict", "/nix", "/v1/models/"])
        body = json.dumps(good.get(path, {})).encode()
        kind = rng.random()
        if kind < 0.2:
            body = body[: rng.randrange(len(body))]
        elif kind < 0.3:
            position = rng.randrange(len(body))
            body = body[:position] + bytes([rng.randrange(128, 256)]) + body[position + 1 :]
        elif kind < 0.32:
            body = rng.choice([b"[", b'{"instances":']) * rng.randrange(20_000)
        elif kind < 0.33:
            body = b"x" * 3_000_000
        content = request(body, path)
        return content[: rng.randrange(len(content))] if kind > 0.95 else content

    with in_new_process(*model_flags(folders), folder=tmp_path) as server:
        lock, contents = threading.Lock(), [make() for _ in range(10_000)]
        contents += [request(b"x", content_length=10**8), request(b"x" * 10**8)]
        failures = []

        def call():
            while True:
                with lock:
                    if not contents:
                        return
                    content = contents.pop()
                reply = send(server.port, content, half_close=True)
                status = status_of(reply)
                if status and (status >= 500 or b"Traceback" in reply):
                    failures.append((status, content[:300], reply[:300]))

        # Clients that send nothing, or only half a request, while others are served.
        slow = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(20)]
        for connection in slow[10:]:
            connection.sendall(request(GOOD, content_length=1000))
        threads = [threading.Thread(target=call) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for connection in slow:
            connection.close()
        assert failures == []
        assert "Traceback" not in server.log
        assert status_of(send(server.port, request(GOOD))) == 200
        assert server.stop() == 0


@pytest.mark.slow
def test_commands_in_the_docs(folders, tmp_path):
    """Runs them as they are written, except for the port."""
    text = (ROOT / "docs/serving.md").read_text()
    text = text[text.index("## An HTTP server") :]
    blocks = re.findall(r"```text\n(curl .*?)```(?:\n\n```json\n(.*?)```)?", text, re.DOTALL)
    flags = [f"--model=reviews={folders['run_classifier_tsv']}"]
    flags += [f"--model=encoder={ROOT / 'examples/small_bert'}"]
    (tmp_path / "train.tsv").write_text("A soup\tIt was cold.\nA film\tIt was long.\n" * 4)
    columns = {"anchor_column": "1", "positive_column": "2"}
    files = {"data_dir": str(tmp_path), "output_dir": str(tmp_path / "ranker")}
    settings = {"max_seq_length": 32, "num_negatives": 1, "do_train": True, "train_batch_size": 2}
    model = {"init_checkpoint": str(ROOT / "examples/small_bert")}
    registry.run(RankingOptions(**columns, **files, **settings, **model))
    flags += [f"--model=ranker={files['output_dir']}"]
    num_replies = 0
    with in_new_process(*flags, folder=tmp_path) as server:
        for commands, expected in blocks:
            script = commands.replace("localhost:8501", f"localhost:{server.port}")
            script = re.sub("^curl", "curl -sS --fail-with-body", script, flags=re.MULTILINE)
            result = subprocess.run(["bash", "-ec", script], capture_output=True, text=True)
            assert result.returncode == 0, (commands, result.stdout, result.stderr)
            if expected:
                num_replies += 1
                assert shape_of(json.loads(result.stdout)) == shape_of(json.loads(expected))
    assert num_replies == 8


@pytest.mark.slow
def test_command_of_the_script(folders, tmp_path):
    command = [sys.executable, str(ROOT / "serve_model.py"), "--port=0", "--model=x"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr.startswith("ERROR: --model must be NAME=FOLDER")
