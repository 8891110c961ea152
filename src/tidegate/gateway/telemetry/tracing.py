"""OpenTelemetry spans of a gateway: ingest requests, dispatches and webhooks.

The span of an ingest request continues the trace of its producer, and a receiver can continue the trace of a webhook.
Records in the log carry no trace. But an event keeps the id of its producer through every service that does not
aggregate events, so the trace is continued by event id when the event is dispatched.
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
"""The environment variables with the endpoint for spans. Without one of them tracing is off."""
MAX_FOLLOWED = 10_000
"""Event ids of traced requests that are remembered until dispatch. The oldest are dropped first."""
MAX_BODY_BYTES = 64 * 1024
"""Size of a request body that is searched for event ids."""
DISPATCH_SPAN_INTERVAL_S = 1.0
"""Each service has at most one dispatch span per interval, besides those of traced events."""

_log = structlog.get_logger("tidegate.gateway")


def tracing_of(environment: Mapping[str, str]) -> Tracing | None:
    """Return tracing as the variables of OpenTelemetry configure it; None if it is off."""
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
    """Creates spans, and exports them in a separate thread. OTEL_TRACES_SAMPLER controls sampling."""

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
        """The span of the request that ingested an event, by event id."""

    def close(self) -> None:
        """Export the remaining spans. Blocks."""
        self._provider.shutdown()

    @contextmanager
    def ingest(self, stream: str, headers: Mapping[str, str]) -> Iterator[Span]:
        """Open the span of an ingest request: a child of its `traceparent`, with a link to that of its CloudEvent."""
        from opentelemetry.trace import Link, SpanKind, get_current_span

        trace = {name.removeprefix("ce-"): value for name, value in headers.items() if name.startswith("ce-trace")}
        of_event = get_current_span(self._context.extract(trace)).get_span_context() if trace else None
        with self._tracer.start_as_current_span(
            f"ingest {stream}",
            context=self._context.extract(headers),
            kind=SpanKind.SERVER,
            links=[Link(of_event)] if of_event is not None and of_event.is_valid else None,
            attributes={"messaging.system": "tidegate", "messaging.destination.name": stream},
        ) as span:
            yield span

    def took(self, span: Span, headers: Mapping[str, str], body: bytes) -> None:
        """Remember the ids of events that a request has ingested, so that its trace continues at their dispatch."""
        if span.get_span_context().trace_flags.sampled:
            for id_ in _ids(headers, body):
                self._followed.pop(id_, None)
                self._followed[id_] = span.get_span_context()
            while len(self._followed) > MAX_FOLLOWED:
                del self._followed[next(iter(self._followed))]

    def dispatched(self, service: str, seconds: float, events: Sequence[Mapping[str, Any]]) -> None:
        """Record the span of a dispatch, which has taken `seconds`, and one for each traced event in it."""
        if self._followed:
            for event in events:
                of = self._followed.get(event.get("_id", ""))
                if of is not None:
                    self._dispatch(service, seconds, of, str(event["_id"]))
        now = self._clock()
        if now - self._passed.get(service, -DISPATCH_SPAN_INTERVAL_S) < DISPATCH_SPAN_INTERVAL_S:
            return
        self._passed[service] = now
        self._dispatch(service, seconds)

    def _dispatch(self, service: str, seconds: float, of: SpanContext | None = None, id_: str | None = None) -> None:
        from opentelemetry.trace import NonRecordingSpan, set_span_in_context

        end = time.time_ns()
        attributes = {"messaging.system": "tidegate", "messaging.destination.name": service}
        self._tracer.start_span(
            f"dispatch {service}",
            context=None if of is None else set_span_in_context(NonRecordingSpan(of)),
            start_time=end - round(seconds * 1e9),
            attributes=attributes if id_ is None else {**attributes, "messaging.message.id": id_},
        ).end(end)

    @contextmanager
    def webhook(
        self, service: str, subscription: str, url: str, records: Sequence[bytes], headers: MutableMapping[str, str]
    ) -> Iterator[Span]:
        """Open the span of a webhook message, and add its `traceparent` to the headers.

        The span of a single event continues the trace of its ingest request. One of several events has links to theirs.
        """
        from opentelemetry.trace import Link, NonRecordingSpan, SpanKind, set_span_in_context

        origins = [of for record in records if (of := self._origin(record)) is not None] if self._followed else []
        is_single = len(records) == 1 and len(origins) == 1
        with self._tracer.start_as_current_span(
            f"webhook {service}",
            context=set_span_in_context(NonRecordingSpan(origins[0])) if is_single else None,
            kind=SpanKind.CLIENT,
            links=[] if is_single else [Link(span) for span in {of.span_id: of for of in origins}.values()],
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

    def _origin(self, record: bytes) -> SpanContext | None:
        """Return the span of the request that ingested an event; None if it was not traced."""
        event = _event(record)
        return self._followed.get(event.get("_id", "")) if isinstance(event, dict) else None


def _ids(headers: Mapping[str, str], body: bytes) -> list[str]:
    """Return the ids that producers gave to the events of a request.

    >>> _ids({"ce-id": "a"}, b"")
    ['a']
    >>> _ids({}, b'{"_id": "a"}\\n{"speed": 7}\\n{"specversion": "1.0", "id": "b"}')
    ['a', 'b']
    """
    if "ce-id" in headers:
        return [headers["ce-id"]]
    if len(body) > MAX_BODY_BYTES:
        return []
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        document = [_event(line) for line in body.splitlines()]
    events = [event for event in (document if isinstance(document, list) else [document]) if isinstance(event, dict)]
    ids = [event.get("id") if "specversion" in event else event.get("_id") for event in events]
    return [id_ for id_ in ids if isinstance(id_, str)]


def _event(line: bytes) -> Any:
    with suppress(orjson.JSONDecodeError):
        return orjson.loads(line)
    return None


def failed(span: Span, reason: str) -> None:
    """Set the status of a span to an error."""
    from opentelemetry.trace import Status, StatusCode

    span.set_status(Status(StatusCode.ERROR, reason))
