"""Durable webhooks outlive the request that created them: they must not outlive the rights of their owner."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from tests.gateway.issuer import TestIssuer
from tests.gateway.receiver import Receiver
from tests.gateway.running import World
from tests.pipelines.running import until
from tidegate.gateway.settings import AccessSettings

CITY = """
streams:
  gps_taxi: {schema: {vid: string, speed: float64, time: timestamp}, event_time: time, key: vid}
services:
  gps:
    from: gps_taxi
    access: {to: [role:police, role:consumer, warden], fields: {vid: [role:police]}}
  secret: {from: gps_taxi, access: {to: [role:police]}}
  open: {from: gps_taxi, access: public}
"""


@contextmanager
def city(folder: Path, issuer: TestIssuer, *, needs_keys: bool = True, **settings: Any) -> Iterator[World]:
    world = World(folder, CITY)
    world.needs_keys = needs_keys
    world.access = AccessSettings(issuer.settings(**settings))
    with world.running():
        yield world


@pytest.fixture
def issuer() -> Iterator[TestIssuer]:
    with TestIssuer().running() as found:
        yield found


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver().running() as found:
        yield found


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def webhook(http: httpx.Client, receiver: Receiver, headers: dict[str, str], service: str = "gps") -> str:
    document = {"deliver": {"webhook": {"url": receiver.url}}, "from": "beginning", "format": "plain"}
    created = http.post(f"/v1/services/{service}/subscriptions", json=document, headers=headers)
    assert created.status_code == 201, created.text
    id_: str = created.json()["id"]
    return id_


def state(world: World, id_: str) -> tuple[str, str | None]:
    found = world.registry.subscription(id_)
    return found.state, found.reason


def test_ownerless_webhook_stops_before_delivery_when_keys_become_required(
    tmp_path: Path, issuer: TestIssuer, receiver: Receiver
) -> None:
    with city(tmp_path, issuer, needs_keys=False) as world, world.client() as http:
        id_ = webhook(http, receiver, {}, "secret")
        world.append(1, "secret")
        until(lambda: len(receiver.numbers) == 1, "the open gateway to deliver")
    world.append(5, "secret")
    with city(tmp_path, issuer) as world, world.client() as http:
        until(lambda: state(world, id_)[0] == "stopped", "the webhook to stop")
        assert len(receiver.numbers) == 1, "an event went out that nobody was allowed to see"
        reason = state(world, id_)[1] or ""
        assert "no keys were required" in reason
        assert f"tidegate subscriptions adopt {id_}" in reason
        consumer, admin = issuer.token(), issuer.token(sub="root", roles=["admin"])
        assert http.post(f"/v1/subscriptions/{id_}/enable", headers=bearer(admin)).status_code == 409
        assert http.post(f"/v1/subscriptions/{id_}/adopt", headers=bearer(consumer)).status_code == 403
        adopted = http.post(f"/v1/subscriptions/{id_}/adopt", headers=bearer(admin))
        assert adopted.status_code == 200, adopted.text
        assert adopted.json()["state"] == "active"
        until(lambda: len(receiver.numbers) == 6, "what was missed to be delivered to its new owner's webhook")


def test_ownerless_webhook_can_be_assigned_to_a_usable_key_only(
    tmp_path: Path, issuer: TestIssuer, receiver: Receiver
) -> None:
    with city(tmp_path, issuer, needs_keys=False) as world, world.client() as http:
        id_ = webhook(http, receiver, {})
        unnamed = http.post(f"/v1/subscriptions/{id_}/adopt")
        assert unnamed.status_code == 409
        assert "name the owner" in unnamed.json()["detail"]
    with city(tmp_path, issuer) as world, world.client() as http:
        admin = bearer(issuer.token(sub="root", roles=["admin"]))
        revoked, _ = world.registry.create_key("warden", "consumer")
        world.registry.revoke_key(revoked.id)
        usable, _ = world.registry.create_key("warden", "consumer")
        for owner, detail in (("key_none", "no API key"), (revoked.id, "was revoked"), (7, "expected the id")):
            answer = http.post(f"/v1/subscriptions/{id_}/adopt", headers=admin, json={"owner": owner})
            assert answer.status_code == 422
            assert detail in answer.text
        assert http.post(f"/v1/subscriptions/{id_}/adopt", headers=admin, json={"to": 1}).status_code == 422
        given = http.post(f"/v1/subscriptions/{id_}/adopt", headers=admin, json={"owner": usable.id})
        assert given.status_code == 200, given.text
        assert world.registry.subscription(id_).subscription.owner == usable.id


def test_guest_cannot_consume_an_ownerless_subscription(tmp_path: Path, issuer: TestIssuer) -> None:
    with city(tmp_path, issuer, needs_keys=False) as world, world.client() as http:
        id_ = http.post("/v1/services/open/subscriptions", json={}).json()["id"]
    with city(tmp_path, issuer) as world:
        with connect(f"ws://127.0.0.1:{world.port}/v1/events", subprotocols=["tidegate.v1"]) as socket:  # type: ignore[list-item]
            socket.send(f'{{"op": "subscribe", "id": "a", "subscription": "{id_}"}}')
            answer = str(socket.recv(5))
        assert "there is no subscription" in answer


def test_webhook_of_a_token_is_delivered_by_the_rights_of_that_token(
    tmp_path: Path, issuer: TestIssuer, receiver: Receiver
) -> None:
    with city(tmp_path, issuer) as world, world.client() as http:
        webhook(http, receiver, bearer(issuer.token(sub="cop", roles=["consumer", "police"])))
        world.append(1)
        until(lambda: len(receiver.got) == 1, "the first event")
        assert b'"vid"' in receiver.got[0].body, "a policeman's webhook shows what the police may see"
        webhook(http, receiver, bearer(issuer.token(sub="alice")))
        until(lambda: len(receiver.got) == 2, "the second webhook's event")
        assert b'"vid"' not in receiver.got[1].body


def test_webhook_of_a_token_stops_at_expiry_and_resumes_after_renewal(
    tmp_path: Path, issuer: TestIssuer, receiver: Receiver
) -> None:
    with city(tmp_path, issuer, webhook_lifetime_s=1.0) as world, world.client() as http:
        cop = bearer(issuer.token(sub="cop", roles=["consumer", "police"]))
        id_ = webhook(http, receiver, cop, "secret")
        until(lambda: state(world, id_)[0] == "stopped", "the webhook to expire")
        assert f"POST /v1/subscriptions/{id_}/renew" in (state(world, id_)[1] or "")
        world.append(3, "secret")
        other = bearer(issuer.token(sub="eve", roles=["consumer", "police"]))
        assert http.post(f"/v1/subscriptions/{id_}/renew", headers=other).status_code == 404
        admin = bearer(issuer.token(sub="root", roles=["admin"]))
        assert http.post(f"/v1/subscriptions/{id_}/renew", headers=admin).status_code == 403
        assert http.patch(f"/v1/subscriptions/{id_}", headers=admin, json={"description": "x"}).status_code == 200
        assert state(world, id_)[0] == "stopped", "a change by an admin must not lend the admin's rights"
        retired = bearer(issuer.token(sub="cop", roles=["consumer"]))
        assert http.post(f"/v1/subscriptions/{id_}/renew", headers=retired).status_code == 404
        assert receiver.numbers == []
        again = http.post(f"/v1/subscriptions/{id_}/renew", headers=cop)
        assert again.status_code == 200, again.text
        assert again.json()["state"] == "active"
        assert again.json()["expires_at"] is not None
        until(lambda: len(receiver.numbers) == 3, "what came while it was stopped")


def test_webhook_lasts_as_long_as_the_token_if_the_profile_says_so(
    tmp_path: Path, issuer: TestIssuer, receiver: Receiver
) -> None:
    with city(tmp_path, issuer, webhook_lifetime_s=None, leeway_s=1) as world, world.client() as http:
        id_ = webhook(http, receiver, bearer(issuer.token(sub="cop")))
        expires = http.get(f"/v1/subscriptions/{id_}", headers=bearer(issuer.token(sub="cop"))).json()["expires_at"]
        grant = world.registry.subscription(id_).subscription.grant
        assert grant is not None
        assert expires is not None
        assert 290e6 < grant.expires_at - world.registry.subscription(id_).created_at.timestamp() * 1e6 < 305e6


def test_webhook_of_a_key_that_was_revoked_meanwhile_sends_nothing_after_a_restart(
    tmp_path: Path, issuer: TestIssuer, receiver: Receiver
) -> None:
    with city(tmp_path, issuer) as world, world.client() as http:
        key, secret = world.registry.create_key("warden", "consumer")
        id_ = webhook(http, receiver, bearer(secret))
    world.registry.revoke_key(key.id)
    world.append(3)
    with city(tmp_path, issuer) as world, world.client() as http:
        until(lambda: state(world, id_)[0] == "disabled", "the webhook to be disabled")
        assert receiver.numbers == []
