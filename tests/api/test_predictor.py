"""Predictor: predictions from a run directory equal those of the scripts."""

import json
import os
import random
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import bert_tf
from bert_tf import BertClassifier, BertTokenClassifier, encode
from bert_tf.api.predictor import Predictor
from bert_tf.base.errors import UserError
from bert_tf.options import ClassifierOptions, ExtractionOptions, NerOptions, SquadOptions
from bert_tf.tasks import classification, ner, squad
from tests.conftest import WORDS
from tests.oracle import ROOT, golden

SMALL_BERT = str(ROOT / "examples" / "small_bert")
TRAIN_FLAGS = {"do_train": True, "do_predict": True, "num_train_epochs": 1.0, "learning_rate": 3e-3}
CONTEXT = "the good film was not slow it was a fast story the bad plot " * 3


@pytest.fixture(scope="module")
def trained(tiny, tmp_path_factory):
    """Run directories of run_classifier, run_squad and run_ner, moved after training."""
    original_dir = tmp_path_factory.mktemp("original")
    flags = {**tiny.flags, "init_checkpoint": tiny.checkpoint, **TRAIN_FLAGS}
    # Use copies in the folder, so that their original paths no longer exist.
    for name in ("vocab_file", "bert_config_file"):
        flags[name] = shutil.copy(flags[name], original_dir)
    mrpc = {"task_name": "MRPC", "data_dir": str(tiny.folder / "mrpc")}
    classification.run(ClassifierOptions(**flags, **mrpc, output_dir=str(original_dir / "mrpc")))

    questions = [f"what was {word}" for word in WORDS]
    rows = [
        {"id": q, "question": q, "answers": [{"text": "fast story", "answer_start": 36}]}
        for q in questions
    ]
    file = original_dir / "questions.json"
    file.write_text(json.dumps({"data": [{"paragraphs": [{"context": CONTEXT, "qas": rows}]}]}))
    lengths = {"max_query_length": 8, "doc_stride": 5, "n_best_size": 4}
    files = {"train_file": str(file), "predict_file": str(file)}
    squad.run(SquadOptions(**flags, **lengths, **files, output_dir=str(original_dir / "squad")))

    rng = random.Random(1)
    sentences = [rng.choices(WORDS, k=rng.randint(1, 40)) for _ in range(12)]
    lines = [f"{word} {'B-A' if word == 'film' else 'O'}\n" for s in sentences for word in [*s, ""]]
    text = "".join("\n" if line.startswith(" ") else line for line in lines)
    for name in ("train.txt", "test.txt"):
        (original_dir / name).write_text(text)
    ner.run(NerOptions(**flags, data_dir=str(original_dir), output_dir=str(original_dir / "ner")))

    moved_dir = tmp_path_factory.mktemp("moved") / "runs"
    original_dir.rename(moved_dir)
    return SimpleNamespace(folder=moved_dir, questions=questions, sentences=sentences)


@pytest.fixture(scope="module")
def classifier(trained):
    return Predictor.from_output_dir(str(trained.folder / "mrpc"))


def test_classification_matches_the_script(tiny, trained, classifier):
    lines = (tiny.folder / "mrpc" / "test.tsv").read_text().splitlines()[1:]
    actual = classifier([tuple(line.split("\t")[3:]) for line in lines])
    results = (trained.folder / "mrpc" / "test_results.tsv").read_text().splitlines()
    expected = np.array([line.split("\t") for line in results], np.float64)
    probabilities = [[prediction.probabilities[label] for label in "01"] for prediction in actual]
    np.testing.assert_allclose(probabilities, expected, atol=1e-6)
    assert [p.label for p in actual] == [str(row.argmax()) for row in expected]


def test_inputs_in_other_containers(classifier):
    pairs = [("a film", "a plot"), ("bad", "good")]
    expected = classifier(pairs)
    for inputs in (iter(pairs), np.array(pairs), pd.DataFrame(pairs), pd.Series(pairs)):
        assert classifier(inputs) == expected
    frame = pd.DataFrame(classifier.columns(pd.DataFrame(pairs)))
    assert [*frame.columns] == ["label", "probability_0", "probability_1"]
    assert [*frame["label"]] == [prediction.label for prediction in expected]
    assert [*frame["probability_1"]] == [p.probabilities["1"] for p in expected]
    assert classifier.columns([]) == {}
    assert repr(classifier).endswith("/mrpc', labels=['0', '1'])")


def test_question_answering_matches_the_script(trained, caplog):
    predictor = Predictor.from_output_dir(str(trained.folder / "squad"))
    actual = predictor([(question, CONTEXT) for question in trained.questions])
    texts = json.loads((trained.folder / "squad" / "predictions.json").read_text())
    n_best = json.loads((trained.folder / "squad" / "nbest_predictions.json").read_text())
    for question, prediction in zip(trained.questions, actual, strict=True):
        assert prediction.text == texts[question]
        assert prediction.null_odds is None
        expected = n_best[question]
        assert [text for text, _ in prediction.n_best] == [entry["text"] for entry in expected]
        probabilities = [probability for _, probability in prediction.n_best]
        np.testing.assert_allclose(probabilities, [e["probability"] for e in expected], rtol=1e-4)
        assert [span[:2] for span in prediction.spans] == prediction.n_best
        assert all(CONTEXT[span.start : span.end] == span.text for span in prediction.spans)
    # An empty context has no answer.
    assert not caplog.text
    assert predictor(("what was it", "")).text == "empty"
    # Answers have single spaces; the context may have others.
    spaced = f"  {CONTEXT}".replace(" ", " \n")
    for span in predictor(("what was it", spaced)).spans:
        assert " ".join(spaced[span.start : span.end].split()) == span.text
    assert "has an empty text" in caplog.text
    assert predictor([]) == []


def test_ner_matches_the_script(trained, caplog):
    predictor = Predictor.from_output_dir(str(trained.folder / "ner"))
    actual = predictor([tuple(words) for words in trained.sentences])
    assert [prediction.words for prediction in actual] == trained.sentences
    lines = (trained.folder / "ner" / "label_test.txt").read_text().splitlines()
    expected = [line.split()[-1] for line in lines if line]
    assert [label for prediction in actual for label in prediction.labels] == expected
    # Text is split into words as in CoNLL, and keeps its case.
    words = predictor("The film, it was good.").words
    assert words == ["The", "film", ",", "it", "was", "good", "."]
    assert predictor([]) == []
    assert not caplog.text
    assert predictor([" ", "film", ""])[1].words == ["film"]
    assert [prediction.words for prediction in predictor(["", ()])] == [[], []]
    assert caplog.text.count("Input 0: 2 of") == 2
    predictor([("a film", "it was good"), ("a", "film")])
    advice = "pass a text as a string, or as a tuple of its words; several texts as a list"
    assert f"A word has spaces: {advice}" in caplog.text
    message = f"Most inputs are single words: {advice}"
    predictor([("film",), ("good",)])
    predictor(["film"])
    assert message not in caplog.text
    predictor(["The", "film's", "end", "was", "good", "."])
    assert message in caplog.text


def test_predictor_with_a_pretrained_model():
    fill_mask = Predictor.from_output_dir(SMALL_BERT, "predict_masked", top_k=3)
    text = "She opened the [MASK] and ran into the garden."
    (candidates,) = fill_mask(text)
    assert candidates[0].word == "door"
    # Two texts share one matrix product, which some processors round differently than one text.
    (again,) = fill_mask([text, text])[1]
    assert [candidate.word for candidate in again] == [candidate.word for candidate in candidates]
    probabilities = [candidate.probability for candidate in candidates]
    assert [candidate.probability for candidate in again] == pytest.approx(probabilities, rel=1e-5)
    features = Predictor.from_output_dir(SMALL_BERT, "extract_features", layers="-1")
    tokens, values = features("a door")
    assert tokens == ["[CLS]", "a", "door", "[SEP]"]
    assert values.shape == (4, 1, 128)
    mean_pooled = Predictor.from_output_dir(
        SMALL_BERT, "extract_features", layers=-1, pooling="mean"
    )
    assert mean_pooled(("a", "door")).tokens is None
    np.testing.assert_allclose(mean_pooled("a door").values, values.mean(axis=0), atol=1e-6)


def test_run_directory_with_a_different_script(trained):
    folder = str(trained.folder / "mrpc")
    features = Predictor.from_output_dir(folder, script="extract_features", layers="0")
    assert features("the film").values.shape == (4, 1, 16)
    with pytest.raises(UserError, match="no masked-LM head"):
        Predictor.from_output_dir(folder, script="predict_masked")
    with pytest.raises(UserError, match=r"mrpc was fine-tuned with run_classifier, not"):
        Predictor.from_output_dir(folder, script="run_squad", max_query_length=8)


def resident_bytes():
    """Returns the resident memory of this process on Linux, and 0 elsewhere."""
    if not os.path.exists("/proc/self/statm"):
        return 0
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_single_texts_do_not_retrace_or_leak_memory(classifier):
    """Predicts single texts of many lengths."""
    rng = random.Random(2)
    texts = [" ".join(rng.choices(WORDS, k=rng.randint(0, 30))) for _ in range(1000)]
    for text in texts[:200]:
        classifier(text)
    before = resident_bytes()
    for text in texts:
        classifier(text)
    # A ConcreteFunction cannot be retraced.
    assert isinstance(classifier._predict._inference.step, tf.types.experimental.ConcreteFunction)
    assert resident_bytes() - before < 30e6


def test_single_texts_warn_for_a_pair_model(trained, run_log):
    predictor = Predictor.from_output_dir(str(trained.folder / "mrpc"))
    predictor([("film", "story")])
    assert "have one text" not in run_log.text
    for _ in range(2):
        predictor(["film", ("film", "story")])
    assert run_log.text.count("1 of 2 inputs has one text, but the model was trained on pai") == 1


def test_pairs_warn_for_a_single_text_model(trained, run_log):
    folder = trained.folder / "mrpc"
    predictor = Predictor.from_output_dir(folder, task_name="CoLA")
    predictor(["film", ("film",)])
    assert "inputs" not in run_log.text
    for _ in range(2):
        predictor(["film", ("film", "story"), ("film", "plot")])
    assert (
        run_log.text.count("2 of 3 inputs have two texts, but the model was trained on sing") == 1
    )
    run_log.clear()
    # A task module does not declare whether its inputs are pairs.
    Predictor.from_output_dir(folder, task_name=None, task_module="m.py")(["film", ("a", "b")])
    assert "inputs" not in run_log.text


def test_predictions_are_thread_safe(classifier):
    rng = random.Random(3)
    texts = [" ".join(rng.choices(WORDS, k=rng.randint(0, 30))) for _ in range(200)]
    expected = [prediction.probabilities for prediction in classifier(texts)]
    with ThreadPoolExecutor(8) as pool:
        actual = [prediction.probabilities for prediction in pool.map(classifier, texts)]
    for probabilities, expected_probabilities in zip(actual, expected, strict=True):
        assert probabilities == pytest.approx(expected_probabilities, abs=1e-6)


def test_empty_text_and_empty_input(classifier, run_log):
    assert sum(classifier("").probabilities.values()) == pytest.approx(1, abs=1e-6)
    assert "Input 0: 1 of 1 input has an empty text" in run_log.text
    classifier(["a film", " \n", "\u200b\ufeff", ("", ""), "\U0001f600"])
    assert "Input 1: 3 of 5 inputs have an empty text" in run_log.text
    assert classifier([]) == []


def test_doc_context(trained, tmp_path):
    """With doc_context, the texts of a list form one document."""
    predictor = Predictor.from_output_dir(str(trained.folder / "ner"), doc_context=True)
    windows = predictor._predict._task.from_inputs([("film",), ("good", "plot")]).windows
    assert windows.length.tolist() == [3, 3]
    independent = Predictor.from_output_dir(trained.folder / "ner")
    windows = independent._predict._task.from_inputs([("film",), ("good", "plot")]).windows
    assert windows.length.tolist() == [1, 2]


def test_saved_null_score_threshold_is_used(trained, tmp_path):
    folder = shutil.copytree(trained.folder / "squad", tmp_path / "squad")
    run = json.loads((folder / "run.json").read_text())
    run["flags"] |= {"null_score_diff_threshold": "auto", "version_2_with_negative": True}
    (folder / "run.json").write_text(json.dumps(run))
    with pytest.raises(UserError, match=r"eval_results.json: no valid null_score_diff_threshold"):
        Predictor.from_output_dir(folder)
    (folder / "eval_results.json").write_text('{"null_score_diff_threshold": -1e9}')
    question = (trained.questions[0], CONTEXT)
    assert Predictor.from_output_dir(folder)(question).text == ""
    # Integers are valid too.
    assert Predictor.from_output_dir(folder, null_score_diff_threshold=10**9)(question).text


def test_keras_file(tmp_path):
    model = BertClassifier.from_checkpoint(SMALL_BERT, num_labels=2)
    path = str(tmp_path / "model.keras")
    model.save(path)
    with pytest.raises(UserError, match=r"No such file: .*vocab.txt .*Pass vocab_file="):
        Predictor(path, "run_classifier")
    with pytest.raises(UserError, match=r"Or pass the script: run_classifier"):
        Predictor(path)
    flags = {"vocab_file": f"{SMALL_BERT}/vocab.txt", "max_seq_length": 16}
    with pytest.raises(UserError, match=r"or --labels in the order of the model's outputs"):
        Predictor(path, "run_classifier", **flags)
    predictor = Predictor(path, "run_classifier", labels="neg,pos", **flags)
    texts = ["a good film", "bad"]
    inputs = encode(texts, SMALL_BERT, 16)
    expected = keras.ops.convert_to_numpy(model(inputs)["probabilities"])
    actual = [[*prediction.probabilities.values()] for prediction in predictor(texts)]
    np.testing.assert_allclose(actual, expected, atol=1e-6)
    vectors = Predictor(path, "extract_features", pooling="mean", layers="-1", **flags)
    assert vectors(texts)[0].values.shape == (1, 128)
    model = BertTokenClassifier.from_checkpoint(SMALL_BERT, num_labels=2)
    model.save(path)
    (tmp_path / "labels.txt").write_text("O\nB-X\n")
    assert len(Predictor(path, "run_ner", **flags)("a film").labels) == 2


def test_predictor_requires_options():
    with pytest.raises(UserError, match="expected the folder of a model, or ClassifierOptions, "):
        Predictor(None)


@pytest.mark.parametrize(
    ("script", "inputs", "message"),
    [
        ("mrpc", 5, "Input 0: expected a string, or a tuple of two strings. Received: 5"),
        ("mrpc", np.array(["a", 3], object), "Input 1: expected a string, .* Received: 3"),
        ("mrpc", ["a", ("a", "b", "c")], "Input 1: expected a string, or a tuple of two strings"),
        ("squad", "a", "Input 0: expected a tuple: question, text"),
        ("ner", [("a", 3)], "Input 0: expected a string, or a tuple of words"),
    ],
)
def test_invalid_input_types_are_rejected(trained, script, inputs, message):
    with pytest.raises(UserError, match=message):
        Predictor.from_output_dir(str(trained.folder / script))(inputs)


def test_model_id_is_rejected():
    with pytest.raises(UserError, match="Models are not downloaded: pass the folder"):
        Predictor("bert-base-uncased")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, r"No such file: .*run.json .*pass the script: run_classifier, "),
        ({"script": "classify"}, "script must be one of run_classifier, .*Received: 'classify'"),
        (
            {"script": "predict_masked", "top": 3},
            "top is not a flag for a trained predict_masked model. Did you mean top_k?",
        ),
        ({"script": "run_ner"}, "No such file: .*labels.txt"),
        ({"script": "run_squad"}, r"not match this model\. Missing .*run\(SquadOptions\(do_"),
        ({"script": "run_squad", "do_eval": True}, "do_eval is not a flag .*Valid: .* more$"),
        ({"script": "run_squad", "device": "cpu"}, "device is not a flag.* CUDA_VISIBLE_DEVICES"),
        ({"script": "predict_masked", "top_k": "3"}, "top_k must be of type int. Received: '3'"),
    ],
)
def test_incomplete_arguments_are_rejected(changes, message):
    with pytest.raises(UserError, match=message):
        Predictor.from_output_dir(SMALL_BERT, **changes)


def test_folder_of_hugging_face_is_converted(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="contains no checkpoint"):
        Predictor(tmp_path, "run_ranking")
    folder = golden("tfbert/for_sequence_classification")
    assert Predictor(folder)("It rained all day.").label in ("negative", "neutral", "positive")


def test_missing_files_can_be_passed_as_options(trained, tmp_path):
    folder = shutil.copytree(trained.folder / "mrpc", tmp_path / "copy")
    vocab = shutil.move(folder / "vocab.txt", tmp_path / "words.txt")
    with pytest.raises(UserError, match=r"No such file: .*vocab.txt .*Pass vocab_file="):
        Predictor.from_output_dir(str(folder))
    os.remove(folder / "run.json")
    flags = {"vocab_file": str(vocab), "task_name": "MRPC", "max_seq_length": 24}
    assert Predictor.from_output_dir(str(folder), "run_classifier", **flags)("a").label in "01"
    (folder / "run.json").write_text(
        '{"script": "run_classifier", "flags": {"max_seq_length": null}}'
    )
    with pytest.raises(UserError, match=r"run.json: damaged \(.*max_seq_length must be of ty"):
        Predictor.from_output_dir(str(folder))
    (folder / "run.json").write_text("{")
    with pytest.raises(UserError, match=r"run\.json:1: invalid JSON"):
        Predictor.from_output_dir(str(folder))


def test_training_resumes_with_copied_files(tiny, tmp_path):
    """Trailing blank lines do not count as a change; a missing run.json is written again."""
    config = tmp_path / "config.json"
    config.write_text(tiny.config.to_json_string() + "\n\n")
    flags = {**tiny.flags, **TRAIN_FLAGS, "task_name": "MRPC", "output_dir": str(tmp_path / "out")}
    flags |= {"data_dir": str(tiny.folder / "mrpc"), "bert_config_file": str(config)}
    classification.run(ClassifierOptions(**flags))
    (tmp_path / "out" / "run.json").unlink()
    classification.run(ClassifierOptions(**{**flags, "num_train_epochs": 4.0}))
    assert Predictor.from_output_dir(tmp_path / "out")("a").label in "01"


def test_different_vocabulary_is_not_overwritten(tiny, trained, tmp_path):
    folder = shutil.copytree(trained.folder / "mrpc", tmp_path / "copy")
    (folder / "vocab.txt").write_text("other\n")
    flags = {**tiny.flags, **TRAIN_FLAGS, "task_name": "MRPC", "output_dir": str(folder)}
    before = sorted(os.listdir(folder))
    with pytest.raises(UserError, match=r"vocab.txt, which .* differs from --vocab_file=.*tiny"):
        classification.run(ClassifierOptions(**flags, data_dir=str(tiny.folder / "mrpc")))
    assert (folder / "vocab.txt").read_text() == "other\n"
    assert sorted(os.listdir(folder)) == before


def test_a_folder_and_options_give_the_same_predictor(tiny, caplog):
    flags = {"bert_config_file": tiny.flags["bert_config_file"], "max_seq_length": 24}
    flags |= {"vocab_file": tiny.flags["vocab_file"], "layers": "-1", "pooling": "mean"}
    folder = os.path.dirname(tiny.checkpoint)
    options = ExtractionOptions(init_checkpoint=folder, **flags)
    vectors = Predictor(options)("good film").values
    assert "deprecated" not in caplog.text
    for predictor in (
        Predictor(folder, "extract_features", **flags),
        Predictor(options=options),  # as in version 1.0
    ):
        np.testing.assert_array_equal(predictor("good film").values, vectors)
    assert "deprecated" in caplog.text
    with pytest.raises(UserError, match="Pass flags either with a folder, or in the options"):
        Predictor(options, batch_size=2)


def test_editors_see_the_names_of_the_package():
    """`__init__.pyi` has the names that `__init__.py` imports on first use."""
    stub = (ROOT / "bert_tf" / "__init__.pyi").read_text()
    names = re.findall(r"^from (\S+) import (\w+) as \w+$", stub, re.MULTILINE)
    assert {name: module for module, name in names} == bert_tf._MODULES
