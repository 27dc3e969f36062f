"""Signals and system errors in scripts: one message, an exit code, no temporary files."""

import os
import signal
import subprocess
import sys
import time

import pytest

from bert_tf import scripts
from bert_tf.base.errors import log
from bert_tf.base.signals import SIGNALS
from tests.oracle import ROOT

posix_only = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals and limits")

# Runs a script that sends itself a signal when it imports a module.
_SIGNAL_ON_IMPORT = """
import os, runpy, sys
script, module, signum, *flags = sys.argv[1:]
class Finder:
    def find_spec(self, name, *rest):
        if name == module:
            os.kill(os.getpid(), int(signum))
sys.meta_path.insert(0, Finder())
sys.argv = [script, *flags]
sys.path.insert(0, os.path.dirname(script))
runpy.run_path(script, run_name="__main__")
"""
# Runs a script with SIGINT ignored, as in the background (`&`) of a shell script.
_IGNORE_INTERRUPT = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
# Runs a script with a resource limit.
_SET_LIMIT = """
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
    stdout, stderr = process.communicate()
    return process.returncode, stdout + stderr


@posix_only
@pytest.mark.parametrize(
    ("signum", "stderr", "code"),
    [
        (signal.SIGINT, "Interrupted.\n", 130),
        (signal.SIGTERM, "Terminated.\n", 143),
        (signal.SIGHUP, "Terminated.\n", 129),
    ],
)
@pytest.mark.parametrize("module", ["absl", "tensorflow"])
def test_signals_during_import(tmp_path, module, signum, stderr, code):
    flags = ["--input_file=README.md", f"--output_file={tmp_path / 'vocab.txt'}"]
    script = ROOT / "create_vocab.py"
    assert _run("-c", _SIGNAL_ON_IMPORT, script, module, int(signum), *flags) == (code, stderr)


@posix_only
@pytest.mark.parametrize("stderr", ["&-", "/dev/full"])
def test_unwritable_stderr_does_not_end_a_script(tmp_path, stderr):
    if not os.path.exists(stderr) and stderr.startswith("/"):
        pytest.skip(f"needs {stderr}")
    output = tmp_path / "vocab.txt"
    flags = f"--input_file=README.md --output_file={output} --vocab_size=300"
    command = f"exec {sys.executable} create_vocab.py {flags} 2>{stderr}"
    subprocess.run(["sh", "-c", command], cwd=ROOT, check=True)
    assert output.exists()


def test_import_leaves_signal_handlers_unchanged():
    code = (
        "import signal, bert_tf, bert_tf.options.cli, run_classifier\n"
        "print(signal.getsignal(signal.SIGINT) is signal.default_int_handler, "
        "signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)"
    )
    assert _run("-c", code) == (0, "True True\n")


def _wait_for(path):
    deadline = time.monotonic() + 600
    while not list(path.parent.glob(path.name)):
        assert time.monotonic() < deadline, f"{path} was not created"
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
    # More than one batch: the script writes some results and waits for more input.
    process.stdin.write("good\n" * 5000)
    process.stdin.flush()
    _wait_for(tmp_path / "out.jsonl*.tmp")
    process.terminate()
    _, stderr = process.communicate()
    assert process.returncode == 143
    assert stderr.splitlines()[-1] == "Terminated."
    assert "Traceback" not in stderr
    assert list(tmp_path.iterdir()) == []


def _start_workers(tiny, tmp_path, dupe_factor, prefix=()):
    """Starts two workers that create records, and waits for their first file."""
    text = "\n\n".join("the film was good\nit was not bad" for _ in range(2000))
    (tmp_path / "in.txt").write_text(text)
    process = _start(
        *prefix,
        "create_pretraining_data.py",
        f"--vocab_file={tiny.flags['vocab_file']}",
        f"--input_file={tmp_path / 'in.txt'}",
        f"--output_file={tmp_path / 'out'}",
        "--num_workers=2",
        "--shard_mb=0.002",
        f"--dupe_factor={dupe_factor}",
        "--max_predictions_per_seq=20",
        start_new_session=True,
    )
    _wait_for(tmp_path / "out.parts" / "*.tfrecord*.tmp")
    return process


@posix_only
def test_workers_of_a_background_program_ignore_ctrl_c(tiny, tmp_path):
    process = _start_workers(tiny, tmp_path, 5, prefix=("-c", _IGNORE_INTERRUPT))
    os.killpg(process.pid, signal.SIGINT)
    process.communicate()
    assert process.returncode == 0
    assert (tmp_path / "out").is_file()


@posix_only
@pytest.mark.parametrize("to_group", [False, True])
def test_interrupted_workers_keep_their_shards(tiny, tmp_path, to_group):
    process = _start_workers(tiny, tmp_path, dupe_factor=200)
    # Ctrl-C in a terminal signals the process group; `kill` sends SIGTERM to one process.
    (os.killpg if to_group else os.kill)(process.pid, signal.SIGINT if to_group else signal.SIGTERM)
    _, stderr = process.communicate()
    assert process.returncode == (130 if to_group else 143)
    status = "Interrupted." if to_group else "Terminated."
    expected = f"{status} The same command resumes from {tmp_path / 'out.parts'}."
    # The text repeats two lines, so the script warns.
    warning, first_line, *rest = stderr.splitlines()
    assert warning.startswith("WARNING: ")
    assert first_line.startswith("Reading 1 file")
    assert rest == [expected]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "out.parts"]
    assert list(tmp_path.glob("out.parts/*.tmp")) == []
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


@posix_only
def test_out_of_memory_prints_one_error(tiny, tmp_path):
    flags = [f"--input_file={ROOT / 'README.md'}", f"--output_file={tmp_path / 'vocab.txt'}"]
    code, stderr = _run("-c", _SET_LIMIT, "RLIMIT_AS", 600_000_000, "create_vocab.py", *flags)
    (error,) = stderr.splitlines()
    assert code == 1
    assert error.startswith("ERROR: Not enough memory")


@posix_only
@pytest.mark.parametrize("name", ["model.weights.h5", "model.keras"])
def test_full_disk_prints_one_error(tiny, tmp_path, name):
    flags = [f"--input={tiny.checkpoint}", f"--output={tmp_path / name}"]
    code, stderr = _run("-c", _SET_LIMIT, "RLIMIT_FSIZE", 9000, "convert_checkpoint.py", *flags)
    (line,) = stderr.splitlines()
    assert code == 1
    assert line.startswith("ERROR: Cannot write ")
    assert line.endswith("File too large")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("flags", [["--help"], ["--do_train"]])
def test_forgotten_environment_is_one_line(flags):
    # `-S` leaves out the packages of the environment.
    code, output = _run("-S", "run_ner.py", *flags)
    (line,) = output.splitlines()
    assert code == 1
    assert line.startswith(f"ERROR: {sys.executable} has no module absl: activate the environment")


@posix_only
def test_script_leaves_its_process_unchanged(tmp_path, monkeypatch, capsys):
    """As with `%run` in a notebook, where a second handler would repeat each message."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    (tmp_path / "in.txt").write_text("a good film\n" * 20)
    files = [f"--input_file={tmp_path / 'in.txt'}", f"--output_file={tmp_path / 'out.txt'}"]
    monkeypatch.setattr(sys, "argv", ["", *files, "--vocab_size=30", "--num_unused_tokens=2"])

    def state():
        handlers = [*log.handlers, *map(signal.getsignal, SIGNALS)]
        return dict(os.environ), handlers, log.level, log.propagate, os.listdir("/dev/fd")

    before = state()
    for _ in range(2):
        scripts.create_vocab()
        assert capsys.readouterr().err.count("Learning from 60 words (3 distinct)") == 1
    with pytest.raises(SystemExit):
        scripts.convert_checkpoint()  # sets CUDA_VISIBLE_DEVICES
    assert state() == before
