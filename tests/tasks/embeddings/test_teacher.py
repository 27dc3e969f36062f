"""Teachers whose vectors of texts are the targets: any encoder, with its own vocabulary."""

import dataclasses
import shutil

import numpy as np
import pytest

from bert_tf.api.predictor import Predictor
from bert_tf.base.errors import UserError
from bert_tf.checkpoints.formats import convert, find_source
from bert_tf.checkpoints.formats.sentence_transformers import declaration
from bert_tf.data.array_ops import normalize
from bert_tf.data.features import Feature
from bert_tf.data.records import read_chunks
from bert_tf.finetuning.model_files import read_model_files
from bert_tf.options import ConversionOptions, EmbeddingsOptions, registry
from bert_tf.tasks.embeddings.task import Embeddings
from tests.conftest import WORDS
from tests.training.helpers import ONE_DEVICE

ROWS = [(" ".join(WORDS[i : i + 3]), " ".join(WORDS[i : i + 6]), WORDS[-i - 1]) for i in range(12)]


@pytest.fixture(scope="module")
def teacher(tiny_of_two_layers, tmp_path_factory):
    """A folder of a two-layer model with the same words in another order, and a declaration."""
    folder = tmp_path_factory.mktemp("teacher")
    for path in tiny_of_two_layers.folder.glob("bert_*"):
        shutil.copy(path, folder)
    words = (tiny_of_two_layers.folder / "vocab.txt").read_text().split()
    (folder / "vocab.txt").write_text("\n".join([*words[:5], *reversed(words[5:])]) + "\n")
    prompts = {"query": "the ", "passage": "it "}
    for name, text in declaration("cls", False, 20, 16, prompts).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def options(tiny, teacher, tmp_path):
    """A student of one layer."""
    lines = ["a\tb\tc", *("\t".join(row) for row in ROWS)]
    lines[1] = lines[1].rpartition("\t")[0] + "\t"  # no hard negative
    (tmp_path / "train.tsv").write_text("\n".join(lines) + "\n")
    flags = {**tiny.flags, "init_checkpoint": tiny.checkpoint, "output_dir": str(tmp_path / "out")}
    columns = {"anchor_column": "a", "positive_column": "b", "negative_columns": "c"}
    flags |= {"teacher": str(teacher), "num_train_epochs": 1.0, "learning_rate": 1e-2}
    return EmbeddingsOptions(**flags, **columns, data_dir=str(tmp_path), do_train=True)


def targets(options):
    path = f"{options.output_dir}/train.tf_record"
    names = ("teacher_sentence_embedding", 16), ("teacher_passages", (2, 16))
    features = [Feature(name, size, "float32") for name, size in names]
    (rows,) = read_chunks(path, features, 100, len(ROWS))
    return rows["teacher_sentence_embedding"], rows["teacher_passages"]


def encode(folder, texts, **flags):
    found = Predictor(folder, "extract_features", **flags)(texts)
    return np.concatenate([item.values for item in found])


def test_records_have_the_vectors_that_the_folder_declares(options, teacher):
    registry.run(options)
    anchors, passages = targets(options)
    expected = encode(teacher, [f"the {anchor}" for anchor, _, _ in ROWS])
    np.testing.assert_allclose(anchors, expected, atol=1e-5)
    for index in (0, 1):
        expected = encode(teacher, [f"it {row[1 + index]}" for row in ROWS[1:]])
        np.testing.assert_allclose(passages[1:, index], expected, atol=1e-5)


def test_teacher_of_sentence_transformers(options, teacher, tmp_path):
    folder = tmp_path / "converted"
    request = {"to": "hugging_face", "head": "encoder", "do_lower_case": False}
    convert(find_source(str(teacher)), ConversionOptions(output=str(folder), **request))
    # The model is cased, and the encoder lower-cases texts before.
    for name, text in declaration("mean", False, 20, 16, {"document": "A "}, True).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    run = dataclasses.replace(options, teacher=str(folder))
    registry.run(run)
    anchors, passages = targets(run)
    texts = [row[0] for row in ROWS], [f"a {row[1]}" for row in ROWS]
    flags = {"pooling": "mean", "layers": "-1", "max_seq_length": 20}
    for vectors, expected in zip((anchors, passages[:, 0]), texts, strict=True):
        np.testing.assert_allclose(vectors, encode(teacher, expected, **flags), atol=1e-5)


def test_translations_have_the_vector_of_the_anchor(options):
    registry.run(dataclasses.replace(options, translations=True))
    anchors, passages = targets(options)
    np.testing.assert_array_equal(passages[:, 0], anchors)


def cosines(options, teacher, folder):
    texts = [f"{anchor}" for anchor, _, _ in ROWS]
    ours, theirs = encode(folder, texts), encode(teacher, [f"the {text}" for text in texts])
    return (normalize(ours) * normalize(theirs)).sum(axis=1).mean()


@pytest.mark.slow
@pytest.mark.parametrize("micro_batches", [1, 2])
def test_student_approaches_the_teacher(options, teacher, micro_batches):
    longer = {"teacher_weight": 1.0, "num_train_epochs": 30.0}
    run = dataclasses.replace(options, **longer, gradient_accumulation_steps=micro_batches)
    registry.run(run)
    assert cosines(run, teacher, run.output_dir) > 0.9


def test_records_are_reused_until_the_teacher_changes(options, teacher, tmp_path, run_log):
    copy = shutil.copytree(teacher, tmp_path / "teacher")
    run = dataclasses.replace(options, teacher=str(copy))
    registry.run(run)
    run_log.clear()
    registry.run(dataclasses.replace(run, num_train_epochs=2.0))
    assert "Reusing" in run_log.text
    assert "computing the vectors" not in run_log.text
    prompts = copy / "config_sentence_transformers.json"
    prompts.write_text(prompts.read_text().replace('"the "', '"it "'))
    registry.run(dataclasses.replace(run, num_train_epochs=3.0))
    assert "computing the vectors of" in run_log.text


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("1_Pooling/config.json", "{", '{"pooling_mode": "max", '),
        ("config_sentence_transformers.json", '"it "', '"the "'),
        ("sentence_bert_config.json", "20", "19"),
        ("vocab.txt", "good\n", "well\n"),
        ("tokenizer_config.json", "{}", '{"strip_accents": false}'),
        ("bert_config.json", '"gelu"', '"relu"'),
    ],
)
def test_identity_of_a_teacher(options, teacher, tmp_path, name, old, new):
    copy = shutil.copytree(teacher, tmp_path / "teacher")
    (copy / "tokenizer_config.json").write_text("{}")
    student = Embeddings(*read_model_files(dataclasses.replace(options, teacher=str(copy))))
    before, text = student.open_teacher(ONE_DEVICE).identity, (copy / name).read_text()
    assert student.open_teacher(ONE_DEVICE).identity == before
    assert old in text
    (copy / name).write_text(text.replace(old, new))
    assert student.open_teacher(ONE_DEVICE).identity != before


def test_mistakes(options, teacher, tmp_path):
    def fail(match, **changes):
        with pytest.raises(UserError, match=match):
            registry.run(dataclasses.replace(options, **changes))

    fail("has vectors of size 16, but this model of 32", pooling="mean_max")
    fail("--translations needs --teacher", teacher=None, translations=True)
    fail("No checkpoint .*missing", teacher=str(tmp_path / "missing"))
    copy = shutil.copytree(teacher, tmp_path / "dense")
    modules = (copy / "modules.json").read_text().replace("models.Pooling", "models.Dense")
    (copy / "modules.json").write_text(modules)
    fail("dense/.*modules Transformer, Dense, which is not supp", teacher=str(copy))
    (copy / "run.json").write_text('{"script": "run_ranking"}')
    fail("no vectors of texts: run_ranking trained it", teacher=str(copy))
    assert not (tmp_path / "out").exists()
