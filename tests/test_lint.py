"""What looks wrong in data: each row and rule fires where it should, and is silent on good data."""

import itertools
import os
import shutil

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.metrics import accuracy_score

from bert_tf import TextClassifier, TextRegressor, lint
from bert_tf.api.predictor import Predictor
from bert_tf.base.errors import UserError, silent
from bert_tf.checkpoints.run_folder import RunFolder
from bert_tf.commands import convert_checkpoint, export_model
from bert_tf.config import BertConfig
from bert_tf.data.texts import check_lines
from bert_tf.finetuning.run import FineTuningRun
from bert_tf.finetuning.run_checks import give_schema
from bert_tf.options import (
    ClassifierOptions,
    ConversionOptions,
    EmbeddingsOptions,
    ExportOptions,
    NerOptions,
)
from bert_tf.serving.models import Model
from bert_tf.serving.options import ServingOptions
from bert_tf.tasks import classification
from bert_tf.tasks.classification.checks import find_lists
from bert_tf.tasks.classification.task import Classification
from bert_tf.tasks.embeddings.task import Embeddings
from bert_tf.tasks.token_classification.schemes import type_of
from bert_tf.tasks.token_classification.scores import score
from bert_tf.tasks.token_classification.task import TokenClassification
from bert_tf.tokenization import FullTokenizer
from tests.oracle import ROOT, data

# (kind of column, values that a row of `PATTERNS` finds, similar ones that it does not find), in
# the order of `PATTERNS`. Where the mistake was seen: a public file, or a thread.
EVIDENCE = [
    # MRPC's columns of ids, and CoLA's of labels and dates.
    ("text", ["1000001", "2024-03-01", "a film"], ["in 1999", "42", "2020年的电影"]),
    ("text", ["NaN", "a film"], ["nan is bread", *["a film"] * 30]),  # pandas-dev/pandas#24681
    # cdqa-suite/cdQA#201: lists of a CSV file are strings.
    ("text", ["['the', 'film']", "b'the film'", "a film"], ["[the film]", "b's film", "'a film'"]),
    # Yelp Review Full, whose line breaks are a backslash and n.
    ("text", [r"the film\n\nA", r"the caf\u00e9"], [r"\nu = \tau", r"C:\new\x", r'print("a\n")']),
    ("text", ["[CLS] the film [SEP]", "a"], ["[cls]", "a"]),  # jina-ai/clip-as-service#151
    ("other text", ["<s> the film </s>", "a"], ["the <s>film</s>:", "<|>"]),  # NIKL-KLUE#4
    ("word", ["pup", "##pet"], ["#a", "C##"]),  # billpku/NLP_In_Action#4
    ("text", ["der nÃ¶rdliche Teil", "a"], ["irmã", "IRMÃ: «sim»"]),  # transformers#2882
    ("word", ["1", "2-3", "EU"], ["1", "EU", "rejects"]),  # the first column of CoNLL-U
    ("word", ["EU,NNP", "rejects;VBZ", "the"], ["the", ",", ";", "a,b"]),  # Kaggle's ner_dataset
    ("word", ["the", "\xa0"], ["the", "a\xa0b"]),  # pandas-dev/pandas#24681
    (
        "line",
        ['<doc id="12" url="u">', "<top>"],
        ["a <doc>", "a"],
    ),  # WikiExtractor#62, TREC's topics
    ("line", ['{"text": "a"}', "a\tb", "<p>c</p>", "d"], ["{a}", "b", "c"]),  # JSON lines, IMDB
    # FrequencyWords, and the qrels of TREC.
    ("line", ["you 28787591", "301 0 FBIS3-10082 1"], ["Chapter 1", "Alice was", "tired"]),
    ("label", ["-", "neutral"], ["+", "neutral", "none"]),  # huggingface/datasets#296, SNLI
    ("label", ["['food', 'bad']", "a"], ["[food", "a"]),  # swaggy66/M-ABSA#2
]


@pytest.mark.parametrize(("row", "case"), [*zip(lint.PATTERNS, EVIDENCE, strict=True)])
def test_each_pattern_finds_its_example(row, case):
    kind, wrong, right = case
    assert kind in row.kinds.split("|")
    (problem,) = lint.values(kind, wrong)
    assert row.problem.split()[1] in problem
    assert not [*lint.values(kind, right)]
    assert not [*lint.values(kind, wrong[:1])]  # a single value may be unusual


def test_the_example_shows_what_is_wrong():
    (problem,) = lint.values("text", ["the film " * 30 + "[SEP] the", "a film"])
    assert problem.startswith("1 of 2 texts has [CLS] or [SEP]")
    assert "film [SEP] the" in problem


NUMBERS = np.arange(60) % 6.0


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (lint.few_distinct("text", ["good", "bad"] * 50), "only 2 of 100 texts are distinct"),
        (lint.few_distinct("text", ["good", "bad"] * 49), None),
        (lint.same(["a", "b"], ["a", "b"], "the text is the label"), "in 2 of 2 rows, such as 'a'"),
        (lint.same(["a", "b"], ["a", "c"], "the text is the label"), None),
        (lint.constant(["a", "a"]), "in all 2 rows, the label is 'a'"),
        (lint.constant(["a"]), None),
        (lint.constant([*range(7, 30)]), "the label is the number of the row, from 7 to 29"),
        (lint.constant([f"{number}.0" for number in range(20)]), "from 0 to 19"),
        (lint.constant([*range(19)]), None),
        (lint.constant([x for x in range(40) if x % 5]), "from 1 to 39"),
        (lint.constant([*range(40), 7]), None),
        (lint.constant([*range(1990, 2030)]), None),
        (lint.label_names(["01", "1", "10", "100", "0"]), "leading zeros: '01', '1'"),
        (lint.label_names(["a", "a\u200b", "b"]), r"'a', 'a\u200b'"),
        (lint.label_names(["b\u00fcro", "bu\u0308ro", "buro"]), "'b\u00fcro', 'bu\u0308ro'"),
        (find_lists(["a", "a;b", "b"]), "'a;b' is a list of labels"),
        (find_lists(["New York, NY", "Albany, NY", "a/b", "a", "b"]), None),
        (lint.contradictory("aab", "xyz"), "2 of 3 rows repeat a text with another label"),
        (lint.contradictory("aabcdefghijklmnopqrstu", "xyyyyyyyyyyyyyyyyyyyyy"), None),
        (lint.unseen(["a", "c", "d"], ["a", "b"]), "2 of 3 labels are not in the training data: c"),
        (lint.unseen([1.0, True], [0, 1]), None),
        (lint.far(np.append(NUMBERS, -999)), "1 of 61 numbers is -999, but all others from 0 to 5"),
        (lint.far(np.append(NUMBERS, 30)), None),
        (lint.far(np.array([0, 1, 2, 999])), None),
        (lint.other_range(NUMBERS / 5, NUMBERS), "from 0 to 1, but from 0 to 5 in the training"),
        (lint.other_range(NUMBERS * 20, NUMBERS), "check the unit"),
        (lint.other_range(NUMBERS + 100, NUMBERS), "check the unit"),
        (lint.other_range(NUMBERS / 2, NUMBERS), None),
        (lint.other_range(NUMBERS[:19] / 5, NUMBERS), None),
    ],
)
def test_rules(found, words):
    problems = [*found]
    assert len(problems) == bool(words)
    assert not words or words in problems[0]


@given(st.data())
def test_a_perfect_score_has_no_labels_that_cannot_be_predicted(data):
    """Labels that are equal, such as 1 and 1.0 or np.str_("a") and "a", are the same class."""
    classes = data.draw(st.sampled_from([["a", "b"], [0, 1], [False, True]]))
    predicted = data.draw(st.lists(st.sampled_from(classes), min_size=1))
    spell = data.draw(st.sampled_from([lambda x: x, lambda x: np.array([x])[0], np.asarray]))
    true = [spell(x).item() if spell is np.asarray else spell(x) for x in predicted]
    if isinstance(classes[0], int):
        true = [float(x) for x in true]
    assert accuracy_score(true, predicted) == 1
    assert not [*lint.unseen(true, classes)]


ENTITIES = st.lists(st.tuples(st.sampled_from(["O", "PER", "LOC"]), st.integers(1, 3)), min_size=1)


def _spelled(entities, scheme):
    labels = []
    for name, size in entities:
        if name == "O":
            labels += ["O"] * size
        elif scheme == "BIO":
            labels += [f"B-{name}"] + [f"I-{name}"] * (size - 1)
        else:
            inner = [f"B-{name}", *[f"I-{name}"] * (size - 2), f"E-{name}"]
            labels += inner if size > 1 else [f"S-{name}"]
    return labels


@given(ENTITIES)
def test_a_perfect_score_of_entities_has_no_unseen_types(entities):
    """The metric compares entities, so BIO and BIOES are the same to the check."""
    for schemes in itertools.product(("BIO", "BIOES"), repeat=2):
        gold, predicted = ([_spelled(entities, scheme)] for scheme in schemes)
        if schemes[0] == schemes[1]:
            assert score(gold, predicted, False)[1]["words"]["accuracy"] == 1
        known = {type_of(label) for label in predicted[0]}
        assert not [*lint.unseen([type_of(label) for label in gold[0]], known)]


# check -> (words of its message, the entry points where it fires). The others, of fit, validation,
# score, predict, script, convert, export and serve, do not get what it is about, such as labels.
CHECKS = {
    "order of indexes": ("indexes differ in order", "fit validation score"),
    "order of columns": ("the columns are b, a", "validation score predict"),
    "a label as second text": ("the second text is the label", "fit validation score script"),
    "numbers such as -999": ("but all others from", "fit validation score script"),
    "labels that differ in case": ("labels that differ only in", "fit script"),
    "labels not in training": ("not in the training data", "validation score script"),
    "texts of a wrong column": (
        "are numbers, dates or ids",
        "fit validation score predict script serve",
    ),
    "learning rate": ("--learning_rate must be between", "fit script"),
    "untrained checkpoint": ("before the first training step", "predict convert export serve"),
}
TEXTS = [f"a good film {'and a plot ' * (n % 3)}" for n in range(24)]
NUMBERS_24 = [float(n % 6) for n in range(24)]
FLAGS = {"max_seq_length": 16, "train_batch_size": 24, "num_train_epochs": 1.0, "report": False}
CHECKPOINT = str(ROOT / "examples" / "small_bert")


class Program:
    """Calls each entry point with data in which one thing is wrong."""

    def __init__(self, folder):
        self.folder = folder
        labels = ["pos", "neg"] * 12
        self.pairs = pd.DataFrame({"a": TEXTS, "b": [f"{x} slow" for x in TEXTS]})
        with silent():
            self.classifier = TextClassifier(CHECKPOINT, **FLAGS).fit(self.pairs, labels)
            self.regressor = TextRegressor(CHECKPOINT, **FLAGS).fit(TEXTS, NUMBERS_24)
            self.classifier.save(folder / "model")
        self.labels, self.untrained = labels, folder / "untrained"
        prefix = RunFolder(str(folder / "model")).checkpoint()
        shutil.copytree(folder / "model", self.untrained)
        for path in self.untrained.glob("model.ckpt-*"):
            path.rename(path.with_name(f"model.ckpt-0.{path.name.split('.', 2)[2]}"))
        names = (self.untrained / "checkpoint").read_text()
        renamed = names.replace(os.path.basename(prefix), "model.ckpt-0")
        (self.untrained / "checkpoint").write_text(renamed)

    def data(self, check):
        """Returns an estimator, texts and labels; good ones where the data cannot be wrong."""
        texts, labels, estimator = self.pairs, pd.Series(self.labels), self.classifier
        if check == "order of indexes":
            labels = labels.sort_index(ascending=False)
        elif check == "order of columns":
            texts = texts[["b", "a"]]
        elif check == "a label as second text":
            texts = texts.assign(b=labels)
        elif check == "numbers such as -999":
            estimator, texts, labels = self.regressor, TEXTS, [*NUMBERS_24[:-1], -999.0]
        elif check == "labels that differ in case":
            labels = pd.Series(["pos", "POS"] * 12)
        elif check == "labels not in training":
            labels = pd.Series(["pos", "new"] * 12)
        elif check == "texts of a wrong column":
            texts = texts.assign(a=[str(n) for n in range(24)])
        return clone(estimator), estimator, texts, labels

    def call(self, entry_point, check):
        fresh, fitted, texts, labels = self.data(check)
        good = (TEXTS, NUMBERS_24) if fitted is self.regressor else (self.pairs, self.labels)
        fresh.set_params(labels=["pos", "neg", "new"] if "not in training" in check else None)
        folder = str(self.untrained)
        fitted._predictor = None  # which warns once
        if entry_point == "fit":
            flags = {"learning_rate": 2e-50} if check == "learning rate" else {}
            fresh.fit(texts, labels, **flags)
        elif entry_point == "validation":
            fresh.fit(*good, validation=(texts, labels))
        elif entry_point == "score":
            fitted.score(texts, labels)
        elif entry_point == "script":
            self._run_script(texts, labels, good, check)
        elif entry_point == "convert":
            output = str(self.folder / "converted")
            convert_checkpoint.run(ConversionOptions(input=folder, output=output, to="original"))
        elif entry_point == "export":
            output = str(self.folder / "exported")
            export_model.run(ExportOptions(model_dir=folder, export_dir=output, text_input=False))
        elif check == "untrained checkpoint":
            serve = Model("name", folder, ServingOptions()).load
            serve() if entry_point == "serve" else Predictor(folder)
        elif entry_point == "serve":
            items = [*texts.itertuples(index=False, name=None)]
            Model("name", str(self.folder / "model"), ServingOptions()).load()(items)
        else:
            fitted.predict(texts)

    def _run_script(self, texts, labels, good, check):
        data = self.folder / check.replace(" ", "_")
        data.mkdir()
        is_eval = check == "labels not in training"
        for name, (rows, column) in {"train": good, "dev": (texts, labels)}.items():
            rows, column = (texts, labels) if name == "train" and not is_eval else (rows, column)
            rows = {"a": rows} if isinstance(rows, list) else dict(rows)
            pd.DataFrame({**rows, "label": [*column]}).to_csv(data / f"{name}.csv", index=False)
        is_number = check.startswith("numbers")
        flags = {"learning_rate": 2e-50} if check == "learning rate" else {}
        flags |= {} if is_number else {"text_pair_column": "b"}
        flags |= {"labels": "pos,neg,new"} if is_eval else {}
        classification.run(
            ClassifierOptions(
                **{**FLAGS, **flags, "init_checkpoint": CHECKPOINT, "output_dir": f"{data}/out"},
                **{"task_name": "tsv", "data_dir": str(data), "text_column": "a"},
                problem_type="regression" if is_number else "classification",
                label_column="label",
                do_train=True,
                do_eval=True,
            )
        )


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return Program(tmp_path_factory.mktemp("program"))


class Checked(Exception):
    """Ends a run when all data were checked."""


def _end_run(self):
    raise Checked


CELLS = [(check, name) for check, (_, names) in CHECKS.items() for name in names.split()]


@pytest.mark.parametrize(("check", "entry_point"), CELLS)
def test_checks_fire_at_all_entry_points(program, monkeypatch, caplog, check, entry_point):
    words, _ = CHECKS[check]
    monkeypatch.setattr(FineTuningRun, "build_and_restore", _end_run)
    told = ""
    try:
        program.call(entry_point, check)
    except (Checked, UserError) as error:
        told = str(error)
    assert words.removeprefix("--") in caplog.text + told


def _public_tasks(folder):
    """Yields the tasks for all public data sets."""
    vocab = {"vocab_file": str(data("vocab/uncased_en_vocab.txt")), "output_dir": str(folder)}
    tokenizer, config = FullTokenizer(vocab["vocab_file"]), BertConfig(vocab_size=30522)
    flags = {**vocab, "do_train": True, "do_eval": True}
    for name in ("CoLA", "MRPC", "RTE", "SST-2", "STS-B", "WNLI"):
        options = ClassifierOptions(task_name=name, data_dir=str(data(f"glue/{name}")), **flags)
        yield name, Classification(options, config, tokenizer), ("train", "eval")
    sms = {"task_name": "tsv", "text_column": "SMS", "label_column": "Label", "has_header": "yes"}
    path = str(data("sms/SMSSpamCollection"))
    options = ClassifierOptions(train_file=path, **sms, **flags)
    yield "SMS", Classification(options, config, tokenizer), ("train",)
    for name, extra in (("CoNLL-2003", {}), ("plain", {"label_column": 2})):
        folder = str(data("conll2003"))
        options = NerOptions(data_dir=folder, **extra, **flags)
        yield name, TokenClassification(options, config, tokenizer), ("train", "eval")
    squad = {"train_file": str(data("squad/train_split.json"))}
    squad |= {"eval_file": str(data("squad/dev_split.json")), "task_name": "squad"}
    yield (
        "SQuAD",
        Embeddings(EmbeddingsOptions(**squad, **flags), config, tokenizer),
        ("train", "eval"),
    )


@pytest.mark.shared
def test_public_data_have_no_findings(tmp_path):
    found = {}
    for name, task, splits in _public_tasks(tmp_path):
        give_schema(task)
        examples = {split: task.read(split) for split in splits}
        for split in splits:
            problems = [*task.check(split, examples[split], examples["train"])]
            found |= {(name, split): problems} if problems else {}
    for path in sorted(data("gutenberg").iterdir()):
        lines = path.read_text().splitlines()
        if problems := [*check_lines(str(path), lines), *lint.values("text", lines)]:
            found["gutenberg", path.name] = problems
    assert not found
