"""Web pages: whose may use the gateway."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from tests.gateway.running import World
from tidegate.cli.main import app
from tidegate.errors import EnvironmentProblem
from tidegate.gateway.auth.origins import checked

PAGE, OTHER = "https://page.example", "https://other.example"
EVENTS = "/v1/services/gps/events"


@pytest.fixture
def world(tmp_path: Path) -> Any:
    world = World(tmp_path)
    world.origins = (PAGE,)
    with world.running():
        yield world


def test_page_of_an_allowed_origin_may_read(http: httpx.Client) -> None:
    answer = http.get("/v1/services", headers={"origin": PAGE})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, PAGE)
    assert answer.headers["vary"] == "Origin"
    problem = http.get("/v1/services/gsp", headers={"origin": PAGE})
    assert (problem.status_code, problem.headers["access-control-allow-origin"]) == (404, PAGE)
    asked = {"origin": PAGE, "accept": "text/event-stream"}
    with http.stream("GET", EVENTS, headers=asked) as stream:
        assert stream.headers["access-control-allow-origin"] == PAGE
    assert "access-control-allow-origin" not in http.get("/v1/services").headers


def test_preflight_request_is_answered(http: httpx.Client) -> None:
    asked = {
        "origin": PAGE,
        "access-control-request-method": "PATCH",
        "access-control-request-headers": "authorization,content-type",
    }
    answer = http.request("OPTIONS", "/v1/subscriptions/x", headers=asked)
    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert "PATCH" in answer.headers["access-control-allow-methods"]
    assert answer.headers["access-control-allow-headers"] == "authorization,content-type"
    assert http.request("OPTIONS", "/v1/subscriptions/x", headers={**asked, "origin": OTHER}).status_code == 403


def test_page_of_another_origin_is_refused(world: World, http: httpx.Client) -> None:
    """The form of any page can send this without a preflight request: it must have no effect."""
    said = b'{"deliver": {"webhook": {"url": "https://other.example/in", "handshake": false}}}'
    headers = {"origin": OTHER, "content-type": "text/plain"}
    answer = http.post("/v1/services/gps/subscriptions", content=said, headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (403, "urn:tidegate:problem:bad-origin")
    assert f"a page of {OTHER} may not use this gateway" in answer.json()["detail"]
    assert "access-control-allow-origin" not in answer.headers
    assert http.get("/v1/services/gps/subscriptions").json() == {"subscriptions": []}
    assert http.get("/v1/services", headers={"origin": "null"}).status_code == 403


def test_own_pages_are_always_allowed(world: World, http: httpx.Client) -> None:
    for scheme in ("http", "https"):  # behind a proxy that speaks TLS
        answer = http.get("/v1/services", headers={"origin": f"{scheme}://127.0.0.1:{world.port}"})
        assert answer.status_code == 200


def test_websockets_follow_the_same_origin_rules(world: World) -> None:
    address = f"ws://127.0.0.1:{world.port}/v1/events"
    with connect(address, origin=Origin(PAGE)) as socket:
        socket.send('{"op":"ping"}')
        assert socket.recv(20) == '{"op":"pong"}'
    with pytest.raises(InvalidStatus) as refused:
        connect(address, origin=Origin(OTHER))
    assert refused.value.response.status_code == 403


def test_wildcard_origin_is_allowed_if_keys_are_required(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.needs_keys, world.origins = True, ("*",)
    with world.running(), world.client() as http:
        answer = http.get("/v1/services", headers={"origin": OTHER})
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (401, "*")


@pytest.mark.parametrize("origin", ["page.example", "https://page.example/", "https://page.example/a", "ftp://x", ""])
def test_malformed_origin_is_refused_at_start(origin: str) -> None:
    with pytest.raises(EnvironmentProblem, match=r"expected an origin such as https://example\.com"):
        checked([origin], needs_keys=True)


def test_origin_option_of_the_command_line(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["gateway", "--data", str(tmp_path), "--port", "0", "--origin", "*"])
    assert "any page in a browser on this machine could read and write everything" in str(done.exception)
