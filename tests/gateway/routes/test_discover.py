"""Finding services over HTTP: once, watched, from Python and from a shell."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from tests.gateway.running import World
from tests.pipelines.running import until
from tidegate import AsyncClient, Client
from tidegate.cli.main import app
from tidegate.client.errors import Refused
from tidegate.model import timestamps
from tidegate.pipelines.catalog import CatalogWriter
from tidegate.services import catalog

CITY = """
streams:
  gps_taxi: {schema: {vid: string, speed: float64, time: timestamp}, event_time: time, key: vid}
services:
  gps: {from: gps_taxi, constraints: {speed: "BETWEEN 0 AND 200"}, properties: {price: 3, region: north},
        categories: [traffic], themes: [transport], qos: {latency_p99: fast}}
  dear: {from: gps_taxi, properties: {price: 30, region: north}}
  plates: {from: gps_taxi, pipeline: [{project: {plate: vid, time: time}}], properties: {price: 1, region: south}}
"""


@pytest.fixture
def city(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, CITY)
    with world.running():
        yield world


@pytest.fixture
def http(city: World) -> Iterator[httpx.Client]:
    with city.client() as made:
        yield made


def found(http: httpx.Client, **request: Any) -> list[str]:
    answer = http.post("/v1/discover", json=request)
    assert answer.status_code == 200, answer.text
    return [each["name"] for each in answer.json()["results"]]


def say(world: World, service: str, state: str = "running", ago_s: float = 0.0, **more: Any) -> None:
    """Write the status of a service, as a runner does."""
    world.log.create("_status")
    moment = timestamps.to_text(round((time.time() - ago_s) * 1e6))
    said = {"service": service, "state": state, "version": 1, "time": moment, **more}
    world.log.append("_status", "0", [json.dumps(said).encode()])


def test_results_are_ranked_by_attributes_and_properties(http: httpx.Client) -> None:
    assert found(http) == ["dear", "gps", "plates"]
    assert found(http, attributes=["speed", "vid"]) == ["dear", "gps"]
    assert found(http, attributes={"speed": {"range": [0, 120]}}, coverage=1) == ["dear", "gps"]
    assert found(http, attributes={"speed": {"range": [0, 500]}}, coverage=1) == ["dear"]
    assert found(http, attributes=["sped"], names="edits") == ["dear", "gps"]
    assert found(http, filter="FUZZY(price IS Z(2, 60)) >= 0.1 AND region = 'north'") == ["gps", "dear"]
    assert found(http, filter="price < %0", params=[5], categories=["traffic"]) == ["gps"]
    (best,) = http.post("/v1/discover", json={"themes": "transport", "explain": True}).json()["results"]
    assert (best["name"], best["rank"], best["promises"][0]["verdict"]) == ("gps", 1, "unmeasured")


def test_empty_result_comes_with_hints_and_near_matches(http: httpx.Client) -> None:
    said = http.post("/v1/discover", json={"attributes": ["sped"]}).json()
    assert (said["results"], said["total"]) == ([], 0)
    assert "did you mean 'speed'?" in said["hints"][0]["message"]
    said = http.post("/v1/discover", json={"filter": "prise < 5"}).json()
    assert any("price" in each["message"] for each in said["hints"])
    said = http.post("/v1/discover", json={"filter": "FUZZY(price IS Z(0, 4)) >= 0.99"}).json()
    assert (said["results"], said["near"][0]["name"], said["near"][0]["match"]) == ([], "plates", "none")


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        (b"{", 400, "expected JSON"),
        (b"7", 422, "expected a request"),
        (b'{"atributes": []}', 422, "did you mean 'attributes'?"),
        (b'{"qos": {"weights": {"latency": 0}}}', 422, "at least one weight above 0"),
        (b'{"qos": {"limits": {"latency": "quick"}}}', 422, "one of instant, fast, moderate, slow"),
        (b'{"filter": "price <"}', 422, "filter: "),
        (b'{"limit": 0}', 422, "limit: expected 1 to 1,000 results, not 0"),
        (b'{"names": "sound"}', 422, "names can't be compared by 'sound'; expected one of exact, edits, meaning"),
        (b'{"names": "meaning", "attributes": ["a"]}', 422, "names can't be compared by meaning here: install an"),
    ],
)
def test_invalid_requests_are_refused(http: httpx.Client, body: bytes, status: int, detail: str) -> None:
    answer = http.post("/v1/discover", content=body)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert detail in answer.json()["detail"]


def test_quality_is_measured_from_status_events(city: World, http: httpx.Client) -> None:
    for written, latency_ms, ago_s in ((0, None, 3.0), (50, 400.0, 2.0), (100, 500.0, 1.0), (150, 450.0, 0.0)):
        say(city, "gps", ago_s=ago_s, written=written, quarantined=written // 50, latency_p99_ms=latency_ms)
    say(city, "dear")

    def promises() -> Any:
        results = http.post("/v1/discover", json={"attributes": ["speed"]}).json()["results"]
        return next(each["promises"] for each in results if each["name"] == "gps")[0]

    until(lambda: promises()["verdict"] == "broken", "the promise to be seen broken")
    assert promises()["measured"] == pytest.approx(0.5, rel=0.06)
    assert found(http, qos={"weights": {"rate": 1}})[0] == "gps"
    assert found(http, qos={"limits": {"completeness": 0.99}}) == []
    say(city, "gps", "restarting")
    until(lambda: "gps" not in found(http), "what is down to leave")
    say(city, "gps", written=150)
    until(lambda: "gps" in found(http), "what is back to come")


def test_silent_service_is_removed_from_results(tmp_path: Path) -> None:
    world = World(tmp_path, CITY)
    say(world, "gps", ago_s=10.0)
    say(world, "dear", ago_s=3_600.0)
    with world.running(), world.client() as http:
        until(lambda: found(http) == ["plates"], "the silent ones to leave")
        lost = {each["name"]: each["lost"] for each in http.get("/v1/services").json()["services"]}
        assert lost == {"gps": True, "dear": True, "plates": False}
        assert http.get("/v1/services/gps/status").json()["lost"] is True


def test_watch_sends_changes(city: World, http: httpx.Client) -> None:
    request = {"attributes": ["speed"], "filter": "price < 10"}
    with Client(city.url) as client:
        watching = client.watch(used="gps", **request)
        first = next(watching)
        assert (first["kind"], [each["name"] for each in first["results"]]) == ("answer", ["gps"])
        http.put("/v1/services/cheap", json={"from": "gps_taxi", "properties": {"price": 1}})
        said = next(watching)
        assert (said["kind"], [each["name"] for each in said["appeared"]]) == ("changes", ["cheap"])
        http.delete("/v1/services/cheap")
        assert next(watching)["left"] == ["cheap"]
        say(city, "gps", "stopped")
        said = next(watching)
        assert (said["left"], said["total"]) == (["gps"], 0)


def test_watch_parameter_works_with_and_without_a_value(http: httpx.Client) -> None:
    for query, kind in (
        ("?watch", "text/event-stream"),
        ("?watch=1", "text/event-stream"),
        ("?watch=0", "application/json"),
    ):
        with http.stream("POST", f"/v1/discover{query}", json={}) as answer:
            assert answer.headers["content-type"].partition(";")[0] == kind
    answer = http.post("/v1/discover?watch=perhaps", json={})
    assert answer.json()["detail"] == "watch: expected true or false, or nothing for true, not 'perhaps'"


def test_invalid_requests_of_clients_are_refused(city: World) -> None:
    with Client(city.url) as client:
        assert [each["name"] for each in client.discover(filter="price > 20")["results"]] == ["dear"]
        with pytest.raises(Refused, match="did you mean 'attributes'"):
            client.discover(atributes=["speed"])
        with pytest.raises(Refused, match="did you mean 'attributes'"):
            next(client.watch(atributes=["speed"]))


def test_awaited(city: World) -> None:
    async def run() -> list[str]:
        async with AsyncClient(city.url) as client:
            assert (await client.discover(attributes=["plate"]))["total"] == 1
            async for said in client.watch(attributes=["plate"]):
                return [each["name"] for each in said["results"]]
        return []

    assert asyncio.run(run()) == ["plates"]


def test_results_contain_only_visible_services(tmp_path: Path) -> None:
    world = World(tmp_path, CITY.replace("qos: {", "access: {fields: {vid: [police]}}, qos: {"))
    world.needs_keys = True
    with world.running(), world.client() as http:

        def as_(name: str, **more: Any) -> None:
            _, secret = world.registry.create_key(name, more.pop("role", "consumer"), **more)
            http.headers["authorization"] = f"Bearer {secret}"

        assert http.post("/v1/discover", json={}).status_code == 401
        as_("police")
        assert found(http, attributes=["vid"]) == ["dear", "gps"]
        as_("school")
        assert found(http, attributes=["vid"]) == ["dear"]
        say(world, "dear", "stopped")
        until(lambda: found(http, attributes=["vid"]) == [], "what is down to leave every view")
        as_("shop", services=["plates"])
        assert found(http) == ["plates"]


def test_watch_ends_when_the_key_is_revoked(tmp_path: Path) -> None:
    world = World(tmp_path, CITY)
    world.needs_keys = True
    key, secret = world.registry.create_key("somebody", "consumer")
    with world.running(), Client(world.url, key=secret) as client:
        watching = client.watch(attributes=["speed"])
        assert next(watching)["kind"] == "answer"
        world.registry.revoke_key(key.id)
        with pytest.raises(Refused, match="revoked"):
            next(watching)


def test_from_a_shell(city: World) -> None:
    def told(*args: str) -> str:
        return CliRunner().invoke(app, ["discover", *args, "--url", city.url], env={"COLUMNS": "200"}).output

    lines = told("speed:float64", "--filter", "price < %0", "--param", "10", "--weight", "latency=2").splitlines()
    assert (lines[1].split()[:2], lines[-1]) == (["gps", "1.00"], "1 of 1 services"), lines
    assert "did you mean 'speed'?" in told("sped")
    assert json.loads(told("--at-least", "availability=0.5", "--json"))["total"] == 0
    assert '"given"' in told("speed", "--explain", "--limit", "1")
    assert "expected a metric and its value, such as latency=2, not 'latency'" in told("--weight", "latency")


def test_registry_is_a_service_itself(city: World, http: httpx.Client) -> None:
    def tell() -> None:
        registered = city.registry.services()
        definitions = city.registry.definitions()
        from tidegate.services import stream_schemas

        CatalogWriter(city.log).update(registered, stream_schemas(definitions))

    def events(filter_: str) -> list[tuple[str, int, str]]:
        answer = http.get("/v1/services/_services/events", params={"from": "beginning", "filter": filter_})
        data = [each["data"] for each in answer.json()["events"]]
        return [(each["service"], each["version"], each["change"]) for each in data]

    tell()
    tell()  # another process: nothing is new
    assert events("change = 'added'") == [("dear", 1, "added"), ("gps", 1, "added"), ("plates", 1, "added")]
    http.put("/v1/services/dear", json={"from": "gps_taxi", "properties": {"price": 40}})
    http.delete("/v1/services/plates")
    tell()
    assert events("change <> 'added'") == [("plates", 1, "removed"), ("dear", 2, "changed")]
    http.put("/v1/services/plates", json={"from": "gps_taxi"})
    tell()
    assert events("service = 'plates'")[-1] == ("plates", 3, "added")
    last = json.loads(city.log.read(catalog.STREAM, city.log.begin(catalog.STREAM), 100).records[-1])
    assert json.loads(last["definition"])["from"] == "gps_taxi"
    assert last["attributes"] == ["vid", "speed", "time"]
