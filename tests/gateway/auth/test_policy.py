"""The visible services and attributes of each caller, over HTTP and WebSocket, and changes of policies."""

from __future__ import annotations

import json
import socket as sockets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway.issuer import TestIssuer
from tests.gateway.receiver import Receiver
from tests.gateway.running import World
from tests.gateway.transports.test_websocket import opened
from tests.pipelines.running import until
from tidegate.gateway.settings import AccessSettings
from tidegate.registry import Role
from tidegate.services import loads
from tidegate.subscriptions import SubscriptionRecord, new_id

CITY = """
streams:
  gps_taxi: {schema: {vid: string, speed: float64, time: timestamp}, event_time: time, key: vid}
services:
  gps: {from: gps_taxi, access: {fields: {vid: [police, "role:provider"]}}}
  weather: {from: gps_taxi, access: public}
  chases: {from: gps_taxi, access: [police]}
  fast: {from: gps, pipeline: [{filter: speed > 60}]}
"""
WHO: list[tuple[str, Role, list[str] | None]] = [
    ("citizen", "consumer", None),
    ("police", "consumer", None),
    ("provider", "provider", None),
    ("narrow", "consumer", ["fast"]),
    ("admin", "admin", None),
]
BEGINNING = {"from": "beginning"}
PATIENCE_S = 120.0


class City:
    """A gateway over services with policies, and a key for each caller."""

    def __init__(self, world: World) -> None:
        self.world = world
        made = {name: world.registry.create_key(name, role, services) for name, role, services in WHO}
        self.keys = {name: key for name, (key, _) in made.items()}
        self.headers: dict[str, dict[str, str]] = {
            name: {"authorization": f"Bearer {secret}"} for name, (_, secret) in made.items()
        }
        self.headers["guest"] = {}

    def ask(self, who: str, path: str, method: str = "GET", **more: Any) -> httpx.Response:
        with self.world.client() as http:
            return http.request(method, f"/v1{path}", headers=self.headers[who], **more)

    def apply(self, old: str, new: str) -> None:
        assert old in CITY
        self.world.registry.apply(loads(CITY.replace(old, new)))

    @contextmanager
    def listening(self, who: str, path: str) -> Iterator[Iterator[str]]:
        """The lines of an event stream, from its first on."""
        headers = {"accept": "text/event-stream", **self.headers[who]}
        with self.world.client() as http, http.stream("GET", f"/v1{path}", headers=headers) as answer:
            lines = answer.iter_lines()
            assert next(lines).startswith("retry:")
            yield lines


@pytest.fixture
def city(tmp_path: Path) -> Iterator[City]:
    world = World(tmp_path, CITY)
    world.needs_keys = True
    with world.running():
        yield City(world)


def names(answer: httpx.Response) -> list[str]:
    return [each["name"] for each in answer.json()["services"]]


def told(lines: Iterator[str]) -> dict[str, Any]:
    """Return the error that ends a stream. Nothing may follow it."""
    while next(lines) != "event: error":
        pass
    said: dict[str, Any] = json.loads(next(lines).removeprefix("data: "))
    assert [each for each in lines if each] == []
    return said


# Services -----------------------------------------------------------------------------------


def test_lists_contain_only_visible_services(city: City) -> None:
    assert {who: names(city.ask(who, "/services")) for who in city.headers} == {
        "guest": ["weather"],
        "citizen": ["fast", "gps", "weather"],
        "police": ["chases", "fast", "gps", "weather"],
        "provider": ["fast", "gps", "weather"],
        "narrow": ["fast", "weather"],
        "admin": ["chases", "fast", "gps", "weather"],
    }


@pytest.mark.parametrize(
    ("who", "name", "status"),
    [
        ("guest", "weather", 200),
        ("guest", "gps", 401),
        ("guest", "chases", 401),
        ("guest", "nothing", 401),
        ("citizen", "chases", 404),
        ("citizen", "weather", 200),
        ("provider", "chases", 404),
        ("police", "chases", 200),
        ("admin", "chases", 200),
        ("narrow", "gps", 403),
        ("narrow", "weather", 200),
        ("narrow", "chases", 403),
    ],
)
def test_one_service(city: City, who: str, name: str, status: int) -> None:
    for path in ("", "/events", "/status"):
        assert city.ask(who, f"/services/{name}{path}").status_code == status, path


def test_invisible_service_is_answered_like_an_unknown_one(city: City) -> None:
    hidden, absent = (city.ask("citizen", f"/services/{name}").json() for name in ("chases", "chase5"))
    assert hidden["detail"] == "no service 'chases'"
    assert {**absent, "detail": absent["detail"].replace("chase5", "chases")} == hidden
    assert city.ask("citizen", "/services/chases", "DELETE").status_code == 403
    assert city.ask("provider", "/services/chases", "DELETE").status_code == 404
    assert city.ask("provider", "/services/chases", "PUT", json={"from": "gps_taxi"}).status_code == 404
    assert city.ask("provider", "/services/new", "PUT", json={"from": "gps_taxi"}).status_code == 200


def test_guest_may_only_read_public_services(city: City) -> None:
    for method, path in [
        ("GET", "/services/weather/subscriptions"),
        ("POST", "/services/weather/subscriptions"),
        ("GET", "/streams"),
        ("PUT", "/services/weather"),
        ("DELETE", "/services/weather"),
        ("GET", "/subscriptions/sub_1"),
        ("POST", "/streams/gps_taxi/events"),
    ]:
        assert city.ask("guest", path, method, json={}).status_code == 401, path


def test_guest_is_refused_without_public_services(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.needs_keys = True
    with world.running(), world.client() as http:
        assert http.get("/v1/services").status_code == 401


def test_status_stream_is_visible_only_to_callers_who_see_all(city: City) -> None:
    city.world.tell_running("gps")
    said = {who: city.ask(who, "/services/_status/events").status_code for who in city.headers}
    assert said == {"guest": 401, "citizen": 404, "police": 200, "provider": 404, "narrow": 403, "admin": 200}


def test_key_for_some_streams_sees_only_those(city: City) -> None:
    assert len(city.ask("citizen", "/streams").json()["streams"]) == 1
    assert city.ask("narrow", "/streams").json() == {"streams": []}


def socket(city: City, who: str, path: str = "/v1/events") -> Any:
    return opened(city.world, path, additional_headers=city.headers[who])


def test_policies_apply_to_websockets(city: City) -> None:
    with socket(city, "citizen") as client:
        assert client.ask("subscribe", id="a", service="chases")["problem"]["detail"] == "no service 'chases'"
        assert client.ask("subscribe", id="a", service="gps")["op"] == "subscribed"
    with socket(city, "narrow") as client:
        problem = client.ask("subscribe", id="a", service="gps")["problem"]
        assert (problem["status"], problem["detail"]) == (403, "the key 'narrow' is for fast, not for 'gps'")
    with socket(city, "guest") as client:
        assert client.ask("subscribe", id="a", service="weather")["op"] == "subscribed"
        assert client.ask("subscribe", id="b", service="gps")["problem"]["status"] == 403
    for who, name, code in (("citizen", "chases", 4404), ("narrow", "gps", 4403)):
        with socket(city, who, f"/v1/services/{name}/events") as client:
            assert client.closed()[0] == code


# Attributes ----------------------------------------------------------------------------------


def test_hidden_attribute_is_delivered_only_to_named_callers(city: City) -> None:
    city.world.append(3)
    shown = {}
    for who in ("citizen", "police", "provider", "admin"):
        page = city.ask(who, "/services/gps/events", params=BEGINNING).json()["events"]
        plain = city.ask(who, "/services/gps/events", params={**BEGINNING, "format": "plain"}).json()["events"]
        with city.listening(who, "/services/gps/events?from=beginning") as lines:
            live = json.loads(next(each for each in lines if each.startswith("data:")).removeprefix("data: "))
        with socket(city, who, "/v1/services/gps/events?from=beginning") as client:
            client.hear()
            sent = client.hear()["event"]
        shown[who] = ["vid" in each for each in (page[0]["data"], plain[0], live["data"], sent["data"])]
        assert len(page) == 3
    assert shown == {"citizen": [False] * 4, "police": [True] * 4, "provider": [True] * 4, "admin": [True] * 4}


@pytest.mark.parametrize(
    ("params", "detail"),
    [
        ({"filter": "vid = 'B1'"}, "unknown field 'vid'"),
        ({"filter": "speed > 1 OR vid LIKE 'B%'"}, "unknown field 'vid'"),
        ({"filter": "NOT (vid = 'B1')"}, "unknown field 'vid'"),
        ({"select": "vid,speed"}, "select: expected attributes of the service: speed, time, not 'vid'"),
        ({"every": "1s", "key": "vid"}, "key: expected an attribute of the service: speed, time, not 'vid'"),
    ],
)
def test_filter_on_a_hidden_attribute_is_refused(city: City, params: dict[str, str], detail: str) -> None:
    headers = {"accept": "text/event-stream"}
    with city.world.client() as http:
        answer = http.get("/v1/services/gps/events", params=params, headers={**city.headers["citizen"], **headers})
        assert (answer.status_code, detail in answer.json()["detail"]) == (400, True), answer.text
    with socket(city, "citizen") as client:
        client.ask("subscribe", id="a", service="gps")
        assert "unknown field 'vid'" in client.ask("change", id="a", filter="vid = 'B1'")["problem"]["detail"]


def test_hidden_attribute_is_missing_from_descriptions(city: City) -> None:
    said = city.ask("citizen", "/services/gps").json()
    assert said["schema"] == {"speed": "float64", "time": "timestamp"}
    assert "vid" not in json.dumps(said)
    assert said["definition"] == {}
    assert "vid" in city.ask("police", "/services/gps").json()["schema"]


def test_durable_subscription_hides_attributes(city: City) -> None:
    city.world.append(2)
    refused = city.ask("citizen", "/services/gps/subscriptions", "POST", json={"filter": "vid = 'B1'"})
    assert "unknown field 'vid'" in refused.json()["detail"]
    refused = city.ask("citizen", "/services/gps/subscriptions", "POST", json={"select": ["vid"]})
    assert refused.status_code == 422
    made = city.ask("citizen", "/services/gps/subscriptions", "POST", json={"from": "beginning"}).json()
    path = f"/subscriptions/{made['id']}"
    assert city.ask("citizen", path, "PATCH", json={"filter": "vid = 'B1'"}).status_code == 400
    assert [sorted(each["data"]) for each in city.ask("citizen", f"{path}/events").json()["events"]] == [
        ["speed", "time"]
    ] * 2
    explained = city.ask("citizen", f"{path}/explain", params={"event": "gps_taxi:0:1"})
    assert (explained.status_code, "B1" in explained.text) == (200, False)


def sent(receiver: Receiver) -> list[list[str]]:
    return [sorted(json.loads(each.body)["data"]) for each in receiver.got]


def test_webhook_is_sent_with_its_owners_view(city: City) -> None:
    with Receiver().running() as receiver:
        deliver = {"webhook": {"url": receiver.url}}
        made = city.ask("police", "/services/gps/subscriptions", "POST", json={"deliver": deliver}).json()
        city.world.append(1)
        until(lambda: len(receiver.got) == 1, "the first", PATIENCE_S)
        city.apply("vid: [police,", "vid: [")

        def is_hidden() -> bool:
            city.world.append(1)
            return "vid" not in sent(receiver)[-1]

        until(is_hidden, "the attribute to be hidden", PATIENCE_S, 0.1)
        assert (sent(receiver)[0], sent(receiver)[-1]) == (["speed", "time", "vid"], ["speed", "time"])
        city.world.registry.revoke_key(city.keys["police"].id)

        def state() -> Any:
            return city.ask("admin", f"/subscriptions/{made['id']}").json()

        until(lambda: state()["state"] == "disabled", "the webhook to be disabled", PATIENCE_S)
        assert state()["reason"].startswith("the key 'police' was revoked at")


def test_webhook_of_a_token_filters_by_what_its_role_sees(tmp_path: Path) -> None:
    with TestIssuer().running() as issuer:
        world = World(tmp_path, CITY)
        world.needs_keys, world.access = True, AccessSettings(issuer.settings())
        with world.running():
            city = City(world)
            city.headers["alice"] = {"authorization": f"Bearer {issuer.token(roles=['consumer'])}"}
            said = {"deliver": {"webhook": {"url": "http://127.0.0.1:9/"}}, "filter": "vid = 'B1'"}
            refused = city.ask("alice", "/services/gps/subscriptions", "POST", json=said)
            assert (refused.status_code, "unknown field 'vid'" in refused.json()["detail"]) == (400, True)


# Changes --------------------------------------------------------------------------------------


OPEN, CLOSED = "fast: {from: gps, pipeline", "fast: {from: gps, access: [police], pipeline"


def test_subscriber_without_rights_is_disconnected(city: City) -> None:
    made = city.ask("citizen", "/services/fast/subscriptions", "POST", json={}).json()
    waiting: list[httpx.Response] = []
    thread = threading.Thread(
        target=lambda: waiting.append(city.ask("citizen", "/services/fast/events", params={"wait": "60s"}))
    )
    thread.start()
    with (
        city.listening("citizen", "/services/fast/events") as adhoc,
        city.listening("citizen", f"/subscriptions/{made['id']}/events") as durable,
        city.listening("police", "/services/fast/events") as other,
        socket(city, "citizen", "/v1/services/fast/events") as single,
        socket(city, "citizen") as several,
    ):
        assert single.hear()["op"] == "subscribed"
        for name in ("fast", "gps"):
            assert several.ask("subscribe", id=name, service=name)["op"] == "subscribed"
        until(lambda: city.world.counts().get("fast", {}).get("live") == 6, "everybody", PATIENCE_S)
        city.apply(OPEN, CLOSED)
        assert told(adhoc)["detail"] == told(durable)["detail"] == "no service 'fast'"
        assert single.hear()["problem"]["status"] == 410
        assert single.closed() == (4403, "no service 'fast'")
        ended = several.hear()
        assert (ended["id"], ended["problem"]["detail"]) == ("fast", "no service 'fast'")
        assert several.is_quiet()
        thread.join()
        assert (waiting[0].status_code, waiting[0].json()["detail"]) == (410, "no service 'fast'")
        city.world.log.append("fast", "gps_taxi.0", [b'{"_id":"a:0:1","_time":null,"vid":"B1","speed":61.0}'])
        assert next(each for each in other if each.startswith("data:"))
    assert city.ask("citizen", f"/subscriptions/{made['id']}").status_code == 404


def test_subscriber_whose_view_changes_must_reconnect(city: City) -> None:
    with city.listening("police", "/services/gps/events?filter=vid='B1'") as lines, socket(city, "police") as client:
        client.ask("subscribe", id="a", service="gps")
        until(lambda: city.world.counts().get("gps", {}).get("live") == 2, "both", PATIENCE_S)
        city.apply("vid: [police,", "vid: [")
        assert "unknown field 'vid'" in told(lines)["detail"]
        assert client.hear()["problem"]["detail"] == "what you see of 'gps' has changed: connect again"


@pytest.mark.parametrize("how", ["revoked", "expired"])
def test_revoked_key_ends_its_connections(city: City, how: str) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=4) if how == "expired" else None
    key, secret = city.world.registry.create_key("brief", "consumer", expires_at=soon)
    city.headers["brief"] = {"authorization": f"Bearer {secret}"}
    with (
        city.listening("brief", "/services/weather/events") as lines,
        socket(city, "brief", "/v1/services/gps/events") as client,
        socket(city, "brief") as idle,
        city.listening("citizen", "/services/weather/events") as other,
    ):
        if how == "revoked":
            city.world.registry.revoke_key(key.id)
        assert told(lines)["detail"].startswith(
            f"the key 'brief' {'was revoked' if how == 'revoked' else 'expired'} at"
        )
        for each in (client, idle):
            code, reason = each.closed()
            assert (code, reason.startswith("the key 'brief'")) == (4401, True)
        city.world.append(1, "weather")
        assert next(each for each in other if each.startswith("data:"))


def test_expired_token_ends_its_connections(tmp_path: Path) -> None:
    with TestIssuer().running() as issuer:
        world = World(tmp_path, CITY)
        world.needs_keys, world.access = True, AccessSettings(issuer.settings(leeway_s=0))
        with world.running():
            city = City(world)
            now = int(datetime.now(UTC).timestamp())
            city.headers["alice"] = {"authorization": f"Bearer {issuer.token(exp=now + 5)}"}
            with city.listening("alice", "/services/gps/events") as lines:
                assert told(lines)["detail"].startswith("the token of 'alice' expired at")


def test_policy_names_a_token_by_subject_or_role(tmp_path: Path) -> None:
    with TestIssuer().running() as issuer:
        world = World(tmp_path, CITY.replace("[police]}", '[police, "role:detective"]}'))
        world.needs_keys, world.access = True, AccessSettings(issuer.settings())
        with world.running():
            city = City(world)
            seen = {}
            for sub, roles in (("police", []), ("bob", ["detective"]), ("bob", []), ("role:detective", [])):
                token = issuer.token(sub=sub, roles=["consumer", *roles])
                city.headers["alice"] = {"authorization": f"Bearer {token}"}
                seen[sub, *roles] = city.ask("alice", "/services/chases").status_code
            assert seen == {("police",): 200, ("bob", "detective"): 200, ("bob",): 404, ("role:detective",): 404}


# Ways around -----------------------------------------------------------------------------------


def test_service_named_like_a_path_part_needs_the_provider_role(city: City) -> None:
    answer = city.ask("citizen", "/services/subscriptions", "PUT", json={"from": "gps_taxi"})
    assert (answer.status_code, "expected the role provider or admin" in answer.json()["detail"]) == (403, True)
    assert city.ask("citizen", "/services/subscriptions", "DELETE").status_code == 403


def test_provider_cannot_define_a_service_over_hidden_data(city: City) -> None:
    _, secret = city.world.registry.create_key("own", "provider", ["mine"])
    city.headers["own"] = {"authorization": f"Bearer {secret}"}
    for read, who, status in (("chases", "provider", 422), ("gps_taxi", "own", 403), ("gps", "provider", 200)):
        document = {"from": read, "pipeline": [{"filter": "speed > 1"}]}
        assert city.ask(who, "/services/mine", "PUT", json=document).status_code == status, read
        answer = city.ask(who, "/apply", "POST", json={"services": {"mine": document}})
        assert answer.status_code == status, answer.text
    city.apply('vid: [police, "role:provider"]', "vid: [police]")
    until(lambda: "vid" not in city.ask("provider", "/services/gps").json()["schema"], "the field to be hidden")
    answer = city.ask("provider", "/services/mine2", "PUT", json={"from": "gps"})
    assert "would read 'gps', of which the key 'provider' may not see all attributes" in answer.json()["detail"]
    answer = city.ask("provider", "/apply", "POST", json={"services": {"chases": {"from": "gps_taxi"}}})
    assert answer.status_code == 404, "what they do not see they do not change"
    answer = city.ask("provider", "/apply", "POST", params={"prune": "true"}, json={"services": {}})
    assert "may not see all services, and so not remove all others" in answer.json()["detail"]


def test_streams_about_all_services_need_full_view(city: City) -> None:
    for stream in ("_services", "_status"):
        assert city.ask("admin", f"/services/{stream}/events").status_code == 200
        assert city.ask("police", f"/services/{stream}/events").status_code == 200
        assert city.ask("citizen", f"/services/{stream}/events").status_code == 404
    city.apply("access: [police]", "access: keys")
    until(lambda: city.ask("citizen", "/services/chases").status_code == 200, "the change")
    assert city.ask("citizen", "/services/_services/events").status_code == 404, "a field is still hidden"


def test_violations_do_not_reveal_hidden_attributes(city: City) -> None:
    told = json.dumps({"_id": "x", "_src": "gps_taxi/0:9", "vid": "B7", "speed": 1.0, "_violations": "vid: 'B7'"})
    city.world.log.append("gps", "gps_taxi.0", [told.encode()])
    for who, is_told in (("police", True), ("citizen", False)):
        assert ("B7" in city.ask(who, "/services/gps/events", params=BEGINNING).text) is is_told


def test_ownerless_subscriptions_belong_to_admins(city: City) -> None:
    record = SubscriptionRecord(new_id(), "gps")
    city.world.registry.subscribe(record, None)
    assert city.ask("police", f"/subscriptions/{record.id}").status_code == 404
    assert city.ask("admin", f"/subscriptions/{record.id}").status_code == 200


def test_key_for_one_service_keeps_its_subscription_to_a_public_one(city: City) -> None:
    made = city.ask("narrow", "/services/weather/subscriptions", "POST", json={})
    assert made.status_code == 201
    assert city.ask("narrow", f"/subscriptions/{made.json()['id']}").status_code == 200


def test_page_leaves_no_subscriber_behind(city: City) -> None:
    id_ = city.ask("police", "/services/gps/subscriptions", "POST", json={}).json()["id"]
    for _ in range(3):
        assert city.ask("police", f"/subscriptions/{id_}/events").status_code == 200
    assert city.ask("police", f"/subscriptions/{id_}").json()["connected"] == 0


def test_subscriber_that_does_not_read_is_disconnected_too(city: City) -> None:
    """A socket with full buffers gets no notice. The sweep does not wait for it."""
    with sockets.create_connection(("127.0.0.1", city.world.port)) as deaf:
        deaf.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 4096)
        key = b"dGhlIHNhbXBsZSBub25jZQ=="
        path = b"/v1/services/gps/events?from=beginning"
        asked = [b"GET %s HTTP/1.1" % path, b"Host: x", b"Upgrade: websocket", b"Connection: Upgrade"]
        asked += [b"Sec-WebSocket-Version: 13", b"Sec-WebSocket-Key: " + key]
        asked.append(b"Authorization: " + city.headers["police"]["authorization"].encode())
        deaf.sendall(b"\r\n".join(asked) + b"\r\n\r\n")
        assert deaf.recv(12) == b"HTTP/1.1 101"
        long = json.dumps({"_id": "x", "_src": "gps_taxi/0:1", "vid": "x" * 100_000, "speed": 1.0}).encode()
        city.world.log.append("gps", "gps_taxi.0", [long] * 200)
        with city.listening("citizen", "/services/weather/events") as lines:
            until(lambda: city.world.counts().get("gps", {}).get("behind", 0) == 1, "it to be full")
            city.world.registry.revoke_key(city.keys["police"].id)
            city.world.registry.revoke_key(city.keys["citizen"].id)
            assert any("revoked" in line for line in lines)
        until(lambda: "gps" not in city.world.counts(), "the deaf one to be let go of")
