"""Relation classification with `--special_tokens` and `--pooling=entity_starts`."""

import dataclasses
import itertools
import json
import os
import re
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import Predictor
from bert_tf.base.errors import UserError
from bert_tf.checkpoints.formats import find_source
from bert_tf.options import ConversionOptions, ExportOptions, registry
from bert_tf.tasks import classification
from bert_tf.tasks.classification.checks import find_markers
from bert_tf.tokenization import FullTokenizer
from tests.tasks.classification.test_custom_runs import custom_options, write

MARKERS = "[E1],[/E1],[E2],[/E2]"
WORDS = ["a", "b", "c"]
# The label is in the word after the second marker, which comes first in half of the texts.
ROWS = [
    (f"is {second}", f"[E1] {first} [/E1] the film [E2] {second} [/E2] it")
    if index % 2
    else (f"is {second}", f"the [E2] {second} [/E2] was [E1] {first} [/E1]")
    for index, (first, second, _) in enumerate(itertools.product(WORDS, WORDS, range(4)))
]
TEXTS = [text for _, text in ROWS[:12]]
OWN = {"special_tokens": MARKERS, "pooling": "entity_starts", "max_seq_length": 16}


@pytest.fixture(scope="module")
def marked(tiny, tmp_path_factory):
    """The tiny model, with four unused entries in its vocabulary."""
    folder = tmp_path_factory.mktemp("marked")
    words = (tiny.folder / "vocab.txt").read_text().split()
    words[-4:] = [f"[unused{n}]" for n in range(4)]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    flags = {**tiny.flags, "vocab_file": str(folder / "vocab.txt")}
    return SimpleNamespace(**{**vars(tiny), "flags": flags})


@pytest.fixture(scope="module")
def relations(marked, tmp_path_factory):
    folder = tmp_path_factory.mktemp("relations")
    write(folder / "data", "train.tsv", ROWS)
    write(folder / "data", "dev.tsv", ROWS[::3])
    run = custom_options(
        marked, folder, **OWN, do_train=True, do_eval=True, learning_rate=1e-2, num_train_epochs=12
    )
    return folder / "out", classification.run(run)


def test_relations_are_learned_from_the_markers(relations):
    folder, results = relations
    assert results.metrics["eval_accuracy"] == 1
    assert json.loads((folder / "run.json").read_text())["flags"]["special_tokens"] == MARKERS
    predictor = Predictor(folder)
    assert [prediction.label for prediction in predictor(TEXTS)] == [row[0] for row in ROWS[:12]]
    with pytest.raises(UserError, match=r"Input 1: no text has \[E2\], such as"):
        predictor([TEXTS[0], "[E1] a [/E1] b"])


def probabilities(predictor):
    return np.array([list(p.probabilities.values()) for p in predictor(TEXTS)])


@pytest.mark.parametrize("format", ["saved_model", "onnx", "litert"])
def test_exports_return_what_the_predictor_does(relations, tmp_path, format):
    folder, _ = relations
    expected = probabilities(Predictor(folder))
    target = str(tmp_path / "exported")
    exported = registry.run(ExportOptions(model_dir=str(folder), export_dir=target, format=format))
    if format == "saved_model":
        serve = tf.saved_model.load(exported).signatures["serving_default"]
        actual = serve(text=tf.constant(TEXTS))["probabilities"].numpy()
    else:
        actual = probabilities(Predictor(target, engine=format))
    np.testing.assert_allclose(actual, expected, atol=1e-4)


def test_converted_models_keep_the_markers(relations, tmp_path):
    folder, _ = relations
    for name in ("hf", "model.keras"):
        to = "hugging_face" if name == "hf" else "auto"
        output = str(tmp_path / name)
        registry.run(ConversionOptions(input=str(folder), output=output, to=to))
        ((_, markers),) = find_source(output).read(["entities/marker_ids"])
        assert markers.tolist() == [15, 17]
    assert (tmp_path / "hf" / "vocab.txt").read_text().split()[-4:] == MARKERS.split(",")
    config = json.loads((tmp_path / "hf" / "tokenizer_config.json").read_text())
    assert config["additional_special_tokens"] == MARKERS.split(",")


def test_missing_markers_are_reported(marked, tmp_path, run_log):
    rows = [*ROWS[:8], ("is a", "the film a"), ("is b", "b " * 20 + TEXTS[0])]
    rows[0] = ("is a", "[E1] a [/E1] b [E1] c [/E1] [E2] a [/E2]")
    write(tmp_path / "data", "train.tsv", rows)
    write(tmp_path / "data", "dev.tsv", ROWS[:2])
    run = custom_options(marked, tmp_path, **OWN, do_train=True, num_train_epochs=0.5)
    classification.run(run)
    lack = r"train.tsv: 2 of 10 texts lack \[E1\], or have it after --max_seq_length=16"
    assert re.search(lack, run_log.text)


@pytest.mark.parametrize(("tokens", "warns"), [("[e1],[e2]", True), ("[e1],[E2]", False)])
def test_special_tokens_in_no_text_warn(marked, tmp_path, run_log, tokens, warns):
    write(tmp_path / "data", "train.tsv", ROWS[:8])
    run = custom_options(marked, tmp_path, special_tokens=tokens, do_train=True)
    classification.run(dataclasses.replace(run, num_train_epochs=0.5, dev_fraction=0))
    warning = "2 of 2 special tokens are not in the training data: [e1], [e2]"
    assert (warning in run_log.text) == warns


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ({"special_tokens": None}, "needs --special_tokens=.* Received: none"),
        (
            {"special_tokens": "[E1],[E2],[E3]"},
            r"needs --special_tokens=.* Received: \[E1\], \[E2\], \[E3\]",
        ),
        ({"special_tokens": "@G,@D"}, "train.tsv: no text has @G, such as"),
        ({"long_text": "windows"}, "excludes --long_text=windows"),
        ({"pooling": "last"}, "--pooling must be one of cls, entity_starts. Received: last"),
    ],
)
def test_unsuitable_options_are_errors(marked, tmp_path, flags, problem):
    write(tmp_path / "data", "train.tsv", ROWS[:8])
    run = custom_options(marked, tmp_path, **{**OWN, "do_train": True, **flags})
    with pytest.raises(UserError, match=problem):
        classification.run(run)
    assert not os.path.exists(tmp_path / "out")


@pytest.mark.parametrize(
    ("special_tokens", "expected"),
    [
        ("[E1],[/E1],[E2],[/E2]", {"[E1]": 15, "[E2]": 17}),
        ("[E1],[E2],[E1_END],[E2_END]", {"[E1]": 15, "[E2]": 16}),
        ("[E11],[E12],[E21],[E22]", {"[E11]": 15, "[E21]": 17}),
        ("@GENE$,@DISEASE$", {"@GENE$": 15, "@DISEASE$": 16}),
    ],
)
def test_markers_before_the_entities(marked, special_tokens, expected):
    tokenizer = FullTokenizer(marked.flags["vocab_file"], special_tokens=special_tokens)
    assert find_markers("entity_starts", tokenizer) == expected
