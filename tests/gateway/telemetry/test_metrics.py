"""Prometheus metrics of delivery."""

from __future__ import annotations

import re

import httpx

from tests.docs.test_documents import ROOT
from tests.gateway.receiver import Receiver
from tests.gateway.routes.test_discover import say
from tests.gateway.routes.test_events import listening
from tests.gateway.running import World
from tests.gateway.transports.test_websocket import opened
from tests.polling import until

BOUNDS = ("0.0005", "0.001", "0.002", "30.0", "60.0", "300.0", "+Inf")


def told(http: httpx.Client, name: str) -> float | None:
    """The value of a metric with its labels."""
    found = re.search(rf"^{re.escape(name)} (\S+)$", http.get("/metrics").text, re.MULTILINE)
    return None if found is None else float(found[1])


def await_metric(http: httpx.Client, name: str, value: float) -> None:
    until(lambda: told(http, name) == value, f"{name} to be {value}")


def test_events_are_counted_by_transport(world: World, http: httpx.Client) -> None:
    world.append(30)
    http.get("/v1/services/gps/events", params={"from": "beginning", "max": 7})
    assert told(http, 'tidegate_deliveries_total{service="gps",way="poll"}') == 7
    with world.client() as other, listening(other, {"from": "beginning", "filter": "speed < 20"}) as events:
        events.take(20)
        assert told(http, 'tidegate_deliveries_total{service="gps",way="sse"}') == 20
    with opened(world) as client:
        client.say("credit", events=4)
        client.ask("subscribe", id="a", service="gps", **{"from": "beginning"})
        client.take(4)
        assert told(http, 'tidegate_deliveries_total{service="gps",way="websocket"}') == 4
        assert (told(http, 'tidegate_delivery_lag{service="gps"}') or 0) > 0
        client.say("credit", events=1_000)
        client.take(26)
        await_metric(http, 'tidegate_delivery_lag{service="gps"}', 0)


def test_messages_of_webhooks_and_lags_of_durable_subscriptions(world: World, http: httpx.Client) -> None:
    pull = http.post("/v1/services/gps/subscriptions", json={}).json()["id"]
    with Receiver().running() as receiver:
        hook = {"url": receiver.url, "batch": 10, "handshake": False}
        pushed = http.post("/v1/services/gps/subscriptions", json={"deliver": {"webhook": hook}}).json()["id"]
        world.append(10)
        await_metric(http, 'tidegate_deliveries_total{service="gps",way="webhook"}', 10)
        assert (told(http, 'tidegate_webhook_messages_total{outcome="taken",service="gps"}') or 0) >= 1
        await_metric(http, f'tidegate_subscription_lag{{service="gps",subscription="{pushed}"}}', 0)
    behind = sum(len(each) + 1 for each in world.log.read("gps", world.log.begin("gps"), 100).records)
    assert told(http, f'tidegate_subscription_lag{{service="gps",subscription="{pull}"}}') == behind
    cursor = http.get(f"/v1/subscriptions/{pull}/events").json()["cursor"]
    http.post(f"/v1/subscriptions/{pull}/ack", json={"cursor": cursor})
    assert told(http, f'tidegate_subscription_lag{{service="gps",subscription="{pull}"}}') == 0


def test_spark_latency_is_reported(world: World, http: httpx.Client) -> None:
    say(world, "gps", latencies=[1, 0, 4, *[0] * 13, 2, 0], latency_s=99.5, processing=[7, *[0] * 17], processing_s=0.5)
    await_metric(http, 'tidegate_engine_seconds_count{service="gps"}', 7)
    within = {bound: told(http, f'tidegate_engine_seconds_bucket{{le="{bound}",service="gps"}}') for bound in BOUNDS}
    assert within == {"0.0005": 1, "0.001": 1, "0.002": 5, "30.0": 5, "60.0": 5, "300.0": 7, "+Inf": 7}
    assert told(http, 'tidegate_engine_seconds_sum{service="gps"}') == 99.5
    assert told(http, 'tidegate_engine_processing_seconds_bucket{le="0.0005",service="gps"}') == 7
    assert told(http, 'tidegate_engine_processing_seconds_sum{service="gps"}') == 0.5


def test_histograms_of_a_runner_with_other_bounds_are_left_out(world: World, http: httpx.Client) -> None:
    say(world, "gps", latencies=[1, 0, 4, *[0] * 9, 2], latency_s=6.5, read=5)
    await_metric(http, 'tidegate_service_events_read_total{service="gps"}', 5)
    assert told(http, 'tidegate_engine_seconds_count{service="gps"}') is None


def test_every_metric_of_delivery_is_documented(http: httpx.Client) -> None:
    text = (ROOT / "docs" / "spec" / "metrics.md").read_text()
    families = re.findall(r"^# TYPE (\w+) \w+$", http.get("/metrics").text, re.MULTILINE)
    assert len(families) > 8
    for family in families:
        if not family.startswith("tidegate_service_events_") and not family.endswith("_created"):
            assert f"`{family}`" in text, family
