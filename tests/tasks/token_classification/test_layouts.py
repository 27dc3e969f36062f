"""Layouts of files of labeled words, besides that of CoNLL-2003."""

import itertools
import json

import pytest

from bert_tf.errors import UserError
from bert_tf.tasks.token_classification import json_layouts
from bert_tf.tasks.token_classification.columns import with_labels
from bert_tf.tasks.token_classification.conll import read_conll
from bert_tf.tasks.token_classification.entities import LabeledWords

UD = """# newdoc id = 1
# sent_id = 1
# text = It isn't 1 000
1\tIt\tit\tPRON\tPRP\t_\t0\troot\t_\t_
2-3\tisn't\t_\t_\t_\t_\t_\t_\t_\t_
2\tis\tbe\tAUX\tVBZ\t_\t1\tcop\t_\t_
3\tn't\tnot\tPART\tRB\t_\t1\tadvmod\t_\t_
3.1\tso\tso\tADV\tRB\t_\t_\t_\t_\t_
4\t1 000\t1000\tNUM\tCD\t_\t1\tobj\t_\t_

"""
CONLL_2012 = """#begin document (a); part 000
a 0 0 The DT * - - - - (DATE* *
a 0 1 summer NN * - - - - *) *

a 0 0 Bonn NNP * - - - - (GPE) * *

#end document
#begin document (a); part 001
a 1 0 # SYM * - - - - * *

#end document
"""


def read(tmp_path, name, text, **arguments):
    (tmp_path / name).write_text(text, "utf-8")
    file = read_conll(str(tmp_path / name), **arguments)
    return list(zip(file.words, file.targets or file.words, strict=True)), file


@pytest.mark.parametrize(
    "columns",
    [(2, 4), (1, -1), ("form", "upos"), ("FORM", 4)],
    ids=["numbers", "", "names", "both"],
)
@pytest.mark.parametrize("name", ["ud.conllu", "ud.txt"])
def test_conllu(tmp_path, name, columns):
    rows, file = read(tmp_path, name, UD * 2, token_column=columns[0], label_column=columns[1])
    words = [("It", "PRON"), ("is", "AUX"), ("n't", "PART"), ("1\xa0000", "NUM")]
    assert (rows, file.scheme) == (words * 2, "plain")
    assert (file.sentence_starts, file.document_starts) == ([0, 4, 8], [0, 4, 8])
    written = file.with_predictions(file.targets)
    assert written.splitlines()[1:5] == [f"{word} {label} {label}" for word, label in words]
    with pytest.raises(UserError, match=r" has no column 'pos', only id, form, .* \(--label_c"):
        read(tmp_path, name, UD, label_column="pos")
    with pytest.raises(UserError, match=r":4: '_' in column 10 is not a label\. All words have it"):
        read(tmp_path, name, UD, token_column=2)


def test_conll_2012(tmp_path):
    rows, file = read(tmp_path, "a.conll", CONLL_2012, token_column=4, label_column=11)
    assert rows == [("The", "B-DATE"), ("summer", "I-DATE"), ("Bonn", "B-GPE"), ("#", "O")]
    assert (file.sentence_starts, file.document_starts) == ([0, 2, 3, 4], [0, 3, 4])
    with pytest.raises(UserError, match=r"a\.conll:5: 13 columns .* but 12 columns in .*:2"):
        read(tmp_path, "a.conll", CONLL_2012.replace("#begin document", "# document"))
    nested = CONLL_2012.replace("(DATE*", "(DATE(DATE*")
    with pytest.raises(UserError, match=r"Brackets must not be nested, as in '\(DATE\(DATE\*'"):
        read(tmp_path, "a.conll", nested, token_column=4, label_column=11)


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("# example.org [2020-01-01]\n1\tAnna\tB-PER\tO\n2\tlacht\tO\tO\n\n", (2, 3)),
        ("# id 1 domain=train\nAnna _ _ B-PER\nlacht _ _ O\n\n# id 2 domain=train\n", (1, -1)),
        ("# a comment\n\nAnna B-PER\nlacht O\n", (1, -1)),
        ("token\tner\nAnna\tB-PER\nlacht\tO\n", (1, -1)),
        ("Satz;x\tWort\tname\n1\tAnna\tB-PER\n1\tlacht\tO\n", ("Wort", "name")),
    ],
    ids=["GermEval 2014", "MultiCoNER", "comment", "header", "names"],
)
def test_lines_that_are_no_words(tmp_path, text, columns):
    rows, _ = read(tmp_path, "a.tsv", text, token_column=columns[0], label_column=columns[1])
    assert rows == [("Anna", "B-PER"), ("lacht", "O")]


def test_number_signs_are_words_in_other_files(tmp_path):
    rows, _ = read(tmp_path, "a.txt", "# O\none O\n\n# O\nBonn B-X\n")
    assert [word for word, _ in rows] == ["#", "one", "#", "Bonn"]
    assert read(tmp_path, "a.txt", "#a\n#b\n\n#a\n", need_labels=False)[1].words == [
        "#a",
        "#b",
        "#a",
    ]
    with pytest.raises(UserError, match="4 columns"):
        read(tmp_path, "a.txt", "a O\n\n# text = b\nb O\n")


CASES = {
    "datasets": {"tokens": ["Anna", "lives"], "ner_tags": ["B-PER", "O"], "pos_tags": ["N", "V"]},
    "doccano": {"id": 7, "text": "Anna lives", "label": [[0, 4, "PER"]]},
    "doccano, entities": {
        "text": "Anna lives",
        "entities": [{"id": 1, "start_offset": 0, "end_offset": 4, "label": "PER"}],
    },
    "Label Studio": {
        "text": "Anna lives",
        "label": [{"start": 0, "end": 5, "text": "Anna ", "labels": ["PER"]}],
    },
    "Prodigy": {
        "text": "Anna lives",
        "tokens": [{"text": "Anna", "start": 0, "end": 4, "id": 0}],
        "spans": [{"start": 0, "end": 4, "token_start": 0, "label": "PER"}],
    },
    "tokens and spans": {
        "tokens": ["Anna", "lives"],
        "text": "Anna lives",
        "spans": [[0, 4, "PER"]],
    },
    "CLUENER": {"text": "Anna lives", "label": {"PER": {"Anna": [[0, 3]]}}},
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("as_list", [False, True])
def test_json(tmp_path, name, as_list):
    text = json.dumps([CASES[name]] * 2) if as_list else f"{json.dumps(CASES[name])}\n" * 2
    rows, file = read(tmp_path, "a.json", text)
    assert rows == [("Anna", "B-PER"), ("lives", "O")] * 2
    assert (file.sentence_starts, file.line_numbers) == ([0, 2, 4], [1, 1, 2, 2])


def test_chinese_dictionaries(tmp_path):
    label = {"name": {"小王": [[0, 1]]}, "address": {"北京": [[3, 4]]}}
    rows, _ = read(tmp_path, "a.json", json.dumps({"text": "小王在北京", "label": label}))
    assert [label for _, label in rows] == ["B-name", "I-name", "O", "B-address", "I-address"]


def test_json_keys(tmp_path):
    text = json.dumps(
        {"a": ["x", "y z"], "words": ["v", "w"], "b": ["DT", "NN"], "tags": ["O", "O"]}
    )
    rows, _ = read(tmp_path, "a.jsonl", text, token_column="a", label_column="b")
    assert rows == [("x", "DT"), ("y\xa0z", "NN")]


def test_tokens_and_text_without_spans(tmp_path):
    row = {"tokens": ["Anna", "lives."], "text": "Anna lives."}
    rows, _ = read(tmp_path, "a.jsonl", json.dumps(row | {"spans": []}))
    assert rows == [("Anna", "O"), ("lives", "O"), (".", "O")]
    with pytest.raises(UserError, match="2 words, but 0 labels"):
        read(tmp_path, "a.jsonl", json.dumps(row | {"ner_tags": []}))


def test_spans_that_words_cannot_express_are_counted(tmp_path):
    spans = [[0, 4, "PER"], [11, 16, "ACT"], [11, 15, "ACT"]]
    rows, file = read(
        tmp_path, "a.jsonl", json.dumps({"text": "Anna-Maria lives", "labels": spans})
    )
    assert rows == [("Anna-Maria", "B-PER"), ("lives", "B-ACT")]
    assert [problem.partition("jsonl: ")[2] for problem in file.problems] == [
        "1 of 3 spans does not end where a word does, so whole words are labeled",
        "1 of 3 spans overlap with others, so only the longest are used",
    ]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"a": 1},
            r"a\.jsonl:1: no words or text in a\. Pass --token_column=KEY\. Write objects su",
        ),
        ({"text": "a"}, r"1: no labels in text\. Pass --label_column=KEY"),
        (
            {"tokens": ["a"], "ner_tags": [3]},
            r"'\[3\]' are not labels\. Write the labels' names, such",
        ),
        ({"tokens": ["a"], "ner_tags": ["O", "O"]}, "1 word, but 2 labels"),
        (
            {"text": "a b", "labels": [[0, 9, "X"]]},
            r"\[0, 9, \"X\", null\]' is not a span of the text",
        ),
        ({"text": "a b", "labels": {"X": {"b": [[0, 0]]}}}, "is not a span of the text"),
        ({"text": "a b", "labels": [["a", "X"]]}, "is not a span of the text"),
        ({"text": "a b", "labels": "X"}, "is not a span of the text"),
    ],
)
def test_invalid_json(tmp_path, row, message):
    with pytest.raises(UserError, match=message):
        read(tmp_path, "a.jsonl", json.dumps(row))


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Anna lives here.\nShe is 3.\n\nHello\n", [4, 4, 1]),
        ("Anna lives in Bonn\n", [4]),
        ("小王在北京。\n他不在。\n", [6, 4]),
        ("Anna\nlives\n\nHello\n", [2, 1]),
        ("Anna NNP O\nlives VBZ O\n", [2]),
    ],
)
def test_plain_sentences(tmp_path, text, sentences):
    _, file = read(tmp_path, "a.txt", text, need_labels=False)
    pairs = itertools.pairwise(file.sentence_starts)
    assert [stop - start for start, stop in pairs if stop > start] == sentences


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        (UD, (1, -1), {"\tPRON\t": "\tX0\t", "\tAUX\t": "\tX1\t", "\tPART": "\tX2", "NUM": "X3"}),
        (
            CONLL_2012,
            (4, 11),
            {
                "(DATE*": "X0",
                "- *) *\n\n": "- X1 *\n\n",
                "(GPE)": "X2",
                "- * *\n\n#": "- X3 *\n\n#",
            },
        ),
        (
            "# a [2020-01-01]\n1\ta \tB-PER\tO\n-DOCSTART-\tO\n\n \n2\tb\tO\tO\t\n",
            (2, 3),
            {"B-PER": "X0", "b\tO": "b\tX1"},
        ),
        ("token ner\na  B-P\n\nO  O \n", (1, -1), {"B-P": "X0", "O  O ": "O  X1 "}),
        ("a\n\nb\n-DOCSTART-\nc\n", (1, -1), {"a\n": "a X0\n", "b\n": "b X1\n", "c\n": "c X2\n"}),
        ("a\tN\nb\tN\n", (1, 5), {"a\tN": "a\tN\tX0", "b\tN": "b\tN\tX1"}),
    ],
    ids=["CoNLL-U", "CoNLL-2012", "GermEval 2014", "header", "only words", "no labels"],
)
def test_labels_are_written_back_in_columns(tmp_path, text, columns, expected):
    """All other columns and lines stay as they are."""
    arguments = {"need_labels": False, "token_column": columns[0], "label_column": columns[1]}
    _, file = read(tmp_path, "a.tsv", text, **arguments)
    predicted = [f"X{n}" for n in range(len(file.words))]
    written = with_labels(file, predicted)
    for old, new in expected.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    assert written == text
    # What was written can be read.
    arguments |= {"label_scheme": "plain"}
    if file.label_index is None:
        arguments["label_column"] = -1
    _, again = read(tmp_path, "a.tsv", written, **arguments)
    assert (again.words, again.labels) == (file.words, predicted)
    assert again.sentence_starts == file.sentence_starts


@pytest.mark.parametrize("name", CASES)
def test_labels_are_written_back_in_json(tmp_path, name):
    unlabeled = (
        {"text": "Bonn, \U0001f600", "tokens": None} if "text" in CASES[name] else {"tokens": ["x"]}
    )
    text = json.dumps([CASES[name], unlabeled, CASES[name]])
    _, file = read(tmp_path, "a.json", text, need_labels=False)
    words = [file.words[n:stop] for n, stop in itertools.pairwise(file.sentence_starts)]
    predictions = []
    for row, sentence_text in zip(words, file.texts, strict=True):
        prediction = LabeledWords(row, ["B-LOC", "O", "B-PER"][: len(row)])
        prediction.text, prediction.probabilities = sentence_text, [1.0] * len(row)
        predictions.append(prediction)
    written = json_layouts.with_labels(file, predictions)
    first, second, third = map(json.loads, written.splitlines())
    assert first == third != CASES[name]
    # Only the labels differ, and they are in the same layout.
    (key,) = [key for key in first if first[key] != CASES[name][key]]
    assert {**first, key: 0} == {**CASES[name], key: 0}
    assert type(first[key]) is type(CASES[name][key])
    assert type(next(iter(first[key]))) is type(next(iter(CASES[name][key])))
    assert {**second, key: 0, "labels": 0} == {**unlabeled, key: 0, "labels": 0}
    # What was written can be read.
    _, again = read(tmp_path, "a.jsonl", written)
    assert again.words == file.words
    assert again.labels == [label for prediction in predictions for label in prediction.labels]
