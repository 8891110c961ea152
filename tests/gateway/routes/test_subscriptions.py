"""Durable subscriptions over real HTTP: made, changed, consumed from their cursors, explained."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway.routes.test_events import SSE, Events
from tests.gateway.running import World
from tests.polling import until as until
from tidegate.model import Schema
from tidegate.registry import Role
from tidegate.subscriptions import SubscriptionRecord, Webhook, changed, new_id, wants_handshake


def made(http: httpx.Client, **said: Any) -> dict[str, Any]:
    answer = http.post("/v1/services/gps/subscriptions", json=said)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def page(http: httpx.Client, id_: str, **params: Any) -> dict[str, Any]:
    answer = http.get(f"/v1/subscriptions/{id_}/events", params=params)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def numbers(events: list[Any]) -> list[int]:
    return [int(each["id"].rpartition(":")[2]) for each in events]


@contextmanager
def listening(
    http: httpx.Client, id_: str, headers: dict[str, str] | None = None, params: dict[str, str] | None = None
) -> Iterator[Events]:
    path = f"/v1/subscriptions/{id_}/events"
    with http.stream("GET", path, params=params or {}, headers={**SSE, **(headers or {})}) as answer:
        assert answer.status_code == 200, answer.read()
        yield Events(answer.iter_lines())


# Making -----------------------------------------------------------------------------------


def test_created_subscription_has_an_id_and_a_cursor(http: httpx.Client) -> None:
    answer = http.post(
        "/v1/services/gps/subscriptions",
        json={"filter": "speed > %0", "params": [60], "select": ["vid"], "idle": "30s", "description": "fast ones"},
    )
    assert answer.status_code == 201
    said = answer.json()
    assert answer.headers["location"] == f"/v1/subscriptions/{said['id']}"
    assert answer.headers["etag"] == '"1"'
    assert said["cursor"]
    assert {name: said[name] for name in ("service", "filter", "params", "deliver", "select", "idle", "state")} == {
        "service": "gps",
        "filter": "speed > %0",
        "params": [60],
        "deliver": "pull",
        "select": ["vid"],
        "idle": "30s",
        "state": "active",
    }
    assert http.get(f"/v1/subscriptions/{said['id']}").json() == said
    assert http.get("/v1/services/gps/subscriptions").json() == {"subscriptions": [said]}


@pytest.mark.parametrize(
    ("said", "status", "detail"),
    [
        ({"filtre": "speed > 3"}, 422, "filtre: unknown field 'filtre'; did you mean 'filter'?"),
        ({"zzz": 1}, 422, "zzz: unknown field 'zzz'; expected filter, params, deliver"),
        ({"filter": 3}, 422, "filter: expected a text, not 3"),
        ({"filter": "x" * 20_000}, 422, "filter: expected at most 10,000 characters, not 20,000"),
        ({"filter": "sped > 3"}, 400, "unknown field 'sped'; did you mean 'speed'?"),
        ({"filter": "speed >"}, 400, "expected a value"),
        ({"filter": "speed > %0"}, 400, "%0"),
        ({"filter": "speed > %0", "params": [1, 2]}, 400, "parameter"),
        ({"params": [1]}, 422, "params: expected no parameters, as there is no filter"),
        ({"filter": "speed > %0", "params": 7}, 422, "params: expected a list of values for %0, %1, ..., not 7"),
        ({"filter": "speed > %0", "params": [{}]}, 422, "params[0]: expected a text, a number or a boolean, not {}"),
        ({"select": ["vdi"]}, 422, "select[0]: unknown attribute 'vdi'; did you mean 'vid'?"),
        ({"select": 7}, 422, "select: expected a list of attributes, not 7"),
        ({"select": "vid, vdi"}, 422, "select[1]: unknown attribute 'vdi'; did you mean 'vid'?"),
        ({"select": ""}, 422, "select: expected at least one attribute, or null for all of them"),
        ({"select": []}, 422, "select: expected at least one attribute, or null for all of them"),
        ({"format": "xml"}, 422, "format: expected cloudevents or plain, not 'xml'"),
        ({"every": "soon"}, 422, "every: expected a length of time from 10ms to 1d"),
        ({"every": "1s", "key": "vdi"}, 422, "key: unknown attribute 'vdi'; did you mean 'vid'?"),
        ({"key": "vid"}, 422, "key: expected `every` with it"),
        ({"idle": "0s"}, 422, "idle: expected a length of time"),
        ({"description": []}, 422, "description: expected a text, not []"),
        ({"deliver": "push"}, 422, "deliver: expected 'pull' or {'webhook': {'url': ...}}, not 'push'"),
        (
            {"deliver": {"type": "push"}},
            422,
            "deliver: expected 'pull' or {'webhook': {'url': ...}}, not {'type': 'push'}",
        ),
        ({"deliver": {"type": "sse", "url": "x"}}, 422, "deliver: expected 'pull' or {'webhook': {'url': ...}}, not"),
        ({"deliver": {"type": "webhook", "uri": "x"}}, 422, "deliver.webhook.uri: unknown field 'uri'"),
        ({"deliver": {"webhook": "x"}}, 422, "deliver.webhook: expected an object with a url, not 'x'"),
        ({"deliver": {"webhook": {"uri": "x"}}}, 422, "deliver.webhook.uri: unknown field 'uri'; did you mean 'url'?"),
        ({"deliver": {"webhook": {}}}, 422, "deliver.webhook.url: expected an address such as https://"),
        ({"deliver": {"webhook": {"url": "ftp://x"}}}, 422, "deliver.webhook.url: expected http or https, not 'ftp'"),
        ({"deliver": {"webhook": {"url": "http://"}}}, 422, "deliver.webhook.url: expected a host"),
        ({"deliver": {"webhook": {"url": "http://x:99999"}}}, 422, "is no address: Port out of range"),
        ({"deliver": {"webhook": {"url": "http://a:b@x/"}}}, 422, "expected no user or password in the address"),
        ({"deliver": {"webhook": {"url": "http://x/#a"}}}, 422, "expected no #fragment"),
        ({"deliver": {"webhook": {"url": "http://x", "batch": 0}}}, 422, "expected a whole number from 1 to 1,000"),
        ({"deliver": {"webhook": {"url": "http://x", "handshake": 1}}}, 422, "expected true or false, not 1"),
        ({"deliver": {"webhook": {"url": "http://x"}}, "idle": "1s"}, 422, "idle: expected deliver `pull` with it"),
        ({"from": 3}, 422, "from: expected a text, not 3"),
        ({"from": "soon"}, 400, "from: expected now, beginning, a moment"),
        ({"from": "now", "cursor": "x"}, 400, "expected cursor or from, not both"),
        ({"cursor": "zzz"}, 400, "'zzz' is no cursor"),
        ([], 422, "expected an object with fields, not []"),
    ],
)
def test_invalid_subscriptions_are_refused(shared: httpx.Client, said: Any, status: int, detail: str) -> None:
    answer = shared.post("/v1/services/gps/subscriptions", json=said)
    assert detail in answer.json()["detail"]
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"


def test_all_problems_are_reported_with_pointers(shared: httpx.Client) -> None:
    said = shared.post("/v1/services/gps/subscriptions", json={"select": ["a"], "format": "xml", "fliter": ""}).json()
    assert [each["pointer"] for each in said["errors"]] == ["fliter", "select[0]", "format"]
    said = shared.post("/v1/services/gps/subscriptions", json={"filter": "vid = 'B1' AND sped > 3"}).json()
    assert said["errors"] == [
        {"pointer": "filter", "detail": "unknown field 'sped'; did you mean 'speed'?", "at": 15, "text": "sped"}
    ]


@pytest.mark.parametrize("way", [None, "pull", "sse", "websocket", "poll", {"type": "sse"}])
def test_however_a_consumer_means_to_ask_it_is_pulled(shared: httpx.Client, way: Any) -> None:
    assert made(shared, deliver=way, select="vid, speed")["select"] == ["vid", "speed"]
    assert made(shared, deliver=way)["deliver"] == "pull"


@pytest.mark.parametrize(
    "way",
    [
        "http://127.0.0.1/in",
        {"webhook": "http://127.0.0.1/in"},
        {"url": "http://127.0.0.1/in", "handshake": False},
        {"type": "webhook", "url": "http://127.0.0.1/in", "handshake": False},
    ],
)
def test_all_spellings_of_a_webhook_are_accepted(way: Any) -> None:
    schema = Schema({"vid": "string"})
    assert isinstance(found := changed(SubscriptionRecord("s", "gps"), {"deliver": way}, schema).deliver, Webhook)
    assert (found.url, found.batch) == ("http://127.0.0.1/in", 1)
    assert wants_handshake({"deliver": way}) == (not isinstance(way, dict) or "url" not in way)


def test_nothing_is_said_of_it_so_it_gets_everything(shared: httpx.Client) -> None:
    answer = shared.post("/v1/services/gps/subscriptions")
    assert (answer.status_code, answer.json()["filter"]) == (201, "")


def test_conflation_uses_the_key_of_the_service(shared: httpx.Client) -> None:
    found = made(shared, every="1s")
    assert found["key"] == "vid"
    assert made(shared, every="1s", key="")["key"] is None
    path = f"/v1/subscriptions/{found['id']}"
    assert shared.patch(path, json={"key": "speed"}).json()["key"] == "speed"
    assert shared.patch(path, json={"every": "2s"}).json()["key"] == "speed"
    assert shared.patch(path, json={"every": None}).json()["key"] is None
    assert shared.patch(path, json={"every": "1s"}).json()["key"] == "vid"


def test_pages_of_a_conflated_subscription(world: World, http: httpx.Client) -> None:
    world.append(500)
    id_ = made(http, every="1s", **{"from": "beginning"})["id"]
    found = page(http, id_)
    assert numbers(found["events"]) == list(range(490, 500))
    world.append(5)
    assert numbers(page(http, id_, ack=found["cursor"])["events"]) == list(range(500, 505))
    assert numbers(page(http, id_)["events"]) == list(range(500, 505))


def test_filter_parameter_of_a_durable_subscription_is_refused(shared: httpx.Client) -> None:
    answer = shared.get(f"/v1/subscriptions/{made(shared)['id']}/events", params={"filter": "speed > 3"})
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith("unknown parameter 'filter'; expected cursor, after, Last-Event-ID")


def test_malformed_or_too_long_body_is_refused(shared: httpx.Client) -> None:
    answer = shared.post("/v1/services/gps/subscriptions", content=b"{")
    assert (answer.status_code, "expected JSON" in answer.json()["detail"]) == (400, True)
    answer = shared.post("/v1/services/gps/subscriptions", content=b" " * 300_000)
    assert (answer.status_code, answer.json()["detail"]) == (413, "expected at most 262,144 bytes, not 300,000")


def test_unknown_names_get_404(shared: httpx.Client) -> None:
    answer = shared.post("/v1/services/gsp/subscriptions", json={})
    assert (answer.status_code, answer.json()["detail"]) == (404, "no service 'gsp'; did you mean 'gps'?")
    id_ = new_id()
    for method, path in [
        ("GET", ""),
        ("DELETE", ""),
        ("GET", "/events"),
        ("GET", "/explain"),
        ("GET", "/dead-letters"),
        ("POST", "/secret"),
        ("POST", "/enable"),
    ]:
        answer = shared.request(method, f"/v1/subscriptions/{id_}{path}")
        assert (answer.status_code, answer.json()["detail"]) == (404, f"there is no subscription {id_!r}")


# Consuming --------------------------------------------------------------------------------


def test_pages_continue_at_the_acknowledged_cursor(world: World, http: httpx.Client) -> None:
    sub = made(http, filter="speed >= 3")
    world.append(10)
    first = page(http, sub["id"], max=4)
    assert numbers(first["events"]) == [3, 4, 5, 6]
    assert numbers(page(http, sub["id"], max=4)["events"]) == [3, 4, 5, 6]  # nothing was acknowledged
    said = http.post(f"/v1/subscriptions/{sub['id']}/ack", json={"cursor": first["cursor"]}).json()
    assert said == {"cursor": first["cursor"], "moved": True, "detail": "moved"}
    assert numbers(page(http, sub["id"])["events"]) == [7, 8, 9]


def test_cursor_of_a_page_acknowledges(world: World, http: httpx.Client) -> None:
    sub = made(http)
    world.append(6)
    first = page(http, sub["id"], max=4)
    assert numbers(page(http, sub["id"], cursor=first["cursor"])["events"]) == [4, 5]
    assert http.get(f"/v1/subscriptions/{sub['id']}").json()["cursor"] == first["cursor"]


def test_cursor_never_moves_back(world: World, http: httpx.Client) -> None:
    sub = made(http)
    world.append(6)
    ends = [page(http, sub["id"], max=n)["cursor"] for n in (2, 5)]
    path = f"/v1/subscriptions/{sub['id']}/ack"
    assert http.post(path, json={"cursor": ends[1]}).json()["moved"] is True
    said = http.post(path, json={"cursor": ends[0]}).json()
    assert (said["cursor"], said["moved"]) == (ends[1], False)
    assert "further on" in said["detail"]
    assert http.get(f"/v1/subscriptions/{sub['id']}").json()["cursor"] == ends[1]


def test_cursor_of_another_stream_is_refused(world: World, http: httpx.Client) -> None:
    sub = made(http)
    path = f"/v1/subscriptions/{sub['id']}/ack"
    other = http.get("/v1/services/fast/events").json()["cursor"]
    answer = http.post(path, json={"cursor": other})
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:tidegate:problem:bad-cursor")
    assert "the cursor belongs to another stream, or 'gps' was deleted" in answer.json()["detail"]
    for bad in ({"cursor": 3}, {}, {"cursor": "x", "more": 1}):
        answer = http.post(path, json=bad)
        assert answer.status_code == 422
        assert "expected {'cursor': '...'}" in answer.json()["detail"]
    answer = http.get(f"/v1/subscriptions/{sub['id']}/events", params={"cursor": other})
    assert answer.status_code == 400
    assert http.get(f"/v1/subscriptions/{sub['id']}").json()["cursor"] == sub["cursor"]


def test_reconnect_acknowledges_and_continues(world: World, http: httpx.Client) -> None:
    sub = made(http)
    world.append(5)
    with listening(http, sub["id"]) as events:
        assert numbers(events.take(3)) == [0, 1, 2]
        last = events.last_id
    with listening(http, sub["id"]) as events:
        assert numbers(events.take(1)) == [0]  # nothing was acknowledged
    with listening(http, sub["id"], {"last-event-id": last}) as events:
        assert numbers(events.take(2)) == [3, 4]
    with listening(http, sub["id"]) as events:
        assert numbers(events.take(2)) == [3, 4]
    with listening(http, sub["id"], params={"Last-Event-ID": last}) as events:
        assert numbers(events.take(2)) == [3, 4]


def test_reconnect_to_a_recreated_stream_reports_a_gap(world: World, http: httpx.Client) -> None:
    sub = made(http)
    world.log.delete("gps")
    world.log.create("gps", ["gps_taxi.0"])
    world.append(2)
    with listening(http, sub["id"], {"last-event-id": sub["cursor"]}) as events:
        assert events.next()[0] == "gap"
        assert numbers(events.take(2)) == [0, 1]


def test_restart_keeps_acknowledged_cursors(tmp_path: Path) -> None:
    world = World(tmp_path)
    with world.running(), world.client() as http:
        sub = made(http, filter="speed > 1")
        world.append(6)
        cursor = page(http, sub["id"], max=2)["cursor"]
        http.post(f"/v1/subscriptions/{sub['id']}/ack", json={"cursor": cursor})
    with world.running(), world.client() as http:
        assert numbers(page(http, sub["id"])["events"]) == [4, 5]


def test_subscription_begins_at_the_requested_position(world: World, http: httpx.Client) -> None:
    world.append(4)
    cursor = http.get("/v1/services/gps/events", params={"from": "beginning", "max": 3}).json()["cursor"]
    assert numbers(page(http, made(http, **{"from": "beginning"})["id"])["events"]) == [0, 1, 2, 3]
    assert numbers(page(http, made(http, cursor=cursor)["id"])["events"]) == [3]
    assert page(http, made(http)["id"])["events"] == []


# Whose it is ------------------------------------------------------------------------------


def test_subscription_is_visible_only_to_its_owner(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.needs_keys = True
    keys = {
        name: {"authorization": f"Bearer {world.registry.create_key(name, role, services)[1]}"}
        for name, role, services in WHO
    }
    with world.running(), world.client() as http:
        sub = http.post("/v1/services/gps/subscriptions", json={}, headers=keys["mine"]).json()
        path = f"/v1/subscriptions/{sub['id']}"
        listed = {
            name: len(http.get("/v1/services/gps/subscriptions", headers=key).json().get("subscriptions", []))
            for name, key in keys.items()
        }
        assert listed == {"mine": 1, "other": 0, "elsewhere": 0, "provider": 1, "admin": 1}
        for name in ("other", "elsewhere", "provider"):
            for method, rest in EVERYTHING:
                answer = http.request(method, path + rest, headers=keys[name], json={"cursor": "x"})
                assert answer.status_code == 404, (name, method, rest)
        assert http.get(path, headers=keys["admin"]).json() == sub
        assert http.delete(path, headers=keys["mine"]).status_code == 204


WHO: list[tuple[str, Role, list[str] | None]] = [
    ("mine", "consumer", None),
    ("other", "consumer", None),
    ("elsewhere", "consumer", ["fast"]),
    ("provider", "provider", None),
    ("admin", "admin", None),
]
EVERYTHING = [
    ("GET", ""),
    ("PATCH", ""),
    ("GET", "/events"),
    ("GET", "/explain"),
    ("POST", "/ack"),
    ("GET", "/dead-letters"),
    ("POST", "/dead-letters/redeliver"),
    ("POST", "/secret"),
    ("DELETE", "/secret"),
    ("POST", "/enable"),
    ("DELETE", ""),
]


# Changing ---------------------------------------------------------------------------------


def test_changed_parameters_apply_between_two_events(world: World, http: httpx.Client) -> None:
    sub = made(http, filter="speed >= %0", params=[5])
    with listening(http, sub["id"]) as events, world.client() as other:
        world.append(7)
        assert numbers(events.take(2)) == [5, 6]
        until(lambda: other.get("/v1/services/gps/status").json()["subscribers"].get("live"), "it to be live")
        answer = other.patch(f"/v1/subscriptions/{sub['id']}", json={"params": [9]})
        assert (answer.status_code, answer.json()["version"], answer.headers["etag"]) == (200, 2, '"2"')
        assert answer.json()["connected"] == 1
        world.append(4)
        assert events.next() == ("changed", {"filter": "speed >= 9"})
        assert numbers(events.take(2)) == [9, 10]


def test_changed_attributes_and_format_apply_while_connected(world: World, http: httpx.Client) -> None:
    sub = made(http, format="plain", select=["vid"])
    with listening(http, sub["id"]) as events, world.client() as other:
        world.append(1)
        assert events.take(1)[0].keys() == {"_id", "_time", "vid"}
        other.patch(f"/v1/subscriptions/{sub['id']}", json={"select": ["speed"]})
        world.append(1)
        assert events.take(1)[0].keys() == {"_id", "_time", "speed"}
        other.patch(f"/v1/subscriptions/{sub['id']}", json={"select": None, "format": None})
        world.append(1)
        assert events.take(1)[0]["data"].keys() == {"vid", "speed", "time"}


def test_change_by_another_gateway_reaches_connected_subscribers(world: World, http: httpx.Client) -> None:
    sub = made(http, filter="speed >= 5")
    with listening(http, sub["id"]) as events:
        world.append(6)
        assert numbers(events.take(1)) == [5]
        found = world.registry.subscription(sub["id"]).subscription
        world.registry.change_subscription(replace(found, filter="speed >= 7"))
        assert events.next() == ("changed", {"filter": "speed >= 7"})
        world.append(3)
        assert numbers(events.take(2)) == [7, 8]
        world.registry.unsubscribe(sub["id"])
        assert events.next() == ("error", {"detail": "the subscription was removed"})


def test_second_of_two_concurrent_changes_is_refused(shared: httpx.Client) -> None:
    sub = made(shared)
    path = f"/v1/subscriptions/{sub['id']}"
    assert shared.patch(path, json={"description": "a"}, headers={"if-match": '"1"'}).status_code == 200
    answer = shared.patch(path, json={"description": "b"}, headers={"if-match": '"1"'})
    assert (answer.status_code, answer.json()["version"]) == (412, 2)
    assert "has version 2 by now, not 1: read it again" in answer.json()["detail"]
    answer = shared.patch(path, json={"description": "b", "version": 1})
    assert (answer.status_code, answer.json()["version"]) == (409, 2)
    assert shared.patch(path, json={"description": "c", "version": 2}).json()["description"] == "c"
    answer = shared.patch(path, json={}, headers={"if-match": "soon"})
    assert "If-Match: expected a version in quotes" in answer.json()["detail"]
    answer = shared.patch(path, json={"version": "2"})
    assert answer.json()["detail"] == "version: expected a whole number, not '2'"


def test_invalid_change_changes_nothing(shared: httpx.Client) -> None:
    sub = made(shared, filter="speed > %0", params=[1])
    path = f"/v1/subscriptions/{sub['id']}"
    answer = shared.patch(path, json={"params": ["fast"]})
    assert answer.status_code == 400
    for name in ("from", "cursor"):
        answer = shared.patch(path, json={name: "now"})
        assert f"{name}: expected none: where a subscription begins is said when it is made" in answer.json()["detail"]
    assert shared.get(path).json() == sub


def test_new_filter_keeps_the_parameters_that_it_uses(shared: httpx.Client) -> None:
    sub = made(shared, filter="speed > %0 AND vid LIKE %1", params=[5, "B%9"])
    path = f"/v1/subscriptions/{sub['id']}"
    for filter_, kept in (("vid = %1 AND speed < %0", [5, "B%9"]), ("speed < %0", [5]), ("vid LIKE 'B%0'", [])):
        answer = shared.patch(path, json={"filter": filter_})
        assert (answer.status_code, answer.json()["params"]) == (200, kept), answer.text
    shared.patch(path, json={"filter": "speed > %0", "params": [5]})
    assert shared.patch(path, json={"filter": None}).json()["params"] == []
    assert shared.patch(path, json={"filter": "speed > 1 AND speed <", "params": None}).status_code == 400


def test_removed_subscription_ends(world: World, http: httpx.Client) -> None:
    sub = made(http)
    with listening(http, sub["id"]) as events, world.client() as other:
        world.append(1)
        events.take(1)
        assert other.delete(f"/v1/subscriptions/{sub['id']}").status_code == 204
        assert events.next() == ("error", {"detail": "the subscription was removed"})
    assert http.get(f"/v1/subscriptions/{sub['id']}").status_code == 404


def test_disabled_subscription_shows_the_reason_and_can_be_enabled(world: World, http: httpx.Client) -> None:
    sub = made(http)
    world.registry.disable(sub["id"], "too old")
    answer = http.get(f"/v1/subscriptions/{sub['id']}/events")
    assert (answer.status_code, "is disabled: too old" in answer.json()["detail"]) == (409, True)
    assert http.post(f"/v1/subscriptions/{sub['id']}/enable").json()["state"] == "active"
    assert page(http, sub["id"])["events"] == []


def test_waiting_page_ends_with_its_subscription(world: World, http: httpx.Client) -> None:
    sub = made(http)

    def remove() -> None:
        with world.client() as other:
            until(lambda: other.get(f"/v1/subscriptions/{sub['id']}").json()["connected"], "the page to wait")
            other.delete(f"/v1/subscriptions/{sub['id']}")

    thread = threading.Thread(target=remove)
    thread.start()
    answer = http.get(f"/v1/subscriptions/{sub['id']}/events", params={"wait": "20s"})
    thread.join()
    assert (answer.status_code, answer.json()["detail"]) == (409, "the subscription was removed")


def test_idle_notice_is_sent(shared: httpx.Client) -> None:
    with listening(shared, made(shared, idle="20ms")["id"]) as events:
        assert events.next() == ("idle", {"seconds": 0.02})


# Explaining -------------------------------------------------------------------------------


def test_explain_says_why_an_event_matches(world: World, http: httpx.Client) -> None:
    sub = made(http, filter="speed > %0 AND vid LIKE 'B%'", params=[3])
    path = f"/v1/subscriptions/{sub['id']}/explain"
    said = http.get(path).json()
    assert said["canonical"] == "speed > 3 AND vid LIKE 'B%'"
    assert "event" not in said
    assert said["index"]
    event = {"vid": "C1", "speed": 5.0, "time": "2026-01-01T00:00:00Z"}
    said = http.get(path, params={"event": json.dumps(event)}).json()["event"]
    assert said["matches"] is False
    assert [(each["truth"], each["decided"]) for each in said["predicates"]] == [("true", False), ("false", True)]
    envelope = {"specversion": "1.0", "id": "1", "data": {**event, "vid": "B1"}}
    assert http.get(path, params={"event": json.dumps(envelope)}).json()["event"]["matches"] is True
    world.append(6)
    assert http.get(path, params={"event": "gps_taxi:0:5"}).json()["event"]["matches"] is True
    assert http.get(path, params={"event": "gps_taxi:0:2"}).json()["event"]["matches"] is False


def test_invalid_event_is_refused(world: World, http: httpx.Client) -> None:
    path = f"/v1/subscriptions/{made(http)['id']}/explain"
    world.append(1)
    answer = http.get(path, params={"event": "gps_taxi:0:7"})
    assert answer.status_code == 404
    assert answer.json()["detail"].startswith("no event 'gps_taxi:0:7' in the first 1 that 'gps' still has")
    answer = http.get(path, params={"event": "{"})
    assert (answer.status_code, "an event as a JSON object" in answer.json()["detail"]) == (400, True)


def test_empty_filter_is_explained(shared: httpx.Client) -> None:
    said = shared.get(f"/v1/subscriptions/{made(shared)['id']}/explain", params={"event": "{}"}).json()
    assert said["normal_form"]["everything"] is True
    assert said["event"]["matches"] is True
