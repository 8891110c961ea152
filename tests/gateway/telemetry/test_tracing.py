"""Spans, as a real receiver of OTLP over HTTP gets them."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import structlog

from tests.gateway.receiver import Receiver
from tests.gateway.running import World
from tests.pipelines.running import until
from tidegate.gateway.telemetry import tracing
from tidegate.gateway.telemetry.tracing import Tracing, tracing_of

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
OTHER = "1bf7651916cd43dd8448eb211c80319d"


class Collector:
    """Takes spans, as OpenTelemetry's own collector does."""

    def __init__(self) -> None:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        self.spans: list[Any] = []
        self.services: set[str] = set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                told = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["content-length"])))
                for resource in told.resource_spans:
                    named = {each.key: each.value.string_value for each in resource.resource.attributes}
                    collector.services.add(named["service.name"])
                    for scope in resource.scope_spans:
                        collector.spans += scope.spans
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def named(self, name: str) -> Any:
        until(lambda: any(each.name == name for each in self.spans), f"a span {name}")
        return next(each for each in self.spans if each.name == name)


@pytest.fixture
def collector() -> Iterator[Collector]:
    found = Collector()
    thread = threading.Thread(target=found.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield found
    found.server.shutdown()
    found.server.server_close()
    thread.join()


@pytest.fixture
def world(tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    made = World(tmp_path)
    made.environment = dict(os.environ)
    made.tell_running("gps", "fast")
    with made.running() as found:
        yield found


def said(span: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


def test_ingest_continues_the_producers_trace(world: World, collector: Collector) -> None:
    event = {"vid": "B1", "speed": 7.0, "time": "2026-01-01T00:00:00Z"}
    envelope = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/van", "ce-type": "t"}
    traces = {"traceparent": f"00-{TRACE}-{PARENT}-01", "ce-traceparent": f"00-{OTHER}-{PARENT}-01"}
    with world.client() as http:
        answer = http.post("/v1/streams/gps_taxi/events", json=event, headers={**envelope, **traces})
    assert answer.status_code == 200, answer.text
    span = collector.named("ingest gps_taxi")
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
    assert [each.trace_id.hex() for each in span.links] == [OTHER]
    assert said(span)["tidegate.accepted"] == 1
    assert collector.services == {"tidegate"}


def test_receiver_can_continue_the_trace_of_a_webhook(world: World, collector: Collector) -> None:
    receiver = Receiver()
    receiver.statuses = [500]
    with receiver.running(), world.client() as http:
        made = http.post(
            "/v1/services/gps/subscriptions", json={"deliver": {"webhook": {"url": f"{receiver.url}?k=1"}}}
        )
        assert made.status_code == 201, made.text
        world.append(1)
        until(lambda: len(receiver.got) == 2, "the message, twice")
        span = collector.named("webhook gps")
        until(lambda: [each.name for each in collector.spans].count("webhook gps") == 2, "both spans")
    assert span.status.message == "answered 500: thanks"
    assert said(span)["url.full"] == receiver.url
    assert said(span)["tidegate.subscription"] == made.json()["id"]
    for got, each in zip(receiver.got, [s for s in collector.spans if s.name == "webhook gps"], strict=True):
        assert got.headers["traceparent"].startswith(f"00-{each.trace_id.hex()}-{each.span_id.hex()}-")


def test_dispatch_has_a_span(world: World, collector: Collector) -> None:
    from tidegate import Client

    with Client(world.url) as client, client.subscribe("gps") as events:
        until(lambda: world.counts()["gps"]["live"] == 1, "the subscriber")
        world.append(1)
        next(iter(events))
        span = collector.named("dispatch gps")
    assert 0 < span.end_time_unix_nano - span.start_time_unix_nano < 60e9


def test_dispatch_continues_the_trace_of_an_event(world: World, collector: Collector) -> None:
    from tidegate import Client

    event = {"_id": "van-1", "vid": "B1", "speed": 7.0, "time": "2026-01-01T00:00:00Z"}
    with world.client() as http, Client(world.url) as client, client.subscribe("gps") as events:
        until(lambda: world.counts()["gps"]["live"] == 1, "the subscriber")
        traced = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
        assert http.post("/v1/streams/gps_taxi/events", json=event, headers=traced).status_code == 200
        ingest = collector.named("ingest gps_taxi")
        world.log.append("gps", "gps_taxi.0", [json.dumps({**event, "_src": "gps_taxi/0:0"}).encode()])
        next(iter(events))
        until(lambda: any(each.parent_span_id for each in collector.spans if each.name == "dispatch gps"), "its child")
    child = next(each for each in collector.spans if each.name == "dispatch gps" and each.parent_span_id)
    assert (child.trace_id.hex(), child.parent_span_id) == (TRACE, ingest.span_id)
    assert said(child)["messaging.message.id"] == "van-1"


def test_webhook_continues_the_trace_of_an_event(world: World, collector: Collector) -> None:
    events = [{"_id": f"van:{n}", "vid": "B1", "speed": 7.0, "time": "2026-01-01T00:00:00Z"} for n in range(3)]
    records = [json.dumps({**event, "_src": f"gps_taxi/0:{n}"}).encode() for n, event in enumerate(events)]
    receiver = Receiver()
    with receiver.running(), world.client() as http:
        for batch in (1, 10):
            hook = {"url": f"{receiver.url}?batch={batch}", "batch": batch, "handshake": False}
            assert http.post("/v1/services/gps/subscriptions", json={"deliver": {"webhook": hook}}).status_code == 201
        traced = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
        assert http.post("/v1/streams/gps_taxi/events", json=events[:2], headers=traced).status_code == 200
        ingest = collector.named("ingest gps_taxi")
        world.log.append("gps", "gps_taxi.0", records)
        until(lambda: sum(said(each)["messaging.batch.message_count"] for each in hooks(collector)) == 6, "all spans")
    alone = [each for each in hooks(collector) if said(each)["messaging.batch.message_count"] == 1]
    ours = [each for each in alone if each.parent_span_id == ingest.span_id]
    assert len(ours) >= 2
    assert {each.trace_id.hex() for each in ours} == {TRACE}
    for each in hooks(collector):
        if each not in alone:
            assert [link.trace_id.hex() for link in each.links] == [TRACE]


def hooks(collector: Collector) -> list[Any]:
    return [each for each in collector.spans if each.name == "webhook gps"]


def test_dispatch_spans_are_limited_per_interval(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    now = 0.0
    made = Tracing(OTLPSpanExporter(f"{collector.url}/v1/traces"), {"service.name": "mine"}, lambda: now)
    for n in range(100):
        now = n / 20
        made.dispatched("gps", 0.001, [])
        made.dispatched("fast", 0.001, [])
    made.close()
    assert [each.name for each in collector.spans].count("dispatch gps") == 5
    assert len(collector.spans) == 10


def test_tracing_is_off_without_an_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    where = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    assert tracing_of({}) is None
    assert tracing_of({**where, "OTEL_SDK_DISABLED": "TRUE"}) is None
    assert tracing_of({**where, "OTEL_TRACES_EXPORTER": "none"}) is None
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with structlog.testing.capture_logs() as told:
        monkeypatch.setattr(tracing, "_log", structlog.get_logger("test"))
        assert tracing_of(where) is None
    assert told[0]["event"] == "no traces: install tidegate[tracing], or leave OTEL_EXPORTER_OTLP_ENDPOINT out"
