"""Webhooks over real HTTP: signed, in order, retried until accepted; a slow receiver delays no other one."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway.receiver import Receiver, is_signed
from tests.gateway.routes.test_subscriptions import until
from tests.gateway.running import HASTY, World
from tidegate.delivery.push.context import PushSettings
from tidegate.gateway.transports.addresses import is_public
from tidegate.gateway.transports.webhook import WebhookSettings


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver().running() as found:
        yield found


def made(http: httpx.Client, receiver: Receiver, batch: int = 1, **said: Any) -> dict[str, Any]:
    document = {"deliver": {"webhook": {"url": receiver.url, "batch": batch}}, **said}
    answer = http.post("/v1/services/gps/subscriptions", json=document)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def shown(http: httpx.Client, sub: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = http.get(f"/v1/subscriptions/{sub['id']}").json()
    return found


def letters(http: httpx.Client, sub: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = http.get(f"/v1/subscriptions/{sub['id']}/dead-letters").json()["dead_letters"]
    return found


# Messages ---------------------------------------------------------------------------------


def test_event_is_sent_in_a_signed_message(world: World, http: httpx.Client, receiver: Receiver) -> None:
    sub = made(http, receiver, filter="speed > 1")
    secret = sub["deliver"]["webhook"]["secret"]
    world.append(4)
    until(lambda: len(receiver.got) == 2, "two messages")
    assert [each.numbers for each in receiver.got] == [[2], [3]]
    for each in receiver.got:
        assert each.headers["content-type"] == "application/cloudevents+json"
        assert json.loads(each.body)["specversion"] == "1.0"
        assert abs(int(each.headers["webhook-timestamp"]) - time.time()) < 60
        assert is_signed(each, secret)
        assert not is_signed(replace(each, body=each.body + b" "), secret)
    assert len({each.headers["webhook-id"] for each in receiver.got}) == 2


def test_secret_is_shown_once(shared: httpx.Client, receiver: Receiver) -> None:
    sub = made(shared, receiver)
    secret = sub["deliver"]["webhook"]["secret"]
    assert secret.startswith("whsec_")
    path = f"/v1/subscriptions/{sub['id']}"
    shown_ = [
        shared.get(path),
        shared.get("/v1/services/gps/subscriptions"),
        shared.patch(path, json={"description": "x", "deliver": {"webhook": {"batch": 2}}}),
        shared.post(f"{path}/enable"),
    ]
    assert all(secret not in each.text and '"secret":' not in each.text for each in shown_)
    assert shown_[0].json()["deliver"] == {"webhook": {"url": receiver.url, "batch": 1, "secrets": 1}}


@pytest.mark.parametrize(
    ("format_", "kind"), [("cloudevents", "application/cloudevents-batch+json"), ("plain", "application/json")]
)
def test_batches(world: World, http: httpx.Client, receiver: Receiver, format_: str, kind: str) -> None:
    world.append(10)
    sub = made(http, receiver, batch=4, format=format_, **{"from": "beginning"})
    until(lambda: len(receiver.taken) == 10, "all events")
    assert [each.numbers for each in receiver.got] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert {each.headers["content-type"] for each in receiver.got} == {kind}
    assert all(is_signed(each, sub["deliver"]["webhook"]["secret"]) for each in receiver.got)


def test_plain_alone(world: World, http: httpx.Client, receiver: Receiver) -> None:
    made(http, receiver, format="plain", select=["vid"])
    world.append(1)
    until(lambda: receiver.got, "a message")
    moment = "2026-01-01T00:00:00.000000Z"
    assert json.loads(receiver.got[0].body) == {"_id": "gps_taxi:0:0", "_time": moment, "vid": "B0"}
    assert receiver.got[0].headers["content-type"] == "application/json"


def test_events_beyond_the_buffer_arrive_in_order(tmp_path: Path, receiver: Receiver) -> None:
    world = World(tmp_path)
    world.durable = replace(HASTY, push=replace(HASTY.push, max_queued=10))
    with world.running(), world.client() as http:
        receiver.free.clear()
        made(http, receiver, batch=50)
        for _ in range(20):
            world.append(100)
        receiver.free.set()
        until(lambda: len(receiver.taken) >= 2_000, "all events")
        assert receiver.taken == list(range(2_000))


# Secrets ----------------------------------------------------------------------------------


def test_new_and_old_secret_sign_until_the_old_is_dropped(world: World, http: httpx.Client, receiver: Receiver) -> None:
    sub = made(http, receiver)
    old = sub["deliver"]["webhook"]["secret"]
    path = f"/v1/subscriptions/{sub['id']}/secret"
    said = http.post(path).json()
    new = said["secret"]
    assert (said["secrets"], new == old) == (2, False)
    world.append(1)
    until(lambda: receiver.got, "a message")
    assert is_signed(receiver.got[0], old)
    assert is_signed(receiver.got[0], new)
    assert http.delete(path).json() == {"secrets": 1}
    world.append(1)
    until(lambda: len(receiver.got) == 2, "a message")
    assert is_signed(receiver.got[1], new)
    assert not is_signed(receiver.got[1], old)
    for _ in range(3):
        assert http.post(path).status_code == 200
    answer = http.post(path)
    assert (answer.status_code, "has 4 secrets: drop the old ones" in answer.json()["detail"]) == (409, True)


def test_webhook_calls_are_refused_for_pull_subscriptions(shared: httpx.Client) -> None:
    sub = shared.post("/v1/services/gps/subscriptions", json={}).json()
    path = f"/v1/subscriptions/{sub['id']}"
    for answer in (shared.post(f"{path}/secret"), shared.delete(f"{path}/secret")):
        assert (answer.status_code, answer.json()["detail"]) == (409, f"{sub['id']!r} is not delivered by webhook")
    answer = shared.post(f"{path}/dead-letters/redeliver", json={"ids": "all"})
    assert answer.status_code == 409
    assert answer.json()["detail"] == f"{sub['id']!r} is not delivered by webhook, nor to a topic"
    assert letters(shared, sub) == []


def test_pull_calls_are_refused_for_webhooks(shared: httpx.Client, receiver: Receiver) -> None:
    sub = made(shared, receiver)
    answer = shared.get(f"/v1/subscriptions/{sub['id']}/events")
    assert (answer.status_code, "is delivered by webhook: change" in answer.json()["detail"]) == (409, True)
    answer = shared.post(f"/v1/subscriptions/{sub['id']}/ack", json={"cursor": sub["cursor"]})
    assert (answer.status_code, "its cursor moves with what" in answer.json()["detail"]) == (409, True)


# Handshakes and addresses ---------------------------------------------------------------------


def test_handshake_precedes_the_first_message(shared: httpx.Client, receiver: Receiver) -> None:
    made(shared, receiver)
    assert [each.headers["webhook-request-origin"] for each in receiver.handshakes] == ["tidegate"]
    receiver.allowed = "tidegate"
    made(shared, receiver)


def test_handshake_is_repeated_only_for_a_new_address(shared: httpx.Client, receiver: Receiver) -> None:
    sub = made(shared, receiver)
    path = f"/v1/subscriptions/{sub['id']}"
    receiver.allowed = None
    assert shared.patch(path, json={"deliver": {"webhook": {"batch": 5}}}).json()["deliver"]["webhook"]["batch"] == 5
    assert len(receiver.handshakes) == 1
    answer = shared.patch(path, json={"deliver": {"webhook": {"url": f"{receiver.url}/other"}}})
    assert (answer.status_code, len(receiver.handshakes)) == (422, 2)
    assert shown(shared, sub)["deliver"]["webhook"]["url"] == receiver.url


@pytest.mark.parametrize(
    ("allowed", "status", "detail"),
    [
        (None, 200, "was answered without WebHook-Allowed-Origin"),
        ("example.com", 200, "allows the origin 'example.com', not 'tidegate'"),
        ("*", 405, "was answered with 405"),
    ],
)
def test_receiver_that_refuses_the_handshake_gets_nothing(
    shared: httpx.Client, receiver: Receiver, allowed: str | None, status: int, detail: str
) -> None:
    receiver.allowed, receiver.handshake_status = allowed, status
    said = {"deliver": {"webhook": {"url": receiver.url}}}
    answer = shared.post("/v1/services/gps/subscriptions", json=said)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "deliver.webhook.url")
    assert detail in answer.json()["detail"]
    assert "handshake: false" in answer.json()["detail"]
    assert receiver.url not in shared.get("/v1/services/gps/subscriptions").text
    said["deliver"]["webhook"]["handshake"] = False  # type: ignore[assignment]
    assert shared.post("/v1/services/gps/subscriptions", json=said).status_code == 201


def test_unanswered_handshake_is_refused(shared: httpx.Client) -> None:
    with Receiver().running() as gone:
        pass
    answer = shared.post("/v1/services/gps/subscriptions", json={"deliver": {"webhook": {"url": gone.url}}})
    assert answer.status_code == 422
    assert f"the handshake with {gone.url} failed" in answer.json()["detail"]


def test_unknown_host_is_refused(shared: httpx.Client) -> None:
    said = {"deliver": {"webhook": {"url": "http://nowhere.invalid/", "handshake": False}}}
    answer = shared.post("/v1/services/gps/subscriptions", json=said)
    assert (answer.status_code, "can't be found" in answer.json()["detail"]) == (422, True)


def test_addresses_that_are_not_public_are_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.durable = replace(HASTY, webhooks=WebhookSettings())
    with world.running(), world.client() as http, Receiver().running() as receiver:
        for host in ("127.0.0.1", "localhost", "2130706433", "[::1]", "[::ffff:7f00:1]", "169.254.169.254", "0.0.0.0"):
            url = f"http://{host}:{receiver.port}/in"
            for handshake in (True, False):
                said = {"deliver": {"webhook": {"url": url, "handshake": handshake}}}
                answer = http.post("/v1/services/gps/subscriptions", json=said)
                assert answer.status_code == 422, url
                assert "which is not public" in answer.json()["detail"]
        assert receiver.handshakes == []


def test_address_is_checked_when_connecting(tmp_path: Path, receiver: Receiver) -> None:
    """A subscription that came in while it was allowed: a name may be another address by now, too."""
    world = World(tmp_path)
    with world.running(), world.client() as http:
        sub = made(http, receiver)
    world.durable = replace(HASTY, webhooks=WebhookSettings())
    with world.running(), world.client() as http:
        world.append(1)
        (letter,) = until(lambda: letters(http, sub), "a dead letter")
    assert "which is not public" in letter["error"]
    assert receiver.got == []


@pytest.mark.parametrize(
    "text",
    "10.0.0.1 172.16.5.4 192.168.1.1 127.8.9.1 169.254.169.254 100.64.0.1 0.0.0.0 224.0.0.1 255.255.255.255 "
    "240.0.0.1 192.0.2.1 198.18.0.1 ::1 :: fe80::1 fc00::1 ff02::1 ::ffff:10.0.0.1 64:ff9b::7f00:1 2002:7f00:1:: "
    "2001:db8::1 fec0::1 2001:0:4136:e378:8000:63bf:3fff:fdd2".split(),
)
def test_private_addresses_are_not_public(text: str) -> None:
    assert not is_public(ip_address(text))


@pytest.mark.parametrize("text", ["93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946", "64:ff9b::5db8:d822"])
def test_global_addresses_are_public(text: str) -> None:
    assert is_public(ip_address(text))


def test_redirects_are_not_followed(world: World, http: httpx.Client, receiver: Receiver) -> None:
    with Receiver().running() as other:
        receiver.status, receiver.answer_headers = 307, {"Location": other.url}
        sub = made(http, receiver)
        world.append(1)
        (letter,) = until(lambda: letters(http, sub), "a dead letter")
        assert letter["error"] == "answered 307: thanks (redirects are not followed)"
        assert other.got == []


# Failures -----------------------------------------------------------------------------------


def test_message_is_retried_until_it_is_accepted(world: World, http: httpx.Client, receiver: Receiver) -> None:
    receiver.statuses = [500, 503, 404]
    sub = made(http, receiver)
    world.append(2)
    until(lambda: receiver.taken == [0, 1], "both events")
    assert receiver.numbers == [0, 0, 0, 0, 1]
    assert len({each.headers["webhook-id"] for each in receiver.got}) == 2  # the same message has the same id
    until(lambda: shown(http, sub)["attempts"] == 0, "the failures to be forgotten")
    assert shown(http, sub)["retry_at"] is None
    assert letters(http, sub) == []


def test_cursor_follows_accepted_messages(world: World, http: httpx.Client, receiver: Receiver) -> None:
    sub = made(http, receiver, filter="speed > 1")
    world.append(3)
    end = http.get("/v1/services/gps/events").json()["cursor"]
    until(lambda: shown(http, sub)["cursor"] == end, "the cursor to be at the end")


def test_cursor_advances_without_matching_events(world: World, http: httpx.Client, receiver: Receiver) -> None:
    sub = made(http, receiver, filter="speed > 50")
    world.append(10)
    end = http.get("/v1/services/gps/events").json()["cursor"]
    until(lambda: world.registry.subscription(sub["id"]).cursor == end, "the cursor to move past what did not match")
    assert receiver.got == []


def test_message_becomes_a_dead_letter_after_repeated_failures(
    world: World, http: httpx.Client, receiver: Receiver
) -> None:
    receiver.statuses = [500] * HASTY.push.max_attempts
    sub = made(http, receiver)
    world.append(2)
    (letter,) = until(lambda: letters(http, sub), "a dead letter")
    assert (letter["error"], letter["attempts"]) == ("answered 500: thanks", 4)
    assert letter["event"]["id"] == "gps_taxi:0:0"
    until(lambda: receiver.taken == [1], "the next event")
    assert receiver.numbers == [0, 0, 0, 0, 1]


def test_only_the_refused_event_of_a_batch_becomes_a_dead_letter(
    world: World, http: httpx.Client, receiver: Receiver
) -> None:
    receiver.refuses = {2}
    world.append(6)
    sub = made(http, receiver, batch=4, **{"from": "beginning"})
    until(lambda: receiver.taken == [0, 1, 3, 4, 5], "all others")
    (letter,) = letters(http, sub)
    assert (letter["event"]["id"], letter["error"]) == ("gps_taxi:0:2", "answered 422: thanks")


def test_dead_letters_are_redelivered(world: World, http: httpx.Client, receiver: Receiver) -> None:
    receiver.refuses = {1, 2, 3}
    sub = made(http, receiver)
    path = f"/v1/subscriptions/{sub['id']}/dead-letters"
    world.append(5)
    until(lambda: receiver.taken == [0, 4], "what is not refused")
    ids = [each["id"] for each in letters(http, sub)]
    assert len(ids) == 3
    assert http.get(path, params={"after": ids[0], "max": 1}).json()["dead_letters"][0]["id"] == ids[1]
    receiver.refuses = {3}
    said = http.post(f"{path}/redeliver", json={"ids": ids[:1]}).json()
    assert said == {"delivered": ids[:1], "failed": [], "untried": []}
    assert is_signed(receiver.got[-1], sub["deliver"]["webhook"]["secret"])
    said = http.post(f"{path}/redeliver").json()
    assert said == {
        "delivered": ids[1:2],
        "failed": [{"id": ids[2], "error": "answered 422: thanks"}],
        "untried": [],
    }
    assert receiver.taken == [0, 4, 1, 2]
    assert [each["id"] for each in letters(http, sub)] == ids[2:]


def test_redelivery_stops_if_the_receiver_is_down(world: World, http: httpx.Client, receiver: Receiver) -> None:
    receiver.refuses = {0, 1}
    sub = made(http, receiver)
    world.append(2)
    until(lambda: len(letters(http, sub)) == 2, "two dead letters")
    ids = [each["id"] for each in letters(http, sub)]
    receiver.refuses, receiver.status = set(), 503
    said = http.post(f"/v1/subscriptions/{sub['id']}/dead-letters/redeliver", json={"ids": "all"}).json()
    assert said == {"delivered": [], "failed": [{"id": ids[0], "error": "answered 503: thanks"}], "untried": ids[1:]}
    assert len(letters(http, sub)) == 2


@pytest.mark.parametrize("said", [{}, {"ids": []}, {"ids": ["a"]}, {"ids": 3}, []])
def test_which_dead_letters_is_not_said(shared: httpx.Client, receiver: Receiver, said: Any) -> None:
    sub = made(shared, receiver)
    answer = shared.post(f"/v1/subscriptions/{sub['id']}/dead-letters/redeliver", json=said)
    assert answer.status_code == 422
    assert "expected {'ids': [1, 2]} or {'ids': 'all'}" in answer.json()["detail"]


def test_dead_letters_that_are_not_there(shared: httpx.Client, receiver: Receiver) -> None:
    sub = made(shared, receiver)
    answer = shared.post(f"/v1/subscriptions/{sub['id']}/dead-letters/redeliver", json={"ids": [7, 9]})
    assert (answer.status_code, answer.json()["detail"]) == (404, f"{sub['id']!r} has no dead letter 7, 9")


def test_gone_receiver_disables_the_subscription(world: World, http: httpx.Client, receiver: Receiver) -> None:
    receiver.statuses = [410]
    sub = made(http, receiver)
    world.append(3)
    until(lambda: shown(http, sub)["state"] == "disabled", "it to be disabled")
    assert shown(http, sub)["reason"] == "the receiver says that it is gone (410)"
    assert receiver.numbers == [0]
    assert letters(http, sub) == []
    assert http.post(f"/v1/subscriptions/{sub['id']}/enable").json()["state"] == "active"
    until(lambda: receiver.taken == [0, 1, 2], "all events, none lost")


def test_dead_receiver_delays_no_other_webhook(world: World, http: httpx.Client, receiver: Receiver) -> None:
    with Receiver().running() as hanging, Receiver().running() as dead:
        hanging.free.clear()
        made(http, hanging)
        made(http, dead)
        made(http, receiver)
        dead.status = 500
        world.append(50)
        until(lambda: receiver.taken == list(range(50)), "all events of the one that lives")
        assert hanging.got == []
        assert dead.taken == []


# Changes and restarts -------------------------------------------------------------------------


def test_changed_filter_and_address_apply_between_two_events(
    world: World, http: httpx.Client, receiver: Receiver
) -> None:
    sub = made(http, receiver, filter="speed >= %0", params=[2])
    path = f"/v1/subscriptions/{sub['id']}"
    world.append(4)
    until(lambda: receiver.taken == [2, 3], "what matches")
    assert http.patch(path, json={"params": [6]}).status_code == 200
    world.append(4)
    until(lambda: receiver.taken == [2, 3, 6, 7], "what matches by now")
    with Receiver().running() as other:
        answer = http.patch(path, json={"deliver": {"webhook": {"url": other.url}}})
        assert answer.json()["deliver"]["webhook"]["url"] == other.url
        assert len(other.handshakes) == 1
        world.append(1)
        until(lambda: other.taken == [8], "the event at the new address")
        assert is_signed(other.got[0], sub["deliver"]["webhook"]["secret"])


def test_new_address_is_tried_without_waiting_for_the_backoff(tmp_path: Path, receiver: Receiver) -> None:
    world = World(tmp_path)
    world.durable = replace(HASTY, push=PushSettings(first_retry_s=1_000.0))
    with world.running(), world.client() as http:
        receiver.status = 500
        sub = made(http, receiver)
        world.append(1)
        until(lambda: shown(http, sub)["attempts"] == 1, "a failure")
        path = f"/v1/subscriptions/{sub['id']}"
        assert http.get(f"{path}/status").json()["last_error"]["detail"] == "answered 500: thanks"
        with Receiver().running() as other:
            http.patch(path, json={"deliver": {"webhook": {"url": other.url}}})
            until(lambda: other.taken == [0], "the event at the new address")
            until(lambda: http.get(f"{path}/status").json()["last_error"] is None, "the failure to be forgotten")


def test_from_pull_to_webhook_and_back(world: World, http: httpx.Client, receiver: Receiver) -> None:
    sub = http.post("/v1/services/gps/subscriptions", json={}).json()
    path = f"/v1/subscriptions/{sub['id']}"
    world.append(2)
    answer = http.patch(path, json={"deliver": {"webhook": {"url": receiver.url}}}).json()
    until(lambda: receiver.taken == [0, 1], "what waited")
    assert is_signed(receiver.got[0], answer["deliver"]["webhook"]["secret"])
    end = http.get("/v1/services/gps/events").json()["cursor"]
    until(lambda: shown(http, sub)["cursor"] == end, "the cursor to be at the end")
    assert http.patch(path, json={"deliver": "pull"}).json()["deliver"] == "pull"
    world.append(1)
    assert len(http.get(f"{path}/events").json()["events"]) == 1
    assert receiver.taken == [0, 1]


def test_removed_subscription_sends_nothing(world: World, http: httpx.Client, receiver: Receiver) -> None:
    first, second = made(http, receiver), made(http, receiver, filter="speed >= 1")
    assert http.delete(f"/v1/subscriptions/{first['id']}").status_code == 204
    world.append(3)
    until(lambda: len(receiver.got) == 2, "the other's")
    assert receiver.taken == [1, 2]
    assert second["id"] in world.registry.subscriptions()


def test_restart_continues_at_the_cursor(tmp_path: Path, receiver: Receiver) -> None:
    world = World(tmp_path)
    with world.running(), world.client() as http:
        made(http, receiver)
        world.append(3)
        until(lambda: receiver.taken == [0, 1, 2], "three events")
    world.append(2)
    with world.running():
        until(lambda: receiver.taken == [0, 1, 2, 3, 4], "two more, none again")


def test_restart_keeps_failures_and_retry_time(tmp_path: Path, receiver: Receiver) -> None:
    world = World(tmp_path)
    world.durable = replace(HASTY, push=PushSettings(first_retry_s=1_000.0, max_attempts=3))
    receiver.status = 500
    with world.running(), world.client() as http:
        sub = made(http, receiver)
        world.append(1)
        until(lambda: shown(http, sub)["attempts"] == 1, "a failure")
    retry_at = world.registry.subscription(sub["id"]).retry_at
    assert retry_at is not None
    with world.running(), world.client() as http:
        other = made(http, receiver, filter="speed = 1")  # it is served, so the first one was begun, too
        world.append(1)
        until(lambda: shown(http, other)["attempts"] == 1, "the other's failure")
        assert receiver.numbers == [0, 1]
        assert world.registry.subscription(sub["id"]).retry_at == retry_at
        assert shown(http, sub)["attempts"] == 1
    world.registry.note_attempt(sub["id"], 2, None)
    with world.running(), world.client() as http:
        (letter,) = until(lambda: letters(http, sub), "the third failure to be the last")
        assert letter["attempts"] == 3


def test_one_of_two_gateways_delivers_and_the_other_takes_over(tmp_path: Path, receiver: Receiver) -> None:
    first, second = World(tmp_path), World(tmp_path)
    for each in (first, second):
        each.durable = replace(HASTY, push=replace(HASTY.push, lease_s=0.6))
    with ExitStack() as outer:
        with first.running(), first.client() as http:
            outer.enter_context(second.running())
            sub = made(http, receiver)
            first.append(5)
            until(lambda: receiver.taken == [0, 1, 2, 3, 4], "five events")
            (lease,) = first.registry.leases().values()
            with second.client() as other:
                other.patch(f"/v1/subscriptions/{sub['id']}", json={"filter": "speed >= 7"})
            until(lambda: "7" in shown(http, sub)["filter"], "the change")
        first.append(5)
        until(lambda: receiver.taken[5:] == [7, 8, 9], "the second to deliver, each once")
        (other_lease,) = first.registry.leases().values()
        assert other_lease.holder != lease.holder


def test_forced_removal_of_the_service_disables_the_webhook(
    world: World, http: httpx.Client, receiver: Receiver
) -> None:
    answer = http.post("/v1/services/fast/subscriptions", json={"deliver": {"webhook": {"url": receiver.url}}})
    sub = answer.json()
    assert http.delete("/v1/services/fast", params={"force": True}).status_code == 204
    assert shown(http, sub)["reason"] == "the service 'fast' was removed"
    answer = http.post(f"/v1/subscriptions/{sub['id']}/enable")
    assert (answer.status_code, answer.json()["detail"]) == (404, "there is no service 'fast'")


# Changed on the way -------------------------------------------------------------------------


def test_waiting_events_are_sent_in_the_changed_form(world: World, http: httpx.Client, receiver: Receiver) -> None:
    receiver.free.clear()
    sub = made(http, receiver, format="plain")
    world.append(5)
    until(lambda: receiver.begun == 1, "the first to be on its way")
    receiver.statuses = [500]
    assert http.patch(f"/v1/subscriptions/{sub['id']}", json={"select": ["vid"]}).status_code == 200
    receiver.free.set()
    until(lambda: receiver.taken[-1:] == [4], "all to be taken")
    assert receiver.taken == list(range(5))
    first, *rest = receiver.got  # it was on its way
    assert "speed" in json.loads(first.body)
    assert [set(json.loads(each.body)) for each in rest] == [{"_id", "_time", "vid"}] * 5


def test_conflation_of_a_webhook_can_be_switched_off(world: World, http: httpx.Client, receiver: Receiver) -> None:
    world.append(300)
    sub = made(http, receiver, batch=100, every="100ms", key="vid", **{"from": "beginning"})
    until(lambda: len(receiver.numbers) >= 10, "the latest of each key")
    assert receiver.numbers == list(range(290, 300))
    assert http.patch(f"/v1/subscriptions/{sub['id']}", json={"every": None, "key": None}).status_code == 200
    world.append(20)
    until(lambda: receiver.numbers[-1] == 319, "all that follows")
    assert receiver.numbers[10:] == list(range(300, 320))
