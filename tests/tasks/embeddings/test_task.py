"""Training, evaluation, the folder's declaration, `Predictor` and exports, on tiny models."""

import dataclasses
import json
import random
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.api.predictor import Predictor
from bert_tf.base.errors import UserError
from bert_tf.checkpoints.formats.sentence_transformers import declared_vectors
from bert_tf.checkpoints.run_folder import RunFolder
from bert_tf.data import disk_list, input_pipeline, matches
from bert_tf.finetuning import run as finetuning_run
from bert_tf.finetuning.model_files import read_model_files
from bert_tf.options import EmbeddingsOptions, registry
from bert_tf.tasks.embeddings.task import Embeddings
from tests.checkpoints.formats.conftest import values_of
from tests.conftest import WORDS
from tests.finetuning.helpers import write_json_lines as write


@pytest.fixture
def options(tiny, tmp_path):
    """Passages repeat the word of their query; hard negatives repeat another one."""
    rng = random.Random(0)
    for name, size in (("train", 96), ("dev", 12)):
        rows = []
        for _ in range(size):
            word, other = rng.sample(WORDS, 2)
            texts = [f"the {x} " + " ".join([x] * rng.randint(2, 9)) for x in (word, other)]
            rows.append({"query": word, "passage": texts[0], "others": [texts[1]]})
        write(tmp_path / f"{name}.jsonl", rows)
    flags = {**tiny.flags, "init_checkpoint": tiny.checkpoint, "output_dir": str(tmp_path / "out")}
    flags |= {"train_batch_size": 8, "learning_rate": 1e-2, "num_train_epochs": 5.0}
    columns = {"anchor_column": "query", "positive_column": "passage", "negative_columns": "others"}
    flags |= {"data_dir": str(tmp_path), "do_train": True, "do_eval": True}
    return EmbeddingsOptions(**flags, **columns)


def test_retrieval(options, tmp_path, run_log):
    run = dataclasses.replace(
        options,
        **{"max_query_length": 5, "normalize": True, "pooling": "max", "matryoshka_dims": "16,8"},
        **{"query_prefix": "it ", "eval_every": "1epoch", "do_export": True},
    )
    metrics = registry.run(run).metrics
    assert metrics["eval_mrr@10"] > 0.7
    assert re.search(r"Evaluation of \d+ texts: eval_mrr@10 = ", run_log.text)
    assert metrics["eval_mrr@10_8"] > 0.5
    assert metrics["eval_triplet_accuracy"] > 0.9
    results = json.loads((tmp_path / "out" / "eval_results.json").read_text())
    assert results["eval_recall@1"] <= results["eval_recall@10"] <= results["eval_recall@100"]
    # Once more, from the best checkpoint.
    again = registry.run(dataclasses.replace(run, do_train=False, eval_every=None, do_export=False))
    assert again.metrics["eval_mrr@10"] == pytest.approx(metrics["eval_mrr@10"])
    texts = ["it good", "the film", "it good"]
    vectors = np.stack(Predictor(run.output_dir)(texts))
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    # Without flags, extract_features and Predictor compute the same vectors, also from `best`.
    for folder in ("out", "out/best"):
        extracted = Predictor(tmp_path / folder, "extract_features")(texts)
        values = np.concatenate([item.values for item in extracted])
        np.testing.assert_allclose(values, vectors, atol=1e-6)
    exported = tf.saved_model.load(str(tmp_path / "out" / "export" / "1"))
    served = exported.signatures["serving_default"](tf.constant(texts))
    np.testing.assert_allclose(served["sentence_embedding"], vectors, atol=1e-5)


@pytest.mark.parametrize("pooling", ["cls", "mean_max"])
def test_declaration(pooling, options):
    changes = {"pooling": pooling, "query_prefix": "q: ", "num_train_epochs": 0.1, "do_eval": False}
    run = dataclasses.replace(options, **changes)
    registry.run(run)
    declared = declared_vectors(RunFolder(run.output_dir))
    assert (declared.pooling, declared.normalize) == (run.poolings, False)
    assert (declared.max_seq_length, *map(declared.prefix, (True, False))) == (24, "q: ", "")
    (vector,) = Predictor(run.output_dir)(["good film"])
    (extracted,) = Predictor(run.output_dir, "extract_features")(["good film"])
    np.testing.assert_allclose(extracted.values, [vector], atol=1e-6)


def test_scored_pairs(options, tmp_path):
    rng = random.Random(1)
    for name, size in (("train", 96), ("dev", 12)):
        rows = []
        for number in range(size):
            first, second = rng.sample(WORDS, 2)
            score = number % 2
            rows.append({"a": first, "b": f"the {first if score else second}", "s": 5 * score})
        write(tmp_path / f"{name}.jsonl", rows)
    columns = {"anchor_column": "a", "positive_column": "b", "negative_columns": None}
    columns |= {"score_column": "s", "score_range": "0,5"}
    for loss in ("cosent", "cosine"):
        folder = str(tmp_path / loss)
        run = dataclasses.replace(options, **columns, loss=loss, output_dir=folder)
        metrics = registry.run(run).metrics
        assert metrics["eval_spearman"] > 0.6, loss


def test_resume_changes_a_flag(options, run_log):
    first = dataclasses.replace(options, num_train_epochs=1.0, do_eval=False)
    registry.run(first)
    run_log.clear()
    registry.run(dataclasses.replace(first, num_train_epochs=1.5, loss_scale=10.0))
    assert "loss_scale was 20.0, now 10.0" in run_log.text
    assert "Reusing" in run_log.text  # the scale does not change the rows


@pytest.mark.slow
def test_more_rows_than_memory(options, monkeypatch, tmp_path):
    """Examples on disk give the same records; a run on blocks of records resumes bit for bit."""
    run = dataclasses.replace(
        options, num_train_epochs=1.0, save_checkpoints_steps=4, do_eval=False, max_seq_length=16
    )
    registry.run(run)
    records, digest = (tmp_path / "out" / name for name in ("train.tf_record", "run.json"))
    expected = records.read_bytes(), json.loads(digest.read_text())["training_data"]
    prefix = f"{tmp_path}/out/model.ckpt-12"
    whole = values_of(prefix)
    on_disk = []

    def spill(items):
        on_disk.append(disk_list.collect(items, max_items=10))
        return on_disk[-1]

    monkeypatch.setattr(matches, "collect", spill)
    for module in (finetuning_run, input_pipeline):
        monkeypatch.setattr(module, "SHUFFLED_IN_MEMORY", 0)
    monkeypatch.setattr(input_pipeline, "_BUFFER_BYTES", 2000)
    monkeypatch.setattr("bert_tf.data.records._BLOCK_RECORDS", 8)
    shutil.rmtree(tmp_path / "out")
    registry.run(run)
    assert isinstance(on_disk[0], disk_list.DiskList)
    assert (records.read_bytes(), json.loads(digest.read_text())["training_data"]) == expected
    in_blocks = values_of(prefix)
    assert any(not np.array_equal(in_blocks[name], whole[name]) for name in whole)
    for path in (tmp_path / "out").glob("model.ckpt-12.*"):
        path.unlink()
    registry.run(run)
    for name, value in values_of(prefix).items():
        np.testing.assert_array_equal(value, in_blocks[name], err_msg=name)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"anchor_column": None}, "need --anchor_column and --positive_column"),
        ({"task_name": "sts"}, "--task_name must be one of sts-b, mnli"),
        ({"loss": "cosent"}, "--loss=cosent needs --score_column or --label_column"),
        ({"score_column": "s"}, "would ignore the scores: pass --loss=cosent"),
        ({"train_batch_size": 1}, "--loss=multiple_negatives compares rows"),
        ({"loss_scale": 0.05}, "--loss_scale must be between 1 and 1000"),
        ({"freeze_layers": 1}, "--freeze_layers=1 is too many"),
        ({"matryoshka_dims": "8,8"}, "--matryoshka_dims must be distinct numbers, such as .*: 8,8"),
        ({"matryoshka_dims": "32"}, "--matryoshka_dims=32 exceeds the size 16"),
        ({"query_prefix": "a " * 4, "max_query_length": 6}, "--query_prefix takes 4 of 6 tokens: "),
        ({"passage_prefix": "a " * 30, "max_query_length": 6}, "--passage_prefix takes 30 of"),
        ({"score_range": "0,5,9"}, "--score_range must be two numbers"),
        ({"score_column": "eval:s", "label_column": "l"}, "both describe the eval file"),
        ({"task_name": "beir"}, "--anchor_column: the files of --task_name=beir have fixed field"),
        ({"score_range": "0,5"}, "--score_range needs --score_column"),
        ({"do_predict": True}, "--do_predict is not supported: use extract_features"),
        ({"negative_columns": "query"}, "--positive_column|are the same column"),
        ({"teacher": "folder"}, "No checkpoint folder"),
        ({"mix_with": "quora:data"}, "--mix_with must be like snli:FOLDER, with one of sts-b"),
    ],
)
def test_mistakes(options, changes, problem, tmp_path):
    with pytest.raises(UserError, match=problem):
        registry.run(dataclasses.replace(options, **changes))
    assert not (tmp_path / "out").exists()


def problems(options, split="train"):
    task = Embeddings(*read_model_files(options))
    return " ".join(task.check(split, task.read(split), task.read("train")))


def test_training_pairs_in_the_evaluation(options, tmp_path):
    (tmp_path / "dev.jsonl").write_text((tmp_path / "train.jsonl").read_text())
    assert "96 of 96 pairs are also training pairs" in problems(options, "eval")


def test_encoder_that_was_trained_otherwise(options, tmp_path, run_log):
    short = dataclasses.replace(options, num_train_epochs=0.1, do_eval=False, pooling="cls")
    registry.run(short)
    again = {"init_checkpoint": options.output_dir, "output_dir": str(tmp_path / "again")}

    def warnings(**changes):
        run_log.clear()
        problems(dataclasses.replace(short, **again, **changes))
        return run_log.text

    assert not re.search("was trained with|declares", warnings())
    other = {"normalize": True, "query_prefix": "q: ", "max_query_length": 9, "max_seq_length": 20}
    found = warnings(pooling="mean", **other)
    for name, before, now in (
        ("pooling", "'cls'", "'mean'"),
        ("normalize", False, True),
        ("query_prefix", "''", "'q: '"),
        ("max_query_length", 0, 9),
        ("max_seq_length", 24, 20),
    ):
        assert f"{options.output_dir} was trained with --{name}={before}, not {now}\n" in found
    # A folder of sentence-transformers has no flags.
    (tmp_path / "out" / "run.json").unlink()
    prompts = {"prompts": {"query": "q: ", "document": ""}}
    (tmp_path / "out" / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    found = warnings(pooling="mean")
    assert "declares pooling=cls, not --pooling=mean" in found
    assert "modules.json declares --query_prefix='q: ', not ''\n" in found
    assert "passage_prefix" not in found
    assert "modules.json" not in warnings(query_prefix="q: ")


@pytest.mark.parametrize(("sizes", "reported"), [("4", [4]), ("8,16,4", [8, 4])])
def test_sizes_of_matryoshka_vectors(options, run_log, sizes, reported):
    run = dataclasses.replace(options, num_train_epochs=0.1, matryoshka_dims=sizes)
    metrics = registry.run(run).metrics
    names = {name for name in metrics if name.startswith("eval_mrr@10")}
    assert names == {"eval_mrr@10", *(f"eval_mrr@10_{size}" for size in reported)}
    warning = "--matryoshka_dims leaves out the whole size, 16"
    assert (warning in run_log.text) == ("16" not in sizes)


def test_texts_that_have_the_prefix_already(options, tmp_path):
    run = dataclasses.replace(options, passage_prefix="passage: ")
    assert "already" not in problems(run)
    rows = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    write(tmp_path / "train.jsonl", [{**x, "passage": f"passage: {x['passage']}"} for x in rows])
    assert "96 of 96 texts have the prefix 'passage: ' already" in problems(run)


def test_one_kind_of_input(options):
    with pytest.raises(UserError, match="Input 0: expected a string"):
        Embeddings(*read_model_files(options)).from_inputs([("a", "b")])


def test_columns_that_repeat_texts(options, tmp_path):
    path = tmp_path / "train.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    same = {"query": "the film", "passage": "the film", "others": []}
    write(path, [{**x, **same} for x in rows])
    assert "the anchor is the positive in 96 of 96 rows" in problems(options)


def test_rows_whose_anchor_has_no_match_are_counted(options, tmp_path, run_log):
    labels = {"a good film": "1", "a bad film": "0", "the plot": "0"}
    rows = [
        {"query": f"it {word if label == '1' else 'not ' + word}", "passage": text, "label": label}
        for word in WORDS[:8]
        for text, label in labels.items()
    ]
    write(tmp_path / "train.jsonl", rows)
    changes = {"negative_columns": None, "label_column": "label", "do_eval": False}
    problems(dataclasses.replace(options, **changes))
    assert "left out 16 rows: no row with the same anchor matches" in run_log.text


def test_single_passage(options, tmp_path):
    rows = [{"query": f"it {n}", "passage": "x", "others": []} for n in "ab"]
    write(tmp_path / "dev.jsonl", rows)
    assert "only 1 passage: all metrics are 1" in problems(options, "eval")
