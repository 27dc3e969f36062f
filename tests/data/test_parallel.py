"""Work on all cores: order, errors, and how far it runs ahead."""

import contextlib
import threading
import time

import pytest

from bert_tf.data.parallel import chunks, map_in_order


def test_results_come_in_order():
    def slow_at_first(number):
        time.sleep(0.02 if number % 5 == 0 else 0)
        return number * number

    assert list(map_in_order(slow_at_first, range(40))) == [n * n for n in range(40)]
    assert list(map_in_order(slow_at_first, [])) == []


def test_it_runs_ahead_by_a_few_items_only():
    begun = []
    results = map_in_order(lambda item: begun.append(item), iter(range(10_000)))
    with contextlib.closing(results):
        next(results)
        time.sleep(0.1)
        assert 1 < len(begun) < 1000


def test_an_error_arrives_and_ends_the_work():
    begun = []

    def fail(number):
        begun.append(number)
        if number == 3:
            raise ValueError("the third")

    with pytest.raises(ValueError, match="the third"):
        list(map_in_order(fail, range(10_000)))
    assert len(begun) < 1000
    assert threading.active_count() < 20


def test_chunks():
    assert list(chunks([1, 2, 3, 4, 5], 2)) == [[1, 2], [3, 4], [5]]
    assert list(chunks([], 2)) == []
