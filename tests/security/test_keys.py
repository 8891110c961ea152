"""API keys over HTTP: who may manage them, rotation, and secrets that are never shown."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway.running import World
from tests.pipelines.running import until
from tidegate.registry import Role
from tidegate.registry.keys import prefix_of


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A gateway that requires keys."""
    made = World(tmp_path)
    made.needs_keys = True
    made.tell_running("gps", "fast")
    with made.running():
        yield made


@pytest.fixture
def admin(world: World) -> Iterator[httpx.Client]:
    with client(world, world.registry.create_key("root", "admin")[1]) as http:
        yield http


def client(world: World, secret: str | None) -> httpx.Client:
    http = world.client()
    if secret is not None:
        http.headers["authorization"] = f"Bearer {secret}"
    return http


def opens(world: World, secret: str) -> bool:
    with client(world, secret) as http:
        return http.get("/v1/services").status_code == 200


def create(http: httpx.Client, **wanted: Any) -> dict[str, Any]:
    answer = http.post("/v1/keys", json={"name": "fleet", **wanted})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def shown(http: httpx.Client, id_: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in http.get("/v1/keys").json()["keys"] if each["id"] == id_)
    return found


def test_key_is_created_used_rotated_and_revoked(world: World, admin: httpx.Client) -> None:
    made = create(admin, role="consumer", services=["gps"], expires="90d", quotas={"connections": 5})
    assert (made["role"], made["services"], made["quotas"]) == ("consumer", ["gps"], {"connections": 5})
    expires_at = datetime.fromisoformat(made["expires_at"])
    assert timedelta(days=89) < expires_at - datetime.now(UTC) <= timedelta(days=90)
    assert shown(admin, made["id"])["last_used_at"] is None
    assert opens(world, made["secret"])
    used = shown(admin, made["id"])
    assert used["last_used_from"] == "127.0.0.1"
    assert datetime.fromisoformat(used["last_used_at"]) > datetime.now(UTC) - timedelta(seconds=30)

    rotated = admin.post(f"/v1/keys/{made['id']}/rotate", json={"overlap": "1h"}).json()
    assert rotated["previous_until"] is not None
    assert opens(world, made["secret"])
    assert opens(world, rotated["secret"])

    revoked = admin.delete(f"/v1/keys/{made['id']}")
    assert (revoked.status_code, revoked.json()["state"]) == (200, "revoked")
    assert not opens(world, made["secret"]), "a revoked key opens nothing at once"
    assert not opens(world, rotated["secret"])
    assert admin.post(f"/v1/keys/{made['id']}/rotate").status_code == 409


def test_secret_is_shown_once(world: World, admin: httpx.Client) -> None:
    made = create(admin)
    rotated = admin.post(f"/v1/keys/{made['id']}/rotate").json()
    for path in ("/v1/keys", "/v1/me", "/v1/overview", "/metrics"):
        text = admin.get(path).text
        for each in (made["secret"], rotated["secret"]):
            assert each not in text
            assert each.split("_", 2)[2] not in text
    stored = b"".join(each.read_bytes() for each in Path(world.log._root).parent.glob("registry.sqlite*"))
    assert made["secret"].encode() not in stored
    assert rotated["secret"].split("_", 2)[2].encode() not in stored


def test_rotation_without_overlap_ends_the_old_secret_and_its_connections(world: World, admin: httpx.Client) -> None:
    """A leaked secret is rotated with overlap 0: the thief's open connection must not stay."""
    made = create(admin, role="consumer")
    ended = threading.Event()

    def steal() -> None:
        with client(world, made["secret"]) as http:
            events = http.stream("GET", "/v1/services/gps/events", headers={"accept": "text/event-stream"}, timeout=60)
            with events as answer:
                for line in answer.iter_lines():
                    if "was replaced" in line:
                        ended.set()
                        return

    thief = threading.Thread(target=steal)
    thief.start()
    until(lambda: world.counts().get("gps", {}).get("live", 0) == 1, "the thief to listen")
    rotated = admin.post(f"/v1/keys/{made['id']}/rotate", json={"overlap": "0s"}).json()
    assert not opens(world, made["secret"])
    assert opens(world, rotated["secret"])
    assert ended.wait(30), "the connection of the old secret stayed"
    thief.join(30)
    assert not thief.is_alive()


def test_overlap_ends_by_itself_and_survives_a_restart(world: World, admin: httpx.Client, tmp_path: Path) -> None:
    made = create(admin)
    until_soon = admin.post(f"/v1/keys/{made['id']}/rotate", json={"overlap": "1s"}).json()
    first = until_soon["secret"]
    second = admin.post(f"/v1/keys/{made['id']}/rotate", json={"overlap": "1d"}).json()["secret"]
    assert not opens(world, made["secret"]), "of two rotations the last one's overlap counts"
    key = world.registry.find_key(first)
    assert key is not None
    assert key.holds(str(prefix_of(first)), datetime.now(UTC))
    assert not key.holds(str(prefix_of(first)), datetime.now(UTC) + timedelta(days=2))
    later = World(tmp_path)  # another gateway over the same registry
    later.needs_keys = True
    with later.running():
        assert opens(later, first)
        assert opens(later, second)


@pytest.mark.parametrize("role", ["consumer", "provider"])
@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/v1/keys"), ("POST", "/v1/keys"), ("POST", "/v1/keys/{id}/rotate"), ("DELETE", "/v1/keys/{id}")],
)
def test_others_than_admins_manage_no_keys(world: World, role: Role, method: str, path: str) -> None:
    key, secret = world.registry.create_key("mine", role)
    with client(world, secret) as http:
        body = {"name": "me", "role": "admin"} if path == "/v1/keys" and method == "POST" else None
        answer = http.request(method, path.format(id=key.id), json=body)
        assert answer.status_code == 403, answer.text
        assert "keys" not in http.get("/v1/me").json()["has"]
    assert [each.name for each in world.registry.keys().values()] == ["mine"]


def test_admin_of_some_services_cannot_extend_their_rights(world: World) -> None:
    key, secret = world.registry.create_key("some", "admin", ["gps"])
    with client(world, secret) as http:
        for method, path in (("POST", "/v1/keys"), ("POST", f"/v1/keys/{key.id}/rotate"), ("GET", "/v1/keys")):
            answer = http.request(method, path, json={"name": "me", "role": "admin"} if path == "/v1/keys" else None)
            assert answer.status_code == 403
            assert "'some' is for" in answer.json()["detail"]
    assert len(world.registry.keys()) == 1


def test_stranger_gets_nothing(world: World) -> None:
    with client(world, None) as http:
        assert http.get("/v1/keys").status_code == 401
        assert http.post("/v1/keys", json={"name": "me", "role": "admin"}).status_code == 401


def test_open_gateway_makes_no_key_that_would_hold_when_keys_are_required(tmp_path: Path) -> None:
    with World(tmp_path).running() as world, world.client() as http:
        assert http.get("/v1/keys").json() == {"keys": []}
        answer = http.post("/v1/keys", json={"name": "later", "role": "admin"})
        assert answer.status_code == 403
        assert "tidegate keys create|rotate|revoke --data FOLDER" in answer.json()["detail"]
        assert world.registry.keys() == {}


def test_key_does_not_lock_itself_out(world: World, admin: httpx.Client) -> None:
    (own,) = admin.get("/v1/keys").json()["keys"]
    answer = admin.delete(f"/v1/keys/{own['id']}")
    assert answer.status_code == 409
    assert f"tidegate keys revoke {own['id']}" in answer.json()["detail"]
    assert admin.get("/v1/keys").status_code == 200


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"name": ""}, "name: expected a text of 1 to 200 printable characters"),
        ({"name": "a\nb"}, "name: expected a text"),
        ({"name": 7}, "name: expected a text"),
        ({"name": "x", "role": "root"}, "role: expected one of"),
        ({"name": "x", "services": "gps"}, "services: expected a list"),
        ({"name": "x", "streams": [7]}, "streams: expected a list"),
        ({"name": "x", "expires": "soon"}, "expires: expected a length of time such as 90d"),
        ({"name": "x", "expires": "0s"}, "expires: expected a length of time above 0"),
        ({"name": "x", "expires": "9999999d"}, "up to 100 years"),
        ({"name": "x", "quotas": {"planes": 1}}, "'planes' is no quota"),
        ({"name": "x", "quotas": {"connections": 0.5}}, "quotas.connections: expected a whole number above 0"),
        ({"name": "x", "quotas": 7}, "quotas: expected numbers by name"),
        ({"name": "x", "rôle": "admin"}, "unknown field 'rôle'; did you mean 'role'?"),
        ([], "expected an object with name, role"),
    ],
)
def test_request_that_makes_no_key_is_explained(admin: httpx.Client, wanted: Any, said: str) -> None:
    answer = admin.post("/v1/keys", json=wanted)
    assert answer.status_code == 422
    assert said in answer.json()["detail"]


@pytest.mark.parametrize(
    ("wanted", "status", "said"),
    [
        ({"overlap": "often"}, 422, "overlap: expected a length of time such as 24h"),
        ({"overlap": "91d"}, 409, "expected an overlap of 0 to 90 days"),
        ({"key": 1}, 422, "unknown field 'key'"),
    ],
)
def test_rotation_that_can_not_be_is_explained(admin: httpx.Client, wanted: Any, status: int, said: str) -> None:
    made = create(admin)
    answer = admin.post(f"/v1/keys/{made['id']}/rotate", json=wanted)
    assert (answer.status_code, said in answer.json()["detail"]) == (status, True), answer.text
    assert admin.post("/v1/keys/key_none/rotate").status_code == 404
    assert admin.delete("/v1/keys/key_none").status_code == 404


def test_streams_of_a_publisher_are_its_scope(admin: httpx.Client) -> None:
    made = create(admin, role="provider", streams=["gps_taxi"], services=["gps"])
    assert made["services"] == ["gps", "gps_taxi"]


def test_last_use_is_kept_when_the_gateway_ends(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.needs_keys = True
    key, secret = world.registry.create_key("mine", "consumer")
    with world.running():
        assert opens(world, secret)
    kept = world.registry.keys()[key.id]
    assert kept.last_used_from == "127.0.0.1"
    assert kept.last_used_at is not None
