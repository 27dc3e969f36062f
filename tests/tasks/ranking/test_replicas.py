"""Training does not depend on the number of devices and micro-batches."""

import json
import random

import numpy as np
import pytest

from tests.conftest import WORDS
from tests.training.runs import Runs

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["pointwise", "listwise"])
def runs(request, tiny, tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp(request.param), random.Random(0)
    text = lambda: " ".join(rng.choices(WORDS, k=rng.randint(2, 9)))  # noqa: E731
    with open(folder / "train.jsonl", "w") as file:
        for _ in range(24):
            file.write(json.dumps({"a": text(), "b": text()}) + "\n")
    flags = {"anchor_column": "a", "positive_column": "b", "loss": request.param}
    flags |= {"train_batch_size": 8, "num_train_epochs": 2, "num_negatives": 3}
    flags |= {"vocab_file": tiny.flags["vocab_file"], "max_seq_length": 24, "do_train": "true"}
    found = Runs("run_ranking", tiny, folder, **flags, train_file=folder / "train.jsonl")
    found.run(found.make_command("one_device"))
    return found


@pytest.mark.parametrize(("devices", "micro_batches"), [(2, 1), (1, 4)])
def test_any_split_of_the_batch_gives_the_same_steps(runs, devices, micro_batches):
    name = f"run_{devices}_{micro_batches}"
    strategy = {"distribution_strategy": "mirrored"} if devices > 1 else {}
    settings = {**strategy, "gradient_accumulation_steps": micro_batches}
    runs.run(runs.make_command(name, devices, **settings))
    expected, actual = runs.step_metrics("one_device"), runs.step_metrics(name)
    assert expected.shape == actual.shape == (6, 2)
    # The gradients of this model's equal scores are small differences of large terms.
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
    assert (expected[:, 1] > 0.001).all()
