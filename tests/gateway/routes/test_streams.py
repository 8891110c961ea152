"""Events that come in over HTTP."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.gateway.running import World
from tests.pipelines.running import until

EVENTS = "/v1/streams/gps_taxi/events"
NDJSON = {"content-type": "application/x-ndjson"}


def event(n: int, **more: Any) -> dict[str, Any]:
    return {"vid": f"B{n}", "speed": float(n), "time": "2026-01-01T00:00:00Z", **more}


def lines(*events: dict[str, Any]) -> bytes:
    return b"\n".join(json.dumps(each).encode() for each in events)


@pytest.fixture
def ready(world: World, http: httpx.Client) -> World:
    world.await_ready(http, "gps", "fast")
    return world


def test_acknowledged_events_are_in_the_log(ready: World, http: httpx.Client) -> None:
    answer = http.post(EVENTS, content=lines(event(1), event(2, _id="mine")), headers=NDJSON)
    assert (answer.status_code, answer.json()["accepted"]) == (200, 2)
    again = http.post(EVENTS, content=lines(event(2, _id="mine")), headers={"content-type": "application/ndjson"})
    assert (again.json()["accepted"], again.json()["duplicates"]) == (0, 1)
    read = ready.log.read("gps_taxi", ready.log.begin("gps_taxi"))
    assert [json.loads(each)["vid"] for each in read.records] == ["B1", "B2"]


def test_all_or_nothing_and_partial(ready: World, http: httpx.Client) -> None:
    body = lines(event(1), event(2, speed="fast"))
    refused = http.post(EVENTS, content=body, headers=NDJSON)
    assert refused.status_code == 422
    assert "line 2: speed: expected a number (float64), not 'fast'" in refused.json()["detail"]
    assert refused.json()["errors"] == [
        {"index": 1, "pointer": "speed", "detail": "expected a number (float64), not 'fast'", "line": 2}
    ]
    assert ready.log.read("gps_taxi", ready.log.begin("gps_taxi")).records == ()
    for mode in ("atomic", "all-or-nothing", "all_or_nothing"):
        assert http.post(EVENTS, params={"mode": mode}, content=body, headers=NDJSON).json() == refused.json()
    unknown = http.post(EVENTS, params={"moed": "partial"}, content=body, headers=NDJSON)
    assert (unknown.status_code, unknown.json()["parameter"]) == (400, "moed")
    assert unknown.json()["detail"] == "unknown parameter 'moed'; expected mode; did you mean 'mode'?"
    partial = http.post(EVENTS, params={"mode": "partial"}, content=body, headers=NDJSON)
    assert (partial.status_code, partial.json()["accepted"], partial.json()["refused"]) == (200, 1, 1)


@pytest.mark.parametrize(
    ("path", "headers", "body", "status", "detail"),
    [
        ("gps_tax", {}, b"{}", 404, "no stream 'gps_tax'; did you mean 'gps_taxi'?"),
        ("gps_taxi", {"content-type": "text/csv"}, b"a,b", 415, "text/csv"),
        ("gps_taxi", NDJSON, b"{", 422, "line 1"),
        (
            "gps_taxi",
            {**NDJSON, "content-encoding": "gzip"},
            b"{}",
            415,
            "content encoding 'gzip'; expected a body that is not compressed",
        ),
    ],
)
def test_invalid_events_are_reported(
    ready: World, http: httpx.Client, path: str, headers: dict[str, str], body: bytes, status: int, detail: str
) -> None:
    answer = http.post(f"/v1/streams/{path}/events", content=body, headers=headers)
    assert answer.status_code == status, answer.text
    assert detail in answer.json()["detail"]


@pytest.mark.parametrize(
    ("path", "headers", "body"),
    [
        ("gps_taxi", NDJSON, lines(event(1), event(2))),
        ("gps_taxi", NDJSON, lines(event(1), event(2, speed="fast"))),
        ("gps_taxi", {"ce-id": "7", "ce-source": "/a", "ce-type": "b", "ce-specversion": "1.0"}, lines(event(1))),
        ("gps_taxi", {}, b""),
        ("gps_taxi", {"content-type": "text/csv"}, b"a,b"),
        ("nowhere", NDJSON, lines(event(1))),
        ("gps%20taxi", NDJSON, lines(event(1))),
        ("", NDJSON, lines(event(1))),
        ("a/b", NDJSON, lines(event(1))),
    ],
)
def test_fast_path_and_route_give_the_same_answer(
    ready: World, http: httpx.Client, path: str, headers: dict[str, str], body: bytes
) -> None:
    def said(answer: httpx.Response) -> Any:
        found = answer.json()
        found.pop("cursor", None)
        kinds = {name: value for name, value in answer.headers.items() if name not in ("date", "content-length")}
        return answer.status_code, kinds, found

    url = f"/v1/streams/{path}/events"
    sent = {**({"content-type": "application/json"} if "ce-id" in headers else {}), **headers}
    straight = http.post(url, content=body, headers=sent)
    if "ce-id" in sent:
        sent["ce-id"] = "8"  # the first is known by now
    assert said(straight) == said(http.post(url, params={"mode": "all"}, content=body, headers=sent))


def test_body_beyond_the_limit_is_refused(ready: World, http: httpx.Client) -> None:
    answer = http.post(EVENTS, content=b" " * (17 * 1024 * 1024), headers=NDJSON)
    assert (answer.status_code, answer.json()["type"]) == (413, "urn:tidegate:problem:too-large")


def test_events_are_accepted_before_any_service_has_run(http: httpx.Client) -> None:
    answer = http.post(EVENTS, json=event(1))
    assert (answer.status_code, answer.json()["accepted"]) == (200, 1)


def test_stream_with_another_source_accepts_no_events(ready: World, http: httpx.Client) -> None:
    ready.registry.apply(_loads("streams: {seen: {schema: {n: int64}, source: {demo: {kind: anpr}}}}"))
    until(lambda: "seen" in http.get("/v1/streams").text, "the gateway to know the stream")
    answer = http.post("/v1/streams/seen/events", json={"n": 1})
    assert answer.status_code == 409


def _loads(text: str) -> Any:
    from tidegate.services import loads

    return loads(text)
