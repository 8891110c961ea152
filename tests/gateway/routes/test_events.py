"""Ad-hoc subscriptions over real HTTP: SSE and pages."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway.running import World
from tests.pipelines.running import until

SSE = {"accept": "text/event-stream"}


class Events:
    """Server-sent events as a browser reads them."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines
        self.last_id = ""

    def next(self) -> tuple[str, Any]:
        """The next event's name and data; blocks without data only move the id."""
        name, data = "message", ""
        for line in self._lines:
            if line == "" and data:
                return name, json.loads(data)
            field, _, value = line.partition(": ")
            if field == "event":
                name = value
            elif field == "data":
                data += value
            elif field == "id":
                self.last_id = value
        raise EOFError

    def take(self, count: int) -> list[Any]:
        return [self.next()[1] for _ in range(count)]


@contextmanager
def listening(
    http: httpx.Client, params: Mapping[str, str], headers: Mapping[str, str] | None = None
) -> Iterator[Events]:
    path = "/v1/services/gps/events"
    with http.stream("GET", path, params=dict(params), headers={**SSE, **(headers or {})}) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        yield Events(answer.iter_lines())


def test_matching_events_come_as_cloudevents(world: World, http: httpx.Client) -> None:
    with listening(http, {"filter": "speed > %0", "param": "97", "from": "beginning"}) as events:
        world.append(100)
        assert events.take(2) == [
            {
                "specversion": "1.0",
                "id": f"gps_taxi:0:{n}",
                "source": "/v1/services/gps",
                "type": "tidegate.event",
                "time": "2026-01-01T00:00:00.000000Z",
                "datacontenttype": "application/json",
                "data": {"vid": f"B{n % 10}", "speed": float(n), "time": "2026-01-01T00:00:00.000000Z"},
            }
            for n in (98, 99)
        ]


def test_selected_attributes_in_plain_format(world: World, http: httpx.Client) -> None:
    params = {"select": "vid", "format": "plain", "from": "beginning"}
    with listening(http, params) as events:
        world.append(1)
        assert events.take(1) == [{"_id": "gps_taxi:0:0", "_time": "2026-01-01T00:00:00.000000Z", "vid": "B0"}]


@pytest.mark.parametrize("how", ["header", "query", "cursor"])
def test_reconnect_continues_after_the_last_event_id(world: World, http: httpx.Client, how: str) -> None:
    world.append(10)
    with listening(http, {"from": "beginning"}) as events:
        first = events.take(4)
        last = events.last_id
    world.append(5)
    headers = {"last-event-id": last} if how == "header" else {}
    params = {"query": {"Last-Event-ID": last}, "cursor": {"cursor": last}, "header": {}}[how]
    with listening(http, params, headers) as events:
        rest = events.take(11)
    assert [each["id"] for each in first + rest] == [f"gps_taxi:0:{n}" for n in range(15)]


def test_pages_contain_every_event_once(world: World, http: httpx.Client) -> None:
    world.append(25)
    found, cursor = [], None
    while True:
        params = {"cursor": cursor} if cursor else {"from": "beginning"}
        answer = http.get("/v1/services/gps/events", params={"max": 10, **params}).json()
        cursor = answer["cursor"]
        if not answer["events"]:
            break
        found += answer["events"]
    assert [each["id"] for each in found] == [f"gps_taxi:0:{n}" for n in range(25)]


def test_page_waits_for_the_first_event(world: World, http: httpx.Client) -> None:
    cursor = http.get("/v1/services/gps/events").json()["cursor"]
    threading.Timer(0.1, lambda: world.append(3)).start()
    answer = http.get("/v1/services/gps/events", params={"cursor": cursor, "wait": "20s"}).json()
    more = http.get("/v1/services/gps/events", params={"cursor": answer["cursor"]}).json()
    assert [each["id"] for each in answer["events"] + more["events"]] == [f"gps_taxi:0:{n}" for n in range(3)]
    assert answer["events"]


def test_page_is_empty_after_the_wait(http: httpx.Client) -> None:
    answer = http.get("/v1/services/gps/events", params={"wait": "50ms"}).json()
    assert answer["events"] == []
    assert answer["cursor"]


def test_printed_curl_command_works(world: World) -> None:
    world.append(3)
    url = f"{world.url}/v1/services/gps/events?from=beginning&filter=speed%20%3E%3D%201"
    command = ["curl", "-sN", "-H", "Accept: text/event-stream", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        lines = [next(process.stdout) for _ in range(8)]
        process.terminate()
    found = [json.loads(line[6:]) for line in lines if line.startswith(b"data: ")]
    assert [each["data"]["speed"] for each in found] == [1.0, 2.0]


def test_idle_notice_is_sent(http: httpx.Client) -> None:
    with listening(http, {"idle": "20ms"}) as events:
        assert events.next() == ("idle", {"seconds": 0.02})


@pytest.mark.parametrize(
    ("params", "status", "detail"),
    [
        ({"filter": "sped > 3"}, 400, "unknown field 'sped'; did you mean 'speed'?"),
        ({"filter": "speed >"}, 400, "expected a value"),
        ({"select": "vdi"}, 400, "select: expected attributes of the service: vid, speed, time, not 'vdi'"),
        ({"format": "xml"}, 400, "format: expected cloudevents or plain, not 'xml'"),
        ({"cursor": "zzz"}, 400, "'zzz' is no cursor"),
        ({"from": "soon"}, 400, "from: expected now, beginning, a moment"),
        ({"idle": "0"}, 400, "idle: expected a length of time from 0.01s to 86400s"),
        ({"from": "2999-01-01T00:00:00Z"}, 400, "from: expected a moment that has been"),
        ({"from": "now", "cursor": "x"}, 400, "expected cursor or from, not both"),
        ({"wait": "2h"}, 400, "wait: expected a length of time from 0 to 60s"),
        ({"max": "0"}, 422, "query/max"),
        ({"param": "3"}, 400, "param: expected no parameter"),
        ({"filtr": "speed > 3"}, 400, "latest, key; did you mean 'filter'?"),
        (
            {"heart": "1s"},
            400,
            "from, to, select, format, wait, max, idle, every, latest, key",
        ),
    ],
)
def test_invalid_parameters_are_refused(http: httpx.Client, params: dict[str, str], status: int, detail: str) -> None:
    answer = http.get("/v1/services/gps/events", params=params)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    said = answer.json()
    assert said["status"] == status
    assert detail in said["detail"]


def test_repeated_parameters(world: World, http: httpx.Client) -> None:
    answer = http.get("/v1/services/gps/events", params=[("filter", "speed > 1"), ("Filter", "speed > 2")])
    assert (answer.status_code, answer.json()["detail"]) == (400, "filter: expected once, not 2 times")
    world.append(3)
    asked = [("select", "vid"), ("select", "speed"), ("from", "beginning"), ("param", "0"), ("param", "1")]
    page = http.get("/v1/services/gps/events", params=[*asked, ("filter", "speed > %0 AND speed <= %1")]).json()
    assert [each["data"] for each in page["events"]] == [{"vid": "B1", "speed": 1.0}]


def test_problem_points_at_the_predicate(http: httpx.Client) -> None:
    said = http.get("/v1/services/gps/events", params={"filter": "vid = 'B1' AND sped > 3"}).json()
    assert said["errors"][0]["at"] == 15
    assert said["errors"][0]["text"] == "sped"


def test_another_service(http: httpx.Client) -> None:
    answer = http.get("/v1/services/gsp/events")
    assert (answer.status_code, answer.json()["detail"]) == (404, "no service 'gsp'; did you mean 'gps'?")


def test_stream_continues_at_the_next_gateway_after_shutdown(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.append(5)
    with world.running(), world.client() as http, listening(http, {"from": "beginning"}) as events:
        first = events.take(5)
        last = events.last_id
        stopping = threading.Thread(target=world.stop)
        stopping.start()
        with pytest.raises(EOFError):
            events.next()
        stopping.join()
    world.append(5)
    with world.running(), world.client() as http, listening(http, {}, {"last-event-id": last}) as events:
        rest = events.take(5)
    assert [each["id"] for each in first + rest] == [f"gps_taxi:0:{n}" for n in range(10)]


@pytest.mark.parametrize("durable", [False, True])
def test_waiting_page_is_answered_at_shutdown(tmp_path: Path, durable: bool) -> None:
    world, answers = World(tmp_path), []
    with world.running(), world.client() as http:
        path = "/v1/services/gps"
        if durable:
            path = f"/v1/subscriptions/{http.post(f'{path}/subscriptions', json={}).json()['id']}"
        asking = threading.Thread(target=lambda: answers.append(http.get(f"{path}/events", params={"wait": "60s"})))
        asking.start()
        until(lambda: "gps" in world.counts(), "it to wait")
        world.stop()
        asking.join()
    assert (answers[0].status_code, answers[0].json()["events"]) == (200, [])
    assert answers[0].json()["cursor"]


def test_conflation_sends_the_latest_event_per_key(world: World, http: httpx.Client) -> None:
    world.append(500)
    with listening(http, {"from": "beginning", "every": "200ms", "key": "vid"}) as events:
        found = events.take(10)
    assert sorted(each["data"]["vid"] for each in found) == [f"B{n}" for n in range(10)]
    assert {each["id"] for each in found} == {f"gps_taxi:0:{n}" for n in range(490, 500)}


def test_conflation_uses_the_services_key_by_default(world: World, http: httpx.Client) -> None:
    assert {each["name"]: each["key"] for each in http.get("/v1/services").json()["services"]} == {
        "gps": "vid",
        "fast": "vid",
    }
    world.append(500)
    newest = [f"gps_taxi:0:{n}" for n in range(490, 500)]
    with listening(http, {"from": "beginning", "every": "200ms"}) as events:
        assert [each["id"] for each in events.take(10)] == newest
    with listening(http, {"from": "beginning", "every": "50ms", "key": ""}) as events:
        assert [each["id"] for each in events.take(1)] == newest[-1:]
    with listening(http, {"latest": "true"}) as events:
        assert [each["id"] for each in events.take(10)] == newest


@pytest.mark.parametrize("most", [1, 3, 7, 10, 100])
def test_conflated_pages_keep_the_last_event_per_key(world: World, http: httpx.Client, most: int) -> None:
    world.append(500)
    asked: dict[str, Any] = {"from": "beginning", "every": "1s", "max": most}
    found: list[str] = []
    while page := http.get("/v1/services/gps/events", params=asked).json()["events"]:
        assert len({each["data"]["vid"] for each in page}) == len(page) <= most
        found += [each["id"] for each in page]
        asked = {**asked, "cursor": http.get("/v1/services/gps/events", params=asked).json()["cursor"]}
        asked.pop("from", None)
    assert found == sorted(found, key=lambda id_: int(id_.rpartition(":")[2]))
    assert len(set(found)) == len(found)
    assert found[-10:] == [f"gps_taxi:0:{n}" for n in range(490, 500)]
    assert len(found) == 10 or most < 10


def test_waiting_conflated_page_collects_for_the_interval(world: World, http: httpx.Client) -> None:
    world.append(500)
    begin = {"from": "beginning", "every": "100ms", "max": "50"}
    page = http.get("/v1/services/gps/events", params={**begin, "wait": "20s"}).json()
    assert [each["id"] for each in page["events"]] == [f"gps_taxi:0:{n}" for n in range(490, 500)]
    full = http.get("/v1/services/gps/events", params={**begin, "max": "10", "every": "1h", "wait": "20s"}).json()
    assert len(full["events"]) == 10


@pytest.mark.parametrize(
    "asked",
    [
        {"lastEventId": "{}", "filter": "speed > %0", "params": "97"},
        {"last-event-id": "{}", "filter": "speed > %0", "params": "[97]"},
        {"last_event_id": "{}", "Filter": "speed > %0", "param": "97"},
        {"since": "beginning", "filter": "speed > %0", "param": "97"},
        {"cursor": "beginning", "filter": "speed > %0", "param": "97"},
    ],
)
def test_alternative_parameter_names_are_accepted(world: World, http: httpx.Client, asked: dict[str, str]) -> None:
    begin = http.get("/v1/services/gps/events", params={"from": "beginning", "limit": "1"}).json()["cursor"]
    world.append(100)
    with listening(http, {name: value.replace("{}", begin) for name, value in asked.items()}) as events:
        assert [each["id"] for each in events.take(2)] == ["gps_taxi:0:98", "gps_taxi:0:99"]


def test_latest_sends_the_newest_per_key_then_all_events(world: World, http: httpx.Client) -> None:
    world.append(500)
    with listening(http, {"latest": "vid", "filter": "speed >= 50"}) as events:
        assert [each["id"] for each in events.take(10)] == [f"gps_taxi:0:{n}" for n in range(490, 500)]
        assert events.next() == ("latest", {"events": 10, "complete": True})
        world.append(52)
        assert [each["id"] for each in events.take(2)] == ["gps_taxi:0:550", "gps_taxi:0:551"]
        last = events.last_id
    world.append(100)
    with listening(http, {"latest": "vid"}, {"last-event-id": last}) as events:
        assert [each["id"] for each in events.take(100)] == [f"gps_taxi:0:{n}" for n in range(552, 652)]


def test_latest_works_in_pages(world: World, http: httpx.Client) -> None:
    world.append(500)
    asked: dict[str, str] = {"latest": "vid", "max": "7"}
    first = http.get("/v1/services/gps/events", params=asked).json()
    assert "latest" not in first
    world.append(1)
    second = http.get("/v1/services/gps/events", params={**asked, "cursor": first["cursor"]}).json()
    assert second["latest"] == {"events": 4, "complete": True}
    rest = http.get("/v1/services/gps/events", params={"cursor": second["cursor"], "wait": "50ms"}).json()
    found = [each["id"] for page in (first, second, rest) for each in page["events"]]
    assert found == [f"gps_taxi:0:{n}" for n in range(490, 501)]


def test_conflation_sends_the_latest_event_of_each_interval(world: World, http: httpx.Client) -> None:
    said = http.get("/v1/services/gps/events", params={"latest": "vid"}).json()
    assert (said["events"], said["latest"]) == ([], {"events": 0, "complete": True})
    world.append(20)
    said = http.get("/v1/services/gps/events", params={"latest": "vid", "from": "1h"}).json()
    assert len(said["events"]) == 10
    assert http.get("/v1/services/gps/events", params={"latest": "vid", "from": "now"}).json()["events"] == []


@pytest.mark.parametrize(
    ("params", "headers", "detail"),
    [
        ({"latest": "vdi"}, {}, "latest: expected an attribute of the service: vid, speed, time, not 'vdi'"),
        ({"key": "vid"}, SSE, "key: expected every with it"),
        ({"key": "vdi", "every": "1s"}, SSE, "key: expected an attribute of the service: vid, speed, time, not 'vdi'"),
        ({"every": "often"}, SSE, "every: expected a length of time"),
    ],
)
def test_invalid_conflation_is_refused(
    http: httpx.Client, params: dict[str, str], headers: dict[str, str], detail: str
) -> None:
    answer = http.get("/v1/services/gps/events", params=params, headers=headers)
    assert answer.status_code == 400
    assert detail in answer.json()["detail"]
