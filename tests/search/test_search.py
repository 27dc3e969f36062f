"""search_texts.py: indexes, exact search, formats of queries and results, and errors."""

import io
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from bert_tf import Predictor, TextClassifier, TextRegressor, checkpoint
from bert_tf.base.errors import Place, UserError
from bert_tf.options import RankingOptions, SearchOptions, registry
from bert_tf.search import index as index_module
from bert_tf.search.encoder import SearchEncoder
from bert_tf.search.index import Index
from bert_tf.search.run import run
from bert_tf.search.texts import read_queries
from tests.checkpoints.formats.conftest import values_of
from tests.oracle import ROOT
from tests.tasks.feature_extraction.test_declared_pooling import NORMALIZE, declare

TEXTS = ["the good film", "a slow story", "", "the plot was fast", "a b c", "not a good story"]


@pytest.fixture
def folder(tmp_path, tiny):
    """A folder with texts, queries and a model of vectors."""
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    (tmp_path / "queries.txt").write_text("a good film\n\nslow\n")
    shutil.copytree(tiny.folder, tmp_path / "model")
    return tmp_path


def options(folder, **flags):
    flags = {name: str(x) if isinstance(x, os.PathLike) else x for name, x in flags.items()}
    defaults = {"index_dir": str(folder / "index"), "init_checkpoint": str(folder / "model")}
    return SearchOptions(**{"max_seq_length": 20, **defaults, **flags})


def search(folder, name="found.jsonl", **flags):
    flags = {"query_file": folder / "queries.txt", "output_file": folder / name, **flags}
    run(options(folder, **flags))
    return (folder / name).read_text()


def build_index(folder, **flags):
    run(options(folder, **{"input_file": folder / "texts.txt", **flags}))
    return Index(str(folder / "index"))


def contents(folder):
    return {path.name: path.read_bytes() for path in (folder / "index").iterdir()}


def test_index_has_the_vectors_of_extract_features(folder, tiny):
    index = build_index(folder)
    flags = {"pooling": "mean", "layers": "-1", "max_seq_length": 20}
    predictor = Predictor(tiny.folder, "extract_features", **flags)
    texts = [text for text in TEXTS if text]
    vectors = np.stack([item.values[0] for item in predictor(texts)])
    expected = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(index.vectors, expected, atol=1e-6)
    # Blank lines are no texts, but count in the numbers of lines.
    rows = [index.text(row) for row in range(len(texts))]
    assert rows == [(str(n), text) for n, text in enumerate(TEXTS, start=1) if text]
    found = [json.loads(line) for line in search(folder, top_k=2).splitlines()]
    assert [(x["_id"], x["query"]) for x in found] == [("1", "a good film"), ("3", "slow")]
    query = predictor("slow").values[0]
    cosines = expected @ query / np.linalg.norm(query)
    best = np.argsort(-cosines)[:2]
    assert [x["text"] for x in found[1]["results"]] == [texts[row] for row in best]
    scores = [x["score"] for x in found[1]["results"]]
    np.testing.assert_allclose(scores, cosines[best], atol=1e-6)


@pytest.mark.parametrize("block", [1, 64, 1 << 22])
def test_search_is_exact_and_ties_are_in_order(folder, monkeypatch, block):
    index, rng = build_index(folder), np.random.default_rng(0)
    distinct = rng.normal(size=(50, 8))
    vectors = np.concatenate([distinct, distinct[::-1], distinct + 1e-9])
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    index._is_checked = True
    index.vectors, queries = vectors, np.concatenate([vectors[:5], -vectors[:1]])
    monkeypatch.setattr(index_module, "_BLOCK", block)
    monkeypatch.setattr(index_module, "_CHUNK", 3)
    scores = (queries.astype(np.float64) @ vectors.T.astype(np.float64)).round(6)
    for top_k in (1, 3, 10, 1000):
        order = np.argsort(-scores, axis=1, kind="stable")[:, :top_k]
        found = index.search(queries, top_k)
        assert [x.rows.tolist() for x in found] == order.tolist()
        expected = np.take_along_axis(scores, order, axis=1)
        np.testing.assert_array_equal([x.scores for x in found], expected)


def test_interrupted_build_continues(folder, monkeypatch, run_log):
    monkeypatch.setattr(index_module, "_CHUNK", 2)
    build_index(folder)
    expected = contents(folder)
    for num_done in (2, 4):
        shutil.rmtree(folder / "index")
        encode = index_module.SearchEncoder.__call__

        def fail(self, texts, num_done=num_done, encode=encode, **part):
            path = folder / "index" / "index.json"
            if json.loads(path.read_text())["num_encoded"] >= num_done:
                raise KeyboardInterrupt
            return encode(self, texts)

        monkeypatch.setattr(index_module.SearchEncoder, "__call__", fail)
        with pytest.raises(KeyboardInterrupt, match="To continue, run the same command again"):
            build_index(folder)
        monkeypatch.setattr(index_module.SearchEncoder, "__call__", encode)
        with open(folder / "index" / "vectors.npy", "ab") as file:
            file.write(b"half a vector")
        with pytest.raises(UserError, match=rf"only {num_done} of 5 texts have"):
            search(folder)
        run_log.clear()
        build_index(folder)
        assert f"Continuing: {num_done} of 5 texts have vectors" in run_log.text
        assert contents(folder) == expected


def test_unfinished_index_of_other_texts_begins_again(folder, monkeypatch):
    monkeypatch.setattr(index_module, "_CHUNK", 2)
    build_index(folder)
    expected = contents(folder)
    shutil.rmtree(folder / "index")
    (folder / "other.txt").write_text("fast\nslow\nfilm\n")
    build_index(folder, input_file=folder / "other.txt")
    manifest = json.loads((folder / "index" / "index.json").read_text())
    (folder / "index" / "index.json").write_text(json.dumps({**manifest, "num_encoded": 2}))
    build_index(folder)
    assert contents(folder) == expected


def test_index_is_built_once(folder, run_log):
    build_index(folder)
    before = contents(folder)
    build_index(folder)
    assert contents(folder) == before
    (folder / "texts.txt").write_text("other texts\n")
    with pytest.raises(UserError, match="the index of other texts or ids"):
        build_index(folder)
    assert contents(folder) == before


def test_other_models_are_noticed(folder, tiny_of_two_layers):
    build_index(folder)
    with pytest.raises(UserError, match=r"of another model: max_seq_length \(20, now 10\)"):
        search(folder, max_seq_length=10)
    with pytest.raises(UserError, match=r"passage_prefix \('', now 'text: '\)"):
        build_index(folder, passage_prefix="text: ")
    with pytest.raises(UserError, match="another model: weights, configuration"):
        search(folder, init_checkpoint=tiny_of_two_layers.folder)
    # The same weights in another folder, with those of a head; then others.
    shutil.copytree(folder / "model", folder / "same")
    prefix = str(folder / "same" / "bert_model.ckpt")
    weights = values_of(prefix)
    checkpoint.write(prefix, {**weights, "output_bias": np.zeros(2, np.float32)})
    search(folder, init_checkpoint=folder / "same")
    name = "bert/embeddings/LayerNorm/beta"
    checkpoint.write(prefix, {**weights, name: weights[name] + 1e-6})
    with pytest.raises(UserError, match="another model: weights"):
        search(folder, init_checkpoint=folder / "same")


@pytest.mark.parametrize(
    ("prompts", "flags", "expected"),
    [
        ({"search_query": "slow ", "search_document": "fast "}, {}, "each passage: 'fast '"),
        ({"s2p": "slow ", "s2s": "a "}, {}, "the prompts s2p, s2s are not used. Pass --query_pref"),
        ({"s2p": "slow "}, {"query_prefix": "", "passage_prefix": ""}, None),
        ({"query": "slow ", "clustering": "a "}, {}, "Prefix of each query: 'slow '"),
    ],
)
def test_names_of_declared_prompts(folder, run_log, prompts, flags, expected):
    declare(folder / "model", {"pooling_mode": "cls"})
    settings = folder / "model" / "config_sentence_transformers.json"
    settings.write_text(json.dumps({"prompts": prompts}))
    SearchEncoder(options(folder, **flags))
    assert (expected or "") in run_log.text
    assert ("are not used" in run_log.text) == ("are not used" in (expected or ""))


def test_unsupported_declarations_are_rejected(folder):
    declare(folder / "model", {"pooling_mode": "weightedmean"})
    with pytest.raises(UserError, match="weightedmean, which is not supported"):
        SearchEncoder(options(folder))


def test_declared_prefixes_are_used(folder):
    declare(folder / "model", {"pooling_mode": "cls"}, [NORMALIZE])
    prompts = {"prompts": {"query": "slow ", "passage": "fast "}, "similarity_fn_name": "cosine"}
    settings = folder / "model" / "config_sentence_transformers.json"
    settings.write_text(json.dumps(prompts))
    index = build_index(folder)
    (folder / "plain.txt").write_text("".join(f"fast {text}\n" for text in TEXTS if text))
    flags = {"query_prefix": "", "passage_prefix": "", "index_dir": folder / "plain"}
    run(options(folder, input_file=folder / "plain.txt", **flags))
    np.testing.assert_array_equal(index.vectors, Index(str(folder / "plain")).vectors)
    (folder / "typed.txt").write_text("slow a good film\nslow slow\n")
    declared, typed = (
        [[x["score"] for x in json.loads(line)["results"]] for line in text.splitlines()]
        for text in (search(folder), search(folder, query_file=folder / "typed.txt", **flags))
    )
    assert declared == typed


@pytest.mark.parametrize(
    ("name", "text", "flags"),
    [
        ("a.tsv", "number\tbody\n7\tthe good film\n9\ta slow story\n", ("body", "number")),
        ("a.csv", "7,the good film\n9,a slow story\n", ("2", "1")),
        ("a.jsonl", '{"n": 7, "t": "the good film"}\n{"n": 9, "t": "a slow story"}\n', ("t", "n")),
        (
            "corpus.jsonl",
            '{"_id": "7", "title": "the", "text": "good film"}\n'
            '{"_id": "9", "text": "a slow story"}\n',
            (None, None),
        ),
    ],
)
def test_tables_of_texts(folder, name, text, flags):
    (folder / name).write_text(text)
    columns = dict(zip(("text_column", "id_column"), flags, strict=True))
    index = build_index(folder, input_file=folder / name, **columns)
    assert [index.text(row) for row in (0, 1)] == [("7", "the good film"), ("9", "a slow story")]


@pytest.mark.parametrize(
    ("name", "text", "columns"),
    [
        ("a.jsonl", '{"text": "the good film"}\n{"id": 2, "text": "a slow story"}\n', {}),
        (
            "a.csv",
            'id,body\n"","the good film"\n"","a slow story"\n',
            {"text_column": "2", "has_header": "yes", "quoted": "yes"},
        ),
    ],
)
def test_rows_without_ids_are_numbered(folder, name, text, columns):
    (folder / name).write_text(text)
    index = build_index(folder, input_file=folder / name, **columns)
    found = [index.text(row) for row in (0, 1)]
    assert found == [("1", "the good film"), ("2", "a slow story")]


def test_files_of_queries_and_results(folder):
    build_index(folder)
    (folder / "ids.tsv").write_text("q1\ta good film\nq2\tslow\n")
    queries = '{"_id": "q1", "text": "a good film"}\n{"_id": "q2", "text": "slow"}\n'
    (folder / "queries.jsonl").write_text(queries)
    lines = [
        search(folder, "run.trec", query_file=folder / name, top_k=2)
        for name in ("ids.tsv", "queries.jsonl")
    ]
    assert lines[0] == lines[1]
    rows = [line.split(" ") for line in lines[0].splitlines()]
    assert [row[:2] + row[3:4] + row[5:] for row in rows] == [
        [query, "Q0", rank, "bert_tf"] for query in ("q1", "q2") for rank in "12"
    ]
    scores = [float(row[4]) for row in rows]
    assert scores[0] >= scores[1]
    assert scores[2] >= scores[3]
    ids = {str(n): text for n, text in enumerate(TEXTS, start=1)}
    table = search(folder, "run.tsv", query_file=folder / "ids.tsv", top_k=2)
    expected = [["q1", rows[0][2], "a good film", ids[rows[0][2]]]]
    assert [line.split("\t") for line in table.splitlines()][:1] == expected


def test_standard_input_is_answered_line_by_line(folder, monkeypatch, capfd):
    build_index(folder)
    capfd.readouterr()
    typed = b"a good film\n\nslow\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed)))
    run(options(folder, top_k=1))
    out = capfd.readouterr().out
    assert re.fullmatch(r"a good film\n   \d\.\d{4}  \d  .+\n\nslow\n   \d\.\d{4}  \d  .+\n\n", out)


@pytest.mark.parametrize(
    "text",
    ["q1\ta film\nq2\tslow\n", '{"_id": "q1", "text": "a film"}\n{"_id": "q2", "text": "slow"}\n'],
)
def test_queries_of_standard_input(text, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    expected = [(Place("<stdin>", 1), "q1", "a film"), (Place("<stdin>", 2), "q2", "slow")]
    assert read_queries("-") == expected


def test_typed_lines_with_ids_are_reported(folder, monkeypatch, run_log):
    build_index(folder)
    typed = b"a film\nq1\tslow\nq2\tfast\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed)))
    registry.run(options(folder, top_k=1))
    assert run_log.text.count("tabs and JSON are searched as text") == 1
    with pytest.raises(UserError, match="<stdin> contains no text"):
        run(options(folder, input_file="-", query_file="-"))


def test_long_queries_are_reported(folder, run_log):
    (folder / "queries.txt").write_text("slow " * 30)
    build_index(folder)
    search(folder)
    assert "1 of 1 text is longer than max_seq_length=20 and was truncated" in run_log.text


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"init_checkpoint": None}, "Missing required flags: --init_checkpoint"),
        ({"id_column": "id", "input_file": "x"}, "--id_column needs --text_column"),
        ({"text_column": "t"}, "--text_column needs --input_file"),
        ({"input_file": "x", "output_file": "y"}, "only the index is built: also pass --query"),
        ({"rerank_top_k": 5}, "--rerank_top_k needs --rerank_model"),
    ],
)
def test_invalid_options(folder, flags, message):
    with pytest.raises(UserError, match=message):
        options(folder, **flags).check()


@pytest.mark.parametrize(
    ("name", "text", "flags", "message"),
    [
        ("a.txt", "\n \n", {}, "a.txt contains no text"),
        ("a.csv", "id,text\n1,a\n", {}, "a.csv is a table: pass --text_column, and --id_column"),
        ("a.jsonl", '{"t": "a"}\n', {}, r"a.jsonl:1: .* Received: t\. Or pass --text_column"),
        ("a.tsv", "i\tt\n1\ta\n1\tb\n", {"id_column": "i"}, "a.tsv:3: the id '1' occurs a second"),
        ("a.tsv", "i\tt\n1\ta\n", {"id_column": "n"}, r"there is no column 'n' \(--id_column\)"),
        ("missing.txt", None, {}, "No such file: .*missing.txt"),
    ],
)
def test_invalid_texts(folder, name, text, flags, message):
    if text is not None:
        (folder / name).write_text(text)
    column = {"text_column": "t"} if flags else {}
    with pytest.raises(UserError, match=message):
        build_index(folder, input_file=folder / name, **column, **flags)
    with pytest.raises(UserError, match=r"index: no index\. Pass --input_file"):
        search(folder)


def test_invalid_queries(folder):
    build_index(folder)
    for text, message in (
        ("q1\ta\nq1\tb\n", r"queries.txt:2: the id 'q1' occurs a second time"),
        ("", "queries.txt contains no text"),
        ("q\td\t1\n", "queries.txt:1: expected an object .* or the columns id and text"),
    ):
        (folder / "queries.txt").write_text(text)
        with pytest.raises(UserError, match=message):
            search(folder)
    (folder / "queries.txt").write_text("q 1\ta\n")
    with pytest.raises(UserError, match="has a space: 'q 1'"):
        search(folder, "found.run")
    assert not (folder / "found.run").exists()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("which film\n<b>which</b> one\n<b>which</b> plot\n", "2 of 3 lines have tabs, JSON or"),
        ("q1\t<b>which</b> film\nq2\t<b>which</b> plot\n", "2 of 2 lines have tabs, JSON or HTML"),
        ("<top>\n<num> Number: 301\n<title> crime\n</top>\n", "2 of 4 lines are tags of"),
        ("301 0 FBIS3-10082 1\n301 0 FBIS3-10169 0\n", "2 of 2 lines are words and counts, or q"),
        ("which film\nwhich plot\n", ""),
    ],
)
def test_queries_that_are_no_plain_texts(text, problem, tmp_path, run_log):
    (tmp_path / "queries.txt").write_text(text)
    assert len(read_queries(str(tmp_path / "queries.txt"))) == text.count("\n")
    assert problem in run_log.text
    assert bool(problem) == ("queries.txt: " in run_log.text)


def test_texts_that_are_all_the_same(folder, run_log):
    (folder / "a.tsv").write_text("id\tlang\n1\ten\n2\ten\n")
    flags = {"input_file": folder / "a.tsv", "text_column": "lang", "id_column": "id"}
    build_index(folder, **flags)
    assert "a.tsv: in all 2 rows, the text is 'en'" in run_log.text


def test_prefixes_that_leave_no_room(folder):
    build_index(folder, max_seq_length=6)
    flags = {"query_prefix": "a b c d: ", "max_seq_length": 6}
    with pytest.raises(UserError, match=r"^--query_prefix takes 5 of 6 tokens: there is"):
        search(folder, **flags)
    search(folder, **{**flags, "query_prefix": "a b: "})


NO_INDEX = "no index, or one of a newer version"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, NO_INDEX),
        ({"num_texts": 3, "num_encoded": 3}, r"damaged \(other sizes\)"),
        ({"num_encoded": 6}, NO_INDEX),
        ({"num_texts": "x"}, NO_INDEX),
        ({"model": None}, NO_INDEX),
        ({"checksums": ["x"]}, r"damaged \(the vectors from row 0 on\)"),
    ],
)
def test_damaged_manifests(folder, change, message):
    build_index(folder)
    path = folder / "index" / "index.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(UserError, match=message):
        search(folder)


def test_manifests_that_cannot_be_read(folder):
    build_index(folder)
    path = folder / "index" / "index.json"
    path.write_text('{"version": 1,')
    with pytest.raises(UserError, match=r"index\.json:1: invalid JSON"):
        search(folder)


@pytest.mark.parametrize("name", ["vectors.npy", "texts.jsonl", "offsets.npy"])
def test_every_flipped_bit_is_noticed(folder, monkeypatch, name):
    monkeypatch.setattr(index_module, "_CHUNK", 2)
    queries = build_index(folder).vectors[:2].copy()
    content = (folder / "index" / name).read_bytes()
    header = 0 if name == "texts.jsonl" else 128
    rng = random.Random(0)
    for place in [*rng.choices(range(header, len(content)), k=200), *range(header)]:
        changed = bytearray(content)
        changed[place] ^= 1 << rng.randrange(8)
        (folder / "index" / name).write_bytes(changed)
        with pytest.raises(UserError, match=r"index: damaged \("):
            Index(str(folder / "index")).search(queries, 2)
    for cut in (0, 100, len(content) - 1):
        (folder / "index" / name).write_bytes(content[:cut])
        with pytest.raises(UserError, match="index: damaged"):
            Index(str(folder / "index"))
    (folder / "index" / name).write_bytes(content)
    assert Index(str(folder / "index")).search(queries, 2)[1].rows[0] == 1


def test_index_of_version_1_1(folder, run_log):
    index = build_index(folder)
    path = folder / "index" / "index.json"
    manifest = json.loads(path.read_text())
    old = {name: x for name, x in manifest.items() if name not in ("checksums", "input")}
    path.write_text(json.dumps(old))
    found = search(folder)
    (folder / "texts.txt").touch()
    assert search(folder) == found
    assert "has changed since" not in run_log.text
    with open(folder / "index" / "vectors.npy", "r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(np.float32(np.nan).tobytes())
    with pytest.raises(UserError, match=r"damaged \(the vectors from row 0 on\)"):
        search(folder)
    # The vectors of an unfinished index are kept, too.
    path.write_text(json.dumps({**old, "num_encoded": 0}))
    np.testing.assert_array_equal(build_index(folder).vectors, index.vectors)
    assert json.loads(path.read_text())["checksums"] == manifest["checksums"]


def test_changed_input(folder, run_log):
    build_index(folder)
    search(folder)
    (folder / "texts.txt").rename(folder / "moved.txt")
    search(folder)
    assert "has changed" not in run_log.text
    shutil.copy(folder / "moved.txt", folder / "texts.txt")
    search(folder)
    assert "has changed" not in run_log.text  # but for the time
    (folder / "texts.txt").write_text((folder / "moved.txt").read_text().replace("fast", "slow"))
    search(folder)
    message = f"index: {folder}/texts.txt has changed since the index was built"
    assert run_log.text.count(message) == 1
    run_log.clear()
    shutil.copy(folder / "moved.txt", folder / "texts.txt")
    build_index(folder)
    search(folder)
    assert "has changed" not in run_log.text


@pytest.mark.parametrize("script", ["run_classifier", "run_ranking", None])
def test_reranking(folder, monkeypatch, script):
    class Scorer:
        """Prefers long texts."""

        def __init__(self, model, used, **flags):
            # A published cross-encoder has no run.json.
            assert (model, used) == (str(folder), script or "run_ranking")
            assert flags == {"engine": "tensorflow", "precision": "float32"}

        def __call__(self, pairs):
            assert all(len(pair) == 2 for pair in pairs)
            return [np.float32(len(text) // 4) for _, text in pairs]

    monkeypatch.setattr("bert_tf.search.run.Predictor", Scorer)
    if script:
        (folder / "run.json").write_text(json.dumps({"script": script}))
    build_index(folder)
    flags = {"rerank_model": folder, "top_k": 2, "rerank_top_k": 3}
    before = [json.loads(line)["results"] for line in search(folder, top_k=3).splitlines()]
    after = [json.loads(line)["results"] for line in search(folder, **flags).splitlines()]
    for first, found in zip(before, after, strict=True):
        expected = sorted(first, key=lambda x: -(len(x["text"]) // 4))[:2]
        assert [x["text"] for x in found] == [x["text"] for x in expected]
        assert [x["score"] for x in found] == [len(x["text"]) // 4 for x in expected]


def test_models_that_are_no_cross_encoders(folder):
    build_index(folder)
    (folder / "run.json").write_text('{"script": "run_ner"}')
    with pytest.raises(UserError, match="run_ner trained no cross-encoder"):
        search(folder, rerank_model=folder)
    ranker = shutil.copytree(folder / "model", folder / "ranker")
    (ranker / "run.json").write_text('{"script": "run_ranking", "flags": {"max_seq_length": 16}}')
    with pytest.raises(UserError, match="output_weights"):
        search(folder, rerank_model=ranker)


def test_models_that_are_no_encoders(folder, run_log):
    path = folder / "model" / "run.json"
    path.write_text('{"script": "run_ranking"}')
    with pytest.raises(UserError, match="no vectors of texts: run_ranking trained it"):
        build_index(folder)
    path.unlink()
    config = {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "LABEL_0"}}
    (folder / "model" / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="no vectors of texts: it is a CrossEncoder"):
        build_index(folder)
    (folder / "model" / "config.json").unlink()
    path.write_text('{"script": "run_ner", "flags": {}}')
    build_index(folder)
    assert "run_ner trained it, not for comparing vectors" in run_log.text


def test_model_and_index_swapped(folder):
    build_index(folder)
    with pytest.raises(UserError, match="model: no index"):
        search(folder, index_dir=folder / "model")
    with pytest.raises(UserError, match="index contains no checkpoint"):
        search(folder, init_checkpoint=folder / "index")


def test_texts_that_have_the_prefix_already(folder, run_log):
    (folder / "texts.txt").write_text("text: good\ntext: slow\nfilm\n")
    build_index(folder, passage_prefix="text: ")
    assert "2 of 3 texts have the prefix 'text: ' already" in run_log.text
    run_log.clear()
    (folder / "queries.txt").write_text("query: good\nquery: slow\n")
    search(folder, passage_prefix="text: ")
    assert "already" not in run_log.text
    search(folder, passage_prefix="text: ", query_prefix="query: ")
    assert run_log.text.count("2 of 2 texts have the prefix 'query: ' already") == 1


def test_results_do_not_replace_the_index(folder):
    build_index(folder)
    before = contents(folder)
    with pytest.raises(UserError, match="is also an input"):
        search(folder, output_file=folder / "index" / "texts.jsonl")
    assert contents(folder) == before


@pytest.mark.slow
def test_reranking_with_trained_models(folder):
    build_index(folder)
    lines = [f"{text}\t{text}" for text in TEXTS if text]
    (folder / "pairs.tsv").write_text("".join(f"{line}\n" for line in lines * 2))
    columns = {"anchor_column": "1", "positive_column": "2", "num_negatives": 1}
    files = {"train_file": str(folder / "pairs.tsv"), "output_dir": str(folder / "ranker")}
    flags = {"max_seq_length": 16, "train_batch_size": 4, "num_train_epochs": 1.0}
    model = {"init_checkpoint": str(folder / "model"), "do_train": True}
    registry.run(RankingOptions(**columns, **files, **flags, **model))
    found = json.loads(search(folder, rerank_model=folder / "ranker", top_k=3).splitlines()[0])
    ranker = Predictor(folder / "ranker")
    predictions = ranker([(found["query"], x["text"]) for x in found["results"]])
    scores = [x["score"] for x in found["results"]]
    np.testing.assert_allclose(scores, [x.score for x in predictions], atol=1e-5)
    assert scores == sorted(scores, reverse=True)
    pairs = [("good", text) for text in TEXTS if text] * 2
    for kind, labels in ((TextRegressor, [1.0, 0.0]), (TextClassifier, ["x", "y"])):
        estimator = kind(str(folder / "model"), **flags).fit(pairs, labels * 5)
        estimator.save(folder / kind.__name__)
    with pytest.raises(UserError, match="run_classifier trained no cross-encoder"):
        search(folder, rerank_model=folder / "TextClassifier")
    lines = search(folder, rerank_model=folder / "TextRegressor", top_k=5).splitlines()
    found = json.loads(lines[0])["results"]
    predictor = Predictor(folder / "TextRegressor")
    expected = predictor([("a good film", x["text"]) for x in found])
    np.testing.assert_allclose([x["score"] for x in found], expected, atol=1e-5)
    assert expected == sorted(expected, reverse=True)


KILLED = """
from bert_tf.scripts import search_texts
from bert_tf.search import index
index._CHUNK = 100
search_texts()
"""


@pytest.mark.slow
def test_killed_build_continues(folder):
    words = sorted({word for text in TEXTS for word in text.split()})
    rng = np.random.default_rng(0)
    lines = [" ".join(rng.choice(words, rng.integers(1, 9))) for _ in range(5000)]
    (folder / "texts.txt").write_text("\n".join(lines))
    flags = [f"--init_checkpoint={folder}/model", f"--input_file={folder}/texts.txt"]
    flags += ["--max_seq_length=20"]
    for name, num_kills in (("whole", 0), ("index", 2)):
        command = [sys.executable, "-c", KILLED, *flags, f"--index_dir={folder}/{name}"]
        note = folder / name / "index.json"
        for kill in (*[True] * num_kills, False):
            process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
            begun = num_encoded(note)
            while kill and process.poll() is None and num_encoded(note) <= begun:
                time.sleep(0.01)
            if kill:
                process.send_signal(signal.SIGKILL)
            assert process.wait() == (-signal.SIGKILL if kill else 0)
            assert not kill or 0 < num_encoded(note) < len(lines)
    expected = {path.name: path.read_bytes() for path in (folder / "whole").iterdir()}
    # The kill may have left temporary files.
    found = {path.name: path.read_bytes() for path in (folder / "index").iterdir()}
    assert {name: found[name] for name in expected} == expected


def num_encoded(path):
    return json.loads(path.read_text())["num_encoded"] if path.exists() else 0
