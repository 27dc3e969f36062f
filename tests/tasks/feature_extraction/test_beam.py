"""A corpus on Apache Beam's direct runner, with two worker processes, equals one process."""

import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bert_tf.base.errors import UserError
from bert_tf.options import ExtractionOptions
from bert_tf.tasks import extraction
from tests.conftest import WORDS
from tests.oracle import ROOT

BEAM = {
    "beam_runner": "DirectRunner",
    "beam_options": "direct_num_workers=2,direct_running_mode=multi_processing",
}


@pytest.fixture
def options(tiny_of_two_layers, tmp_path):
    """Options for a corpus of four files, which differ in length."""
    tiny = tiny_of_two_layers
    for index in range(4):
        lines = [" ".join(WORDS[: 1 + (7 * index + n) % 20]) for n in range(200 + 50 * index)]
        (tmp_path / f"{index}.txt").write_text("\n".join(lines) + "\n")
    return ExtractionOptions(
        vocab_file=tiny.flags["vocab_file"],
        bert_config_file=tiny.flags["bert_config_file"],
        init_checkpoint=tiny.checkpoint,
        input_file=f"{tmp_path}/*.txt",
        output_file=f"{tmp_path}/out",
        output_format="npz",
        pooling="mean",
        layers="-1",
        max_seq_length=16,
        **BEAM,
    )


def read(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.npz"))}


def extract_in_one_process(options, folder) -> dict[str, bytes]:
    (folder / "one").mkdir()
    one = dataclasses.replace(options, beam_runner=None, beam_options=None)
    for path in sorted(folder.glob("*.txt")):
        output = f"{folder}/one/{path.name}.npz"
        extraction.run(dataclasses.replace(one, input_file=str(path), output_file=output))
    return read(folder / "one")


@pytest.mark.slow
def test_two_workers_equal_one_process(options, tmp_path):
    pytest.importorskip("apache_beam")
    (tmp_path / "empty.txt").touch()  # as of a worker that had nothing to write
    extraction.run(options)
    (tmp_path / "empty.txt").unlink()
    assert len(read(tmp_path / "out")) == 4
    assert read(tmp_path / "out") == extract_in_one_process(options, tmp_path)
    # A second run does nothing, and one with another file only that.
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.npz")}
    (tmp_path / "4.txt").write_text("the film\n")
    extraction.run(options)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert (tmp_path / "out" / "4.txt.npz").exists()
    with pytest.raises(UserError, match="results of another model or other flags"):
        extraction.run(dataclasses.replace(options, layers="0"))


@pytest.mark.slow
def test_bad_row_is_named(options, tmp_path):
    pytest.importorskip("apache_beam")
    with open(tmp_path / "2.txt", "ab") as file:
        file.write(b"bad \xff row\n")
    with pytest.raises(UserError, match=r"pipeline failed: \S+/2\.txt:301: the file is not UTF-8"):
        extraction.run(options)
    assert "2.txt.npz" not in read(tmp_path / "out")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_killed_worker(options, tmp_path):
    """The direct runner alone would wait for the worker without end."""
    pytest.importorskip("apache_beam")
    for path in tmp_path.glob("*.txt"):
        path.write_text(path.read_text() * 40)
    flags = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
    names = ("vocab_file", "bert_config_file", "init_checkpoint", "input_file", "output_file")
    names += ("output_format", "pooling", "layers", "max_seq_length", *BEAM)
    command = [sys.executable, str(ROOT / "extract_features.py")]
    command += [f"--{name}={flags[name]}" for name in names]
    with open(tmp_path / "log", "w") as file:  # A pipe that nobody reads would block Beam.
        process = subprocess.Popen(command, stderr=file)
    while process.poll() is None and not read(tmp_path / "out"):
        time.sleep(0.01)
    shells = children(process.pid)
    workers = [pid for shell in shells for pid in children(shell) or [shell]]
    assert len(workers) == 2
    os.kill(workers[0], signal.SIGKILL)
    assert process.wait() == 1
    last_line = (tmp_path / "log").read_text().strip().splitlines()[-1]
    assert last_line.startswith("ERROR: The Beam pipeline failed: a worker process was killed")
    finished = read(tmp_path / "out")
    assert 1 <= len(finished) <= 4
    extraction.run(options)
    assert read(tmp_path / "out") == extract_in_one_process(options, tmp_path)


def children(pid: int) -> list[int]:
    threads = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for thread in threads for child in thread.read_text().split()]


def test_beam_options_need_a_runner(options):
    with pytest.raises(UserError, match="--beam_options needs --beam_runner"):
        dataclasses.replace(options, beam_runner=None).check()


def test_wrong_flags_are_found_before_the_pipeline(options, tmp_path):
    with pytest.raises(UserError, match="--layers: there is no layer 5"):
        extraction.run(dataclasses.replace(options, layers="5"))
    for path in tmp_path.glob("*.txt"):
        path.write_text("")
    with pytest.raises(UserError, match="contains no text"):
        extraction.run(options)
    assert not (tmp_path / "out").exists()
