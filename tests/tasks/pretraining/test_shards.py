"""Corpus shards: every document occurs once, wherever the boundaries fall."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.base.errors import UserError
from bert_tf.tasks.pretraining.sharded_data import plan, read_shards


def write_texts(folder, *texts: str) -> list[str]:
    paths = []
    for number, text in enumerate(texts):
        path = folder / f"{number}.txt"
        path.write_bytes(text.encode())
        paths.append(str(path))
    return paths


def read_all_shards(paths, shard_bytes) -> list[list[list[str]]]:
    return [shard for unit in plan(paths, shard_bytes) for shard in read_shards(unit, shard_bytes)]


def split_documents(text: str) -> list[list[str]]:
    grouped_lines: list[list[str]] = [[]]
    for line in text.split("\n"):
        line = line.replace("\r", "").strip()
        if line:
            grouped_lines[-1].append(line)
        else:
            grouped_lines.append([])
    return [document for document in grouped_lines if document]


LINES = st.sampled_from(["", "", " ", "\r", "a", "Two words", "naïve 北京", "x" * 30, "a\rb"])


@given(st.lists(LINES, max_size=40), st.integers(20, 200), st.sampled_from(["", "\n"]))
def test_every_document_is_in_exactly_one_shard(tmp_path_factory, lines, shard_bytes, end):
    text = "\n".join(lines) + end
    paths = write_texts(tmp_path_factory.mktemp("corpus"), text)
    # A document may be up to eight times as long as a shard.
    all_shards = read_all_shards(paths, max(shard_bytes, len(text.encode()) // 8 + 1))
    assert [document for shard in all_shards for document in shard] == split_documents(text)


def test_shard_boundaries_at_every_byte(tmp_path):
    text = "one\ntwo\n\nthree\n\n\nfour\nfive\n\n" * 3
    paths = write_texts(tmp_path, text)
    for shard_bytes in range(4, len(text) + 2):
        all_shards = read_all_shards(paths, shard_bytes)
        assert [document for shard in all_shards for document in shard] == split_documents(text)
    assert len(read_all_shards(paths, 20)) > 3


def test_small_files_share_a_unit_but_stay_separate(tmp_path):
    paths = write_texts(tmp_path, "a\nb", "c", "\nd\n\ne", "", "f" * 50)
    units = plan(paths, 20)
    assert [[path.split("/")[-1] for path, *_ in unit.ranges] for unit in units] == [
        ["0.txt", "1.txt", "2.txt", "3.txt"],
        *[["4.txt"]] * 3,
    ]
    assert [unit.index for unit in units] == [0, 1, 2, 3]
    assert read_all_shards(paths, 20) == [[["a", "b"], ["c"], ["d"], ["e"]], [["f" * 50]]]


def test_compressed_files(tmp_path):
    text = "one\ntwo\n\nthree\n\n" * 40
    path = tmp_path / "books.txt.gz"
    path.write_bytes(gzip.compress(text.encode()))
    all_shards = read_all_shards([str(path)], 100)
    assert len(all_shards) > 3
    assert [document for shard in all_shards for document in shard] == split_documents(text)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UserError, match=r"books.txt.gz is not a complete gzip file"):
        read_all_shards([str(path)], 100)
    path.write_text("plain text")
    with pytest.raises(UserError, match=r"books.txt.gz is not a complete gzip file"):
        read_all_shards([str(path)], 100)


def test_file_without_blank_lines(tmp_path):
    paths = write_texts(tmp_path, "a line\n" * 1000)
    with pytest.raises(UserError, match=r"0\.txt: no blank line in the .* MB after byte 0"):
        read_all_shards(paths, 100)
    assert read_all_shards(paths, 10_000) == [[["a line"] * 1000]]


def test_invalid_utf8_file(tmp_path):
    path = tmp_path / "latin.txt"
    path.write_bytes(b"good\n\nbad \xe9\n")
    # Also for a shard that starts in the middle of the file.
    for size in (1000, 5):
        with pytest.raises(UserError, match=r"latin\.txt:3: the file is not UTF-8 .*iconv"):
            read_all_shards([str(path)], size)


def test_gzipped_file_without_extension_is_one_unit(tmp_path):
    path = tmp_path / "books.txt"
    path.write_bytes(gzip.compress(b"one document\n\nanother\n\n" * 20))
    documents = [document for shard in read_all_shards([str(path)], 20) for document in shard]
    assert documents == [["one document"], ["another"]] * 20
