"""Compares serve_model.py with a FastAPI handler around a transformers pipeline, under load.

usage: python benchmarks/serving.py --model_dir=DIR --hf_dir=DIR --texts=FILE
           [--torch_python=python] [--clients=32] [--rounds=5] [--seconds=30]

DIR is the output folder of run_classifier.py, and the same model for transformers
(`convert_checkpoint.py --to=hugging_face`). FILE has a text on each line. `--torch_python` is a
Python with transformers, torch, fastapi and uvicorn. Clients send one text at a time, each over its
own connection. The servers take turns, so that other load on the machine affects both alike;
figures are medians over rounds, and the memory of our server in the first and the last round.
"""

import argparse
import http.client
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
PORTS = {"serve_model.py": 8541, "transformers": 8542}
PATHS = {"serve_model.py": "/v1/models/model:predict", "transformers": "/predict"}
# A handler as one would write it first: FastAPI runs it in a pool of threads.
HANDLER = """
import sys, fastapi, pydantic, uvicorn
from transformers import pipeline

classify = pipeline("text-classification", model=sys.argv[1], top_k=None)
app = fastapi.FastAPI()

class Body(pydantic.BaseModel):
    instances: list[str]

@app.post("/predict")
def predict(body: Body):
    return classify(body.instances, truncation=True)

@app.get("/health")
def health():
    return {}

uvicorn.run(app, port=int(sys.argv[2]), log_level="warning")
"""


def start_servers(arguments: argparse.Namespace) -> dict[str, subprocess.Popen]:
    """Starts both servers, and waits until they are ready."""
    ours = [sys.executable, str(ROOT / "serve_model.py"), f"--model=model={arguments.model_dir}"]
    theirs = [arguments.torch_python, "-c", HANDLER, arguments.hf_dir, str(PORTS["transformers"])]
    ours += [f"--port={PORTS['serve_model.py']}", *arguments.flags]
    log = subprocess.DEVNULL
    servers = {
        name: subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ})
        for name, command in {"serve_model.py": ours, "transformers": theirs}.items()
    }
    for name, server in servers.items():
        while True:
            if server.poll() is not None:
                raise SystemExit(f"{name} has ended")
            try:
                connection = http.client.HTTPConnection("127.0.0.1", PORTS[name], timeout=10)
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    break
            except OSError:
                pass
            time.sleep(0.2)
    return servers


def load(name: str, texts: list[str], clients: int, seconds: float) -> tuple[list[float], int]:
    """Returns the seconds of each request, and the number of errors."""
    found: list[float] = []
    errors, numbers, end = [], itertools.count(), time.perf_counter() + seconds

    def call() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", PORTS[name], timeout=120)
        while (start := time.perf_counter()) < end:
            body = json.dumps({"instances": [texts[next(numbers) % len(texts)]]})
            try:
                headers = {"content-type": "application/json"}
                connection.request("POST", PATHS[name], body, headers)
                reply = connection.getresponse()
                reply.read()
                if reply.status != 200:
                    errors.append(reply.status)
            except (OSError, http.client.HTTPException) as error:
                errors.append(error)
                connection.close()
            found.append(time.perf_counter() - start)

    threads = [threading.Thread(target=call) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found, len(errors)


def resident_mib(process: subprocess.Popen) -> int:
    """Returns the memory of a process in MiB."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) // 1024


def main() -> None:
    """Prints requests per second, latencies in milliseconds, and memory."""
    parser = argparse.ArgumentParser()
    for flag in ("--model_dir", "--hf_dir", "--texts"):
        parser.add_argument(flag, required=True)
    parser.add_argument("--torch_python", default="python")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=30)
    arguments, arguments.flags = parser.parse_known_args()
    texts = [x for x in Path(arguments.texts).read_text().splitlines() if x.strip()]
    servers, memory = start_servers(arguments), []
    rows: dict[str, list[list[float]]] = {name: [] for name in servers}
    try:
        for name in servers:
            load(name, texts, arguments.clients, 3)
        for _ in range(arguments.rounds):
            for name, server in servers.items():
                start = time.perf_counter()
                found, num_errors = load(name, texts, arguments.clients, arguments.seconds)
                rate = len(found) / (time.perf_counter() - start)
                p50, p99 = 1000 * np.percentile(found, [50, 99])
                rows[name].append([rate, p50, p99, num_errors])
                print(f"{name}: {rate:.1f}/s, p50 {p50:.0f} ms, p99 {p99:.0f} ms", flush=True)
                if name == "serve_model.py":
                    memory.append(resident_mib(server))
    finally:
        for server in servers.values():
            server.terminate()
    for name, values in rows.items():
        rate, p50, p99, _ = map(statistics.median, zip(*values, strict=True))
        num_errors = int(sum(row[-1] for row in values))
        print(f"{name:15} {rate:7.1f}/s  p50 {p50:6.0f} ms  p99 {p99:6.0f} ms  {num_errors} errors")
    pairs = zip(*rows.values(), strict=True)
    ratio = statistics.median(ours[0] / theirs[0] for ours, theirs in pairs)
    print(f"ratio {ratio:.2f}; memory of serve_model.py {memory[0]} to {memory[-1]} MiB")


if __name__ == "__main__":
    main()
