"""run_ner end to end: training, metrics, predictions for every word, and errors."""

import json
import os
import random
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bert_tf.api.predictor import Predictor
from bert_tf.base import files
from bert_tf.base.errors import UserError
from bert_tf.data.parallel import chunks
from bert_tf.finetuning.run_checks import describe_data, give_schema
from bert_tf.options import NerOptions
from bert_tf.tasks import ner
from bert_tf.tasks.token_classification import conll
from bert_tf.tasks.token_classification.sentences import DOCUMENT
from bert_tf.tasks.token_classification.task import TokenClassification
from bert_tf.tokenization import FullTokenizer
from tests.conftest import WORDS
from tests.finetuning.test_run_checks import warning_messages
from tests.oracle import ROOT, data, golden
from tests.tasks.token_classification.test_entity_scores import f1

# Label of each word; `I-` is used only inside an entity.
LABELS = {"good": "B-A", "film": "I-A", "plot": "B-B", "slow": "B-A"}


@pytest.fixture(scope="module")
def tiny(tiny_of_two_layers):
    return tiny_of_two_layers


def sentence(rng):
    words = rng.choices(WORDS, k=rng.randint(1, 9))
    labels = [LABELS.get(word, "O") for word in words]
    return [
        (word, label if label[0] != "I" or (n and labels[n - 1][2:] == label[2:]) else "O")
        for n, (word, label) in enumerate(zip(words, labels, strict=True))
    ]


def text_of(sentences, mark_every=4):
    lines = []
    for n, rows in enumerate(sentences):
        if n % mark_every == 0:
            lines += ["-DOCSTART- -X- O", ""]
        lines += [f"{word} X {label}" for word, label in rows]
        lines.append("")
    return "\n".join(lines) + "\n"


@pytest.fixture
def folder(tmp_path):
    return write_data(tmp_path)


def write_data(path):
    rng = random.Random(3)
    for name, count in (("train", 40), ("dev", 11), ("test", 9)):
        sentences = [sentence(rng) for _ in range(count)]
        (path / f"{name}.txt").write_text(text_of(sentences))
    return path


def options(tiny, folder, **changes):
    flags = {
        **tiny.flags,
        "init_checkpoint": tiny.checkpoint,
        "data_dir": str(folder),
        "output_dir": str(folder / "out"),
        **changes,
    }
    return NerOptions(**flags)


def make_task(tiny, run):
    """A task with its schema, that of the training file or of the folder of a model."""
    tokenizer = FullTokenizer(tiny.flags["vocab_file"])
    return give_schema(TokenClassification(run, tiny.config, tokenizer))


TRAINING = {"do_train": True, "num_train_epochs": 1.0, "learning_rate": 3e-3}


@pytest.fixture(scope="module")
def run_folder(tiny, tmp_path_factory):
    folder = write_data(tmp_path_factory.mktemp("trained"))
    ner.run(options(tiny, folder, **TRAINING, do_predict=True))
    return folder


@pytest.fixture
def trained(run_folder, tmp_path):
    """A copy of a folder with data and, in "out", a model."""
    return shutil.copytree(run_folder, tmp_path, dirs_exist_ok=True)


def rows_of(path):
    """Returns the sentences of a file as rows, without `-DOCSTART-` lines."""
    sentences = [[]]
    for line in path.read_text().split("\n"):
        columns = line.split()
        if not columns or columns[0] == "-DOCSTART-":
            sentences.append([])
        else:
            sentences[-1].append(columns)
    return [rows for rows in sentences if rows]


def column(sentences, number):
    return [[row[number] for row in rows] for rows in sentences]


def test_train_evaluate_and_predict(tiny, folder, caplog):
    flags = {**TRAINING, "num_train_epochs": 12.0, "do_eval": True, "do_predict": True}
    with caplog.at_level("INFO", logger="bert_tf"):
        results = ner.run(options(tiny, folder, **flags))
    out = folder / "out"
    names = ["eval_results.txt", "eval_results.json", "label_test.txt", "entities_test.jsonl"]
    names += ["predicted_test.txt", "report.html", "eval_predictions.tsv"]
    assert sorted(results.files) == sorted(str(out / name) for name in names)
    assert results.metrics["global_step"] == 120
    assert results.metrics["f1"] > 0.9
    metrics = json.loads((out / "eval_results.json").read_text())
    by_type, by_word = metrics.pop("entities"), metrics.pop("words")
    assert list(metrics) == ["f1", "global_step", "loss", "precision", "recall"]
    assert list(by_type) == list(by_word["by_type"]) == ["A", "B"]
    assert list(by_word) == ["accuracy", "micro_f1", "macro_f1", "by_type"]
    assert all(
        list(scores) == ["precision", "recall", "f1", "support"] for scores in by_type.values()
    )
    assert f"f1 = {results.metrics['f1']}\n" in (out / "eval_results.txt").read_text()
    assert (out / "labels.txt").read_text() == "O\nB-A\nB-B\nI-A\n"
    # Every word of the test set is labeled.
    expected, predicted_sentences = rows_of(folder / "test.txt"), rows_of(out / "label_test.txt")
    assert column(predicted_sentences, 0) == column(expected, 0)
    assert column(predicted_sentences, 1) == column(expected, 2)
    assert {len(row) for rows in predicted_sentences for row in rows} == {3}
    score = f1(column(predicted_sentences, 1), column(predicted_sentences, 2))
    table = re.split(r"test\.txt: accuracy [\d.]+\nentity", caplog.text)[-1].splitlines()
    assert table[1].split()[0] == "all"
    assert table[1].split()[3] == f"{score:.4f}"

    # The metrics on the dev set match a plain count over its words.
    (folder / "test.txt").write_text((folder / "dev.txt").read_text())
    again = ner.run(options(tiny, folder, do_eval=True, do_predict=True))
    assert again.metrics == results.metrics
    predicted_sentences = rows_of(out / "label_test.txt")
    score = f1(column(predicted_sentences, 1), column(predicted_sentences, 2))
    assert again.metrics["f1"] == pytest.approx(score)


def test_given_labels(tiny, folder):
    def infer(labels):
        return make_task(tiny, options(tiny, folder, do_train=True, labels=labels)).schema.labels

    assert infer(None) == ("O", "B-A", "B-B", "I-A")
    assert infer("B-C, O,I-A,B-B,B-A") == ("B-C", "O", "I-A", "B-B", "B-A")
    with pytest.raises(UserError, match=r"train\.txt:\d+: label B-B is not one of O, B-A, I-A"):
        infer("O,B-A,I-A")


def test_prediction_in_a_different_folder_without_labels(tiny, trained):
    """The label map comes from the checkpoint folder."""
    expected = rows_of(trained / "out" / "label_test.txt")
    lines = (trained / "test.txt").read_text().splitlines()
    (trained / "test.txt").write_text("".join(f"{line.split(' ')[0]}\n" for line in lines))
    start = str(trained / "out" / "model.ckpt-10")
    other = trained / "other"
    flags = {"init_checkpoint": start, "output_dir": str(other), "do_predict": True}
    results = ner.run(options(tiny, trained, **flags))
    assert results.metrics == {}
    predicted_sentences = rows_of(other / "label_test.txt")
    assert {len(row) for rows in predicted_sentences for row in rows} == {2}
    assert column(predicted_sentences, 1) == column(expected, 2)


def task(tiny, folder, **changes):
    """A task with the label map of the checkpoint folder."""
    (folder / "start").mkdir(exist_ok=True)
    (folder / "start" / "labels.txt").write_text("O\nB-A\nB-B\nI-A\n")
    start = str(folder / "start" / "model.ckpt-1")
    return make_task(tiny, options(tiny, folder, init_checkpoint=start, do_predict=True, **changes))


def find_problems(ner_task, split="predict"):
    return list(ner_task.check(split, ner_task.read(split), ()))


def test_folder_without_conll_files(tiny, tmp_path):
    with pytest.raises(UserError, match="no predict file: pass --predict_file"):
        task(tiny, tmp_path).read("predict")


WORD_PART = st.characters(exclude_characters=" \t\r\n", codec="utf-8") | st.sampled_from(WORDS)
TOKEN = st.lists(WORD_PART, min_size=1, max_size=30).map("".join)
TOKEN = TOKEN.filter(lambda word: word != DOCUMENT and not word.startswith("\ufeff"))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.lists(TOKEN, min_size=1, max_size=30), min_size=1, max_size=4),
    st.integers(3, 24),
    st.booleans(),
)
def test_words_are_predicted_once_and_in_order(tiny, tmp_path, sentences, size, doc_context):
    """Uses fake logits that depend only on the piece."""
    text = "\n\n".join(map("\n".join, sentences))
    (tmp_path / "test.txt").write_bytes(text.encode())
    ner_task = task(tiny, tmp_path, max_seq_length=size, doc_context=doc_context)
    examples = ner_task.read("predict")
    assert [words for words, _ in examples] == sentences
    ids = ner_task.featurize(examples, "predict")["input_ids"]
    # Slices contain the same rows.
    for size in (3, 1):
        parts = chunks(examples, size)
        slices = [ner_task.featurize(part, "predict")["input_ids"] for part in parts]
        assert all(map(len, slices))
        np.testing.assert_array_equal(np.concatenate(slices), ids)
    assert ner_task.epoch_size(examples) == len(ids)
    outputs = {"label_ids": ids % len(ner_task.schema.labels)}
    predicted_sentences = ner_task.decode(examples, outputs)
    assert [sentence.words for sentence in predicted_sentences] == sentences
    path, _, _ = ner_task.write("predict", examples, predicted_sentences, str(tmp_path)).paths
    with open(path, encoding="utf-8", newline="\n") as file:
        written = [block.split("\n") for block in file.read().strip("\n").split("\n\n")]
    assert [[row.split(" ")[0] for row in rows] for rows in written] == sentences
    reference = ner_task.tokenizer.reference
    rows = [row.split(" ") for block in written for row in block]
    for word, label in rows:
        pieces = reference.tokenize(word) or ["[UNK]"]
        number = reference.convert_tokens_to_ids(pieces[:1])[0]
        assert label == ner_task.schema.labels[number % len(ner_task.schema.labels)]


def test_only_first_pieces_are_labeled(tiny, folder):
    (folder / "train.txt").write_text("-DOCSTART- O\n\ngood B-A\n\nfilm,x B-B\nslow O\n\na O\n")
    run = options(tiny, folder, do_train=True, max_seq_length=12, doc_context=True)
    ner_task = make_task(tiny, run)
    rows = ner_task.featurize(ner_task.read("train"), "train")
    assert list(rows) == [feature.name for feature in ner_task.features("train")]
    # [CLS] good [UNK] of film,x: `film`, `,` and `x` are three pieces; slow a [SEP]
    assert rows["input_mask"].sum(axis=1).tolist() == [8, 8, 8]
    assert [np.flatnonzero(mask).tolist() for mask in rows["label_mask"]] == [[1], [2, 5], [6]]
    assert ner_task.schema.labels == ("O", "B-A", "B-B")
    assert rows["label_ids"][0, 1] == 1
    assert rows["label_ids"][1, [2, 5]].tolist() == [2, 0]


def test_loss_is_the_mean_over_labeled_pieces_of_a_row(tiny, folder):
    ner_task = task(tiny, folder)
    logits = np.random.default_rng(1).normal(size=(3, 4, 4)).astype(np.float32)
    batch = {
        "label_ids": np.array([[0, 1, 2, 3], [3, 0, 0, 0], [0, 0, 0, 0]], np.int32),
        "label_mask": np.array([[0, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]], np.int32),
    }
    log_probabilities = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    expected = [
        -(log_probabilities[0, 1, 1] + log_probabilities[0, 2, 2]) / 2,
        -log_probabilities[1, 0, 3],
        0.0,
    ]
    loss = np.asarray(ner_task.loss({"logits": logits}, batch, training=False))
    np.testing.assert_allclose(loss, expected, atol=1e-6)


def test_labels_missing_from_training(tiny, trained, caplog):
    text = (trained / "dev.txt").read_text()
    (trained / "dev.txt").write_text(text.replace("B-A", "B-NEW"))
    results = ner.run(options(tiny, trained, do_eval=True))
    assert "labels are not in the training data: NEW" in caplog.text
    assert np.isfinite(results.metrics["loss"])
    assert results.metrics["recall"] < 1


@pytest.mark.slow
def test_iob1_is_scored_as_bio(tiny, folder):
    """IOB1 (CoNLL-2003) and BIO labels give the same model."""
    results = []
    for scheme in ("bio", "iob1"):
        if scheme == "iob1":
            for name in ("train", "dev"):
                path = folder / f"{name}.txt"
                path.write_text(_to_iob1(path.read_text()))
        out = folder / scheme
        results.append(
            ner.run(options(tiny, folder, **TRAINING, do_eval=True, output_dir=str(out)))
        )
        assert (out / "labels.txt").read_text() == "O\nB-A\nB-B\nI-A\n"
    assert "I-B" in (folder / "train.txt").read_text()
    assert results[0].metrics == results[1].metrics


def _to_iob1(text):
    """Converts BIO to IOB1: `B-` only after an adjacent entity of the same type."""
    lines, previous = [], ""
    for line in text.split("\n"):
        label = line.split(" ")[-1]
        if label.startswith("B-") and previous[2:] != label[2:]:
            line = line.removesuffix(label) + "I" + label[1:]
        lines.append(line)
        previous = label
    return "\n".join(lines)


def test_document_context_changes_outputs(tiny, trained):
    losses = [
        ner.run(options(tiny, trained, do_eval=True, doc_context=value)).metrics["loss"]
        for value in (False, True)
    ]
    assert losses[0] != losses[1]


def test_run_json_of_older_version(tiny, tmp_path):
    folder = golden("run_directories") / "data" / "ner"
    ner_task = make_task(tiny, options(tiny, tmp_path, do_train=True, data_dir=str(folder)))
    # The digest that earlier versions wrote to run.json.
    items = [item for item, _ in ner_task.identity(ner_task.read("train"))]
    assert describe_data(items) == "24 rows (eb79d1e4)"


def test_special_tokens_in_texts_are_words(tiny, tmp_path):
    ner_task = task(tiny, tmp_path)
    ner_task.tokenizer.reference.basic_tokenizer.keep(["[MASK]"])
    examples = ner_task.from_inputs(["a[MASK]b, c"])
    ids = ner_task.featurize(examples, "predict")["input_ids"][0, :8].tolist()
    assert ids == [2, 5, 4, 6, 1, 7, 3, 0]  # [CLS] a [MASK] b [UNK] c [SEP] [PAD]


def test_predictor_inputs(tiny, tmp_path):
    ner_task = task(tiny, tmp_path)
    inputs = ["", "The film, it was good.", (), ("good", "plot"), "\n"]
    examples = ner_task.from_inputs(inputs)
    rows = ner_task.featurize(examples, "predict")
    assert list(rows) == ["input_ids", "input_mask", "segment_ids"]
    assert len(rows["input_ids"]) == 2
    predicted_sentences = ner_task.decode(examples, {"label_ids": np.full((2, 24), 1)})
    words = [[], ["The", "film", ",", "it", "was", "good", "."], [], ["good", "plot"], []]
    assert [sentence.words for sentence in predicted_sentences] == words
    assert [sentence.labels for sentence in predicted_sentences] == [
        ["B-A"] * len(sentence) for sentence in words
    ]
    empty_examples = ner_task.from_inputs(["", ()])
    assert not len(ner_task.featurize(empty_examples, "predict")["input_ids"])
    empty = {"label_ids": np.zeros((0, 24), np.int32)}
    assert ner_task.decode(empty_examples, empty) == [([], []), ([], [])]
    assert ner_task.decode(ner_task.from_inputs([]), empty) == []
    with pytest.raises(UserError, match=r"Input 1: expected a string, or a tuple of words\. Rec"):
        ner_task.from_inputs(["a", ("b", 3)])
    with pytest.raises(UserError, match=r"Input 0: expected a string, or a tuple.* Of a table"):
        ner_task.from_inputs([("a", "b", float("nan"))])


def test_warning_about_one_word_is_singular(tiny, tmp_path, run_log):
    (tmp_path / "train.txt").write_text("good B-A\n")
    (tmp_path / "dev.txt").write_text("good B-NEW\n")
    ner_task = make_task(tiny, options(tiny, tmp_path, do_train=True))
    examples = ner_task.read("eval")
    outputs = {"label_ids": np.zeros((1, 24), np.int32)}
    ner_task.metrics(examples, ner_task.decode(examples, outputs))
    assert "dev.txt: 1 sentence, 1 word\n" in run_log.text
    assert "dev.txt: entities: NEW (1)\n" in run_log.text
    problems = " ".join(find_problems(ner_task, "eval"))
    assert "1 of 1 label is not in the training data: NEW" in problems
    assert "NEW        0.0000  0.0000  0.0000        1\n" in run_log.text


def test_file_without_docstart_is_one_document(tiny, folder):
    text = (folder / "test.txt").read_text()
    (folder / "test.txt").write_text(text.replace("-DOCSTART- -X- O\n", ""))
    ner_task = task(tiny, folder, doc_context=True)
    examples = ner_task.read("predict")
    problem = f"{folder}/test.txt: --doc_context: no -DOCSTART- line, so it is read as one document"
    assert problem in find_problems(ner_task)
    assert (examples.windows.length == 22).all()


def assert_user_error(run, message):
    with pytest.raises(UserError, match=message) as error:
        ner.run(run)
    assert "\n" not in str(error.value)
    assert not files.glob(f"{run.output_dir}/*tf_record*")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"do_train": True, "data_dir": None}, "Missing required flags: --data_dir"),
        ({"do_train": True, "data_dir": "no"}, "no train file: pass --train_file"),
        ({"do_train": True, "label_column": -2}, r"no label \(.*, --label_column=-2\)"),
        ({"do_train": True, "label_column": 1}, r"no label \(--token_column=1, --label_column=1\)"),
        ({"do_train": True, "label_column": 9}, r"t:3: .* no label .* --label_column=9\)"),
        ({"do_train": True, "label_column": 2}, r"train\.txt:3: 'X' in column 2 is not a label"),
        ({"do_train": True, "label_column": "ner"}, r"t: there is no column 'ner' .*, and its"),
        ({"do_eval": True}, r"No such file: .*labels\.txt.*Pass --do_train=true"),
    ],
)
def test_invalid_options_fail_before_anything_is_written(tiny, folder, changes, message):
    assert_user_error(options(tiny, folder, **changes), message)
    assert not (folder / "out").exists()


def test_invalid_files(tiny, folder):
    train = options(tiny, folder, do_train=True, do_eval=True)
    dev = (folder / "dev.txt").read_text()
    (folder / "dev.txt").write_text(dev.replace(" B-A", "", 1))
    line = next(n for n, row in enumerate(dev.splitlines(), 1) if row.endswith(" B-A"))
    assert_user_error(train, rf"dev\.txt:{line}: 2 columns \(.*\), but 3 columns in .*dev\.txt:3")
    (folder / "dev.txt").write_text("")
    assert_user_error(train, r"dev\.txt: the file contains no words")
    (folder / "train.txt").write_text("a O\n\nb O\n")
    assert_user_error(train, r"train\.txt: all labels are O; nothing to learn")
    (folder / "dev.txt").unlink()
    (folder / "valid.txt").write_text("\n")
    (folder / "train.txt").write_text("a O\n\nb B-A\n")
    assert_user_error(train, r"valid\.txt: the file contains no words")
    assert not (folder / "out").exists()


def test_invalid_label_maps(tiny, trained):
    path = trained / "out" / "labels.txt"
    path.write_text("O\nB-A\nI-A\nB-B\n")
    message = r"train\.txt has the labels O, B-A, B-B, I-A, but .* trained with O, B-A, I-A"
    with pytest.raises(UserError, match=message):
        ner.run(options(tiny, trained, do_train=True, num_train_epochs=2.0))
    path.write_text("O\n\n")
    with pytest.raises(UserError, match=r"labels\.txt:2: invalid label ''"):
        ner.run(options(tiny, trained, do_eval=True))
    path.write_text("O\nB-A\n")
    with pytest.raises(UserError, match=r"output_weights \(checkpoint \[4, 16\], model \[2, 16\]"):
        ner.run(options(tiny, trained, do_eval=True))


def test_missing_seqeval_is_reported_before_work_starts(tiny, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "seqeval.metrics", None)
    run = options(tiny, folder, do_train=True, do_eval=True)
    assert_user_error(run, r'pip install "bert_tf\[ner\]"')
    assert not (folder / "out").exists()
    # seqeval is needed only for evaluation.
    results = ner.run(options(tiny, folder, **TRAINING, do_predict=True))
    names = ("label_test.txt", "entities_test.jsonl", "predicted_test.txt")
    assert results.files == [str(folder / "out" / name) for name in names]


def test_blocked_label_map_is_rejected_before_training(tiny, folder):
    (folder / "out" / "labels.txt").mkdir(parents=True)
    run = options(tiny, folder, do_train=True)
    assert_user_error(run, "Cannot write .*labels.txt: Is a directory")
    assert not list((folder / "out").glob("model.ckpt*"))


def test_script(tiny, folder):
    """Runs with a flag file; errors are one line."""
    run = options(tiny, folder, do_predict=True, do_train=True, num_train_epochs=1.0)
    names = [*tiny.flags, "data_dir", "output_dir", "do_predict", "do_train", "num_train_epochs"]
    flags = "".join(f"--{name}={getattr(run, name)}\n" for name in names)
    (folder / "flags.txt").write_text(flags)
    command = [sys.executable, "run_ner.py", f"--flagfile={folder / 'flags.txt'}"]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    labeled, texts = rows_of(folder / "out" / "label_test.txt"), rows_of(folder / "test.txt")
    assert column(labeled, 0) == column(texts, 0)
    command.append("--token_column=0")
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert process.returncode == 1
    assert process.stderr == "ERROR: --token_column must be between 1 and 2147483647. Received: 0\n"


def test_labels_that_differ_in_case_warn(tiny, folder):
    text = (folder / "train.txt").read_text()
    labels = sorted({line.split()[-1] for line in text.splitlines() if len(line.split()) > 1})
    label = next(label for label in labels if label.startswith("B-"))
    (folder / "train.txt").write_text(f"word X B-{label[2:].lower()}\n\n{text}")
    problems = " ".join(find_problems(task(tiny, folder, do_train=True), "train"))
    assert "train.txt: labels that differ only in case, " in problems
    assert f"'B-{label[2:].lower()}'" in problems


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "\n\n".join(f"w{n} O" for n in range(9)),
            "9 sentences have only 9 words. Are there blank lines between the words?",
        ),
        ("1 EU O\n2 rejects O\n\n1 Peter O\n", "3 of 3 words are numbers, such as '1'"),
        ("the\tO\n\tO\n", "1 of 2 words is empty, as pandas reads NA"),
        ("film B-A\n" * 9, None),
        ("the\n,\n;\nfilm\n", None),
    ],
)
def test_unusual_words_warn(tiny, folder, run_log, text, message):
    (folder / "test.txt").write_text(text)
    problems = find_problems(task(tiny, folder))
    # The vocabulary has few of the words.
    warnings = [w for w in warning_messages(run_log) + problems if "[UNK]" not in w]
    warnings = [w for w in warnings if "not in the training data" not in w]
    assert len(warnings) == bool(message)
    assert not message or warnings[0].startswith(f"{folder}/test.txt: {message}")


SENTENCE = "".join(f"w{n} X O\n" for n in range(61))
MISSING = "one sentence of {} words, from line {} on. Are blank lines missing?"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("film\n" * 30, MISSING.format(30, 1)),
        ("a\n\n" + "b\n" * 501, MISSING.format(501, 3)),
        ("b\n" * 500 + "\na\n", None),
        ("长" * 600 + "/o w/o\n", None),
        # Sentences that only document marks separate.
        (f"-DOCSTART-\n{SENTENCE}" * 2, MISSING.format(61, 2)),
        (f"-DOCSTART-\n\n{SENTENCE}\n" * 2, MISSING.format(61, 3)),
        # The only sentence, which fills several windows.
        (f"-DOCSTART-\n\n{SENTENCE}\n", MISSING.format(61, 3)),
        # Documents as sentences; short documents; several sentences in each document.
        (f"{SENTENCE}\n" * 2, None),
        ("-DOCSTART-\na O\nb O\n" * 9, None),
        (f"-DOCSTART-\n\n{SENTENCE}\n{SENTENCE}\n" * 2, None),
    ],
)
def test_missing_blank_lines_warn(tiny, folder, text, message):
    (folder / "test.txt").write_text(text, "utf-8")
    problems = [p for p in find_problems(task(tiny, folder)) if "Are blank lines" in p]
    assert problems == ([f"{folder}/test.txt: {message}"] if message else [])


HINDI = "पानी में की हिंदी नदी थी गाड़ी रानी बानी भी जी दी"
WEIBO = [f"{x}{n % 3}" for n, x in enumerate("科技全方位资讯李开复对输给一个女人，.!")]
EXCEPTION = [*(f"{x}{n % 2}" for n, x in enumerate("科技全方位资讯李开")), "end"]


@pytest.mark.parametrize(
    ("words", "start", "end"),
    [
        ("en:Anna en:lives en:in en:Bonn", "4 of 4 distinct words have a prefix", "_prefix=en:"),
        ("Anna|x lives|x in|x Bonn|x", "4 of 4 distinct words have a suffix", "_suffix='|x'"),
        ("en:Anna lives en:in en:Bonn en:.", None, ""),
        ("#a #a #b", None, ""),
        (" ".join(WEIBO), "20 of 20 distinct words have a suffix", ""),
        (" ".join(EXCEPTION), "9 of 10 distinct words have a suffix", ""),
        (HINDI, None, ""),
        (" ".join(map(str, range(1950, 2000))), None, ""),
    ],
)
def test_common_prefixes_and_suffixes_warn(tiny, folder, words, start, end):
    (folder / "test.txt").write_text(words.replace(" ", "\n") + "\n")
    problems = [x for x in find_problems(task(tiny, folder)) if "not part of the words" in x]
    assert len(problems) == bool(start)
    assert all(x.startswith(f"{folder}/test.txt: {start}. If it is not") for x in problems)
    assert all(x.endswith(end) for x in problems)


@pytest.mark.parametrize("pretokenized", [False, True])
@pytest.mark.parametrize("name", ["test.txt", "test.json"])
def test_files_are_split_like_inputs(tiny, tmp_path, name, pretokenized):
    text = "good film[MASK]plot, plot-twist."
    (tmp_path / "test.txt").write_text(f"{text}\nA plot.\nIt is a very good film.\n")
    (tmp_path / "test.json").write_text(json.dumps({"text": text}))
    ner_task = task(tiny, tmp_path, predict_file=str(tmp_path / name))
    basic = ner_task.tokenizer.reference.basic_tokenizer
    basic.keep(["[MASK]"])
    basic.pretokenized = pretokenized
    words, _ = ner_task.read("predict")[0]
    assert words == ner_task.from_inputs([text])[0][0]
    end = ["plot,", "plot-twist."] if pretokenized else ["plot", ",", "plot-twist", "."]
    assert words == ["good", "film", "[MASK]", *end]


def test_prefixes_and_suffixes_are_removed(tiny, folder, run_log):
    (folder / "test.txt").write_text("en:Anna|\nde:isst|\n\nen:en:|\nen:\n|\nfr\n")
    flags = {"word_prefix": "en:,de:", "word_suffix": "|"}
    words = [words for words, _ in task(tiny, folder, **flags).read("predict")]
    # Nothing is removed from words that have nothing else.
    assert words == [["Anna", "isst"], ["en:", "en:", "|", "fr"]]
    assert "test.txt: removed --word_prefix=en:,de: from 3 of 6 words" in run_log.text
    (folder / "test.txt").write_text("en:Anna\nen:lives\nen:in\nen:Bonn\n")
    named = task(tiny, folder, word_prefix="en:")
    assert not any("prefix" in problem for problem in find_problems(named))
    assert warning_messages(run_log)[2:] == []


def test_predict_file_is_labeled_without_a_data_folder(tiny, trained, tmp_path):
    (tmp_path / "new.txt").write_text("good\nfilm\n\nslow\n")
    flags = {"init_checkpoint": str(trained / "out"), "output_dir": str(tmp_path / "labeled")}
    new = {"predict_file": str(tmp_path / "new.txt"), "data_dir": None, "do_predict": True}
    ner.run(options(tiny, trained, **new, **flags))
    lines = (tmp_path / "labeled" / "label_test.txt").read_text().splitlines()
    assert [line.split()[0] for line in lines if line] == ["good", "film", "slow"]


POS = "the DT\nfilm NN\nwas VB\ngood JJ\n\nthe DT\nplot NN\nwas VB\nslow JJ\n\n"


def test_plain_labels(tiny, tmp_path, caplog):
    for name in ("train.txt", "dev.txt"):
        (tmp_path / name).write_text(POS * 4)
    (tmp_path / "test.txt").write_text("the film was slow\n")
    flags = {**TRAINING, "num_train_epochs": 40.0, "train_batch_size": 4}
    with caplog.at_level("INFO", logger="bert_tf"):
        results = ner.run(options(tiny, tmp_path, **flags, do_eval=True, do_predict=True))
    assert "train.txt: labels such as DT are no entities: --label_scheme=plain" in caplog.text
    out = tmp_path / "out"
    # Plain sentences have no labels that could be replaced.
    assert [os.path.basename(path) for path in results.files][-1] == "label_test.txt"
    assert sorted(results.metrics) == ["accuracy", "global_step", "loss"]
    assert results.metrics["accuracy"] == 1.0
    table = json.loads((out / "eval_results.json").read_text())["words"]["by_label"]
    assert table["DT"] == {"precision": 1.0, "recall": 1.0, "f1": 1.0, "support": 8}
    assert list(table) == ["DT", "JJ", "NN", "VB"]
    labeled = (out / "label_test.txt").read_text()
    assert labeled == "the DT\nfilm NN\nwas VB\nslow JJ\n\n"
    # The model's folder says which labels it has.
    prediction = Predictor(str(out))("the film was slow")
    assert (prediction.labels, prediction.entities) == (["DT", "NN", "VB", "JJ"], [])
    with pytest.raises(UserError, match="was trained with --label_scheme=plain, not entities"):
        ner.run(options(tiny, tmp_path, do_eval=True, label_scheme="entities"))
    (tmp_path / "dev.txt").write_text("the DT\nfilm B-X\n")
    assert ner.run(options(tiny, tmp_path, do_eval=True)).metrics["accuracy"] == 0.5


def test_files_of_people(tiny, tmp_path):
    """BioBERT's names, WikiANN's names, names with a prefix, and files by name."""
    for name in ("train.tsv", "devel.tsv", "test.tsv"):
        (tmp_path / name).write_text("Ovarian\tB\ncancer\tI\nis\tO\n")
    for folder, names in {
        "wikiann": ("train", "dev", "test"),
        "ud": ("de-ud-train.conllu", "de-ud-dev.conllu", "de-ud-test.conllu"),
        "conll2002": ("esp.train", "esp.testa", "esp.testb"),
        "bmes": ("train.char.bmes", "dev.char.bmes", "test.char.bmes"),
        "msra": ("msra_train_bio", "msra_dev_bio", "msra_test_bio"),
        "bio": ("NER-de-train.tsv", "NER-de-dev.tsv", "NER-de-test.tsv"),
    }.items():
        (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / folder / name).write_text("a\tB-X\n")
        ner_task = task(tiny, tmp_path / folder)
        splits = ("train", "eval", "predict")
        found = [os.path.basename(ner_task._find_file(split)) for split in splits]
        assert found == [*names]
    (tmp_path / "start").mkdir(exist_ok=True)
    assert task(tiny, tmp_path).read("eval").file.path == str(tmp_path / "devel.tsv")
    named = {"train_file": "test.tsv", "eval_file": str(tmp_path / "train.tsv")}
    ner_task = task(tiny, tmp_path, **named)
    assert ner_task.read("train").file.path == str(tmp_path / "test.tsv")
    assert ner_task.read("eval").file.path == str(tmp_path / "train.tsv")
    (tmp_path / "more-test.tsv").write_text("a O\n")
    (tmp_path / "predicted_test.tsv").write_text("a O\n")
    assert task(tiny, tmp_path).read("predict").file.path == str(tmp_path / "test.tsv")
    (tmp_path / "test.tsv").rename(tmp_path / "other-test.tsv")
    with pytest.raises(UserError, match=r"contains more-test\.tsv and other-test\.tsv\. Pass one"):
        task(tiny, tmp_path).read("predict")


def test_entities_of_a_text_have_probabilities_and_places(tiny, tmp_path):
    lines = ['{"text": "good  film, slow"}', '{"text": ""}']
    (tmp_path / "test.jsonl").write_text("\n".join(lines))
    ner_task = task(tiny, tmp_path)
    ids = np.zeros((1, 24), np.int32)
    ids[0, 1:5] = [1, 3, 0, 2]  # B-A I-A O B-B
    outputs = {"label_ids": ids, "label_probabilities": np.full((1, 24), 0.5, np.float32)}
    examples = ner_task.read("predict")
    predictions = ner_task.decode(examples, outputs)
    assert predictions[0].spans == [("A", "good  film", 0.25, 0, 10), ("B", "slow", 0.5, 12, 16)]
    _, path, copy = ner_task.write("predict", examples, predictions, str(tmp_path)).paths
    with open(path, encoding="utf-8") as file:
        first, second = map(json.loads, file)
    assert os.path.basename(copy) == "predicted_test.jsonl"
    assert files.read_text(copy).splitlines() == [
        '{"text": "good  film, slow", "labels": [[0, 10, "A"], [12, 16, "B"]]}',
        '{"text": "", "labels": []}',
    ]
    assert (first["text"], second) == ("good  film, slow", {"text": "", "entities": []})
    assert first["entities"][1] == {
        **{"start": 12, "end": 16, "label": "B", "text": "slow", "probability": 0.5}
    }
    # The places in a tuple are those of words.
    (prediction,) = ner_task.decode(ner_task.from_inputs([("good", "film", ",", "slow")]), outputs)
    assert prediction.spans == [("A", "good film", 0.25, 0, 2), ("B", "slow", 0.5, 3, 4)]
    assert prediction.entities == [("A", "good film"), ("B", "slow")]
    # What was written can be read.
    again = conll.read_conll(path)
    assert again.labels == ["B-A", "I-A", "O", "B-B"]


def test_best_of_several_evaluations_is_used(tiny, folder):
    flags = {"do_train": True, "do_eval": True, "num_train_epochs": 4.0, "learning_rate": 5e-3}
    metrics = ner.run(options(tiny, folder, **flags, eval_every="1epoch")).metrics
    history = json.loads((folder / "out" / "evaluations.json").read_text())
    assert history["metric"] == "f1"
    assert [evaluation["step"] for evaluation in history["evaluations"]] == [10, 20, 30, 40]
    assert metrics["f1"] == max(evaluation["f1"] for evaluation in history["evaluations"])
    assert (folder / "out" / "best" / "labels.txt").exists()


def test_msra_spans_end_to_end(tiny, tmp_path):
    for name in ("train", "dev", "test"):
        (tmp_path / f"{name}.txt").write_text("good/nr film/o \nslow/ns was/o plot/nt \n")
    flags = {**TRAINING, "train_batch_size": 2, "do_eval": True, "do_predict": True}
    results = ner.run(options(tiny, tmp_path, **flags))
    assert "f1" in results.metrics
    labels = ["O", "B-LOC", "B-ORG", "B-PER", "I-LOC", "I-ORG", "I-PER"]
    assert (tmp_path / "out" / "labels.txt").read_text().split() == labels
    lines = (tmp_path / "out" / "label_test.txt").read_text().splitlines()
    assert [line.split()[:2] for line in lines[:5]] == [
        *(["g", "B-PER"], ["o", "I-PER"], ["o", "I-PER"], ["d", "I-PER"], ["f", "O"]),
    ]
    assert [len(line.split()) for line in lines] == [3] * 8 + [0] + [3] * 11 + [0]


@pytest.mark.shared
@pytest.mark.parametrize("doc_context", [False, True])
def test_real_words_are_predicted_once_and_in_order(tiny, tmp_path, doc_context):
    """Uses windows that are too short for most sentences."""
    folder = data("conll2003")
    vocab = FullTokenizer(str(golden("vocab/uncased.txt")))
    flags = {"data_dir": str(folder), "max_seq_length": 16, "doc_context": doc_context}
    run = options(tiny, tmp_path, do_train=True, **flags)
    ner_task = give_schema(TokenClassification(run, tiny.config, vocab))
    for split, name in (("train", "train"), ("eval", "valid"), ("predict", "test")):
        examples = ner_task.read(split)
        rows = ner_task.featurize(examples, split)
        if split != "predict":
            # Each label occurs once in training.
            assert rows["label_mask"].sum() == len(examples.file.labels)
        label_ids = rows.get("label_ids", np.zeros_like(rows["input_ids"]))
        predicted = ner_task.decode(examples, {"label_ids": label_ids})
        if split != "predict":
            assert [(sentence.words, sentence.labels) for sentence in predicted] == list(examples)
        path, _, copy = ner_task.write("predict", examples, predicted, str(tmp_path)).paths
        if split != "predict":
            # The labels of the file are predicted, so the copy is equal.
            with open(copy) as written:
                assert written.read() == (folder / f"{name}.txt").read_text()
        with open(path) as written, open(folder / f"{name}.txt") as source:
            for output_line, source_line in zip(written, source, strict=True):
                # Words and labels are equal in all lines except document marks.
                if not source_line.startswith("-DOCSTART-"):
                    assert output_line.split()[:2] == source_line.split()[::3]
