"""Sequences on disk behave like lists."""

import pytest

from bert_tf.data.disk_list import DiskList, collect

ITEMS = [("text", index) for index in range(2500)]


def test_few_items_stay_in_memory():
    assert collect(iter(ITEMS), 2500) == ITEMS
    assert collect(iter(())) == []


def test_many_items_are_on_disk():
    items = collect(iter(ITEMS), 2499)
    assert isinstance(items, DiskList)
    assert len(items) == 2500
    assert list(items) == list(items) == ITEMS
    assert [items[0], items[1024], items[-1]] == [ITEMS[0], ITEMS[1024], ITEMS[-1]]
    for part in (slice(1000, 1100), slice(2400, 9999), slice(None, None, 700), slice(3, 3)):
        assert items[part] == ITEMS[part]
    assert ITEMS[2048] in items
    with pytest.raises(IndexError):
        items[2500]


def test_iterations_do_not_disturb_each_other():
    items = DiskList(ITEMS)
    assert list(zip(items, reversed(items), strict=True)) == [*zip(ITEMS, ITEMS[::-1], strict=True)]
