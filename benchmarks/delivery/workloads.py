"""The named workloads."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

from benchmarks.delivery.consoles import consoles
from benchmarks.delivery.encrypted import encrypted
from benchmarks.delivery.events import CONSTRAINTS, STREAM
from benchmarks.delivery.fanout import fanout
from benchmarks.delivery.harness import Helper, listening, sending, whole
from benchmarks.delivery.listeners import Wanted
from benchmarks.delivery.models import models
from benchmarks.delivery.most import most
from benchmarks.delivery.stopped import stopped
from benchmarks.delivery.websockets import websockets
from benchmarks.reporting import Row, Setting, measured

SERVICES = f"""
streams: {{taxi: {STREAM}}}
services:
  gps: {{from: taxi, constraints: {CONSTRAINTS}, mask: {{vid: hmac}}}}
"""
SUBSCRIBERS = 1_000
IDLE = 10_000


def sse(setting: Setting) -> Iterator[Row]:
    """A thousand subscribers, each to a thousandth of the events, at 2,000 and at 10,000 events per second."""
    wanted = [Wanted("gps", f"cell = {n}") for n in range(SUBSCRIBERS)]
    with whole(SERVICES) as up, listening(up.port, wanted) as subscribers:
        for rate, p50, p99 in ((2_000, 10.0, 50.0), (10_000, 20.0, 100.0)):
            seconds, size = setting.warm_s + setting.measured_s, max(1, rate // 200)
            with sending(up.port, "taxi", rate, seconds, SUBSCRIBERS, size) as sender:
                time.sleep(setting.warm_s)
                subscribers.ask()
                time.sleep(setting.measured_s - 2)
                found = subscribers.ask()
                count, spent = _sent(sender)
            what = f"{SUBSCRIBERS:,} SSE subscribers, 0.1 % each, {rate:,} events/s"
            yield measured(f"{what}: p50", found["p50"], "ms", p50)
            yield measured(f"{what}: p99", found["p99"], "ms", p99)
            yield measured(f"{what}: longest", found["longest"], "ms")
            yield measured(f"{what}: deliveries", found["count"] / (setting.measured_s - 2), "1/s")
            yield measured(f"{what}: acknowledged", count / spent, "1/s")


def ingest(setting: Setting) -> Iterator[Row]:
    """The maximum rate of ingest, in requests of 500 events."""
    with whole(SERVICES) as up, sending(up.port, "taxi", 0, setting.measured_s, SUBSCRIBERS, 500) as sender:
        count, spent = _sent(sender)
    yield measured("NDJSON over HTTP in batches of 500: acknowledged", count / spent, "events/s", least=40_000)


def memory(_: Setting) -> Iterator[Row]:
    """The cost of idle connections."""
    with whole(SERVICES) as up:
        before = up.resident_bytes()
        with listening(up.port, [Wanted("gps", "cell = -1")] * IDLE):
            time.sleep(2)
            each = (up.resident_bytes() - before) / IDLE / 1024
    yield measured(f"{IDLE:,} idle SSE connections: memory of each", each, "KB", 30.0)


def _sent(sender: Helper) -> tuple[int, float]:
    count, spent = json.loads(sender.hear())
    return count, spent


WORKLOADS: dict[str, Callable[[Setting], Iterator[Row]]] = {
    "sse": sse,
    "ingest": ingest,
    "memory": memory,
    "websockets": websockets,
    "stopped": stopped,
    "consoles": consoles,
    "fanout": fanout,
    "models": models,
    "most": most,
    "tls": encrypted,
}
