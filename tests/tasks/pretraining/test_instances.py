"""Pre-training instances: parity with the original records, and random number generators."""

import hashlib
import json
from functools import cache

import pytest
import tensorflow as tf

from bert_tf.data.records import encode_examples
from bert_tf.options import PretrainingDataOptions
from bert_tf.tasks.pretraining.corpus import LineEncoder, read_documents
from bert_tf.tasks.pretraining.instances import create_training_instances
from bert_tf.tasks.pretraining.records import record_batches
from bert_tf.tokenization import FullTokenizer
from tests.oracle import golden

FOLDER = "pretraining_data"


@cache
def runs() -> dict[str, dict]:
    all_runs = json.loads(golden(f"{FOLDER}/runs.json").read_text())
    return {
        run["name"]: run for run in all_runs if run["exit_code"] == 0 and any(run["num_records"])
    }


@cache
def encoder(vocab_file: str, lower: bool) -> LineEncoder:
    return LineEncoder(FullTokenizer(vocab_file, lower))


def make_instances(run: dict) -> tuple[list, PretrainingDataOptions]:
    flags = run["flags"]
    folder = golden(f"{FOLDER}/inputs").parent
    lower = flags.get("do_lower_case", True) not in (False, "False", "false")
    encode = encoder(str((folder / flags["vocab_file"]).resolve()), lower)
    options = PretrainingDataOptions(
        max_seq_length=int(flags.get("max_seq_length", 128)),
        max_predictions_per_seq=int(flags.get("max_predictions_per_seq", 20)),
        short_seq_prob=float(flags.get("short_seq_prob", 0.1)),
        masked_lm_prob=float(flags.get("masked_lm_prob", 0.15)),
        do_whole_word_mask=flags.get("do_whole_word_mask", False) in (True, "True", "true"),
        dupe_factor=int(flags.get("dupe_factor", 10)),
        random_seed=int(flags.get("random_seed", 12345)),
    )
    paths = [str(folder / name) for name in run["input_files_in_the_order_read"]]
    documents = read_documents(paths, encode)
    return create_training_instances(documents, options, encode.vocab), options


NAMES = [
    "awkward", "awkward_wwm", "cased", "cased_wwm_seq64", "chinese", "default", "dupe1",
    "dupe5_wwm", "many_in_3_out", "mlm30_pred4", "one_doc", "one_sentence", "seed777_seq64",
    "seq64_short05", "small_vocab_seq64", "tiny_seq16", "uncasedvocab_nolower",
]  # fmt: skip


def test_all_runs_are_covered():
    assert set(runs()) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_records_match_the_original(name):
    run = runs()[name]
    instances, options = make_instances(run)
    outputs = len(run["output_files"])
    for part in range(outputs):
        batches = record_batches(instances[part::outputs], options)
        records = [record for batch in batches for record in encode_examples(batch)]
        assert len(records) == run["num_records"][part]
        digest = hashlib.sha256(b"".join(records)).hexdigest()
        if digest != run["sha256_of_concatenated_payloads_with_sorted_keys"][part]:
            path = golden(f"{FOLDER}/{run['output_files'][part]}")
            expected = [
                tf.train.Example.FromString(r.numpy()) for r in tf.data.TFRecordDataset(str(path))
            ]
            actual = [tf.train.Example.FromString(record) for record in records]
            assert actual == expected
            pytest.fail("equal records, but serialized differently")
