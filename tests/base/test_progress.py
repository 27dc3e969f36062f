"""Progress bars and log lines of the scripts."""

import io
import logging
import os
import sys
from types import SimpleNamespace

import pytest

from bert_tf.base import progress
from bert_tf.training.curve import Scalars


class Terminal(io.StringIO):
    def isatty(self):
        return True


def make_metrics(loss):
    return {"loss": loss, "learning_rate": 5e-5, "sequences": 8.0, "tokens": 1200.0}


def test_training_bar_content(monkeypatch):
    # The clock advances one second per call.
    seconds = iter(range(10_000))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(seconds)))
    monkeypatch.setattr(progress, "_REFRESH_TERMINAL", 0.0)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    bar = progress.TrainingProgress(initial_step=2, total_steps=6)
    for step, loss in ((3, 0.9), (4, 0.8), (5, 0.7), (6, 0.625)):
        bar.update(step, make_metrics(loss))
    bar.close()
    updates = terminal.getvalue().split("\r")
    # The first steps, which take longer, give no estimate of the remaining time.
    assert not any("<" in text for text in updates if "lr" in text and "seq/s" not in text)
    last = updates[-1]
    assert "train: 6/6" in last
    # Two steps in three seconds: throughput excludes the first two steps.
    assert "loss 0.6250, lr 5.0e-05, 5.3 seq/s" in last
    assert bar.describe_throughput() == "5.3 seq/s, 800 tok/s"
    assert "00:00<00:00" in last


@pytest.mark.skipif(os.name != "posix", reason="needs pseudo-terminals")
@pytest.mark.parametrize("in_terminal", [False, True])
def test_typical_training_bar_fits_80_columns(monkeypatch, in_terminal):
    import termios

    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    for name in ("_REFRESH_TERMINAL", "_REFRESH_LOG"):
        monkeypatch.setattr(progress, name, 0.0)
    descriptor, terminal = os.openpty()
    termios.tcsetwinsize(terminal, (24, 80))
    monkeypatch.setattr(sys, "stderr", os.fdopen(terminal, "w") if in_terminal else io.StringIO())
    # A run of hours, with the highest loss that is usual.
    bar = progress.TrainingProgress(initial_step=95_000, total_steps=100_000)
    for step in range(95_001, 95_005):
        now[0] += 1
        metrics = {"loss": 10.3961, "learning_rate": 1e-4, "sequences": 1800.0, "tokens": 230400.0}
        bar.update(step, metrics)
    bar._bar.start_t -= 5000  # the clock of tqdm
    bar._bar.refresh()
    if in_terminal:
        # A terminal passes on what was written a little later, and in parts.
        os.write(terminal, b"\rEND")
        written = b""
        while not written.endswith(b"\rEND"):
            written += os.read(descriptor, 10_000)
        written = written.removesuffix(b"\rEND").decode()
    else:
        written = sys.stderr.getvalue().replace("\n", "\r")
    last = [text for text in written.split("\r") if text.strip()][-1].strip()
    bar.close()
    assert len(last) <= 80
    assert last.startswith("train: 95004/100000 |")
    assert "| 1:23:2" in last
    # tqdm would cut off the end of a line that is too long.
    assert last.endswith(", loss 10.3961, lr 1.0e-04, 1200.0 seq/s")


def test_log_lines_are_wrapped_in_terminals_only(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    path = "a-long-path/" * 7 + "model.ckpt"
    message = f"39 variables restored from {path}. Not used: " + "cls/predictions (5) " * 3
    table = "label     precision  recall\nnegative     0.4286  0.1200"

    def emit(stream, level, text):
        monkeypatch.setattr(sys, "stderr", stream)
        progress.LogHandler().emit(logging.LogRecord("", level, "", 0, text, None, None))
        return stream.getvalue().removesuffix("\n")

    lines = emit(Terminal(), logging.INFO, message).split("\n")
    # Paths remain whole, so that they can be copied.
    assert [len(line) for line in lines if path not in line and len(line) > 80] == []
    assert any(path in line for line in lines)
    assert all(line.startswith("  ") for line in lines[1:])
    assert " ".join(line.strip() for line in lines) == message.strip()
    assert emit(Terminal(), logging.INFO, table) == table
    assert emit(Terminal(), logging.WARNING, message) == f"WARNING: {message}"
    assert emit(io.StringIO(), logging.INFO, message) == message


def test_programs_without_a_console(monkeypatch, capfd):
    monkeypatch.setattr(sys, "stderr", None)
    progress.LogHandler().emit(logging.LogRecord("", logging.INFO, "", 0, "text", None, None))
    bar = progress.TrainingProgress(initial_step=0, total_steps=9)
    bar.update(3, make_metrics(0.5))
    bar.close()
    assert capfd.readouterr() == ("", "")


def test_fast_work_shows_no_bar(monkeypatch):
    log_file = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log_file)
    with progress.bar(3, "features") as bar:
        bar.update(3)
    assert log_file.getvalue() == ""


def test_log_updates_are_separate_lines(monkeypatch):
    monkeypatch.setattr(progress, "_REFRESH_LOG", 0.0)
    log_file = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log_file)
    bar = progress.TrainingProgress(initial_step=0, total_steps=4)
    for step in (1, 2, 3, 4):
        bar.update(step, make_metrics(0.5))
        print("Evaluation", file=sys.stderr)
    bar.close()
    lines = log_file.getvalue().splitlines()
    assert lines.count("Evaluation") == 4
    assert any(line.startswith("train: 4/4 |") for line in lines)
    assert "\r" not in log_file.getvalue()


def test_nested_bars_log_separate_lines(monkeypatch):
    monkeypatch.setattr(progress, "_REFRESH_LOG", 0.0)
    log_file = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log_file)
    with progress.bar(2, "train") as outer:
        outer.update(1)
        with progress.bar(3, "eval") as inner:
            inner.update(3)
    lines = log_file.getvalue().splitlines()
    assert all(line.startswith(("train: ", "eval: ")) for line in lines)
    assert len(set(lines)) == len(lines)


def test_throughput_excludes_evaluation_time(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    bar = progress.TrainingProgress(initial_step=0, total_steps=4)
    for step in (1, 2, 3, 4):
        now[0] += 1
        bar.update(step, make_metrics(0.5))
        with bar.paused():
            now[0] += 100
    # Time starts with the second step, and the first counted step is the third: two steps of eight
    # sequences in three seconds. Evaluations do not count.
    assert bar.rates()["sequences_per_second"] == 16 / 3


def test_non_finite_scalars_are_omitted(tmp_path):
    scalars = Scalars(str(tmp_path / "curves"))
    scalars.close()
    assert not (tmp_path / "curves").exists()
    scalars.write(3, {"loss": float("nan"), "learning_rate": 0.5})
    scalars.close()
    (path,) = (tmp_path / "curves").iterdir()
    assert b"learning_rate" in path.read_bytes()
    assert b"loss" not in path.read_bytes()


@pytest.fixture
def displayed(monkeypatch):
    """What a notebook displays; the program then looks as if it ran in one."""
    shell, shown = type("ZMQInteractiveShell", (), {})(), []
    display = SimpleNamespace(display=shown.append, HTML=str)
    ipython = SimpleNamespace(get_ipython=lambda: shell, display=display)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    return shown


def test_notebooks_show_one_bar_and_a_table(monkeypatch, displayed):
    monkeypatch.setattr(progress, "_REFRESH_TERMINAL", 0.0)
    monkeypatch.setattr(sys, "stderr", output := io.StringIO())
    with progress.bar(2, "train") as outer:
        outer.update(1)
        with progress.bar(3, "eval") as inner:
            inner.update(3)
        outer.update(1)
    with progress.bar(1, "predict") as other:
        other.update(1)
    assert "train: 2/2" in output.getvalue()
    assert "predict: 1/1" in output.getvalue()
    assert "eval" not in output.getvalue()
    assert "\x1b" not in output.getvalue()
    progress.show_table(["step", "loss"], [(5, 0.25), (10, 1 / 3)])
    (table,) = displayed
    assert "<tr><th>step</th><th>loss</th></tr>" in table
    assert "<tr><td>10</td><td>0.3333</td></tr>" in table


def test_interrupted_bar_keeps_the_last_step(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    bar = progress.TrainingProgress(initial_step=0, total_steps=9)
    for step in (1, 2, 3):
        bar.update(step, make_metrics(step / 10))
    bar.close()
    last = terminal.getvalue().split("\r")[-1]
    assert "train: 3/9" in last
    assert "loss 0.3000" in last
