"""create_pretraining_data as a library: outputs, shards, resumption, invalid input."""

import gzip
import json
import os
import random
import sys
import threading

import pytest
import tensorflow as tf

from bert_tf.base.errors import UserError
from bert_tf.options import PretrainingDataOptions
from bert_tf.tasks.pretraining import create_data, sharded_data
from tests.base.test_files import reader_of
from tests.conftest import WORDS


@pytest.fixture
def corpus(tmp_path):
    rng = random.Random(1)
    for name in ("one.txt", "two.txt"):
        documents = []
        for _ in range(30):
            count = rng.randint(1, 6)
            lines = [" ".join(rng.choices(WORDS, k=rng.randint(3, 12))) for _ in range(count)]
            documents.append("\n".join(lines))
        (tmp_path / name).write_text("\n\n".join(documents) + "\n")
    return tmp_path


def options(tiny, corpus, **changes):
    return PretrainingDataOptions(
        **{
            "input_file": f"{corpus}/*.txt",
            "output_file": f"{corpus}/out.tfrecord",
            "vocab_file": tiny.flags["vocab_file"],
            "max_seq_length": 24,
            "max_predictions_per_seq": 4,
            "dupe_factor": 3,
            **changes,
        }
    )


def read_records(path) -> list[bytes]:
    return [record.numpy() for record in tf.data.TFRecordDataset(str(path))]


def features_of(record):
    return tf.train.Example.FromString(record).features.feature


def test_records_and_metadata(tiny, corpus):
    assert create_data.run(options(tiny, corpus)) == [f"{corpus}/out.tfrecord"]
    entries = features_of(read_records(corpus / "out.tfrecord")[0])
    lengths = {
        name: len(entries[name].int64_list.value or entries[name].float_list.value)
        for name in entries
    }
    assert lengths == {
        **dict.fromkeys(("input_ids", "input_mask", "segment_ids"), 24),
        **dict.fromkeys(("masked_lm_positions", "masked_lm_ids", "masked_lm_weights"), 4),
        "next_sentence_labels": 1,
    }
    description = json.loads((corpus / "out.tfrecord.json").read_text())
    expected = {"max_seq_length": 24, "max_predictions_per_seq": 4, "vocab_size": 19}
    assert description.items() >= expected.items()
    names = ["one.txt", "out.tfrecord", "out.tfrecord.json", "two.txt"]
    assert sorted(os.listdir(corpus)) == names


def test_examples_are_distributed_round_robin(tiny, corpus):
    create_data.run(options(tiny, corpus))
    outputs = f"{corpus}/x.tfrecord, {corpus}/y.tfrecord"
    create_data.run(options(tiny, corpus, output_file=outputs))
    all_records = read_records(corpus / "out.tfrecord")
    assert read_records(corpus / "x.tfrecord") == all_records[::2]
    assert read_records(corpus / "y.tfrecord") == all_records[1::2]


# ---- Shards --------------------------------------------------------------------------------

SHARDED = {"num_workers": 1, "shard_mb": 0.001}


def create_sharded(tiny, corpus, name, **changes) -> bytes:
    output = f"{corpus}/{name}.tfrecord"
    create_data.run(options(tiny, corpus, **{**SHARDED, "output_file": output, **changes}))
    assert not os.path.exists(f"{output}.parts")
    return (corpus / f"{name}.tfrecord").read_bytes()


def test_number_of_workers_does_not_change_the_records(tiny, corpus):
    expected = create_sharded(tiny, corpus, "one")
    assert create_sharded(tiny, corpus, "two", num_workers=2) == expected
    assert create_sharded(tiny, corpus, "other", random_seed=2) != expected
    # About as many examples as without shards.
    create_data.run(options(tiny, corpus))
    names = ("out.tfrecord", "one.tfrecord")
    num_unsharded, num_sharded = (len(read_records(corpus / name)) for name in names)
    assert abs(num_unsharded - num_sharded) < 0.1 * num_unsharded


@pytest.mark.parametrize("num_workers", [0, 1])
def test_all_tokens_can_be_masked(tiny, corpus, num_workers):
    changes = {"masked_lm_prob": 1.0, "max_predictions_per_seq": 24, "num_workers": num_workers}
    create_data.run(options(tiny, corpus, shard_mb=0.001, **changes))
    for record in read_records(corpus / "out.tfrecord"):
        features = features_of(record)
        num_tokens = sum(features["input_mask"].int64_list.value)
        # All but [CLS] and two [SEP].
        assert sum(features["masked_lm_weights"].float_list.value) == num_tokens - 3
        positions = features["masked_lm_positions"].int64_list.value[: num_tokens - 3]
        assert sorted({*positions}) == list(positions)


def test_killed_run_resumes_with_the_missing_parts(tiny, corpus, monkeypatch):
    complete = create_sharded(tiny, corpus, "whole")
    write_unit = sharded_data.write_unit
    written = []

    def write_two_units(job, folder, unit):
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(unit.index)
        write_unit(job, folder, unit)

    monkeypatch.setattr(sharded_data, "write_unit", write_two_units)
    with pytest.raises(KeyboardInterrupt):
        create_sharded(tiny, corpus, "parts")
    assert not (corpus / "parts.tfrecord").exists()
    resumed = []
    resume = lambda *args: resumed.append(args[2].index) or write_unit(*args)  # noqa: E731
    monkeypatch.setattr(sharded_data, "write_unit", resume)
    assert create_sharded(tiny, corpus, "parts") == complete
    assert written == [0, 1]
    assert resumed[0] == 2


def leave_unmerged_parts(tiny, corpus, monkeypatch, **changes):
    """Simulates a run that was killed before its parts were merged."""
    monkeypatch.setattr(sharded_data, "join_parts", _interrupt)
    with pytest.raises(KeyboardInterrupt):
        create_data.run(options(tiny, corpus, **{**SHARDED, **changes}))
    monkeypatch.undo()
    return corpus / "out.tfrecord.parts"


def _interrupt(*args):
    raise KeyboardInterrupt


def test_parts_of_another_run_are_not_reused(tiny, corpus, monkeypatch):
    complete = create_sharded(tiny, corpus, "whole", random_seed=2)
    assert len(os.listdir(leave_unmerged_parts(tiny, corpus, monkeypatch))) > 4
    assert create_sharded(tiny, corpus, "out", random_seed=2) == complete
    leave_unmerged_parts(tiny, corpus, monkeypatch)
    text = (corpus / "one.txt").read_text()
    (corpus / "one.txt").write_text(text[::-1].strip() + "\n")
    assert create_sharded(tiny, corpus, "out") == create_sharded(tiny, corpus, "other")


def test_incomplete_parts_are_not_reused(tiny, corpus, monkeypatch):
    expected = create_sharded(tiny, corpus, "other")
    parts = leave_unmerged_parts(tiny, corpus, monkeypatch)
    (parts / "000000-000.tfrecord").write_bytes(b"")
    assert create_sharded(tiny, corpus, "out") == expected
    parts = leave_unmerged_parts(tiny, corpus, monkeypatch, random_seed=3)
    (parts / "plan.json").unlink()
    assert create_sharded(tiny, corpus, "out") == expected


def test_fewer_predictions_than_masks_warn(tiny, corpus, run_log):
    for limit, warns in ((3, True), (4, False)):
        run_log.clear()
        options(tiny, corpus, masked_lm_prob=0.15, max_predictions_per_seq=limit).check()
        assert ("max_predictions_per_seq=3 masks fewer pieces" in run_log.text) == warns


@pytest.mark.parametrize(
    ("num_workers", "message"),
    [(1, "1 shard has only one document"), (0, "no blank line between documents")],
)
def test_single_documents_warn(tiny, corpus, run_log, num_workers, message):
    text = _write(corpus / "in.txt", b"a good film\nthe story was slow\nit was not bad\n")
    create_data.run(options(tiny, corpus, input_file=text, num_workers=num_workers))
    assert message in run_log.text


def test_last_of_two_concurrent_runs_wins(tiny, corpus, monkeypatch):
    """The second run happens between the first run's records and their metadata."""
    write_records, threads = create_data.write_records, []

    def write_and_start_second_run(*args):
        count = write_records(*args)
        if not threads:
            other = options(tiny, corpus, max_seq_length=16, max_predictions_per_seq=3)
            threads.append(threading.Thread(target=create_data.run, args=[other]))
            threads[0].start()
            threads[0].join(1)
        return count

    monkeypatch.setattr(create_data, "write_records", write_and_start_second_run)
    create_data.run(options(tiny, corpus))
    threads[0].join()
    description = json.loads((corpus / "out.tfrecord.json").read_text())
    entries = features_of(read_records(corpus / "out.tfrecord")[0])
    assert description["max_seq_length"] == len(entries["input_ids"].int64_list.value) == 16
    assert description["bytes"] == os.path.getsize(corpus / "out.tfrecord")
    assert not [name for name in os.listdir(corpus) if "lock" in name or "tmp" in name]


def test_parts_are_locked_by_one_run(tiny, corpus, monkeypatch):
    expected = create_sharded(tiny, corpus, "expected")
    write_unit, rejected = sharded_data.write_unit, []

    def start_second_run(*args):
        with pytest.raises(UserError, match=r"out.tfrecord is in use by process \d+ on .*: wait"):
            create_data.run(options(tiny, corpus, random_seed=2, **SHARDED))
        rejected.append(args)
        write_unit(*args)

    monkeypatch.setattr(sharded_data, "write_unit", start_second_run)
    assert create_sharded(tiny, corpus, "out") == expected
    assert rejected


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no named pipes")
def test_pipe_as_output(tiny, corpus):
    create_data.run(options(tiny, corpus))
    pipe, before = corpus / "pipe", os.listdir(corpus)
    with reader_of(pipe, corpus / "copy"):
        create_data.run(options(tiny, corpus, output_file=str(pipe)))
    assert (corpus / "copy").read_bytes() == (corpus / "out.tfrecord").read_bytes()
    with pytest.raises(UserError, match="pipe must be a file: shards are stored"):
        create_data.run(options(tiny, corpus, output_file=str(pipe), num_workers=1))
    assert sorted(os.listdir(corpus)) == sorted([*before, "copy", "pipe"])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no named pipes")
def test_pipe_as_input_is_rejected(tiny, corpus):
    """The input is read twice, which would lose the texts of a pipe."""
    os.mkfifo(corpus / "pipe")
    with pytest.raises(UserError, match="pipe must be a file, but is a pipe"):
        create_data.run(options(tiny, corpus, input_file=str(corpus / "pipe")))


def test_outdated_metadata_is_removed(tiny, corpus, monkeypatch):
    create_data.run(options(tiny, corpus))
    monkeypatch.setattr(create_data, "write_records", _fail)
    with pytest.raises(UserError, match="disk full"):
        create_data.run(options(tiny, corpus))
    assert not (corpus / "out.tfrecord.json").exists()


def _fail(*args):
    raise UserError("disk full")


@pytest.mark.slow
def test_beam_and_workers_give_the_same_records(tiny, corpus):
    pytest.importorskip("apache_beam")
    expected = create_sharded(tiny, corpus, "one")
    two_processes = "direct_num_workers=2,direct_running_mode=multi_processing"
    beam = {"num_workers": 0, "beam_runner": "DirectRunner", "beam_options": two_processes}
    assert create_sharded(tiny, corpus, "beam", **beam) == expected
    split = []
    for flags in (beam, {}):
        flags = {**SHARDED, **flags, "output_file": f"{corpus}/x.tfr,{corpus}/y.tfr"}
        create_data.run(options(tiny, corpus, **flags))
        split.append([(corpus / name).read_bytes() for name in ("x.tfr", "y.tfr")])
    assert split[0] == split[1]
    # Only a worker reads as far as this.
    (corpus / "one.txt").write_bytes(b"a\n\n" * 1500 + b"bad \xff\n")
    with pytest.raises(UserError, match=r"failed: \S*one\.txt:3001: the file is not UTF-8"):
        create_sharded(tiny, corpus, "bad", **beam)
    assert not (corpus / "bad.tfrecord").exists()


def test_invalid_beam_options(tiny, corpus, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    with pytest.raises(UserError, match=r"package apache_beam .*bert_tf\[beam\]"):
        create_data.run(options(tiny, corpus, beam_runner="DirectRunner"))
    with pytest.raises(UserError, match="not both"):
        create_data.run(options(tiny, corpus, beam_runner="DirectRunner", num_workers=1))
    with pytest.raises(UserError, match="--beam_options needs --beam_runner"):
        create_data.run(options(tiny, corpus, beam_options="region=x"))


# ---- Invalid input -------------------------------------------------------------------------


def _write(path, content: bytes):
    path.write_bytes(content)
    return str(path)


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "No tokens in .*: nothing to train on"),
        (b"\n\n \n", "No tokens in .*: nothing to train on"),
        (b"good\n\nbad \xff\n", r"in\.txt:3: the file is not UTF-8"),
    ],
)
def test_invalid_texts(tiny, corpus, num_workers, content, message):
    text = _write(corpus / "in.txt", content)
    output = corpus / "out.tfrecord"
    with pytest.raises(UserError, match=message):
        create_data.run(options(tiny, corpus, input_file=text, num_workers=num_workers))
    assert not output.exists()
    assert not (corpus / "out.tfrecord.json").exists()


def test_invalid_files_and_vocabularies(tiny, corpus):
    def assert_rejected(message, **changes):
        with pytest.raises(UserError, match=message):
            create_data.run(options(tiny, corpus, **changes))

    assert_rejected(r"No file matches .*absent\*\.txt", input_file=f"{corpus}/absent*.txt")
    assert_rejected(
        "Cannot write .*out.tfr: there is no folder", output_file=f"{corpus}/no/out.tfr"
    )
    assert_rejected("but is a folder", output_file=str(corpus))
    vocab = _write(corpus / "vocab", b"[PAD]\n[CLS]\n[SEP]\na\n")
    assert_rejected(r"lacks \[UNK\], \[MASK\]", vocab_file=vocab)
    assert_rejected("--max_seq_length must be between 5 and", max_seq_length=4)
    assert_rejected("--output_file", output_file=None)
    segments = {"do_whole_word_mask": True, "whole_word_segments": f"{corpus}/absent.txt"}
    assert_rejected("No such file: .*absent.txt", **segments)
    assert_rejected("must name files", input_file=" , ")
    assert_rejected("listed twice", output_file=f"{corpus}/x.tfr,{corpus}/./x.tfr")
    assert_rejected("also an input", output_file=tiny.flags["vocab_file"])
    (corpus / "empty").mkdir()
    assert_rejected(r"No file matches .*empty/\*", input_file=f"{corpus}/empty")


def test_folders_and_compressed_inputs(tiny, corpus):
    create_data.run(options(tiny, corpus))
    expected = (corpus / "out.tfrecord").read_bytes()
    folder = corpus / "texts" / "deeper"
    folder.mkdir(parents=True)
    for name in ("one.txt", "two.txt"):
        (folder / f"{name}.gz").write_bytes(gzip.compress((corpus / name).read_bytes()))
    (folder / ".hidden").write_text("a good film\n")
    (folder / "notes.json").write_text("{}")
    (folder / "one.txt.gz.tmp").write_text("a good film\n")
    (folder / "out.parts").mkdir()
    (folder / "out.parts" / "0.txt").write_text("a good film\n")
    create_data.run(options(tiny, corpus, input_file=str(corpus / "texts")))
    assert (corpus / "out.tfrecord").read_bytes() == expected


def test_single_line_documents_warning(tiny, corpus, run_log):
    single, pair = b"the plot was not bad\n\n", b"a film\na story\n\n"
    for num_pairs, warns in ((0, True), (1, True), (4, False)):
        text = _write(corpus / "in.txt", 9 * single + num_pairs * pair)
        for num_workers in (0, 1):
            run_log.clear()
            create_data.run(options(tiny, corpus, input_file=text, num_workers=num_workers))
            message = f"9 of {9 + num_pairs} documents are a single line, so their next"
            assert (message in run_log.text) == warns


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("the good film " * 300, "97% of the text will be truncated"),
        ("1\tthe good film\n2\tthe plot\n", "2 of 2 lines have tabs, JSON or HTML"),
        ("the 51\nfilm 7\n" * 10, "one.txt: 20 of 20 lines are words and counts"),
        ("the good film " * 6 + "\nFilm 1\nthe plot\n", None),
    ],
)
def test_lines_that_are_not_sentences_warn(tiny, corpus, caplog, text, message):
    (corpus / "one.txt").write_text(text)
    path = str(corpus / "one.txt")
    create_data.run(options(tiny, corpus, input_file=path, dupe_factor=1))
    assert (message or "") in caplog.text
    warnings = ("will be truncated", "lines have tabs", "words and counts")
    assert bool(message) == any(text in caplog.text for text in warnings)


def test_file_of_blank_lines(tiny, corpus, caplog):
    (corpus / "blank.txt").write_text("\n \n")
    with pytest.raises(UserError, match="No tokens in the input files"):
        create_data.run(options(tiny, corpus, input_file=str(corpus / "blank.txt")))
    (corpus / "one.txt").write_text("the film\n")
    paths = f"{corpus}/blank.txt,{corpus}/one.txt"
    create_data.run(options(tiny, corpus, input_file=paths, dupe_factor=1))
    assert caplog.text.count("blank.txt: the first 2 lines are blank") == 2
