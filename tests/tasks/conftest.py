"""For tests of tasks."""

import logging

import pytest


@pytest.fixture
def said(caplog, monkeypatch):
    """What a run says, as text."""
    monkeypatch.setattr(logging.getLogger("bert_tf"), "propagate", True)
    caplog.set_level(logging.INFO, "bert_tf")
    return caplog
