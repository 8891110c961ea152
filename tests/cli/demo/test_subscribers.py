"""The demo's subscribers, on a real gateway: each kind gets its events, and leaves nothing behind."""

from __future__ import annotations

import json
import time
from pathlib import Path

from tests.gateway.running import World
from tests.pipelines.running import until
from tidegate.cli.demo.subscribers import DemoSubscribers
from tidegate.model import timestamps

SERVICES = """
streams: {taxis: {schema: {speed: float64, satellites: int64, longitude: float64, latitude: float64}}}
services: {gps: {from: taxis}, speeding: {from: gps}}
"""


def test_every_kind_of_subscriber_gets_events_and_unsubscribes(tmp_path: Path) -> None:
    world = World(tmp_path, SERVICES)
    with world.running():
        subscribers = DemoSubscribers(world.url)
        sent = 0

        def all_have_events() -> bool:
            nonlocal sent
            moment = timestamps.to_text(time.time_ns() // 1_000)
            for service in ("gps", "speeding"):
                for speed in (0.5, 90.0):
                    event = {"speed": speed, "satellites": 9, "longitude": 116.4, "latitude": 39.9}
                    record = {"_id": f"e{sent}", "_src": f"taxis/0:{sent}", "_time": moment, **event}
                    world.log.append(service, "gps_taxi.0", [json.dumps(record).encode()])
                    sent += 1
            return all(subscriber.events for subscriber in subscribers.subscribers)

        until(all_have_events, "events at every subscriber", interval_s=0.05)
        subscribers.stop()
        assert {subscriber.kind for subscriber in subscribers.subscribers} == {"SSE", "WebSocket", "polling", "webhook"}
        summaries = [subscriber.summary() for subscriber in subscribers.subscribers]
        assert all(0 <= summary["p50_ms"] <= summary["p99_ms"] for summary in summaries)
        assert world.registry.subscriptions() == {}
