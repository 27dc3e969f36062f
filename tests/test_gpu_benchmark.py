"""benchmarks/gpu.py with tiny models on the CPU, and its table of ratios."""

import json

import numpy as np
import pytest

from benchmarks.gpu import make_batches, read_results
from benchmarks.gpu_rows import BARS, CONTESTANTS, Job, Row, all_jobs, select, short_jobs, summary
from tests.oracle import ROOT
from tests.processes import run_python

TRAIN, INFER = "train-base-32x128-bfloat16", "infer-base-32x128-bfloat16"


@pytest.mark.slow
def test_results_are_appended_as_json_lines(tmp_path):
    output = tmp_path / "results.jsonl"
    flags = ["--size=tiny", "--window_seconds=0.2", "--together=2", f"--output={output}"]
    rows = f"--rows={TRAIN}/bert_tf-no-xla,{INFER}/bert_tf"
    command = [ROOT / "benchmarks" / "gpu.py", *flags, rows]
    process = run_python(*command)
    assert process.returncode == 0, process.stderr
    machine, *results = map(json.loads, output.read_text().splitlines())
    assert machine["versions"]["tensorflow"]
    jobs = [Job(result["row"], result["contestant"]) for result in results]
    assert jobs == [Job(INFER, "bert_tf"), Job(TRAIN, "bert_tf-no-xla")]
    for result in results:
        assert result["seq/s"] > 0, result
        assert result["ms/step"] == pytest.approx(4000 / result["seq/s"], rel=0.05)
    assert read_results(output).keys() == {*jobs}
    assert f"| {TRAIN} |" in process.stdout

    process = run_python(*command, "--limit=0.1")
    errors = [json.loads(line) for line in output.read_text().splitlines()[-2:]]
    assert [error["error"] for error in errors] == ["over the time limit"] * 2
    assert read_results(output)[jobs[0]]["seq/s"] == results[0]["seq/s"]


def test_summary_shows_ratios_and_bars():
    speeds = {"bert_tf": 2000.0, "torch": 500.0, "torch-compile": 1250.0}
    gigabytes = {"bert_tf": 6.0, "torch": 5.0, "torch-compile": 4.0}
    results = {
        Job(TRAIN, name): {"seq/s": speeds[name], "peak GB": gigabytes[name]} for name in speeds
    }
    results[Job(TRAIN, "keras_hub")] = {"error": "not installed: keras_hub"}
    results[Job("sentence-base-16-float32", "bert_tf")] = {"ms": 2.0}
    results[Job("sentence-base-16-float32", "torch")] = {"ms": 4.0}
    loop = Job("loop-base-32x128-bfloat16", "bert_tf")
    results[loop] = {"seq/s": 1960.0, "chose XLA": True}
    lines = summary(results).splitlines()
    assert lines[2] == (
        f"| {TRAIN} | 2,000.0 seq/s | 500.0 seq/s | 1,250.0 seq/s |  | not installed |  | "
        "1.6 (bar 2.0, missed) | 1.5 (bar 1.0, missed) |"
    )
    assert "2.0 ms | 4.0 ms |" in lines[3]
    assert "| 0.5 (bar 1.0) |" in lines[3]
    assert lines[-1].endswith("| 1,960.0 seq/s, with XLA; of the bare step: 0.98 (bar 0.95) |")


def test_jobs():
    jobs = all_jobs()
    assert len({*jobs}) == len(jobs)
    assert jobs[: len(short_jobs())] == short_jobs()
    assert {job.row for job in short_jobs()} == {*BARS}
    for job in jobs:
        assert Row.parse(job.row).precision in ("float32", "tf32", "bfloat16", "float16")
    assert [job.contestant for job in select(jobs, f"{TRAIN}/*")] == list(CONTESTANTS)
    first = [Job("first-base-32x128-bfloat16", "bert_tf")] * 2
    batches = make_batches([*short_jobs()[:5], *first], together=3)
    assert [len(batch) for batch in batches] == [3, 2, 1, 1]


def test_batches_are_like_mrpc():
    row = Row.parse("train-base-32xmrpc-bfloat16")
    assert row.draw_lengths().mean() == pytest.approx(53, abs=1)
    padded = [batch["input_ids"].shape[1] for batch in row.make_batches(trim=False)]
    trimmed = [batch["input_ids"].shape[1] for batch in row.make_batches(trim=True)]
    assert {*padded} == {104}
    assert max(trimmed) == 104
    assert np.mean(trimmed) < 96


def test_flops_are_those_of_the_matrix_products():
    # The encoder of BERT-Base has 85 million weights. Each takes 2 FLOPs per token in the forward
    # pass, and 4 in the backward pass; attention adds a few percent.
    assert Row.parse(TRAIN).flops == pytest.approx(6 * 85e6 * 32 * 128, rel=0.05)
    assert Row.parse(INFER).flops == pytest.approx(2 * 85e6 * 32 * 128, rel=0.05)
