"""Subscriptions on WebSockets, over real ones."""

from __future__ import annotations

import json
import logging
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from tests.gateway.running import World
from tests.polling import until
from tidegate.gateway.routes import sockets
from tidegate.gateway.server import MAX_MESSAGE_BYTES
from tidegate.gateway.transports import websocket as ours

PATIENCE_S = 120.0


class Client:
    """A socket that speaks JSON."""

    def __init__(self, raw: ClientConnection) -> None:
        self.raw = raw

    def say(self, op: str, **members: Any) -> None:
        self.raw.send(json.dumps({"op": op, **members}))

    def hear(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.raw.recv(PATIENCE_S))
        return found

    def ask(self, op: str, **members: Any) -> dict[str, Any]:
        self.say(op, **members)
        return self.hear()

    def take(self, count: int) -> list[dict[str, Any]]:
        found = [self.hear() for _ in range(count)]
        assert {each["op"] for each in found} <= {"event"}, found
        return found

    def before_pong(self) -> list[dict[str, Any]]:
        """Return the messages before the next pong."""
        self.say("ping")
        return list(iter(self.hear, {"op": "pong"}))

    def is_quiet(self) -> bool:
        """Return True if there are none."""
        return not self.before_pong()

    def closed(self) -> tuple[int, str]:
        """How the socket is closed."""
        try:
            while True:
                self.raw.recv(PATIENCE_S)
        except ConnectionClosed as closed:
            said = closed.rcvd
        return (said.code, said.reason) if said is not None else (1006, "")


@contextmanager
def opened(world: World, path: str = "/v1/events", **more: Any) -> Iterator[Client]:
    url = f"ws://127.0.0.1:{world.port}{path}"
    more.setdefault("subprotocols", [Subprotocol(ours.SUBPROTOCOL)])
    with connect(url, max_queue=more.pop("max_queue", 100_000), **more) as raw:
        yield Client(raw)


def test_refused_handshake_is_not_logged_as_an_error(world: World) -> None:
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("uvicorn.error")
    log.addHandler(handler)
    try:
        for path in ("/v1/none", "/v1/events?access_token=tg_none"):
            with pytest.raises(InvalidStatus), opened(world, path):
                pass
        with opened(world):  # what there is to say of those before has been said
            pass
    finally:
        log.removeHandler(handler)
    assert said == []


def test_websocket_to_an_unknown_path_gets_404(world: World) -> None:
    with pytest.raises(InvalidStatus) as told, opened(world, "/v1/evnts"):
        pass
    answer = told.value.response
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
    assert json.loads(answer.body or b"")["detail"] == "nothing is at '/v1/evnts'; all calls are in /openapi.json"


def sequence(heard: dict[str, Any]) -> int:
    """Which event of its stream it is, in either format."""
    event = heard["event"]
    return int(event.get("id", event.get("_id")).rpartition(":")[2])


def numbers(events: list[dict[str, Any]]) -> list[int]:
    return [sequence(each) for each in events]


def test_query_opens_the_first_subscription(world: World) -> None:
    path = "/v1/services/gps/events?filter=speed%20%3E%20%250&param=97&format=plain&select=vid"
    with opened(world, path) as client:
        assert client.raw.subprotocol == "tidegate.v1"
        began = client.hear()
        assert (began["op"], began["id"]) == ("subscribed", "0")
        world.append(100)
        first, second = client.take(2)
    assert first["event"] == {"_id": "gps_taxi:0:98", "_time": "2026-01-01T00:00:00.000000Z", "vid": "B8"}
    assert first["subscriptions"] == second["subscriptions"] == ["0"]
    with opened(world, f"/v1/services/gps/events?cursor={first['cursor']}&filter=speed>97") as client:
        assert client.hear() == {"op": "subscribed", "id": "0", "cursor": first["cursor"]}
        assert numbers(client.take(1)) == [99]


def test_confirmed_subscription_misses_no_event(world: World) -> None:
    for _ in range(20):
        with opened(world) as client:
            first = world.sent
            assert client.ask("subscribe", id="a", service="gps")["op"] == "subscribed"
            world.append(1)
            assert numbers(client.take(1)) == [first]


def test_confirmation_has_the_start_cursor(world: World) -> None:
    world.append(5)
    with opened(world) as client:
        cursor = client.ask("subscribe", id="a", service="gps")["cursor"]
    world.append(3)
    with opened(world) as client:
        client.ask("subscribe", id="b", service="gps", cursor=cursor)
        assert numbers(client.take(3)) == [5, 6, 7]


def test_subscriptions_with_equal_events_share_a_frame(world: World) -> None:
    with opened(world) as client:
        client.ask("subscribe", id="a", service="gps", filter="speed > 1")
        client.ask("subscribe", id="b", service="gps", filter="speed > %0", params=[2])
        client.ask("subscribe", id="c", service="gps", filter="speed = 3", format="plain", select=["speed"])
        client.ask("subscribe", id="d", service="fast")
        world.append(4)
        found = client.take(3)
        assert client.is_quiet()
    assert [sorted(each["subscriptions"]) for each in found] == [["a"], ["a", "b"], ["c"]]
    assert numbers(found[:2]) == [2, 3]
    assert found[2]["event"] == {"_id": "gps_taxi:0:3", "_time": "2026-01-01T00:00:00.000000Z", "speed": 3.0}
    assert found[1]["cursor"] == found[2]["cursor"]


def test_unsubscribe_drops_frames_that_are_rendered_already(world: World) -> None:
    with opened(world) as client:
        for n in range(10):
            client.ask("subscribe", id="a", service="gps", filter="speed >= 0")
            client.ask("subscribe", id="b", service="gps", filter="speed >= 0")
            world.append(50 + n)
            client.say("unsubscribe", id="a")
            while client.hear() != {"op": "unsubscribed", "id": "a"}:
                pass
            client.say("unsubscribe", id="b")
            while (heard := client.hear())["op"] == "event":
                assert heard["subscriptions"] == ["b"]
            assert heard == {"op": "unsubscribed", "id": "b"}
        assert client.is_quiet()


def test_changed_filter_applies_after_its_marker(world: World) -> None:
    with opened(world) as client:
        client.ask("subscribe", id="a", service="gps", filter="speed < %0", params=["2"])
        world.append(4)
        assert numbers(client.take(2)) == [0, 1]
        changed = client.ask("change", id="a", filter="speed > %0", params=["5"])
        assert (changed["op"], changed["id"], changed["filter"]) == ("changed", "a", "speed > 5")
        world.append(4)
        assert numbers(client.take(2)) == [6, 7]
        assert client.ask("change", id="a", params=[7])["filter"] == "speed > 7"
        world.append(2)
        assert numbers(client.take(2)) == [8, 9]
        assert client.ask("change", id="a", filter="")["filter"] == ""
        world.append(1)
        assert numbers(client.take(1)) == [10]


def test_every_event_is_matched_with_the_filter_of_its_side_of_the_marker(world: World) -> None:
    """The log grows all the while; the two filters part the events."""
    stop = threading.Event()

    def publish() -> None:
        while not stop.is_set():
            world.append(20)
            stop.wait(0.001)

    with opened(world) as client:
        client.ask("subscribe", id="a", service="gps", filter="vid = 'B0'")
        publisher = threading.Thread(target=publish)
        publisher.start()
        try:
            wanted, found = 0, []
            for n in range(1, 30):
                client.say("change", id="a", filter=f"vid = 'B{n % 10}'")
                while (heard := client.hear())["op"] == "event":
                    assert numbers([heard])[0] % 10 == wanted
                    found += numbers([heard])
                wanted = n % 10
        finally:
            stop.set()
            publisher.join()
    assert found == sorted(set(found))


def test_cursor_of_another_stream_reports_a_gap(world: World) -> None:
    world.append(2)
    with opened(world) as client:
        cursor = client.ask("subscribe", id="f", service="fast", **{"from": "beginning"})["cursor"]
        client.ask("subscribe", id="a", service="gps", cursor=cursor)
        heard = client.hear()
        assert (heard["op"], heard["id"]) == ("gap", "a")
        assert "the cursor is not valid in this stream" in heard["reason"]
        assert heard["cursor"]
        assert numbers(client.take(2)) == [0, 1]


def test_ack_is_confirmed(world: World) -> None:
    with opened(world) as client:
        cursor = client.ask("subscribe", id="a", service="gps")["cursor"]
        assert client.ask("ack", id="a", cursor=cursor) == {"op": "acked", "id": "a", "cursor": cursor}


@pytest.mark.parametrize("begin", ["now", "beginning"])
def test_events_stop_when_credit_is_used_up(world: World, begin: str) -> None:
    with opened(world) as client:
        client.say("credit", events=0)
        client.ask("subscribe", id="a", service="gps", filter="speed >= 0", **{"from": begin})
        client.ask("subscribe", id="b", service="gps", filter="vid = 'B3'", format="plain", **{"from": begin})
        world.append(100)
        assert client.is_quiet()
        found: list[dict[str, Any]] = []
        granted = 0
        for events in (1, 2, 30, 7, 50):
            client.say("credit", events=events)
            granted += events
            while len(found) < granted:  # an event for both costs one where they read together, else two
                found += client.take(1)
            found += client.before_pong()
            assert len({sequence(each) for each in found}) <= granted
        client.say("credit", events=1_000)
        while len(found) < 110:
            found += client.take(1)
        assert client.is_quiet()
    assert numbers([each for each in found if each["subscriptions"] == ["a"]]) == list(range(100))
    of_b = [each["event"]["_id"] for each in found if each["subscriptions"] == ["b"]]
    assert of_b == [f"gps_taxi:0:{n}" for n in range(3, 100, 10)]


def test_events_are_unlimited_without_credit(world: World) -> None:
    with opened(world) as client:
        client.ask("subscribe", id="a", service="gps")
        world.append(3_000)
        assert numbers(client.take(3_000)) == list(range(3_000))


def test_slow_reader_catches_up(world: World) -> None:
    with opened(world, max_queue=1) as client:
        client.ask("subscribe", id="a", service="gps")
        client.ask("subscribe", id="b", service="gps", filter="vid = 'B7'")
        for _ in range(60):
            world.append(1_000)
        until(lambda: world.counts()["gps"]["behind"] == 2, "it, which does not read, to fall behind")
        found: dict[str, list[int]] = {"a": [], "b": []}
        while len(found["a"]) < 60_000 or len(found["b"]) < 6_000:
            heard = client.take(1)[0]
            for name in heard["subscriptions"]:
                found[name] += numbers([heard])
        assert client.is_quiet()
    assert found == {"a": list(range(60_000)), "b": list(range(7, 60_000, 10))}


@pytest.mark.parametrize("seed", range(4))
def test_subscriptions_get_every_event_once_in_order(world: World, seed: int) -> None:
    random = Random(seed)
    stop = threading.Event()

    def publish() -> None:
        while not stop.is_set():
            world.append(random.randint(1, 40))
            stop.wait(0.002)

    open_: dict[str, tuple[int, list[int]]] = {}
    done: list[tuple[int, list[int]]] = []
    waiting: set[str] = set()
    confirmed: set[str] = set()
    publisher = threading.Thread(target=publish)
    with opened(world) as client:

        def note(heard: dict[str, Any]) -> None:
            match heard["op"]:
                case "event":
                    for name in heard["subscriptions"]:
                        open_[name][1].extend(numbers([heard]))
                case "unsubscribed":
                    done.append(open_.pop(heard["id"]))
                    waiting.discard(heard["id"])
                case other:
                    assert other == "subscribed", heard
                    confirmed.add(heard["id"])

        publisher.start()
        try:
            client.say("credit", events=200)
            for step in range(150):
                if random.random() < 0.5 and len(open_) < 20:
                    digit = random.randrange(10)
                    open_[str(step)] = digit, []
                    client.say("subscribe", id=str(step), service="gps", filter=f"vid = 'B{digit}'")
                elif set(open_) - waiting and random.random() < 0.5:
                    name = random.choice(sorted(set(open_) - waiting))
                    waiting.add(name)
                    client.say("unsubscribe", id=name)
                client.say("credit", events=random.randrange(60))
                client.say("ping")
                time.sleep(random.choice([0, 0, 0.005]))
                while (heard := client.hear()) != {"op": "pong"}:
                    note(heard)
        finally:
            stop.set()
            publisher.join()
        while set(open_) - confirmed:
            note(client.hear())
        world.append(10)  # one for each
        client.say("credit", events=1_000_000)
        while any(not found or found[-1] + 10 < world.sent for _, found in open_.values()):
            note(client.hear())
    done += open_.values()
    assert any(found for _, found in done)
    for digit, found in done:
        assert found == list(range(found[0], found[-1] + 1, 10)) if found else True
        assert all(n % 10 == digit for n in found)


SUBSCRIBE = {"op": "subscribe", "id": "a", "service": "gps"}


@pytest.mark.parametrize(
    ("message", "status", "detail"),
    [
        ("{", 400, "expected a JSON object: "),
        ("[1]", 400, "expected a JSON object, not [1]"),
        (b"{}", 400, "expected a text message, not a binary one"),
        ({}, 400, "op: expected subscribe, unsubscribe, change, ack, credit, ping, not null"),
        ({"op": "subscirbe"}, 400, "not \"subscirbe\"; did you mean 'subscribe'?"),
        ({"op": "ping", "id": "a"}, 400, "id: expected no member but op in ping"),
        ({"op": "subscribe", "id": "a"}, 400, "subscribe: expected the member service"),
        ({**SUBSCRIBE, "id": ""}, 400, 'id: expected a string of 1 to 128 characters, not ""'),
        ({**SUBSCRIBE, "fliter": ""}, 400, "did you mean 'filter'?"),
        ({**SUBSCRIBE, "service": 7}, 400, "service: expected a string, not 7"),
        ({**SUBSCRIBE, "service": "gsp"}, 404, "no service 'gsp'; did you mean 'gps'?"),
        ({**SUBSCRIBE, "filter": "sped > 3"}, 400, "unknown field 'sped'; did you mean 'speed'?"),
        ({**SUBSCRIBE, "filter": "speed > %0", "params": "3"}, 400, "params: expected a list of strings and numbers"),
        ({**SUBSCRIBE, "params": [3]}, 400, "param: expected no parameter"),
        ({**SUBSCRIBE, "cursor": "zzz"}, 400, "'zzz' is no cursor"),
        ({**SUBSCRIBE, "cursor": "zzz", "from": "now"}, 400, "expected cursor or from, not both"),
        ({**SUBSCRIBE, "select": 7}, 400, "select: expected a list of strings, not 7"),
        ({**SUBSCRIBE, "select": ["vdi"]}, 400, "select: expected attributes of the service"),
        ({**SUBSCRIBE, "format": "xml"}, 400, "format: expected cloudevents or plain"),
        ({**SUBSCRIBE, "id": "open"}, 400, "id: expected a new one, 'open' is open"),
        ({"op": "unsubscribe", "id": "x"}, 404, "no subscription 'x' on this socket"),
        ({"op": "change", "id": "open"}, 400, "change: expected filter, params or both"),
        ({"op": "change", "id": "open", "params": ["1"]}, 400, "params: expected a filter with them"),
        ({"op": "change", "id": "open", "filter": "sped > 1"}, 400, "unknown field 'sped'"),
        ({"op": "ack", "id": "open", "cursor": "zzz"}, 400, "'zzz' is no cursor"),
        ({"op": "ack", "id": "open"}, 400, "ack: expected the member cursor"),
        ({"op": "credit", "events": -1}, 400, "events: expected a whole number from 0"),
        ({"op": "credit", "events": True}, 400, "events: expected a whole number from 0"),
    ],
)
def test_bad_message_is_answered_and_the_socket_stays_open(
    world: World, message: Any, status: int, detail: str
) -> None:
    with opened(world) as client:
        client.ask("subscribe", id="open", service="gps")
        client.raw.send(message if isinstance(message, str | bytes) else json.dumps(message))
        heard = client.hear()
        assert heard["op"] == "error"
        assert heard.get("id") == (message.get("id") if isinstance(message, dict) else None)
        assert heard["problem"]["status"] == status
        assert heard["problem"]["type"].startswith("urn:tidegate:problem:")
        assert detail in heard["problem"]["detail"]
        world.append(1)
        assert numbers(client.take(1)) == [0]


def test_problem_points_at_the_predicate(world: World) -> None:
    with opened(world) as client:
        heard = client.ask("subscribe", id="a", service="gps", filter="vid = 'B1' AND sped > 3")
    assert heard["problem"]["errors"][0]["at"] == 15


def test_subscriptions_beyond_the_limit_are_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "MAX_SUBSCRIPTIONS", 2)
    with opened(world) as client:
        assert [client.ask("subscribe", id=id_, service="gps")["op"] for id_ in "ab"] == ["subscribed"] * 2
        assert client.ask("subscribe", id="c", service="gps")["problem"]["status"] == 429


def test_removed_service_ends_its_subscriptions_with_an_error(world: World) -> None:
    with opened(world) as client:
        client.ask("subscribe", id="a", service="fast")
        client.ask("subscribe", id="b", service="gps")
        world.registry.remove("fast")
        heard = client.hear()
        assert (heard["op"], heard["id"], heard["problem"]["status"]) == ("error", "a", 410)
        assert client.ask("unsubscribe", id="a")["problem"]["status"] == 404
        world.append(1)
        assert numbers(client.take(1)) == [0]


def test_client_without_a_subprotocol_is_accepted(world: World) -> None:
    with opened(world, subprotocols=None) as client:
        assert client.raw.subprotocol is None
        assert client.is_quiet()


def test_client_with_only_unknown_subprotocols_is_refused(world: World) -> None:
    with opened(world, subprotocols=["graphql-ws"]) as client:
        assert client.closed() == (4400, "expected the subprotocol tidegate.v1")


def test_known_subprotocol_is_chosen_among_several(world: World) -> None:
    with opened(world, subprotocols=["graphql-ws", "tidegate.v1"]) as client:
        assert client.raw.subprotocol == "tidegate.v1"


@pytest.mark.parametrize(
    ("path", "code", "detail"),
    [
        ("/v1/services/gsp/events", 4404, "no service 'gsp'; did you mean 'gps'?"),
        ("/v1/services/gps/events?filter=sped>3", 4400, "unknown field 'sped'"),
        ("/v1/services/gps/events?from=soon", 4400, "from: expected now, beginning"),
        ("/v1/services/gps/events?filtr=speed", 4400, "unknown parameter 'filtr'; expected filter, param"),
        ("/v1/subscriptions/sub_1/events?filter=speed", 4400, "unknown parameter 'filter'; expected cursor"),
    ],
)
def test_failed_first_subscription_closes_with_the_reason(world: World, path: str, code: int, detail: str) -> None:
    with opened(world, path) as client:
        heard = client.hear()
        assert (heard["op"], heard["id"]) == ("error", "0")
        assert detail in heard["problem"]["detail"]
        assert client.closed()[0] == code


def test_sockets_beyond_the_limit_are_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "MAX_SOCKETS", 1)
    with opened(world) as one, opened(world) as other:
        assert other.closed() == (1013, "too many sockets")
        assert one.is_quiet()


def test_message_that_is_too_big_closes_the_socket(world: World) -> None:
    with opened(world) as client:
        client.ask("subscribe", id="a", service="gps")
        client.say("ping", pad="x" * MAX_MESSAGE_BYTES)
        assert client.closed()[0] == 1009


def test_shutdown_closes_with_going_away(world: World) -> None:
    with opened(world) as client, opened(world) as other:
        client.ask("subscribe", id="a", service="gps")
        world.stop()
        assert client.closed()[0] == other.closed()[0] == 1001


def test_closed_socket_leaves_no_subscriber(world: World) -> None:
    with opened(world) as client, opened(world) as without_credit:
        for n in range(50):
            client.ask("subscribe", id=str(n), service="gps", filter=f"speed > {n}")
        without_credit.say("credit", events=0)
        without_credit.ask("subscribe", id="a", service="gps")
        world.append(1)
        assert sum(world.counts()["gps"][state] for state in ("live", "behind")) == 51
    until(lambda: world.counts() == {}, "everybody to be forgotten")


def test_aborted_socket_leaves_no_subscriber(world: World) -> None:
    with opened(world, "/v1/services/gps/events") as client:
        client.hear()
        client.raw.socket.shutdown(socket.SHUT_RDWR)
        until(lambda: world.counts() == {}, "the subscriber to be forgotten")


NODE = """
const socket = new WebSocket(process.argv[1], ["tidegate.v1"]);
const found = [];
socket.onopen = () => socket.send(JSON.stringify(
  {op: "subscribe", id: "ä", service: "gps", filter: "speed > %0", params: [1], from: "beginning"}));
socket.onmessage = ({data}) => {
  const said = JSON.parse(data);
  if (said.op === "event") found.push([said.subscriptions[0], said.event.data.speed, said.event.data.vid.length]);
  if (found.length === 300) socket.close(1000);
};
socket.onclose = ({code}) => console.log(JSON.stringify({code, protocol: socket.protocol, found}));
"""


def test_node_client_reads_events(world: World) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node on the path")
    world.append(2)
    for n in range(2, 302):  # a length is written in one of three ways
        vid = b"B" * {300: 300, 301: 70_000}.get(n, 1)
        world.log.append("gps", "gps_taxi.0", [b'{"_id":"%d","_time":null,"vid":"%s","speed":%d.0}' % (n, vid, n)])
    command = [node, "--experimental-websocket", "-e", NODE, f"ws://127.0.0.1:{world.port}/v1/events"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if "bad option" in done.stderr:
        pytest.skip("this node has no WebSocket")
    said = json.loads(done.stdout)
    assert (said["code"], said["protocol"]) == (1000, "tidegate.v1")
    assert [each[1] for each in said["found"]] == list(range(2, 302))
    assert said["found"][-2:] == [["ä", 300.0, 300], ["ä", 301.0, 70_000]]


def test_latest_events_come_first_and_use_credit(world: World) -> None:
    world.append(500)
    with opened(world) as client:
        client.say("credit", events=3)
        assert client.ask("subscribe", id="a", service="gps", latest=True)["op"] == "subscribed"
        assert numbers(client.take(3)) == [490, 491, 492]
        assert client.is_quiet()
        world.append(2)
        client.say("credit", events=100)
        assert numbers(client.take(7)) == list(range(493, 500))
        told = client.hear()
        assert (told["op"], told["id"], told["events"], told["complete"]) == ("latest", "a", 10, True)
        assert numbers(client.take(2)) == [500, 501]


def test_one_of_several_subscriptions_is_conflated(world: World) -> None:
    with opened(world) as client:
        client.ask("subscribe", id="all", service="gps")
        client.ask("subscribe", id="some", service="gps", every="100ms", select="vid", **{"from": "beginning"})
        world.append(50)
        found = client.take(60)
    of = {name: numbers([each for each in found if each["subscriptions"] == [name]]) for name in ("all", "some")}
    assert of == {"all": list(range(50)), "some": list(range(40, 50))}


def test_conflated_events_wait_for_credit_and_stay_current(world: World) -> None:
    with opened(world) as client:
        client.say("credit", events=0)
        client.ask("subscribe", id="a", service="gps", every=0.01, key="vid")
        world.append(50)
        until(lambda: world.counts()["gps"]["events"] >= 50, "the events to be read")
        assert client.is_quiet()
        world.append(50)
        until(lambda: world.counts()["gps"]["events"] >= 100, "more to be read")
        assert client.is_quiet()
        client.say("credit", events=4)
        assert numbers(client.take(4)) == [90, 91, 92, 93]
        assert client.is_quiet()
        client.say("change", id="a", filter="speed < 3")
        assert client.is_quiet()
        world.append(100)
        until(lambda: world.counts()["gps"]["events"] >= 200, "more to be read")
        client.say("credit", events=100)
        assert numbers(client.take(6)) == list(range(94, 100))
        assert client.hear()["op"] == "changed"
        assert numbers(client.take(3)) == [100, 101, 102]
        client.ask("unsubscribe", id="a")
        assert client.is_quiet()


def test_idle_notice_for_one_of_several_subscriptions(world: World) -> None:
    with opened(world) as client:
        client.ask("subscribe", id="quiet", service="gps", idle="300ms", filter="speed > 1000")
        idle, idles = {"op": "idle", "id": "quiet", "seconds": 0.3}, 0

        def hear() -> Any:  # on a slow machine it is idle sooner than all else is done
            nonlocal idles
            while (said := client.hear()) == idle:
                idles += 1
            return said["op"]

        client.say("subscribe", id="all", service="gps")
        assert hear() == "subscribed"
        world.append(1)
        assert hear() == "event"
        if not idles:
            assert client.hear() == idle
        client.say("unsubscribe", id="quiet")
        assert hear() == "unsubscribed"
        client.ask("subscribe", id="busy", service="gps", idle=3600)
        world.append(1)
        assert sorted(client.hear()["subscriptions"]) == ["all", "busy"]


@pytest.mark.parametrize(
    ("members", "detail"),
    [
        ({"latest": "vdi"}, "latest: expected an attribute of the service: vid, speed, time, not 'vdi'"),
        ({"key": "vid"}, "key: expected every with it"),
        ({"every": True}, "every: expected a length of time such as 30s, not true"),
        ({"idle": "soon"}, "idle: expected a length of time from 0.01s to 86400s"),
        ({"subscription": "s", "filter": "speed > 1"}, "expected just cursor and latest beside subscription"),
    ],
)
def test_invalid_members_of_subscribe_are_refused(world: World, members: dict[str, Any], detail: str) -> None:
    with opened(world) as client:
        service = {} if "subscription" in members else {"service": "gps"}
        said = client.ask("subscribe", id="a", **service, **members)
        assert said["problem"]["status"] == 400
        assert detail in said["problem"]["detail"]
        assert client.is_quiet()


# Durable subscriptions -----------------------------------------------------------------------


def made(world: World, **fields: Any) -> str:
    with world.client() as http:
        answer = http.post("/v1/services/gps/subscriptions", json={"from": "beginning", **fields})
        assert answer.status_code == 201, answer.text
        id_: str = answer.json()["id"]
        return id_


def cursor_of(world: World, id_: str) -> str:
    with world.client() as http:
        found: str = http.get(f"/v1/subscriptions/{id_}").json()["cursor"]
        return found


def test_durable_subscription_continues_after_its_cursor(world: World) -> None:
    id_ = made(world, filter="speed >= %0", params=[5], format="plain")
    world.append(10)
    with opened(world) as client:
        client.say("credit", events=3)
        began = client.ask("subscribe", id="mine", subscription=id_)
        assert (began["op"], began["subscription"], began["filter"]) == ("subscribed", id_, "speed >= 5")
        found = client.take(3)
        assert [each["event"]["speed"] for each in found] == [5.0, 6.0, 7.0]
        assert client.is_quiet()
        acked = client.ask("ack", id="mine", cursor=found[1]["cursor"])
        assert (acked["op"], acked["id"], acked["cursor"]) == ("acked", "mine", found[1]["cursor"])
        assert cursor_of(world, id_) == found[1]["cursor"]
        assert client.ask("ack", id="mine", cursor=found[0]["cursor"])["cursor"] == found[1]["cursor"]
    with opened(world, f"/v1/subscriptions/{id_}/events") as client:
        assert client.hear()["cursor"] == found[1]["cursor"]
        again = client.take(3)
        assert [each["event"]["speed"] for each in again] == [7.0, 8.0, 9.0]
    with opened(world) as client:
        client.ask("subscribe", id="mine", subscription=id_, cursor=again[1]["cursor"])
        assert [each["event"]["speed"] for each in client.take(1)] == [9.0]
    assert cursor_of(world, id_) == again[1]["cursor"]


def test_many_acknowledgements_are_stored_together_and_delay_nothing(world: World) -> None:
    id_ = made(world)
    world.append(200)
    with opened(world) as client:
        client.ask("subscribe", id="a", subscription=id_)
        found = client.take(200)
        for each in found:
            client.say("ack", id="a", cursor=each["cursor"])
        client.say("ping")
        heard = [client.hear()]
        while heard[-1].get("cursor") != found[-1]["cursor"]:
            heard.append(client.hear())
        assert {each["op"] for each in heard} == {"acked", "pong"}
        assert len(heard) < 200
    assert cursor_of(world, id_) == found[-1]["cursor"]


def test_patch_applies_between_events_and_removal_ends(world: World) -> None:
    id_ = made(world, filter="speed < %0", params=[3])
    with opened(world) as client, world.client() as http:
        client.ask("subscribe", id="a", subscription=id_)
        client.ask("subscribe", id="other", service="gps", filter="speed = 99")
        world.append(10)
        assert numbers(client.take(3)) == [0, 1, 2]
        assert http.patch(f"/v1/subscriptions/{id_}", json={"params": [15]}).status_code == 200
        changed = client.hear()
        assert (changed["op"], changed["id"], changed["filter"]) == ("changed", "a", "speed < 15")
        world.append(10)
        assert numbers(client.take(5)) == [10, 11, 12, 13, 14]
        http.patch(f"/v1/subscriptions/{id_}", json={"select": ["vid"], "format": "plain"})
        world.append(81)
        found = {each["subscriptions"][0]: each["event"] for each in client.take(2)}
        assert set(found["a"]) == {"_id", "_time", "vid"}
        assert set(found["other"]) > {"specversion"}
        assert client.ask("change", id="a", params=[1])["problem"]["status"] == 409
        assert http.get(f"/v1/subscriptions/{id_}").json()["connected"] == 1
        assert http.delete(f"/v1/subscriptions/{id_}").status_code == 204
        said = client.hear()
        assert (said["op"], said["id"], said["problem"]["status"]) == ("error", "a", 410)
        assert said["problem"]["detail"] == "the subscription was removed"
        assert client.ask("ack", id="a", cursor=changed["cursor"])["problem"]["status"] == 404


def test_durable_subscription_applies_conflation_idle_and_latest(world: World) -> None:
    id_ = made(world, every="50ms", key="vid", idle="100ms")
    world.append(50)
    with opened(world) as client:
        client.ask("subscribe", id="a", subscription=id_)
        events: list[dict[str, Any]] = []
        while (said := client.hear())["op"] == "event" or len(events) < 10:  # on a slow machine it is idle before, too
            events += [said] if said["op"] == "event" else []
        assert numbers(events) == list(range(40, 50))
        assert said == {"op": "idle", "id": "a", "seconds": 0.1}
    id_ = made(world)
    with opened(world, f"/v1/subscriptions/{id_}/events?latest=vid") as client:
        client.hear()
        assert numbers(client.take(10)) == list(range(40, 50))
        assert client.hear()["op"] == "latest"


def test_deliveries_of_a_durable_subscription_are_counted(world: World) -> None:
    one, other = made(world), made(world, filter="vid = 'B1'")
    world.append(20)
    with opened(world) as client, world.client() as http:
        client.ask("subscribe", id="a", subscription=one)
        client.take(20)
        client.ask("subscribe", id="b", subscription=other)
        client.take(2)
        delivered = {id_: http.get(f"/v1/subscriptions/{id_}/status").json()["delivered"] for id_ in (one, other)}
    assert delivered == {one: 20, other: 2}


def test_changed_conflation_applies_to_connected_subscribers(world: World) -> None:
    id_ = made(world, every="1d", key="vid")
    with opened(world) as client, world.client() as http:
        client.ask("subscribe", id="a", subscription=id_)
        until(lambda: world.counts()["gps"]["live"] == 1, "it to be live")
        world.append(20)
        until(lambda: world.counts()["gps"]["matched"] == 20, "events to wait for a day")
        assert http.patch(f"/v1/subscriptions/{id_}", json={"every": None, "key": None}).status_code == 200
        assert numbers(client.take(10)) == list(range(10, 20))
        world.append(5)
        assert numbers(client.take(5)) == list(range(20, 25))
        assert http.patch(f"/v1/subscriptions/{id_}", json={"every": "50ms", "key": ""}).status_code == 200
        world.append(5)
        assert numbers(client.take(1)) == [29]


def test_unknown_and_webhook_subscriptions_cannot_be_consumed(world: World) -> None:
    webhook = made(world, deliver={"webhook": {"url": "http://127.0.0.1:9/", "handshake": False}})
    with opened(world) as client:
        said = client.ask("subscribe", id="a", subscription="sub_none")["problem"]
        assert (said["status"], "sub_none" in said["detail"]) == (404, True)
        said = client.ask("subscribe", id="a", subscription=webhook)["problem"]
        assert (said["status"], "is delivered by webhook" in said["detail"]) == (409, True)
        id_ = made(world)
        assert client.ask("subscribe", id="a", subscription=id_, cursor="zzz")["problem"]["status"] == 400
        client.ask("subscribe", id="a", subscription=id_)
        assert client.ask("ack", id="a", cursor="zzz")["problem"]["status"] == 400
    with opened(world, "/v1/subscriptions/sub_none/events") as client:
        assert client.closed()[0] == 4404
