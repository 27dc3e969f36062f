"""A task in a user's own package: registration, texts of different lengths, in-batch negatives."""

import dataclasses
import random

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.api.predictor import Predictor
from bert_tf.base.errors import UserError
from bert_tf.finetuning.task import Task
from bert_tf.options import FineTuningOptions, registry
from tests.conftest import WORDS
from tests.finetuning.helpers import write_json_lines
from tests.finetuning.own_relations import RelationOptions
from tests.finetuning.own_task import RetrievalOptions


@pytest.fixture
def retrieval(tiny, tmp_path):
    rng = random.Random(0)
    for name, size in (("train", 96), ("eval", 8)):
        rows = []
        for _ in range(size):
            pair = rng.sample(WORDS, 2)
            passages = [f"the {x} " + " ".join([x] * rng.randint(2, 9)) for x in pair]
            rows.append({"query": pair[0], "passages": passages})
        write_json_lines(tmp_path / f"{name}.jsonl", rows)
    flags = {**tiny.flags, "init_checkpoint": tiny.checkpoint, "output_dir": str(tmp_path / "out")}
    files = {f"{name}_file": str(tmp_path / f"{name}.jsonl") for name in ("train", "eval")}
    flags |= {"train_batch_size": 8, "learning_rate": 1e-2, "num_train_epochs": 5.0}
    return RetrievalOptions(**flags, **files, do_train=True, do_eval=True)


def test_bi_encoder_trains_resumes_and_predicts(retrieval, run_log):
    results = registry.run(retrieval)
    assert results.metrics["global_step"] == 60
    assert results.metrics["eval_mrr"] > 0.6
    more = dataclasses.replace(retrieval, num_train_epochs=6.0, temperature=0.1)
    assert registry.run(more).metrics["global_step"] == 72
    assert "temperature was 0.05, now 0.1" in run_log.text
    run_log.clear()
    registry.run(dataclasses.replace(more, learning_rate=1e-3, num_train_epochs=7.0))
    assert "Reusing" in run_log.text  # neither flag changes the rows
    predictor = Predictor.from_output_dir(retrieval.output_dir)
    vectors = predictor(["good", "film", "good"])
    assert np.array_equal(vectors[0], vectors[2])
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_micro_batches(retrieval):
    options = dataclasses.replace(retrieval, gradient_accumulation_steps=2)
    assert registry.run(options).metrics["eval_mrr"] > 0.6


def test_texts_of_a_kind_longer_than_the_model(retrieval):
    with pytest.raises(UserError, match="input_ids=25 exceeds the model's 24 positions"):
        registry.run(dataclasses.replace(retrieval, max_query_length=25))


def test_unregistered_options():
    with pytest.raises(UserError, match="belongs to no registered task"):
        registry.run(FineTuningOptions())


def test_folder_of_an_unregistered_task(tmp_path):
    (tmp_path / "run.json").write_text('{"script": "not_imported", "flags": {}}')
    with pytest.raises(UserError, match="not_imported is not a registered task: first import"):
        Predictor(tmp_path)


def test_members_of_version_1_0_are_rejected():
    with pytest.raises(TypeError, match=r"Old\.labels has no effect any more, see CHANGELOG"):
        type("Old", (Task,), {"labels": ("a", "b")})


def test_relations_use_more_inputs(tiny, tmp_path):
    rng = random.Random(1)
    for name, size in (("train", 120), ("eval", 20)):
        lines = ["text\tfirst\tsecond\trelation\n"]
        for _ in range(size):
            words = rng.choices(WORDS, k=8)
            first, second = rng.sample(range(8), 2)
            # Only the two entities tell the relation.
            label = "same" if words[first] == "good" or words[second] == "good" else "other"
            lines.append(f"{' '.join(words)}\t{first}\t{second}\t{label}\n")
        (tmp_path / f"{name}.tsv").write_text("".join(lines))
    flags = {**tiny.flags, "init_checkpoint": tiny.checkpoint, "learning_rate": 1e-2}
    flags |= {"output_dir": str(tmp_path / "out"), "num_train_epochs": 5.0}
    flags |= {"data_dir": str(tmp_path), "do_train": True, "do_eval": True}
    run = RelationOptions(**flags, do_export=True)
    results = registry.run(run)
    assert results.metrics["accuracy"] > 0.85
    predictor = Predictor.from_output_dir(run.output_dir)
    text = "the good film was not slow a plot"
    assert predictor([(text, 1, 3), (text, 3, 5)]) == ["same", "other"]
    model = tf.saved_model.load(str(tmp_path / "out" / "export" / "1"))
    signature = model.signatures["serving_default"]
    assert "positions" in signature.structured_input_signature[1]
    # A teacher reads the same inputs.
    student = dataclasses.replace(
        run, teacher=run.output_dir, output_dir=str(tmp_path / "student"), do_export=False
    )
    assert registry.run(student).metrics["accuracy"] > 0.85
