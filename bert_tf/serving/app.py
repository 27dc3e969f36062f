"""The routes of a server."""

import base64
import importlib.resources
import json
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, StreamingResponse
from starlette.exceptions import HTTPException as StarletteHTTPException

from bert_tf.base.errors import UserError, reason
from bert_tf.data import array_ops
from bert_tf.inference.row_batches import NotFinite
from bert_tf.serving import schemas
from bert_tf.serving.batching import Batcher, TooLarge
from bert_tf.serving.gate import FAILED, error_body
from bert_tf.serving.metrics import Metrics
from bert_tf.serving.models import outputs_of, scores_of, vector_of
from bert_tf.serving.options import ServingOptions

_JSON = json.JSONEncoder(separators=(",", ":"))
_PIECE_CHARS = 1 << 16  # about 2 ms
_VERSION = import_module("bert_tf").__version__
_STATUSES = (400, 401, 404, 413, 415, 422, 429, 500, 503)
_ERROR = {"type": "object", "properties": {"error": {"type": "string"}}}
# The page may load nothing, and call only this server.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
_POLICY += "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'"


class _Reply(JSONResponse):
    """JSON in ASCII, since a text that is sent back may have a half of a surrogate pair."""

    def render(self, content: Any) -> bytes:
        return _JSON.encode(content).encode()


def _stream(request: Request, content: Any) -> Any:
    """Returns a reply in JSON, in which an iterator is a list; a long one is written in pieces.

    Between the pieces, the server does other work, and waits for the client.
    """
    pieces = _pieces(content)
    first, second = next(pieces), next(pieces, None)
    if second is None:
        return Response(first, media_type="application/json")

    async def in_turns() -> AsyncIterator[str]:
        for piece in chain([first, second], pieces):
            yield piece
            await request.scope["turn"]()

    return StreamingResponse(in_turns(), media_type="application/json")


def _pieces(content: Any) -> Iterator[str]:
    piece = ""
    for text in _write(content):
        piece += text
        if len(piece) >= _PIECE_CHARS:
            yield piece
            piece = ""
    yield piece


def _write(content: Any) -> Iterator[str]:
    if isinstance(content, Iterator):
        for index, item in enumerate(content):
            yield ("," if index else "[") + _JSON.encode(item)
        yield "]"
    elif isinstance(content, dict):
        for index, (name, value) in enumerate(content.items()):
            yield ("," if index else "{") + _JSON.encode(name) + ":"
            yield from _write(value)
        yield "}"
    else:
        yield _JSON.encode(content)


def make_app(batchers: Mapping[str, Batcher], options: ServingOptions, metrics: Metrics) -> FastAPI:
    """Returns the application that serves models by name."""
    error = {"description": "The reason", "content": {"application/json": {"schema": _ERROR}}}
    app = FastAPI(
        title="bert_tf",
        version=_VERSION,
        docs_url=None,  # the framework's pages load scripts from elsewhere
        redoc_url=None,
        responses=dict.fromkeys(_STATUSES, error),
    )
    routes = _Routes(batchers, options, metrics)
    for error_class in (StarletteHTTPException, RequestValidationError, UserError, Exception):
        app.add_exception_handler(error_class, routes.describe_error)
    for tag, paths in routes.paths().items():
        for path, function in paths.items():
            is_post = "body" in function.__annotations__
            settings: Any = {"methods": ["POST" if is_post else "GET"], "tags": [tag]}
            kind = function.__annotations__["return"]
            app.add_api_route(path, function, response_class=kind, response_model=None, **settings)
    # Some load balancers send HEAD; the server then leaves out the body.
    app.add_api_route("/health", routes.health, methods=["HEAD"], include_in_schema=False)
    for path in ("/", "/docs"):
        app.add_api_route(path, _page, include_in_schema=False)
    return app


async def _page() -> HTMLResponse:
    page = importlib.resources.files("bert_tf.serving") / "page.html"
    return HTMLResponse(page.read_text("utf-8"), headers={"content-security-policy": _POLICY})


class _Routes:
    """The functions of the routes. Their docstrings are those of the OpenAPI description."""

    def __init__(
        self, batchers: Mapping[str, Batcher], options: ServingOptions, metrics: Metrics
    ) -> None:
        self._batchers, self._options, self._metrics = batchers, options, metrics

    def paths(self) -> dict[str, dict[str, Any]]:
        """Returns the functions by path, by the interface that they belong to."""
        actions = {":predict": self.predict, ":explain": self.explain}
        actions |= {"": self.status, "/metadata": self.metadata}
        models = ("/v1/models/{name}", "/v1/models/{name}/versions/1")
        return {
            "TensorFlow Serving": {m + action: f for m in models for action, f in actions.items()},
            "OpenAI": {"/v1/embeddings": self.embeddings, "/v1/models": self.models},
            "Cohere and Jina": {"/v1/rerank": self.rerank, "/v2/rerank": self.rerank},
            "text-embeddings-inference": {
                "/embed": self.embed,
                "/predict": self.classify,
                "/rerank": self.rerank,
                "/info": self.info,
            },
            "server": {"/health": self.health, "/metrics": self.metrics},
        }

    def describe_error(self, request: Request, error: Any) -> Response:
        """Returns the reply for an exception. A model is unknown whatever else is wrong."""
        path, headers = request.url.path, None
        if isinstance(error, RequestValidationError) or getattr(error, "status_code", 0) == 400:
            body = getattr(error, "body", None)
            name = request.path_params.get("name") or request.query_params.get("model")
            name = name or (body.get("model") if isinstance(body, dict) else None)
            if name and isinstance(name, str) and name not in self._batchers:
                error = self._unknown(name)
        if isinstance(error, UserError):
            statuses = {TooLarge: 413, NotFinite: 500}
            status, detail = statuses.get(type(error), 400), str(error)
        elif isinstance(error, RequestValidationError):
            status, detail = 422, schemas.describe(error.errors())
        elif not isinstance(error, StarletteHTTPException):  # `Gate` logs it
            status, detail = 500, FAILED
        else:
            status, detail, headers = error.status_code, error.detail, error.headers
            if status == 405 or detail == "Not Found":
                detail = f"No route {request.method} {path}: /docs and /openapi.json list them"
            elif error.__cause__:
                detail = f"The body is not JSON in UTF-8: {reason(error.__cause__)}"
        return _Reply(error_body(path, detail), status, headers)

    def _unknown(self, name: str) -> HTTPException:
        served = ", ".join(self._batchers)
        return HTTPException(404, f"There is no model {name[:100]!r}: served are {served}")

    def _find(self, name: str) -> Batcher:
        if name.endswith((":predict", ":explain")):  # the route of a GET takes it for a name
            raise HTTPException(405, headers={"Allow": "POST"})
        if name not in self._batchers:
            raise self._unknown(name)
        return self._batchers[name]

    def _choose(self, request: Request, name: str | None) -> Batcher:
        """Returns a model that is ready, by default the first for the route."""
        path, batchers = request.url.path, self._batchers.values()
        fitting = (batcher for batcher in batchers if path in batcher.model.kind.routes)
        batcher = self._find(name) if name else next(fitting, next(iter(batchers)))
        if not path.startswith("/v1/models/"):
            batcher.model.require(path)
        if not batcher.is_ready:
            problem = f"{batcher.model.name} is being loaded"
            raise HTTPException(503, problem, {"retry-after": "5"})
        return batcher

    async def _compute(
        self,
        request: Request,
        inputs: Sequence[Any],
        name: str | None,
        truncate: bool = True,
        explains: bool = False,
    ) -> tuple[list[Any], int]:
        """Returns the predictions for inputs, and their tokens."""
        batcher = self._choose(request, name)
        model = batcher.model
        request.scope["record"] = {"model": model.name, "inputs": len(inputs)}
        options = self._options
        lengths = [len(text) for x in inputs for text in ((x,) if isinstance(x, str) else x)]
        longest = max(lengths, default=0)
        for what, size, flag, limit in (
            ("inputs", len(inputs), "--max_inputs", options.max_inputs),
            ("characters in a text", longest, "--max_input_chars", options.max_input_chars),
            # A query counts once for each text that is ranked.
            ("characters", sum(lengths), "--max_body_bytes", 2 * options.max_body_bytes),
        ):
            if size > limit:
                raise TooLarge(f"The request has {size:,} {what}, but {flag} allows {limit:,}")
        limit = options.max_explanations
        if explains and len(batcher.explaining) >= limit:
            problem = f"--max_explanations={limit} is reached: retry later"
            raise HTTPException(429, problem, {"retry-after": "1"})
        job = batcher.submit(inputs, explains=explains, truncates=truncate)
        predictions, num_tokens = await job.future, sum(job.num_tokens)
        if len(inputs) > 1:
            await request.scope["turn"]()
        request.scope["record"]["tokens"] = num_tokens
        return predictions, num_tokens

    async def predict(self, request: Request, name: str, body: schemas.PredictRequest) -> _Reply:
        """Predicts: replies with `predictions`, one per instance, or with `outputs` in columns.

        If a model has only one output, it has no name.
        """
        inputs = body.to_inputs(self._find(name).model.kind)
        found, _ = await self._compute(request, inputs, name)
        if body.inputs is not None:
            columns = {x: map(itemgetter(x), map(outputs_of, found)) for x in outputs_of(found[0])}
            return _stream(request, {"outputs": _without_single_name(columns)})
        return _stream(request, {"predictions": map(_without_single_name, map(outputs_of, found))})

    async def explain(self, request: Request, name: str, body: schemas.Instance) -> _Reply:
        """Returns how much each token contributes to the prediction for a text or a pair.

        `tokens` has start and end in the text, the contribution, and 1 for the second text.
        """
        model = self._find(name).model
        if not model.explains:
            raise UserError(f"{name} cannot be explained: only classifiers can, with TensorFlow")
        inputs = [body.to_input(model.kind, 0)]
        [found], _ = await self._compute(request, inputs, name, explains=True)
        columns = zip(found.offsets, found.scores, found.text_indices, strict=True)
        tokens = [[*offset, score, text] for offset, score, text in columns]
        values = {"completeness": found.completeness, "difference": found.difference}
        return _Reply({"label": found.label, "tokens": tokens, **values})

    async def status(self, name: str) -> _Reply:
        """Says whether a model is loaded."""
        state = "AVAILABLE" if self._find(name).is_ready else "LOADING"
        status = {"error_code": "OK", "error_message": ""}
        versions = [{"version": "1", "state": state, "status": status}]
        return _Reply({"model_version_status": versions})

    async def metadata(self, name: str) -> _Reply:
        """Describes inputs, outputs and labels of a model."""
        model = self._find(name).model
        signature = {
            "inputs": {
                x: _tensor("DT_STRING") for x in ("text", "text_pair")[: max(model.kind.counts)]
            },
            "outputs": {output: _tensor(dtype) for output, dtype in model.outputs.items()},
            "method_name": "tensorflow/serving/predict",
        }
        definition = {"signature_def": {"signature_def": {"serving_default": signature}}}
        spec = {"name": name, "signature_name": "", "version": "1"}
        return _Reply({"model_spec": spec, "metadata": definition, "labels": model.labels})

    async def models(self) -> _Reply:
        """Lists the models."""
        data = [
            {"id": name, "object": "model", "created": 0, "owned_by": "bert_tf"}
            | {"task": batcher.model.kind.task, "explains": batcher.model.explains}
            | {"takes_pairs": 2 in batcher.model.kind.counts}
            for name, batcher in self._batchers.items()
        ]
        return _Reply({"object": "list", "data": data})

    async def embeddings(self, request: Request, body: schemas.EmbeddingsRequest) -> _Reply:
        """Computes the model's vectors; with `dimensions`, their first numbers at length 1."""
        texts = [body.input] if isinstance(body.input, str) else body.input
        predictions, num_tokens = await self._compute(request, texts, body.model)
        vectors: Any = _cut(predictions, body.dimensions)
        vectors = array_ops.normalize(vectors) if body.dimensions else vectors
        if body.encoding_format == "base64":
            encoded = (base64.b64encode(x.astype("<f4").tobytes()).decode() for x in vectors)
        else:
            encoded = (x.tolist() for x in vectors)
        data = ({"object": "embedding", "index": i, "embedding": x} for i, x in enumerate(encoded))
        usage = {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
        name = request.scope["record"]["model"]
        return _stream(request, {"object": "list", "data": data, "model": name, "usage": usage})

    async def embed(
        self, request: Request, body: schemas.EmbedRequest, model: str | None = None
    ) -> _Reply:
        """Computes vectors, of length 1 unless `normalize` is false."""
        texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
        predictions, _ = await self._compute(request, texts, model or body.model, body.truncate)
        vectors = _cut(predictions, body.dimensions)
        vectors = array_ops.normalize(vectors) if body.normalize else vectors
        return _stream(request, (x.tolist() for x in vectors))

    async def classify(
        self, request: Request, body: schemas.ClassifyRequest, model: str | None = None
    ) -> _Reply:
        """Returns the labels of a text, most likely first; for several, a list for each.

        With `parameters`, also a list for one, as Hugging Face's client expects.
        """
        is_single = isinstance(body.inputs, str) or isinstance(body.inputs[0], str)
        items: Any = [body.inputs] if is_single else body.inputs
        found = self._choose(request, model or body.model).model
        inputs = [x if isinstance(x, str) else x[0] if len(x) == 1 else tuple(x) for x in items]
        for x in inputs:
            if isinstance(x, tuple) and len(x) not in found.kind.counts:
                problem = f"a list of {len(x)} strings is one input, not {found.kind.expected}"
                raise HTTPException(422, f'inputs: {problem}. Send texts as [["one"], ["two"]]')
        predictions, _ = await self._compute(request, inputs, found.name, body.truncate)
        ranked = (sorted(scores_of(x).items(), key=lambda pair: -pair[1]) for x in predictions)
        replies = ([{"label": n, "score": score} for n, score in pairs] for pairs in ranked)
        is_list = body.parameters is not None or not is_single
        return _stream(request, replies if is_list else next(replies))

    async def rerank(
        self, request: Request, body: schemas.RerankRequest, model: str | None = None
    ) -> _Reply:
        """Scores texts for a query, best first: from 0 to 1, or logits with `raw_scores`."""
        name, pairs = model or body.model, [(body.query, text) for text in body.texts]
        predictions, num_tokens = await self._compute(request, pairs, name, body.truncate)
        is_tei = request.url.path == "/rerank"
        texts = [{"text": x} if is_tei else {"document": {"text": x}} for x in body.texts]
        score = "score" if is_tei else "relevance_score"
        best_first = sorted(enumerate(predictions), key=lambda pair: -pair[1].score)
        ranks = (
            {"index": index, score: x.score if body.raw_scores else x.probability}
            | (texts[index] if body.return_text else {})
            for index, x in best_first[: body.top_n]
        )
        if is_tei:
            return _stream(request, ranks)
        reply = {"id": str(uuid.uuid4()), "model": request.scope["record"]["model"]}
        usage = {"total_tokens": num_tokens}
        return _stream(request, {**reply, "results": ranks, "usage": usage})

    async def info(self, model: str | None = None) -> _Reply:
        """Describes a model, by default the first, and the limits."""
        found, options = self._find(model or next(iter(self._batchers))).model, self._options
        ids = {str(index): label for index, label in enumerate(found.labels)}
        names = {"feature-extraction": "embedding", "text-ranking": "reranker"}
        kind = names.get(found.kind.task, "classifier")
        labels = {"id2label": ids, "label2id": {label: int(i) for i, label in ids.items()}}
        info = {
            "model_id": found.name,
            "model_dtype": options.precision,
            "model_type": {kind: {} if kind == "embedding" else labels},
            "prompts": found.prompts,
            "max_concurrent_requests": options.max_concurrent,
            "max_input_length": found.max_length,
            "max_client_batch_size": options.max_inputs,
            "max_batch_tokens": options.max_batch_tokens,
            "auto_truncate": True,
            "version": _VERSION,
        }
        return _Reply(info)

    async def health(self) -> _Reply:
        """Status 200 once all models are loaded; until then, 503."""
        loading = [name for name, batcher in self._batchers.items() if not batcher.is_ready]
        if loading:
            return _Reply({"error": f"Loading {', '.join(loading)}"}, 503)
        return _Reply({"status": "ready"})

    async def metrics(self) -> PlainTextResponse:
        """Returns the metrics in Prometheus' format."""
        return PlainTextResponse(self._metrics.render(), media_type="text/plain; version=0.0.4")


def _without_single_name(outputs: dict[str, Any]) -> Any:
    return next(iter(outputs.values())) if len(outputs) == 1 else outputs


def _tensor(dtype: str) -> dict[str, Any]:
    shape = {"dim": [{"size": "-1", "name": ""}], "unknown_rank": False}
    return {"dtype": dtype, "tensor_shape": shape}


def _cut(predictions: Sequence[Any], dimensions: int | None) -> np.ndarray:
    """Returns the first `dimensions` numbers of each vector; None: all."""
    vectors = np.stack([vector_of(x) for x in predictions])
    if dimensions and dimensions > vectors.shape[1]:
        raise UserError(f"dimensions: the vectors have {vectors.shape[1]}")
    return vectors[:, :dimensions]
