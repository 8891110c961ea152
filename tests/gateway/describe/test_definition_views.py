"""Which callers see the pipeline of a service; passwords are never shown."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway.running import World
from tests.pipelines.running import until
from tidegate.gateway.describe.definition import MASKED_ERROR
from tidegate.model import Schema
from tidegate.pipelines.catalog import CatalogWriter
from tidegate.pipelines.status import SCHEMA as STATUSES
from tidegate.services import stream_schemas
from tidegate.services.redaction import has_secret, redact, redacted

CITY = """
streams:
  gps_taxi:
    schema: {vid: string, speed: float64, time: timestamp}
    event_time: time
    source: {kafka: {topic: taxis, brokers: "kafka.internal:9092"}}
services:
  gps:
    from: gps_taxi
    description: Where taxis are
    qos: {latency_p99: 50ms}
    constraints: {speed: ">= 0"}
    mask: {vid: hmac}
    access: public
    pipeline: [{custom: {function: "os.path:join", schema: {vid: string, speed: float64, time: timestamp}}}]
  joined: {from: gps, access: {to: [police, role:provider], fields: {speed: [police]}}}
"""
PUBLIC = {
    "description": "Where taxis are",
    "qos": {"latency_p99": "50ms"},
    "constraints": {"speed": ">= 0"},
}
MADE = ("from", "pipeline", "mask", "access")
KEYS = {
    "consumer": ("consumer", None),
    "provider": ("provider", None),
    "narrow": ("provider", ["gps"]),
    "wide": ("provider", ["gps", "gps_taxi", "_services", "_status"]),
    "admin": ("admin", None),
}


@dataclass(frozen=True)
class City:
    world: World
    keys: dict[str, str]

    def get(self, who: str | None, path: str) -> Any:
        headers = {} if who is None else {"authorization": f"Bearer {self.keys[who]}"}
        with httpx.Client(base_url=self.world.url, headers=headers, timeout=30) as client:
            answer = client.get(f"/v1{path}")
            answer.raise_for_status()
            return answer.json()

    def catalog(self, who: str) -> list[dict[str, Any]]:
        """The events of `_services`, as a caller reads them from the log's beginning."""
        page = self.get(who, "/services/_services/events?from=beginning&format=plain&wait=0")
        found: list[dict[str, Any]] = page["events"]
        return found


@pytest.fixture(scope="module")
def city(tmp_path_factory: pytest.TempPathFactory) -> Iterator[City]:
    world = World(tmp_path_factory.mktemp("views"), CITY)
    world.needs_keys = True
    world.statuses = STATUSES
    keys = {name: world.registry.create_key(name, role, scope)[1] for name, (role, scope) in KEYS.items()}  # type: ignore[arg-type]
    schemas: dict[str, Schema] = stream_schemas(world.registry.definitions())
    CatalogWriter(world.log).update(world.registry.services(), schemas)
    world.tell_running("gps", state="restarting", reason="custom", error="can't read '/srv/secret/cameras.csv'")
    with world.running():
        city = City(world, keys)
        until(lambda: city.get("admin", "/services/gps")["status"] is not None, "the gateway to know the status")
        yield city


@pytest.mark.parametrize("who", [None, "consumer", "narrow"])
def test_definition_without_the_pipeline_is_shown_to_consumers_and_those_who_do_not_see_the_inputs(
    city: City, who: str | None
) -> None:
    assert city.get(who, "/services/gps")["definition"] == PUBLIC
    (listed,) = [each for each in city.get(who, "/services")["services"] if each["name"] == "gps"]
    assert listed["definition"] == PUBLIC
    (shown,) = [each for each in city.get(who, "/overview")["services"] if each["name"] == "gps"]
    assert shown["inputs"] == []
    for status in (shown["status"], listed["status"], city.get(who, "/services/gps/status")):
        assert status["error"] == MASKED_ERROR
        assert status["reason"] == ""
    assert "os.path" not in json.dumps(city.get(who, "/services/gps/asyncapi.json"))


INTERNAL = ("os.path:join", "kafka.internal", "/srv/secret")
"""Texts of a pipeline, a source and an error."""


@pytest.mark.parametrize("who", [None, "consumer"])
def test_consumers_see_no_pipeline_in_any_response(city: City, who: str | None) -> None:
    headers = {} if who is None else {"authorization": f"Bearer {city.keys[who]}"}
    values = {"{name}": "gps", "{stream}": "gps_taxi"}
    answers = 0
    with httpx.Client(base_url=city.world.url, headers=headers, timeout=30) as client:
        calls = [path for path, methods in client.get("/openapi.json").json()["paths"].items() if "get" in methods]
        for path in (*calls, "/v1/services/_services/events", "/v1/services/_status/events"):
            for name, value in values.items():
                path = path.replace(name, value)
            if "{" in path:
                continue
            asked = client.get(path, params={"from": "beginning", "wait": "0", "max": "10"} if "events" in path else {})
            assert not [each for each in INTERNAL if each in asked.text], path
            answers += asked.status_code == 200
        found = client.post("/v1/discover", json={"explain": True} if who else {})
        assert not [each for each in INTERNAL if each in found.text]
    assert answers > 5


def test_sweep_of_calls_finds_what_admins_are_shown(city: City) -> None:
    shown = "".join(json.dumps(city.get("admin", path)) for path in ("/services", "/streams", "/overview"))
    assert all(each in shown for each in INTERNAL), "else the sweep above would prove nothing"


@pytest.mark.parametrize("who", ["provider", "wide", "admin"])
def test_providers_who_see_the_inputs_are_shown_the_whole_definition(city: City, who: str) -> None:
    definition = city.get(who, "/services/gps")["definition"]
    assert definition.keys() >= {*MADE, *PUBLIC}
    (shown,) = [each for each in city.get(who, "/overview")["services"] if each["name"] == "gps"]
    assert shown["inputs"] == ["gps_taxi"]
    assert "/srv/secret" in city.get(who, "/services/gps/status")["error"]


def test_provider_who_does_not_see_all_attributes_is_not_shown_the_pipeline(city: City) -> None:
    assert city.get("provider", "/services/joined")["definition"] == {}
    assert "access" in city.get("admin", "/services/joined")["definition"]


def test_source_of_a_stream_is_for_providers(city: City) -> None:
    assert "kafka.internal" not in json.dumps(city.get("consumer", "/streams"))
    assert "source" not in city.get("consumer", "/streams/gps_taxi")["definition"]
    assert "kafka.internal" in json.dumps(city.get("provider", "/streams/gps_taxi"))


def test_catalog_stream_shows_definitions_to_those_who_see_everything(city: City) -> None:
    assert all("definition" in each for each in city.catalog("admin"))
    told = city.catalog("wide")
    assert told, "the events themselves are there"
    assert all("definition" not in each for each in told), "its key is not for every service"


# Passwords that were stored before they were refused --------------------------

OLD_URL = "jdbc:postgresql://db/city?user=gate&password=hunter2"


def test_password_stored_by_an_older_version_is_never_shown(tmp_path: Path) -> None:
    enrich = """
  old: {from: gps_taxi, pipeline: [{enrich: {jdbc: {url: "jdbc:postgresql://db/city", table: t}, on: vid,
    schema: {vid: string, road: string?}}}]}
"""
    world = World(tmp_path, CITY + enrich)
    world.statuses = STATUSES
    with sqlite3.connect(tmp_path / "registry.sqlite") as database:
        for table in ("definitions", "history"):
            database.execute(
                f"UPDATE {table} SET document = replace(document, 'jdbc:postgresql://db/city', ?)", [OLD_URL]
            )
    database.close()
    definitions = world.registry.definitions()
    assert "hunter2" in str(definitions.services["old"]), "the registry still has it, and the service still runs"
    CatalogWriter(world.log).update(world.registry.services(), stream_schemas(definitions))
    with world.running(), world.client() as http:
        for path in (
            "services",
            "services/old",
            "overview",
            "services/_services/events?from=beginning&wait=0",
        ):
            answer = http.get(f"/v1/{path}")
            assert answer.status_code == 200, answer.text
            assert "hunter2" not in answer.text, path
        assert "password=***" in http.get("/v1/services/old").text


def test_catalog_stream_with_a_password_is_rewritten(tmp_path: Path) -> None:
    world = World(tmp_path, CITY)
    catalog = CatalogWriter(world.log)
    catalog.update(world.registry.services(), stream_schemas(world.registry.definitions()))
    (first, *_) = world.log.read("_services", world.log.begin("_services"), 10).records
    old = json.loads(first) | {"service": "old", "_id": "old@1", "definition": json.dumps({"url": OLD_URL})}
    world.log.append("_services", "0", [json.dumps(old).encode()])
    generation = world.log.begin("_services").generation
    CatalogWriter(world.log)
    begin = world.log.begin("_services")
    assert begin.generation != generation
    events = [json.loads(each) for each in world.log.read("_services", begin, 10).records]
    assert sorted(each["service"] for each in events) == ["gps", "joined", "old"]
    assert "hunter2" not in json.dumps(events)
    CatalogWriter(world.log)
    assert world.log.begin("_services").generation == begin.generation, "it is written anew once"
    folder = tmp_path / "log"
    assert not any(b"hunter2" in each.read_bytes() for each in folder.rglob("*") if each.is_file())


def test_function_option_named_like_a_secret_is_never_shown() -> None:
    options = {"url": "https://host/x", "auth": {"apiKey": "hunter2"}, "max_tokens": 5, "tokens": ["a"]}
    pipeline = [{"custom": {"function": "f", "options": options, "schema": {"password": "string"}}}]
    shown = redacted({"from": "gps", "pipeline": pipeline})
    assert shown["pipeline"][0]["custom"]["options"] == {**options, "auth": {"apiKey": "***"}}
    assert shown["pipeline"][0]["custom"]["schema"] == {"password": "string"}, "an attribute is no secret"
    schema = {"custom": {"function": "string", "options": "string"}, "token": "string"}
    assert redacted({"schema": schema}) == {"schema": schema}
    source = {"source": {"mqtt": {"topic": "t", "broker": "user:hun@ter2@host:1883"}}}
    assert redacted(source)["source"]["mqtt"] == {"topic": "t", "broker": "***@host:1883"}
    compared = {"pipeline": [{"filter": "(token = other)"}], "constraints": {"token": "= 1 AND (secret = 2)"}}
    assert redacted(compared) == compared, "else nobody could change a definition that they were shown"


@pytest.mark.parametrize(
    "text",
    [
        "jdbc:mysql://root:hunter2@db/x",
        "https://u:hunter2@host/path",
        "jdbc:oracle:thin:scott/hunter2@//db:1521/x",
        "jdbc:sqlserver://db;user=a;password=hunter2;encrypt=true",
        "jdbc:postgresql://db/x?ssl=true&sslpassword=hunter2",
        "jdbc:postgresql://db/x?PassWord = hunter2",
        "jdbc:postgresql://db/x?p%61ssword=hunter2",
        "https://host/x?api_key=hunter2",
        "s3a://host/x?fs.s3a.secret.key=hunter2",
        "https://host/x?next=jdbc:postgresql://db/x?password=hunter2",
        "jdbc:oracle:thin:a/hunter2@db?password=hunter2,//u:hunter2@h",
    ],
)
def test_password_in_a_url_is_found_and_hidden(text: str) -> None:
    assert has_secret(text)
    assert "hunter2" not in redact(text)


@pytest.mark.parametrize(
    "part",
    [
        "password",
        "jdbc:oracle:a:/",
        "jdbc:oracle:a:b",
        ":password=",
        "//a:",
        ", ",
        "%25",
        "//u:p@",
        "a.",
        "?a=",
        "&token =",
    ],
)
def test_long_text_is_searched_in_time_that_grows_with_its_length(part: str) -> None:
    text = f":{part * (1_000_000 // len(part))}"
    begun = time.process_time()
    has_secret(text)
    redact(text)
    assert time.process_time() - begun < 5, "a search that backtracks takes hours"


@pytest.mark.parametrize(
    "text",
    [
        "jdbc:postgresql://db:5432/city?user=gate",
        "https://host:8080/a@b",
        "/srv/passwords.csv",
        "speed > 60",
        "fleet/+/gps",
        "host:9092,other:9092",
        "mailto:someone@example.org",
    ],
)
def test_text_without_a_password_is_unchanged(text: str) -> None:
    assert not has_secret(text)
    assert redact(text) == text
