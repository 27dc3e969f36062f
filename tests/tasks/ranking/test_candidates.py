"""Which passages training and evaluation use: of tables, of runs, and at random."""

import numpy as np
import pytest

from bert_tf.base.errors import UserError
from bert_tf.data.matches import Match, Matches, read_matches
from bert_tf.options import RankingOptions
from bert_tf.tables.relevance import Candidate, read_candidates
from bert_tf.tasks.ranking.candidates import Choices, read_run

DOCUMENTS = {f"d{n}": f"text {n}" for n in range(20)}


def make(matches, run=None):
    found = {key: [Candidate(key, text) for text in texts] for key, texts in (run or {}).items()}
    return Choices(Matches("data", matches, {}, DOCUMENTS), found)


def test_hard_negatives_first_then_those_of_the_run_then_random_ones():
    matches = [Match("q", "text 0", ("text 1",)), Match("q", "text 2"), Match("r", "text 3")]
    run = {"q": ["text 2", "text  0", "text 1", "text 4", "text 5"]}
    choices = make(matches, run)
    first, second, third = choices.training_rows(2)
    assert first.negatives[0] == "text 1"
    assert first.negatives[1] in ("text 4", "text 5")
    assert sorted(second.negatives)[0] in ("text 1", "text 4")
    assert set(second.negatives) <= {"text 1", "text 4", "text 5"}
    assert len({*third.negatives} - {"text 3"}) == 2
    (row, *_) = choices.training_rows(10)
    assert row.negatives[0] == "text 1"
    assert {*row.negatives[1:3]} == {"text 4", "text 5"}
    assert len({*row.negatives}) == 10
    assert not {"text 0", "text 2"} & {*row.negatives}
    assert choices.training_rows(10) == make(matches, run).training_rows(10)


@pytest.mark.parametrize("num_others", [10_000, 50, 2])
def test_queries_with_many_relevant_passages(num_others):
    # If each row went through all of them, this would take minutes.
    relevant = [f"{n} of the topic" for n in range(10_000)]
    others = [f"{n} of another" for n in range(num_others)]
    matches = [Match("topic", text) for text in relevant]
    choices = make([*matches, *(Match(text, text) for text in others)])
    for row in choices.training_rows(2)[: len(relevant)]:
        assert len({*row.negatives}) == 2
        assert not any(text.endswith("of the topic") for text in row.negatives)


def test_graded_relevance():
    rows = make([Match("q", "text 0", (), 3.0), Match("q", "text 1", (), 1.0)]).training_rows(1)
    assert [row.score for row in rows] == [1, pytest.approx(1 / 3)]
    rows = make([Match("q", "text 0", (), 0.5)]).training_rows(1)
    assert [row.score for row in rows] == [0.5]


def test_candidates_of_a_run():
    matches = [Match("q", "text 0", (), 2.0), Match("q", "text 9"), Match("r", "text 1")]
    ranked = make(matches, {"q": ["text 4", "text 0"], "unknown": ["text 1"]}).ranked(100)
    assert [pair.passage for pair in ranked] == ["text 4", "text 0"]
    assert [gains.tolist() for gains in ranked.gains] == [[0, 2, 1], [1]]
    assert [x.tolist() for x in ranked.split(np.array([5, 7]))] == [[5, 7], []]
    assert ranked.judged == [("q", "text 0"), ("r", "text 1")]
    assert (ranked.passage(0, 1), ranked.passage(1, -1)) == ("text 0", "")


def test_query_among_its_candidates():
    matches = [Match("text 1", "text 0"), Match("text 2", "text 2")]
    run = {"text 1": ["text  1", "text 0"], "text 2": ["text 2", "text 3"]}
    ranked = make(matches, run).ranked(100)
    assert [pair.passage for pair in ranked] == ["text 0", "text 2", "text 3"]


def test_candidates_without_a_run():
    matches = [Match("q", "text 0", ("text 1", "text 2")), Match("r", "text 3"), Match("s", "x")]
    ranked = make([*matches, Match("r", "text 4", (), 0.0)]).ranked(7)
    q, r, s = ranked.split(np.array([pair.passage for pair in ranked]))
    assert sorted(q) == ["text 0", "text 1", "text 2"]
    assert sorted(r) == ["text 3", "text 4"]
    assert len({*s}) == 7
    assert "x" in s
    assert [gains.sum() for gains in ranked.gains] == [1, 1, 1]
    # The relevant passage is not always the first: equal scores would look like a good ranking.
    many = make([Match(f"q{n}", f"text {n}") for n in range(20)]).ranked(5)
    assert 0 < np.mean([gains[0] for gains in many.gains]) < 0.6


def test_run_of_other_queries():
    with pytest.raises(UserError, match="data: no relevant passage is among the 100 candidates"):
        make([Match("q", "text 0")], {"q": ["text 4"]}).ranked(100)

    with pytest.raises(UserError, match="data: the run has no candidates for these queries"):
        make([Match("q", "text 0")], {"r": ["text 4"]}).training_rows(1)


def test_relevant_passages_below_top_k(run_log):
    ranked = make([Match("q", "text 0")], {"q": ["text 4"]}).ranked(1)
    assert [gains.tolist() for gains in ranked.gains] == [[0, 1]]
    assert "no relevant passage is among the 1 candidates of a query (--top_k)" in run_log.text


def test_only_relevant_passages(run_log):
    data = Matches("data", [Match("q", "text 0"), Match("r", "text 0")])
    Choices(data, {}).ranked(10)
    assert "data: only relevant passages: all metrics are 1" in run_log.text
    with pytest.raises(UserError, match="data: --num_negatives=1 needs more than 1 passage"):
        Choices(data, {}).training_rows(1)


def test_query_with_two_texts(tmp_path):
    path = tmp_path / "top1000.dev"
    path.write_text("2\t8\twhat is\ttwo\n1\t8\twho\ttwo\n2\t7\twhat was\tone\n")
    with pytest.raises(UserError, match=r"dev:3: the query .* another text in a line before"):
        read_candidates(str(path), {}, {})


def test_too_few_passages():
    with pytest.raises(UserError, match="--num_negatives=20 needs more than 20 passages"):
        make([Match("q", "text 0")]).training_rows(20)


MS_MARCO = {
    "queries.train.tsv": "1\twhich\n",
    "queries.dev.small.tsv": '2\twhat "is\n',
    "collection.tsv": "7\tone\n8\ttwo\n9\tthree\n",
    "qrels.train.tsv": "1\t0\t7\t1\n",
    "qrels.dev.small.tsv": "2 0 8 1\n2 0 9 0\n",
}


@pytest.fixture
def ms_marco(tmp_path):
    for name, content in MS_MARCO.items():
        (tmp_path / name).write_text(content)
    files = {"train_file": "qrels.train.tsv", "eval_file": "qrels.dev.small.tsv"}
    return RankingOptions(task_name="msmarco", data_dir=str(tmp_path), **files)


def test_ms_marco(ms_marco):
    data = read_matches(ms_marco, "train")
    assert data.matches == [Match("which", "one")]
    assert (data.queries["2"], data.passages) == ('what "is', ["one", "two", "three"])
    matches = read_matches(ms_marco, "eval").matches
    assert matches == [Match('what "is', "two"), Match('what "is', "three", (), 0.0)]


def test_trec_run_is_ordered_by_score(ms_marco, tmp_path):
    data = read_matches(ms_marco, "eval")
    lines = "2 Q0 7 1 0.5 x\n2 Q0 8 2 0.75 x\n1 Q0 9 1 -1e-3 x\n"
    (tmp_path / "run.trec").write_text(lines)
    path = str(tmp_path / "run.trec")
    expected = {
        "2": [Candidate('what "is', "two", "2", "8"), Candidate('what "is', "one", "2", "7")],
        "1": [Candidate("which", "three", "1", "9")],
    }
    assert read_candidates(path, data.queries, data.documents) == expected
    # For prediction, the texts are found in the folder.
    assert read_candidates(path, {}, {}, [str(tmp_path)]) == expected


def test_first_candidates_of_a_run(tmp_path, run_log):
    path = tmp_path / "found.tsv"
    path.write_text("2\t8\twhat is\ttwo\n2\t7\twhat is\tone\n1\t9\tq\tthree\n")
    found = read_run(str(path), 1, {}, {})
    assert [[x.passage_id for x in candidates] for candidates in found.values()] == [["8"], ["9"]]
    used = "uses the first 1 of up to 2 candidates of a query (number of queries: 2)"
    assert used in run_log.text


def test_file_with_texts(tmp_path):
    path = tmp_path / "top1000.dev"
    path.write_text("2\t8\twhat is\ttwo\n2\t7\twhat is\tone\n")
    found = read_candidates(str(path), {}, {})
    assert [x.passage for x in found["2"]] == ["two", "one"]
    # Ids count if the data have them.
    found = read_candidates(str(path), {"2": "Q"}, {"7": "A", "8": "B"})
    assert found["2"][0] == Candidate("Q", "B", "2", "8")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("3 Q0 8 1 0.5 x", "run:2: there is no query with the id '3'"),
        ("2 Q0 6 1 0.5 x", "run:2: there is no document with the id '6'"),
        ("2 Q0 7 1 0.5 x", "run:2: the query has this document twice"),
        ("2 Q0 8 1 y x", r"run:2: expected a TREC run \(query, Q0, document, rank"),
        ("2 8 1", "run:2: expected a TREC run"),
    ],
)
def test_mistakes_in_runs(line, problem, tmp_path):
    (tmp_path / "run").write_text(f"2 Q0 7 1 0.5 x\n{line}\n")
    with pytest.raises(UserError, match=problem):
        read_candidates(str(tmp_path / "run"), {"2": "q"}, {"7": "a", "8": "b"})


@pytest.mark.parametrize(
    ("scores", "warns"), [("0.2 0.3 0.9", True), ("0.9 0.3 0.2", False), ("1 1 1", False)]
)
def test_distances_as_scores(scores, warns, tmp_path, caplog):
    rows = [
        f"{query} Q0 d{n} {n} {score} x\n"
        for query in ("1", "2")
        for n, score in enumerate(scores.split(), 1)
    ]
    (tmp_path / "run").write_text("".join(rows))
    read_candidates(str(tmp_path / "run"), {"1": "q", "2": "q"}, DOCUMENTS)
    assert ("run: the scores rise with the ranks" in caplog.text) == warns


def test_runs_without_texts(tmp_path):
    path = tmp_path / "run"
    path.write_text("2 Q0 7 1 0.5 x\n")
    with pytest.raises(UserError, match="run:1: the texts of these data have no ids"):
        read_candidates(str(path), {}, {})
    with pytest.raises(UserError, match="There are no texts of queries and documents: put"):
        read_candidates(str(path), {}, {}, [str(tmp_path)])
    for content, message in (
        ("2\t7\ta query\t \n", "run:1: a text is empty, or an id has white space"),
        ("qid\tpid\tquery\tpassage\n", "run:1: expected .* without a header"),
        ("", "run contains no candidates"),
    ):
        path.write_text(content)
        with pytest.raises(UserError, match=message):
            read_candidates(str(path), {}, {})
