"""Spans of what the gateway does, for OpenTelemetry: requests that bring events, passes that dispatch, webhooks.

A producer's trace goes on in the request that brings its events, and a webhook's in its receiver. Between the two
stands the log, whose records carry no trace; but an event keeps the id that its producer gave it, through every service
that does not make one event of many. By that id the trace goes on where the event is dispatched.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import orjson
import structlog

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span, SpanContext

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""The environment variables that say where spans go; without one there are none."""
FOLLOWED = 10_000
"""Ids of events that came in a traced request and are known when they are dispatched: the newest."""
LARGEST_BYTES = 64 * 1024
"""Of a body that is looked into for ids."""
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
        self._followed: dict[str, SpanContext] = {}
        """By the id of an event the request that brought it."""

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

    def took(self, span: Span, headers: Mapping[str, str], body: bytes) -> None:
        """A request's events are in the log: where they have ids, its trace follows them."""
        if span.get_span_context().trace_flags.sampled:
            for id_ in _ids(headers, body):
                self._followed.pop(id_, None)
                self._followed[id_] = span.get_span_context()
            while len(self._followed) > FOLLOWED:
                del self._followed[next(iter(self._followed))]

    def dispatched(self, service: str, seconds: float, events: Sequence[Mapping[str, Any]]) -> None:
        """A pass that has written events to subscribers, and how long it took."""
        if self._followed:
            for event in events:
                of = self._followed.get(event.get("_id", ""))
                if of is not None:
                    self._dispatch(service, seconds, of, str(event["_id"]))
        now = self._clock()
        if now - self._passed.get(service, -PASSES_S) < PASSES_S:
            return
        self._passed[service] = now
        self._dispatch(service, seconds)

    def _dispatch(self, service: str, seconds: float, of: SpanContext | None = None, id_: str | None = None) -> None:
        from opentelemetry.trace import NonRecordingSpan, set_span_in_context

        end = time.time_ns()
        said = {"messaging.system": "tidegate", "messaging.destination.name": service}
        self._tracer.start_span(
            f"dispatch {service}",
            context=None if of is None else set_span_in_context(NonRecordingSpan(of)),
            start_time=end - round(seconds * 1e9),
            attributes=said if id_ is None else {**said, "messaging.message.id": id_},
        ).end(end)

    @contextmanager
    def webhook(
        self, service: str, subscription: str, url: str, records: Sequence[bytes], headers: MutableMapping[str, str]
    ) -> Iterator[Span]:
        """A message to a receiver, which is told by `traceparent` in its headers whose child its own work is.

        One event's goes on in the trace of the request that brought it; one of several is linked to theirs.
        """
        from opentelemetry.trace import Link, NonRecordingSpan, SpanKind, set_span_in_context

        brought = [of for each in records if (of := self._bringing(each)) is not None] if self._followed else []
        is_alone = len(records) == 1 and len(brought) == 1
        with self._tracer.start_as_current_span(
            f"webhook {service}",
            context=set_span_in_context(NonRecordingSpan(brought[0])) if is_alone else None,
            kind=SpanKind.CLIENT,
            links=[] if is_alone else [Link(each) for each in {of.span_id: of for of in brought}.values()],
            attributes={
                "messaging.system": "tidegate",
                "messaging.destination.name": service,
                "messaging.batch.message_count": len(records),
                "tidegate.subscription": subscription,
                "url.full": url.partition("?")[0],
            },
        ) as span:
            self._context.inject(headers)
            yield span

    def _bringing(self, record: bytes) -> SpanContext | None:
        """The request that brought an event; None: nobody follows it."""
        event = _event(record)
        return self._followed.get(event.get("_id", "")) if isinstance(event, dict) else None


def _ids(headers: Mapping[str, str], body: bytes) -> list[str]:
    """The ids that a request's events have of their own.

    >>> _ids({"ce-id": "a"}, b"")
    ['a']
    >>> _ids({}, b'{"_id": "a"}\\n{"speed": 7}\\n{"specversion": "1.0", "id": "b"}')
    ['a', 'b']
    """
    if "ce-id" in headers:
        return [headers["ce-id"]]
    if len(body) > LARGEST_BYTES:
        return []
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError:
        said = [_event(line) for line in body.splitlines()]
    some = [each for each in (said if isinstance(said, list) else [said]) if isinstance(each, dict)]
    found = [each.get("id") if "specversion" in each else each.get("_id") for each in some]
    return [id_ for id_ in found if isinstance(id_, str)]


def _event(line: bytes) -> Any:
    with suppress(orjson.JSONDecodeError):
        return orjson.loads(line)
    return None


def failed(span: Span, reason: str) -> None:
    """Say that what a span is about did not succeed."""
    from opentelemetry.trace import Status, StatusCode

    span.set_status(Status(StatusCode.ERROR, reason))
