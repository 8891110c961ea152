"""Attacks of a broker in the middle on what an origin has signed, over a real WebSocket against a real gateway."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import Authority
from tests.gateway.routes.test_links import EMPTY, Broker, ids, ids_of, running
from tests.gateway.running import CITY, World
from tests.pipelines.running import until
from tests.security import processes
from tests.security.hostile import SECRET, Hostile, Victim, cursor, linked, offer, record, run_tidegate
from tidegate.federation.link.bounds import Bounds
from tidegate.federation.link.keys import OriginKey, create_key_file, new_key, rotate_key_file
from tidegate.federation.link.signing import sign_offer, sign_records


def signed(key: OriginKey, *records: bytes, ago_s: float = 0.0) -> list[bytes]:
    return sign_records(records, key, time.time() - ago_s)


def signed_offer(key: OriginKey, name: str, ago_s: float = 0.0, **more: Any) -> dict[str, Any]:
    said = offer(name, **more)
    return {**said, "jws": sign_offer(said, key, time.time() - ago_s)}


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Victim]:
    victim = Victim(tmp_path, bounds=Bounds(first_wait_s=0.1))
    with running(victim):
        yield victim


@pytest.fixture
def far(here: Victim) -> OriginKey:
    """A key of the broker `far`, which is pinned here."""
    key = new_key()
    here.pin("far", key)
    return key


@contextmanager
def passing_on(here: Victim, key: OriginKey) -> Iterator[Hostile]:
    """A hostile broker in the middle, which has passed on one event of `far` that is signed."""
    with linked(here, "wolf", signed_offer(key, "n@far"), signed_offer(key, "m@far"), transit=["far"]) as wolf:
        here.want("n@far")
        here.want("m@far")
        wolf.give("n@far", signed(key, record("n@far", 1)))
        until(lambda: here.mirrored("n@far") == [1], "the signed event to be kept")
        yield wolf


def altered(event: bytes) -> bytes:
    return event.replace(b'"n":2', b'"n":7')


def test_middle_broker_can_not_forge_or_alter_events(here: Victim, far: OriginKey) -> None:
    true, other = signed(far, record("n@far", 2), record("n@far", 3))
    forged = [
        record("n@far", 2),  # not signed
        *signed(new_key(), record("n@far", 2)),  # signed with a key of its own
        altered(true),
        true.replace(b'"_id":"2"', b'"_id":"8"'),
        true.replace(b"/0:2", b"/0:9"),
        true.replace(b"/g1/", b"/g2/"),
        true.replace(b"/0:2", b"/1:2"),
        other.replace(b'"n":3', b'"n":2'),
        true[:-1] + b',"more":1}',
        true.replace(b".0.2.", b".1.2."),  # the place of another leaf
        true.replace(b".0.2.", b".0.1."),
        true.replace(b'"_sig":"', b'"_sig":"x'),
        b'{"_gap":["n@far/g1/0",1,900]}',
    ]
    with passing_on(here, far) as wolf:
        wolf.give("n@far", forged)
        until(lambda: wolf.is_taken(1 + len(forged)), "the events to be taken")
        assert here.mirrored("n@far") == [1]
        assert here.refusals("wolf") == {"signature": len(forged)}
        assert here.metric('tidegate_link_refused_total{link="wolf",reason="signature"}') == len(forged)
        wolf.give("n@far", [true, other])
        until(lambda: here.mirrored("n@far") == [1, 2, 3], "the true events to be kept")


def test_middle_broker_can_not_replay_events(here: Victim, far: OriginKey) -> None:
    ancient = signed(far, record("n@far", 500, "g0", 500), ago_s=3600)
    first, *more = signed(far, *(record("n@far", n) for n in (2, 3, 4)))
    with passing_on(here, far) as wolf:
        wolf.give("n@far", [first, *more])
        until(lambda: here.mirrored("n@far") == [1, 2, 3, 4], "the events to be kept")
        wolf.give("n@far", [more[0], first, *ancient])  # again, backwards, and of a stream that is gone
        until(lambda: wolf.is_taken(7), "the events to be taken")
        wolf.give("n@far", signed(far, record("n@far", 5)))
        until(lambda: here.mirrored("n@far") == [1, 2, 3, 4, 5], "the next event, and nothing before it")
        wolf.give("n@far", signed(far, record("n@far", 1, "g2", 6)))  # the origin has made its stream anew
        until(lambda: here.mirrored("n@far")[-1] == 6, "an event of the newer generation")
        wolf.give("n@far", signed(far, record("n@far", 7)))  # of the one before
        until(lambda: wolf.is_taken(10), "the event to be taken")
        assert here.mirrored("n@far") == [1, 2, 3, 4, 5, 6]


def test_middle_broker_can_not_move_signed_events_into_another_service(here: Victim, far: OriginKey) -> None:
    (event,) = signed(far, record("n@far", 2))
    with passing_on(here, far) as wolf:
        wolf.give("m@far", [event.replace(b"n@far/", b"m@far/")])
        until(lambda: here.refusals("wolf") == {"signature": 1}, "the event to be refused")
        wolf.give("m@far", [event])
        wolf.need_closed("expected a record of 'm@far', not one of 'n@far/g1/0'")
        assert here.mirrored("m@far") == []


def test_many_forged_signatures_end_the_session(here: Victim, far: OriginKey) -> None:
    with passing_on(here, far) as wolf:
        wolf.give("n@far", [altered(each) for n in range(100) for each in signed(far, record("n@far", 2 + n, value=2))])
        wolf.need_closed("more than 64 records of 'n@far' have forged signatures")
        assert here.refusals("wolf")["fault"] == 1


def test_page_of_history_is_verified_like_live_events(here: Victim, far: OriginKey) -> None:
    (true,) = signed(far, record("n@far", 2))
    with linked(here, "wolf", signed_offer(far, "n@far"), transit=["far"]) as wolf:
        wolf.answer = lambda _: (
            {"cursor": cursor("@g1", {"0": 9}), "until": cursor("g1", {"0": 9})},
            [record("n@far", 1), true, altered(signed(far, record("n@far", 3, value=2))[0])],
        )
        until(lambda: here.knows("n@far"), "the service to be known")
        events: list[int] = []

        def has_some() -> bool:
            params = {"from": "beginning", "wait": "1s"}
            events[:] = [
                each["data"]["n"] for each in here.call("GET", "/v1/services/n@far/events", params=params)["events"]
            ]
            return bool(events)

        until(has_some, "the page of history")
        assert set(events) == {2}
        assert here.refusals("wolf")["signature"] >= 2


def test_middle_broker_can_not_alter_or_replay_offers(here: Victim, far: OriginKey) -> None:
    old = signed_offer(far, "n@far", ago_s=3600, schema={"n": "int64", "old": "int64"})
    new = signed_offer(far, "n@far")
    with linked(here, "wolf", new, transit=["far"]) as wolf:
        until(lambda: here.knows("n@far"), "the service to be known")
        cases = {
            "the offer is not signed": offer("n@far"),
            "the offer is signed with a key that is not pinned": signed_offer(new_key(), "n@far"),
            "the signature is that of 'm@far'": {**offer("n@far"), "jws": signed_offer(far, "m@far")["jws"]},
            "the signature of the offer is not valid": {**new, "jws": new["jws"][:-8] + "AAAAAAAA"},
            "does not let 'n@far' be passed on": signed_offer(far, "n@far", onward=False),
            "a newer offer of 'n@far' was seen before": old,
        }

        def is_refused(reason: str) -> bool:
            return reason in str(here.status("wolf")["refused"])

        for problem, said in cases.items():
            wolf.say({"type": "offers", "services": [said]})
            until(partial(is_refused, problem), problem)
            assert not here.knows("n@far")
        assert here.refusals("wolf") == {"signature": len(cases)}
        wolf.say({"type": "offers", "services": [{**signed_offer(far, "n@far"), "schema": {"forged": "string"}}]})
        until(lambda: here.knows("n@far"), "the signed offer to be believed")
        assert "forged" not in json.dumps(here.call("GET", "/v1/services/n@far"))


def test_keys_are_rotated_with_overlap(here: Victim, tmp_path: Path) -> None:
    file = tmp_path / "signing.jwks"
    old = create_key_file(file)
    new = rotate_key_file(file, time.time(), after_s=0, keep_s=3600)
    ended = new_key()
    expired = OriginKey(ended.id, ended.public, ended.private, expires=round(time.time()) - 1)
    here.pin("far", old, new, expired)
    with linked(here, "wolf", signed_offer(old, "n@far"), transit=["far"]) as wolf:
        here.want("n@far")
        for n, key in enumerate((old, new, old), 1):
            wolf.give("n@far", signed(key, record("n@far", n)))
        until(lambda: here.mirrored("n@far") == [1, 2, 3], "events of both keys to be kept")
        wolf.give("n@far", signed(expired, record("n@far", 4)))
        until(lambda: here.refusals("wolf") == {"signature": 1}, "the event of the expired key to be refused")
        here.pin("far", new)  # the old key is lost, or was stolen
        wolf.say({"type": "offers", "services": [signed_offer(new, "n@far")]})
        here.want("n@far")
        wolf.give("n@far", signed(old, record("n@far", 5)))
        until(lambda: here.refusals("wolf")["signature"] >= 2, "the event of the old key to be refused")
        assert here.mirrored("n@far") == [1, 2, 3]


# Real brokers ------------------------------------------------------------------------------


def test_signed_events_cross_a_broker_in_the_middle(tmp_path: Path) -> None:
    """Live, with a filter, and as history; events without a signature are refused."""
    keys = tmp_path / "signing.jwks"
    first = create_key_file(keys)
    city = Broker(tmp_path, "city", CITY, signing_keys=keys)
    middle, here = Broker(tmp_path, "middle"), Victim(tmp_path)
    with running(city, middle, here):
        here.pin("city", first)
        middle.link(city)
        here.add("middle", transit=["city"])
        middle.call("POST", "/v1/links", json={"name": "here", "url": here.url, "secret": SECRET})
        until(lambda: here.knows("gps@city"), "the service to be known")
        city.append(50)
        id_ = here.subscribe("gps@city", "speed >= 90")
        until(lambda: city.entries(middle, "gps@city") == 1, "it to be asked for")
        city.append(50)
        assert here.consume(id_, 10) == ids(*range(90, 100))
        pages = here.poll("/v1/services/gps@city/events", 100, **{"from": "beginning"})
        assert ids_of(pages) == ids(*range(100))
        assert "_sig" not in json.dumps(pages)
        second = rotate_key_file(keys, time.time(), after_s=0, keep_s=3600)
        here.pin("city", first, second)
        city.sent = 190
        city.append(10)  # signed with the new key once the file is read again, and with the old one until then
        assert here.consume(id_, 10) == ids(*range(190, 200))
        assert here.refusals("middle") == {}
        here.pin("city", new_key())
        until(lambda: not here.knows("gps@city"), "the service to be refused")
        assert here.refusals("middle") == {}, "what was offered before is judged, not counted"
        assert "signed with a key that is not pinned" in here.status("middle")["refused"]["gps@city"]


def test_signed_link_over_mutual_tls_made_by_commands(tmp_path: Path) -> None:
    """Two processes: TLS with certificates at both ends, a secret from a file, a key that is created and pinned."""
    authority, secret = Authority(tmp_path / "ca"), tmp_path / "secret"
    secret.write_text(SECRET)
    server, shown = authority.server("city"), authority.client("edge")
    folders = {name: tmp_path / name for name in ("city", "edge")}
    for name, folder in folders.items():
        registry = World(folder / "data", CITY if name == "city" else EMPTY).registry
        (tmp_path / f"{name}.key").write_text(registry.create_key("boss", "admin")[1])
        registry.close()
    created, _ = run_tidegate("link", "key", "create", "--data", folders["city"] / "data")
    assert (folders["city"] / "data" / "signing.jwks").stat().st_mode & 0o777 == 0o600
    assert '"x"' in created
    assert '"d"' not in created
    public = tmp_path / "city.jwks"
    public.write_text(created)
    tls: dict[str, Any] = {"cert": str(server.cert), "key": str(server.key)}
    profiles = {
        "city": processes.write_profile(
            folders["city"],
            tls={**tls, "client_ca": str(authority.cert)},
            access={"required": True, "certificates": [{"subject": "CN=edge", "link": "edge"}]},
        ),
        "edge": processes.write_profile(
            folders["edge"],
            tls={**tls, "client": {"ca": str(authority.cert), "cert": str(shown.cert), "key": str(shown.key)}},
            links={"origins": {"city": f"file:{public}"}},
        ),
    }

    def command(at: str, *args: object) -> str:
        """Run a command against a gateway, with the admin's key from a file."""
        to = ("--url", gateways[at].url, "--ca", authority.cert, "--key-file", tmp_path / f"{at}.key")
        printed, problem = run_tidegate(*args, *to)
        assert not problem
        return printed

    with ExitStack() as stack:
        gateways = {
            name: stack.enter_context(processes.gateway(folder / "data", "--profile", profiles[name], "--broker", name))
            for name, folder in folders.items()
        }
        assert command("city", "link", "add", "edge", "--secret-file", secret) == "linked to edge\n"
        to = gateways["city"].url
        assert command("edge", "link", "add", "city", to, "--secret-file", secret) == "linked to city\n"

        def link() -> dict[str, Any]:
            found: dict[str, Any] = json.loads(command("edge", "link", "list", "--json"))
            return found

        until(lambda: link()["links"][0]["offers"] == ["fast@city", "gps@city"], "the signed services to be known")
        assert link()["links"][0]["refused"] == {}
        assert [each["name"] for each in link()["pinned"]] == ["city"]
        shown_list = command("edge", "link", "list")
        assert f"events of city must be signed with {link()['pinned'][0]['keys'][0]['kid']}" in shown_list
