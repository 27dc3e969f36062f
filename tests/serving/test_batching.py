"""Requests that wait together are computed together; each fails alone."""

import asyncio
import threading
from types import SimpleNamespace

import pytest

from bert_tf.base.errors import Input, UserError
from bert_tf.serving.batching import Batcher, TooLarge
from bert_tf.serving.metrics import Metrics
from bert_tf.serving.options import ServingOptions


class FakeModel:
    """Returns the length of each text; records its batches, and waits until it is released."""

    name, inputs_are_independent = "fake", True

    def __init__(self):
        self.batches, self.released = [], threading.Event()
        self.kind, self.run = type("Kind", (), {"task": "fake"}), SimpleNamespace(step=0)
        self.released.set()

    def load(self):
        return self

    def costs(self, inputs):
        if "untokenizable" in inputs:
            raise KeyError("[UNK]")
        return [(len(text), min(len(text), 7)) for text in inputs]

    def reply_bytes(self, cost):
        return 100

    def __call__(self, inputs):
        self.batches.append(list(inputs))
        self.released.wait()
        if "bad" in inputs:
            raise UserError("bad", at=Input(0))
        if "crash" in inputs:
            raise RuntimeError("crash")
        return [len(text) for text in inputs]


@pytest.fixture
def start():
    batchers = []

    def start(**flags):
        batchers.append(Batcher(FakeModel(), ServingOptions(**flags), Metrics(), lambda: None))
        return batchers[-1]

    yield start
    for batcher in batchers:
        batcher.close()


async def submit_while_busy(batcher, requests):
    """Submits requests while the model computes another one; returns their jobs."""
    batcher.model.released.clear()
    first = batcher.submit(["first"])
    while not batcher.model.batches:
        await asyncio.sleep(0.001)
    jobs = [batcher.submit(inputs) for inputs in requests]
    return first, jobs


def run_while_busy(batcher, requests):
    async def run():
        first, jobs = await submit_while_busy(batcher, requests)
        batcher.model.released.set()
        results = await asyncio.gather(*(job.future for job in jobs), return_exceptions=True)
        assert await first.future == [5]
        return results

    return asyncio.run(run())


def test_waiting_requests_are_computed_together(start):
    batcher = start()
    results = run_while_busy(batcher, [["a"], ["bb", "c"], ["ddd"]])
    assert results == [[1], [2, 1], [3]]
    assert batcher.model.batches == [["first"], ["a", "bb", "ddd", "c"]]


@pytest.mark.parametrize("flags", [{}, {"max_delay_ms": 5.0}])
def test_batches_have_a_limit_and_take_one_input_of_each_request_in_turn(start, flags):
    batcher = start(max_batch_tokens=5, **flags)
    requests = [["aa"], ["bb", "cc", "dd", "e"], ["f"], ["g", "hh"]]
    assert run_while_busy(batcher, requests) == [[2], [2, 2, 2, 1], [1], [1, 2]]
    assert batcher.model.batches[1:] == [["aa", "bb", "f"], ["g", "cc", "hh"], ["dd", "e"]]


def test_request_during_the_delay_joins_the_batch(start):
    batcher = start(max_delay_ms=300.0)

    async def run():
        first, [job] = await submit_while_busy(batcher, [["a"]])
        batcher.model.released.set()
        await first.future
        later = batcher.submit(["b"])
        return await asyncio.gather(job.future, later.future)

    assert asyncio.run(run()) == [[1], [1]]
    assert batcher.model.batches == [["first"], ["a", "b"]]


def test_bad_inputs_fail_alone(start):
    good, bad, crash, last = run_while_busy(start(), [["a"], ["a", "bad"], ["crash"], ["bb"]])
    assert (good, last) == ([1], [2])
    assert isinstance(bad, UserError)
    assert str(bad) == "Input 1: bad"
    assert isinstance(crash, RuntimeError)


def test_too_large_inputs_fail_alone(start):
    good, large = run_while_busy(start(max_batch_tokens=5), [["aaaaa"], ["a", "bbbbbb"]])
    assert good == [5]
    assert isinstance(large, TooLarge)
    assert str(large) == "Input 1: 6 tokens to compute exceed --max_batch_tokens=5"


def test_tokens_are_those_that_the_model_reads(start):
    batcher = start()

    async def run():
        cut = batcher.submit(["a", "b" * 5000])
        refused = batcher.submit(["a", "b" * 5000], truncates=False)
        await cut.future
        with pytest.raises(TooLarge, match=r"^Input 1: 5000 tokens, but the model reads 7$"):
            await refused.future
        return cut.num_tokens

    assert asyncio.run(run()) == [1, 7]
    counts = batcher._metrics.tokens.labels("fake")
    assert counts._value.get() == 8
    assert len(batcher.model.batches) == 1


def test_input_that_cannot_be_tokenized_fails_alone(start):
    good, bad = run_while_busy(start(), [["a"], ["untokenizable"]])
    assert good == [1]
    assert isinstance(bad, KeyError)


def test_explanations_take_turns_with_batches(start):
    batcher = start(max_batch_tokens=5)
    batcher.model.explain = lambda text: batcher.model.batches.append(text) or f"why {text}"

    async def run():
        first, _ = await submit_while_busy(batcher, [])
        explained = [batcher.submit([x], explains=True) for x in "abc"]
        predicted = [batcher.submit([x]) for x in ("ddddd", "eeeee")]
        explained[1].future.cancel()
        batcher.model.released.set()
        jobs = [first, explained[0], explained[2], *predicted]
        results = await asyncio.gather(*(job.future for job in jobs))
        assert not batcher.explaining
        return results

    assert asyncio.run(run()) == [[5], ["why a"], ["why c"], [5], [5]]
    assert batcher.model.batches == [["first"], "a", ["ddddd"], "c", ["eeeee"]]


def test_size_of_a_reply_is_limited_before_it_is_computed(start):
    batcher = start(max_reply_bytes=200)
    good, large = run_while_busy(batcher, [["a", "b"], ["a", "b", "c"]])
    assert good == [1, 1]
    assert isinstance(large, TooLarge)
    assert "--max_reply_bytes=200" in str(large)
    assert batcher.model.batches == [["first"], ["a", "b"]]


def test_cancelled_requests_cost_nothing(start):
    batcher = start()

    async def run():
        _, jobs = await submit_while_busy(batcher, [["left"], ["stays"]])
        jobs[0].future.cancel()
        batcher.model.released.set()
        return await jobs[1].future

    assert asyncio.run(run()) == [5]
    assert batcher.model.batches == [["first"], ["stays"]]


def test_dependent_inputs_are_computed_one_by_one(start):
    batcher = start()
    batcher.model.inputs_are_independent = False
    assert run_while_busy(batcher, [["a"], ["bb"]]) == [[1], [2]]
    assert batcher.model.batches == [["first"], ["a"], ["bb"]]


def test_error_while_loading_is_kept():
    class Broken(FakeModel):
        def load(self):
            raise UserError("no weights")

    stopped = threading.Event()
    batcher = Batcher(Broken(), ServingOptions(), Metrics(), stopped.set)
    batcher.close()
    assert stopped.is_set()
    assert not batcher.is_ready
    assert str(batcher.error) == "no weights"
