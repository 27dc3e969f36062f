"""Training, evaluation, reranking, `Predictor` and exports, on tiny models."""

import dataclasses
import itertools
import json
import random

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoint
from bert_tf.api.predictor import Predictor
from bert_tf.base.errors import UserError
from bert_tf.finetuning.model_files import read_model_files
from bert_tf.options import RankingOptions, registry
from bert_tf.tasks.ranking.task import Ranking, _chance_mrr
from tests.conftest import WORDS
from tests.finetuning.helpers import write_json_lines as write


@pytest.fixture
def options(tiny, tmp_path):
    """A relevant passage begins with "bad", a hard negative with "good"."""
    rng = random.Random(0)
    for name, size in (("train", 64), ("dev", 12)):
        rows = []
        for _ in range(size):
            query, rest = (" ".join(rng.choices(WORDS, k=k)) for k in (3, 4))
            texts = {"passage": f"bad {rest}", "others": [f"good {rest}"]}
            rows.append({"query": f"it {query}", **texts})
        write(tmp_path / f"{name}.jsonl", rows)
    flags = {**tiny.flags, "init_checkpoint": tiny.checkpoint, "output_dir": str(tmp_path / "out")}
    flags |= {"train_batch_size": 8, "learning_rate": 1e-2, "num_train_epochs": 2.0}
    columns = {"anchor_column": "query", "positive_column": "passage", "negative_columns": "others"}
    return RankingOptions(
        **flags, **columns, data_dir=str(tmp_path), num_negatives=1, do_train=True, do_eval=True
    )


@pytest.fixture
def short(options):
    return dataclasses.replace(options, num_train_epochs=0.2, do_eval=False)


def test_training_and_prediction(options, tmp_path, run_log):
    untrained = dataclasses.replace(options, do_train=False, output_dir=str(tmp_path / "untrained"))
    metrics = registry.run(untrained).metrics
    assert metrics["eval_mrr@10"] < 0.6
    # A relevant passage and a hard negative, in random order.
    assert metrics["eval_chance_mrr@10"] == pytest.approx(0.75, abs=0.01)
    assert f"mrr@10 = {metrics['eval_mrr@10']:.4f}, chance: 0.7475: the model is no" in run_log.text
    assert "Evaluation of 24 pairs: eval_mrr@10 = " in run_log.text
    pairs = [("it was", "bad plot"), ("it was", "good plot"), ("a film", "slow")]
    write_run(tmp_path / "found.tsv", pairs)
    flags = {"do_predict": True, "do_export": True, "predict_file": "found.tsv"}
    run = dataclasses.replace(options, **flags, eval_every="1epoch")
    run_log.clear()
    metrics = registry.run(run).metrics
    assert metrics["eval_mrr@10"] == 1
    assert "mrr@10 = 1.0000, chance: 0.7475\n" in run_log.text
    predictions = Predictor(run.output_dir)(pairs)
    scores = np.array([prediction.score for prediction in predictions])
    assert scores[0] > scores[1]
    probabilities = [prediction.probability for prediction in predictions]
    np.testing.assert_allclose(probabilities, 1 / (1 + np.exp(-scores)), rtol=1e-5)
    lines = [line.split() for line in (tmp_path / "out" / "reranked.trec").read_text().splitlines()]
    assert [line[:4] for line in lines] == [
        ["q0", "Q0", "d0", "1"],
        ["q0", "Q0", "d1", "2"],
        ["q1", "Q0", "d2", "1"],
    ]
    np.testing.assert_allclose([float(line[4]) for line in lines], scores, atol=1e-5)
    exported = tf.saved_model.load(str(tmp_path / "out" / "export" / "1"))
    queries, passages = map(tf.constant, zip(*pairs, strict=True))
    served = exported.signatures["serving_default"](text=queries, text_pair=passages)
    np.testing.assert_allclose(served["score"], scores, atol=1e-5)
    np.testing.assert_allclose(served["probability"], probabilities, atol=1e-5)
    onnx = Predictor(run.output_dir, engine="onnx")(pairs)
    np.testing.assert_allclose([prediction.score for prediction in onnx], scores, atol=1e-4)


@pytest.mark.parametrize("sizes", [(2, 1), (3, 2), (5, 1), (4, 4), (3, 0)])
def test_chance_is_the_mean_over_all_orders(sizes):
    orders = [*itertools.permutations(range(sizes[0]))]
    first = [min((rank for rank, x in enumerate(o, 1) if x < sizes[1]), default=0) for o in orders]
    assert _chance_mrr(*sizes) == pytest.approx(np.mean([1 / x if x else 0 for x in first]))
    assert _chance_mrr(1000, 1) == pytest.approx(sum(1 / n for n in range(1, 11)) / 1000)


def test_beir(short, tmp_path, run_log):
    texts = [f"{word} plot" for word in WORDS]
    write(tmp_path / "corpus.jsonl", [{"_id": f"d{n}", "text": x} for n, x in enumerate(texts)])
    queries = [{"_id": "q1", "text": "it"}, {"_id": "q2", "text": "a film"}]
    write(tmp_path / "queries.jsonl", queries)
    (tmp_path / "qrels").mkdir()
    for name in ("train", "dev"):
        rows = "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t1\nq2\td3\t1\n"
        (tmp_path / "qrels" / f"{name}.tsv").write_text(rows)
    (tmp_path / "run.trec").write_text("q1 Q0 d4 1 9 x\nq1 Q0 d1 2 8 x\nq1 Q0 d5 3 7 x\n")
    columns = dict.fromkeys(("anchor_column", "positive_column", "negative_columns"))
    short = dataclasses.replace(short, **columns)
    flags = {"task_name": "beir", "do_eval": True, "num_train_epochs": 6.0, "do_predict": True}
    files = {"run_file": str(tmp_path / "run.trec"), "predict_file": "run.trec"}
    metrics = registry.run(dataclasses.replace(short, **flags, **files)).metrics
    assert metrics["eval_first_stage_mrr@10"] == pytest.approx(1 / 4)
    assert metrics["eval_recall@100"] == pytest.approx(1 / 4)
    assert ", first stage: 0.2500" in run_log.text
    lines = (tmp_path / "out" / "reranked.trec").read_text().splitlines()
    assert sorted(line.split()[2] for line in lines) == ["d1", "d4", "d5"]
    report = (tmp_path / "out" / "eval_predictions.tsv").read_text().splitlines()
    assert len(report) == 3  # a header, and two queries, one of which has no candidates
    listwise = dataclasses.replace(short, **flags, **files, loss="listwise")
    for run, count in ((listwise, 1), (dataclasses.replace(listwise, loss="pointwise"), 0)):
        found = [x for x in problems(run, "train") if "listwise ignores the grades of rel" in x]
        assert len(found) == count
    # For prediction alone, the data need no columns, and no other files.
    again = {"do_train": False, "do_eval": False, "do_predict": True, "task_name": "tsv"}
    again |= {"output_dir": str(tmp_path / "again"), "init_checkpoint": short.output_dir}
    registry.run(dataclasses.replace(short, **again, predict_file="run.trec"))
    assert (tmp_path / "again" / "reranked.trec").read_text().splitlines() == lines


def write_run(path, pairs):
    """Writes a file like MS MARCO's top1000.dev."""
    queries = [*dict.fromkeys(query for query, _ in pairs)]
    rows = (f"q{queries.index(q)}\td{n}\t{q}\t{text}\n" for n, (q, text) in enumerate(pairs))
    path.write_text("".join(rows))


def test_listwise_training(options):
    metrics = registry.run(dataclasses.replace(options, loss="listwise")).metrics
    assert metrics["eval_mrr@10"] == 1


def test_labels_and_scores_as_relevance(options, tmp_path):
    rows = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    pairs = [
        {"query": row["query"], "passage": text, "label": label, "score": 2.5 * label}
        for row in rows
        for text, label in ((row["passage"], 1), (row["others"][0], 0))
    ]
    write(tmp_path / "train.jsonl", pairs)
    flags = {"negative_columns": "eval:others", "num_train_epochs": 1.0}
    scores = {"score_column": "train:score", "score_range": "0,2.5"}
    for columns in ({"label_column": "train:label"}, scores):
        folder = str(tmp_path / next(iter(columns)))
        run = dataclasses.replace(options, **flags, **columns, output_dir=folder)
        assert registry.run(run).metrics["eval_mrr@10"] == 1


def test_losses(options):
    batch = {"relevance": np.float32([1.0, 0.25])}
    logits = np.float32([[1.0, -2.0, 0.5], [0.0, 0.0, 3.0]])
    task = Ranking(*read_model_files(options))
    sigmoid = 1 / (1 + np.exp(-logits.astype(float)))
    expected = -np.log(np.where(np.arange(3) == 0, sigmoid, 1 - sigmoid))
    expected[1, 0] = -(0.25 * np.log(0.5) + 0.75 * np.log(0.5))
    found = task.loss({"logits": tf.constant(logits)}, batch, True)
    np.testing.assert_allclose(found, expected.mean(axis=1), rtol=1e-6)
    task = Ranking(*read_model_files(dataclasses.replace(options, loss="listwise")))
    found = task.loss({"logits": tf.constant(logits)}, batch, True)
    expected = [np.log(np.exp([0, -3, -0.5]).sum()), np.log(2 + np.exp(3))]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_resume(options, tmp_path, run_log):
    whole = dataclasses.replace(options, do_eval=False, output_dir=str(tmp_path / "whole"))
    registry.run(dataclasses.replace(whole, save_checkpoints_steps=8))
    folder = tmp_path / "resumed"
    folder.mkdir()
    for path in (tmp_path / "whole").iterdir():
        if "ckpt-16" not in path.name and path.name != "checkpoint":
            (folder / path.name).write_bytes(path.read_bytes())
    registry.run(dataclasses.replace(whole, output_dir=str(folder)))
    assert "model.ckpt-8" in run_log.text
    paths = (str(tmp_path / name / "model.ckpt-16") for name in ("whole", "resumed"))
    ((_, expected),), ((_, resumed),) = (checkpoint.read(x, ["output_weights"]) for x in paths)
    np.testing.assert_array_equal(resumed, expected)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"anchor_column": None}, "need --anchor_column and --positive_column"),
        ({"num_negatives": 0}, "--num_negatives must be at least 1 without scores"),
        ({"score_column": "s", "loss": "listwise"}, "--loss=listwise would ignore the scores"),
        ({"score_column": "s", "label_column": "l"}, "--score_column and --label_column both desc"),
        ({"num_negatives": 100}, "--num_negatives=100 needs more than [0-9]+ passages"),
        ({"run_file": "found.trec"}, "found.trec"),
        ({"do_predict": True}, "There is no predict file"),
        ({"teacher": "folder"}, "does not support"),
    ],
)
def test_mistakes(options, changes, problem, tmp_path):
    changes = {"num_train_epochs": 0.2, **changes}
    if changes.get("num_negatives") == 100:
        rows = (tmp_path / "train.jsonl").read_text().splitlines()[:20]
        (tmp_path / "train.jsonl").write_text("\n".join(rows) + "\n")
    with pytest.raises(UserError, match=problem):
        registry.run(dataclasses.replace(options, **changes))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("value", ["a", ("a", "b", "c")])
def test_only_pairs(options, value):
    with pytest.raises(UserError, match="Input 0: expected a tuple of a query and a passage"):
        Ranking(*read_model_files(options)).from_inputs([value])


def problems(options, split):
    task = Ranking(*read_model_files(options))
    return list(task.check(split, task.read(split), task.read("train")))


def test_training_pairs_in_the_evaluation(options, tmp_path):
    assert not problems(options, "eval")
    (tmp_path / "dev.jsonl").write_text((tmp_path / "train.jsonl").read_text())
    (problem,) = problems(options, "eval")
    assert "64 of 64 pairs are also training pairs: the metrics are too high" in problem


def test_more_negatives_than_used(options, tmp_path):
    rows = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    write(tmp_path / "train.jsonl", [{**row, "others": ["good plot", "slow"]} for row in rows])
    (problem,) = problems(options, "train")
    assert "rows have up to 2 negatives: see --num_negatives" in problem
    assert not problems(dataclasses.replace(options, num_negatives=2), "train")
