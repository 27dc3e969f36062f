"""Tables, published data sets in their layouts, and mistakes in them."""

import json

import pytest

from bert_tf.base.errors import UserError
from bert_tf.data.matches import Match, Matches, read_matches
from bert_tf.options import EmbeddingsOptions

COLUMNS = {"anchor_column": "a", "positive_column": "b"}


def json_lines(rows):
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def read(folder, files, split="train", **flags):
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content if isinstance(content, str) else json_lines(content))
    options = EmbeddingsOptions(data_dir=str(folder), **flags)
    return read_matches(options, split, options.is_scored(split))


def fail(folder, files, match, split="train", **flags):
    with pytest.raises(UserError, match=match):
        read(folder, files, split, **flags)


def test_table_with_negatives(tmp_path):
    table = "a\tb\tc\td\nquery \t yes\tno\tnever\nq\ty\t\tn\n"
    data = read(tmp_path, {"train.tsv": table}, **COLUMNS, negative_columns="c,d")
    assert data.matches == [Match("query", "yes", ("no", "never")), Match("q", "y", ("n",))]
    data = read(tmp_path, {"train.tsv": table}, **COLUMNS, negative_columns="d")
    assert data.matches[0] == Match("query", "yes", ("never",))


def test_list_of_negatives_in_json(tmp_path):
    rows = [{"a": "q", "b": "y", "c": ["n", "m"]}, {"a": "q", "b": "y", "c": []}]
    data = read(tmp_path, {"train.jsonl": rows}, **COLUMNS, negative_columns="c")
    assert [match.negatives for match in data.matches] == [("n", "m"), ()]


LISTS = [
    # BGE: lists of texts.
    ({"a": "q", "b": ["x", "y"], "c": ["n"]}, "b", "c"),
    # DPR and Tevatron: lists of objects.
    (
        {"a": "q", "b": [{"text": "x"}, {"text": "y"}], "c": [{"id": 1, "text": "n"}]},
        "b.text",
        "c.text",
    ),
]


@pytest.mark.parametrize(("row", "positive", "negative"), LISTS)
def test_each_text_in_a_list_of_positives_makes_a_pair(row, positive, negative, tmp_path, caplog):
    caplog.set_level("INFO")
    rows = [row, {**row, "b": []}, {**row, "a": "p"}]
    flags = {"anchor_column": "a", "positive_column": positive, "negative_columns": negative}
    data = read(tmp_path, {"train.jsonl": rows}, **flags)
    assert data.matches == [Match(q, x, ("n",)) for q in "qp" for x in "xy"]
    assert "left out 1 row: the list of positives is empty" in caplog.text
    # The same text is no negative.
    (tmp_path / "train.jsonl").write_text(json.dumps({**row, "c": row["b"]}))
    assert read(tmp_path, {}, **flags).matches == [Match("q", "x"), Match("q", "y")]


def test_labels_of_lists_of_texts(tmp_path):
    rows = [{"a": "q", "b": ["x", "y"], "l": 1}, {"a": "q", "b": ["z"], "l": 0}]
    data = read(tmp_path, {"train.jsonl": rows}, **COLUMNS, label_column="l")
    assert data.matches == [Match("q", "x", ("z",)), Match("q", "y", ("z",))]


# The STS benchmark, as published: some rows have further cells, and quotes are text.
STS = 'a\tb\tc\t01\t5.0\tA "dog".\tA cat.\na\tb\tc\t02\t2.5\t"A dog.\tA dog.\tWMT2008\tref8\n'


@pytest.mark.parametrize(("name", "quoted"), [("train.tsv", "auto"), ("train.csv", "train:no")])
def test_further_cells_and_quotes(name, quoted, tmp_path):
    flags = {"anchor_column": "6", "positive_column": "7", "score_column": "5", "quoted": quoted}
    data = read(tmp_path, {name: STS}, **flags, score_range="0,5", loss="cosine")
    assert data.matches == [Match('A "dog".', "A cat."), Match('"A dog.', "A dog.", (), 0.5)]


def test_another_score_column_for_a_split(tmp_path):
    files = {"train.tsv": "x\ty\n", "dev.tsv": "a\tb\ts\nx\ty\t0.5\nx\tz\t0.1\n"}
    columns = {"anchor_column": "1,eval:a", "positive_column": "2,eval:b"}
    columns |= {"score_column": "eval:s"}
    assert read(tmp_path, files, **columns).matches == [Match("x", "y")]
    assert read(tmp_path, files, "eval", **columns).matches[0] == Match("x", "y", (), 0.5)


def test_labels_in_training_and_scores_in_the_evaluation(tmp_path):
    files = {"train.tsv": "a\tb\tl\nx\ty\t1\nx\tz\t0\n"}
    files["dev.tsv"] = "a\tb\ts\nx\ty\t0.5\nx\tz\t0.1\n"
    columns = {**COLUMNS, "label_column": "train:l", "score_column": "eval:s"}
    EmbeddingsOptions(data_dir=str(tmp_path), **columns).check_columns()
    assert read(tmp_path, files, **columns).matches == [Match("x", "y", ("z",))]
    assert [m.score for m in read(tmp_path, files, "eval", **columns).matches] == [0.5, 0.1]


LABELED = "a\tb\tl\nx\twho\t\nx\tyes\t1\nx\tno\t0\nx\ty\t1\nz\tx\t0\nx\tmaybe\t?\nx\ty\t0\n"


def test_labels(tmp_path):
    flags = {**COLUMNS, "label_column": "l"}
    data = read(tmp_path, {"train.tsv": LABELED}, **flags)
    # "y" is a positive elsewhere.
    assert data.matches == [Match("x", "yes", ("no",)), Match("x", "y", ("no",))]
    data = read(tmp_path, {"train.tsv": LABELED}, **flags, loss="cosent")
    assert [match.score for match in data.matches] == [1, 0, 1, 0, 0]
    flags |= {"positive_label": "same", "negative_label": "other"}
    fail(tmp_path, {}, r"no row has the label --positive_label=same, only , 0, 1, \?", **flags)


def test_rows_of_an_anchor_share_many_negatives(tmp_path):
    # All negatives in each row would be as many as positives times negatives.
    table = "a\tb\tl\n" + "".join(f"x\t{n}\t{n % 2}\n" for n in range(400))
    matches = read(tmp_path, {"train.tsv": table}, **COLUMNS, label_column="l").matches
    assert [len(match.negatives) for match in matches] == [200, *[100] * 199]
    assert {match.negatives[:100] for match in matches} == {tuple(map(str, range(0, 200, 2)))}


@pytest.mark.parametrize(
    ("rest", "flags", "level", "log"),
    [
        ("", {}, "INFO", "2 positives (--positive_label=1), 1 negative (--negative_label=0)"),
        ("x\tb\t2\nx\tc\t\n", {}, "WARNING", "left out 2 rows with other labels: 2, no label"),
        ("x\tb\t2\n", {"negative_label": "2"}, "INFO", "; left out 1 row with other labels: 0"),
        ("x\ty\t0\nx\tz\t1\n", {}, "WARNING", "2 pairs have both labels"),
    ],
)
def test_number_of_rows_with_each_label(rest, flags, level, log, tmp_path, caplog):
    caplog.set_level("INFO")
    table = f"a\tb\tl\nx\ty\t1\nx\tv\t1\nx\tz\t0\n{rest}"
    read(tmp_path, {"train.tsv": table}, **COLUMNS, label_column="l", **flags)
    (record,) = [x for x in caplog.records if log in x.getMessage()]
    assert record.levelname == level
    assert ("both labels" in caplog.text) == ("both" in log)


PUBLISHED = {
    "sts-b": (
        "train.tsv",
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
        "0\tmain\tMSRvid\t2012\t0\tnone\tnone\tA plane.\tAn air plane.\t5.000\n"
        "1\tmain\tMSRvid\t2012\t0\tnone\tnone\tA man.\tA boy.\t2.500\n",
        [Match("A plane.", "An air plane."), Match("A man.", "A boy.", (), 0.5)],
    ),
    "qqp": (
        "train.tsv",
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
        "1\t2\t3\tHow?\tIn what way?\t1\n2\t2\t4\tHow?\tWhy?\t0\n",
        [Match("How?", "In what way?", ("Why?",))],
    ),
    "qnli": (
        "train.tsv",
        "index\tquestion\tsentence\tlabel\n"
        "0\tWhen?\tToday.\tentailment\n1\tWhen?\tIt rains.\tnot_entailment\n",
        [Match("When?", "Today.", ("It rains.",))],
    ),
    "mnli": (
        "train.tsv",
        "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\t"
        "sentence1_parse\tsentence2_parse\tsentence1\tsentence2\tlabel1\tgold_label\n"
        "0\t1\t1n\tgov\t()\t()\t()\t()\tHe ran.\tHe moved.\tentailment\tentailment\n"
        "1\t1\t1c\tgov\t()\t()\t()\t()\tHe ran.\tHe sat.\tneutral\tcontradiction\n"
        "2\t1\t1x\tgov\t()\t()\t()\t()\tHe ran.\tHe won.\tneutral\tneutral\n",
        [Match("He ran.", "He moved.", ("He sat.",))],
    ),
    "SNLI": (
        "snli_1.0_train.jsonl",
        [
            {"sentence1": "a", "sentence2": f"b{n}", "gold_label": label}
            for n, label in enumerate(("entailment", "contradiction", "-"))
        ],
        [Match("a", "b0", ("b1",))],
    ),
    "msmarco": (
        "triples.train.small.tsv",
        "is it\tit is\tit was not\nq\ty\tn\n",
        [Match("is it", "it is", ("it was not",)), Match("q", "y", ("n",))],
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_data_sets(name, tmp_path):
    file, content, expected = PUBLISHED[name]
    flags = {"loss": "cosent"} if name == "sts-b" else {}
    assert read(tmp_path, {file: content}, task_name=name, **flags).matches == expected


def test_mix_of_data_sets(tmp_path):
    table = "a\tb\tc\ns\tt\tn\n"
    snli = {"sentence1": "x", "sentence2": "y", "gold_label": "entailment"}
    files = {"train.tsv": table, "more.tsv": table.replace("s\tt", "u\tv")}
    files["nli/snli_1.0_train.jsonl"] = [snli]
    more = f"tsv:{tmp_path}/more.tsv"
    mix = f"{more}, SNLI:{tmp_path}/nli,{more}"
    flags = {**COLUMNS, "negative_columns": "c", "train_file": f"{tmp_path}/train.tsv"}
    data = read(tmp_path, files, **flags, mix_with=mix)
    further = Match("u", "v", ("n",))
    assert data.matches == [Match("s", "t", ("n",)), further, Match("x", "y"), further]
    assert data.path.count(str(tmp_path)) == 4
    # The evaluation reads one data set.
    (tmp_path / "dev.tsv").write_text(table)
    assert len(read(tmp_path, {}, "eval", **flags, mix_with=mix).matches) == 1
    # Rows of SNLI may have hard negatives.
    assert EmbeddingsOptions(**COLUMNS).num_passages == 1
    assert EmbeddingsOptions(**COLUMNS, mix_with=f"snli:{tmp_path}/nli").num_passages == 2
    # The columns of the flags are not those of another task.
    flags = {"task_name": "snli", "mix_with": more}
    with pytest.raises(UserError, match=r"must be like snli:FOLDER, with one of [^.]*beir\. Rec"):
        read(tmp_path / "nli", {}, **flags)
    with pytest.raises(UserError, match=r"missing: no such file"):
        read(tmp_path, {}, **COLUMNS, mix_with=f"snli:{tmp_path}/missing")


@pytest.mark.parametrize(
    ("table", "flags", "names"),
    [
        ("a\tb\tlabel\tscores\nx\ty\t1\t2\n", COLUMNS, "label, scores"),
        ('{"a": "x", "b": "y", "score": 3, "neg": []}\n', COLUMNS, "score"),
        ("a\tnegative_2\tb\tneg\nx\tz\ty\tz\n", COLUMNS, "neg, negative_2"),
        ("a\tlabel\nx\tyes\n", {**COLUMNS, "positive_column": "label"}, None),
        ("a\tb\tid\tnegation\nx\ty\t1\tz\n", COLUMNS, None),
        ("a\tb\tnegative\nx\ty\tz\n", {**COLUMNS, "negative_columns": "negative"}, None),
        # Without a header, a cell of the first row is no name.
        ("x\ty\tneg\n", {"anchor_column": "1", "positive_column": "2"}, None),
    ],
)
def test_unused_columns(table, flags, names, tmp_path, caplog):
    read(tmp_path, {"train.tsv": table}, **flags)
    assert (f"columns that are not used: {names} (" in caplog.text) == bool(names)
    assert ("not used" in caplog.text) == bool(names)


def squad(*questions):
    return json.dumps({"data": [{"paragraphs": [{"context": " A text. ", "qas": questions}]}]})


def test_squad(tmp_path):
    content = squad({"question": "What?"}, {"question": "Who?", "is_impossible": True})
    data = read(tmp_path, {"train-v1.1.json": content}, task_name="squad")
    assert data.matches == [Match("What?", "A text.")]
    fail(tmp_path, {"train-v1.1.json": "{}"}, "does not have the format", task_name="squad")


BEIR = {
    "corpus.jsonl": '{"_id": "d1", "title": "T", "text": "one"}\n{"_id": "d2", "text": "two"}\n',
    "queries.jsonl": '{"_id": "q1", "text": "which"}\n',
    "qrels/test.tsv": "query-id\tcorpus-id\tscore\nq1\td1\t2\n",
}


def test_beir(tmp_path):
    data = read(tmp_path, BEIR, "eval", task_name="beir", eval_file="qrels/test.tsv")
    assert data.matches == [Match("which", "T one", (), 2.0)]
    assert data.passages == ["T one", "two"]
    dev = {"qrels/dev.tsv": "query-id\tcorpus-id\tscore\nq1\td2\t1\nq1\td1\t0\n"}
    matches = read(tmp_path, dev, "eval", task_name="beir").matches
    assert [(match.positive, match.score) for match in matches] == [("two", 1), ("T one", 0)]
    train = {"qrels/train.tsv": dev["qrels/dev.tsv"]}
    assert [m.positive for m in read(tmp_path, train, task_name="beir").matches] == ["two"]


def test_no_relevant_passage(tmp_path):
    files = {**BEIR, "qrels/test.tsv": BEIR["qrels/test.tsv"].replace("2", "0")}
    flags = {"task_name": "beir", "eval_file": "qrels/test.tsv"}
    fail(tmp_path, files, "qrels/test.tsv contains no texts that match", "eval", **flags)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("q1\td3\t1", r"qrels/test.tsv:3: there is no document with the id 'd3'"),
        ("q3\td1\t1", r"qrels/test.tsv:3: there is no query with the id 'q3'"),
        ('{"q1": "d1"}', r"qrels/test.tsv:1: expected the columns query-id, corpus-id and score"),
        ("q1\td4\t1", r"qrels/test.tsv:3: the document 'd4' has no text"),
        ("q1\td1\tx", r"qrels/test.tsv:3: expected the columns query-id, corpus-id and score"),
    ],
)
def test_mistakes_in_qrels(line, problem, tmp_path):
    with_empty = BEIR["corpus.jsonl"] + '{"_id": "d4", "text": ""}\n'
    before = "" if line.startswith("{") else BEIR["qrels/test.tsv"]
    files = {**BEIR, "corpus.jsonl": with_empty, "qrels/test.tsv": f"{before}{line}\n"}
    fail(tmp_path, files, problem, "eval", task_name="beir", eval_file="qrels/test.tsv")


SCORED = {**COLUMNS, "score_column": "s", "loss": "cosent"}


@pytest.mark.parametrize(
    ("content", "problem", "flags"),
    [
        ("a\tb\ns\tt\n  \tt\n", "train.tsv:3: the anchor is empty", COLUMNS),
        ("a\tb\ns\t \n", "train.tsv:2: the positive is empty", COLUMNS),
        (
            "a\tb\ts\nx\ty\t7\n",
            "train.tsv:2: the score .* from 0 to 1 .--score_range.. Received: '7'",
            SCORED,
        ),
        ("a\tb\ts\nx\ty\tno\n", "train.tsv:2: the score must be a number", SCORED),
        ("a\tb\ts\nx\ty\t1\nx\tz\t1\n", "train.tsv: all pairs have the same score", SCORED),
        ("a\tb\n", "train.tsv contains no texts", COLUMNS),
        ("a\tc\nx\ty\n", "no column 'b' .--positive_column., only", COLUMNS),
    ],
)
def test_mistakes_in_tables(content, problem, flags, tmp_path):
    fail(tmp_path, {"train.tsv": content}, problem, **flags)


BY_NUMBER = {"anchor_column": "1", "positive_column": "2"}


@pytest.mark.parametrize(
    ("match", "count", "expected"),
    [
        (lambda n: Match(f"q{n}", f"['no', 'number {n}']"), 4, "positives: 4 of 4 texts are lists"),
        (
            lambda n: Match(f"a film {n}", f"a film {n}"),
            4,
            "the anchor is the positive in 4 of 4 rows",
        ),
        (lambda n: Match(f"q{n}", "same"), 100, "only 1 of 100 positives is distinct"),
        (lambda n: Match(f"q{n}", "same"), 99, None),
    ],
)
def test_what_looks_wrong(match, count, expected):
    matches = Matches("data", [match(n) for n in range(count)])
    problems = [*matches.check("train", [])]
    assert [x.startswith(f"data: {expected}") for x in problems] == [True] * bool(expected)
    assert len([*matches.check("eval", [])]) == len(problems) - ("distinct" in str(expected))
