"""Attacks on side information: ids from hidden keys, hints, inputs, errors, metrics, ownerless subscriptions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from tests.gateway.receiver import Receiver
from tests.gateway.running import World
from tests.pipelines.running import until
from tests.ports import free_port
from tests.security import processes
from tidegate.registry import Role
from tidegate.services import loads
from tidegate.subscriptions import SubscriptionRecord, new_id

CITY = """
streams:
  gps_taxi: {schema: {vid: string, speed: float64, time: timestamp}, event_time: time, key: vid}
  secret_feed: {schema: {x: float64, time: timestamp}, event_time: time, access: [police]}
services:
  counted:
    from: gps_taxi
    pipeline: [{aggregate: {count: n, by: [vid], window: {length: 1m}}}]
    access: {fields: {vid: [police]}}
  bare: {from: counted, pipeline: [{project: {n: n, time: window_end}}]}
  kept:
    from: gps_taxi
    pipeline: [{aggregate: {max: speed, by: [vid], window: {length: 1m}}}]
    access: [police]
  peaks: {from: kept, pipeline: [{project: {speed: speed, time: window_end}}]}
  speeds: {from: gps_taxi, constraints: {speed: ">= 0"}, pipeline: [{project: {speed: speed, time: time}}]}
  mixed: {from: secret_feed, pipeline: [{filter: x > 0}], access: keys}
  open: {from: gps_taxi, access: public}
"""
SECRET = "B7-SECRET"
WHO: tuple[tuple[str, Role], ...] = (
    ("citizen", "consumer"),
    ("police", "consumer"),
    ("fleet", "provider"),
    ("admin", "admin"),
)


def event(service: str, n: int = 0) -> bytes:
    """An event as the service's writer leaves it: an aggregate's id has its key in it."""
    time = f"2026-01-01T00:{n:02}:00.000000Z"
    own: dict[str, dict[str, Any]] = {
        "counted": {"vid": SECRET, "n": n, "window_start": time, "window_end": time},
        "bare": {"n": n, "time": time},
        "peaks": {"speed": 7.0, "time": time},
    }
    said = {"_id": f"{SECRET}@{time}", "_src": f"gps_taxi/0:{n}", "_time": time, **own[service]}
    return json.dumps(said, separators=(",", ":")).encode()


class City:
    """A gateway that requires keys, with services that keep an attribute from some."""

    def __init__(self, world: World) -> None:
        self.world = world
        made = {name: world.registry.create_key(name, role) for name, role in WHO}
        self.ids = {name: key.id for name, (key, _) in made.items()}
        self.headers = {name: {"authorization": f"Bearer {secret}"} for name, (_, secret) in made.items()}
        self.headers["guest"] = {}
        for service in ("counted", "bare", "peaks"):
            world.log.append(service, "gps_taxi.0", [event(service, n) for n in range(3)])

    def ask(self, who: str, path: str, method: str = "GET", **more: Any) -> httpx.Response:
        with self.world.client() as http:
            return http.request(method, path, headers=self.headers[who], **more)


@pytest.fixture
def city(tmp_path: Path) -> Iterator[City]:
    world = World(tmp_path, CITY)
    world.needs_keys = True
    world.tell_running("counted", "bare", "kept", "peaks", "speeds", "mixed", "open")
    with world.running():
        yield City(world)


# Ids ----------------------------------------------------------------------------------------------


DERIVED = ["counted", "bare", "peaks"]
BEGINNING = {"from": "beginning", "format": "plain"}


def page(city: City, who: str, service: str, **params: Any) -> list[dict[str, Any]]:
    answer = city.ask(who, f"/v1/services/{service}/events", params={**BEGINNING, **params})
    assert answer.status_code == 200, answer.text
    events: list[dict[str, Any]] = answer.json()["events"]
    return events


@pytest.mark.parametrize("service", DERIVED)
def test_ids_made_of_a_hidden_key_are_hashed_in_every_service_below(city: City, service: str) -> None:
    seen, hashed = page(city, "police", service), page(city, "citizen", service)
    assert [each["_id"] for each in seen] == [json.loads(event(service, n))["_id"] for n in range(3)]
    assert SECRET not in json.dumps(hashed)
    assert len({each["_id"] for each in hashed}) == 3, "events are still told apart"
    assert hashed == page(city, "citizen", service), "the same event has the same id again"


@pytest.mark.parametrize("service", DERIVED)
@pytest.mark.parametrize("format_", ["cloudevents", "plain"])
def test_hashed_ids_on_every_way_out(city: City, service: str, format_: str) -> None:
    wanted = {"from": "beginning", "format": format_}
    headers = {**city.headers["citizen"], "accept": "text/event-stream"}
    with (
        city.world.client() as http,
        http.stream("GET", f"/v1/services/{service}/events", params=wanted, headers=headers) as answer,
    ):
        lines = answer.iter_lines()
        assert SECRET not in next(line for line in lines if line.startswith("data:"))
    url = city.world.url.replace("http", "ws") + "/v1/events"
    with connect(url, additional_headers=city.headers["citizen"]) as socket:
        socket.send(json.dumps({"op": "subscribe", "id": "a", "service": service, **wanted}))
        heard = [socket.recv(30) for _ in range(3)]
        assert '"event"' in str(heard[-1])
        assert SECRET not in str(heard)
    made = city.ask("citizen", f"/v1/services/{service}/subscriptions", "POST", json=wanted).json()
    pulled = city.ask("citizen", f"/v1/subscriptions/{made['id']}/events")
    assert (len(pulled.json()["events"]), SECRET in pulled.text) == (3, False)


@pytest.mark.parametrize("service", DERIVED)
def test_hashed_ids_in_webhooks(city: City, service: str) -> None:
    with Receiver().running() as receiver:
        document = {"deliver": {"webhook": {"url": receiver.url}}, "from": "beginning"}
        made = city.ask("citizen", f"/v1/services/{service}/subscriptions", "POST", json=document)
        assert made.status_code == 201, made.text
        until(lambda: len(receiver.got) >= 1, "events to be delivered", 30)
        assert not any(SECRET in each.body.decode() + str(each.headers) for each in receiver.got)


@pytest.mark.parametrize("service", DERIVED)
def test_no_query_reveals_a_hidden_id(city: City, service: str) -> None:
    filter_ = f"_id LIKE '{SECRET}%'"
    answer = city.ask("citizen", f"/v1/services/{service}/events", params={**BEGINNING, "filter": filter_})
    assert (answer.status_code, "unknown field '_id'" in answer.text) == (400, True)
    id_ = json.loads(event(service))["_id"]
    path = f"/v1/services/{service}/explain"
    guessed = city.ask("citizen", path, params={"filter": "n > 1", "event": id_})
    assert guessed.status_code in (400, 404), "whether an id is there would say whose events there are"
    (first, *_) = page(city, "citizen", service)
    wanted = "speed > 1" if service == "peaks" else "n > 1"
    found = city.ask("citizen", path, params={"filter": wanted, "event": first["_id"]})
    assert (found.status_code, SECRET in found.text) == (200, False)
    assert SECRET not in city.ask("citizen", f"/v1/services/{service}/backtest", params={"filter": wanted}).text
    assert city.ask("fleet", f"/v1/services/{service}/quarantine").status_code == 403


def test_provider_reads_no_ids_that_it_sees_hashed(city: City) -> None:
    service = {"from": "bare", "pipeline": [{"project": {"who": "_id", "time": "time"}}]}
    answer = city.ask("fleet", "/v1/services/mine", "PUT", json=service)
    assert (answer.status_code, "'mine' would read _id of 'bare'" in answer.text) == (403, True)
    plain = {"from": "bare", "pipeline": [{"filter": "n > 1"}]}
    assert city.ask("fleet", "/v1/services/mine", "PUT", json=plain).status_code == 200
    city.world.log.create("mine", ["gps_taxi.0"])
    city.world.log.append("mine", "gps_taxi.0", [event("bare")])
    assert SECRET not in json.dumps(page(city, "fleet", "mine"))


def test_change_of_policy_hides_ids_from_those_who_are_connected(city: City) -> None:
    headers = {**city.headers["police"], "accept": "text/event-stream"}
    with (
        city.world.client() as http,
        http.stream("GET", "/v1/services/bare/events", params=BEGINNING, headers=headers) as answer,
    ):
        lines = answer.iter_lines()
        assert SECRET in next(line for line in lines if line.startswith("data:"))
        city.world.registry.apply(loads(CITY.replace("fields: {vid: [police]}", "fields: {vid: [nobody]}")))
        told = next(line for line in lines if "connect again" in line)
        assert "what you see of 'bare' has changed" in told


# Names ---------------------------------------------------------------------------------------------


def test_hints_name_only_what_the_caller_sees(city: City) -> None:
    for path in ("/v1/services/kep", "/v1/services/kep/events", "/v1/services/kept", "/v1/services/kept/status"):
        answer = city.ask("citizen", path)
        name = path.split("/")[3]
        assert (answer.status_code, answer.json()["detail"]) == (404, f"no service {name!r}")
    for path in ("/v1/streams/secret_fed", "/v1/streams/secret_feed"):
        answer = city.ask("fleet", path)
        assert (answer.status_code, answer.json()["detail"]) == (404, f"no stream {path.split('/')[3]!r}")
    for path, body in (
        ("/v1/services/mine", {"from": "kep"}),
        ("/v1/services/mine", {"from": "secret_fee"}),
        ("/v1/services/kep/subscriptions", {}),
        ("/v1/streams/secret_fed/events", {}),
    ):
        method = "PUT" if path.endswith("mine") else "POST"
        answer = city.ask("fleet", path, method, json=body)
        assert answer.status_code in (404, 422)
        assert not any(each in answer.text for each in ("'kept'", "'secret_feed'"))
    url = city.world.url.replace("http", "ws") + "/v1/events"
    with connect(url, additional_headers=city.headers["citizen"]) as socket:
        socket.send(json.dumps({"op": "subscribe", "id": "a", "service": "kep"}))
        assert "kept" not in str(socket.recv(30))
    assert "kept" in city.ask("police", "/v1/services/kep").json()["detail"], "those who see it are helped"


def test_inputs_name_only_what_the_caller_sees(city: City) -> None:
    def inputs(who: str) -> dict[str, Any]:
        return {each["name"]: each["inputs"] for each in city.ask(who, "/v1/overview").json()["services"]}

    assert (inputs("admin")["peaks"], inputs("admin")["mixed"]) == (["kept"], ["secret_feed"])
    for who in ("citizen", "fleet"):
        assert (inputs(who)["peaks"], inputs(who)["mixed"]) == ([], [])
    for who in ("citizen", "fleet", "guest"):
        for path in ("/v1/services", "/v1/overview", "/v1/services/peaks", "/v1/services/mixed", "/asyncapi.json"):
            text = city.ask(who, path).text
            assert not any(each in text for each in ('"kept"', "secret_feed")), (who, path)
        found = city.ask(who, "/v1/discover", "POST", json={"attributes": ["speed", "x"]})
        assert not any(each in found.text for each in ('"kept"', "secret_feed"))


def test_consumers_see_schema_and_constraints_and_no_pipeline(city: City) -> None:
    said = city.ask("citizen", "/v1/services/speeds").json()
    assert said["definition"] == {"constraints": {"speed": ">= 0"}}
    assert list(said["schema"]) == ["speed", "time"]
    assert "pipeline" in city.ask("fleet", "/v1/services/speeds").json()["definition"]
    assert "pipeline" not in city.ask("fleet", "/v1/services/peaks").json()["definition"]
    assert "access" not in city.ask("citizen", "/v1/services/counted").json()["definition"]


def test_error_of_a_service_is_for_those_who_see_what_it_reads(city: City) -> None:
    error = f"vid: {SECRET!r} violates vid <> '' in event {SECRET}@2026 of /srv/data/x"
    city.world.tell_running("counted", "speeds", error=error)

    def status(who: str, path: str) -> str:
        return city.ask(who, path).text

    until(lambda: SECRET in status("admin", "/v1/services/speeds/status"), "the error to be told")
    for path in ("/v1/services/counted", "/v1/services/counted/status", "/v1/services", "/v1/overview"):
        assert SECRET not in status("citizen", path), path
        assert "the service failed; its providers see why" in status("citizen", path), path
        assert SECRET in status("admin", path)
    assert SECRET not in status("fleet", "/v1/services/counted/status")
    assert SECRET in status("fleet", "/v1/services/speeds/status")


def test_subscriptions_of_others_show_neither_filter_nor_address(city: City) -> None:
    with Receiver().running() as receiver:
        document = {"deliver": {"webhook": {"url": f"{receiver.url}/hook?token=T0KEN"}}, "filter": f"vid = '{SECRET}'"}
        made = city.ask("police", "/v1/services/counted/subscriptions", "POST", json=document)
        assert made.status_code == 201, made.text
    for path in ("/v1/subscriptions", "/v1/services/counted/subscriptions"):
        told = city.ask("fleet", path).text
        assert made.json()["id"] in told
        assert not any(each in told for each in (SECRET, "T0KEN"))
        assert made.json()["id"] not in city.ask("citizen", path).text


# What is open ----------------------------------------------------------------------------------------


def test_guest_owns_nothing(city: City) -> None:
    record = SubscriptionRecord(new_id(), "open")  # created while no keys were required
    city.world.registry.subscribe(record, None)
    path = f"/v1/subscriptions/{record.id}"
    for method, sub in (("GET", ""), ("DELETE", ""), ("GET", "/events"), ("PATCH", ""), ("POST", "/ack")):
        body = {"cursor": "x"} if sub == "/ack" else {} if method == "PATCH" else None
        answer = city.ask("guest", path + sub, method, json=body)
        assert answer.status_code == 401, (method, sub)
        answer = city.ask("citizen", path + sub, method, json=body)
        assert answer.status_code == 404, (method, sub, answer.text)
    assert city.ask("guest", "/v1/subscriptions").status_code == 401
    assert city.ask("guest", "/v1/services/open/subscriptions").status_code == 401
    assert city.ask("guest", "/v1/services/open/subscriptions", "POST", json={}).status_code == 401
    url = city.world.url.replace("http", "ws") + "/v1/events"
    with connect(url) as socket:
        socket.send(json.dumps({"op": "subscribe", "id": "a", "subscription": record.id}))
        answer = json.loads(socket.recv(30))
        assert answer["op"] == "error", answer
    assert city.ask("admin", path).status_code == 200


def test_readiness_names_services_only_to_those_who_see_them(city: City) -> None:
    assert set(city.ask("guest", "/readyz").json()) == {"status"}
    assert "kept" not in city.ask("citizen", "/readyz").json()["services"]
    assert "kept" in city.ask("admin", "/readyz").json()["services"]


def test_metrics_need_the_key_of_an_admin(city: City) -> None:
    assert {who: city.ask(who, "/metrics").status_code for who in city.headers} == {
        "guest": 401,
        "citizen": 403,
        "police": 403,
        "fleet": 403,
        "admin": 200,
    }


@pytest.mark.processes
def test_metrics_have_a_port_of_their_own_where_the_profile_names_one(tmp_path: Path) -> None:
    data, port = tmp_path / "data", free_port()
    key = processes.create_key(data, "admin", "admin")
    profile = processes.write_profile(tmp_path, metrics={"port": port})
    with processes.gateway(data, "--profile", profile) as running:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as http:
            assert "tidegate_" in http.get("/metrics").text
            assert http.get("/v1/services").status_code == 404, "nothing else is served there"
            rebound = http.get("/metrics", headers={"host": "evil.example"})
            assert rebound.status_code == 403, "a page of the operator's browser reads nothing"
        with running.client() as http:
            assert http.get("/metrics").status_code == 401
        with running.client(key) as http:
            assert http.get("/metrics").status_code == 200


@pytest.mark.processes
def test_metrics_port_in_use_is_reported(tmp_path: Path) -> None:
    data, port = tmp_path / "data", free_port()
    processes.create_key(data, "admin", "admin")
    profile = processes.write_profile(tmp_path, metrics=port)
    with processes.gateway(data, "--profile", profile):
        second = processes.tidegate("gateway", "--port", "0", "--profile", profile, data=data)
    assert second.returncode != 0
    assert f"metrics: can't listen on 127.0.0.1 port {port}" in second.stderr
