"""The memory estimate, compared with the results of benchmarks/memory.py."""

import json

import pytest

from bert_tf import training
from bert_tf.config import BertConfig
from bert_tf.modeling import BertClassifier
from bert_tf.options import ClassifierOptions
from bert_tf.training.memory import estimate_training_bytes
from tests.oracle import ROOT

PARAMETERS = 109_483_778
CELLS = json.loads((ROOT / "benchmarks" / "results" / "memory.json").read_text())["cells"]


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell['row']} {cell['precision']}")
def test_estimate_matches_measurements(cell):
    use_both = cell["row"] == "both"
    estimated = estimate_training_bytes(
        BertConfig(30522),
        PARAMETERS,
        32,
        128,
        precision=cell["precision"],
        accumulation_steps=4 if use_both or "accumulation" in cell["row"] else 1,
        recompute_layers=use_both or "recompute" in cell["row"],
    )
    measured = cell["peak_bytes"] - cell["imported_bytes"]
    assert estimated == pytest.approx(measured, rel=0.1)


def test_estimate_increases_with_size():
    config = BertConfig(30522)
    base = estimate_training_bytes(config, PARAMETERS, 32, 128)
    assert estimate_training_bytes(config, PARAMETERS, 64, 128) > base
    assert estimate_training_bytes(config, PARAMETERS, 32, 512) > 4 * base
    assert estimate_training_bytes(config, 2 * PARAMETERS, 32, 128) > base


def test_training_that_exceeds_the_memory_warns(tiny, monkeypatch, run_log):
    model = BertClassifier(tiny.config, 2)
    devices = training.open_devices(ClassifierOptions())
    training.check_training(model, ClassifierOptions(), devices)
    assert "Training may fail" not in run_log.text
    monkeypatch.setattr("bert_tf.training.memory.machine_memory", lambda: 1000)
    training.check_training(model, ClassifierOptions(), devices)
    assert "0.0 GB of memory: pass --gradient_accumulation_steps=2" in run_log.text
