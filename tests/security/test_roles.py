"""Attacks on roles: publishers that read, providers that publish hidden attributes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.gateway.issuer import TestIssuer
from tests.gateway.running import World
from tests.pipelines.running import until
from tests.security import processes
from tidegate.gateway.settings import AccessSettings
from tidegate.registry import Role
from tidegate.services import loads

CITY = """
streams:
  gps_taxi: {schema: {vid: string, speed: float64, time: timestamp}, event_time: time, key: vid}
  patrol: {schema: {car: string, time: timestamp}, event_time: time, access: {to: [police, van], publish: [van]}}
  sensors: {schema: {pm: float64, time: timestamp}, event_time: time, source: {files: {path: /srv/pm, format: ndjson}}}
services:
  gps: {from: gps_taxi, access: {fields: {vid: [police]}}}
  speeds: {from: gps_taxi, pipeline: [{project: {speed: speed, time: time}}]}
  chases: {from: gps_taxi, access: [police]}
"""
CAR = {"car": "P1", "time": "2026-01-01T00:00:00Z"}
EVENT = {"vid": "B1", "speed": 1.0, "time": "2026-01-01T00:00:00Z"}
WHO: tuple[tuple[str, Role, list[str] | None], ...] = (
    ("citizen", "consumer", None),
    ("police", "provider", None),
    ("van", "publisher", ["patrol", "gps_taxi"]),
    ("fleet", "provider", None),
    ("admin", "admin", None),
    ("district", "admin", ["gps", "gps_taxi"]),
)


class City:
    """A gateway that requires keys, and a key for each caller."""

    def __init__(self, world: World) -> None:
        self.world = world
        made = {name: world.registry.create_key(name, role, services)[1] for name, role, services in WHO}
        self.headers = {name: {"authorization": f"Bearer {secret}"} for name, secret in made.items()} | {"guest": {}}

    def ask(self, who: str, method: str, path: str, **more: Any) -> httpx.Response:
        with self.world.client() as http:
            return http.request(method, path, headers=self.headers[who], **more)

    def apply(self, who: str, document: Any, **params: str) -> httpx.Response:
        return self.ask(who, "POST", "/v1/apply", json=document, params=params)

    def definition(self, name: str) -> Any:
        found = self.world.registry.definitions()
        return found.services.get(name) or found.streams.get(name)


@pytest.fixture
def city(tmp_path: Path) -> Iterator[City]:
    world = World(tmp_path, CITY)
    world.needs_keys = True
    world.tell_running("gps", "speeds", "chases")
    with world.running():
        yield City(world)


# Publishers ---------------------------------------------------------------------------------------


def test_publisher_appends_to_the_streams_that_its_key_names_and_sees_their_definitions(city: City) -> None:
    assert city.ask("van", "POST", "/v1/streams/gps_taxi/events", json=EVENT).json()["accepted"] == 1
    definition = city.ask("van", "GET", "/v1/streams/gps_taxi").json()["definition"]
    assert list(definition["schema"]) == ["vid", "speed", "time"]
    assert "access" not in city.ask("van", "GET", "/v1/streams/patrol").json()["definition"]
    listed = city.ask("van", "GET", "/v1/streams").json()["streams"]
    assert [each["name"] for each in listed] == ["gps_taxi", "patrol"]
    refused = city.ask("van", "POST", "/v1/streams/sensors/events", json={"pm": 1.0})
    assert (refused.status_code, refused.json()["detail"]) == (
        403,
        "the key 'van' is for gps_taxi, patrol, not for 'sensors'",
    )


BEYOND_PUBLISHERS = (
    ("GET", "/v1/services"),
    ("GET", "/v1/services/speeds"),
    ("GET", "/v1/services/speeds/events"),
    ("GET", "/v1/services/speeds/status"),
    ("GET", "/v1/services/speeds/explain"),
    ("GET", "/v1/services/speeds/backtest"),
    ("GET", "/v1/services/speeds/subscriptions"),
    ("POST", "/v1/services/speeds/subscriptions"),
    ("GET", "/v1/services/_status/events"),
    ("GET", "/v1/streams/gps_taxi/quarantine"),
    ("POST", "/v1/streams/gps_taxi/quarantine/replay"),
    ("GET", "/v1/services/gps/quarantine"),
    ("GET", "/v1/subscriptions"),
    ("GET", "/v1/overview"),
    ("GET", "/asyncapi.json"),
    ("POST", "/v1/discover"),
    ("PUT", "/v1/streams/gps_taxi"),
    ("DELETE", "/v1/streams/gps_taxi"),
    ("PUT", "/v1/services/gps_taxi"),
    ("POST", "/v1/apply"),
    ("GET", "/v1/links"),
    ("GET", "/v1/keys"),
    ("GET", "/metrics"),
)


def test_publisher_can_do_nothing_else(city: City) -> None:
    for method, path in BEYOND_PUBLISHERS:
        answer = city.ask("van", method, path, json={} if method in ("POST", "PUT") else None)
        assert answer.status_code == 403, (method, path, answer.text)
        assert "the key 'van' has the role publisher, which may not" in answer.json()["detail"]


@pytest.mark.parametrize("path", ["/v1/events", "/v1/services/speeds/events"])
def test_publisher_opens_no_socket(city: City, path: str) -> None:
    url = city.world.url.replace("http", "ws") + path
    with pytest.raises(InvalidStatus) as caught, connect(url, additional_headers=city.headers["van"]):
        pass
    assert caught.value.response.status_code == 403


def test_publisher_of_a_token_needs_streams_in_its_token(tmp_path: Path) -> None:
    with TestIssuer().running() as issuer:
        world = World(tmp_path, CITY)
        world.needs_keys = True
        world.access = AccessSettings(issuer.settings(services_claim="streams"))
        world.tell_running("gps", "speeds", "chases")
        with world.running(), world.client() as http:

            def append(stream: str, **claims: Any) -> httpx.Response:
                headers = {"authorization": f"Bearer {issuer.token(**claims)}"}
                return http.post(f"/v1/streams/{stream}/events", json=EVENT, headers=headers)

            assert append("gps_taxi", roles=["publisher"], streams=["gps_taxi"]).status_code == 200
            assert append("gps_taxi", roles=["publisher"], streams=["patrol"]).status_code == 403
            assert append("gps_taxi", roles=["consumer"], streams=["gps_taxi"]).status_code == 403
            both = {"authorization": f"Bearer {issuer.token(roles=['publisher', 'consumer'], streams=['speeds'])}"}
            assert http.get("/v1/services/speeds", headers=both).status_code == 200, "a token may name two roles"
            assert http.put("/v1/services/speeds", json={"from": "x"}, headers=both).status_code == 403


def test_publisher_whose_token_names_no_streams_appends_nowhere(tmp_path: Path) -> None:
    with TestIssuer().running() as issuer:
        world = World(tmp_path, CITY)
        world.needs_keys, world.access = True, AccessSettings(issuer.settings())
        with world.running(), world.client() as http:
            headers = {"authorization": f"Bearer {issuer.token(roles=['publisher'])}"}
            answer = http.post("/v1/streams/gps_taxi/events", json=EVENT, headers=headers)
            assert (answer.status_code, answer.json()["detail"]) == (
                403,
                "the token of 'alice' names no streams: a publisher puts events only into those that it is for",
            )


@pytest.mark.processes
def test_publisher_key_names_its_streams(tmp_path: Path) -> None:
    made = processes.tidegate("keys", "create", "van", "--role", "publisher", data=tmp_path)
    assert made.returncode != 0
    assert "the key 'van' is a publisher's and names no stream: name each one with --service" in made.stderr


# Streams with policies ------------------------------------------------------------------------------


def test_stream_with_a_policy_is_not_there_for_others(city: City) -> None:
    for method, path, body in (
        ("GET", "/v1/streams/patrol", None),
        ("GET", "/v1/streams/patrol/quarantine", None),
        ("POST", "/v1/streams/patrol/events", CAR),
        ("PUT", "/v1/streams/patrol", {"schema": {"car": "string"}}),
        ("DELETE", "/v1/streams/patrol", None),
    ):
        answer = city.ask("fleet", method, path, json=body)
        assert (answer.status_code, answer.json()["detail"]) == (404, "no stream 'patrol'"), (method, path)
    assert "patrol" not in city.ask("fleet", "GET", "/v1/streams").text
    assert "patrol" not in city.ask("fleet", "GET", "/v1/overview").text
    assert "patrol" not in city.ask("fleet", "GET", "/asyncapi.json").text
    for read in ("patrol", "patrl"):
        answer = city.ask("fleet", "PUT", "/v1/services/mine", json={"from": read})
        assert answer.status_code == 422
        assert answer.json()["detail"].endswith(f"unknown stream or service {read!r}"), "a name nobody has, a name kept"
    assert city.ask("police", "PUT", "/v1/services/mine", json={"from": "patrol"}).status_code == 200


def test_only_those_that_a_stream_names_fill_it(city: City) -> None:
    assert city.ask("van", "POST", "/v1/streams/patrol/events", json=CAR).status_code == 200
    answer = city.ask("police", "POST", "/v1/streams/patrol/events", json=CAR)
    assert (answer.status_code, answer.json()["detail"]) == (
        403,
        "the key 'police' may not put events into 'patrol': access.publish of the stream names others",
    )
    opened = {"schema": {"car": "string", "time": "timestamp"}, "event_time": "time"}
    answer = city.ask("police", "PUT", "/v1/streams/patrol", json=opened)
    assert (answer.status_code, "and so not change its access" in answer.json()["detail"]) == (403, True)


def test_provider_can_not_change_or_remove_a_stream_whose_source_is_the_operators(city: City) -> None:
    schema = {"schema": {"pm": "float64", "time": "timestamp"}, "event_time": "time"}
    for answer in (
        city.ask("fleet", "PUT", "/v1/streams/sensors", json=schema),
        city.ask("fleet", "DELETE", "/v1/streams/sensors"),
        city.apply("fleet", {"streams": {"sensors": schema}}),
    ):
        assert (answer.status_code, "the files source of 'sensors' is not open" in answer.text) == (403, True)
    assert city.ask("admin", "DELETE", "/v1/streams/sensors").status_code == 204


# Policies of services ---------------------------------------------------------------------------------


OPENED: dict[str, Any] = {"from": "gps_taxi"}
HIDDEN = "the key 'fleet' may not see all attributes of 'gps', and so not change or remove it"


def test_policy_is_changed_only_by_who_sees_every_field(city: City) -> None:
    before = city.definition("gps")
    answers = {
        "put": city.ask("fleet", "PUT", "/v1/services/gps", json=OPENED, params={"force": "true"}),
        "apply": city.apply("fleet", {"services": {"gps": OPENED}}, force="true"),
        "with a reader": city.apply("fleet", {"services": {"gps": OPENED, "mine": {"from": "gps"}}}, force="true"),
        "as public": city.apply("fleet", {"services": {"gps": {**OPENED, "access": "public"}}}, force="true"),
        "to themselves": city.apply(
            "fleet", {"services": {"gps": {**OPENED, "access": {"fields": {"vid": ["fleet"]}}}}}, force="true"
        ),
        "another pipeline, same policy": city.apply(
            "fleet",
            {
                "services": {
                    "gps": {
                        "from": "gps_taxi",
                        "pipeline": [{"project": {"keep": True, "leak": "vid", "vid": "vid"}}],
                        "access": {"fields": {"vid": ["police"]}},
                    }
                }
            },
            force="true",
        ),
        "delete": city.ask("fleet", "DELETE", "/v1/services/gps", params={"force": "true"}),
    }
    for how, answer in answers.items():
        assert (answer.status_code, answer.json()["detail"]) == (403, HIDDEN), how
    assert city.definition("gps") == before
    assert city.ask("police", "PUT", "/v1/services/gps", json=OPENED).status_code == 200


def test_service_becomes_a_stream_only_for_who_sees_it_all(city: City) -> None:
    stream = {"schema": {"vid": "string"}}
    assert city.ask("fleet", "PUT", "/v1/streams/gps", json=stream, params={"force": "true"}).status_code == 403
    assert city.apply("fleet", {"streams": {"gps": stream}}, force="true").status_code == 403
    assert city.apply("fleet", {"streams": {"chases": stream}}, force="true").status_code == 404


@pytest.mark.parametrize("name", ["gps", "chases"])
def test_name_of_a_removed_service_is_not_taken_by_who_did_not_see_it(city: City, name: str) -> None:
    assert city.ask("admin", "DELETE", f"/v1/services/{name}").status_code == 204
    for answer in (
        city.ask("fleet", "PUT", f"/v1/services/{name}", json=OPENED),
        city.apply("fleet", {"services": {name: OPENED}}),
        city.apply("fleet", {"streams": {name: {"schema": {"vid": "string"}}}}),
    ):
        assert answer.status_code == 403, answer.text
        assert answer.json()["detail"] == (
            f"the name {name!r} was used for something that the key 'fleet' may not see: choose another"
        )
    assert city.ask("police", "PUT", f"/v1/services/{name}", json=OPENED).status_code == 200


def test_provider_defines_over_what_it_sees_all_of(city: City) -> None:
    answer = city.ask("fleet", "PUT", "/v1/services/mine", json={"from": "gps"})
    assert "'mine' would read 'gps', of which the key 'fleet' may not see all attributes" in answer.json()["detail"]
    two = {"services": {"a": {"from": "gps"}, "b": {"from": "a"}}}
    assert city.apply("fleet", two).status_code == 403
    unseen = city.apply("fleet", {"services": {"a": {"from": "chases"}}})
    assert "unknown stream or service 'chases'" in unseen.json()["detail"]
    # Those that join, with one that they see, too.
    joined = {"from": ["speeds", "gps"], "pipeline": [{"join": {"on": ["time"], "within": "1s"}}]}
    assert city.ask("fleet", "PUT", "/v1/services/mine", json=joined).status_code == 403
    assert city.ask("fleet", "PUT", "/v1/services/mine", json={"from": "speeds"}).status_code == 200


def test_caller_cannot_prune_invisible_services(city: City) -> None:
    answer = city.apply("fleet", {"services": {"speeds": OPENED}}, prune="true", force="true")
    assert (answer.status_code, "and so not remove all others" in answer.text) == (403, True)
    assert set(city.world.registry.services()) == {"gps", "speeds", "chases"}


def test_refusal_reveals_no_invisible_services(city: City) -> None:
    city.world.registry.apply(
        loads(
            """
services:
  spies: {from: speeds, pipeline: [{filter: speed > 7}], access: [police]}
  known: {from: speeds}
"""
        )
    )
    until(lambda: city.ask("fleet", "GET", "/v1/services/known").status_code == 200, "the services to be served")
    answer = city.ask("fleet", "DELETE", "/v1/services/speeds")
    assert answer.json()["detail"] == "'speeds' can't be removed: known and 1 service that you may not see read it"
    # Of a change that breaks it, neither its name nor its filter.
    changed = {"from": "gps_taxi", "pipeline": [{"project": {"kmh": "speed", "time": "time"}}]}
    answer = city.ask("fleet", "PUT", "/v1/services/speeds", json=changed, params={"force": "true"})
    assert "spies" not in answer.text
    assert answer.status_code in (409, 422), answer.text


def test_cycle_names_no_service_that_is_not_seen(city: City) -> None:
    city.world.registry.apply(
        loads("services: {spies: {from: speeds, access: [police]}, outside: {from: spies, access: keys}}")
    )
    until(lambda: city.ask("fleet", "GET", "/v1/services/outside").status_code == 200, "the services to be served")
    answer = city.ask("fleet", "PUT", "/v1/services/speeds", json={"from": "outside"})
    assert (answer.status_code, "spies" in answer.text) == (422, False), answer.text
    assert "it reads itself" in answer.text


# Operators ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/links"), ("GET", "/metrics"), ("GET", "/v1/keys")])
def test_calls_about_all_services_need_an_admin_of_all(city: City, method: str, path: str) -> None:
    for who in ("fleet", "citizen", "van"):
        answer = city.ask(who, method, path)
        assert answer.status_code == 403
        assert "which may not operate this broker; expected the role admin" in answer.json()["detail"]
    answer = city.ask("district", method, path)
    assert (answer.status_code, answer.json()["detail"]) == (
        403,
        "the key 'district' is for gps, gps_taxi, and this is about all services",
    )
    assert city.ask("admin", method, path).status_code in (200, 404, 409), (
        "there are no links, and no call for keys, in this gateway"
    )


def test_replay_writes_only_where_its_caller_may_append(city: City) -> None:
    refused = json.dumps({"_id": "patrol:0:1", "_src": "patrol/0:1", "_reason": "car: wrong", "car": "P1"}).encode()
    city.world.log.create("patrol.quarantine", ["0"])
    city.world.log.append("patrol.quarantine", "0", [refused])
    (entry,) = city.ask("police", "GET", "/v1/streams/patrol/quarantine").json()["quarantined"]
    body = {"events": [{"id": entry["id"], "event": CAR}]}
    answer = city.ask("police", "POST", "/v1/streams/patrol/quarantine/replay", json=body)
    assert (answer.status_code, "may not put events into 'patrol'" in answer.text) == (403, True)
