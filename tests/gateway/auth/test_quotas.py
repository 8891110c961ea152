"""How much one caller may have and do: counted alone, and over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.exceptions import InvalidStatus

from tests.gateway.receiver import Receiver
from tests.gateway.routes.test_events import SSE, listening
from tests.gateway.running import World
from tests.gateway.transports.test_websocket import opened
from tests.pipelines.running import until
from tidegate.gateway.auth.callers import ANYBODY, GUEST, Caller
from tidegate.gateway.auth.quotas import Bucket, Meter
from tidegate.gateway.http.problems import HttpProblem
from tidegate.gateway.settings import AccessSettings, Quotas

MINE = Caller("key_1", "mine", "provider")
MORE = "an admin gives more with a key (tidegate keys create --quota NAME=NUMBER) or in the profile (access: {quotas})"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def refused(quota: str, meter: Meter, caller: Caller = MINE) -> dict[str, Any]:
    with pytest.raises(HttpProblem) as caught:
        meter.take(quota, caller)
    return caught.value.document


@contextmanager
def under_way(meter: Meter) -> Iterator[None]:
    meter.begin(MINE)
    try:
        yield
    finally:
        meter.end(MINE)


def test_released_use_may_be_taken_again() -> None:
    meter = Meter(Quotas(connections=2))
    meter.take("connections", MINE)
    meter.take("connections", MINE)
    said = refused("connections", meter)
    assert said["detail"] == f"the key 'mine' has all 2 connections that it may have at once; {MORE}"
    assert (said["status"], said["type"], said["quota"], said["limit"]) == (
        429,
        "urn:tidegate:problem:quota",
        "connections",
        2,
    )
    meter.take("connections", ANYBODY)
    meter.take("subscriptions", MINE)
    meter.give_back("connections", MINE)
    meter.take("connections", MINE)
    refused("connections", meter)


def exchange(*meters: Meter) -> None:
    """Exchange the reports of gateways, which they do once per second; as JSON, as in the registry."""
    reports = [json.loads(json.dumps(meter.report())) for meter in meters]
    for n, meter in enumerate(meters):
        meter.note_others(reports[:n] + reports[n + 1 :])


def test_use_at_other_gateways_counts() -> None:
    one, other, third = (Meter(Quotas(connections=5, subscriptions=1)) for _ in range(3))
    for meter in (one, one, other, other):
        meter.take("connections", MINE)
    one.take("subscriptions", MINE)
    exchange(one, other, third)
    third.take("connections", MINE)
    for meter in (one, other, third):
        exchange(one, other, third)
        assert refused("connections", meter)["limit"] == 5
    refused("subscriptions", other)
    other.take("connections", Caller("key_2", "other", "consumer"))
    one.give_back("connections", MINE)
    one.give_back("subscriptions", MINE)
    exchange(one, other, third)
    other.take("connections", MINE)
    other.take("subscriptions", MINE)


def test_connections_of_one_gateway_are_shared_only_among_its_own_callers() -> None:
    one, other = (Meter(Quotas(connections=10), max_connections=3) for _ in range(2))
    for meter in (one, other):
        for _ in range(3):
            meter.take("connections", MINE)
        exchange(one, other)
    said = refused("connections", one)
    assert said["detail"] == f"the key 'mine' has all 3 connections that it may have at once; {MORE}"
    rich = Caller("key_2", "rich", "consumer", quotas=(("connections", 4),))
    for _ in range(4):
        one.take("connections", rich)


@given(
    st.lists(st.lists(st.sampled_from([0, 1, 30, 400]), min_size=40, max_size=40), min_size=1, max_size=4),
)
def test_rate_holds_over_all_gateways(demands: list[list[int]]) -> None:
    """Each gateway sends what its caller demands in tenths of a second, as far as the rate allows."""
    clock, rate = Clock(), 20.0
    meters = [Meter(Quotas(events=rate), clock) for _ in demands]
    taken = 0
    for tenth in range(40):
        if tenth % 10 == 0:
            exchange(*meters)
        for meter, demand in zip(meters, demands, strict=True):
            if demand[tenth]:
                with suppress(HttpProblem):
                    meter.need_events(MINE)
                    meter.took_events(MINE, demand[tenth])
                    taken += demand[tenth]
        clock.now += 0.1
    # A full bucket at each gateway, one request that exceeds it, and a second until they know of each other.
    assert taken <= rate * 4 + len(meters) * (rate + 400) + (len(meters) - 1) * rate


def test_steady_callers_of_several_gateways_share_a_rate() -> None:
    clock = Clock()
    one, other = (Meter(Quotas(requests=10), clock) for _ in range(2))
    counts = [0, 0]
    for tenth in range(600):
        if tenth % 10 == 0:
            exchange(one, other)
        for n, meter in enumerate((one, other)):
            for _ in range((3, 9)[n]):  # 30 and 90 a second
                with suppress(HttpProblem):
                    meter.begin(MINE)
                    meter.end(MINE)
                    counts[n] += 1
        clock.now += 0.1
    assert 600 <= sum(counts) <= 640
    assert min(counts) > 250
    for tenth in range(600):  # only one of them is used from now on
        if tenth % 10 == 0:
            exchange(one, other)
        with suppress(HttpProblem):
            one.begin(MINE)
            one.end(MINE)
            counts[0] += 1
        clock.now += 0.1
    assert sum(counts) >= 1_180


def test_report_of_another_version_is_ignored() -> None:
    meter = Meter(Quotas(connections=1))
    meter.note_others([None, 7, {"connections": 3}, {"connections": {"key_1": "many"}}, {"new": {"key_1": 9}}])
    meter.take("connections", MINE)


def test_key_has_its_own_quota_and_a_new_token_shares_the_old() -> None:
    meter = Meter(Quotas(connections=1))
    rich = Caller("key_2", "rich", "consumer", quotas=(("connections", 3), ("of another version", 1)))
    for _ in range(3):
        meter.take("connections", rich)
    refused("connections", meter, rich)
    meter.take("connections", Caller("https://id#a", "a", "consumer", groups=frozenset({"x"})))
    said = refused("connections", meter, Caller("https://id#a", "a", "consumer"))
    assert said["detail"].startswith("the token of 'a' has all 1")
    meter.take("connections", GUEST)
    assert refused("connections", meter, GUEST)["detail"].startswith("a caller without a key (guest) has all 1")


def test_quota_of_none_is_unlimited() -> None:
    meter = Meter(Quotas(connections=None))
    for _ in range(1000):
        meter.take("connections", MINE)
    with under_way(meter):
        meter.need_events(MINE)


def test_ingested_events_are_charged_afterwards() -> None:
    clock = Clock()
    meter = Meter(Quotas(events=100), clock)
    meter.need_events(MINE)
    meter.took_events(MINE, 350)
    with pytest.raises(HttpProblem) as caught:
        meter.need_events(MINE)
    assert caught.value.headers == {"retry-after": "3"}
    assert caught.value.document["detail"] == f"the key 'mine' may send 100 events a second; {MORE}"
    meter.need_events(ANYBODY)
    clock.now = 2.49
    with pytest.raises(HttpProblem):
        meter.need_events(MINE)
    clock.now = 2.5
    meter.need_events(MINE)


def test_requests_are_charged_before() -> None:
    clock = Clock()
    meter = Meter(Quotas(requests=2), clock)
    for _ in range(2):
        with under_way(meter):
            pass
    with pytest.raises(HttpProblem, match="may send 2 requests a second"), under_way(meter):
        pass
    clock.now = 0.5
    with under_way(meter):
        pass


@given(
    st.floats(0.5, 1e6),
    st.lists(st.tuples(st.floats(0, 10), st.floats(0, 100)), max_size=50),
)
def test_rate_is_never_exceeded_in_any_interval(rate: float, asked: list[tuple[float, float]]) -> None:
    """A caller that waits as requested uses at most one second's tokens plus those added since."""
    clock = Clock()
    bucket = Bucket(rate, clock)
    spent: list[tuple[float, float]] = []
    for pause_s, count in asked:
        wanted = min(count, max(1.0, rate))
        clock.now += pause_s
        clock.now += bucket.wait_s(wanted)
        bucket.spend(wanted)
        spent.append((clock.now, wanted))
    for n, (first, _) in enumerate(spent):
        total = 0.0
        for moment, count in spent[n:]:
            total += count
            assert total <= max(1.0, rate) + rate * (moment - first) + 1e-6 * rate * max(1.0, moment)


def test_filter_beyond_the_quota_is_refused() -> None:
    meter = Meter(Quotas(filter_bytes=10))
    meter.need_filter(MINE, "speed > 60")
    meter.need_filter(MINE, None)
    with pytest.raises(HttpProblem, match="expected a filter of at most 10 bytes, not 11") as caught:
        meter.need_filter(MINE, "speed > 6ä1"[:9] + "ä")
    assert (caught.value.status, caught.value.document["quota"], caught.value.document["limit"]) == (
        429,
        "filter_bytes",
        10,
    )


def test_page_is_limited_to_one_second_of_the_rate() -> None:
    clock = Clock()
    meter = Meter(Quotas(deliveries=10), clock)
    assert meter.need_deliveries(ANYBODY, 1_000) == 10
    assert meter.need_deliveries(MINE, 3) == 3
    meter.delivered(MINE, 10)
    with pytest.raises(HttpProblem) as caught:
        meter.need_deliveries(MINE, 3)
    assert caught.value.document["detail"] == f"the key 'mine' may get 10 events a second; {MORE}"
    assert (caught.value.status, caught.value.headers) == (429, {"retry-after": "1"})
    meter.need_deliveries(ANYBODY, 3)
    clock.now = 0.1
    assert meter.need_deliveries(MINE, 3) == 3
    assert Meter(Quotas()).need_deliveries(MINE, 1_000) == 1_000


@given(st.floats(0.5, 50), st.lists(st.floats(0, 3), max_size=10))
def test_delivery_rate_is_shared_by_all_subscriptions(rate: float, pauses: list[float]) -> None:
    clock = Clock()
    meter = Meter(Quotas(deliveries=rate), clock)
    paces = [meter.pace(MINE), meter.pace(MINE)]
    taken = 0
    for pause_s in pauses:
        clock.now += pause_s
        for each in paces:
            assert each is not None
            while each.take():
                taken += 1
            clock.now += each.wait_s() + 1e-9
            assert each.take()
            each.give_back()
    assert taken <= max(1.0, rate) + rate * clock.now + 1e-6 * rate * max(1.0, clock.now)
    assert Meter(Quotas()).pace(MINE) is None


# Over HTTP ------------------------------------------------------------------------------------


def serving(tmp_path: Path, **quotas: Any) -> World:
    world = World(tmp_path)
    world.access = AccessSettings(quotas=Quotas(**quotas))
    world.tell_running("gps", "fast")
    return world


def test_quotas_over_http(tmp_path: Path) -> None:
    world = serving(tmp_path, connections=2, subscriptions=3, durable=1, events=5, filter_bytes=50)
    _, secret = world.registry.create_key("rich", "admin", quotas={"durable": 2, "events": 1e9})
    rich = {"authorization": f"Bearer {secret}"}
    with world.running(), world.client() as http:
        path = "/v1/services/gps/subscriptions"
        assert http.post(path, json={}).status_code == 201
        answer = http.post(path, json={})
        assert (answer.status_code, answer.json()["quota"]) == (429, "durable")
        assert [http.post(path, json={}, headers=rich).status_code for _ in range(3)] == [201, 201, 429]

        long = "speed > 1 OR speed > 2 OR speed > 3 OR speed > 4 OR speed > 5"
        assert http.get("/v1/services/gps/events", params={"filter": long}).status_code == 429
        assert http.post(path, json={"filter": long}, headers={}).status_code == 429

        events = [{"vid": "B1", "speed": 1.0, "time": "2026-01-01T00:00:00Z"}] * 20
        assert http.post("/v1/streams/gps_taxi/events", json=events).json()["accepted"] == 20
        answer = http.post("/v1/streams/gps_taxi/events", json=events)
        assert (answer.status_code, answer.json()["limit"], answer.headers["retry-after"]) == (429, 5, "3")
        assert http.post("/v1/streams/gps_taxi/events", json=events, headers=rich).json()["accepted"] == 20
        assert len(world.log.read("gps_taxi", world.log.begin("gps_taxi"), 100).records) == 40


def test_connections_are_counted_until_they_end(tmp_path: Path) -> None:
    world = serving(tmp_path, connections=2, subscriptions=3, filter_bytes=50)
    with world.running(), world.client() as http:
        with opened(world) as client, opened(world) as other:
            answer = http.get("/v1/services")
            assert (answer.status_code, answer.json()["quota"]) == (429, "connections")
            with pytest.raises(InvalidStatus) as caught, opened(world):
                pass
            response = caught.value.response
            assert (response.status_code, json.loads(response.body)["quota"]) == (429, "connections")
            assert http.get("/livez").status_code == 200
            for id_ in "ab":
                assert client.ask("subscribe", id=id_, service="gps")["op"] == "subscribed"
            assert other.ask("subscribe", id="a", service="gps")["op"] == "subscribed"
            assert other.ask("subscribe", id="b", service="gps")["problem"]["quota"] == "subscriptions"
            assert client.ask("unsubscribe", id="a")["op"] == "unsubscribed"
            assert other.ask("subscribe", id="b", service="gps")["op"] == "subscribed"
            assert other.ask("change", id="b", filter="speed > " + "1" * 50)["problem"]["quota"] == "filter_bytes"
            assert (
                other.ask("subscribe", id="c", service="gps", filter="speed > " + "1" * 50)["problem"]["status"] == 429
            )

        def answers() -> bool:
            return http.get("/v1/services").status_code == 200

        until(answers, "sockets to be closed")
        with opened(world) as client:
            for id_ in "abc":
                assert client.ask("subscribe", id=id_, service="gps")["op"] == "subscribed"


def test_every_transport_counts_subscriptions(tmp_path: Path) -> None:
    world = serving(tmp_path, subscriptions=1)
    path, here = "/v1/services/gps/subscriptions", "/v1/services/gps/events"
    with world.running(), world.client() as http:
        id_ = http.post(path).json()["id"]
        answer = http.post(path)
        assert (answer.status_code, answer.json()["quota"]) == (429, "subscriptions")
        assert "has all 1 subscriptions that it may have at once" in answer.json()["detail"]
        with listening(http, {}), opened(world) as client:
            assert client.ask("subscribe", id="a", service="gps")["problem"]["quota"] == "subscriptions"
            for refused in (here, f"/v1/subscriptions/{id_}/events"):
                assert http.get(refused, headers=SSE).json()["quota"] == "subscriptions"
                assert http.get(refused).status_code == 200
        until(lambda: world.counts() == {}, "it to be forgotten")
        with opened(world) as client:
            assert client.ask("subscribe", id="a", service="gps")["op"] == "subscribed"


def test_delivery_rate_limits_events_without_loss(tmp_path: Path) -> None:
    world = serving(tmp_path, deliveries=200)
    _, secret = world.registry.create_key("slow", "admin", quotas={"deliveries": 0.001})
    slow = {"authorization": f"Bearer {secret}"}
    world.append(300)
    path, everything = "/v1/services/gps/events", {"from": "beginning"}
    with world.running(), world.client() as http:
        first = http.get(path, params=everything, headers=slow)
        assert (first.status_code, len(first.json()["events"])) == (200, 1)
        durable = http.post("/v1/services/gps/subscriptions", json=everything, headers=slow).json()["id"]
        for refused in (path, f"/v1/subscriptions/{durable}/events"):
            answer = http.get(refused, params={"cursor": first.json()["cursor"]}, headers=slow)
            assert (answer.status_code, answer.json()["quota"], answer.json()["limit"]) == (429, "deliveries", 0.001)
            assert answer.headers["retry-after"] == "1000"
        with listening(http, everything, slow) as events:  # it begins, and waits
            with listening(http, everything) as others, opened(world) as client:
                client.ask("subscribe", id="a", service="gps", **everything)
                ids = [f"gps_taxi:0:{n}" for n in range(300)]
                assert [each["id"] for each in others.take(300)] == ids
                assert [each["event"]["id"] for each in client.take(300)] == ids
                with listening(http, {**everything, "every": "10ms"}) as newest:
                    assert [each["id"] for each in newest.take(10)] == ids[-10:]
            assert events.last_id == ""


def test_webhook_keeps_to_its_owners_delivery_rate(tmp_path: Path) -> None:
    world, receiver = serving(tmp_path, deliveries=100), Receiver()
    world.append(150)
    with receiver.running(), world.running(), world.client() as http:
        said = {"deliver": {"webhook": {"url": receiver.url, "batch": 1000}}, "from": "beginning"}
        assert http.post("/v1/services/gps/subscriptions", json=said).status_code == 201
        until(lambda: len(receiver.taken) >= 150, "all of it")
    assert receiver.taken == list(range(150))
    assert len(receiver.got) > 1


def test_requests_beyond_the_rate_are_refused(tmp_path: Path) -> None:
    world = serving(tmp_path, requests=1)
    with world.running(), world.client() as http:
        answers: list[httpx.Response] = [http.get("/v1/services") for _ in range(3)]
        assert answers[-1].status_code == 429
        assert answers[-1].headers["retry-after"] == "1"
