"""Attacks of a neighbour broker, run over a real WebSocket against a real gateway."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway.routes.test_links import Broker, running
from tests.pipelines.running import until
from tests.security.hostile import SECRET, Hostile, Victim, cursor, linked, offer, record, run_tidegate
from tidegate.federation.link.bounds import Bounds


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    victim = Victim(tmp_path_factory.mktemp("victim"), bounds=Bounds(first_wait_s=0.1))
    with running(victim):
        yield victim


# Names -------------------------------------------------------------------------------------


def test_neighbour_cannot_offer_services_of_another_link(here: Victim) -> None:
    here.add("city")  # linked, and down
    with linked(here, "wolf", offer("gps@city"), offer("own@wolf"), transit=["*"]) as wolf:
        until(lambda: here.knows("own@wolf"), "its own service to be known")
        assert not here.knows("gps@city")
        status = here.status("wolf")
        reason = "there is a link to city: its services are accepted from there only"
        assert (status["offers"], status["refused"]) == (["own@wolf"], {"gps@city": reason})
        assert here.refusals("wolf") == {"name": 1}
        assert here.metric('tidegate_link_refused_total{link="wolf",reason="name"}') == 1
        wolf.give("gps@city", [record("gps@city", 1)])  # nobody has asked it for that
        until(lambda: wolf.is_taken(1), "the events to be taken")
        assert here.mirrored("gps@city") == []
    here.call("DELETE", "/v1/links/city")


def test_linking_the_origin_ends_what_another_has_offered_in_its_name(here: Victim) -> None:
    with linked(here, "wolf", offer("gps@city"), transit=["city"]):
        until(lambda: here.knows("gps@city"), "the service that is passed on to be known")
        with linked(here, "city", offer("gps@city", schema={"speed": "float64"})):
            until(lambda: here.status("city")["offers"] == ["gps@city"], "the origin's own offer to be believed")
            assert here.status("wolf")["offers"] == []
            schema = here.call("GET", "/v1/services/gps@city")["schema"]
            assert "speed" in json.dumps(schema)


def test_neighbour_passes_on_only_what_its_transit_names(here: Victim) -> None:
    with linked(here, "wolf", offer("a@far"), offer("b@moon")):
        until(lambda: here.refusals("wolf") == {"name": 2}, "both to be refused")
        reason = here.status("wolf")["refused"]["a@far"]
        assert reason == ("wolf may not pass on services of far; to allow it: tidegate link change wolf --transit far")
        changed = here.call("PATCH", "/v1/links/wolf", json={"transit": ["far"]})
        assert changed["transit"] == ["far"]
        with Hostile(here.url, "wolf") as again:
            again.greet(offer("a@far"), offer("b@moon"))
            until(lambda: here.knows("a@far"), "what its transit names to be known")
            assert not here.knows("b@moon")


def test_neighbour_cannot_offer_services_in_our_name(here: Victim) -> None:
    with linked(here, "wolf", offer("gps@here"), transit=["*"]):
        until(lambda: here.refusals("wolf") == {"name": 1}, "the offer to be refused")
        assert here.status("wolf")["refused"] == {"gps@here": "here is this broker"}
        assert not here.knows("gps@here")


def test_second_link_cannot_take_over_a_name_that_another_holds(here: Victim) -> None:
    with linked(here, "fox", offer("gps@far"), transit=["far"]):
        until(lambda: here.knows("gps@far"), "the service to be known")
        with linked(here, "wolf", offer("gps@far"), offer("more@far"), transit=["far"]):
            until(lambda: here.refusals("wolf") == {"conflict": 2}, "both to be refused")
            assert not here.knows("more@far")
            reason = here.status("wolf")["refused"]["gps@far"]
            assert reason == "the services of far are known over the link to fox"


# Events ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (record("other@wolf", 2), "expected a record of 'n@wolf', not one of 'other@wolf/g1/0'"),
        (record("gps@city", 2), "expected a record of 'n@wolf', not one of 'gps@city/g1/0'"),
        (b'{"_id":"2","n":2}', "expected a record with its id and its position at its origin"),
        (
            b'{"_id":"2","_src":"n@wolf/g1/0:2","n":2,"_src":"gps@city/g1/0:2"}',
            "expected a record with one position at its origin",
        ),
        (b'{"_id":"2","_src":"n@wolf/g1/../../x:2","n":2}', "expected a record with its id and its position"),
        (b'{"_gap":["gps@city/g1/0",0,9]}', "expected a record of 'n@wolf', not one of 'gps@city/g1/0'"),
    ],
    ids=["of its other service", "of another broker", "of nowhere", "of two places", "outside of the log", "gap"],
)
def test_events_of_one_service_do_not_enter_another(here: Victim, event: bytes, reason: str) -> None:
    with linked(here, "wolf", offer("n@wolf"), offer("other@wolf")) as wolf:
        here.want("n@wolf")
        before = here.mirrored("n@wolf")
        wolf.give("n@wolf", [record("n@wolf", 1, f"g{time.time_ns()}"), event])
        wolf.need_closed(reason)
        assert here.mirrored("n@wolf") == before, "nothing of such a message is kept"
        assert here.mirrored("gps@city") == here.mirrored("other@wolf") == []
        refusals = here.refusals("wolf")
        assert (refusals["record"], refusals["fault"]) == (1, 1)


def test_page_of_history_with_events_of_another_service_is_refused(here: Victim) -> None:
    with linked(here, "wolf", offer("n@wolf")) as wolf:
        wolf.answer = lambda _: (
            {"cursor": cursor("@g1", {"0": 9}), "until": cursor("g1", {"0": 9})},
            [record("gps@city", 1)],
        )
        until(lambda: here.knows("n@wolf"), "the service to be known")
        with here.client() as http:
            params: dict[str, Any] = {"from": "beginning", "wait": "1s"}
            answer = http.get("/v1/services/n@wolf/events", params=params)
            assert "gps@city" not in answer.text
        until(lambda: here.refusals("wolf").get("record", 0) > 0, "the page to be refused")


# Public ------------------------------------------------------------------------------------


def test_public_service_of_a_neighbour_is_for_guests_by_opt_in_only(here: Victim) -> None:
    with linked(here, "wolf", offer("n@wolf", public=True), offer("m@wolf", public=True)):
        until(lambda: here.knows("n@wolf"), "the service to be known")

        def guest_sees() -> list[str]:
            answer = httpx.get(f"{here.url}/v1/services", timeout=30)
            return [each["name"] for each in answer.json()["services"]] if answer.status_code == 200 else []

        assert guest_sees() == []
        assert httpx.get(f"{here.url}/v1/services/n@wolf/events?wait=0s", timeout=30).status_code in (401, 403, 404)
        assert here.call("PATCH", "/v1/links/wolf", json={"public": ["n"]})["public"] == ["n@wolf"]
        with Hostile(here.url, "wolf") as again:
            again.greet(offer("n@wolf", public=True), offer("m@wolf", public=True))
            until(lambda: guest_sees() == ["n@wolf"], "the service to be seen by guests")
            again.say({"type": "offers", "services": [offer("n@wolf", public=False)]})
            until(lambda: guest_sees() == [], "the service to be what its origin says")


# Bounds ------------------------------------------------------------------------------------


def nested(levels: int) -> Any:
    value: Any = "int64"
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    ("services", "reason"),
    [
        ([offer(f"s{n}@wolf") for n in range(5_001)], "expected at most 5,000 services in an offer, not 5,001"),
        ([offer("n@wolf", schema=nested(60))], "expected an offer with at most 32 levels of nesting"),
        ([offer("n@wolf", schema=nested(600))], "expected an offer with at most 32 levels of nesting"),
        (
            [offer("n@wolf", schema={f"a{n}": "int64" for n in range(2_001)})],
            "expected a service with at most 2,000 attributes, not 2,001",
        ),
        (
            [offer(f"s{n}@wolf", schema={f"a{m}": "int64" for m in range(1_000)}) for n in range(250)],
            "expected at most 200,000 values in all offers",
        ),
        ([offer("n@wolf", description="x" * 9_000_000)], "expected offers of at most 8,388,608 bytes"),
        ([offer("n@wolf", schema={"n": "no such type"})], "expected a service of 'wolf', not"),
        ([offer("n@wolf\n@x")], "expected a service of 'wolf', not"),
    ],
    ids=["services", "depth", "great depth", "attributes", "values", "bytes", "type", "name"],
)
def test_offers_beyond_the_bounds_end_the_session(here: Victim, services: list[Any], reason: str) -> None:
    with linked(here, "wolf") as wolf:
        wolf.say({"type": "offers", "services": services})
        wolf.need_closed(reason[:100])
        assert here.refusals("wolf") == {"fault": 1}
        assert here.status("wolf")["offers"] == []


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (
            {"type": "reach", "paths": [["wolf", f"b{n}"] for n in range(1_001)]},
            "expected at most 1,000 brokers behind",
        ),
        ({"type": "reach", "paths": [["wolf", *(f"b{n}" for n in range(64))]]}, "expected paths of at most 64 brokers"),
        ({"type": "reach", "paths": [["wolf", "x\u001b[2J"]]}, "expected the name of a broker, not 'x\\x1b[2J'"),
        ({"type": "hello", "tables": {"../../x": {}}, "paths": []}, "expected the name of a service, not '../../x'"),
        (
            {"type": "resume", "services": {"n@wolf": {"cursor": None, "marks": {"a": "b"}}}},
            "expected a cursor and marks to resume from",
        ),
        (
            {"type": "history", "id": 1, "service": "n", "filter": {"text": "n > 1 " * 20_000, "params": []}},
            "expected a filter of at most 65,536 bytes",
        ),
        (
            {"type": "update", "service": "n@here", "add": [{"filter": "n = 1" * 20_000}]},
            "expected a filter of at most",
        ),
    ],
    ids=["paths", "hops", "broker", "service", "marks", "history", "filter"],
)
def test_control_messages_beyond_the_bounds_end_the_session(here: Victim, message: dict[str, Any], reason: str) -> None:
    with linked(here, "wolf") as wolf:
        wolf.say(message)
        wolf.need_closed(reason)
        assert here.refusals("wolf") == {"fault": 1}


def test_message_in_endless_parts_ends_the_session(here: Victim) -> None:
    with linked(here, "wolf") as wolf:
        for _ in range(90):  # 36 MB
            wolf.send(b"+", b"x" * 400_000)
        wolf.need_closed("expected a message of at most")
    with linked(here, "wolf") as wolf:
        wolf.send(b"+", b"x")
        wolf.need_closed("expected a part of at least")


def test_large_offers_do_not_delay_other_callers(here: Victim) -> None:
    services = [offer(f"s{n}@wolf", schema={f"a{m}": "int64" for m in range(180)}) for n in range(1_000)]
    with linked(here, "wolf") as wolf:
        wolf.say({"type": "offers", "services": services})
        slowest = 0.0

        def is_done() -> bool:
            nonlocal slowest
            begun = time.monotonic()
            with here.client() as http:
                assert http.get("/livez").status_code == 200
            slowest = max(slowest, time.monotonic() - begun)
            return bool(here.status("wolf")["offers"])

        until(is_done, "the offers to be taken in")
        assert slowest < 5, "the event loop was held up"


def test_flood_of_control_messages_is_read_slowly_and_then_ended(tmp_path: Path) -> None:
    bounds = Bounds(rate=2_000, burst=6_000, flood_s=0.5)
    victim = Victim(tmp_path, bounds=bounds)
    with running(victim), linked(victim, "wolf") as wolf:
        hello = {"type": "hello", "tables": {}, "paths": [["wolf"]]}

        def is_ended() -> bool:
            for _ in range(50):
                wolf.say(hello)
            return wolf.closed is not None

        until(is_ended, "the flood to be ended")
        wolf.need_closed("its control messages have cost more than 2,000 units of work a second")
        with Hostile(victim.url, "wolf") as again:  # at once
            assert again.welcome["type"] == "refused"
            assert "wolf may come back in" in again.welcome["detail"]
        assert victim.refusals("wolf") == {"fault": 1}
        assert victim.status("wolf")["state"] == "down"
        assert victim.metric("tidegate_link_handshakes_refused_total") >= 1


def test_neighbour_cannot_have_us_disconnected_by_another(tmp_path: Path) -> None:
    """Offers, requests and paths are forwarded within the bounds of the receiver."""
    bounds = Bounds(services=20, relayed_filters=10)
    victim, sheep = Victim(tmp_path, bounds=bounds), Broker(tmp_path, "sheep", bounds=bounds)
    with running(victim, sheep):
        victim.add("sheep")
        sheep.call("POST", "/v1/links", json={"name": "here", "url": victim.url, "secret": SECRET, "transit": ["*"]})
        until(lambda: sheep.call("GET", "/v1/links/here")["state"] == "up", "the link to come up")
        names = [f"s{n}@wolf" for n in range(20)]
        with (
            linked(victim, "wolf", *map(offer, names)),
            linked(victim, "fox", *(offer(f"t{n}@fox") for n in range(20))),
        ):
            paths = [["wolf"], *(["wolf", f"b{n}"] for n in range(999))]
            with Hostile(victim.url, "wolf") as wolf:
                wolf.greet(*map(offer, names))
                wolf.say({"type": "reach", "paths": paths})
                until(lambda: len(sheep.call("GET", "/v1/links/here")["paths"]) > 900, "the paths to be passed on")
                until(lambda: len(sheep.call("GET", "/v1/links/here")["offers"]) == 20, "services to be passed on")
                entries = [{"number": n, "filter": f"n = {n}"} for n in range(1, 12)]
                wolf.say({"type": "table", "service": "t1@fox", "version": 1, "digest": "0", "entries": entries})
                wolf.need_closed("expected at most 10 filters of other brokers' services, not 11")
            status = sheep.call("GET", "/v1/links/here")
            assert (status["state"], status["figures"]["sessions"]) == ("up", 1)


# Secrets -----------------------------------------------------------------------------------


def test_secret_is_read_from_a_file_or_standard_input_only(here: Victim, tmp_path: Path) -> None:
    to = ["--url", here.url, "--key", here.key]
    printed, problem = run_tidegate("link", "add", "one", "--secret", SECRET, *to)
    assert "--secret: every user of this machine can read a command line" in problem
    assert "--secret-file PATH, or - for standard input" in problem
    assert SECRET not in printed + problem
    assert "one" not in here.registry.links()
    file, made = tmp_path / "secret", tmp_path / "made"
    file.write_text(SECRET + "\n")
    assert run_tidegate("link", "add", "one", "--secret-file", file, *to) == ("linked to one\n", "")
    assert run_tidegate("link", "add", "two", "--secret-file", "-", *to, stdin=SECRET) == ("linked to two\n", "")
    environment = {"TIDEGATE_LINK_SECRET": SECRET}
    assert run_tidegate("link", "add", "three", *to, env=environment) == ("linked to three\n", "")
    assert run_tidegate("link", "add", "four", "--secret-to", made, *to) == ("linked to four\n", "")
    assert made.stat().st_mode & 0o777 == 0o600
    links = here.registry.links()
    assert {links[name].secret for name in ("one", "two", "three")} == {SECRET}
    assert links["four"].secret == made.read_text().strip()
    for name in ("one", "two", "three", "four"):
        here.call("DELETE", f"/v1/links/{name}")


def test_secret_that_can_not_be_read_or_written_is_said(here: Victim, tmp_path: Path) -> None:
    add = ["link", "add", "five", "--url", here.url, "--key", here.key]
    made = tmp_path / "made"
    made.write_text("already")
    for args, problem in (
        (["--secret-file", tmp_path / "none"], "--secret-file: can't read"),
        (["--secret-file", "-"], "--secret-file: '-' is empty; write the secret into it"),
        (["--secret-to", made], "--secret-to: can't write"),
        (["--secret-file", made, "--secret-to", made], "--secret-to writes a secret that is created"),
        (["--secret-file", made], "expected a secret of at least 24 characters, not 7"),
    ):
        assert problem in run_tidegate(*add, *args, stdin="\n")[1]
    made.write_bytes(b"x" * 70_000)
    assert "has more than 65,536 bytes; expected a secret" in run_tidegate(*add, "--secret-file", made)[1]
    assert "five" not in here.registry.links()


def test_stranger_learns_neither_the_name_nor_the_links_of_a_broker(here: Victim) -> None:
    here.add("city")
    told = []
    for name, to in (("city", "here"), ("nobody", "here"), ("city", "elsewhere")):
        with Hostile(here.url, name, to, "a secret that nobody has agreed on") as stranger:
            told.append(stranger.welcome)
    here.call("DELETE", "/v1/links/city")
    assert {each["type"] for each in told} == {"refused"}
    texts = {each["detail"].replace("nobody", "city").replace("elsewhere", "here") for each in told}
    assert texts == {"there is no link between 'city' and 'here' here, or the secrets differ"}
