"""Options and errors of Apache Beam, with a fake Beam, as it is an optional dependency."""

import contextlib
import sys
from types import ModuleType, SimpleNamespace

import pytest

from bert_tf.errors import UserError
from bert_tf.tasks.pretraining.create_data import for_each_on_beam


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
        ("", []),
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
        (RuntimeError("a\nbert_tf.errors.UserError: no file"), "The Beam pipeline failed: no file"),
        (RuntimeError(), r"The Beam pipeline failed: RuntimeError\(\)"),
    ],
)
def test_beam_errors(beam, error, message):
    beam.error = error
    with pytest.raises(UserError, match=message):
        list(for_each_on_beam(print, [1], "DirectRunner", ""))
