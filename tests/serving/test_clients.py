"""Clients that nobody here wrote, each if it is installed."""

import shutil
from unittest import mock

import numpy as np
import pytest

from bert_tf import Predictor
from bert_tf.options import RankingOptions, registry
from tests.oracle import golden
from tests.serving.servers import in_new_process

pytestmark = pytest.mark.slow
TEXTS = ["the good film", "a bad story"]
DOCUMENTS = ["the plot was slow", "a good film", "bad"]


@pytest.fixture(scope="module")
def server(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    shutil.copytree(golden("run_directories") / "run_classifier_tsv", folder / "classifier")
    (folder / "train.tsv").write_text("a film\tthe film was good\na story\tit was bad\n" * 4)
    flags = {**tiny.flags, "anchor_column": "1", "positive_column": "2", "num_negatives": 1}
    flags |= {"do_train": True, "data_dir": str(folder), "output_dir": str(folder / "ranker")}
    registry.run(RankingOptions(**flags, init_checkpoint=tiny.checkpoint))
    models = [f"--model={name}={folder / name}" for name in ("classifier", "ranker")]
    flags = ["--max_seq_length=24", f"--model=encoder={tiny.folder}", *models]
    with in_new_process(*flags, folder=folder) as server:
        yield server


@pytest.fixture(scope="module")
def vectors(tiny):
    flags = {"pooling": "mean", "layers": "-1", "max_seq_length": 24}
    predictor = Predictor(str(tiny.folder), "extract_features", **flags)
    return np.stack([x.values[-1] for x in predictor(TEXTS)])


@pytest.fixture(scope="module")
def scores(server):
    folder = server.process.args[-1].partition("=")[2].partition("=")[2]
    pairs = [(TEXTS[0], text) for text in DOCUMENTS]
    return [x.probability for x in Predictor(folder, max_seq_length=24)(pairs)]


def test_openai(server, vectors):
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(api_key="x", base_url=f"{server.url}/v1", max_retries=0)
    found = client.embeddings.create(model="encoder", input=TEXTS)
    np.testing.assert_allclose([x.embedding for x in found.data], vectors, atol=1e-5)
    assert [x.id for x in client.models.list()] == ["encoder", "classifier", "ranker"]
    for text in ("a", None, [[1, 2]]):
        with pytest.raises(openai.NotFoundError) as caught:
            client.embeddings.create(model="gpt", input=text)
        assert caught.value.body["message"].startswith("There is no model 'gpt'")
    with pytest.raises(openai.UnprocessableEntityError, match="must be a string"):
        client.embeddings.create(model="encoder", input=[[1, 2]])


def test_huggingface_hub(server, vectors):
    hub = pytest.importorskip("huggingface_hub")
    client = hub.InferenceClient(f"{server.url}/embed")
    vector = client.feature_extraction(TEXTS[0], normalize=False, encoding_format="float")
    np.testing.assert_allclose(np.ravel(vector), vectors[0], atol=1e-5)
    client = hub.InferenceClient(f"{server.url}/predict")
    found = client.text_classification(TEXTS[0])
    assert sum(x.score for x in found) == pytest.approx(1)


@mock.patch.dict("os.environ", LITELLM_LOCAL_MODEL_COST_MAP="True")
def test_litellm(server, vectors, scores):
    litellm = pytest.importorskip("litellm")
    place = {"api_base": f"{server.url}/v1", "api_key": "x"}
    for provider in ("openai", "hosted_vllm"):
        reply = litellm.embedding(model=f"{provider}/encoder", input=TEXTS, **place)
        np.testing.assert_allclose([x["embedding"] for x in reply.data], vectors, atol=1e-5)
    for provider in ("cohere", "jina_ai", "hosted_vllm", "huggingface"):
        place["api_base"] = server.url if provider == "huggingface" else f"{server.url}/v1"
        place["api_base"] += "/rerank" if provider in ("cohere", "jina_ai") else ""
        query = {"query": TEXTS[0], "documents": DOCUMENTS, "top_n": 2}
        reply = litellm.rerank(model=f"{provider}/ranker", **query, **place)
        found = {x["index"]: x["relevance_score"] for x in reply.results}
        assert len(found) == 2
        assert found == pytest.approx({i: scores[i] for i in found}, abs=1e-5)


def test_cohere(server, scores):
    cohere = pytest.importorskip("cohere")
    query = {"model": "ranker", "query": TEXTS[0], "documents": DOCUMENTS, "top_n": 3}
    for client_class in (cohere.Client, cohere.ClientV2):
        reply = client_class(api_key="x", base_url=server.url).rerank(**query)
        found = [x.relevance_score for x in sorted(reply.results, key=lambda x: x.index)]
        assert found == pytest.approx(scores, abs=1e-5)


def test_langchain(server, vectors):
    langchain = pytest.importorskip("langchain_openai")
    place = {"base_url": f"{server.url}/v1", "api_key": "x"}
    settings = {"model": "encoder", "check_embedding_ctx_length": False}
    found = langchain.OpenAIEmbeddings(**settings, **place).embed_documents(TEXTS)
    np.testing.assert_allclose(found, vectors, atol=1e-5)
