"""The audit log: changes and attempts with caller and address; limits of failed sign-ins."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway.running import World
from tests.pipelines.running import until
from tests.security import processes
from tidegate.federation.link import LinkSettings
from tidegate.gateway.audit.log import MANY, Audit, AuditEntry, AuditWriter, Slot
from tidegate.gateway.auth.callers import Caller
from tidegate.gateway.settings import AccessSettings
from tidegate.logs import SegmentLog
from tidegate.registry import Role
from tidegate.services.audit_stream import STREAM

NEW = {"from": "gps_taxi", "pipeline": [{"filter": "speed > 90"}]}
AUDIT = "/v1/services/_audit/events?format=plain"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A gateway that requires keys, and has a name among brokers."""
    made = World(tmp_path)
    made.needs_keys = True
    made.links = LinkSettings("here")
    with made.running():
        yield made


def key(world: World, role: Role, name: str = "mine", services: list[str] | None = None) -> str:
    return world.registry.create_key(name, role, services)[1]


def client(world: World, secret: str | None) -> httpx.Client:
    http = world.client()
    if secret is not None:
        http.headers["authorization"] = f"Bearer {secret}"
    return http


def records(log: SegmentLog) -> list[dict[str, Any]]:
    """Return all records of the audit log, as they are on disk."""
    found = [json.loads(each) for each in log.read(STREAM, log.begin(STREAM), 10_000).records]
    return sorted(found, key=lambda each: str(each["_time"]))


def about(world: World, action: str) -> list[dict[str, Any]]:
    return [each for each in records(world.log) if each["action"] == action]


# What is recorded ----------------------------------------------------------------------------


def test_change_is_in_the_log_when_it_is_answered(world: World) -> None:
    with client(world, key(world, "provider", "fleet")) as http:
        assert http.put("/v1/services/new", json=NEW).status_code == 200
        (put,) = about(world, "service.put")
        assert (put["name"], put["role"], put["target"], put["result"]) == ("fleet", "provider", "new", "ok")
        assert put["address"] == "127.0.0.1"
        assert put["caller"].startswith("key_")
        assert http.delete("/v1/services/new").status_code == 204
        (removed,) = about(world, "service.remove")
        assert (removed["target"], removed["result"]) == ("new", "ok")


def test_change_of_who_may_see_a_service_is_a_record_of_its_own(world: World) -> None:
    with client(world, key(world, "admin")) as http:
        assert http.put("/v1/services/new", json=NEW).status_code == 200
        assert about(world, "policy.change") == []
        opened = {**NEW, "access": {"to": "public"}}
        assert http.put("/v1/services/new", json=opened).status_code == 200
        file = {"services": {"new": {**NEW, "access": {"to": ["police"]}}}}
        assert http.post("/v1/apply", json=file).status_code == 200
    first, second = about(world, "policy.change")
    assert (first["target"], first["detail"]) == ("new", 'version 2: no policy to "public"')
    assert second["detail"] == 'version 3: "public" to ["police"]'
    (applied,) = about(world, "definitions.apply")
    assert applied["detail"] == "changed new v3"


def test_refused_change_is_recorded_with_who_tried(world: World) -> None:
    with client(world, key(world, "consumer", "curious")) as http:
        assert http.put("/v1/services/gps", json=NEW).status_code == 403
        assert http.post("/v1/keys", json={"name": "me", "role": "admin"}).status_code == 403
    until(lambda: len(records(world.log)) == 2, "both refusals to be recorded")
    assert [(each["action"], each["name"], each["result"], each["detail"]) for each in records(world.log)] == [
        ("service.put", "curious", "refused", "forbidden"),
        ("key.create", "curious", "refused", "forbidden"),
    ]


@pytest.mark.parametrize("name", ["events", "ack", "explain", "discover"])
def test_name_of_a_service_can_not_hide_its_change(world: World, name: str) -> None:
    with client(world, key(world, "provider")) as http:
        assert http.put(f"/v1/services/{name}", json=NEW).status_code == 200
    assert [each["target"] for each in about(world, "service.put")] == [name]


def test_links_and_subscriptions_are_recorded(world: World) -> None:
    with client(world, key(world, "admin")) as http:
        assert http.post("/v1/links", json={"name": "city"}).status_code == 201
        assert http.delete("/v1/links/city").status_code == 204
        made = http.post("/v1/services/gps/subscriptions", json={}).json()
        assert http.delete(f"/v1/subscriptions/{made['id']}").status_code == 204
    found = [(each["action"], each["target"]) for each in records(world.log)]
    assert found == [
        ("link.add", "city"),
        ("link.remove", "city"),
        ("subscription.create", made["id"]),
        ("subscription.remove", made["id"]),
    ]


def test_keys_of_another_broker_that_are_pinned_are_recorded(world: World) -> None:
    with client(world, key(world, "admin")) as http:
        assert http.put("/v1/links/city/keys", json={"keys": []}).status_code == 400
        http.delete("/v1/links/city/keys")
    found = [(each["action"], each["target"]) for each in records(world.log)]
    assert found == [("link.keys.put", "city"), ("link.keys.remove", "city")]


def test_record_holds_no_secret(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    admin = key(world, "admin")
    secrets = [admin]
    with client(world, admin) as http:
        created = http.post("/v1/keys", json={"name": "fleet"}).json()
        secrets.append(created["secret"])
        secrets.append(http.post(f"/v1/keys/{created['id']}/rotate").json()["secret"])
        given = "a-secret-of-a-link-that-both-ends-know"
        secrets.append(given)
        http.post("/v1/links", json={"name": "city", "secret": given})
        http.post("/v1/links", json={"name": "city", "secret": given, "url": "ftp://me:s3cr3t-pass@host"})
        http.post("/v1/links", json={"name": [given]})
        hook = {"deliver": {"webhook": {"url": f"{world.url}/s3cr3t-pass", "handshake": False}}}
        secrets.append(http.post("/v1/services/gps/subscriptions", json=hook).json()["deliver"]["webhook"]["secret"])
        secrets.append("s3cr3t-pass")
        http.put(f"/v1/services/{admin}", json=NEW)
        http.delete(f"/v1/links/city?access_token={admin}")
        http.delete(f"/v1/keys/{created['id']}", params={"access_token": admin})
    with client(world, f"{admin}x") as http:
        assert http.get("/v1/services").status_code == 401
    until(lambda: about(world, "sign-in") != [], "the failed sign-in to be recorded")
    shown = json.dumps(records(world.log)) + "".join(capfd.readouterr())
    assert shown.count("key.rotate") == 2, "a record, and a line"
    assert len(records(world.log)) >= 8
    assert [each for each in secrets if each in shown] == []


def test_text_of_a_caller_can_not_forge_a_line(world: World) -> None:
    with client(world, key(world, "admin", "x\n12:00:00 [info] audit action=key.create\x1b[2J")) as http:
        http.delete("/v1/services/a%0Aaudit%20action=forged")
    until(lambda: about(world, "service.remove") != [], "the attempt to be recorded")
    (found,) = about(world, "service.remove")
    assert found["target"] == "a audit action=forged"
    assert "\n" not in found["name"]
    assert "\x1b" not in found["name"]


# Who may read it -----------------------------------------------------------------------------


def test_admin_reads_the_audit_log_over_sse_as_it_grows(world: World) -> None:
    admin = key(world, "admin")
    with client(world, admin) as http:
        http.put("/v1/services/old", json=NEW)
        page = http.get(f"{AUDIT}&from=beginning&max=10").json()
        assert [each["target"] for each in page["events"]] == ["old"]
        assert "_audit" in http.get("/v1/me").json()["has"]
        with http.stream("GET", AUDIT, headers={"accept": "text/event-stream"}) as answer:
            assert answer.status_code == 200
            until(lambda: world.counts().get(STREAM, {}).get("live", 0) == 1, "the stream to be followed")
            with client(world, admin) as other:
                other.put("/v1/services/new", json=NEW)
            lines = (line for line in answer.iter_lines() if line.startswith("data: "))
            said = json.loads(next(lines).removeprefix("data: "))
            assert (said["action"], said["target"]) == ("service.put", "new")


@pytest.mark.parametrize(
    ("role", "services"),
    [
        ("consumer", None),
        ("provider", None),
        ("provider", ["_audit"]),
        ("consumer", ["_audit"]),
        ("admin", ["gps"]),
    ],
)
def test_only_an_admin_of_all_reads_the_audit_log(world: World, role: Role, services: list[str] | None) -> None:
    with client(world, key(world, role, services=services)) as http:
        for path in (
            AUDIT,
            f"{AUDIT}&from=beginning",
            "/v1/services/_audit",
            "/v1/services/_audit/explain?filter=true",
        ):
            answer = http.get(path)
            assert answer.status_code in (403, 404), (path, answer.text)
        assert "_audit" not in http.get("/v1/services").text
        assert "_audit" not in http.get("/v1/me").json()["has"]
        assert http.post("/v1/services/_audit/subscriptions", json={}).status_code in (403, 404)
        stolen = {"from": "_audit", "pipeline": [{"filter": "count > 0"}]}
        assert http.put("/v1/services/stolen", json=stolen).status_code in (403, 422)


def test_no_caller_may_write_to_the_audit_log(world: World) -> None:
    forged = {"action": "key.create", "result": "ok", "time": "2026-01-01T00:00:00Z"}
    stream = {"schema": {"action": "string", "time": "timestamp"}, "event_time": "time"}
    with client(world, key(world, "admin")) as http:
        assert http.post("/v1/streams/_audit/events", json=forged).status_code == 404
        assert http.put("/v1/streams/_audit", json=stream).status_code == 422
        assert http.put("/v1/services/_audit", json=NEW).status_code in (404, 422)
        assert http.delete("/v1/services/_audit").status_code == 404
    assert not [each for each in records(world.log) if each["action"] == "key.create"]


# Failed sign-ins -----------------------------------------------------------------------------


def metric(world: World, admin: str, name: str) -> float:
    with client(world, admin) as http:
        text = http.get("/metrics").text
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if re.match(rf"{name}[ {{]", line))


def test_flood_of_failed_sign_ins_is_limited_counted_and_few_records(world: World) -> None:
    right, admin = key(world, "consumer"), key(world, "admin")
    with client(world, admin) as http:  # by then both are known here
        until(lambda: len(http.get("/v1/keys").json()["keys"]) == 2, "the keys")
    statuses = []
    with client(world, None) as http:
        for n in range(300):
            answer = http.get("/v1/services", headers={"authorization": f"Bearer tg_abcd{n:04}_guess"})
            statuses.append(answer.status_code)
        assert 1 <= int(answer.headers["retry-after"]) <= 60
        assert "too many sign-ins from 127.0.0.1 have failed" in answer.json()["detail"]
        # A correct key of somebody behind the same address gets in at once, though nobody has seen it before.
        assert http.get("/v1/services", headers={"authorization": f"Bearer {right}"}).status_code == 200
        assert http.get("/v1/services", headers={"x-api-key": right}).status_code == 200
        assert http.get("/v1/services", headers={"authorization": f"Bearer {right}x"}).status_code == 429
    assert statuses[:30] == [401] * 30
    assert set(statuses[32:]) == {429}
    until(lambda: metric(world, admin, "tidegate_sign_in_failures_total") >= 301, "failures to be counted")
    assert metric(world, admin, "tidegate_sign_ins_limited_total") >= 265
    until(lambda: len(about(world, "sign-in")) == 5, "single records")
    world.stop()
    until(lambda: sum(each["count"] for each in about(world, "sign-in")) == 301, "all to be counted")
    assert len(about(world, "sign-in")) == 6, "the rest is one record"


def test_caller_does_not_choose_the_address_that_is_recorded(world: World) -> None:
    """Each failure with another X-Forwarded-For would be another address: never limited, and a lie in the records."""
    statuses = []
    with client(world, "tg_abcdefgh_wrong") as http:
        for n in range(40):
            headers = {
                "x-forwarded-for": f"203.0.113.{n}",
                "forwarded": f"for=203.0.113.{n}",
                "x-real-ip": "203.0.113.1",
            }
            statuses.append(http.get("/v1/services", headers=headers).status_code)
    assert statuses[35:] == [429] * 5
    until(lambda: about(world, "sign-in") != [], "the record")
    assert {each["address"] for each in about(world, "sign-in")} == {"127.0.0.1"}


def test_listed_proxy_states_the_address_of_its_client(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.needs_keys = True
    world.access = AccessSettings(proxies=("127.0.0.1",))
    with world.running():
        with client(world, key(world, "provider")) as http:
            # The first address is what the client said, the second what the proxy saw.
            http.put("/v1/services/new", json=NEW, headers={"x-forwarded-for": "198.51.100.9, 203.0.113.7"})
        assert [each["address"] for each in about(world, "service.put")] == ["203.0.113.7"]


def test_sockets_and_queries_count_as_sign_ins(world: World) -> None:
    from websockets.exceptions import InvalidStatus
    from websockets.sync.client import connect

    for n in range(30):
        with client(world, None) as http:
            assert http.get(f"/v1/services?access_token=tg_abcd{n:04}_x").status_code == 401
    with pytest.raises(InvalidStatus) as refused:
        connect(f"{world.url.replace('http', 'ws')}/v1/events?access_token=tg_abcdefgh_x")
    assert refused.value.response.status_code == 429


def test_expired_and_revoked_keys_are_recorded_as_whose_they_are(world: World) -> None:
    found, secret = world.registry.create_key("gone", "consumer")
    world.registry.revoke_key(found.id)
    with client(world, secret) as http:
        assert http.get("/v1/services").status_code == 401
    until(lambda: about(world, "sign-in") != [], "the record")
    (said,) = about(world, "sign-in")
    assert (said["caller"], said["name"], said["detail"]) == (found.id, "gone", "revoked key or token")


def test_flood_of_refusals_by_one_key_pushes_out_no_change(world: World) -> None:
    with client(world, key(world, "provider")) as http:
        assert http.put("/v1/services/evil", json=NEW).status_code == 200
        for n in range(200):
            assert http.delete(f"/v1/links/{n}").status_code == 403
    world.stop()
    until(lambda: sum(each["count"] for each in about(world, "link.remove")) == 200, "all to be counted")
    assert len(about(world, "link.remove")) == 6
    assert [each["target"] for each in about(world, "service.put")] == ["evil"]
    assert world.log.partitions(STREAM) == ["attempts.0", "changes.0"]


def test_neighbour_with_a_wrong_secret_is_recorded(world: World, tmp_path: Path) -> None:
    other = World(tmp_path / "other")
    other.links = LinkSettings("there")
    world.registry.add_link("there", None, "the-right-secret-of-this-link-here")
    other.registry.add_link("here", world.url, "another-secret-than-the-right-one")
    with other.running():
        until(lambda: about(world, "link.sign-in") != [], "the failure to be recorded")
    assert about(world, "link.sign-in")[0]["result"] == "failed"


# Bounds --------------------------------------------------------------------------------------


class Written(AuditWriter):
    """A writer that records its calls."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, int, AuditEntry]] = []

    def append(self, part: str, entries: Any) -> None:
        self.entries += [(part, count, entry) for _, count, entry in entries]

    def close(self) -> None:
        pass


async def _fail_from_many_addresses() -> None:
    written = Written()
    audit = Audit(written, lambda: 0.0)
    for n in range(50_000):
        address = f"2001:db8:{n % 0xFFFF:x}:{n // 7 % 0xFFFF:x}::{n:x}"
        audit.record("sign-in", caller=None, address=address, result="failed", detail="unknown")
    audit.end_window()
    await audit.flush()
    assert len(written.entries) <= 700
    assert sum(count for _, count, _ in written.entries) == 50_000
    assert any(entry.address == MANY for _, _, entry in written.entries)
    audit.record("key.create", caller=Caller("key_1", "op", "admin"), address="10.0.0.1", target="key_2")
    await audit.flush()
    assert written.entries[-1][0] == "changes"


def test_failures_of_many_addresses_are_few_records() -> None:
    asyncio.run(_fail_from_many_addresses())


async def _lose_and_regain_the_log(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path / "log")
    audit = Audit(AuditWriter(log, "g"))
    (tmp_path / "log").write_text("a file where the folder should be")
    audit.record("key.create", caller=None, address="here", target="key_1")
    await audit.flush()
    (tmp_path / "log").unlink()
    await audit.flush()
    assert [each["target"] for each in records(log)] == ["key_1"]
    assert audit.lost == 0


def test_log_that_fails_loses_no_record_when_it_is_back(tmp_path: Path) -> None:
    asyncio.run(_lose_and_regain_the_log(tmp_path))


def test_two_processes_over_one_log_write_different_partitions(tmp_path: Path) -> None:
    first, second = Slot(tmp_path), Slot(tmp_path)
    first.take()
    second.take()
    assert (first.number, second.number) == (0, 1)
    first.release()
    third = Slot(tmp_path)
    third.take()
    assert third.number == 0
    for each in (second, third):
        each.release()


# Real processes ------------------------------------------------------------------------------

SERVICES = "streams: {gps_taxi: {schema: {vid: string, speed: float64}, key: vid}}\nservices: {gps: {from: gps_taxi}}\n"


@pytest.mark.processes
def test_audit_log_survives_a_kill_and_is_written_as_lines(tmp_path: Path) -> None:
    data, file = tmp_path / "data", tmp_path / "services.yaml"
    file.write_text(SERVICES)
    assert processes.tidegate("apply", file, data=data).returncode == 0
    admin = processes.create_key(data, "root", "admin")
    profile = processes.write_profile(tmp_path, limits={"sign_in_failures": 3})
    env = {"TIDEGATE_LOG": "json"}
    with processes.gateway(data, "--profile", profile, "--broker", "here", env=env) as running:
        with running.client(admin) as http:
            made = http.post("/v1/keys", json={"name": "fleet", "role": "provider"}).json()
        with running.client("tg_abcdefgh_wrong") as http:
            statuses = [http.get("/v1/services").status_code for _ in range(5)]
        assert statuses == [401, 401, 401, 429, 429]
        line = next(
            json.loads(each) for each in running.output.read_text().splitlines() if '"action": "key.create"' in each
        )
        assert (line["target"], line["name"], line["result"], line["address"]) == (
            made["id"],
            "root",
            "ok",
            "127.0.0.1",
        )
        running.process.kill()
        running.process.wait()
        assert made["secret"] not in running.output.read_text()
    started = time.time()
    with processes.gateway(data, "--profile", profile, "--broker", "here") as running, running.client(admin) as http:
        found = http.get(f"{AUDIT}&from=beginning&max=100").json()["events"]
        created = [
            each["target"] for each in found if each["action"] == "key.create" and each["address"] == "127.0.0.1"
        ]
        assert created == [made["id"]]
        http.delete(f"/v1/keys/{made['id']}")
        found = http.get(f"{AUDIT}&from=beginning&max=100").json()["events"]
        assert found[-1]["action"] == "key.revoke"
    assert time.time() - started < 60
    assert (data / "audit").stat().st_mode & 0o077 == 0
