"""Keys over HTTP: who gets in, and why not."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from tests.gateway.running import World
from tests.pipelines.running import until
from tidegate.gateway.auth.callers import CACHE_S
from tidegate.registry import Role

GPS = "/v1/services/gps/events"
TAXI = "/v1/streams/gps_taxi/events"
EVENT = {"vid": "B1", "speed": 1.0, "time": "2026-01-01T00:00:00Z"}


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[World]:
    """A gateway that requires API keys."""
    world = World(tmp_path)
    world.needs_keys = True
    world.tell_running("gps", "fast")
    with world.running():
        yield world


def ask(world: World, secret: str | None, method: str, path: str) -> httpx.Response:
    headers = {} if secret is None else {"authorization": f"Bearer {secret}"}
    with world.client() as http:
        return http.request(method, path, headers=headers, json=EVENT if method in ("POST", "PUT") else None)


def test_only_health_checks_work_without_a_key(closed: World) -> None:
    answer = ask(closed, None, "GET", "/v1/services")
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert answer.json()["detail"] == "expected an API key: Authorization: Bearer tg_..."
    assert ask(closed, None, "GET", "/livez").status_code == 200


@pytest.mark.parametrize(
    ("role", "method", "path", "status"),
    [
        ("consumer", "GET", GPS, 200),
        ("consumer", "POST", TAXI, 403),
        ("consumer", "DELETE", "/v1/services/fast", 403),
        ("publisher", "POST", TAXI, 200),
        ("publisher", "GET", GPS, 403),
        ("provider", "GET", GPS, 200),
        ("provider", "POST", TAXI, 200),
        ("provider", "DELETE", "/v1/services/fast", 204),
        ("admin", "POST", TAXI, 200),
    ],
)
def test_each_role_may_make_its_calls_only(closed: World, role: Role, method: str, path: str, status: int) -> None:
    _, secret = closed.registry.create_key("mine", role, ["gps", "gps_taxi"] if role == "publisher" else None)
    answer = ask(closed, secret, method, path)
    assert answer.status_code == status, answer.text
    if status == 403:
        assert "the key 'mine' has the role" in answer.json()["detail"]


def test_key_for_some_services_is_refused_for_others(closed: World) -> None:
    _, secret = closed.registry.create_key("mine", "provider", ["gps", "gps_taxi"])
    assert ask(closed, secret, "GET", GPS).status_code == 200
    assert ask(closed, secret, "POST", TAXI).status_code == 200
    answer = ask(closed, secret, "GET", "/v1/services/fast/events")
    assert (answer.status_code, answer.json()["detail"]) == (
        403,
        "the key 'mine' is for gps, gps_taxi, not for 'fast'",
    )


@pytest.mark.parametrize("how", ["header", "query"])
def test_key_is_accepted_in_other_headers_and_in_the_query(closed: World, how: str) -> None:
    _, secret = closed.registry.create_key("mine", "consumer")
    with closed.client() as http:
        headers = {"x-api-key": secret} if how == "header" else {}
        params = {"access_token": secret} if how == "query" else {}
        assert http.get(GPS, headers=headers, params=params).status_code == 200


def test_invalid_key_is_refused_with_the_reason(closed: World) -> None:
    _, old = closed.registry.create_key("old", "admin", expires_at=datetime.now(UTC) - timedelta(days=1))
    assert "the key 'old' expired at" in ask(closed, old, "GET", GPS).json()["detail"]
    assert ask(closed, "tg_nonsense", "GET", GPS).json()["detail"] == "the API key is not known here"
    with closed.client() as http:
        answer = http.get(GPS, headers={"authorization": "Basic abc"})
    assert answer.json()["detail"] == "expected Authorization: Bearer tg_..., not 'Basic'"


def test_revoked_key_is_refused_after_the_cache_expires(closed: World) -> None:
    key, secret = closed.registry.create_key("mine", "consumer")
    assert ask(closed, secret, "GET", GPS).status_code == 200
    closed.registry.revoke_key(key.id)
    until(lambda: ask(closed, secret, "GET", GPS).status_code == 401, "the key to be refused", 10 * CACHE_S)
    assert "was revoked at" in ask(closed, secret, "GET", GPS).json()["detail"]


def test_invalid_key_is_refused_even_if_keys_are_not_required(world: World) -> None:
    assert ask(world, None, "GET", GPS).status_code == 200
    assert ask(world, "tg_nonsense", "GET", GPS).status_code == 401
