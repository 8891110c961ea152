"""Several gateways over one Kafka and one PostgreSQL share their work, and what they know of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cluster.gateways import MAX_SUBSCRIPTIONS, Cluster, GatewayProcess, Inboxes
from tests.gateway.test_links_kill import SECRET, made
from tests.kafka_broker import Broker
from tests.polling import until
from tests.postgres_server import postgres_or_skip, running
from tidegate.client import Client

pytestmark = [pytest.mark.kafka, pytest.mark.postgres, pytest.mark.processes, pytest.mark.xdist_group("broker")]

WEBHOOKS = 12
FAR = """
streams: {gps_taxi: {schema: {vid: string, speed: float64, time: timestamp}, event_time: time}}
services: {gps: {from: gps_taxi}}
"""
SERVICE = "gps@far"


@pytest.fixture(scope="module")
def cluster(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two gateways that all tests of this file share."""
    with running(postgres_or_skip()) as postgres:
        cluster = Cluster(tmp_path_factory.mktemp("cluster"), broker.address, postgres)
        try:
            cluster.start(2, ["--broker", "city"])
            yield cluster
        finally:
            cluster.close()


def test_event_that_is_sent_again_to_another_gateway_is_not_doubled(cluster: Cluster) -> None:
    first, second = cluster.gateways
    assert _publish(first, range(50)) == (50, 0)
    assert _publish(second, range(60)) == (10, 50)
    assert _publish(first, range(40, 70)) == (10, 20)
    rounds = range(100, 200, 5)
    for n in rounds:  # a producer that gets no answer in time asks the next gateway, and so on
        for each in (first, second, first):
            _publish(each, range(n, n + 10))
    read = cluster.log.read("trips_raw", cluster.log.begin("trips_raw"), 1_000)
    ids = [json.loads(record)["_id"] for record in read.records]
    assert sorted(ids) == sorted(f"e{n}" for n in (*range(70), *range(100, 205)))


def _publish(gateway: GatewayProcess, numbers: Iterable[int]) -> tuple[int, int]:
    body = "".join(json.dumps({"_id": f"e{n}", "n": n}) + "\n" for n in numbers)
    headers = {"content-type": "application/x-ndjson"}
    answer = gateway.http.post("/v1/streams/trips_raw/events", content=body, headers=headers).raise_for_status().json()
    return answer["accepted"], answer["duplicates"]


def test_quota_holds_over_both_gateways(cluster: Cluster) -> None:
    with ExitStack() as connected:
        for n in range(MAX_SUBSCRIPTIONS):
            connected.enter_context(_subscribed(cluster.gateways[n % 2]))
        for gateway in cluster.gateways:
            refused = until(lambda gateway=gateway: _is_refused(gateway), "a subscriber to be refused", 60)  # type: ignore[misc]
            assert f"has all {MAX_SUBSCRIPTIONS} subscriptions that it may have at once" in refused
    for gateway in cluster.gateways:
        until(lambda gateway=gateway: not _is_refused(gateway), "a subscriber to be accepted again", 60)  # type: ignore[misc]


def _subscribed(gateway: GatewayProcess) -> AbstractContextManager[httpx.Response]:
    return gateway.http.stream("GET", "/v1/services/trips/events", headers={"accept": "text/event-stream"})


def _is_refused(gateway: GatewayProcess) -> str:
    """Return why one more subscriber is refused; an empty text if it is not."""
    with _subscribed(gateway) as answer:
        return str(json.loads(answer.read())["detail"]) if answer.status_code == 429 else ""


def test_subscribers_of_another_broker_get_all_events_at_every_gateway(cluster: Cluster, tmp_path: Path) -> None:
    """One of the gateways holds the links; each has a subscriber from the beginning and one from now on."""
    origin, world = made(tmp_path, "far", FAR)
    world.append(10)
    with origin.running(), ThreadPoolExecutor() as pool:
        origin.ask("POST", "links", json={"name": "city", "secret": SECRET})
        said = {"name": "far", "url": origin.url, "secret": SECRET}
        cluster.gateways[0].http.post("/v1/links", json=said).raise_for_status()
        for gateway in cluster.gateways:
            until(lambda gateway=gateway: _knows(gateway, SERVICE), "the service to be known", 60)  # type: ignore[misc]
        cursors = [_page(gateway, {"from": "now"})["cursor"] for gateway in cluster.gateways]
        streams = [pool.submit(_stream, gateway, 20) for gateway in cluster.gateways]
        world.append(10)
        for gateway, cursor, stream in zip(cluster.gateways, cursors, streams, strict=True):
            assert _consumed(gateway, cursor, 10) == [f"gps_taxi:0:{n}" for n in range(10, 20)]
            assert stream.result(90) == [f"gps_taxi:0:{n}" for n in range(20)]
    world.log.close()
    world.registry.close()


def _knows(gateway: GatewayProcess, service: str) -> bool:
    return any(each["name"] == service for each in gateway.http.get("/v1/services").json()["services"])


def _page(gateway: GatewayProcess, parameters: dict[str, str]) -> dict[str, Any]:
    accept = {"accept": "application/json"}
    answer = gateway.http.get(f"/v1/services/{SERVICE}/events", params=parameters, headers=accept)
    page: dict[str, Any] = answer.raise_for_status().json()
    return page


def _consumed(gateway: GatewayProcess, cursor: str, count: int) -> list[str]:
    """Return the ids of the events behind a cursor, as soon as there are so many."""
    ids: list[str] = []

    def is_all() -> bool:
        nonlocal cursor
        page = _page(gateway, {"cursor": cursor, "wait": "1s"})
        ids.extend(event["id"] for event in page["events"])
        cursor = page["cursor"]
        return len(ids) >= count

    until(is_all, f"{count} events", 90)
    return ids


def _stream(gateway: GatewayProcess, count: int) -> list[str]:
    """Return the ids of the first events that a subscriber from the beginning gets."""
    with Client(str(gateway.http.base_url)) as client, client.subscribe(SERVICE, since="beginning") as events:
        return [event.id for event in islice(events, count)]


def test_webhooks_move_between_gateways_without_a_lost_or_doubled_event(cluster: Cluster) -> None:
    first, second = cluster.gateways
    stop = threading.Event()
    with Inboxes().running() as inboxes:
        for n in range(WEBHOOKS):
            webhook = {"url": f"{inboxes.url}/{n}", "handshake": False}
            path = "/v1/services/trips/subscriptions"
            first.http.post(path, json={"deliver": {"webhook": webhook}}).raise_for_status()
        until(lambda: len(cluster.holders()) == 2, "both gateways to deliver webhooks", 60)
        load = threading.Thread(target=_append_until, args=(cluster, stop))
        load.start()
        try:
            (third,) = cluster.start(1, ["--broker", "city"])
            until(lambda: len(cluster.holders()) == 3, "the third gateway to deliver webhooks", 60)
            second.pause()
            first.kill()
            until(lambda: len(cluster.holders()) == 1, "the third gateway to deliver all webhooks", 60)
            second.resume()
            until(lambda: len(cluster.holders()) == 2, "the second gateway to have its webhooks again", 60)
        finally:
            stop.set()
            load.join()
        until(lambda: _shares(second, third) == WEBHOOKS, "the metrics to say who delivers how many", 60)
        wanted = set(range(cluster.sent))
        until(lambda: all(wanted <= _numbers(inboxes, n) for n in range(WEBHOOKS)), "all events at all receivers", 60)
        for n in range(WEBHOOKS):
            _check(inboxes.messages[f"/{n}"])
    assert third.http.get("/livez").status_code == 200


def _shares(*gateways: GatewayProcess) -> float:
    """How many webhooks some gateways deliver by their metrics; 0 if one of them delivers none."""
    texts = [gateway.http.get("/metrics").text for gateway in gateways]
    shares = [float(text.partition("\ntidegate_webhooks ")[2].split()[0]) for text in texts]
    return sum(shares) if all(shares) else 0.0


def _append_until(cluster: Cluster, stop: threading.Event) -> None:
    while not stop.wait(0.1):
        cluster.append(4)


def _numbers(inboxes: Inboxes, n: int) -> set[int]:
    return {number for _, number in list(inboxes.messages[f"/{n}"])}


def _check(messages: list[tuple[str, int]]) -> None:
    """A repeated event has the id of its first message, and the first messages are in order in each partition."""
    ids: dict[int, str] = {}
    for id_, number in messages:
        assert ids.setdefault(number, id_) == id_, f"event {number} has two webhook-ids"
    assert len(set(ids.values())) == len(ids)
    for partition in (0, 1):
        firsts = [number for number in ids if number % 2 == partition]
        assert firsts == sorted(firsts)
