"""Computes the requests for a model on a thread of its own; those that wait together, together."""

import asyncio
import contextlib
import gc
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, NamedTuple

from bert_tf.base.errors import Input, UserError, note, silent
from bert_tf.inference.row_batches import NotFinite
from bert_tf.serving.metrics import Metrics
from bert_tf.serving.models import Model
from bert_tf.serving.options import ServingOptions


class TooLarge(UserError):
    """An input that exceeds the limit of a batch, or may not be truncated."""


class Job:
    """The inputs of a request. `future` returns their predictions, or raises the first error.

    `num_tokens` lists the tokens that the model reads of each input, once the future is done. With
    `explains`, the results are explanations; without `truncates`, too long inputs are errors.
    """

    def __init__(
        self, inputs: Sequence[Any], explains: bool = False, truncates: bool = True
    ) -> None:
        self.inputs, self.explains, self.truncates = inputs, explains, truncates
        self.num_tokens = [0] * len(inputs)
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[list[Any]] = self._loop.create_future()
        self._results: list[Any] = [None] * len(inputs)
        self._num_missing = len(inputs)

    def put(self, index: int, result: Any) -> None:
        """Stores the prediction for an input, or the exception; called by the model's thread."""
        self._results[index] = result
        self._num_missing -= 1
        if not self._num_missing:
            # The loop is closed if the server was ended by force.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._finish)

    def _finish(self) -> None:
        if self.future.done():  # cancelled
            return
        error = next((x for x in self._results if isinstance(x, Exception)), None)
        if error:
            self.future.set_exception(error)
        else:
            self.future.set_result(self._results)


class _Item(NamedTuple):
    job: Job
    index: int
    cost: int  # tokens to compute

    @property
    def input(self) -> Any:
        return self.job.inputs[self.index]


class Batcher:
    """Loads a model, and computes its requests in batches, on a thread of its own.

    A batch begins as soon as the previous one ends, with the inputs that have arrived until then,
    one of each request in turn, up to `max_batch_tokens`. An idle model thus computes a request at
    once, and a request with many inputs does not hold up the others. Explanations, which take as
    long as many predictions, take turns with batches of these.

    Attributes:
        model: the model.
        is_ready: whether it is loaded.
        error: what kept it from being loaded.
        explaining: the explanations in progress.
    """

    def __init__(
        self,
        model: Model,
        options: ServingOptions,
        metrics: Metrics,
        on_error: Callable[[], object],
    ) -> None:
        self.model, self.is_ready = model, False
        self.error: BaseException | None = None
        self.explaining = set[asyncio.Future]()
        self._max_tokens, self._delay = options.max_batch_tokens, options.max_delay_ms / 1000
        self._max_reply_bytes = options.max_reply_bytes
        self._metrics, self._on_error = metrics, on_error
        self._arrived: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        # By job; of predictions, and of explanations.
        self._waiting = deque[deque[_Item]](), deque[deque[_Item]]()
        self._is_closed = self._explains = False
        depth = metrics.depth.labels(model.name)
        # `tuple` copies what the model's thread changes.
        waiting = lambda: chain(*map(tuple, self._waiting))  # noqa: E731
        depth.set_function(lambda: sum(map(len, waiting())) + self._arrived.qsize())
        self._thread = threading.Thread(target=self._run, name=model.name, daemon=True)
        self._thread.start()

    def submit(self, inputs: Sequence[Any], **settings: bool) -> Job:
        """Queues the inputs of a `Job`; if its future is cancelled, they cost nothing more."""
        job = Job(inputs, **settings)
        if job.explains:
            self.explaining.add(job.future)
            job.future.add_done_callback(self.explaining.discard)
        self._arrived.put(job)
        return job

    def close(self) -> None:
        """Ends the thread after its current batch."""
        self._arrived.put(None)
        self._thread.join()

    def _run(self) -> None:
        start = time.perf_counter()
        try:
            self._predictor: Any = self.model.load()
        except BaseException as error:
            self.error = error
            self._on_error()
            return
        seconds = time.perf_counter() - start
        model, step = self.model, self.model.run.step
        what = f"{model.kind.task}, step {step}" if step else model.kind.task
        note(f"{model.name}: ready after {seconds:.1f} s ({what})")
        gc.freeze()  # Never traverse the many objects of the model.
        self.is_ready = True
        with silent():
            while not self._is_closed:
                if batch := self._next_batch():
                    self._compute(batch)

    def _next_batch(self) -> list[_Item]:
        is_idle = not any(self._waiting) and self._arrived.empty()
        self._receive(block=is_idle)
        self._explains ^= bool(self._waiting[not self._explains])
        waiting = self._waiting[self._explains]
        costs = (item.cost for items in waiting for item in items)
        if not is_idle and self._delay and sum(costs) < self._max_tokens:
            time.sleep(self._delay)
            self._receive(block=False)
        batch: list[_Item] = []
        room = self._max_tokens
        while waiting and (not batch or waiting[0][0].cost <= room):
            items = waiting.popleft()
            if items[0].job.future.cancelled():
                continue
            batch.append(items.popleft())
            room -= batch[-1].cost
            if items:
                waiting.append(items)
        return batch

    def _receive(self, block: bool) -> None:
        """Counts the tokens of the jobs that arrived, and moves their inputs to `_waiting`."""
        with contextlib.suppress(queue.Empty):
            while True:
                job = self._arrived.get(block)
                if job is None:
                    self._is_closed = True
                    break
                if not job.future.cancelled():
                    self._enqueue(job)
                block = False

    def _enqueue(self, job: Job) -> None:
        items, size = deque[_Item](), 0
        try:
            for index, (length, cost) in enumerate(self.model.costs(job.inputs)):
                if cost > self._max_tokens:
                    limit = f"--max_batch_tokens={self._max_tokens}"
                    raise TooLarge(f"{cost:,} tokens to compute exceed {limit}", at=Input(index))
                if not job.truncates and length > cost:
                    problem = f"{length} tokens, but the model reads {cost}"
                    raise TooLarge(problem, at=Input(index))
                size += self.model.reply_bytes(cost)
                if size > self._max_reply_bytes:
                    raise TooLarge(f"The reply exceeds --max_reply_bytes={self._max_reply_bytes}")
                job.num_tokens[index] = cost
                items.append(_Item(job, index, self._max_tokens if job.explains else cost))
        except Exception as error:  # the thread must go on
            for index in range(len(job.inputs)):
                job.put(index, error)
        else:
            self._waiting[job.explains].append(items)

    def _compute(self, batch: Sequence[_Item]) -> None:
        name = self.model.name
        num_tokens = sum(item.job.num_tokens[item.index] for item in batch)
        self._metrics.tokens.labels(name).inc(num_tokens)
        self._metrics.batch_tokens.labels(name).observe(sum(item.cost for item in batch))
        self._metrics.batch_inputs.labels(name).observe(len(batch))
        results: list[Any] = []
        if len(batch) > 1 and self._predictor.inputs_are_independent:
            # If an input is bad, compute each alone: then only its request fails.
            with contextlib.suppress(Exception):
                results = self._predictor([item.input for item in batch])
        for item, result in zip(batch, results or map(self._compute_alone, batch), strict=True):
            item.job.put(item.index, result)

    def _compute_alone(self, item: _Item) -> Any:
        try:
            if item.job.explains:
                return self._predictor.explain(item.input)
            return self._predictor([item.input])[0]
        except NotFinite:
            return NotFinite([item.index], len(item.job.inputs))
        except UserError as error:
            return error.moved_to(Input(item.index)) if isinstance(error.at, Input) else error
        except Exception as error:
            return error
