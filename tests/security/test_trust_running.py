"""Definitions that came over the network, run by Spark: with what the profile lists, and with nothing else."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.pipelines.running import until
from tests.security import processes
from tests.security.processes import Running, create_key, tidegate, write_profile
from tidegate.cli.data_folder.home import Home
from tidegate.services import loads

pytestmark = [pytest.mark.spark, pytest.mark.processes, pytest.mark.xdist_group("trust_running")]

SECRET = "hunter2"
SCHEMA = "{vid: string, speed: float64, time: timestamp}"
CITY = f"""
streams:
  gps_taxi: {{schema: {SCHEMA}, event_time: time}}
services:
  operated:
    from: gps_taxi
    pipeline: [{{custom: {{function: "city_functions:scale", schema: {SCHEMA}, options: {{factor: 2}}}}}}]
"""
PLANTED = """
streams:
  planted_file: {schema: {vid: string, secret: string}, source: {files: SECRET_FILE}}
  other_raw: {schema: {vid: string}}
services:
  planted_seen: {from: planted_file}
  planted_code: {from: other_raw, pipeline: [{custom: {function: "evil:run", schema: {vid: string}}}]}
  planted_table:
    from: other_raw
    pipeline: [{enrich: {table: SECRET_FILE, on: vid, schema: {vid: string, secret: string?}}}]
"""
FUNCTIONS = """
import pyarrow as pa
import pyarrow.compute as pc

def scale(batches, factor=1):
    for batch in batches:
        at = batch.schema.get_field_index("speed")
        yield batch.set_column(at, "speed", pc.multiply(batch.column("speed"), pa.scalar(float(factor))))
"""
EVENTS = [{"vid": f"B{n}", "speed": 10.0 * n, "time": f"2026-01-01T00:00:0{n}Z"} for n in (1, 2, 3)]


@dataclass(frozen=True)
class City:
    """A Tidegate whose registry also holds definitions that an attacker has planted."""

    running: Running
    folder: Path
    keys: dict[str, str]

    def ask(self, who: str, method: str, path: str, **more: Any) -> httpx.Response:
        with self.running.client(self.keys[who]) as client:
            return client.request(method, f"/v1/{path}", **more)

    def put(self, who: str, path: str, definition: dict[str, Any]) -> None:
        answer = self.ask(who, "PUT", path, content=json.dumps(definition))
        assert answer.status_code == 200, answer.text

    def events(self, service: str) -> list[dict[str, Any]]:
        answer = self.ask("admin", "GET", f"services/{service}/events?from=beginning&format=plain&wait=0")
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["events"]
        return found

    def error(self, service: str) -> str:
        return str(self.ask("admin", "GET", f"services/{service}/status").json().get("error"))

    @property
    def canary(self) -> Path:
        """A file that exists once planted code has run."""
        return self.folder / "canary"


def write_modules(folder: Path) -> None:
    """Write a package of functions with an entry point, and a module that leaves a trace when it is imported."""
    (folder / "city_functions.py").write_text(FUNCTIONS)
    (folder / "evil.py").write_text(f"open({str(folder / 'canary')!r}, 'w')\ndef run(batches): return batches\n")
    installed = folder / "city_functions-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: city-functions\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("[tidegate.functions]\ncity.scale = city_functions:scale\n")


@pytest.fixture(scope="module")
def city(tmp_path_factory: pytest.TempPathFactory) -> Iterator[City]:
    folder = tmp_path_factory.mktemp("running")
    data, opened = folder / "data", folder / "open"
    data.mkdir()
    opened.mkdir()
    (folder / "secret.csv").write_text(f"vid,secret\nB1,{SECRET}\n")
    (opened / "cameras.csv").write_text("vid,road\nB1,A5\nB2,A6\n")
    (opened / "more").mkdir()
    (opened / "more" / "first.csv").write_text("vid,secret\nB1,known\n")
    write_modules(folder)
    functions = {"scale": "city_functions:scale"}
    profile = write_profile(folder, functions=functions, roots=[str(opened)])
    path = f"{folder}:{os.environ.get('PYTHONPATH', '')}"
    (folder / "city.yaml").write_text(CITY)
    os.environ["PYTHONPATH"], before = path, os.environ.get("PYTHONPATH")
    try:
        applied = tidegate("apply", folder / "city.yaml", data=data)
        assert applied.returncode == 0, applied.stderr
    finally:
        os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)
    keys = {
        "admin": create_key(data, "root", "admin"),
        "weak": create_key(data, "weak", "provider", "gps_taxi", "named", "packaged"),
    }
    with processes.up(data, "--profile", profile, env={"PYTHONPATH": path}) as running:
        # Past the gateway's check, as an older version would have stored them.
        registry = Home(data).registry()
        registry.apply(loads(PLANTED.replace("SECRET_FILE", str(folder / "secret.csv"))), origin="remote")
        registry.close()
        yield City(running, folder, keys)


def test_registered_functions_run_when_a_remote_definition_names_them(city: City) -> None:
    schema = {"vid": "string", "speed": "float64", "time": "timestamp"}
    for name, function in (("named", "scale"), ("packaged", "city.scale")):
        operator = {"custom": {"function": function, "schema": schema, "options": {"factor": 3}}}
        city.put("weak", f"services/{name}", {"from": "gps_taxi", "pipeline": [operator]})
    table = {"enrich": {"table": str(city.folder / "open" / "cameras.csv"), "on": "vid"}}
    city.put("admin", "services/looked_up", {"from": "gps_taxi", "pipeline": [table]})
    names = ("operated", "named", "packaged", "looked_up")

    def run() -> bool:
        states = {name: city.ask("admin", "GET", f"services/{name}/status").json() for name in names}
        return all(state.get("state") == "running" for state in states.values())

    until(run, "the services to run")
    sent = city.ask("admin", "POST", "streams/gps_taxi/events", json=EVENTS)
    assert sent.status_code in (200, 202), sent.text
    until(lambda: all(len(city.events(name)) == len(EVENTS) for name in names), "all events")
    assert [each["speed"] for each in city.events("operated")] == [20.0, 40.0, 60.0], (
        "a file of the operator is trusted"
    )
    for name in ("named", "packaged"):
        assert [each["speed"] for each in city.events(name)] == [30.0, 60.0, 90.0], name
    assert [each.get("road") for each in city.events("looked_up")] == ["A5", "A6", None]


def test_import_path_that_was_planted_in_the_registry_is_not_imported(city: City) -> None:
    until(lambda: "is an import path" in city.error("planted_code"), "the error of the planted service")
    assert "tidegate apply FILE" in city.error("planted_code")
    assert not city.canary.exists()


def test_table_that_was_planted_in_the_registry_is_not_read(city: City) -> None:
    until(lambda: "leads out of the folders" in city.error("planted_table"), "the error of the planted service")


def test_files_out_of_the_roots_are_not_read_by_sources(city: City) -> None:
    source = {"schema": {"vid": "string", "secret": "string"}, "source": {"files": str(city.folder / "open" / "more")}}
    city.put("admin", "streams/lines", source)
    city.put("admin", "services/lines_seen", {"from": "lines"})
    # The check is over: now a link is planted that leads out, and a file behind it in order.
    (city.folder / "open" / "more" / "link.csv").symlink_to(city.folder / "secret.csv")
    (city.folder / "open" / "more" / "folder").symlink_to(city.folder)
    (city.folder / "open" / "more" / "zlast.csv").write_text("vid,secret\nB2,last\n")
    until(lambda: "last" in [each["secret"] for each in city.events("lines_seen")], "the last file to be read")
    assert [each["secret"] for each in city.events("lines_seen")] == ["known", "last"]
    assert city.events("planted_seen") == []
    for stream in ("lines", "planted_file"):
        assert SECRET not in city.ask("admin", "GET", f"streams/{stream}/quarantine").text
    log = city.running.data / "log"
    assert not [each for each in log.rglob("*") if each.is_file() and SECRET.encode() in each.read_bytes()]
