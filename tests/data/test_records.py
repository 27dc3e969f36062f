"""TFRecord files: the original's records, the declaration, and the order of batches."""

import os
import re

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.data.records import (
    Feature,
    Replicas,
    count_records,
    parse,
    read_dataset,
    sequence_features,
    write_records,
)
from bert_tf.errors import UserError
from tests.data import CONVERSIONS
from tests.oracle import golden

IDS = (Feature("id"),)
MIXED = (
    Feature("ids", 3),
    Feature("weights", 2, "float32"),
    Feature("label"),
    Feature("score", (), "float32"),
)
ROW = {"ids": [1, 2, 3], "weights": [0.5, 1.0], "label": 4, "score": -2.5}


def classifier_features(max_seq_length: int) -> tuple[Feature, ...]:
    return (*sequence_features(max_seq_length), Feature("label_ids"), Feature("is_real_example"))


def raw_records(path) -> list[bytes]:
    return list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())


@pytest.fixture
def hundred(tmp_path) -> str:
    """A file with the numbers from 0 to 99."""
    path = str(tmp_path / "hundred.tf_record")
    write_records(path, IDS, ({"id": i} for i in range(100)))
    return path


def ids(dataset) -> list[list[int]]:
    return [batch["id"].numpy().tolist() for batch in dataset]


def joined(batches: list[list[int]]) -> list[int]:
    return [i for batch in batches for i in batch]


# ---- Against the original's files ----------------------------------------------------------


@pytest.mark.parametrize("name", CONVERSIONS)
def test_records_are_those_of_the_original(tmp_path, name):
    original = golden(f"classifier/tfrecord/{name}.tf_record")
    arrays = dict(np.load(golden(f"classifier/tfrecord/{name}.npz"), allow_pickle=False))
    features = classifier_features(arrays["input_ids"].shape[1])
    count = len(arrays["input_ids"])
    path = str(tmp_path / "ours.tf_record")

    rows = ({key: arrays[key][i] for key in arrays} for i in range(count))
    assert write_records(path, features, rows) == count

    # The original's map entries have no fixed order: compare both in one order.
    ours, theirs = raw_records(path), raw_records(original)
    assert len(ours) == len(theirs) == count
    for mine, other in zip(ours, theirs, strict=True):
        assert mine == tf.train.Example.FromString(other).SerializeToString(deterministic=True)
    for file in (path, str(original)):
        parsed = next(iter(read_dataset(file, features, batch_size=count)))
        assert set(parsed) == set(arrays)
        for key, tensor in parsed.items():
            assert tensor.dtype == tf.int32
            np.testing.assert_array_equal(tensor, arrays[key], key)


# ---- The declaration -----------------------------------------------------------------------


def test_what_is_written_is_what_is_parsed(tmp_path):
    path = str(tmp_path / "mixed.tf_record")
    other = {
        "ids": np.array([7, -8, 2**31 - 1]),
        "weights": np.array([1.0, 0.25], np.float16),
        "label": [True],
        "score": 3,
    }
    assert write_records(path, MIXED, [ROW, other]) == 2
    (batch,) = read_dataset(path, MIXED, batch_size=8)
    found = {key: (tensor.dtype.name, tensor.numpy().tolist()) for key, tensor in batch.items()}
    assert found == {
        "ids": ("int32", [[1, 2, 3], [7, -8, 2**31 - 1]]),
        "weights": ("float32", [[0.5, 1.0], [1.0, 0.25]]),
        "label": ("int32", [4, 1]),
        "score": ("float32", [-2.5, 3.0]),
    }


def test_shapes_are_known_before_a_record_is_read(hundred):
    dataset = read_dataset(hundred, MIXED, 4, drop_remainder=True)
    shapes = {key: spec.shape.as_list() for key, spec in dataset.element_spec.items()}
    assert shapes == {"ids": [4, 3], "weights": [4, 2], "label": [4], "score": [4]}


def test_the_same_rows_give_the_same_bytes(tmp_path):
    paths = [tmp_path / "one", tmp_path / "two"]
    write_records(str(paths[0]), MIXED, [ROW] * 5)
    write_records(str(paths[1]), MIXED[::-1], [dict(reversed(ROW.items()))] * 5)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert paths[0].stat().st_size > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": None}, "Row 1 lacks ['label']"),
        ({"extra": 1}, "has beyond them ['extra']"),
        (
            {"ids": [1, 2]},
            "Feature 'ids' is declared with shape (3,). Received: shape (2,) in row 1",
        ),
        ({"ids": [[1, 2, 3]]}, "Received: shape (1, 3) in row 1"),
        ({"ids": 1}, "Received: shape () in row 1"),
        ({"label": [1, 2]}, "Feature 'label' is declared with shape (). Received: shape (2,)"),
        ({"label": []}, "Received: shape (0,)"),
        (
            {"ids": [1.0, 2.0, 3.0]},
            "Feature 'ids' is declared as int64. Received: float64 in row 1",
        ),
        ({"label": "yes"}, "Feature 'label' is declared as int64. Received: <U3"),
        ({"score": "high"}, "Feature 'score' is declared as float32"),
        ({"label": 2**31}, "Feature 'label' does not fit into int32 in row 1"),
        ({"ids": [0, -(2**31) - 1, 0]}, "Feature 'ids' does not fit into int32"),
    ],
)
def test_rows_that_do_not_fit_the_declaration(tmp_path, change, message):
    path = tmp_path / "mixed.tf_record"
    path.write_bytes(b"the file before")
    row = {key: value for key, value in {**ROW, **change}.items() if value is not None}
    with pytest.raises(ValueError, match=re.escape(message)):
        write_records(str(path), MIXED, [ROW, row])
    assert path.read_bytes() == b"the file before"
    assert os.listdir(tmp_path) == ["mixed.tf_record"]


@pytest.mark.parametrize(("length", "dtype"), [(0, "int64"), (-1, "int64"), (None, "int32")])
def test_declarations_that_make_no_sense(length, dtype):
    with pytest.raises(ValueError, match="'x'"):
        Feature("x", length, dtype)


def test_a_folder_that_is_not_there(tmp_path):
    path = str(tmp_path / "missing" / "train.tf_record")
    with pytest.raises(UserError, match=re.escape(f"Cannot write {path}: ")):
        write_records(path, IDS, [{"id": 1}])


# ---- Parsing -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "features",
    [(Feature("other"),), (Feature("id", 2),), (Feature("id", None, "float32"),)],
    ids=["missing", "another length", "another type"],
)
def test_records_that_were_written_otherwise_are_refused(hundred, features):
    with pytest.raises(tf.errors.InvalidArgumentError):
        list(read_dataset(hundred, features, 8))


def test_one_bad_record_in_a_batch_is_not_passed_over():
    good = tf.train.Example()
    good.features.feature["id"].int64_list.value.append(3)
    serialized = good.SerializeToString()
    assert parse(IDS)(tf.constant([serialized] * 2))["id"].numpy().tolist() == [3, 3]
    with pytest.raises(tf.errors.InvalidArgumentError):
        parse(IDS)(tf.constant([serialized, b"no example"]))


# ---- Order ---------------------------------------------------------------------------------


def test_without_a_seed_the_order_is_that_of_the_file(hundred):
    batches = ids(read_dataset(hundred, IDS, 32))
    assert [len(batch) for batch in batches] == [32, 32, 32, 4]
    assert joined(batches) == list(range(100))
    assert [len(batch) for batch in ids(read_dataset(hundred, IDS, 32, drop_remainder=True))] == [
        32
    ] * 3


def test_several_files_are_read_one_after_the_other(hundred, tmp_path):
    second = str(tmp_path / "second.tf_record")
    write_records(second, IDS, [{"id": 7}, {"id": 8}])
    assert ids(read_dataset([second, hundred], IDS, 4))[0] == [7, 8, 0, 1]
    shuffled = joined(ids(read_dataset([second, hundred], IDS, 50, shuffle_seed=0)))
    assert sorted(shuffled) == sorted([7, 8, *range(100)])


def test_batches_cross_the_borders_of_epochs(hundred):
    batches = ids(read_dataset(hundred, IDS, 32, repeat=True, drop_remainder=True).take(5))
    assert batches[3] == [96, 97, 98, 99, *range(28)]
    assert [len(batch) for batch in batches] == [32] * 5


def test_each_epoch_has_every_record_once_in_a_new_order(hundred):
    batches = ids(read_dataset(hundred, IDS, 32, shuffle_seed=1, repeat=True).take(25))
    order = joined(batches)
    epochs = [tuple(order[i * 100 : i * 100 + 100]) for i in range(8)]
    assert all(sorted(epoch) == list(range(100)) for epoch in epochs)
    assert len({tuple(range(100)), *epochs}) == 9


def test_shuffling_reaches_over_the_whole_file(tmp_path):
    path = str(tmp_path / "long.tf_record")
    write_records(path, IDS, ({"id": i} for i in range(3000)))
    for num_records in (None, 3000):
        dataset = read_dataset(path, IDS, 100, shuffle_seed=3, num_records=num_records)
        first = ids(dataset.take(1))[0]
        # In a window of 100, as in the original, no number beyond 199 could come here.
        assert max(first) > 2000
        assert min(first) < 1000


def test_the_seed_decides_the_order(hundred):
    orders = [joined(ids(read_dataset(hundred, IDS, 8, shuffle_seed=seed))) for seed in (1, 1, 2)]
    assert orders[0] == orders[1]
    assert orders[0] != orders[2]
    large = joined(ids(read_dataset(hundred, IDS, 8, shuffle_seed=2**40)))
    assert sorted(large) == list(range(100))


def test_iterating_again_and_going_on_give_the_same_batches(hundred):
    dataset = read_dataset(hundred, IDS, 32, shuffle_seed=5, repeat=True)
    once = ids(dataset.take(10))
    assert ids(dataset.take(10)) == once
    assert ids(dataset.skip(6).take(4)) == once[6:]


def test_a_shuffled_set_ends_when_it_is_not_repeated(hundred):
    batches = ids(read_dataset(hundred, IDS, 32, shuffle_seed=5))
    assert [len(batch) for batch in batches] == [32, 32, 32, 4]


# ---- Files that are not as they should be --------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 9000])
def test_records_are_counted(tmp_path, count):
    path = str(tmp_path / "some.tf_record")
    assert write_records(path, IDS, ({"id": i} for i in range(count))) == count
    assert count_records(path) == count


def test_a_file_that_was_cut_off_is_not_counted(hundred):
    os.truncate(hundred, os.path.getsize(hundred) - 5)
    with pytest.raises(UserError, match=re.escape(hundred) + " is not a complete TFRecord file"):
        count_records(hundred)
    with pytest.raises(tf.errors.DataLossError):
        list(read_dataset(hundred, IDS, 8))


def test_files_that_are_not_there(tmp_path, hundred):
    missing = str(tmp_path / "missing.tf_record")
    expected = re.escape(f"No such file: {missing}") + r".*has: hundred\.tf_record"
    with pytest.raises(UserError, match=expected):
        read_dataset([hundred, missing], IDS, 8)
    with pytest.raises(UserError, match=expected):
        count_records(missing)
    with pytest.raises(ValueError, match="no paths"):
        read_dataset([], IDS, 8)


def test_nothing_is_not_shuffled_for_ever(tmp_path):
    path = str(tmp_path / "empty.tf_record")
    write_records(path, IDS, [])
    assert ids(read_dataset(path, IDS, 8, repeat=True)) == []
    with pytest.raises(UserError, match="There are no records"):
        read_dataset(path, IDS, 8, shuffle_seed=1, repeat=True)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_parts_of_all_replicas_are_the_batch_in_order(hundred, count):
    kwargs = {"batch_size": 16, "shuffle_seed": 3, "repeat": True, "drop_remainder": True}
    whole = ids(read_dataset(hundred, IDS, **kwargs).take(20))
    parts = [
        ids(read_dataset(hundred, IDS, replicas=Replicas(first, 1, count), **kwargs).take(20))
        for first in range(count)
    ]
    for index, batch in enumerate(whole):
        assert joined([part[index] for part in parts]) == list(batch)
    sizes = {len(part[0]) for part in parts}
    assert max(sizes) - min(sizes) <= 1


def test_a_process_with_several_replicas_gives_their_parts_in_turn(hundred):
    kwargs = {"batch_size": 12, "drop_remainder": True}
    dataset = read_dataset(hundred, IDS, replicas=Replicas(2, 2, 4), **kwargs)
    assert dataset.element_spec["id"].shape == (3,)
    assert [list(part) for part in ids(dataset.take(2))] == [[6, 7, 8], [9, 10, 11]]


def test_batches_are_filled_up_with_the_last_record(hundred):
    dataset = read_dataset(hundred, IDS, 48, pad_to=50)
    assert dataset.element_spec["id"].shape == (50,)
    batches = [list(batch) for batch in ids(dataset)]
    assert batches[0] == [*range(48), 47, 47]
    assert batches[2] == [*range(96, 100), *[99] * 46]


def test_skipped_batches_are_those_of_an_earlier_run(hundred):
    kwargs = {"shuffle_seed": 3, "repeat": True}
    whole = ids(read_dataset(hundred, IDS, 32, **kwargs).take(9))
    rest = ids(read_dataset(hundred, IDS, 32, skip_batches=5, **kwargs).take(4))
    assert [list(batch) for batch in rest] == [list(batch) for batch in whole[5:]]


def test_enough_files_are_shared_out_over_the_processes(hundred, tmp_path):
    paths = [hundred]
    for first in (100, 200):
        path = str(tmp_path / f"{first}.tf_record")
        write_records(path, IDS, [{"id": first + row} for row in range(100)])
        paths.append(path)
    seen = []
    for process in range(2):
        dataset = read_dataset(
            paths, IDS, 20, replicas=Replicas(process * 2, 2, 4), shard_files=True, repeat=True
        )
        parts = ids(dataset.take(40))
        assert {len(part) for part in parts} == {5}
        seen.append(joined(parts))
    assert seen == [[*range(100), *range(200, 300)], [*range(100, 200)] * 2]
    # Fewer files than processes: by record.
    parts = ids(read_dataset(hundred, IDS, 20, replicas=Replicas(2, 2, 4), shard_files=True))
    assert joined(parts)[:12] == [*range(10, 20), 30, 31]
