"""Spans of what the gateway does, for OpenTelemetry: requests that bring events, passes that dispatch, webhooks.

A producer's trace goes on in the request that brings its events, and a webhook's in its receiver. Between the two
stands the log, whose records carry no trace: services leave out what they do not know, and make one event of many.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""The environment variables that say where spans go; without one there are none."""
PASSES_S = 1.0
"""Of each service's passes, at most one in so long has a span."""

_log = structlog.get_logger("tidegate.gateway")


def tracing_of(environment: Mapping[str, str]) -> Tracing | None:
    """Tracing as OpenTelemetry's own variables want it; None: it is off."""
    if not any(environment.get(name) for name in ENDPOINTS) or _is_off(environment):
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError:
        _log.warning("no traces: install tidegate[tracing], or leave OTEL_EXPORTER_OTLP_ENDPOINT out")
        return None
    is_named = "OTEL_SERVICE_NAME" in environment or "service.name=" in environment.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return Tracing(OTLPSpanExporter(), {} if is_named else {"service.name": "tidegate"})


def _is_off(environment: Mapping[str, str]) -> bool:
    return environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or environment.get(
        "OTEL_TRACES_EXPORTER", "otlp"
    ) not in ("otlp", "")


class Tracing:
    """Makes spans, and sends them in a thread of its own; how many are sampled is OTEL_TRACES_SAMPLER's."""

    def __init__(
        self, exporter: SpanExporter, resource: Mapping[str, str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider: TracerProvider = TracerProvider(resource=Resource.create(dict(resource)))
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("tidegate")
        self._context = TraceContextTextMapPropagator()
        self._clock = clock
        self._passed: dict[str, float] = {}

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()

    @contextmanager
    def ingest(self, stream: str, headers: Mapping[str, str]) -> Iterator[Span]:
        """A request with events: the child of its `traceparent`, linked to the one of its CloudEvent."""
        from opentelemetry.trace import Link, SpanKind, get_current_span

        told = {name.removeprefix("ce-"): value for name, value in headers.items() if name.startswith("ce-trace")}
        of_event = get_current_span(self._context.extract(told)).get_span_context() if told else None
        with self._tracer.start_as_current_span(
            f"ingest {stream}",
            context=self._context.extract(headers),
            kind=SpanKind.SERVER,
            links=[Link(of_event)] if of_event is not None and of_event.is_valid else None,
            attributes={"messaging.system": "tidegate", "messaging.destination.name": stream},
        ) as span:
            yield span

    def dispatched(self, service: str, seconds: float) -> None:
        """A pass that has written events to subscribers, and how long it took."""
        now = self._clock()
        if now - self._passed.get(service, -PASSES_S) < PASSES_S:
            return
        self._passed[service] = now
        end = time.time_ns()
        self._tracer.start_span(
            f"dispatch {service}",
            start_time=end - round(seconds * 1e9),
            attributes={"messaging.system": "tidegate", "messaging.destination.name": service},
        ).end(end)

    @contextmanager
    def webhook(
        self, service: str, subscription: str, url: str, events: int, headers: MutableMapping[str, str]
    ) -> Iterator[Span]:
        """A message to a receiver, which is told by `traceparent` in its headers whose child its own work is."""
        from opentelemetry.trace import SpanKind

        with self._tracer.start_as_current_span(
            f"webhook {service}",
            kind=SpanKind.CLIENT,
            attributes={
                "messaging.system": "tidegate",
                "messaging.destination.name": service,
                "messaging.batch.message_count": events,
                "tidegate.subscription": subscription,
                "url.full": url.partition("?")[0],
            },
        ) as span:
            self._context.inject(headers)
            yield span


def failed(span: Span, reason: str) -> None:
    """Say that what a span is about did not succeed."""
    from opentelemetry.trace import Status, StatusCode

    span.set_status(Status(StatusCode.ERROR, reason))
