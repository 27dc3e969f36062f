"""Pre-training and SQuAD on several devices and processes (see `test_distribution.py`)."""

import json
import random

import numpy as np
import pytest

from bert_tf.options import PretrainingDataOptions
from bert_tf.tasks.pretraining import create_data
from tests.conftest import WORDS
from tests.training.runs import Runs

CONTEXT = "the good film was not slow it was a fast story the bad plot"


def run_on(runs, name, devices, workers):
    if workers > 1:
        runs.run(runs.make_launch_command(name, workers))
    else:
        runs.run(runs.make_command(name, devices, distribution_strategy="mirrored"))


def write_corpus(path):
    rng = random.Random(1)
    make_sentence = lambda: " ".join(rng.choices(WORDS, k=rng.randint(3, 9)))  # noqa: E731
    documents = ["\n".join(make_sentence() for _ in range(rng.randint(1, 6))) for _ in range(60)]
    path.write_text("\n\n".join(documents) + "\n")


@pytest.fixture(scope="module")
def pretraining(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pretraining")
    sizes = {"max_seq_length": 24, "max_predictions_per_seq": 4}
    write_corpus(folder / "text.txt")
    options = PretrainingDataOptions(
        input_file=f"{folder}/text.txt",
        # Use one file: several would be sharded across workers, which changes the batches.
        output_file=f"{folder}/text.tfrecord",
        vocab_file=tiny.flags["vocab_file"],
        dupe_factor=1,
        **sizes,
    )
    create_data.run(options)
    flags = {
        "input_file": f"{folder}/text.tfrecord",
        "do_train": True,
        "do_eval": True,
        "train_batch_size": 12,
        "num_train_steps": 51,
        "num_warmup_steps": 5,
        "learning_rate": 8e-4,
        "eval_batch_size": 7,
        "max_eval_steps": 9,
    }
    runs = Runs("run_pretraining", tiny, folder, **sizes, **flags)
    runs.run(runs.make_command("one_device"))
    return runs


# On few cores, replicas are slow.
SLOW = pytest.mark.slow


@SLOW
@pytest.mark.parametrize(("devices", "workers"), [(2, 1), (1, 2), (4, 1), (1, 3)])
def test_pretraining_matches_one_device(pretraining, devices, workers):
    name = f"devices{devices}_workers{workers}"
    run_on(pretraining, name, devices, workers)
    pretraining.assert_same_steps(name, "one_device", workers)
    assert pretraining.eval_metrics(name) == pytest.approx(
        pretraining.eval_metrics("one_device"), rel=1e-5
    )


def write_questions(path, count):
    def make_question(number):
        words = CONTEXT.split()
        first = number % (len(words) - 2)
        # Words occur repeatedly, so count characters instead of searching.
        answer_start = len(" ".join([*words[:first], ""]))
        answer = {"text": " ".join(words[first : first + 2]), "answer_start": answer_start}
        text = f"what was {WORDS[number % len(WORDS)]}"
        return {"id": f"q{number}", "question": text, "answers": [answer]}

    paragraph = {"context": CONTEXT, "qas": [make_question(number) for number in range(count)]}
    path.write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}))


@pytest.fixture(scope="module")
def questions(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("questions")
    write_questions(folder / "train.json", 23)
    write_questions(folder / "dev.json", 11)
    flags = {
        "train_file": folder / "train.json",
        "predict_file": folder / "dev.json",
        "do_train": True,
        "do_predict": True,
        "do_eval": True,
        "max_query_length": 5,
        "doc_stride": 4,
        "num_train_epochs": 27,
        "learning_rate": 8e-4,
        **tiny.flags,
        "train_batch_size": 12,
    }
    runs = Runs("run_squad", tiny, folder, **flags)
    runs.run(runs.make_command("one_device"))
    return runs


@pytest.mark.parametrize(("devices", "workers"), [pytest.param(2, 1, marks=SLOW), (1, 2)])
def test_squad_matches_one_device(questions, devices, workers):
    name = f"devices{devices}_workers{workers}"
    run_on(questions, name, devices, workers)
    questions.assert_same_steps(name, "one_device", workers)
    assert questions.eval_metrics(name) == pytest.approx(
        questions.eval_metrics("one_device"), rel=1e-5
    )
    actual, expected = (
        json.loads((questions.folder / run / "nbest_predictions.json").read_text())
        for run in (name, "one_device")
    )
    assert list(actual) == list(expected) == [f"q{number}" for number in range(11)]
    for question, answers in expected.items():
        texts = [answer["text"] for answer in actual[question]]
        assert texts == [answer["text"] for answer in answers]
        for key in ("probability", "start_logit", "end_logit"):
            values = [answer[key] for answer in actual[question]]
            np.testing.assert_allclose(values, [answer[key] for answer in answers], rtol=1e-4)
