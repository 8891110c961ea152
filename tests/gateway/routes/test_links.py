"""Gateways that are linked: real sockets between them, real logs under them."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.sync.server import ServerConnection, serve
from websockets.typing import Subprotocol

from tests.gateway.receiver import Receiver
from tests.gateway.running import CITY, World
from tests.gateway.transports.test_websocket import opened
from tests.pipelines.running import until
from tidegate.cli.main import app
from tidegate.federation.link import SUBPROTOCOL, LinkSettings
from tidegate.federation.routes import AdaptiveSettings
from tidegate.logs import RetentionLimits, SegmentLog
from tidegate.services import loads

SECRET = "a secret that both ends of a link know"
SSE = "text/event-stream"
EMPTY = """
streams: {raw: {schema: {n: int64}}}
services: {}
"""
FICKLE = AdaptiveSettings(crossing_s=0.0, window=20, sample=4)
"""A link forwards all as soon as it may, until the other side says that it drops much."""
fickle_or_not = pytest.mark.parametrize("adaptive", [AdaptiveSettings(), FICKLE], ids=["steady", "fickle"])
HASTE: dict[str, Any] = {
    "heartbeat_interval_s": 0.2,
    "silence_timeout_s": 20.0,
    "first_retry_s": 0.02,
    "max_retry_s": 0.2,
    "save_interval_s": 0.02,
}


class Broker(World):
    """A gateway with a name."""

    def __init__(self, folder: Path, name: str, text: str = EMPTY, **settings: Any) -> None:
        super().__init__(folder / name, text)
        self.links = LinkSettings(name, **{**HASTE, **settings})
        self.name = name

    def call(self, method: str, path: str, **more: Any) -> Any:
        with self.client() as http:
            answer = http.request(method, path, **more)
            answer.raise_for_status()
            return answer.json() if answer.content else None

    def link(self, other: Broker) -> None:
        """Link two brokers that run: the other is dialled."""
        other.call("POST", "/v1/links", json={"name": self.name, "secret": SECRET, "transit": ["*"]})
        more = {"url": other.url, "secret": SECRET, "transit": ["*"]}
        self.call("POST", "/v1/links", json={"name": other.name, **more})
        until(lambda: self.state(other) == other.state(self) == "up", "the link to come up")

    def state(self, other: Broker) -> str:
        return str(self.call("GET", f"/v1/links/{other.name}")["state"])

    def knows(self, service: str) -> bool:
        return any(each["name"] == service for each in self.call("GET", "/v1/services")["services"])

    def entries(self, other: Broker, service: str) -> int:
        """How many filters another has asked us for."""
        return int(self.call("GET", f"/v1/links/{other.name}")["entries"].get(service, 0))

    def subscribe(self, service: str, filter_: str = "", **more: Any) -> str:
        said = self.call("POST", f"/v1/services/{service}/subscriptions", json={"filter": filter_, **more})
        return str(said["id"])

    def poll(self, path: str, count: int, **params: Any) -> list[dict[str, Any]]:
        """Poll until `count` events have arrived; one page may not have all of them."""
        pages: list[dict[str, Any]] = []

        def page() -> bool:
            at = {"cursor": pages[-1]["cursor"]} if pages else {}
            said = {name: value for name, value in params.items() if name != "from" or not pages}
            pages.append(self.call("GET", path, params={**said, "wait": "2s", **at}))
            return sum(len(each["events"]) for each in pages) >= count

        until(page, f"{count} events")
        return pages

    def consume(self, id_: str, count: int, wait: str = "2s") -> list[str]:
        """The ids of what a durable subscription gets, each acknowledged."""
        found: list[str] = []
        cursor = ""

        def page() -> bool:
            nonlocal cursor
            said = self.call("GET", f"/v1/subscriptions/{id_}/events", params={"wait": wait, "cursor": cursor})
            found.extend(each["id"] for each in said["events"])
            cursor = said["cursor"]
            return len(found) >= count

        until(page, f"{count} events, not {len(found)}")
        if cursor:
            self.call("POST", f"/v1/subscriptions/{id_}/ack", json={"cursor": cursor})
        return found


@contextmanager
def running(*brokers: Broker) -> Iterator[None]:
    with ExitStack() as stack:
        for each in brokers:
            stack.enter_context(each.running())
        yield


def ids(*numbers: int) -> list[str]:
    return [f"gps_taxi:0:{n}" for n in numbers]


def ids_of(pages: list[dict[str, Any]]) -> list[str]:
    return [each["id"] for page in pages for each in page["events"]]


def city(tmp_path: Path, **settings: Any) -> Broker:
    return Broker(tmp_path, "city", CITY, **settings)


def line(tmp_path: Path, adaptive: AdaptiveSettings) -> tuple[Broker, Broker, Broker]:
    """Three brokers in a line; the last one has services."""
    one, other = (Broker(tmp_path, name, adaptive=adaptive) for name in "ab")
    return one, other, Broker(tmp_path, "c", CITY, adaptive=adaptive)


def test_events_reach_a_subscriber_at_another_broker_with_their_ids(tmp_path: Path) -> None:
    here, there = Broker(tmp_path, "province"), city(tmp_path)
    with running(here, there):
        here.link(there)
        until(lambda: here.knows("gps@city"), "the service to be known")
        fast = here.subscribe("gps@city", "speed > 90")
        all_ = here.subscribe("fast@city")
        until(lambda: there.entries(here, "gps@city") == 1 == there.entries(here, "fast@city"), "it to be asked for")
        every = {"service": "fast@city", "filter": "vid IS NOT NULL OR vid IS NULL"}
        asked = [every, {"service": "gps@city", "filter": "speed > 90"}]
        mine, others = here.call("GET", "/v1/links/city/routes"), there.call("GET", "/v1/links/province/routes")
        assert mine == {"name": "city", "asked": asked, "entries": [], "total": {"asked": 2, "entries": 0}}
        assert (others["asked"], others["entries"]) == ([], asked), "what one asks for is what the other is asked for"
        some = there.call("GET", "/v1/links/province/routes", params={"max": 1})
        assert (some["entries"], some["total"]) == (asked[:1], {"asked": 0, "entries": 2})
        there.append(100)
        assert here.consume(fast, 9) == ids(*range(91, 100))
        assert here.consume(all_, 0, "0s") == []
        figures = there.call("GET", "/v1/links/province")["figures"]
        assert (figures["forwarded"], figures["stopped"]) == (9, 91)


def test_all_four_deliveries_work_over_a_link(tmp_path: Path) -> None:
    here, there = Broker(tmp_path, "province"), city(tmp_path)
    with Receiver().running() as receiver, running(here, there):
        here.link(there)
        until(lambda: here.knows("gps@city"), "the service to be known")
        path = "/v1/services/gps@city/events"
        hook = {"webhook": {"url": receiver.url, "handshake": False}}
        here.subscribe("gps@city", "speed > 96", deliver=hook)
        with here.client() as http, connect(f"{here.url.replace('http', 'ws')}{path}?filter=speed>97") as socket:
            assert json.loads(socket.recv(60))["op"] == "subscribed"
            with http.stream("GET", path, params={"filter": "speed > 98"}, headers={"accept": SSE}) as stream:
                lines = stream.iter_lines()
                page = here.call("GET", path, params={"filter": "speed < 3"})
                until(lambda: there.entries(here, "gps@city") == 2, "both wide filters to be asked for")
                there.append(100)
                assert next(line for line in lines if '"gps_taxi:0:99"' in line)
            said = [json.loads(socket.recv(60)) for _ in range(2)]
            assert [each["event"]["id"] for each in said] == ids(98, 99)
        page = here.call("GET", path, params={"filter": "speed < 3", "cursor": page["cursor"], "wait": "60s"})
        assert [each["id"] for each in page["events"]] == ids(0, 1, 2)
        until(lambda: sorted(receiver.numbers) == [97, 98, 99], "the webhook")


@fickle_or_not
def test_events_appended_while_a_link_is_down_arrive_once(tmp_path: Path, adaptive: AdaptiveSettings) -> None:
    """Through a broker in the middle, each of the three restarted in turn."""
    end, middle, origin = line(tmp_path, adaptive)
    brokers = {"a": end, "b": middle, "c": origin}
    with ExitStack() as stack:
        lives = {name: stack.enter_context(ExitStack()) for name in brokers}
        for name, each in brokers.items():
            lives[name].enter_context(each.running())
        end.link(middle)
        middle.link(origin)
        until(lambda: end.knows("gps@c"), "the service to be known two hops away")
        far = end.subscribe("gps@c", "speed < 50")
        near = middle.subscribe("gps@c", "speed >= 40")
        until(lambda: origin.entries(middle, "gps@c") == 2, "both to be asked for")
        for name in ("b", "a", "c", "b"):
            origin.append(100)
            lives[name].close()
            if name != "c":
                origin.append(100)
            lives[name].enter_context(brokers[name].running())
        until(lambda: end.state(middle) == origin.state(middle) == "up", "the links to be mended")
        sent = range(origin.sent)
        assert end.consume(far, origin.sent // 2) == ids(*(n for n in sent if n % 100 < 50))
        assert middle.consume(near, origin.sent * 6 // 10) == ids(*(n for n in sent if n % 100 >= 40))


@fickle_or_not
def test_history_is_fetched_from_the_origin(tmp_path: Path, adaptive: AdaptiveSettings) -> None:
    end, middle, origin = line(tmp_path, adaptive)
    with running(end, middle, origin):
        origin.append(2_500)
        end.link(middle)
        middle.link(origin)
        until(lambda: end.knows("gps@c"), "the service to be known")
        late = end.subscribe("gps@c", "speed > 90")
        until(lambda: origin.entries(middle, "gps@c") == 1, "it to be asked for")
        origin.append(100)
        whole = end.subscribe("gps@c", "speed > 80", **{"from": "beginning"})
        assert end.consume(whole, 26 * 19) == ids(*(n for n in range(2_600) if n % 100 > 80))
        origin.append(100)
        assert end.consume(whole, 19) == ids(*range(2_681, 2_700))
        assert end.consume(late, 18) == ids(*(n for n in range(2_500, 2_700) if n % 100 > 90))
        path = "/v1/services/gps@c/events"
        pages = middle.poll(path, 5, **{"from": "beginning", "filter": "speed = 7", "max": 5})
        assert len(pages[0]["events"]) <= 5
        rest = 27 - sum(len(each["events"]) for each in pages)
        pages += middle.poll(path, rest, cursor=pages[-1]["cursor"], filter="speed = 7")
        assert ids_of(pages) == ids(*range(7, 2_700, 100))
        with end.client() as http:
            said = {"from": "beginning", "filter": "speed = 7"}
            with http.stream("GET", path, params=said, headers={"accept": SSE}) as stream:
                found = (json.loads(line[6:])["id"] for line in stream.iter_lines() if line.startswith('data: {"spec'))
                assert [next(found) for _ in range(27)] == ids(*range(7, 2_700, 100))
                origin.append(100)
                assert next(found) == ids(2_707)[0]


def test_subscriber_behind_the_retention_of_the_origin_gets_a_gap(tmp_path: Path) -> None:
    """Over the link and from history, for every kind of delivery."""
    here, there = Broker(tmp_path, "province"), city(tmp_path)
    there.log = SegmentLog(tmp_path / "city" / "log", segment_bytes=5_000)
    path = "/v1/services/gps@city/events"
    with running(there):
        with running(here):
            here.link(there)
            until(lambda: here.knows("gps@city"), "the service to be known")
            durable = here.subscribe("gps@city", "speed < 50")
            until(lambda: there.entries(here, "gps@city") == 1, "it to be asked for")
            there.append(1)
            assert here.consume(durable, 1) == ids(0)
            page = here.call("GET", path, params={"from": "beginning", "max": 1})
        for _ in range(19):
            there.append(10)
        assert there.log.expire("gps", RetentionLimits(size_bytes=5_000))
        with running(here), here.client() as http:
            until(lambda: here.state(there) == "up", "the link")
            there.append(20)
            with http.stream("GET", f"/v1/subscriptions/{durable}/events", headers={"accept": SSE}) as stream:
                lines = stream.iter_lines()
                assert next(line for line in lines if line.startswith(("event: ", "data: {"))) == "event: gap"
                said = json.loads(next(lines).removeprefix("data: "))
                reason = "lost at the service's origin: older than what it keeps, or its stream was created again"
                assert (said["reason"], said["missed"][0]["partition"]) == (reason, "gps_taxi.0")
                assert next(line for line in lines if line.startswith("data: {"))
            later = here.call("GET", path, params={"cursor": page["cursor"]})
            assert later["gap"]["reason"] == reason


def test_link_that_would_close_a_loop_is_refused_with_the_path(tmp_path: Path) -> None:
    a, b, c = (Broker(tmp_path, name) for name in "abc")
    with running(a, b, c):
        a.link(b)
        b.link(c)
        until(lambda: ["b", "c"] in a.call("GET", "/v1/links/b")["paths"], "the path to be known")
        with a.client() as http:
            refused = http.post("/v1/links", json={"name": "c", "url": c.url, "secret": SECRET})
            assert refused.status_code == 409
            assert refused.json()["loop"] == ["a", "c", "b", "a"]
            assert refused.json()["detail"] == "a link from a to c would close a loop: a - c - b - a, as b says"
            assert refused.json()["said_by"] == "b"
            itself = http.post("/v1/links", json={"name": "a", "url": a.url})
            assert itself.json()["detail"] == "a link from a to a would close a loop: a - a"
        # Where one end does not know yet, the other says so.
        c.registry.add_link("a", None, SECRET)
        a.registry.add_link("c", c.url, SECRET)

        def is_refused() -> bool:
            return [each["state"] for each in a.call("GET", "/v1/links")["links"]] == ["up", "refused"]

        until(is_refused, "it to be refused")
        assert "a - c - b - a" in a.call("GET", "/v1/links/c")["problem"]
        done = run("link", "list", "--tree", "--url", a.url)
        assert done.splitlines() == ["a", "├── b", "│   └── c", "└── c (refused)"]


def test_broker_without_the_secret_is_refused(tmp_path: Path) -> None:
    here, there = Broker(tmp_path, "province"), city(tmp_path)
    with running(here, there):
        there.registry.add_link("province", None, SECRET)
        here.registry.add_link("city", there.url, SECRET + "?")

        def problem(of: str) -> str:
            found = here.call("GET", "/v1/links")["links"]
            return next((str(each["problem"]) for each in found if each["name"] == of), "")

        until(lambda: problem("city") not in ("", "None"), "it to be refused")
        assert problem("city") == (
            "city refuses the link: there is no link between 'province' and 'city' here, or the secrets differ"
        )
        here.registry.add_link("port", there.url, SECRET)
        until(lambda: problem("port") not in ("", "None"), "it to be refused")
        # A stranger does not learn what the broker is called.
        assert problem("port") == (
            "port refuses the link: there is no link between 'province' and 'port' here, or the secrets differ"
        )
        here.registry.add_link("moon", "http://127.0.0.1:9", SECRET)
        until(lambda: problem("moon") not in ("", "None"), "it to fail")
        assert problem("moon").startswith("can't reach http://127.0.0.1:9: ")
        # Whoever answers must know it, too.
        with pretender() as url:
            here.registry.add_link("wolf", url, SECRET)
            until(lambda: problem("wolf") not in ("", "None"), "it to be found out")
            assert problem("wolf") == "the server that answered does not know the secret of the link to 'wolf'"


@contextmanager
def pretender() -> Iterator[str]:
    """A server that accepts every handshake."""

    def welcome(socket: ServerConnection) -> None:
        for said in ({"type": "challenge", "nonce": "1" * 32}, {"type": "welcome", "proof": "yes"}):
            socket.recv()
            socket.send(b"c" + json.dumps(said).encode())

    chosen = [Subprotocol(SUBPROTOCOL)]
    with serve(welcome, "127.0.0.1", 0, subprotocols=chosen) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        server.shutdown()
        thread.join()


def test_link_sends_only_attributes_that_the_neighbour_may_see(tmp_path: Path) -> None:
    text = CITY.replace("gps: {", "gps: {access: {fields: {vid: [police]}}, ").replace(
        "fast: {", "secret: {from: gps, access: {to: [police]}}\n  fast: {"
    )
    here, police, there = Broker(tmp_path, "province"), Broker(tmp_path, "police"), Broker(tmp_path, "city", text)
    behind = Broker(tmp_path, "station")
    with running(here, police, there, behind):
        here.link(there)
        police.link(there)
        behind.link(police)
        until(lambda: here.knows("fast@city") and police.knows("secret@city"), "services to be known")
        assert not here.knows("secret@city")
        (shown,) = [each for each in here.call("GET", "/v1/services")["services"] if each["name"] == "gps@city"]
        assert (shown["origin"], list(shown["schema"])) == ("city", ["speed", "time"])
        with here.client() as http:
            refused = http.get("/v1/services/gps@city/events", params={"filter": "vid = 'B1'"})
            assert refused.status_code == 400
            assert "vid" in refused.json()["detail"]
            missing = http.get("/v1/services/secret@city/events")
            assert missing.status_code == 404
        mine, theirs = here.subscribe("gps@city"), police.subscribe("gps@city")
        until(lambda: there.entries(here, "gps@city") == there.entries(police, "gps@city") == 1, "both to be asked for")
        there.append(3)
        assert [here.consume(mine, 3), police.consume(theirs, 3)] == [ids(0, 1, 2)] * 2
        held = [(tmp_path / name / "log" / "gps@city").rglob("*.log") for name in ("province", "police")]
        assert [any(b'"vid"' in each.read_bytes() for each in files) for files in held] == [False, True]
        # What is for some is not passed on by those.
        until(lambda: behind.knows("fast@city"), "what is for all to be known further on")
        assert not behind.knows("gps@city")
        assert not behind.knows("secret@city")
        # A change of who may see what holds at once for what comes next.
        there.registry.apply(loads(text.replace("fields: {vid: [police]}", "to: [police]")))
        until(lambda: not here.knows("gps@city"), "it to be known no more")


def test_discovery_finds_services_of_neighbours_with_their_origin(tmp_path: Path) -> None:
    here, there = Broker(tmp_path, "province"), city(tmp_path)
    with running(here, there):
        here.link(there)
        until(lambda: here.knows("fast@city"), "the services to be known")
        found = here.call("POST", "/v1/discover", json={"attributes": {"speed": "float64"}})
        assert {each["name"]: each["origin"] for each in found["results"]} == {"gps@city": "city", "fast@city": "city"}
        found = there.call("POST", "/v1/discover", json={"attributes": ["speed"]})
        assert {each["name"]: each["origin"] for each in found["results"]} == {"gps": None, "fast": None}
        assert here.call("GET", "/v1/services/gps@city/status")["state"] == "of city"
        assert invoked("services", "--url", here.url).split()[-12:-6] == ["fast@city", "of", "city", "0", "0", "0"]
        shown = invoked("top", "--once", "--url", here.url)
        assert "0 of 0 services run" in shown
        assert "of city" in shown
        assert there.call("GET", "/v1/services/gps")["origin"] is None
        here.call("DELETE", "/v1/links/city")
        assert not here.knows("gps@city")
        until(lambda: there.state(here) == "down", "the other end to see it")
        assert there.call("GET", "/v1/links/province")["problem"] == "the link was removed"


def test_returning_ad_hoc_subscriber_gets_missed_events(tmp_path: Path) -> None:
    here, there = Broker(tmp_path, "province"), city(tmp_path)
    with running(here, there):
        here.link(there)
        until(lambda: here.knows("gps@city"), "the service to be known")
        path = "/v1/services/gps@city/events"
        page = here.call("GET", path, params={"filter": "speed > 90"})
        until(lambda: there.entries(here, "gps@city") == 1, "it to be asked for")
        there.append(100)
        page = here.call(
            "GET", path, params={"filter": "speed > 90", "cursor": page["cursor"], "wait": "60s", "max": 2}
        )
        assert [each["id"] for each in page["events"]] == ids(91, 92)
        here.stop()
    with running(there):
        there.append(100)
        with running(here):
            until(lambda: here.state(there) == "up", "the link")
            there.append(100)
            found: list[str] = []

            def more() -> bool:
                nonlocal page
                said = {"filter": "speed > 90", "cursor": page["cursor"], "wait": "2s"}
                page = here.call("GET", path, params=said)
                found.extend(each["id"] for each in page["events"])
                return len(found) >= 25

            until(more, "all that came meanwhile")
            assert found == ids(*(n for n in range(93, 300) if n % 100 > 90))


def test_ad_hoc_subscriber_that_was_away_for_long_gets_missed_events(tmp_path: Path) -> None:
    """Its filter is no longer requested, so its events come from history; with and without other events meanwhile."""
    here, there = Broker(tmp_path, "province", linger_s=0.02), city(tmp_path)
    path = "/v1/services/gps@city/events"
    with running(here, there):
        here.link(there)
        until(lambda: here.knows("gps@city"), "the service to be known")
        page = here.call("GET", path, params={"filter": "speed > 90"})
        for others in (False, True):
            until(lambda: there.entries(here, "gps@city") == 0, "it to be asked for no more")
            if others:
                here.subscribe("gps@city", "speed = 50")
                until(lambda: there.entries(here, "gps@city") == 1, "another to be asked for")
            first = there.sent
            there.append(100)
            pages = here.poll(path, 9, filter="speed > 90", cursor=page["cursor"])
            assert ids_of(pages) == ids(*range(first + 91, first + 100))
            assert not any("gap" in each for each in pages)
            page = pages[-1]
            again = here.call("GET", path, params={"filter": "speed > 90", "cursor": page["cursor"]})
            assert again["events"] == []


def test_subscriber_added_while_a_link_is_down_gets_events_from_then_on(tmp_path: Path) -> None:
    """Also of a filter that its neighbour never heard of before this broker ended."""
    here, there = Broker(tmp_path, "province"), city(tmp_path)
    with running(there):
        with running(here):
            here.link(there)
            until(lambda: here.knows("gps@city"), "the service to be known")
            other = here.subscribe("gps@city", "speed = 5")
            until(lambda: there.entries(here, "gps@city") == 1, "it to be asked for")
        there.append(100)
    with running(here):
        mine = here.subscribe("gps@city", "speed > 97")
        there.append(100)
    with running(there), running(here):
        until(lambda: here.state(there) == "up", "the link")
        there.append(100)
        found: list[str] = []
        while ids(299)[0] not in found:
            found += here.consume(mine, 1)
        assert found[-4:] == ids(198, 199, 298, 299)  # a moment in a log is known to a few events before it
        assert here.consume(other, 3) == ids(5, 105, 205)


def test_changed_filter_gets_all_matching_events_from_then_on(tmp_path: Path) -> None:
    """Also events that are appended before the origin knows the filter."""
    here, there = Broker(tmp_path, "province"), city(tmp_path)
    with running(here, there), here.client() as http:
        here.link(there)
        until(lambda: here.knows("gps@city"), "the service to be known")
        id_ = here.subscribe("gps@city", "speed > 97")
        with http.stream("GET", f"/v1/subscriptions/{id_}/events", headers={"accept": SSE}) as stream:
            found = (json.loads(line[6:])["id"] for line in stream.iter_lines() if line.startswith('data: {"spec'))
            there.append(100)
            assert [next(found) for _ in range(2)] == ids(98, 99)
            here.call("PATCH", f"/v1/subscriptions/{id_}", json={"filter": "speed > 90"})
            there.append(100)
            assert [next(found) for _ in range(9)] == ids(*range(191, 200))


def test_so_does_who_began_now_beside_another(tmp_path: Path) -> None:
    """Also while the link is down: who is live has a place, though it began with none."""
    here, there = Broker(tmp_path, "province"), city(tmp_path)
    with running(here), ExitStack() as up:
        up.enter_context(running(there))
        here.link(there)
        until(lambda: here.knows("gps@city"), "the service to be known")
        here.subscribe("gps@city", "speed > 97")
        until(lambda: there.entries(here, "gps@city") == 1, "it to be asked for")
        with opened(here) as client:
            assert client.ask("subscribe", id="a", service="gps@city", filter="speed > 97")["op"] == "subscribed"
            there.append(100)
            assert [each["event"]["id"] for each in client.take(2)] == ids(98, 99)
            up.close()
            until(lambda: here.state(there) != "up", "the link to be down")
            assert client.ask("change", id="a", filter="speed > 90")["op"] == "changed"
            there.append(100)
            up.enter_context(running(there))
            assert [each["event"]["id"] for each in client.take(9)] == ids(*range(191, 200))


def test_latest_of_a_remote_service_is_never_reported_as_complete(tmp_path: Path) -> None:
    here, there = Broker(tmp_path, "province"), city(tmp_path)
    with running(here, there):
        there.append(10)
        here.link(there)
        until(lambda: here.knows("gps@city"), "the service to be known")
        path = "/v1/services/gps@city/events"
        here.call("GET", path)
        there.append(10)

        def newest() -> list[str]:
            said = here.call("GET", path, params={"from": "beginning", "latest": "vid"})
            assert not said["latest"]["complete"]
            return [each["id"] for each in said["events"]]

        until(lambda: newest() == ids(*range(10, 20)), "what the mirror has")
        tried = here.call("GET", "/v1/services/gps@city/backtest", params={"from": "beginning"})
        assert (tried["events"], tried["complete"]) == (10, False)
        tried = there.call("GET", "/v1/services/gps/backtest", params={"from": "beginning"})
        assert (tried["events"], tried["complete"]) == (20, True)


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ([], "expected an object with name, url, secret, services, transit, public, not []"),
        ({"nome": "x"}, "unknown field 'nome'; did you mean 'name'?"),
        ({"name": 7}, "name: expected a text, not 7"),
        ({"name": "b", "services": "gps"}, "services: expected a list of names, not 'gps'"),
        ({"name": "b c"}, "expected a broker's name of letters, digits, _ and -, at most 40, not 'b c'"),
        ({"name": "b", "secret": "short"}, "expected a secret of at least 24 characters, not 5"),
        ({"name": "b", "url": "b:80"}, "expected the URL of a gateway, such as https://city.example:8080, not 'b:80'"),
    ],
)
def test_invalid_link_is_refused(linked: httpx.Client, said: Any, problem: str) -> None:
    answer = linked.post("/v1/links", json=said)
    assert answer.status_code in (400, 409)
    assert answer.json()["detail"] == problem


def test_links_are_named_once_and_missed_by_name(linked: httpx.Client) -> None:
    made = linked.post("/v1/links", json={"name": "fleet"}).json()
    assert len(made["secret"]) > 40
    assert "secret" not in linked.get("/v1/links/fleet").json()
    waits = "fleet has not dialled yet, and its URL is not known here"
    assert (made["state"], made["problem"]) == ("down", waits)
    again = linked.post("/v1/links", json={"name": "fleet"})
    assert again.json()["detail"] == "there is a link to 'fleet' already; remove it first"
    for call in (linked.get, linked.delete):
        missing = call("/v1/links/fleat")
        assert (missing.status_code, missing.json()["detail"]) == (
            404,
            "there is no link to 'fleat'; did you mean 'fleet'?",
        )


def test_only_an_admin_has_to_do_with_links(tmp_path: Path) -> None:
    broker = Broker(tmp_path, "province")
    broker.needs_keys = True
    _, secret = broker.registry.create_key("me", "provider")
    with running(broker), broker.client() as http:
        assert http.get("/v1/links").status_code == 401
        answer = http.get("/v1/links", headers={"authorization": f"Bearer {secret}"})
        assert answer.json()["detail"] == (
            "the key 'me' has the role provider, which may not operate this broker; expected the role admin"
        )


def test_gateway_without_a_name_has_no_links(http: httpx.Client, world: World) -> None:
    answer = http.get("/v1/links")
    assert answer.status_code == 409
    assert answer.json()["detail"] == "this gateway has no broker name, so it has no links: start it with --broker NAME"
    with connect(f"{world.url.replace('http', 'ws')}/v1/link") as socket, pytest.raises(ConnectionClosed) as closed:
        socket.recv(60)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.reason == f"expected the subprotocol {SUBPROTOCOL}"


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    broker = Broker(tmp_path_factory.mktemp("linked"), "province")
    with running(broker), broker.client() as client:
        yield client


def run(*args: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tidegate", *args], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def invoked(*args: str) -> str:
    """The same in this process."""
    done = CliRunner().invoke(app, args, env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    return done.stdout


def test_metrics_count_the_traffic_of_a_link(tmp_path: Path) -> None:
    here, there = Broker(tmp_path, "province"), city(tmp_path)
    with running(here, there):
        here.link(there)
        until(lambda: here.knows("gps@city"), "the service to be known")
        id_ = here.subscribe("gps@city", "speed > 90")
        until(lambda: there.entries(here, "gps@city") == 1, "it to be asked for")
        there.append(100)
        here.consume(id_, 9)
        with here.client() as one, there.client() as other:
            mine, theirs = one.get("/metrics").text, other.get("/metrics").text
        assert 'tidegate_link_events_total{link="province",outcome="forwarded"} 9.0' in theirs
        assert 'tidegate_link_events_total{link="province",outcome="stopped"} 91.0' in theirs
        assert 'tidegate_link_coarse{link="province",service="gps@city"} 0.0' in theirs
        filtering = 'tidegate_link_filtering_events_total{figure="asked",link="province",service="gps@city"} 100.0'
        assert filtering in theirs
        assert 'tidegate_link_turns_total{link="province",service="gps@city",to="coarse"} 0.0' in theirs
        assert 'tidegate_link_asking_seconds_total{link="province",service="gps@city"} ' in theirs
        (said,) = [each["filtering"] for each in there.call("GET", "/v1/links")["links"]]
        asking_s = said["gps@city"].pop("asking_s")
        assert 0 < asking_s < 100, "in seconds"
        counts = {
            "forwarded": 9,
            "stopped": 91,
            "asked": 100,
            "excess": 0,
            "dropped": 0,
            "coarsened": 0,
            "tightened": 0,
        }
        assert said == {"gps@city": {"coarse": False, **counts}}
        assert invoked("link", "list", "--url", there.url).splitlines()[0] == "city's links"
        shown = run("link", "list", "--url", there.url).split()
        assert shown[-10:] == ["province", "gps@city", "all", *map(str, counts.values())]
        assert 'tidegate_link_entries{direction="in",link="province"} 1.0' in theirs
        assert 'tidegate_link_entries{direction="out",link="city"} 1.0' in mine
        assert 'tidegate_link_events_total{link="city",outcome="received"} 9.0' in mine
        assert 'tidegate_link_up{link="city"} 1.0' in mine
        assert 'tidegate_link_sessions_total{link="city"} 1.0' in mine
        shown = run("link", "list", "--url", here.url).split()
        assert shown[-10:] == ["city", "up", "2", "1", "0", "0", "0", "9", "0", "*"]
        assert run("link", "remove", "city", "--url", here.url) == "no longer linked to city\n"
        assert invoked("link", "list", "--url", here.url) == "province has no links\n"
        made = run("link", "add", "fleet", "http://127.0.0.1:9", "--service", "gps", "--url", here.url).strip()
        assert here.registry.links()["fleet"].secret == made
        assert here.registry.links()["fleet"].services == ("gps",)
        assert here.registry.links()["fleet"].url == "http://127.0.0.1:9"
