"""Layouts of files of labeled words, besides that of CoNLL-2003."""

import itertools
import json

import pytest

from bert_tf.base.errors import UserError
from bert_tf.tasks.token_classification import json_layouts
from bert_tf.tasks.token_classification.conll import read_conll, with_labels
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


@pytest.mark.parametrize("columns", [(2, 4), (1, -1), ("FORM", "upos")], ids=str)
def test_conllu(tmp_path, columns):
    name = "ud.txt"
    rows, file = read(tmp_path, name, UD * 2, token_column=columns[0], label_column=columns[1])
    words = [("It", "PRON"), ("is", "AUX"), ("n't", "PART"), ("1\xa0000", "NUM")]
    assert (rows, file.scheme) == (words * 2, "plain")
    assert (file.sentence_starts, file.document_starts) == ([0, 4, 8], [0, 4, 8])
    written = file.with_predictions(file.targets)
    assert written.splitlines()[1:5] == [f"{word} {label} {label}" for word, label in words]
    with pytest.raises(UserError, match=r"no column 'pos' \(--label_column\), only id, form"):
        read(tmp_path, name, UD, label_column="pos")
    with pytest.raises(UserError, match=r":4: '_' in column 10 is not a label .* All words"):
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
    _, file = read(tmp_path, "a.txt", "#a\n#b\n\n#a\n", need_labels=False)
    assert file.words == ["#a", "#b", "#a"]
    with pytest.raises(UserError, match="4 columns"):
        read(tmp_path, "a.txt", "a O\n\n# text = b\nb O\n")


CUPT = """# global.columns = ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC PARSEME:MWE
# text = part au
1\tpart\tpart\tNOUN\t_\t_\t0\tdep\t_\t_\t1:LVC
2-3\tau\t_\t_\t_\t_\t_\t_\t_\t_\t*
2\tà\tà\tADP\t_\t_\t0\tdep\t_\t_\t*
3\tle\tle\tDET\t_\t_\t0\tdep\t_\t_\t1
3.1\tdu\tle\tDET\t_\t_\t0\tdep\t_\t_\t1
"""


@pytest.mark.parametrize(
    ("columns", "labels"),
    [
        ((1, -1), ["NOUN", "ADP", "DET"]),
        (("form", "parseme:mwe"), ["1:LVC", "*", "1"]),
        ((2, 11), ["1:LVC", "*", "1"]),
        ((1, "DEPREL"), ["dep"] * 3),
    ],
)
def test_conllu_plus(tmp_path, columns, labels):
    arguments = {"token_column": columns[0], "label_column": columns[1], "label_scheme": "plain"}
    rows, _ = read(tmp_path, "a.cupt", CUPT, **arguments)
    assert rows == list(zip(["part", "à", "le"], labels, strict=True))
    with pytest.raises(UserError, match=r"no column 'ner' .*, only ID, FORM, .*, PARSEME:MWE"):
        read(tmp_path, "a.cupt", CUPT, label_column="ner")
    # The columns need not be those of CoNLL-U.
    text = "# global.columns = FORM ID NER\nau\t1-2\tO\nà\t1\tO\nBonn\t2\tB-LOC\n"
    assert read(tmp_path, "a.conllup", text)[0] == [("à", "O"), ("Bonn", "B-LOC")]


def test_ranges_are_no_words_whatever_the_number_of_columns(tmp_path):
    lines = "1-2\tim\tO\n1\tin\tO\n2\tdem\tO\n3\tBonn\tB-LOC\n"
    rows, _ = read(tmp_path, "a.tsv", f"# id 1\n{lines}", token_column=2)
    assert rows == [("in", "O"), ("dem", "O"), ("Bonn", "B-LOC")]
    # These are not ids: a file without comments, and one with the numbers of sentence and word.
    times = "0.5\tin\tO\n1\tBonn\tB-LOC\n"
    assert len(read(tmp_path, "a.tsv", times, token_column=2)[0]) == 2
    numbers = "# id 1\n1-1\tin\tO\n1-2\tBonn\tB-LOC\n"
    assert len(read(tmp_path, "a.tsv", numbers, token_column=2)[0]) == 2


def test_words_of_conllu_are_forms_whatever_the_label(tmp_path):
    rows, _ = read(tmp_path, "a.conllu", UD, label_column="xpos")
    assert rows == [("It", "PRP"), ("is", "VBZ"), ("n't", "RB"), ("1\xa0000", "CD")]


def test_spaces_are_words(tmp_path):
    """A character per line, as in KLUE: all words stay, and so do all lines of predictions."""
    text = "## a-1\t<김:PS> 은 #\n김\tB-PS\n \tO\n#\tO\n\n New York\tB-LC\n"
    rows, file = read(tmp_path, "a.tsv", text)
    assert rows == [("김", "B-PS"), ("\xa0", "O"), ("#", "O"), ("New\xa0York", "B-LC")]
    assert file.sentence_starts == [0, 3, 4]
    written = with_labels(file, ["X0", "X1", "X2", "X3"])
    assert written.splitlines()[1:] == ["김\tX0", " \tX1", "#\tX2", "", " New York\tX3"]
    # A label is not a space.
    with pytest.raises(UserError, match=r"a\.tsv:2: the label in column 2 is empty: 'b "):
        read(tmp_path, "a.tsv", "a\tNN\nb\t \nc\tNN\n", label_scheme="plain")
    assert read(tmp_path, "a.tsv", "a\tNN\nb\t \nc\tNN\n", need_labels=False)[1].labels == []
    # Spaces separate columns where the number of columns is the same with them.
    assert read(tmp_path, "a.txt", "a X\tO\n b X\tO\n")[1].words == ["a", "b"]


CSV = """Sentence #,Word,POS,Tag
Sentence: 1,London,NNP,B-geo
,",",",",O
,\"""\",``,O
Sentence: 2,a b,NN,O
"""


@pytest.mark.parametrize("separator", [",", ";"])
def test_csv(tmp_path, separator):
    text = CSV.replace(",", separator)
    rows, file = read(tmp_path, "a.csv", text)
    assert rows == [("London", "B-geo"), (separator, "O"), ('"', "O"), ("a\xa0b", "O")]
    assert (file.sentence_starts, file.line_numbers) == ([0, 3, 4], [2, 3, 4, 5])
    named, _ = read(tmp_path, "a.csv", text, token_column="POS", label_column="Tag")
    assert named[0] == ("NNP", "B-geo")
    lines = with_labels(file, ["X0", "X1", "X2", "X3"]).splitlines()
    assert lines[1:4:2] == ["Sentence: 1,London,NNP,X0".replace(",", separator), lines[3]]
    assert [line.rpartition(separator)[2] for line in lines] == ["Tag", "X0", "X1", "X2", "X3"]
    assert read(tmp_path, "b.csv", "\n".join(lines), label_scheme="plain")[1].words == file.words


def test_sentences_of_csv_by_blank_lines_or_repeated_numbers(tmp_path):
    for text in ("in,O\nBonn,B-X\n\nin,O\n", "in,O\nBonn,B-X\n,\nin,O\n"):
        assert read(tmp_path, "a.csv", text)[1].sentence_starts == [0, 2, 3]
    text = "sentence_id\tword\ttag\n7\tin\tO\n7\tBonn\tB-X\n8\tin\tO\n"
    rows, file = read(tmp_path, "a.tsv", text)
    assert (rows[1], file.sentence_starts) == (("Bonn", "B-X"), [0, 2, 3])


WORDS = ["Anna", "lives"]
CASES = {
    "datasets": {"tokens": WORDS, "ner_tags": ["B-PER", "O"], "pos_tags": ["N", "V"]},
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
    "tokens and spans": {"tokens": WORDS, "text": "Anna lives", "spans": [[0, 4, "PER"]]},
    "CLUENER": {"text": "Anna lives", "label": {"PER": {"Anna": [[0, 3]]}}},
    "spaCy, to_json": {
        "text": "Anna lives",
        "ents": [{"start": 0, "end": 4, "label": "PER"}],
        "tokens": [{"id": 0, "start": 0, "end": 4}, {"id": 1, "start": 5, "end": 10}],
    },
    "SpERT": {
        "tokens": WORDS,
        "entities": [{"type": "PER", "start": 0, "end": 1}],
        "relations": [],
    },
    "GLiNER": {"tokenized_text": WORDS, "ner": [[0, 0, "PER"]]},
}


@pytest.mark.parametrize("name", CASES)
def test_json(tmp_path, name):
    lines = f"{json.dumps(CASES[name])}\n" * 2
    texts = {"list.json": json.dumps([CASES[name]] * 2), "a.json": lines, "a.txt": f"\ufeff{lines}"}
    for file_name, text in texts.items():
        rows, file = read(tmp_path, file_name, text)
        assert rows == [("Anna", "B-PER"), ("lives", "O")] * 2
        assert (file.sentence_starts, file.line_numbers) == ([0, 2, 4], [1, 1, 2, 2])


def test_pairs_of_spacy(tmp_path):
    pairs = [["Anna lives", {"entities": [[0, 4, "PER"]]}], ["Hi", {"entities": []}]]
    rows, _ = read(tmp_path, "a.json", json.dumps(pairs, indent=1))
    assert rows == [("Anna", "B-PER"), ("lives", "O"), ("Hi", "O")]


def test_answers_of_prodigy(tmp_path, run_log):
    spans = {"text": "Anna lives", "spans": [{"start": 0, "end": 10, "label": "PER"}]}
    answers = [{**spans, "answer": answer} for answer in ("accept", "reject", "ignore", "accept")]
    text = "".join(f"{json.dumps(row)}\n" for row in answers)
    rows, file = read(tmp_path, "a.jsonl", text)
    assert rows == [("Anna", "B-PER"), ("lives", "I-PER")] * 2
    assert (len(file.objects), file.line_numbers) == (2, [1, 1, 4, 4])
    assert "a.jsonl: left out 2 objects that were rejected, ignored or not" in run_log.text
    predicted, file = read(tmp_path, "a.jsonl", text, need_labels=False)
    assert (len(predicted), file.labels) == (8, [])


def test_label_studio(tmp_path, run_log):
    value = {"start": 0, "end": 4, "text": "Anna", "labels": ["PER"]}
    result = [{"value": value, "type": "labels"}, {"from_id": "a", "type": "relation"}]
    choice = {"value": {"choices": ["good"]}, "type": "choices"}
    tasks = [
        [{"result": [*result, choice], "was_cancelled": False}, {"result": []}],
        [{"result": result, "was_cancelled": True}],
        [],
        [{"result": [], "was_cancelled": False}],
    ]
    rows = [{"id": 1, "data": {"text": "Anna lives"}, "annotations": task} for task in tasks]
    words, file = read(tmp_path, "a.json", json.dumps(rows, indent=1))
    assert words == [("Anna", "B-PER"), ("lives", "O"), ("Anna", "O"), ("lives", "O")]
    assert "left out 2 objects that were" in run_log.text
    predictions = [LabeledWords(["Anna", "lives"], ["O", "B-X"]) for _ in range(2)]
    for prediction in predictions:
        prediction.text, prediction.probabilities = "Anna lives", [1.0, 1.0]
    again, _ = read(tmp_path, "b.jsonl", json_layouts.with_labels(file, predictions))
    assert again == [("Anna", "O"), ("lives", "B-X")] * 2
    text = json.dumps(rows).replace('"text": "Anna lives"', '"review": "Anna lives"')
    assert read(tmp_path, "a.json", text, token_column="review")[0] == words
    assert len(read(tmp_path, "a.json", text, token_column="review", need_labels=False)[0]) == 8


def test_spans_with_several_labels_are_counted(tmp_path):
    values = [{"start": 0, "end": 4, "labels": ["PER", "ACTOR"]}]
    values += [{"start": 5, "end": 10, "labels": ["ACT"]}]
    annotations = [{"result": [{"value": value} for value in values]}]
    row = json.dumps({"data": {"text": "Anna lives"}, "annotations": annotations})
    rows, file = read(tmp_path, "a.jsonl", f"{row}\n" * 3)
    assert rows == [("Anna", "B-PER"), ("lives", "B-ACT")] * 3
    problem = "3 of 6 spans have several labels, so only the first is used"
    assert file.problems == [f"{file.path}: {problem}"]


@pytest.mark.parametrize(
    ("spans", "labels"),
    [
        ([[0, 1, "X"]], "B-X I-X O"),
        ([[0, 1, "X"]] * 30, "B-X O O"),
        ([[0, 1, "X"], [2, 2, "Y"]], "B-X I-X B-Y"),
        ([[0, 1, "X"], [2, 3, "Y"]], "B-X O B-Y"),
        ([{"start": 0, "end": 1, "type": "X"}], "B-X O O"),
        ([{"start": 0, "end": 1, "type": "X"}, {"start": 2, "end": 2, "type": "Y"}], "B-X I-X B-Y"),
    ],
)
def test_ends_of_spans_of_words(tmp_path, spans, labels):
    """Spans with one word, or to the end, show whether ends are inclusive; else it is probable."""
    rows = [{"tokens": ["a", "b", "c"], "entities": [span]} for span in spans]
    rows.append({"tokens": ["d"], "entities": []})
    _, file = read(tmp_path, "a.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
    by_sentence = [file.labels[n : n + 3] for n in range(0, 3 * len(spans), 3)]
    distinct = {tuple(x) for x in by_sentence}
    merged = [next((x for x in column if x != "O"), "O") for column in zip(*distinct, strict=True)]
    assert " ".join(merged) == labels
    assert file.labels[-1] == "O"


def test_texts_are_split_by_the_given_function(tmp_path):
    row = {"text": "[E1] Anna, hi", "label": [[5, 9, "PER"]]}
    _, file = read(tmp_path, "a.jsonl", json.dumps(row), split=str.split)
    assert file.words == ["[E1]", "Anna,", "hi"]
    text = "Anna, hi you.\nHi, Bonn (D) and.\n"
    _, file = read(tmp_path, "a.txt", text, need_labels=False, split=str.split)
    assert file.words == ["Anna,", "hi", "you.", "Hi,", "Bonn", "(D)", "and."]


def test_unknown_key_of_words(tmp_path):
    with pytest.raises(UserError, match=r"no words .*--token_column. in the keys id, text, label"):
        read(tmp_path, "a.jsonl", json.dumps(CASES["doccano"] | {"id": 0}), token_column="a.b")


def test_json_keys(tmp_path):
    row = {"a": ["x", "y z"], "words": ["v", "w"], "b": ["DT", "NN"], "tags": ["O", "O"]}
    rows, _ = read(tmp_path, "a.jsonl", json.dumps(row), token_column="a", label_column="b")
    assert rows == [("x", "DT"), ("y\xa0z", "NN")]


def test_tokens_and_text_without_spans(tmp_path):
    row = {"tokens": ["Anna", "lives."], "text": "Anna lives."}
    rows, _ = read(tmp_path, "a.jsonl", json.dumps(row | {"spans": []}))
    assert rows == [("Anna", "O"), ("lives", "O"), (".", "O")]
    with pytest.raises(UserError, match="2 words, but 0 labels"):
        read(tmp_path, "a.jsonl", json.dumps(row | {"ner_tags": []}))


def test_spans_that_words_cannot_express_are_counted(tmp_path):
    spans = [[0, 4, "PER"], [11, 16, "ACT"], [11, 15, "ACT"]]
    row = {"text": "Anna-Maria lives", "labels": spans}
    rows, file = read(tmp_path, "a.jsonl", json.dumps(row))
    assert rows == [("Anna-Maria", "B-PER"), ("lives", "B-ACT")]
    assert [problem.partition("jsonl: ")[2] for problem in file.problems] == [
        "1 of 3 spans does not end where a word does, so whole words are labeled",
        "1 of 3 spans overlap with others, so only the longest are used",
    ]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"a": 1}, r"a\.jsonl:1: no words or text \(--token_column\) in the keys a\. Write obje"),
        ({"text": "a"}, r"1: no labels \(--label_column\) in the keys text\."),
        ({"tokens": ["a"], "ner_tags": [3]}, r"'\[3\]' are not names of labels"),
        ({"tokens": ["a"], "ner_tags": ["O", "O"]}, "1 word, but 2 labels"),
        ({"text": "a b", "labels": [[0, 9, "X"]]}, r"'\[0, 9, \"X\"\]' is not a span of the text"),
        (
            {"text": "a b", "labels": {"X": {"b": [[0, 0]]}}},
            r"'{\"X\": {\"b\": .* is not a span of",
        ),
        ({"text": "a b", "labels": [[0, 1, 7]]}, "is not a span .* and the name of its label"),
        ({"text": "a b", "labels": [["a", "X"]]}, "is not a span of the text"),
        ({"text": "a b", "labels": "X"}, "is not a span of the text"),
        ({"tokens": ["a"], "ner": [[0, 3, "X"]]}, r"'\[0, 3, .*is not a span of the text"),
    ],
)
def test_invalid_json(tmp_path, row, message):
    with pytest.raises(UserError, match=message):
        read(tmp_path, "a.jsonl", json.dumps(row))


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Anna lives here.\nShe is 3.\n\nHello\n", [4, 4, 1]),
        ("小王在北京。\n他不在。\n", [6, 4]),
        ("Anna\nlives\n\nHello\n", [2, 1]),
        ("Anna NNP O\nlives VBZ O\n", [2]),
        ("Anna slept\nBob Miller\nLondon calls\n", [2, 2, 2]),
        ("Anna NOUN\nslept VERB\n", [2]),
        ("Anna U-PER\nslept O\n", [2]),
        ("Anna (PER*)\nslept *\n", [2]),
    ],
)
def test_plain_sentences(tmp_path, text, sentences):
    known = {"known_labels": ["NOUN", "PRON"], "label_scheme": "plain"}
    _, file = read(tmp_path, "a.txt", text, need_labels=False, **known)
    pairs = itertools.pairwise(file.sentence_starts)
    assert [stop - start for start, stop in pairs if stop > start] == sentences


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("Anna NN\nslept VB\n\nBob NN\n", (1, -1)),
        ("Anna NN\nMiller NN\nslept VB\nand CC\nBob NN\n", (1, -1)),
        ("Anna slept\n", (1, 2)),
    ],
)
def test_columns_without_labels_are_no_sentences(tmp_path, text, columns):
    arguments = {"token_column": columns[0], "label_column": columns[1]}
    with pytest.raises(UserError, match=r"a\.txt:1: .* in column 2 is not a label"):
        read(tmp_path, "a.txt", text, need_labels=False, label_scheme="entities", **arguments)


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        (UD, (1, -1), {"\tPRON\t": "\tX0\t", "\tAUX\t": "\tX1\t", "\tPART": "\tX2", "NUM": "X3"}),
        (
            CONLL_2012,
            (4, 11),
            {"(DATE*": "X0", "- *) *\n\n": "- X1 *\n\n", "(GPE)": "X2"}
            | {"- * *\n\n#": "- X3 *\n\n#"},
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
    is_text = "text" in CASES[name]
    unlabeled = {"text": "Bonn, \U0001f600", "tokens": None} if is_text else {"tokens": ["x"]}
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


def test_span_of_a_space_is_counted(tmp_path):
    row = {"text": "Anna lives", "labels": [[0, 5, "PER"], [4, 5, "PER"]]}
    rows, file = read(tmp_path, "a.jsonl", json.dumps(row))
    assert rows == [("Anna", "B-PER"), ("lives", "O")]
    (problem,) = file.problems
    assert "1 of 2 spans does not end where a word does" in problem


def test_chinese_dictionaries(tmp_path):
    label = {"name": {"小王": [[0, 1]]}, "address": {"北京": [[3, 4]]}}
    rows, _ = read(tmp_path, "a.json", json.dumps({"text": "小王在北京", "label": label}))
    assert [label for _, label in rows] == ["B-name", "I-name", "O", "B-address", "I-address"]
