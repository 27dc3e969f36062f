"""What a server counts, for Prometheus."""

import prometheus_client as prometheus

_TOKENS = [2**n for n in range(4, 16)]
_INPUTS = [2**n for n in range(9)]
_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60]


class Metrics:
    """The metrics of a server; several servers in a process have their own."""

    def __init__(self) -> None:
        self._registry = registry = prometheus.CollectorRegistry()
        prometheus.ProcessCollector(registry=registry)

        def counter(name: str, text: str, *labels: str) -> prometheus.Counter:
            return prometheus.Counter(f"bert_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: list, label: str) -> prometheus.Histogram:
            settings = {"buckets": buckets, "registry": registry}
            return prometheus.Histogram(f"bert_{name}", text, [label], **settings)

        self.requests = counter("requests", "Requests, also refused ones", "route", "status")
        self.tokens = counter("tokens", "Tokens of the inputs that were computed", "model")
        self.seconds = histogram("request_seconds", "From request to reply", _SECONDS, "route")
        self.batch_tokens = histogram("batch_tokens", "Tokens of a batch", _TOKENS, "model")
        self.batch_inputs = histogram("batch_inputs", "Inputs of a batch", _INPUTS, "model")
        text = "Inputs that wait to be computed"
        self.depth = prometheus.Gauge("bert_queue_inputs", text, ["model"], registry=registry)

    def render(self) -> bytes:
        """Returns all metrics in Prometheus' text format."""
        return prometheus.generate_latest(self._registry)
