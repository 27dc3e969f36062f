"""The tasks of docs/own_tasks.md; test_docs.py runs the page as it is, which takes minutes."""

import re

import keras
import numpy as np
import pytest

from bert_tf import UserError
from bert_tf.api.predictor import Predictor
from bert_tf.data import array_ops
from bert_tf.finetuning.model_files import read_model_files
from bert_tf.modeling import losses
from bert_tf.options import (
    ConversionOptions,
    ExportOptions,
    ExtractionOptions,
    ServingOptions,
    registry,
)
from bert_tf.serving.models import Model
from tests.oracle import ROOT
from tests.own_tasks_page import PROGRAM, page

FEW_STEPS = {
    r"(max_seq_length'?[:=] ?)64": r"\g<1>24",
    r"num_train_epochs=(5|10|20)\b": "num_train_epochs=1",
    r"num_train_epochs=6": "num_train_epochs=2",  # continues
    r"600": "32",
    r"200": "8",
}


@pytest.fixture(scope="module")
def results(tiny, tmp_path_factory):
    """The names of the page after its program has run, with the tiny model and few steps."""
    output = tmp_path_factory.mktemp("output")
    paths = {"examples/small_bert": str(tiny.folder), "'output/": f"'{output}/"}
    program = PROGRAM
    for pattern, new in {**paths, **FEW_STEPS}.items():
        program, count = re.subn(pattern, new, program)
        assert count, pattern
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        names = {**vars(page)}
        exec(program, names)
    return {**names, "output": output}


def test_page_runs(results):
    folders = ("own_reviews", "own_relations", "own_encoder", "own_pooling")
    assert all((results["output"] / name / "report.html").exists() for name in folders)
    texts = results["encoder"], Predictor(results["output"] / "own_encoder")
    left, right = (encode(["good film"])[0] for encode in (texts[0].encode, texts[1]))
    np.testing.assert_allclose(left, right, atol=1e-5)
    lite = Predictor(results["output"] / "own_lite", engine="litert")("good film")
    expected = results["predictor"]("good film")
    assert lite.probabilities == pytest.approx(expected.probabilities, abs=1e-5)
    keras.saving.load_model(results["output"] / "own.keras")


def test_encoder_needs_no_task(results, monkeypatch):
    """Other programs, such as search_texts.py, use it without importing the page's code."""
    monkeypatch.delitem(registry._own_tasks, "margin_embeddings")
    search = {"index_dir": str(results["output"] / "other_index"), "text_column": "text"}
    encoder = {"init_checkpoint": str(results["output"] / "own_encoder")}
    texts = str(results["output"] / "docs/dev.jsonl")
    registry.run(page.SearchOptions(**search, **encoder, input_file=texts))
    vectors = {"output_file": str(results["output"] / "vectors.npz"), "text_column": "text"}
    registry.run(ExtractionOptions(**encoder, **vectors, input_file=texts, max_seq_length=24))
    copy = {"input": encoder["init_checkpoint"], "output": str(results["output"] / "converted")}
    registry.run(ConversionOptions(**copy, to="sentence_transformers"))


def test_head_is_not_converted_as_a_classifier(results, monkeypatch):
    copy = {"input": str(results["output"] / "own_pooling"), "output": "x", "to": "hugging_face"}
    with pytest.raises(UserError, match="MeanPoolingClassifier has no attribute head_format"):
        registry.run(ConversionOptions(**copy))
    with pytest.raises(UserError, match="MeanPoolingClassifier cannot be exported to ONNX"):
        registry.run(ExportOptions(model_dir=copy["input"], export_dir="x", format="onnx"))
    monkeypatch.delitem(registry._own_tasks, "mean_pooling")
    with pytest.raises(UserError, match="mean_pooling is not a registered task"):
        registry.run(ConversionOptions(**copy))


def test_subclasses_are_served_as_the_task_that_they_extend(results):
    classifier = Model("a", str(results["output"] / "own_pooling"), ServingOptions())
    assert (classifier.kind.task, classifier.explains) == ("text-classification", True)
    encoder = Model("b", str(results["output"] / "own_encoder"), ServingOptions())
    assert "/v1/embeddings" in encoder.kind.routes
    with pytest.raises(UserError, match="models of reviews cannot be served"):
        Model("c", str(results["output"] / "own_reviews"), ServingOptions())


def test_margin_loss(tiny):
    options = page.MarginOptions(
        **tiny.flags, init_checkpoint=tiny.checkpoint, anchor_column="a", positive_column="b"
    )
    rng = np.random.default_rng(0)
    anchors, passages = rng.normal(size=(2, 5, 1, 4)).astype("float32")
    passages[3] = passages[1]
    ids = np.array([[1, 11], [2, 12], [3, 13], [4, 12], [5, 15]], "int32")
    outputs = {"sentence_embedding": anchors[:, 0], "passages": passages}
    for margin in (0.0, 0.3):
        task = page.MarginEmbeddings(*read_model_files(options))
        object.__setattr__(task.options, "margin", margin)
        actual = task.loss(outputs, {"text_ids": ids}, training=True)
        expected = losses.multiple_negatives(anchors[:, 0], passages, ids, 20.0)
        if margin:
            assert (np.asarray(actual) > np.asarray(expected)).all()
        else:
            np.testing.assert_allclose(actual, expected, atol=1e-4)


def test_mean_pooling(tiny):
    model = page.MeanPoolingClassifier(tiny.config, 2)
    rows = {"input_ids": np.array([[2, 5, 6, 3], [2, 7, 3, 0]], "int32")}
    rows |= {"input_mask": (rows["input_ids"] > 0).astype("int32")}
    vectors = array_ops.pool(model.bert(rows)["sequence_output"], rows["input_mask"], "mean")
    np.testing.assert_allclose(model(rows)["logits"], model.head(vectors), atol=1e-6)
    model({"input_ids": rows["input_ids"]})
    low = page.MeanPoolingClassifier(tiny.config, 2, dtype="mixed_bfloat16")
    assert keras.backend.standardize_dtype(low(rows)["logits"].dtype) == "float32"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("the film\t0\t2\tx", "eval.tsv:2: the text has no word 2, or is too long"),
        ("the film" + " a" * 30 + "\t0\t29\tx", "eval.tsv:2: the text has no word 29"),
        ("the film\t0\t1\tz", "eval.tsv:2: unknown relation 'z'"),
    ],
)
def test_invalid_relations(tiny, tmp_path, row, message):
    for split, line in (("train", "the film\t0\t1\tx"), ("eval", row)):
        text = f"text\tfirst\tsecond\trelation\n{line}\n"
        (tmp_path / f"{split}.tsv").write_text(text)
    flags = {**tiny.flags, "init_checkpoint": tiny.checkpoint, "train_batch_size": 1}
    flags |= {"do_train": True, "do_eval": True, "output_dir": str(tmp_path / "out")}
    with pytest.raises(UserError, match=message):
        registry.run(page.RelationOptions(**flags, data_dir=str(tmp_path)))
    assert not (tmp_path / "out").exists()
