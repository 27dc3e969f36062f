"""run_squad end to end: training, predictions, metrics and errors."""

import json
import random

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import training
from bert_tf.base.errors import UserError
from bert_tf.config import BertConfig
from bert_tf.data import records
from bert_tf.options import SquadOptions
from bert_tf.tasks import squad
from bert_tf.tasks.question_answering import scoring as scores
from bert_tf.tasks.question_answering.task import QuestionAnswering
from bert_tf.tokenization import FullTokenizer
from tests.oracle import golden
from tests.tasks.two_devices import run_on_two_devices

TEXT = "the good film was not slow it was a fast story the bad plot"


def question(name, answer, negative=False):
    answers = [] if negative else [{"text": answer, "answer_start": TEXT.index(answer)}]
    return {
        "id": name,
        "question": f"what was {name}",
        "answers": answers,
        "is_impossible": negative,
    }


@pytest.fixture
def folder(tiny, tmp_path):
    rows = [question(name, "fast story") for name in ("good", "fast", "bad")]
    missing = [question("c", "", True), question("b", "", True)]
    for name, questions in (("train", rows * 4), ("dev", rows), ("negative", rows + missing)):
        paragraphs = [{"context": TEXT, "qas": questions}]
        (tmp_path / f"{name}.json").write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    return tmp_path


def options(tiny, folder, **changes):
    flags = {
        **tiny.flags,
        "init_checkpoint": tiny.checkpoint,
        "train_file": str(folder / "train.json"),
        "predict_file": str(folder / "dev.json"),
        "output_dir": str(folder / "out"),
        "max_query_length": 5,
        "doc_stride": 4,
        **changes,
    }
    return SquadOptions(**flags)


def make_task(tiny, run):
    return QuestionAnswering(run, tiny.config, FullTokenizer(tiny.flags["vocab_file"]))


def read(folder, name):
    return json.loads((folder / "out" / name).read_text())


def test_train_predict_and_evaluate(tiny, folder):
    flags = {"do_train": True, "do_predict": True, "do_eval": True}
    flags |= {"num_train_epochs": 30.0, "learning_rate": 3e-3}
    results = squad.run(options(tiny, folder, **flags))
    # The number of steps depends on the 12 questions, not on their windows.
    assert results.metrics["global_step"] == 90
    names = ["eval_results.txt", "eval_results.json", "predictions.json", "nbest_predictions.json"]
    names += ["report.html", "eval_predictions.tsv"]
    assert sorted(results.files) == sorted(str(folder / "out" / name) for name in names)
    predictions = read(folder, "predictions.json")
    assert list(predictions) == ["good", "fast", "bad"]
    lists = read(folder, "nbest_predictions.json")
    assert {name: entries[0]["text"] for name, entries in lists.items()} == predictions
    assert sum(entry["probability"] for entry in lists["good"]) == pytest.approx(1.0)
    assert results.metrics["f1"] == 100.0
    written_metrics = read(folder, "eval_results.json")
    assert written_metrics["f1"] == pytest.approx(results.metrics["f1"])
    assert f"f1 = {written_metrics['f1']}\n" in (folder / "out" / "eval_results.txt").read_text()
    assert records.count_records(str(folder / "out" / "train.tf_record")) == 12
    assert records.count_records(str(folder / "out" / "eval.tf_record")) == 3


@pytest.mark.parametrize(
    ("text", "flags", "by_characters"),
    [
        ("北京", {}, True),
        ("北京", {"answer_scoring": "words"}, False),
        ("fast story", {}, False),
        ("fast story", {"answer_scoring": "characters"}, True),
    ],
)
def test_character_metrics_for_languages_without_spaces(
    tiny, folder, caplog, text, flags, by_characters
):
    row = question("good", "fast story") | {"answers": [{"text": text, "answer_start": 0}]}
    file = {"data": [{"paragraphs": [{"context": f"{text} {TEXT}", "qas": [row]}]}]}
    (folder / "dev.json").write_text(json.dumps(file))
    with caplog.at_level("INFO", logger="bert_tf"):
        metrics = squad.run(options(tiny, folder, do_eval=True, **flags)).metrics
    names = {"exact_characters", "f1_characters"}
    assert metrics.keys() & names == (names if by_characters else set())
    assert read(folder, "eval_results.json").keys() >= {"f1", *(names if by_characters else ())}
    is_inferred = by_characters and "answer_scoring" not in flags
    assert caplog.text.count("--answer_scoring=characters, by the script") == is_inferred


def test_unanswerable_questions(tiny, folder):
    changes = {"version_2_with_negative": True, "predict_file": str(folder / "negative.json")}
    best = squad.run(
        options(tiny, folder, do_eval=True, null_score_diff_threshold="auto", **changes)
    ).metrics
    odds = read(folder, "null_odds.json")
    assert list(odds) == ["good", "fast", "bad", "c", "b"]
    assert (best["HasAns_total"], best["NoAns_total"]) == (3, 2)
    at_best = read(folder, "predictions.json")
    for threshold in (-100.0, 0.0, 100.0):
        flags = {"null_score_diff_threshold": threshold, "resume": "never", **changes}
        other = squad.run(options(tiny, folder, do_eval=True, **flags)).metrics
        assert other["f1"] <= best["f1"]
    # The highest threshold answers every question.
    texts = read(folder, "predictions.json")
    assert all(texts.values())
    expected = {
        name: "" if odds[name] > best["null_score_diff_threshold"] else text
        for name, text in texts.items()
    }
    assert at_best == expected


def test_padding_is_trimmed_without_fixed_shapes(tiny, folder):
    """The best spans are equal, but n-best lists that reach into the padding differ."""
    squad.run(options(tiny, folder, do_predict=True, max_answer_length=3))
    padded = read(folder, "nbest_predictions.json")
    flags = {"fixed_shapes": False, "resume": "never", "max_answer_length": 3}
    squad.run(options(tiny, folder, do_predict=True, **flags))
    trimmed = read(folder, "nbest_predictions.json")
    assert trimmed.keys() == padded.keys()
    for name in trimmed:
        expected, actual = (
            {entry["text"]: entry["start_logit"] for entry in lists[name]}
            for lists in (padded, trimmed)
        )
        common_texts = expected.keys() & actual.keys()
        assert len(common_texts) > 5
        for text in common_texts:
            assert actual[text] == pytest.approx(expected[text], abs=1e-5)


def test_loss_includes_padding(tiny, folder, monkeypatch):
    loss_uses_padding, original = [], training.make_train_step

    def make_train_step(*args):
        loss_uses_padding.append(args[-1])
        return original(*args)

    monkeypatch.setattr(training, "make_train_step", make_train_step)
    flags = {"do_train": True, "num_train_epochs": 0.5, "train_batch_size": 4}
    squad.run(options(tiny, folder, fixed_shapes=False, **flags))
    assert loss_uses_padding == [True]


def test_only_empty_texts(tiny, folder):
    empty = folder / "empty.json"
    entries = [{"context": " \u200b", "qas": [{"id": "1", "question": "a"}]}]
    empty.write_text(json.dumps({"data": [{"paragraphs": entries}]}))
    squad.run(options(tiny, folder, do_predict=True, predict_file=str(empty)))
    assert read(folder, "predictions.json") == {"1": "empty"}
    negative = {"version_2_with_negative": True, "predict_file": str(empty), "do_predict": True}
    squad.run(options(tiny, folder, **negative))
    assert read(folder, "predictions.json") == {"1": ""}
    assert read(folder, "null_odds.json") == {"1": 0.0}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"do_train": True, "train_file": None}, "--do_train needs --train_file"),
        ({"do_eval": True, "predict_file": None}, "--do_eval needs --predict_file"),
        ({"do_predict": True, "max_query_length": 21}, "must be more than --max_query_length"),
        ({"do_predict": True, "predict_file": "no.json"}, "No such file: no.json"),
        (
            {"do_eval": True, "null_score_diff_threshold": "auto"},
            "auto needs --version_2_with_negative",
        ),
        (
            {"do_predict": True, "null_score_diff_threshold": "-1"},
            "must be a number or auto. Received: -1",
        ),
    ],
)
def test_invalid_options_fail_before_anything_is_written(tiny, folder, changes, message):
    with pytest.raises(UserError, match=message):
        squad.run(options(tiny, folder, **changes))
    assert not (folder / "out").exists()


def test_records_are_reused_for_unchanged_questions(tiny, folder):
    path = folder / "out" / "eval.tf_record"
    run = options(tiny, folder, do_predict=True)
    squad.run(run)
    written = path.stat().st_mtime_ns
    squad.run(run)
    assert path.stat().st_mtime_ns == written
    dev = folder / "dev.json"
    dev.write_text(dev.read_text().replace("what was bad", "what was fast"))
    squad.run(run)
    assert path.stat().st_mtime_ns != written


def test_predictor_threshold_must_be_a_number(tiny, folder):
    run = options(tiny, folder, null_score_diff_threshold="auto")
    with pytest.raises(UserError, match="auto needs evaluation data: pass a number"):
        run.check_model()


def test_metrics_need_answers(tiny, folder):
    content = json.loads((folder / "dev.json").read_text())
    del content["data"][0]["paragraphs"][0]["qas"][1]["answers"]
    (folder / "dev.json").write_text(json.dumps(content))
    squad.run(options(tiny, folder, do_predict=True))
    with pytest.raises(UserError, match="1 question has no answer, for example fast"):
        squad.run(options(tiny, folder, do_eval=True))
    negative = {"predict_file": str(folder / "negative.json"), "do_eval": True}
    with pytest.raises(UserError, match=r"2 questions have no answer, .* c\. .* or \[\] with"):
        squad.run(options(tiny, folder, **negative))


@pytest.mark.parametrize(("limit", "count"), [(2, 3), (3, 0)])
def test_truncated_questions_are_reported(tiny, folder, run_log, limit, count):
    make_task(tiny, options(tiny, folder, max_query_length=limit)).read("predict")
    message = f"dev.json: {count} questions are longer than --max_query_length={limit}"
    assert (message in run_log.text) == bool(count)


def test_stride_longer_than_the_window_leaves_no_gap(tiny, folder):
    path = folder / "dev.json"
    path.write_text(path.read_text().replace(TEXT, f"{TEXT} " * 5))
    windows = make_task(tiny, options(tiny, folder, doc_stride=1000)).read("eval")
    ends = windows.start + windows.length
    assert windows.window_index.max() > 2
    np.testing.assert_array_equal(
        windows.start[1:][windows.window_index[1:] > 0],
        ends[:-1][np.diff(windows.question_index) == 0],
    )


@pytest.mark.parametrize(("name", "file"), [("train1_a", "train-v1.1"), ("dev1_a", "dev-v1.1")])
def test_records_match_the_original(tmp_path, monkeypatch, name, file):
    split = "train" if name.startswith("train") else "eval"
    source = str(golden(f"squad/{file}.json"))
    lengths = {"max_seq_length": 64, "doc_stride": 16, "max_query_length": 12}
    run = SquadOptions(train_file=source, predict_file=source, **lengths)
    vocab = FullTokenizer(str(golden("vocab/uncased.txt")))
    task = QuestionAnswering(run, BertConfig(30522), vocab)
    # The stored records are in file order.
    monkeypatch.setattr(random.Random, "shuffle", lambda self, examples: None)
    windows = task.read(split)
    path = tmp_path / "records"
    parts = (windows[first : first + 10] for first in range(0, len(windows), 10))
    rows = (task.featurize(part, split) for part in parts)
    records.write_records(str(path), task.features(split), rows)
    assert parse_records(path) == parse_records(golden(f"squad/tfrecord/{name}.tf_record"))


def parse_records(path):
    dataset = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    return [tf.train.Example.FromString(record) for record in dataset]


@pytest.mark.slow
def test_two_devices_give_the_same_answers_as_one(tiny, folder):
    flags = {"do_eval": True, "predict_batch_size": 2}
    expected = squad.run(options(tiny, folder, **flags)).metrics
    single = read(folder, "nbest_predictions.json")
    run_on_two_devices("run_squad", options(tiny, folder, **flags))
    mirrored = read(folder, "nbest_predictions.json")
    assert read(folder, "eval_results.json")["f1"] == pytest.approx(expected["f1"])
    for name, entries in single.items():
        for actual, reference in zip(mirrored[name], entries, strict=True):
            assert actual["text"] == reference["text"]
            assert actual["start_logit"] == pytest.approx(reference["start_logit"], abs=1e-5)


THRESHOLD = {"null_score_diff_threshold": -3.0}
IGNORED = "--null_score_diff_threshold is ignored without --version_2_with_negative=true"
NO_EFFECT = "--predict_file has no effect without --do_predict=true"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (THRESHOLD, IGNORED),
        ({**THRESHOLD, "version_2_with_negative": True}, None),
        ({"predict_file": "dev.json", "do_train": True}, NO_EFFECT),
        ({"predict_file": "dev.json", "do_eval": True}, None),
    ],
)
def test_flags_without_effect_warn(run_log, flags, message):
    training.open_devices(SquadOptions(**flags))
    assert run_log.messages == [message] * bool(message)


def test_answers_that_cannot_be_predicted_warn(tiny, folder):
    for max_length, warns in ((9, False), (1, True)):
        flags = {"do_train": True, "max_answer_length": max_length}
        task = make_task(tiny, options(tiny, folder, **flags))
        message = "12 of 12 answers are longer than --max_answer_length=1, and can never"
        problems = " ".join(task.check("train", task.read("train"), ()))
        assert (message in problems) == warns


def test_truncated_questions_of_a_predictor_warn(tiny, folder, run_log):
    task = make_task(tiny, options(tiny, folder))
    task.from_inputs([("what was good", TEXT)])
    assert "truncated" not in run_log.text
    task.from_inputs([("what was good and bad and slow", TEXT), ("what was it", TEXT)])
    assert "1 of 2 questions is longer than max_query_length=5 and was truncated" in run_log.text


def test_best_of_several_evaluations_is_written(tiny, folder):
    flags = {"do_train": True, "do_eval": True, "num_train_epochs": 4.0, "learning_rate": 1e-2}
    metrics = squad.run(options(tiny, folder, **flags, eval_every="2", best_metric="f1")).metrics
    history = read(folder, "evaluations.json")
    assert history["metric"] == "f1"
    assert len(history["evaluations"]) > 2
    best = max(history["evaluations"], key=lambda evaluation: evaluation["f1"])
    assert metrics["f1"] == best["f1"]
    assert metrics["global_step"] == best["step"]
    paths = {"init_checkpoint": f"{folder}/out/best", "output_dir": f"{folder}/again"}
    again = options(tiny, folder, do_eval=True, **paths)
    assert squad.run(again).metrics["f1"] == best["f1"]


def test_best_weights_by_character_metrics(tiny, folder):
    flags = {"do_train": True, "do_eval": True, "num_train_epochs": 1.0, "eval_every": "1epoch"}
    squad.run(options(tiny, folder, **flags, answer_scoring="characters"))
    assert read(folder, "evaluations.json")["metric"] == "f1_characters"
    with pytest.raises(UserError, match="--best_metric must be one of f1, exact_match"):
        squad.run(options(tiny, folder, **flags, best_metric="f1_characters"))


def test_metrics_match_the_written_predictions(tiny, folder):
    run = options(tiny, folder, do_eval=True)
    metrics = squad.run(run).metrics
    examples = make_task(tiny, run).read("eval").questions
    recomputed = scores.score(examples, read(folder, "predictions.json"))
    assert {key: metrics[key] for key in recomputed} == recomputed
