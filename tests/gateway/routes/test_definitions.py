"""Service files and raw streams over HTTP, and `tidegate apply --url`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from tests.gateway.running import CITY, World
from tidegate import AsyncClient, Client
from tidegate.cli.main import app
from tidegate.errors import ClientError, EnvironmentProblem

MORE = """
streams:
  air: {schema: {pm: float64}}
services:
  bad_air:
    from: air
    pipeline: [{filter: pm > 50}]
"""
BROKEN = MORE.replace("pm > 50", "mp > 50")


def test_file_is_applied_as_a_whole_or_not_at_all(world: World, http: httpx.Client) -> None:
    refused = http.post("/v1/apply", params={"name": "air.yaml"}, content=BROKEN)
    assert refused.status_code == 422
    (problem,) = refused.json()["errors"]
    assert (problem["file"], problem["line"]) == ("air.yaml", 7)
    assert problem["pointer"] == "services.bad_air.pipeline[0].filter"
    assert refused.json()["detail"].startswith("air.yaml:7: services.bad_air.pipeline[0].filter: ")
    assert http.get("/v1/streams/air").status_code == 404

    made = http.post("/v1/apply", content=MORE)
    assert made.json() == {
        "added": {"air": 1, "bad_air": 1},
        "changed": {},
        "unchanged": {},
        "removed": {},
        "states": {},
    }
    assert world.registry.service("bad_air").version == 1
    assert http.get("/v1/streams/air").json()["definition"]["schema"] == {"pm": "float64"}
    again = http.post("/v1/apply", json={"services": {"bad_air": {"from": "air", "pipeline": [{"filter": "pm > 40"}]}}})
    assert (again.json()["changed"], again.json()["unchanged"]) == ({"bad_air": 2}, {})


def test_several_files_share_their_names(world: World) -> None:
    with Client(world.url) as client:
        streams, _, services = MORE.partition("services:")
        made = client.apply({"a.yaml": f"services:{services}", "b.yaml": streams})
        assert made["added"] == {"air": 1, "bad_air": 1}
        pruned = client.apply(CITY, prune=True)
        assert pruned["removed"] == {"air": 1, "bad_air": 1}

    async def awaited() -> dict[str, dict[str, int]]:
        async with AsyncClient(world.url) as other:
            return await other.apply(CITY)

    assert asyncio.run(awaited())["unchanged"] == {"gps_taxi": 1, "gps": 1, "fast": 1}


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        (b" ", 400, "expected a service file, and the body is empty"),
        (b'{"files": {"a": 1}}', 400, "files: expected the text of each file by its name"),
        (b"\xff", 400, "expected UTF-8: "),
        (b"x" * (1024 * 1024 + 1), 413, "expected at most 1,048,576 bytes in one request"),
        (
            b"streams: {a: {schema: {n: int64}, source: {files: 'data/*.csv'}}}",
            422,
            "<body>:1: streams.a.source: expected an absolute path of the machine that runs it, not 'data/*.csv'",
        ),
        (
            b"services: {a: {from: gps, pipeline: [{enrich: {table: cars.csv, on: vid}}]}}",
            422,
            "<body>:1: services.a.pipeline[0]: expected an absolute path of the machine that runs it, not 'cars.csv'",
        ),
    ],
)
def test_invalid_definitions_are_refused(shared: httpx.Client, body: bytes, status: int, detail: str) -> None:
    answer = shared.post("/v1/apply", content=body)
    assert (answer.status_code, answer.json()["detail"][: len(detail)]) == (status, detail)


def test_breaking_change_needs_force(http: httpx.Client) -> None:
    text = "services: {fast: {from: gps, pipeline: [{project: {vid: vid, time: time}}]}}"
    assert http.post("/v1/apply", content=text).json()["type"] == "urn:tidegate:problem:breaking-change"
    assert http.post("/v1/apply", params={"force": "true"}, content=text).json()["changed"] == {"fast": 2}


def test_stream_is_added_changed_and_removed(http: httpx.Client) -> None:
    made = http.put("/v1/streams/air", content="{schema: {pm: float64}}")
    assert (made.status_code, made.json()["name"]) == (200, "air")
    assert http.put("/v1/streams/air", json={"schema": {"pm": "float64", "at": "string?"}}).status_code == 200
    assert list(http.get("/v1/streams/air").json()["definition"]["schema"]) == ["pm", "at"]
    assert "air" in [each["name"] for each in http.get("/v1/streams").json()["streams"]]
    assert http.put("/v1/streams/air", content="{").status_code == 400
    wrong = http.put("/v1/streams/air", json={"schema": {"pm": "float99"}})
    assert (wrong.status_code, wrong.json()["errors"][0]["pointer"]) == (422, "streams.air.schema.pm")
    assert http.delete("/v1/streams/air").status_code == 204
    gone = http.delete("/v1/streams/air")
    assert (gone.status_code, gone.json()["detail"]) == (404, "no stream 'air'; did you mean 'gps_taxi'?")
    assert http.delete("/v1/streams/gps_taxi").status_code == 409


def test_key_for_some_services_changes_only_those(world: World, http: httpx.Client) -> None:
    def apply(secret: str, text: str, **params: str) -> tuple[int, str]:
        answer = http.post("/v1/apply", params=params, content=text, headers={"authorization": f"Bearer {secret}"})
        return answer.status_code, answer.json().get("detail", "")

    _, consumer = world.registry.create_key("reader", "consumer")
    _, some = world.registry.create_key("air", "provider", ["air", "bad_air"])
    _, all_ = world.registry.create_key("all", "provider")
    assert apply(consumer, MORE) == (
        403,
        "the key 'reader' has the role consumer, which may not change services and streams; "
        "expected the role provider or admin",
    )
    assert apply(some, MORE) == (200, "")
    assert apply(some, CITY) == (403, "the key 'air' is for air, bad_air, not for 'gps_taxi'")
    assert apply(some, MORE, prune="true") == (
        403,
        "the key 'air' may not see all services, and so not remove all others",
    )
    assert apply(all_, CITY) == (200, "")


def test_apply_with_a_url(world: World, tmp_path: Path) -> None:
    runner = CliRunner()
    file = tmp_path / "air.yaml"
    file.write_text(BROKEN)
    told = runner.invoke(app, ["apply", str(file), "--url", world.url])
    assert isinstance(told.exception, ClientError)
    local = runner.invoke(app, ["apply", str(file), "--data", str(tmp_path / "else")])
    assert str(told.exception) == str(local.exception)
    assert str(local.exception).startswith(f"{file}:7: services.bad_air")

    file.write_text(MORE)
    done = runner.invoke(app, ["apply", str(file), "--url", world.url])
    assert done.stdout == "added      air  version 1\nadded      bad_air  version 1\n"
    again = runner.invoke(app, ["apply", str(file), "--json"], env={"TIDEGATE_URL": world.url})
    assert json.loads(again.stdout)["unchanged"] == {"air": 1, "bad_air": 1}
    missing = runner.invoke(app, ["apply", str(tmp_path / "none.yaml"), "--url", world.url])
    assert isinstance(missing.exception, EnvironmentProblem)
    assert str(missing.exception).endswith("none.yaml: can't read it: No such file or directory")
