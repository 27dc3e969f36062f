"""Options and errors of Apache Beam, with a fake Beam, as it is an optional dependency.

The real one runs in `tests/tasks/pretraining/test_create_data.py` and
`tests/tasks/feature_extraction/test_beam.py`.
"""

import contextlib
import os
import sys
from types import ModuleType, SimpleNamespace

import pytest

from bert_tf.base import files
from bert_tf.base.errors import UserError
from bert_tf.data.beam import convert_files, for_each_on_beam


@pytest.fixture
def beam(monkeypatch):
    """A fake Beam that records its options and fails on request."""
    recorded = SimpleNamespace(arguments=[], error=None)

    @contextlib.contextmanager
    def pipeline(options):
        recorded.arguments = options
        if recorded.error:
            raise recorded.error
        yield FakeTransform()

    module, options = ModuleType("apache_beam"), ModuleType("pipeline_options")
    for name in ("Create", "Map"):
        setattr(module, name, lambda _: FakeTransform())
    module.Reshuffle, module.Pipeline = FakeTransform, pipeline
    options.PipelineOptions = list
    monkeypatch.setitem(sys.modules, "apache_beam", module)
    monkeypatch.setitem(sys.modules, "apache_beam.options.pipeline_options", options)
    return recorded


class FakeTransform:
    """Supports `|` and `>>` on either side."""

    def __or__(self, _):
        return self

    def __rrshift__(self, _):
        return self


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        ("project=p, region=r,", ["--project=p", "--region=r"]),
        ("--project=p --labels=a,b", ["--project=p", "--labels=a,b"]),
        ("--name='two words' --streaming", ["--name=two words", "--streaming"]),
    ],
)
def test_runner_options(beam, options, arguments):
    assert list(for_each_on_beam(print, [1, 2], "DirectRunner", options)) == [1, 2]
    assert beam.arguments == ["--runner=DirectRunner", *arguments]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (SystemExit(2), "The Beam pipeline failed: 2"),
        (
            RuntimeError("bert_tf.base.errors.UserError: a.txt:3: bad [while running 'Do']"),
            "The Beam pipeline failed: a.txt:3: bad$",
        ),
        (RuntimeError(), r"The Beam pipeline failed: RuntimeError\(\)"),
    ],
)
def test_beam_errors(beam, error, message):
    beam.error = error
    with pytest.raises(UserError, match=message):
        list(for_each_on_beam(print, [1], "DirectRunner", ""))


# ---- Files ---------------------------------------------------------------------------------


def upper(shard):
    path, result = shard
    if "bad" in path:
        raise UserError(f"{path}:1: bad")
    files.write_text(result, files.read_text(path).upper())


@pytest.fixture
def convert(tmp_path):
    """Converts texts to upper case, one after the other; returns which files were not done."""
    out, calls = str(tmp_path / "out"), []

    def workers(function, shards):
        calls.append([os.path.basename(path) for path, _ in shards])
        for shard in shards:
            yield function(shard)

    def run(*names, settings=(), folder=out):
        calls.clear()
        paths = [str(tmp_path / name) for name in names]
        convert_files(upper, paths, folder, ".up", settings, workers)
        for path in paths:
            result = os.path.join(folder, f"{os.path.basename(path)}.up")
            assert files.read_text(result) == files.read_text(path).upper()
        return calls[0] if calls else []

    for name in ("a", "b", "c", "bad"):
        (tmp_path / name).write_text(name)
    return run


def test_finished_files_are_kept(convert, tmp_path):
    with pytest.raises(UserError, match="bad:1: bad"):
        convert("a", "bad", "b")
    assert sorted(os.listdir(tmp_path / "out")) == ["a.up", "shards.json"]
    assert convert("a", "b") == ["b"]
    assert convert("b", "a", "c") == ["c"]
    assert convert("a") == []
    os.remove(tmp_path / "out" / "b.up")
    (tmp_path / "b").write_text("B")  # Its result is not there, so it may change.
    assert convert("a", "b") == ["b"]


def test_results_of_other_settings_or_files_are_not_mixed(convert, tmp_path):
    convert("a", settings={"layers": (1, 2)})
    assert convert("a", "b", settings={"layers": (1, 2)}) == ["b"]
    with pytest.raises(UserError, match=r"out has results of another model or other flags: pass"):
        convert("a", "c", settings={"layers": (1, 3)})
    (tmp_path / "b").write_text("longer")
    with pytest.raises(UserError, match=r"results of other input files \(b\.up\)"):
        convert("a", "b", settings={"layers": (1, 2)})
    assert convert("a", "c", settings={"layers": (1, 2)}) == ["c"]
    with pytest.raises(UserError, match="results of another model"):
        convert("bad", settings={"layers": (1, 3)})
    os.remove(tmp_path / "out" / "shards.json")  # Now nobody knows how they were made.
    with pytest.raises(UserError, match="results of another model"):
        convert("a", settings={"layers": (1, 2)})


def test_invalid_folders(convert, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a").write_text("a")
    with pytest.raises(UserError, match=r"2 files would be written to a\.up: rename"):
        convert("a", "sub/a")
    with pytest.raises(UserError, match="c must be a folder, but is a file"):
        convert("a", folder=str(tmp_path / "c"))


def test_files_that_workers_cannot_write(tmp_path):
    (tmp_path / "a").write_text("a")
    with pytest.raises(UserError, match=r"a\.up was not written: can workers write"):
        convert_files(upper, [f"{tmp_path}/a"], f"{tmp_path}/out", ".up", 0, lambda *_: [])
