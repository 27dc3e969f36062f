"""Progress bars of the scripts."""

import io
import sys
from types import SimpleNamespace

import pytest

from bert_tf import progress
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
    assert not any("<" in text for text in updates if "throughput unknown" in text)
    last = updates[-1]
    assert "train: 6/6" in last
    # Two steps in three seconds: throughput excludes the first two steps.
    assert "loss 0.6250, lr 5.00e-05, 5.3 seq/s, 800 tok/s" in last
    assert "00:00<00:00" in last


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


def test_no_table_outside_of_notebooks(monkeypatch, displayed):
    monkeypatch.delitem(sys.modules, "IPython")
    progress.show_table(["step"], [(5,)])
    assert not displayed
