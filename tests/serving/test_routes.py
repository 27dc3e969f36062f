"""The routes, with models of all kinds: a Predictor's predictions, in the clients' layouts."""

import asyncio
import base64
import json
import logging
import math
import re
import shutil
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import bert_tf
from bert_tf import Predictor
from bert_tf.base.errors import UserError
from bert_tf.checkpoints.formats.sentence_transformers import declaration
from bert_tf.commands import export_model
from bert_tf.commands.options import ExportOptions
from bert_tf.serving.models import KINDS, Model, outputs_of, scores_of
from bert_tf.serving.options import ServingOptions
from bert_tf.serving.schemas import Instance
from bert_tf.tasks.classification.problem_types import ClassPrediction, LabelsPrediction
from bert_tf.tasks.fill_mask.fill_mask import Candidate
from bert_tf.tasks.multiple_choice.task import ChoicePrediction
from tests.finetuning import test_task_contract as cases
from tests.oracle import golden
from tests.serving.servers import Server, in_process, shape_of

CONTEXT = "the good film was not slow it was a fast story the bad plot"
TEXTS = ["the good film", "a bad story was slow", "plot", "the film was not good " * 4]


@pytest.fixture(scope="module")
def folders(tiny, tmp_path_factory):
    """Run directories of an earlier release, and an encoder, by the name of the model."""
    folder = shutil.copytree(golden("run_directories"), tmp_path_factory.mktemp("runs") / "runs")
    shutil.copy(folder / "run_classifier" / "vocab.txt", folder / "run_pretraining")
    names = ("run_classifier", "run_classifier_tsv", "run_squad", "run_ner", "run_pretraining")
    return {name: str(folder / name) for name in names} | {"encoder": str(tiny.folder)}


@pytest.fixture(scope="module")
def server(folders):
    models = ",".join(f"{name}={folder}" for name, folder in folders.items())
    with in_process(model=models, max_seq_length=24) as server:
        yield server


@pytest.fixture(scope="module")
def predictor(folders):
    found = {}

    def predictor(name):
        flags = {"max_seq_length": 24}
        flags |= {"pooling": "mean", "layers": "-1"} if name == "encoder" else {}
        script = "extract_features" if name == "encoder" else None
        if name not in found:
            found[name] = Predictor(folders[name], script, **flags)
        return found[name]

    return predictor


def predict(server, model, *instances):
    return server.post(f"/v1/models/{model}:predict", {"instances": instances})["predictions"]


@pytest.mark.slow
def test_classifier_replies_like_its_saved_model(server, folders, tmp_path):
    export_dir = str(tmp_path / "export")
    options = ExportOptions(model_dir=folders["run_classifier_tsv"], export_dir=export_dir)
    signatures = tf.saved_model.load(export_model.run(options)).signatures
    outputs = signatures["serving_default"](text=tf.constant(TEXTS))
    rows = predict(server, "run_classifier_tsv", *TEXTS)
    assert {*rows[0]} == {*outputs}
    assert [row["label"] for row in rows] == [x.decode() for x in outputs["label"].numpy()]
    expected = outputs["probabilities"].numpy()
    np.testing.assert_allclose([row["probabilities"] for row in rows], expected, atol=1e-6)
    body = {"inputs": {"text": TEXTS}}
    columns = server.post("/v1/models/run_classifier_tsv:predict", body)["outputs"]
    assert columns["label"] == [row["label"] for row in rows]
    np.testing.assert_allclose(columns["probabilities"], expected, atol=1e-6)
    metadata = server.get("/v1/models/run_classifier_tsv/metadata").json()
    described = metadata["metadata"]["signature_def"]["signature_def"]["serving_default"]
    types = {name: f"DT_{x.dtype.name.replace('32', '').upper()}" for name, x in outputs.items()}
    assert {name: x["dtype"] for name, x in described["outputs"].items()} == types
    assert metadata["labels"] == [*dict.fromkeys(metadata["labels"])] != []


def test_pairs_by_all_names(server, predictor):
    expected = outputs_of(predictor("run_classifier")((TEXTS[0], TEXTS[1])))
    for names in (("text", "text_pair"), ("text_a", "text_b"), ("question", "context")):
        [row] = predict(server, "run_classifier", dict(zip(names, TEXTS, strict=False)))
        assert row["label"] == expected["label"]
        np.testing.assert_allclose(row["probabilities"], expected["probabilities"], atol=1e-6)
    one, other = predict(server, "run_classifier", "a", {"text": "a", "text_pair": ""})
    np.testing.assert_allclose(one["probabilities"], other["probabilities"], atol=1e-6)


def test_version_and_method(server):
    instances = {"instances": TEXTS[:1]}
    path = "/v1/models/run_classifier{}:predict"
    first, other = (server.post(path.format(x), instances) for x in ("/versions/1", ""))
    assert first == other
    for place in ("", "/metadata"):
        paths = [f"/v1/models/run_classifier{x}{place}" for x in ("", "/versions/1")]
        assert server.get(paths[0]).json() == server.get(paths[1]).json()
        for other in ("versions/2", "versions/x", "labels/stable"):
            path_of_other = f"/v1/models/run_classifier/{other}{place}"
            assert server.error(path_of_other, method="GET")[0] == 404
    status, message = server.error(path.format(""), method="GET")
    assert (status, message[:13]) == (405, "No route GET ")


def test_single_output_has_no_name(server):
    columns = {"inputs": {"text": TEXTS}}
    rows = predict(server, "encoder", *TEXTS)
    outputs = server.post("/v1/models/encoder:predict", columns)["outputs"]
    np.testing.assert_allclose(rows, outputs, atol=1e-5)
    assert np.shape(rows)[0] == len(TEXTS)


def test_question_answering(server, predictor):
    [row] = predict(server, "run_squad", {"question": "what was good", "context": CONTEXT})
    expected = predictor("run_squad")(("what was good", CONTEXT))
    assert row["answer"] == expected.text == CONTEXT[row["start"] : row["end"]]
    assert row["score"] == pytest.approx(expected.n_best[0][1], abs=1e-6)
    found = [(x["text"], x["start"], x["end"]) for x in row["n_best"]]
    assert found == [(x.text, x.start, x.end) for x in expected.spans]


def test_token_classification(server, predictor):
    text = "the good  film was not\tslow, it was"
    row, words = predict(server, "run_ner", text, {"words": ["good", "film"]})
    expected = predictor("run_ner")(text)
    assert (row["words"], row["labels"]) == tuple(expected)
    np.testing.assert_allclose(row["probabilities"], expected.probabilities, atol=1e-6)
    assert len(row["entities"]) == len(expected.spans)
    for entity, span in zip(row["entities"], expected.spans, strict=True):
        assert {*entity} == {"type", "text", "score", "start", "end"}
        assert entity["text"] == text[entity["start"] : entity["end"]] == span.text
    assert words["words"] == ["good", "film"]


def test_masked_words(server, predictor):
    text = "the [MASK] film was [MASK]"
    row = predict(server, "run_pretraining", text)[0]
    for mask, expected in zip(row, predictor("run_pretraining")(text), strict=True):
        assert [x["word"] for x in mask] == [x.word for x in expected]
    status, message = server.error("/v1/models/run_pretraining:predict", {"instances": ["a", text]})
    assert (status, message[:19]) == (400, "Input 0: expected a")
    masks = {"instances": [text, "[MASK] " * 1000]}
    status, message = server.error("/v1/models/run_pretraining:predict", masks)
    assert (status, message[:15]) == (413, "Input 1: 24,000")


def test_embeddings_of_openai(server, predictor):
    expected = np.stack([x.values[-1] for x in predictor("encoder")(TEXTS)])
    body = {"model": "encoder", "input": TEXTS}
    reply = server.post("/v1/embeddings", body)
    assert [x["index"] for x in reply["data"]] == [*range(len(TEXTS))]
    vectors = [x["embedding"] for x in reply["data"]]
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    num_tokens = sum(len(text.split()) + 2 for text in TEXTS)
    assert reply["usage"] == {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
    reply = server.post("/v1/embeddings", {**body, "encoding_format": "base64", "user": "x"})
    decoded = [np.frombuffer(base64.b64decode(x["embedding"]), "<f4") for x in reply["data"]]
    np.testing.assert_allclose(decoded, expected, atol=1e-5)
    [short] = server.post("/v1/embeddings", {**body, "input": TEXTS[0], "dimensions": 5})["data"]
    cut = expected[0, :5] / np.linalg.norm(expected[0, :5])
    np.testing.assert_allclose(short["embedding"], cut, atol=1e-5)
    assert server.error("/v1/embeddings", {**body, "dimensions": 1000})[0] == 400
    reply = server.post("/v1/embeddings", {**body, "input": "a " * 400})
    assert reply["usage"]["total_tokens"] == 24


def test_errors_have_the_layout_of_the_client(server):
    for path, status in (("/v1/embeddings", 422), ("/v1/completions", 404)):
        reply = asyncio.run(server.send("POST", path, json={"model": "encoder"}))
        error = reply.json()["error"]
        assert (reply.status_code, {*error}) == (status, {"message", "type", "param", "code"})
    for path in ("/v1/models/nix", "/embed"):
        assert isinstance(asyncio.run(server.send("POST", path, json={})).json()["error"], str)


def test_embeddings_of_tei(server, predictor):
    expected = np.stack([x.values[-1] for x in predictor("encoder")(TEXTS)])
    vectors = server.post("/embed", {"inputs": TEXTS, "normalize": False, "prompt_name": None})
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    [vector] = server.post("/embed", {"inputs": TEXTS[0]})
    np.testing.assert_allclose(vector, expected[0] / np.linalg.norm(expected[0]), atol=1e-5)
    assert server.post("/embed?model=encoder", {"inputs": TEXTS[0]}) == [vector]
    long = {"inputs": "a " * 400, "truncate": False}
    status, message = server.error("/embed", long)
    assert (status, message) == (413, "Input 0: 402 tokens, but the model reads 24")
    vectors = server.post("/embed", {"inputs": TEXTS, "normalize": False, "dimensions": 3})
    np.testing.assert_allclose(vectors, expected[:, :3], atol=1e-5)
    sent_by_clients = {"prompt_name": None, "truncation_direction": "Right", "truncate": True}
    assert server.post("/embed", {"inputs": TEXTS[0], **sent_by_clients}) == [vector]


def test_labels_of_tei(server, predictor):
    expected = predictor("run_classifier")(TEXTS[0]).probabilities
    for body in (TEXTS[0], [TEXTS[0]]):
        found = server.post("/predict", {"inputs": body})
        assert found == sorted(found, key=lambda x: -x["score"])
        assert {x["label"]: x["score"] for x in found} == pytest.approx(expected, abs=1e-6)
    pair = server.post("/predict", {"inputs": TEXTS[:2]})
    several = server.post("/predict", {"inputs": [TEXTS[:1], TEXTS[:2]]})
    assert [x["label"] for x in several[1]] == [x["label"] for x in pair]
    np.testing.assert_allclose(*([x["score"] for x in y] for y in (several[1], pair)), atol=1e-6)


OPTIONAL = {
    "/v1/models/encoder:predict": ({"instances": ["a"]}, "inputs signature_name"),
    "/v1/models/run_classifier:explain": ({"text": "a"}, "text_a text_pair context endings words"),
    "/v1/embeddings": ({"input": "a"}, "model encoding_format dimensions user"),
    "/embed": ({"inputs": "a"}, "truncate truncation_direction normalize dimensions prompt_name"),
    "/predict": ({"inputs": "a"}, "raw_scores truncate model parameters"),
}


@pytest.mark.parametrize("path", OPTIONAL)
def test_null_and_empty_objects_say_nothing(server, path):
    body, names = OPTIONAL[path]
    expected = server.post(path, body)
    for name in [*names.split(), "a_field_of_the_client"]:
        assert server.post(path, {**body, name: None}) == expected
    assert server.post(path, {**body, "a_field_of_the_client": {}, "model": {}}) == expected
    for name in body:
        assert server.error(path, {name: None})[0] in (400, 422)
    columns = {"inputs": {"text": ["a"], "text_pair": None}}
    if "instances" in body:
        assert server.post(path, columns)["outputs"] == expected["predictions"]


def test_parameters_of_the_inference_api(server):
    [expected] = [server.post("/predict", {"inputs": TEXTS[0]})]
    assert server.post("/predict", {"inputs": TEXTS[0], "parameters": {}}) == [expected]
    body = {"inputs": TEXTS[0], "parameters": {"function_to_apply": None}}
    assert server.post("/predict", body) == [expected]
    body["parameters"]["function_to_apply"] = "none"
    expected = (422, "parameters.function_to_apply: not supported")
    assert server.error("/predict", body) == expected


def test_pairs_for_a_model_of_single_texts(tiny, tmp_path):
    out = str(tmp_path / "out")
    flags = {**tiny.flags, "init_checkpoint": tiny.checkpoint, "report": False}
    bert_tf.run(cases.regression({**flags, "do_train": True, "output_dir": out}, tmp_path))
    with in_process(model=f"m={out}") as server:
        assert len(server.post("/predict", {"inputs": [["a"], ["film"]]})) == 2
        advice = 'Send texts as [["one"], ["two"]]'
        for inputs in (TEXTS[:2], [TEXTS[:2]], TEXTS[:3]):
            status, message = server.error("/predict", {"inputs": inputs})
            assert (status, message.split(". ")[-1]) == (422, advice)
        pair = {"instances": [{"text": "a", "text_pair": "film"}]}
        error = (400, "Input 0: expected text. Received: text and text_pair")
        assert server.error("/v1/models/m:predict", pair) == error


FIELDS = "instances inputs input model text texts documents query words endings parameters top_k "
FIELDS += "truncate normalize dimensions encoding_format prompt_name top_n raw_scores context x"
VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
VALUES |= st.sampled_from(["a", "right", "encoder", "run_ner", 1, 10**400])
JSON = st.recursive(
    VALUES,
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.sampled_from(FIELDS.split()), x),
    max_leaves=8,
)
# Of pydantic's messages.
FOREIGN = re.compile(
    "Input should|Field required|Extra inputs|Value error|should have|should match|[Uu]nable to"
)


@settings(max_examples=300, deadline=None)
@given(
    path=st.sampled_from([*OPTIONAL, "/rerank", "/v1/rerank", "/v1/models/run_squad:predict"]),
    body=JSON | st.dictionaries(st.sampled_from(FIELDS.split()), JSON),
)
def test_any_body_gets_a_reply_in_own_words(server, path, body):
    content = json.dumps(body).encode()
    reply = asyncio.run(server.send("POST", path, content=content))
    assert reply.status_code in (200, 400, 404, 413, 422), reply.text
    if reply.status_code != 200:
        error = reply.json()["error"]
        error = error if isinstance(error, str) else error["message"]
        assert not FOREIGN.search(error), error


def test_log_has_no_texts(server, run_log, monkeypatch):
    run_log.set_level(logging.DEBUG)
    texts = ["", "sécrèt ĸŋł " * 20, "[CLS] sécrèt", "__________", "sécrèt ||| sécrèt"]
    for model in ("run_classifier", "run_ner", "encoder"):
        server.post(f"/v1/models/{model}:predict", {"instances": texts * 10})
    server.error("/v1/models/run_pretraining:predict", {"instances": texts})
    server.error("/predict", {"inputs": {"sécrèt": "sécrèt"}})
    server.error("/predict", content=b'{"secret')
    assert '"inputs": 50' in run_log.text
    assert not re.search(r"s.cr.t|ĸ|\[CLS|___|is empty|truncated", run_log.text)


def test_description(server):
    names = [x["id"] for x in server.get("/v1/models").json()["data"]]
    assert names == [*server.batchers]
    state = server.get("/v1/models/encoder").json()["model_version_status"][0]
    assert (state["state"], state["status"]["error_code"]) == ("AVAILABLE", "OK")
    info = server.get("/info", params={"model": "run_classifier"}).json()
    assert info["model_type"]["classifier"]["id2label"] == {"0": "0", "1": "1"}
    assert (info["max_input_length"], info["prompts"]) == (24, {})
    assert info["max_client_batch_size"] == 2048
    assert server.get("/health").status_code == 200
    assert asyncio.run(server.send("HEAD", "/health")).status_code == 200
    metrics = server.get("/metrics").text
    assert 'bert_queue_inputs{model="run_ner"} 0.0' in metrics
    assert 'bert_requests_total{route="/health",status="200"}' in metrics
    described = server.get("/openapi.json").json()
    assert {"/embed", "/rerank", "/predict", "/info", "/health"} <= {*described["paths"]}
    assert "Instance" in described["components"]["schemas"]


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/v1/models/nix:predict", {"instances": ["a"]}, 404, "There is no model 'nix': served"),
        ("/v1/models/run_squad:predict", {"instances": ["a"]}, 400, "Input 0: expected question"),
        ("/v1/models/run_ner:predict", {"instances": [{"words": [1]}]}, 422, "instances.0.words.0"),
        ("/v1/models/run_ner:predict", {"instances": [{"tex": "a"}]}, 422, "instances.0: unknown "),
        ("/v1/models/run_ner:predict", {"instances": []}, 422, "instances: pass at least one"),
        ("/v1/models/run_ner:predict", {"instances": "a"}, 422, "instances: must be a list"),
        ("/v1/models/run_ner:predict", {"inputs": 3}, 422, "inputs"),
        ("/v1/models/run_ner:predict", {"inputs": {"text": [3]}}, 422, "instances.0.text"),
        ("/v1/models/run_ner:predict", {"inputs": {"a": [], "b": [1]}}, 422, "body: the lists of"),
        ("/v1/models/run_ner:predict", {"signature_name": "ids", "instances": ["a"]}, 422, "sig"),
        ("/v1/models/run_ner:predict", [], 422, "body: must be an object"),
        ("/embed?model=run_ner", {"inputs": "a"}, 400, "/embed needs another model: run_ner is a"),
        ("/embed", {"inputs": []}, 422, "inputs: pass at least one text"),
        ("/embed", {"inputs": [None]}, 422, "inputs.0: must be a string"),
        ("/embed", {"inputs": 3}, 422, "inputs: must be a string or a list"),
        ("/embed", {"inputs": None}, 422, "inputs: is missing"),
        ("/embed", {"inputs": "a", "dimensions": 0}, 422, "dimensions: must be at least 1"),
        ("/v1/models/run_ner:predict", {"instances": [5]}, 422, "instances.0: must be a string"),
        ("/v1/models/nix:predict", {"instances": 3}, 404, "There is no model 'nix': served"),
        ("/v1/embeddings", {"input": [5], "model": "gpt"}, 404, "There is no model 'gpt'"),
        ("/embed?model=nix", {}, 404, "There is no model 'nix'"),
        ("/v1/models/run_ner/versions/2:predict", {}, 404, "No route POST /v1/models/run"),
        ("/embed", {"inputs": "a", "normalize": "yes"}, 422, "normalize: "),
        ("/rerank", {"query": "a", "texts": ["b"]}, 400, "/rerank needs another model"),
        ("/predict", {"inputs": ["a", "b", "c"]}, 422, "inputs: a list of 3 strings is one"),
        ("/v1/embeddings", {"input": [[1, 2]], "model": "encoder"}, 422, "input.0: must be a str"),
        ("/rerank", {"query": "a", "documents": [1]}, 422, "documents.0: must be a string"),
        ("/v1/rerank", {"query": "a"}, 422, "texts: is missing"),
        ("/nix", {}, 404, "No route POST /nix: /docs and /openapi.json list them"),
        ("/health", {}, 405, "No route POST /health"),
        ("/v1/models/encoder:embed", {}, 405, "No route POST /v1/models/encoder:embed"),
        ("/embed", {"inputs": "a", "txt": 1}, 422, "body: unknown field txt; expected truncate, "),
        ("/embed", {"inputs": "a", "prompt_name": "query"}, 422, "prompt_name: not supp"),
        ("/embed", {"inputs": "a", "truncation_direction": "left"}, 422, "truncation_direction: "),
        ("/predict", {"inputs": "a", "raw_scores": True}, 422, "raw_scores: "),
    ],
)  # fmt: skip
def test_mistakes(server, path, body, status, message):
    found = server.error(path, body)
    assert found[0] == status
    assert found[1].startswith(message), found[1]


def test_bodies_that_are_no_json(server):
    path = "/v1/models/run_ner:predict"
    cases = {
        b'{"instances": ["a"': "at character 18",
        b'{"instances": ["\xff"]}': "in position 16",
        b"[" * 10_000: "recursion",
        b"": "body: is missing",
        b'"{\\"instances\\": []}"': "body: must be an object",
    }
    for content, message in cases.items():
        status, error = server.error(path, content=content)
        assert status in (400, 422)
        assert message in error
        for unknown in ("/v1/models/nix:predict", "/embed?model=nix"):
            assert server.error(unknown, content=content)[0] == 404


def test_half_of_a_surrogate_pair_is_a_character(server):
    body = b'{"instances": [{"question": "\\ud800", "context": "a \\ud800 film"}]}'
    reply = asyncio.run(server.send("POST", "/v1/models/run_squad:predict", content=body))
    assert reply.status_code == 200
    body = b'{"instances": ["\\ud800film"]}'
    reply = asyncio.run(server.send("POST", "/v1/models/run_ner:predict", content=body))
    assert json.loads(reply.content)["predictions"][0]["words"] == ["\ud800", "film"]


def test_replies_do_not_depend_on_the_batch(server):
    alone = [predict(server, "encoder", text)[0] for text in TEXTS]

    def num_batches():
        metrics = server.get("/metrics").text
        return float(re.search(r'bert_batch_inputs_count{model="encoder"} (\S+)', metrics)[1])

    num_before = num_batches()

    async def at_once():
        path = "/v1/models/encoder:predict"
        requests = [server.send("POST", path, json={"instances": [x]}) for x in TEXTS * 8]
        return await asyncio.gather(*requests)

    for vector, reply in zip(alone * 8, asyncio.run(at_once()), strict=True):
        np.testing.assert_allclose(reply.json()["predictions"][0], vector, atol=1e-5)
    assert num_batches() - num_before < len(TEXTS) * 8


def test_requests_before_the_model_is_loaded(folders):
    server = Server(ServingOptions(model_dir=folders["run_classifier"]))
    try:
        status, message = server.error("/predict", {"inputs": "a"})
        assert (status, message) == (503, "run_classifier is being loaded")
        reply = server.get("/health")
        assert (reply.status_code, reply.json()) == (503, {"error": "Loading run_classifier"})
        server.wait()
        assert server.get("/health").status_code == 200
    finally:
        server.close()


def test_outputs_of_other_predictions():
    probabilities = {"a": 0.25, "b": 0.75}
    labels = LabelsPrediction(["b"], probabilities)
    assert outputs_of(labels) == {"probabilities": [0.25, 0.75]}
    assert outputs_of(ClassPrediction("b", probabilities))["label"] == "b"
    assert outputs_of(1.5) == {"values": 1.5}
    assert outputs_of({"x": 1.0, "y": 2.0}) == {"values": [1.0, 2.0]}
    assert scores_of(1.5) == {"LABEL_0": 1.5}
    assert scores_of(labels) == probabilities
    choice = ChoicePrediction(1, "two", [0.25, 0.75])
    assert outputs_of(choice) == {"choice": 1, "ending": "two", "probabilities": [0.25, 0.75]}
    assert outputs_of([[Candidate("x", 0.5)]]) == {"masks": [[{"word": "x", "probability": 0.5}]]}
    assert outputs_of(np.ones(2, "float32")) == {"sentence_embedding": [1.0, 1.0]}


class Relevance(NamedTuple):
    score: float
    probability: float


class FakeModel:
    """Scores a pair by the number of words that its texts share, and fails for some queries."""

    name, kind, max_length, labels = "fake", KINDS["run_ranking"], 9, ()
    inputs_are_independent = True
    require, explains, run = Model.require, True, SimpleNamespace(step=0)

    def explain(self, pair):
        columns = {"offsets": [(0, 1), (2, 6), (0, 3)], "scores": [0.5, -0.25, 0.125]}
        values = {"label": "yes", "completeness": 0.01, "difference": 0.4}
        return SimpleNamespace(**columns, text_indices=[0, 0, 1], **values)

    def load(self):
        return self

    def costs(self, inputs):
        return [(5, 5)] * len(inputs)

    def reply_bytes(self, cost):
        return 100

    def __call__(self, inputs):
        if inputs[0][0] == "crash":
            raise RuntimeError(f"bad {inputs}")
        scores = (len({*query.split()} & {*text.split()}) for query, text in inputs)
        return [Relevance(score, 1 / (1 + math.exp(-score))) for score in scores]


@pytest.fixture
def fake_server():
    server = Server(ServingOptions(), [FakeModel()])
    yield server.wait()
    server.close()


def test_scores_of_tei(fake_server):
    body = {"query": "a good film", "texts": ["bad", "a good one", "good"]}
    ranks = fake_server.post("/rerank", body)
    assert [x["index"] for x in ranks] == [1, 2, 0]
    assert [x["score"] for x in ranks] == pytest.approx([0.8808, 0.7311, 0.5], abs=1e-4)
    ranks = fake_server.post("/rerank", {**body, "raw_scores": True, "return_text": True})
    assert ranks[0] == {"index": 1, "score": 2.0, "text": "a good one"}
    pairs = {"instances": [{"query": "a", "passage": "a"}, {"text": "b", "text_pair": "a"}]}
    rows = fake_server.post("/v1/models/fake:predict", pairs)["predictions"]
    assert [x["score"] for x in rows] == [1, 0]
    assert rows[1]["probability"] == 0.5
    status, message = fake_server.error("/embed", {"inputs": "a"})
    assert (status, "Call POST /v1/models/fake:predict or /rerank" in message) == (400, True)


def test_scores_of_cohere_and_jina(fake_server):
    documents = ["bad", "a good one", {"text": "good", "title": None}]
    body = {"model": "fake", "query": "a good film", "documents": documents, "top_n": 2}
    for path in ("/v1/rerank", "/v2/rerank"):
        reply = fake_server.post(path, body)
        assert [x["index"] for x in reply["results"]] == [1, 2]
        assert reply["results"][0]["relevance_score"] == pytest.approx(0.8808, abs=1e-4)
        assert (reply["model"], reply["usage"]["total_tokens"]) == ("fake", 15)
    names = ("return_documents", "max_chunks_per_doc", "rank_fields", "raw_scores", "truncate")
    assert fake_server.post(path, body | dict.fromkeys(names))["results"] == reply["results"]
    [best] = fake_server.post(path, {**body, "return_documents": True, "top_n": 1})["results"]
    assert best["document"] == {"text": "a good one"}
    # The same names in TEI's route, which keeps its reply.
    [rank] = fake_server.post("/rerank", {**body, "return_documents": True, "top_n": 1})
    assert (rank["index"], rank["text"]) == (1, "a good one")


def test_explanations(fake_server, server):
    pair = {"text": "a film", "text_pair": "bad"}
    assert fake_server.post("/v1/models/fake:explain", pair) == {
        "label": "yes",
        "tokens": [[0, 1, 0.5, 0], [2, 6, -0.25, 0], [0, 3, 0.125, 1]],
        "completeness": 0.01,
        "difference": 0.4,
    }
    status, message = server.error("/v1/models/run_ner:explain", {"text": "a"})
    assert (status, message[:30]) == (400, "run_ner cannot be explained: o")
    assert fake_server.error("/v1/models/fake:explain", {"text": "a"})[0] == 400


def test_explanation_is_that_of_the_predictor(server, predictor):
    found = server.post("/v1/models/run_classifier:explain", {"text": TEXTS[0]})
    expected = predictor("run_classifier").explain(TEXTS[0])
    assert found["label"] == expected.label
    np.testing.assert_allclose([x[2] for x in found["tokens"]], expected.scores, atol=1e-5)
    assert [tuple(x[:2]) for x in found["tokens"]] == [*map(tuple, expected.offsets)]


LIMITS = {"max_inputs": 2, "max_input_chars": 9, "max_explanations": 1, "max_reply_bytes": 200}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/rerank", {"query": "a", "texts": ["a"] * 3}),
        ("/v1/models/fake:predict", {"inputs": {"query": ["a"] * 3, "passage": ["a"] * 3}}),
        ("/rerank", {"query": "a", "texts": ["a" * 10]}),
        ("/v1/models/fake:predict", {"instances": [{"query": "a" * 10, "passage": "a"}]}),
    ],
)
def test_inputs_are_limited(limited_server, path, body):
    status, message = limited_server.error(path, body)
    name = "max_input_chars" if "a" * 10 in str(body) else "max_inputs"
    assert (status, f"--{name} allows {LIMITS[name]}" in message) == (413, True), message
    assert limited_server.post("/rerank", {"query": "a", "texts": ["a" * 9] * 2})


def test_a_query_counts_once_for_each_text():
    server = Server(ServingOptions(max_body_bytes=2000), [FakeModel()])
    body = {"query": "a" * 300, "texts": ["b"] * 20}
    status, message = server.wait().error("/rerank", body)
    server.close()
    assert (status, "6,020 characters, but --max_body_bytes" in message) == (413, True)


@pytest.fixture(scope="module")
def limited_server():
    server = Server(ServingOptions(**LIMITS), [FakeModel()])
    yield server.wait()
    server.close()


def test_explanations_in_progress_are_limited(limited_server):
    async def run():
        path, body = "/v1/models/fake:explain", {"text": "a", "text_pair": "b"}
        return await asyncio.gather(*(limited_server.send("POST", path, json=body) for _ in "abc"))

    replies = asyncio.run(run())
    assert sorted(reply.status_code for reply in replies) == [200, 429, 429]
    [refused, _] = [reply for reply in replies if reply.status_code == 429]
    assert "--max_explanations=1" in refused.json()["error"]
    assert refused.headers["retry-after"] == "1"


def test_long_replies_are_written_in_pieces(server):
    texts = TEXTS * 300
    for path, body in (
        ("/embed", {"inputs": texts}),
        ("/v1/embeddings", {"model": "encoder", "input": texts}),
        ("/v1/models/encoder:predict", {"instances": texts}),
        ("/v1/models/encoder:predict", {"inputs": {"text": texts}}),
        ("/v1/models/run_ner:predict", {"inputs": {"text": texts}}),
    ):
        reply = asyncio.run(server.send("POST", path, json=body))
        assert "content-length" not in reply.headers
        few = json.loads(json.dumps(body).replace(json.dumps(texts), json.dumps(TEXTS)))
        first = asyncio.run(server.send("POST", path, json=few))
        assert "content-length" in first.headers
        assert shape_of(reply.json()) == shape_of(first.json())
        rows, expected = (x.json() for x in (reply, first))
        if path == "/embed":
            np.testing.assert_allclose(rows, expected * 300, atol=1e-5)


def test_sizes_of_replies_are_estimated(server):
    for name in ("encoder", "run_ner"):
        model = server.batchers[name].model
        body = {"instances": TEXTS * 10}
        reply = asyncio.run(server.send("POST", f"/v1/models/{name}:predict", json=body))
        estimate = sum(model.reply_bytes(cost) for _, cost in model.costs(TEXTS * 10))
        assert estimate / 2 < len(reply.content) < estimate * 2


def test_failure_gives_no_details(fake_server, run_log):
    body = {"query": "crash", "texts": ["a"]}
    status, message = fake_server.error("/rerank", body)
    assert (status, message) == (500, "The request failed: the server's log says why")
    assert "/rerank failed: RuntimeError" in run_log.text
    assert "bad [" not in run_log.text
    assert fake_server.post("/rerank", {**body, "query": "a"})[0]["score"] > 0.7


@pytest.mark.parametrize(
    ("script", "values", "expected"),
    [
        ("run_multiple_choice", {"context": "a", "endings": ["b", "c"]}, ("a", "b", "c")),
        ("run_multiple_choice", {"text": "", "endings": ["b", "c"]}, ("", "b", "c")),
        ("run_ranking", {"query": "a", "passage": ""}, ("a", "")),
        ("run_squad", {"question": "a", "text_b": ""}, ("a", "")),
        ("run_ner", {"words": []}, ()),
        ("run_embeddings", {"text": ""}, ""),
        ("run_multiple_choice", {"text": "a", "text_pair": "b", "context": "c"}, None),
        ("run_classifier", {"text": "a", "question": "b"}, None),
        ("run_classifier", {"text": "a", "endings": ["b"]}, None),
        ("run_ner", {"text": "a", "words": ["a"]}, None),
        ("run_embeddings", {"text": "a", "text_pair": "b"}, None),
    ],
)
def test_inputs_by_name(script, values, expected):
    instance = Instance(**values)
    if expected is not None:
        assert instance.to_input(KINDS[script], 0) == expected
    else:
        with pytest.raises(UserError, match=r"Input 3: expected .* Received: "):
            instance.to_input(KINDS[script], 3)


def test_options(folders, tmp_path):
    def folders_of(**flags):
        options = ServingOptions(**flags)
        options.check()
        return options.folders()

    assert folders_of(model_dir="/x/my run/") == {"my_run": "/x/my run"}
    assert folders_of(model=["a=x", "b=y=z"]) == {"a": "x", "b": "y=z"}
    for model in ("a", "=x", "a/b=x", "a="):
        with pytest.raises(UserError, match="--model must be NAME=FOLDER"):
            folders_of(model=model)
    with pytest.raises(UserError, match="Two models are called a"):
        folders_of(model="a=x,a=y")
    with pytest.raises(UserError, match="--model_dir"):
        ServingOptions().check()
    with pytest.raises(UserError, match=r"no run\.json and no bert_config"):
        Model("a", str(tmp_path), ServingOptions())


def test_what_encoders_declare(tiny, tmp_path, run_log):
    folder = shutil.copytree(tiny.folder, tmp_path / "model")
    for name, text in declaration("cls", False, 20, 16, {"query": "query: ", "x": ""}).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    assert Model("m", str(folder), ServingOptions()).prompts == {"query": "query: "}
    assert "m: No prompt is added to the texts: {'query': 'query: '}" in run_log.text
    assert "has no effect" not in run_log.text
    flags = {"pooling": "cls"}
    (folder / "run.json").write_text(json.dumps({"script": "run_embeddings", "flags": flags}))
    Model("m", str(folder), ServingOptions(pooling="cls"))
    assert "has no effect" not in run_log.text
    Model("m", str(folder), ServingOptions(pooling="max"))
    assert "--pooling=max has no effect on m: it has cls" in run_log.text


def test_script_is_for_folders_that_do_not_record_theirs(folders):
    options = ServingOptions(script="predict_masked")
    assert Model("a", folders["encoder"], options).kind.task == "fill-mask"
    assert Model("a", folders["run_ner"], options).kind.task == "token-classification"
    vectors = Model("a", folders["run_pretraining"], ServingOptions(script="extract_features"))
    assert vectors.kind.task == "feature-extraction"


CHOICES = {"context": "the film", "endings": ["was good", "it", "plot"]}
TRAINED = {
    cases.multilabel: ["the film", "plot"],
    cases.regression: ["the film", "plot"],
    cases.windows: [{"text": "the film " * 20, "text_pair": "plot"}],
    cases.multiple_choice: [CHOICES, {**CHOICES, "endings": ["a", "b"]}],
    cases.embeddings: ["the film", "plot"],
    cases.ner_in_documents: ["the film was good", "plot"],
}


@pytest.mark.slow
@pytest.mark.parametrize("case", TRAINED, ids=lambda case: case.__name__)
def test_trained_models(case, tiny, tmp_path):
    out = str(tmp_path / "out")
    flags = {**tiny.flags, "init_checkpoint": tiny.checkpoint, "report": False}
    bert_tf.run(case({**flags, "do_train": True, "output_dir": out}, tmp_path))
    predictor, instances = Predictor(out), TRAINED[case]
    kind = KINDS[run_of(out)]
    inputs = [Instance(**({"text": x} if isinstance(x, str) else x)) for x in instances]
    # Each input alone: with documents as context, the others would change it.
    expected = [outputs_of(predictor(x.to_input(kind, 0))) for x in inputs]
    with in_process(model=f"m={out}") as server:
        found = server.post("/v1/models/m:predict", {"instances": instances})["predictions"]
        described = server.get("/v1/models/m/metadata").json()["labels"]
    assert described == predictor.labels
    for row, outputs in zip(found, expected, strict=True):
        row = row if len(outputs) > 1 else {next(iter(outputs)): row}
        assert {*row} == {*outputs}
        for name, value in outputs.items():
            if np.asarray(value).dtype.kind == "f":
                np.testing.assert_allclose(row[name], value, atol=1e-5)
            else:
                assert row[name] == value


def run_of(folder):
    with open(f"{folder}/run.json") as file:
        return json.load(file)["script"]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["onnx", "litert"])
@pytest.mark.parametrize("name", ["run_classifier", "run_ner", "run_squad", "encoder"])
def test_engines(server, folders, engine, name):
    instances = [{"text": x, **({"context": CONTEXT} if "squad" in name else {})} for x in TEXTS]
    body = {"instances": instances}
    with in_process(model=f"m={folders[name]}", engine=engine, max_seq_length=24) as other:
        found = other.post("/v1/models/m:predict", body)["predictions"]
    expected = server.post(f"/v1/models/{name}:predict", body)["predictions"]
    for row, right in zip(found, expected, strict=True):
        if name == "encoder":
            np.testing.assert_allclose(row, right, atol=1e-4)
        elif "squad" in name:
            assert row["answer"] == right["answer"]
        else:
            np.testing.assert_allclose(row["probabilities"], right["probabilities"], atol=1e-4)
