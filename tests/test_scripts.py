"""Signals and system errors in scripts: one message, an exit code and no leftover files."""

import os
import signal
import subprocess
import sys
import time

import pytest

from bert_tf.checkpoints.formats.safetensors_files import SafetensorsReader
from bert_tf.errors import UserError
from tests.oracle import ROOT

posix_only = pytest.mark.skipif(os.name != "posix", reason="signals and limits of POSIX")

# Sends a signal to the process when it imports a module.
_INTERRUPTED = """
import os, runpy, sys
script, module, number, *flags = sys.argv[1:]
class Finder:
    def find_spec(self, name, *rest):
        if name == module:
            os.kill(os.getpid(), int(number))
sys.meta_path.insert(0, Finder())
sys.argv = [script, *flags]
sys.path.insert(0, os.path.dirname(script))
runpy.run_path(script, run_name="__main__")
"""
# Runs a script with a resource limit.
_LIMITED = """
import os, resource, sys
resource.setrlimit(getattr(resource, sys.argv[1]), (int(sys.argv[2]),) * 2)
os.execv(sys.executable, [sys.executable, *sys.argv[3:]])
"""


def _start(*arguments, **kwargs):
    command = [sys.executable, *map(str, arguments)]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kwargs
    )


def _run(*arguments):
    process = _start(*arguments)
    output, errors = process.communicate()
    return process.returncode, output + errors


@posix_only
@pytest.mark.parametrize(
    ("number", "stderr", "code"),
    [(signal.SIGINT, "Interrupted.\n", 130), (signal.SIGTERM, "Terminated.\n", 143)],
)
@pytest.mark.parametrize("module", ["absl", "tensorflow"])
def test_signals_during_import(tmp_path, module, number, stderr, code):
    flags = ["--input_file=README.md", f"--output_file={tmp_path / 'vocab.txt'}"]
    script = ROOT / "create_vocab.py"
    assert _run("-c", _INTERRUPTED, script, module, int(number), *flags) == (code, stderr)


def test_import_leaves_signal_handlers_unchanged():
    code = (
        "import signal, bert_tf, bert_tf.cli, run_classifier\n"
        "print(signal.getsignal(signal.SIGINT) is signal.default_int_handler, "
        "signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)"
    )
    assert _run("-c", code) == (0, "True True\n")


def _wait_for(path):
    end = time.monotonic() + 120
    while not list(path.parent.glob(path.name)):
        assert time.monotonic() < end, f"{path} does not appear"
        time.sleep(0.05)


@posix_only
def test_sigterm_removes_the_temporary_file(tiny, tmp_path):
    process = _start(
        "extract_features.py",
        *(f"--{flag}={value}" for flag, value in tiny.flags.items() if "train" not in flag),
        f"--init_checkpoint={tiny.checkpoint}",
        "--layers=-1",
        "--input_file=-",
        f"--output_file={tmp_path / 'out.jsonl'}",
        stdin=subprocess.PIPE,
    )
    # More texts than one batch: the script writes some and waits for the rest.
    process.stdin.write("good\n" * 5000)
    process.stdin.flush()
    _wait_for(tmp_path / "out.jsonl*.tmp")
    process.terminate()
    _, errors = process.communicate()
    assert process.returncode == 143
    assert errors.splitlines()[-1] == "Terminated."
    assert "Traceback" not in errors
    assert list(tmp_path.iterdir()) == []


@posix_only
@pytest.mark.parametrize("to_all", [False, True])
def test_interrupted_workers_exit_and_keep_their_shards(tiny, tmp_path, to_all):
    text = "\n\n".join("the film was good\nit was not bad" for _ in range(2000))
    (tmp_path / "in.txt").write_text(text)
    process = _start(
        "create_pretraining_data.py",
        f"--vocab_file={tiny.flags['vocab_file']}",
        f"--input_file={tmp_path / 'in.txt'}",
        f"--output_file={tmp_path / 'out'}",
        "--num_workers=2",
        "--shard_mb=0.002",
        "--dupe_factor=200",
        "--max_predictions_per_seq=20",
        start_new_session=True,
    )
    _wait_for(tmp_path / "out.parts" / "*.tfrecord*.tmp")
    # Ctrl-C in a terminal signals all processes; `kill` sends SIGTERM to one.
    (os.killpg if to_all else os.kill)(process.pid, signal.SIGINT if to_all else signal.SIGTERM)
    _, errors = process.communicate()
    assert process.returncode == (130 if to_all else 143)
    outcome = "Interrupted." if to_all else "Terminated."
    resumes = f"{outcome} The same command resumes from {tmp_path / 'out.parts'}."
    assert errors.splitlines()[1:] == [resumes]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "out.parts"]
    assert list(tmp_path.glob("out.parts/*.tmp")) == []
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


@posix_only
def test_out_of_address_space_prints_one_error(tiny, tmp_path):
    flags = [f"--input_file={ROOT / 'README.md'}", f"--output_file={tmp_path / 'vocab.txt'}"]
    code, stderr = _run("-c", _LIMITED, "RLIMIT_AS", 600_000_000, "create_vocab.py", *flags)
    (error,) = stderr.splitlines()
    assert code == 1
    assert error.startswith("ERROR: Not enough memory: free some, raise a limit (ulimit -v), or ")


@posix_only
@pytest.mark.parametrize("name", ["model.weights.h5", "model.keras"])
def test_full_disk_while_writing_keras_files_prints_one_error(tiny, tmp_path, name):
    flags = [f"--input={tiny.checkpoint}", f"--output={tmp_path / name}"]
    code, stderr = _run("-c", _LIMITED, "RLIMIT_FSIZE", 9000, "convert_checkpoint.py", *flags)
    (line,) = stderr.splitlines()
    assert code == 1
    assert line.startswith("ERROR: Cannot write ")
    assert line.endswith("File too large")
    assert list(tmp_path.iterdir()) == []


@posix_only
def test_pipe_instead_of_tensors_is_rejected(tmp_path):
    os.mkfifo(tmp_path / "model.safetensors")
    with pytest.raises(UserError, match=r"model\.safetensors is a pipe or a device: write its con"):
        SafetensorsReader(str(tmp_path / "model.safetensors"))
