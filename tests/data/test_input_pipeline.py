"""The input pipeline: order, replica batches, padding and length grouping."""

import os
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.base.errors import UserError
from bert_tf.data import input_pipeline
from bert_tf.data.features import Feature, sequence_features
from bert_tf.data.input_pipeline import read_dataset
from bert_tf.data.records import write_records
from tests.data.test_records import IDS, MIXED, id_batches

Context = tf.distribute.InputContext


def batch_ids(dataset) -> list[list[int]]:
    return [batch["id"].numpy().tolist() for batch in dataset]


def flatten(batches: list[list[int]]) -> list[int]:
    return [i for batch in batches for i in batch]


def test_dropping_the_remainder_gives_static_shapes(records_path):
    dataset = read_dataset(records_path, MIXED, 4, drop_remainder=True)
    shapes = {key: spec.shape.as_list() for key, spec in dataset.element_spec.items()}
    assert shapes == {"ids": [4, 3], "weights": [4, 2], "label": [4], "score": [4]}


# ---- Order ---------------------------------------------------------------------------------


def test_order_without_seed_is_sequential(records_path):
    batches = batch_ids(read_dataset(records_path, IDS, 32))
    assert [len(batch) for batch in batches] == [32, 32, 32, 4]
    assert flatten(batches) == list(range(100))
    assert [
        len(batch) for batch in batch_ids(read_dataset(records_path, IDS, 32, drop_remainder=True))
    ] == [32] * 3


def test_multiple_files_are_read_sequentially(records_path, tmp_path):
    second = str(tmp_path / "second.tf_record")
    write_records(second, IDS, id_batches([7, 8]))
    assert batch_ids(read_dataset([second, records_path], IDS, 4))[0] == [7, 8, 0, 1]
    shuffled = flatten(batch_ids(read_dataset([second, records_path], IDS, 50, shuffle_seed=0)))
    assert sorted(shuffled) == sorted([7, 8, *range(100)])


def test_batches_span_epoch_boundaries(records_path):
    batches = batch_ids(
        read_dataset(records_path, IDS, 32, repeat=True, drop_remainder=True).take(5)
    )
    assert batches[3] == [96, 97, 98, 99, *range(28)]
    assert [len(batch) for batch in batches] == [32] * 5


def test_every_epoch_is_reshuffled(records_path):
    batches = batch_ids(read_dataset(records_path, IDS, 32, shuffle_seed=1, repeat=True).take(25))
    order = flatten(batches)
    epochs = [tuple(order[i * 100 : i * 100 + 100]) for i in range(8)]
    assert all(sorted(epoch) == list(range(100)) for epoch in epochs)
    assert len({tuple(range(100)), *epochs}) == 9


def test_shuffling_is_global(tmp_path):
    path = str(tmp_path / "long.tf_record")
    write_records(path, IDS, id_batches(range(3000)))
    for num_records in (None, 3000):
        dataset = read_dataset(path, IDS, 100, shuffle_seed=3, num_records=num_records)
        first_batch = batch_ids(dataset.take(1))[0]
        # With the original's shuffle buffer of 100, all ids would be below 200.
        assert max(first_batch) > 2000
        assert min(first_batch) < 1000


def test_seed_determines_order(records_path):
    orders = [
        flatten(batch_ids(read_dataset(records_path, IDS, 8, shuffle_seed=seed)))
        for seed in (1, 1, 2)
    ]
    assert orders[0] == orders[1]
    assert orders[0] != orders[2]
    order = flatten(batch_ids(read_dataset(records_path, IDS, 8, shuffle_seed=2**40)))
    assert sorted(order) == list(range(100))


@pytest.mark.parametrize("seed", [0, 2**31 - 1, 2**32 - 2])
def test_global_seeds_that_are_zero_for_tensorflow(records_path, seed):
    """TensorFlow reduces the global seed modulo 2^31 - 1, and treats (0, 0) as no seed."""
    try:
        tf.random.set_seed(seed)
        dataset = read_dataset(records_path, IDS, 8, shuffle_seed=0, repeat=True).take(25)
        order = flatten(batch_ids(dataset))
        assert sorted(order[:100]) == list(range(100)) != order[:100] != order[100:]
        assert flatten(batch_ids(dataset)) == order
    finally:
        tf.random.set_seed(1)


def test_seeded_dataset_is_reproducible_and_resumable(records_path):
    read = partial(read_dataset, records_path, IDS, 32, shuffle_seed=5, repeat=True)
    batches = batch_ids(read().take(10))
    assert batch_ids(read().take(10)) == batches
    assert batch_ids(read().skip(6).take(4)) == batches[6:]
    assert batch_ids(read(skip_batches=6).take(4)) == batches[6:]


@pytest.fixture
def large_files(tmp_path, monkeypatch) -> list[str]:
    """Two files with the ids 0 to 5999, which do not fit into memory."""
    paths = [str(tmp_path / "a.tf_record"), str(tmp_path / "b.tf_record")]
    write_records(paths[0], IDS, id_batches(range(5000)))
    write_records(paths[1], IDS, id_batches(range(5000, 6000)))
    monkeypatch.setattr(input_pipeline, "SHUFFLED_IN_MEMORY", 100_000)
    monkeypatch.setattr(input_pipeline, "_BUFFER_BYTES", 20_000)
    return paths


def test_large_files_are_shuffled_in_blocks(large_files):
    dataset = read_dataset(large_files, IDS, 100, shuffle_seed=3, repeat=True)
    order = flatten(batch_ids(dataset.take(180)))
    epochs = [order[start : start + 6000] for start in (0, 6000, 12000)]
    assert all(sorted(epoch) == list(range(6000)) for epoch in epochs)
    assert len({*map(tuple, epochs)}) == 3
    # Each batch has records of several blocks and of both files.
    for first in range(0, 1000, 100):
        batch = order[first : first + 100]
        assert len({i // 1024 for i in batch}) >= 4
        assert max(batch) >= 5000
    # Without a buffer, records of a block would be in order.
    block = [i for i in epochs[0] if i < 1024]
    assert sum(a > b for a, b in pairwise(block)) > 300


@pytest.mark.parametrize("skipped", [1, 59, 60, 75])
def test_large_files_are_resumable(large_files, skipped):
    kwargs = {"shuffle_seed": 5, "repeat": True}
    batches = batch_ids(read_dataset(large_files, IDS, 100, **kwargs).take(80))
    resumed = read_dataset(large_files, IDS, 100, **kwargs, skip_batches=skipped)
    assert batch_ids(resumed.take(80 - skipped)) == batches[skipped:]
    other = read_dataset(large_files, IDS, 100, shuffle_seed=6, repeat=True)
    assert batch_ids(other.take(1)) != batches[:1]


def test_files_are_large_by_their_size(large_files, monkeypatch):
    """The order of smaller files does not depend on the limit."""
    read = partial(read_dataset, large_files, IDS, 100, shuffle_seed=3)
    in_blocks, explicit = batch_ids(read()), batch_ids(read(num_records=6000))
    size = sum(map(os.path.getsize, large_files))
    monkeypatch.setattr(input_pipeline, "SHUFFLED_IN_MEMORY", size)
    assert batch_ids(read()) == explicit != in_blocks
    monkeypatch.setattr(input_pipeline, "SHUFFLED_IN_MEMORY", size - 1)
    assert batch_ids(read()) == in_blocks


def test_empty_dataset_terminates(tmp_path):
    path = str(tmp_path / "empty.tf_record")
    write_records(path, IDS, id_batches([]))
    assert batch_ids(read_dataset(path, IDS, 8, repeat=True)) == []
    with pytest.raises(UserError, match="No records in"):
        read_dataset(path, IDS, 8, shuffle_seed=1, repeat=True)


# ---- Replicas ------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_replica_batches_form_the_global_batch(records_path, count):
    kwargs = {"batch_size": 16, "shuffle_seed": 3, "repeat": True, "drop_remainder": True}
    full = batch_ids(read_dataset(records_path, IDS, **kwargs).take(20))
    parts = [
        batch_ids(
            read_dataset(records_path, IDS, context=Context(count, first, count), **kwargs).take(20)
        )
        for first in range(count)
    ]
    for index, batch in enumerate(full):
        assert flatten([part[index] for part in parts]) == list(batch)
    sizes = {len(part[0]) for part in parts}
    assert max(sizes) - min(sizes) <= 1


def test_process_combines_batches_of_its_replicas(records_path):
    kwargs = {"batch_size": 12, "drop_remainder": True}
    dataset = read_dataset(records_path, IDS, context=Context(2, 1, 4), **kwargs)
    assert dataset.element_spec["id"].shape == (3,)
    assert [list(part) for part in batch_ids(dataset.take(2))] == [[6, 7, 8], [9, 10, 11]]


def test_files_are_sharded_across_processes(records_path, tmp_path):
    paths = [records_path]
    for first in (100, 200):
        path = str(tmp_path / f"{first}.tf_record")
        write_records(path, IDS, id_batches(range(first, first + 100)))
        paths.append(path)
    ids_per_process = []
    for process in range(2):
        dataset = read_dataset(paths, IDS, 20, context=Context(2, process, 4), repeat=True)
        parts = batch_ids(dataset.take(40))
        assert {len(part) for part in parts} == {5}
        ids_per_process.append(flatten(parts))
    assert ids_per_process == [[*range(100), *range(200, 300)], [*range(100, 200)] * 2]
    # The number of records in memory stays bounded.
    flags = {"repeat": True, "shuffle_seed": 1, "num_records": 10}
    dataset = read_dataset(paths[1:], IDS, 20, context=Context(2, 0, 4), **flags)
    order = flatten(batch_ids(dataset.take(20)))
    assert sorted(order) == [*range(100, 200)]
    assert order != sorted(order)
    assert all(record < 110 + index for index, record in enumerate(order))
    # With fewer files than processes, records are sharded instead.
    parts = batch_ids(
        read_dataset(records_path, IDS, 20, context=Context(2, 1, 4), repeat=True).take(60)
    )
    assert flatten(parts)[:12] == [*range(10, 20), 30, 31]


# ---- Lengths -------------------------------------------------------------------------------

TEXTS = (*sequence_features(40), Feature("id"), Feature("other", 40))


@pytest.fixture
def texts(tmp_path) -> tuple[str, np.ndarray]:
    """A file of 1000 texts of 1 to 40 tokens, some with gaps in the mask, and their lengths."""
    rng = np.random.default_rng(3)
    lengths = rng.integers(1, 41, 1000)
    mask = (np.arange(40) < lengths[:, None]).astype(np.int32)
    # Gaps in the mask do not shorten a text.
    mask[::7, 0] = np.where(lengths[::7] > 1, 0, 1)
    batch = {
        "input_ids": mask * rng.integers(1, 100, (1000, 40)),
        "input_mask": mask,
        "segment_ids": mask,
        "id": np.arange(1000),
        "other": np.ones((1000, 40), np.int32),
    }
    path = str(tmp_path / "texts.tf_record")
    write_records(path, TEXTS, [batch])
    return path, lengths


def round_up(lengths) -> int:
    return max(8, -(-int(max(lengths)) // 8) * 8)


@pytest.mark.parametrize("group", [False, True])
def test_batches_are_trimmed_to_the_longest_text(texts, group):
    path, lengths = texts
    full = next(iter(read_dataset(path, TEXTS, 1000)))
    order = []
    for batch in read_dataset(path, TEXTS, 16, trim_padding=True, group_by_length=group):
        rows = batch["id"].numpy()
        order += rows.tolist()
        length = round_up(lengths[rows])
        for name in ("input_ids", "input_mask", "segment_ids"):
            assert batch[name].shape == (len(rows), length)
            np.testing.assert_array_equal(batch[name], full[name].numpy()[rows, :length])
            assert not full[name].numpy()[rows, length:].any()
        assert batch["other"].shape == (len(rows), 40)
    assert sorted(order) == list(range(1000))
    assert (order == list(range(1000))) == (not group)


@pytest.mark.parametrize(("length", "num_tokens", "trimmed"), [(13, 13, 13), (40, 0, 8)])
def test_trimmed_length_is_neither_0_nor_above_max_seq_length(
    tmp_path, length, num_tokens, trimmed
):
    path = str(tmp_path / "texts.tf_record")
    features = sequence_features(length)[:2]
    values = np.full((2, length), int(num_tokens > 0), np.int32)
    write_records(path, features, [{feature.name: values for feature in features}])
    (batch,) = read_dataset(path, features, 2, trim_padding=True)
    assert batch["input_ids"].shape == (2, trimmed)


def test_length_grouping_reduces_padding(texts):
    path, lengths = texts
    dataset = read_dataset(path, TEXTS, 16, trim_padding=True, group_by_length=True)
    positions = sum(batch["input_ids"].numpy().size for batch in dataset)
    # Rounding lengths up to multiples of 8 adds 3.5 on average.
    assert positions < lengths.sum() + 4.5 * 1000


def test_length_groups_are_shuffled_and_resumable(texts):
    path, lengths = texts
    kwargs = {"shuffle_seed": 3, "repeat": True, "drop_remainder": True, "trim_padding": True}

    def read_ids(skip=0, count=130, **changes):
        dataset = read_dataset(
            path, TEXTS, 16, group_by_length=True, skip_batches=skip, **(kwargs | changes)
        )
        return batch_ids(dataset.take(count))

    batches = read_ids()
    assert all(len(batch) == 16 for batch in batches)
    assert read_ids() == batches
    assert read_ids(skip=63, count=20) == batches[63:83]
    assert read_ids(shuffle_seed=4) != batches
    # Just over two epochs.
    counts = np.bincount(flatten(batches), minlength=1000)
    assert set(counts) <= {1, 2, 3}
    length_ranges = [int(np.ptp(lengths[batch])) for batch in batches]
    assert np.mean(length_ranges) < 5
    # Successive batches have unrelated lengths.
    means = [float(np.mean(lengths[batch])) for batch in batches]
    assert abs(np.corrcoef(means[:-1], means[1:])[0, 1]) < 0.4
    # A different window gives different groups.
    assert set(map(frozenset, batches[:50])).isdisjoint(map(frozenset, batches[50:100]))


def test_replicas_share_length_groups(texts):
    path, lengths = texts
    kwargs = {"trim_padding": True, "group_by_length": True, "drop_remainder": True}
    full = list(read_dataset(path, TEXTS, 16, **kwargs))
    parts = [
        list(read_dataset(path, TEXTS, 16, context=Context(2, r, 2), **kwargs)) for r in range(2)
    ]
    for batch, *replica_batches in zip(full, *parts, strict=True):
        rows = [part["id"].numpy().tolist() for part in replica_batches]
        assert batch["id"].numpy().tolist() == rows[0] + rows[1]
        for part, indices in zip(replica_batches, rows, strict=True):
            assert part["input_ids"].shape == (8, round_up(lengths[indices]))


def test_autotuning_is_disabled(records_path):
    """With autotuning, deleting an iterator may block for a minute on its thread."""
    assert read_dataset(records_path, MIXED, 8).options().autotune.enabled is False
