"""CoNLL files: reading, writing and errors."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bert_tf.base.errors import UserError
from bert_tf.tasks.token_classification import conll
from bert_tf.tasks.token_classification.schemes import to_bio
from bert_tf.tasks.token_classification.sentences import DOCUMENT, describe_labels
from tests.oracle import data

TEXT = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O

Peter NNP B-NP B-PER
Blackburn NNP I-NP I-PER

-DOCSTART- -X- -X- O

Bonn NNP B-NP B-LOC
"""


@pytest.fixture
def path(tmp_path):
    (tmp_path / "train.txt").write_text(TEXT)
    return tmp_path / "train.txt"


def test_conll_2003_layout(path):
    file = conll.read_conll(str(path))
    assert file.words == ["EU", "rejects", "Peter", "Blackburn", "Bonn"]
    assert file.labels == ["B-ORG", "O", "B-PER", "I-PER", "B-LOC"]
    assert file.line_numbers == [3, 4, 6, 7, 11]
    assert (file.sentence_starts, file.document_starts) == ([0, 2, 4, 5], [0, 4, 5])
    chunks = conll.read_conll(str(path), token_column=2, label_column=3)
    assert (chunks.words[0], chunks.labels[0]) == ("NNP", "B-NP")


VARIANTS = {
    "bom": "\ufeff" + TEXT,
    "crlf": TEXT.replace("\n", "\r\n"),
    "tabs": TEXT.replace(" ", "\t"),
    "multiple spaces": TEXT.replace(" ", "  ").replace("\n", " \n"),
    "white space in blank lines": TEXT.replace("\n\n", "\n \t\n"),
    "no final newline": TEXT.rstrip("\n"),
    "no blank line after -DOCSTART-": TEXT.replace("O\n\n", "O\n"),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_harmless_file_variants(path, name):
    expected = conll.read_conll(str(path))
    path.write_bytes(VARIANTS[name].encode())
    parsed = conll.read_conll(str(path))
    for field in ("words", "labels", "document_starts"):
        assert getattr(parsed, field) == getattr(expected, field)


def test_write_predictions(path):
    file = conll.read_conll(str(path))
    predicted = ["O", "O", "B-PER", "I-PER", "B-ORG"]
    lines = file.with_predictions(predicted).splitlines()
    assert lines[:4] == ["-DOCSTART- O O", "", "EU B-ORG O", "rejects O O"]
    assert lines[8:] == ["-DOCSTART- O O", "", "Bonn B-LOC B-ORG"]
    assert len(lines) == 11
    (path.parent / "test.txt").write_text("a\nb\n\n\nc\n\n")
    unlabeled = conll.read_conll(str(path.parent / "test.txt"), need_labels=False)
    assert unlabeled.labels == []
    assert unlabeled.with_predictions(["O", "B-X", "I-X"]) == "a O\nb B-X\n\n\nc I-X\n\n"


def test_test_file_without_label_column(path):
    path.write_text("EU NNP\nrejects VBZ\n")
    assert conll.read_conll(str(path), label_column=4, need_labels=False).labels == []


@pytest.mark.parametrize(
    ("content", "least"),
    [
        (b"Use the list ['a', 'b'] here .\n", 7),
        (b"set a['x'] = b['y'] here .\n", 2),
        (b'{"tokens": ["", "a"], "tags": ["O", "O"]}\n', 2),
        (b"[ O\n' O\n['x' O\na O\nb O\n", 2),
    ],
)
def test_texts_are_no_lists(path, content, least):
    path.write_bytes(content)
    assert len(conll.read_conll(str(path), need_labels=False).words) >= least


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"train\.txt: the file contains no words"),
        (b"EU B-ORG\nrejects\n", r"train\.txt:2: 1 column \('rejects'\), but 2 columns in .*:1\."),
        (
            b"EU B-ORG\n\nthe red O\n",
            r"train\.txt:3: 3 columns \('the red O'\), but 2 columns in .*train\.txt:1",
        ),
        (
            b"EU,B-ORG\n",
            r"--label_column=-1\): 'EU,B-ORG'\. .*, in columns separated by spaces or tabs",
        ),
        (
            b"Sentence #,Tag\n,EU,B-ORG\n",
            r"train\.txt:2: 1 column .*, but 2 columns in .*:1\. .* separated by spaces or tabs",
        ),
        (b"\nEU\n", r"train\.txt:2: 1 column and no label \(--token_column=1, --label_column=-1"),
        (b"Peter is here .\n", r"'\.' in column 4 is not a label .*\. All words"),
        (b"EU NNP\n", r"train\.txt:1: 'NNP' in column 2 is not a label.* Check --label_column"),
        (
            b"EU O\nthe U-ORG\nthe E-ORG\nthe B-ORG\nthe U-LOC\na I-ORG\n",
            r"txt:2: 'U-ORG' .* not a label .*\. All other .* BILOU, but not 'E-ORG' \(1 word\)\. ",
        ),
        (b"EU O\n# text = EU\n", r"train\.txt:2: 4 columns \('# text = EU'\).* and no comments"),
        (b"EU B-ORG X\na O Y\n", r"train\.txt: entities are in column 2: pass --label_column=2"),
        (b"-DOCSTART- -X- O\n\nEU B-ORG X\na O Y\n", r"entities are in column 2"),
        (b"B-ORG EU\nO a\n", r"train\.txt: entities are in column 1: pass --label_column=1"),
        (b"EU 3\na 4\n", r"'3' in column 2 is not a label such as B-LOC\. Check --label_column"),
        (b"1\tEU\tEU\tPROPN\tNNP\t_\t0\troot\t_\t_\n", r"'PROPN' in column 4 .* All words"),
        (b'tags\n"[""O"", ""O""]"\n', r"train\.txt:2: lists that are written as strings"),
        (b'{"tokens": "[\'a\']", "tags": "[\'O\']"}\n', r"train\.txt:1: .* JSON lines with lists$"),
        (b"EU O\n\na B-\n", r"train\.txt:3: 'B-' in column 2 is not a label"),
        (b"EU O\ncaf\xe9 O\n", r"train\.txt:2: the file is not UTF-8"),
    ],
)
def test_invalid_files(path, content, message):
    path.write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        conll.read_conll(str(path))
    assert "\n" not in str(caught.value)


def test_missing_columns(path):
    with pytest.raises(UserError, match=r"txt:3: 4 columns and no word \(--token_column=5, --l"):
        conll.read_conll(str(path), token_column=5)
    with pytest.raises(UserError, match=r"txt:3: 4 columns and no label \(.*, --label_column=7\)"):
        conll.read_conll(str(path), label_column=7)


SPANS = "中共中央/nt 致/o 江泽民/nr 的贺词/o \n\n在/o 北京/ns 台/ns w/o\n"


def test_msra_spans(path):
    path.write_text(SPANS, "utf-8")
    file = conll.read_conll(str(path))
    assert "".join(file.words) == "中共中央致江泽民的贺词在北京台w"
    assert file.labels == [
        *["B-ORG", "I-ORG", "I-ORG", "I-ORG", "O", "B-PER", "I-PER", "I-PER", "O", "O", "O"],
        *["O", "B-LOC", "I-LOC", "B-LOC", "O"],
    ]
    assert (file.sentence_starts, file.line_numbers) == ([0, 11, 16], [1] * 11 + [3] * 5)
    written = path.parent / "label_test.txt"
    written.write_text(file.with_predictions(file.labels), "utf-8")
    again = conll.read_conll(str(written))
    assert (again.words, again.labels) == (file.words, file.labels)
    assert again.sentence_starts == file.sentence_starts
    path.write_text(SPANS + "上海\n", "utf-8")
    with pytest.raises(UserError, match=r"train\.txt:4: expected .* /nt\. Received: '上海'"):
        conll.read_conll(str(path))


def test_word_with_slash_is_not_a_span(path):
    path.write_text("w/o\na\n")
    assert conll.read_conll(str(path), need_labels=False).words == ["w/o", "a"]
    path.write_text("w/o O\na/ns O\n")
    assert conll.read_conll(str(path)).words == ["w/o", "a/ns"]


def test_conlleval_tabs(path):
    path.write_text("-DOCSTART-\nEU\tB-ORG\tO\nrejects\tO\tO\n\n北\tB-LOC\tB-LOC\n", "utf-8")
    file = conll.read_conll(str(path), label_column=2)
    assert (file.words, file.labels) == (["EU", "rejects", "北"], ["B-ORG", "O", "B-LOC"])
    assert (file.sentence_starts, file.document_starts) == ([0, 2, 3], [0, 3])


def test_iob1_becomes_bio():
    #          sentence 1                          2        3
    iob1 = ["I-A", "I-A", "B-A", "I-B", "O", "I-A", "I-A", "B-A", "I-A"]
    bio = ["B-A", "I-A", "B-A", "B-B", "O", "B-A", "B-A", "B-A", "I-A"]
    sentence_starts = [0, 6, 7, 9]
    assert to_bio(iob1, sentence_starts) == bio
    assert to_bio(bio, sentence_starts) == bio
    assert to_bio(["I", "O", "I", "I"], [0, 4]) == ["B", "O", "B", "I"]
    bioes = ["B-A", "I-A", "E-A", "S-A", "O", "I-A"]
    assert to_bio(bioes, [0, 6]) == bioes


@pytest.mark.parametrize(
    "labels", ["B-A E-A S-A O S-B", "B-A L-A U-A O U-B", "B-A E-A W-A O W-B", "B-A I-A B-A O B-B"]
)
def test_entities_are_counted_in_every_scheme(labels, tmp_path):
    path = tmp_path / "train.txt"
    path.write_text("".join(f"word{n} {label}\n" for n, label in enumerate(labels.split())))
    assert describe_labels(conll.read_conll(str(path))) == "entities: A (2), B (1)"


WORD = st.text(st.characters(exclude_characters=" \t\r\n", codec="utf-8"), min_size=1).filter(
    lambda word: word != DOCUMENT and not word.startswith("\ufeff")
)
ROW = st.tuples(WORD, st.sampled_from(["O", "B-A", "I-A"]))


@given(st.lists(st.one_of(ROW, st.sampled_from(["", "-DOCSTART- -X- O"])), min_size=1))
@example([("#", "B-A")])  # not a comment
def test_words_are_returned_once_and_in_order(tmp_path_factory, rows):
    lines = [row if isinstance(row, str) else " ".join(row) for row in rows]
    words = [row for row in rows if not isinstance(row, str)]
    path = tmp_path_factory.mktemp("conll") / "test.txt"
    path.write_bytes("\n".join([*lines, "end O"]).encode())
    file = conll.read_conll(str(path))
    assert list(zip(file.words, file.labels, strict=True)) == [*words, ("end", "O")]
    assert file.sentence_starts == sorted(set(file.sentence_starts))
    written = file.with_predictions([f"B-{number}" for number in range(len(file.words))])
    parsed = [line.split(" ") for line in written.split("\n")[:-1]]
    assert len(parsed) == len(rows) + 1
    for line, row in zip(parsed, rows, strict=False):
        assert tuple(line[:2]) == row if not isinstance(row, str) else line[0] in row


@pytest.mark.shared
def test_real_files():
    file = conll.read_conll(str(data("conll2003/train.txt")))
    assert (len(file.sentence_starts) - 1, len(file.words)) == (14_041, 203_621)
    assert len(file.document_starts) == 947
    assert to_bio(file.labels, file.sentence_starts) == file.labels
    types = ("LOC", "MISC", "ORG", "PER")
    assert {*file.labels} == {"O", *(f"{p}-{name}" for p in "BI" for name in types)}
