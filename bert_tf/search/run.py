"""Builds an index and answers queries, for `search_texts.py`."""

import itertools
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.api.predictor import Predictor
from bert_tf.base import file_names, files, signals
from bert_tf.base.errors import UserError, excerpt, note, warn
from bert_tf.checkpoints.run_folder import RunFolder
from bert_tf.search.encoder import SearchEncoder
from bert_tf.search.index import FILES, Index, build
from bert_tf.search.options import SearchOptions
from bert_tf.search.texts import read_queries
from bert_tf.tables.read import is_object
from bert_tf.tables.texts import STDIN, Identified, lines

# Number of queries that are answered together.
_CHUNK = 256
# Number of characters of a text that are printed.
_SHOWN = 150


class Result(NamedTuple):
    """A text that was found."""

    id: str
    text: str
    score: float


# (id of a query, the query, its results) -> text to write.
Format = Callable[[str, str, Sequence[Result]], str]


def run(options: SearchOptions) -> None:
    """Builds the index if there is an `input_file`; without one, or with queries, searches it."""
    options.check()
    output, is_stream = options.output_file or "", options.query_file is None
    if output:
        inputs = filter(None, [options.input_file, options.query_file])
        of_index = (os.path.join(options.index_dir or "", name) for name in FILES)
        file_names.require_distinct([output], [*inputs, *of_index])
        file_names.require_writable(output)
    # Read them first to find errors early, unless they are typed.
    queries = _typed_queries() if is_stream else read_queries(options.query_file or "")
    if options.input_file:
        build(options)
    if options.input_file and not options.query_file:
        return
    formats = {"trec": _trec_lines, "run": _trec_lines, "tsv": _tsv_lines}
    to_text = formats.get(output.lower().rpartition(".")[2], _json_line) if output else _table
    with files.open_atomically(output) if output else signals.standard_output() as file:
        for answer in _answers(options, queries, 1 if is_stream else _CHUNK, to_text):
            file.write(answer.encode())
            file.flush()
    if output:
        note(f"Results: {output}")


def _typed_queries() -> Iterator[Identified]:
    """Yields the lines of the standard input; in a terminal, asks for them."""
    typed = lines(STDIN)
    if sys.stdin and sys.stdin.isatty():
        typed = iter(lambda: input("query> "), None)
    try:
        for number, line in enumerate(map(str.strip, typed), start=1):
            if "\t" in line or is_object(line):
                warn("tabs and JSON are searched as text. To read ids, pass --query_file=-")
            if line:
                yield "", str(number), line
    except EOFError:  # Ctrl-D
        print()


def _answers(
    options: SearchOptions, queries: Iterable[Identified], chunk_size: int, to_text: Format
) -> Iterator[str]:
    """Yields the results of each query as text, for several queries at a time."""
    index, encoder = Index(options.index_dir or ""), SearchEncoder(options)
    index.require_model(encoder.describe())
    rerank = _open_reranker(options) if options.rerank_model else None
    top_k = max(options.rerank_top_k, options.top_k) if rerank else options.top_k
    queries = iter(queries)
    while chunk := [*itertools.islice(queries, chunk_size)]:
        is_first = not encoder.num_truncated
        vectors = encoder([query for _, _, query in chunk], is_query=True)
        if is_first:
            encoder.warn_of_truncation(encoder.num_texts)
        found = index.search(vectors, top_k)
        for (_, key, query), (rows, scores) in zip(chunk, found, strict=True):
            pairs = zip(map(index.text, rows.tolist()), scores.tolist(), strict=True)
            results = [Result(*text, score) for text, score in pairs]
            if rerank:
                results = rerank(query, results)[: options.top_k]
            yield to_text(key, query, results)


def _open_reranker(options: SearchOptions) -> Callable[[str, list[Result]], list[Result]]:
    """Returns a function that sorts the results of a query by the scores of a cross-encoder."""
    model = options.rerank_model or ""
    # Published cross-encoders have no run.json.
    script = RunFolder.of(model).script or "run_ranking"
    expected = "the output_dir of run_ranking.py, or of a regression of text pairs"
    refusal = UserError(f"{script} trained no cross-encoder", at=model, fix=f"Pass {expected}")
    if script not in ("run_ranking", "run_classifier"):
        raise refusal
    predictor = Predictor(model, script, engine=options.engine, precision=options.precision)

    def rerank(query: str, results: list[Result]) -> list[Result]:
        predictions = predictor([(query, result.text) for result in results])
        scores = [getattr(prediction, "score", prediction) for prediction in predictions]
        if not all(isinstance(score, float | np.floating) for score in scores):
            raise refusal
        scored = zip(results, scores, strict=True)
        results = [result._replace(score=round(float(score), 6)) for result, score in scored]
        return sorted(results, key=lambda result: -result.score)

    rerank("a query", [Result("", "a text", 0.0)])  # an error comes before any query is answered
    return rerank


def _table(key: str, query: str, results: Sequence[Result]) -> str:
    width, rows = max(len(result.id) for result in results), ""
    for found in results:
        text = " ".join(found.text.split())
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        rows += f"  {found.score:7.4f}  {found.id:{width}}  {shown}\n"
    return f"{query}\n{rows}\n"


def _json_line(key: str, query: str, results: Sequence[Result]) -> str:
    content = {"_id": key, "query": query, "results": [x._asdict() for x in results]}
    return json.dumps(content, ensure_ascii=False) + "\n"


def _trec_lines(key: str, query: str, results: Sequence[Result]) -> str:
    if found := [name for name in (key, *(x.id for x in results)) if len(name.split()) > 1]:
        raise UserError(f"An id for trec_eval has a space: {excerpt(found[0])}")
    rows = enumerate(results, start=1)
    return "".join(f"{key} Q0 {x.id} {rank} {x.score:.6f} bert_tf\n" for rank, x in rows)


def _tsv_lines(key: str, query: str, results: Sequence[Result]) -> str:
    """Returns lines as in the files top1000 of MS MARCO, where white space is a single space."""
    cells = [(key, x.id, query, x.text) for x in results]
    return "".join("\t".join(" ".join(x.split()) for x in row) + "\n" for row in cells)
