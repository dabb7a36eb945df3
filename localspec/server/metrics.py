"""What the server counts, for Prometheus: llama.cpp's names where it has them, vLLM's for speculation."""

from __future__ import annotations

import time
from collections.abc import Iterator

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from localspec.serving.api import Ended, Host

_FIRST = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_EACH = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56)

router = APIRouter()


class Metrics:
    """The counters of one server."""

    def __init__(self, host: Host) -> None:
        self.registry = CollectorRegistry()

        def counter(name: str, text: str) -> Counter:
            return Counter(name, text, registry=self.registry)

        self._prompt = counter("llamacpp:prompt_tokens", "Tokens of prompts that were read.")
        self._prompt_seconds = counter("llamacpp:prompt_seconds", "Seconds spent reading prompts.")
        self._cached = counter("localspec_prompt_tokens_cached", "Tokens of prompts that came from the cache.")
        self._predicted = counter("llamacpp:tokens_predicted", "Tokens that were written.")
        self._predicted_seconds = counter("llamacpp:tokens_predicted_seconds", "Seconds spent writing.")
        self._decodes = counter("llamacpp:n_decode", "Forward passes that wrote.")
        self._drafts = counter("localspec_spec_decode_num_drafts", "Forward passes that verified drafts.")
        self._drafted = counter("localspec_spec_decode_num_draft_tokens", "Tokens that were drafted.")
        self._accepted = counter("localspec_spec_decode_num_accepted_tokens", "Drafted tokens that were accepted.")
        self._answers = Counter("localspec_answers", "Answers, by how they ended.", ["reason"], registry=self.registry)
        first, each = "localspec_time_to_first_token_seconds", "localspec_time_per_output_token_seconds"
        self.first = Histogram(first, "From request to first token.", buckets=_FIRST, registry=self.registry)
        self.each = Histogram(each, "From token to token.", buckets=_EACH, registry=self.registry)
        self.registry.register(_Now(host))

    def pace(self) -> Pace:
        """The clock of an answer that begins."""
        return Pace(self)

    def ended(self, ended: Ended) -> None:
        """An answer has ended."""
        stats = ended.stats
        self._prompt.inc(max(0, stats.n_prompt - stats.n_cached))
        self._prompt_seconds.inc(stats.prompt_seconds)
        self._cached.inc(stats.n_cached)
        self._predicted.inc(stats.n_tokens)
        self._predicted_seconds.inc(stats.seconds)
        self._decodes.inc(stats.n_steps)
        if ended.speculation.drafted:
            self._drafts.inc(stats.n_steps)
        self._drafted.inc(ended.speculation.drafted)
        self._accepted.inc(ended.speculation.accepted)
        self._answers.labels(ended.reason).inc()


class Pace:
    """When the tokens of an answer came."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics, self._last, self._first = metrics, time.perf_counter(), True

    def wrote(self, n_tokens: int) -> None:
        """So many tokens have come since the last call."""
        if not n_tokens:
            return
        now = time.perf_counter()
        if self._first:
            self._metrics.first.observe(now - self._last)
        else:
            for _ in range(n_tokens):
                self._metrics.each.observe((now - self._last) / n_tokens)
        self._last, self._first = now, False


class _Now(Collector):
    """What is so at the moment of the question."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def describe(self) -> list[GaugeMetricFamily]:
        # asked for at registration, when there may be no models yet
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        engines = self._host.loaded()
        busy = sum(slot.busy for engine in engines for slot in engine.slots())
        waiting = sum(engine.n_waiting() for engine in engines)
        yield GaugeMetricFamily("llamacpp:requests_processing", "Requests that are being answered.", busy)
        yield GaugeMetricFamily("llamacpp:requests_deferred", "Requests that wait for a slot.", waiting)
        yield GaugeMetricFamily("localspec_models_loaded", "Models in memory.", len(engines))


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(request: Request) -> Response:
    """Counters in the text format of Prometheus."""
    held: Metrics = request.app.state.metrics
    return Response(generate_latest(held.registry), media_type=CONTENT_TYPE_LATEST)
