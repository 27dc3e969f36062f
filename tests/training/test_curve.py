"""Plots of training curves."""

import time
import warnings

import numpy as np
import pytest

from bert_tf.base import charts
from bert_tf.training.curve import metric_limits, training_figure
from tests.tasks.classification.test_plots import pixels


def plot_training_curve(*args):
    return charts.to_png(training_figure(*args))


@pytest.fixture(autouse=True)
def _fail_on_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_plot_shows_losses_and_evaluations():
    steps = np.arange(1, 301)
    losses = 1 / steps
    accuracies = [(100, 0.7), (200, 0.8), (300, float("nan"))]
    without_evaluations = plot_training_curve(steps, losses, {})
    with_evaluations = plot_training_curve(
        steps, losses, {"eval_accuracy": accuracies, "_$x$": [(300, 2.0)], "none": []}
    )
    orange, green = [0xD9, 0x69, 0x0F], [0x1B, 0x9E, 0x77]
    for color in (orange, green):
        assert (pixels(with_evaluations) == color).all(axis=-1).sum() > 50
        assert not (pixels(without_evaluations) == color).all(axis=-1).any()


@pytest.mark.parametrize(
    ("steps", "losses", "evaluations"),
    [
        ([1], [0.7], {}),
        ([1], [0.7], {"accuracy": [(1, 0.5)]}),
        ([1], [float("nan")], {"accuracy": [(1, float("inf"))]}),
        ([1, 2, 3, 4], [1.0, float("nan"), float("inf"), 2.0], {}),
        ([1, 2], [1e30, 3e38], {}),
        ([3, 1, 2, 2], [3.0, 1.0, 2.0, 2.5], {}),
        (range(10**7, 10**7 + 60), [0.5] * 60, {f"metric {n}": [(10**7, 1.0)] for n in range(15)}),
    ],
)
def test_unusual_values_are_plotted(steps, losses, evaluations):
    pixels(plot_training_curve(steps, losses, evaluations))


def test_long_runs_are_plotted_fast():
    losses = np.random.default_rng(3).normal(size=100_000)
    plot_training_curve([1], [1], {})
    start = time.process_time()
    plot_training_curve(range(100_000), losses, {})
    assert time.process_time() - start < 2


def test_single_loss_spike_stays_visible():
    losses = np.ones(100_000)
    losses[[300, 600]] = 0, 5
    before = pixels(plot_training_curve(range(100_000), losses, {}))
    losses[54_321] = 5
    after = pixels(plot_training_curve(range(100_000), losses, {}))
    assert 3 < (before != after).any(axis=-1).sum() < 2000


@pytest.mark.parametrize(
    ("values", "limits"),
    [
        ([0.2, 1.0], (0, 1)),
        ([0.0, float("nan")], (0, 1)),
        ([2.0, 80.5], (0, 100)),
        ([-0.1, 0.5], None),
        ([3.0, 250.0], None),
        ([], (0, 1)),
    ],
)
def test_axis_of_a_metric(values, limits):
    assert metric_limits(values) == limits
