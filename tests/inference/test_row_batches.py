"""Outputs that are not finite: no number is made of them, whichever way they leave the model."""

import shutil

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf import Predictor, SentenceEncoder, checkpoint
from bert_tf.base.errors import UserError
from bert_tf.checkpoints.tensors import read, shapes
from bert_tf.data import array_ops
from bert_tf.inference.row_batches import NotFinite, checked
from bert_tf.options import ClassifierOptions, EmbeddingsOptions, ExtractionOptions, SearchOptions
from bert_tf.search import index
from bert_tf.search.run import run as search
from bert_tf.tasks import extraction
from tests.serving.servers import in_process

# The model overflows for texts with "plot".
TEXTS = ["the good film", "a bad plot", "not fast", "it was slow"]
LABELS = ["y", "x", "x", "y"]
BAD_ROW = r"at least 1 of 4 rows \(row 2\)"


def overflow(folder):
    """Makes a sum of embeddings overflow for "plot"; all weights are finite."""
    prefix = checkpoint.latest(str(folder)) or str(folder / "bert_model.ckpt")
    tensors = dict(read(prefix, shapes(prefix)))
    words = (folder / "vocab.txt").read_text().split()
    tensors["bert/embeddings/word_embeddings"][words.index("plot"), 0] = 3e38
    tensors["bert/embeddings/position_embeddings"][:, 0] = 3e38
    checkpoint.write(prefix, tensors)


def write_table(path, texts):
    rows = (f"{text}\t{label}\n" for text, label in zip(texts, LABELS, strict=True))
    path.write_text("text\tlabel\n" + "".join(rows))
    return str(path)


@pytest.fixture(scope="module")
def encoder(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("overflow") / "encoder"
    shutil.copytree(tiny.folder, folder)
    overflow(folder)
    return folder


def classifier_options(tiny, folder, **flags):
    columns = {"task_name": "tsv", "text_column": "text", "label_column": "label"}
    flags = {**columns, "output_dir": str(folder), "train_batch_size": 2, **flags}
    return ClassifierOptions(**{**tiny.flags, **flags})


@pytest.fixture(scope="module")
def classifier(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("overflow")
    path = write_table(folder / "train.tsv", TEXTS)
    flags = {"do_train": True, "train_file": path, "init_checkpoint": tiny.checkpoint}
    bert_tf.run(classifier_options(tiny, folder / "out", **flags))
    overflow(folder / "out")
    return folder / "out"


@pytest.mark.parametrize("kind", [tf.constant, np.array])
def test_probabilities_do_not_hide_infinity(kind):
    def fetch(outputs, batch):
        return {"probabilities": array_ops.softmax(outputs["logits"]), "ids": batch["ids"]}

    batch = {"input_mask": kind([[1], [1], [1]]), "ids": kind([4, 5, 6])}
    # Not of a row each, and therefore not checked.
    others = {"temperature": kind(np.nan), "centers": kind(np.full((2, 3), np.nan, "f"))}
    layers = [kind(np.float32([[[1]], [[1]], [[np.nan]]]))]
    outputs = {"logits": kind(np.float32([[0, 1], [-np.inf, 1], [0, 1]])), "layers": layers}
    fetched = checked(fetch)({**outputs, **others}, batch)
    assert np.isfinite(fetched["probabilities"]).all()
    assert np.asarray(fetched["is_finite"]).tolist() == [1, 0, 0]


@pytest.mark.parametrize("engine", ["tensorflow", "onnx", "litert"])
def test_predictor(classifier, engine):
    predictor = Predictor(classifier, engine=engine)
    assert len(predictor([TEXTS[0], TEXTS[2]])) == 2
    with pytest.raises(NotFinite, match=BAD_ROW):
        predictor(TEXTS)
    if engine == "tensorflow":
        with pytest.raises(NotFinite):
            predictor.explain(TEXTS[1])


@pytest.mark.parametrize("flags", [{"do_eval": True}, {"do_predict": True}])
def test_metrics_and_files_of_predictions(classifier, tiny, tmp_path, flags):
    path = write_table(tmp_path / "rows.tsv", TEXTS)
    flags = {"eval_file" if "do_eval" in flags else "predict_file": path, **flags}
    before = {*classifier.iterdir()}
    with pytest.raises(NotFinite, match=BAD_ROW):
        bert_tf.run(classifier_options(tiny, classifier, **flags))
    new = {path.suffix for path in {*classifier.iterdir()} - before}
    assert new <= {".tf_record"}


def test_best_weights(encoder, tiny, tmp_path):
    flags = {"do_train": True, "do_eval": True, "eval_every": 1}
    # The texts for training do not overflow.
    flags["train_file"] = write_table(tmp_path / "train.tsv", [TEXTS[0]] * 4)
    flags["eval_file"] = write_table(tmp_path / "eval.tsv", TEXTS)
    flags["init_checkpoint"] = str(encoder / "bert_model.ckpt")
    out = tmp_path / "out"
    with pytest.raises(NotFinite, match=BAD_ROW):
        bert_tf.run(classifier_options(tiny, out, **flags))
    assert not (out / "best").exists()
    assert not (out / "evaluations.json").exists()


def test_weights_that_are_not_finite(tmp_path):
    tensors = {"a": np.ones(2, np.float32), "b": np.float32([1, np.nan])}
    with pytest.raises(UserError, match="b contains NaN"):
        checkpoint.write(str(tmp_path / "model.ckpt-1"), tensors)
    assert not any(tmp_path.iterdir())


def test_diverged_training_keeps_no_weights(tiny, tmp_path):
    rows = "".join(f"{a}\t{b}\n" for a, b in zip(TEXTS, TEXTS[::-1], strict=True))
    (tmp_path / "pairs.tsv").write_text("anchor\tpositive\n" + rows)
    options = EmbeddingsOptions(
        **{**tiny.flags, "train_batch_size": 2},
        init_checkpoint=tiny.checkpoint,
        output_dir=str(tmp_path / "out"),
        train_file=str(tmp_path / "pairs.tsv"),
        eval_file=str(tmp_path / "pairs.tsv"),
        anchor_column="anchor",
        positive_column="positive",
        do_train=True,
        do_eval=True,
        eval_every=1,
        learning_rate=1e30,
    )
    with pytest.raises(UserError, match=r"NaN or infin|is nan"):
        bert_tf.run(options)
    assert not (tmp_path / "out" / "best").exists()


def test_vectors(encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(index, "_CHUNK", 1)  # The row is counted among all.
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"{text}\n" for text in TEXTS))
    flags = {"init_checkpoint": str(encoder), "max_seq_length": 8}
    with pytest.raises(NotFinite, match=BAD_ROW):
        search(SearchOptions(**flags, index_dir=str(tmp_path / "index"), input_file=str(path)))
    with pytest.raises(UserError, match="only 1 of 4 texts have vectors"):
        index.Index(str(tmp_path / "index"))
    with pytest.raises(NotFinite, match=BAD_ROW):
        SentenceEncoder.from_checkpoint(encoder, max_seq_length=8).encode(TEXTS)
    files = {"input_file": str(path), "output_file": str(tmp_path / "out.jsonl"), "layers": "-1"}
    for pooling in ("none", "max"):
        with pytest.raises(NotFinite, match=BAD_ROW):
            extraction.run(ExtractionOptions(**flags, **files, pooling=pooling))
    assert not (tmp_path / "out.jsonl").exists()


def test_replies(classifier):
    with in_process(model=f"m={classifier}") as server:
        path = "/v1/models/m:predict"
        status, message = server.error(path, {"instances": TEXTS})
        assert (status, "1 of 4 rows (row 2)" in message) == (500, True)
        # It does not fail requests that are computed together with it.
        assert len(server.post(path, {"instances": TEXTS[:1]})["predictions"]) == 1
