"""Refused events: listed, corrected, replayed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from tests.gateway.running import World
from tidegate.cli.main import app

CITY = """
streams:
  taxi: {schema: {vid: string, speed: float64, time: timestamp}, event_time: time}
  bus: {schema: {vid: string, speed: float64, time: timestamp}, event_time: time}
  seen: {schema: {n: int64}, source: {demo: {kind: anpr}}}
services:
  gps: {from: [taxi, bus], pipeline: [merge], constraints: {speed: ">= 0"}}
  plain: {from: taxi, constraints: {speed: ">= 0"}}
  fast: {from: plain, pipeline: [{filter: speed > 60}], constraints: {speed: "< 300"}}
  secret: {from: taxi, mask: {vid: hmac}, constraints: {speed: ">= 0"}}
  flow:
    from: [taxi, bus]
    pipeline: [merge, {aggregate: {count: flow, by: [vid], window: {length: 60s}}}]
    constraints: {flow: "> 1"}
  plates: {from: seen, constraints: {n: "> 0"}}
"""
SERVICES = ("gps", "plain", "fast", "secret", "flow", "plates")
TIME = "2026-01-01T00:00:00.000000Z"


class City(World):
    """A world in which services have refused things, as their pipelines write it."""

    def raw(self, stream: str, *events: dict[str, Any] | bytes) -> list[int]:
        """Put records into a raw stream; give their positions."""
        places = []
        self.log.create(stream)
        for each in events:
            places.append(self.log.end(stream).offsets["0"])
            self.log.append(stream, "0", [each if isinstance(each, bytes) else json.dumps(each).encode()])
        return places

    def refuse(self, service: str, source: str | None, reason: str, **more: Any) -> None:
        partition = "0" if source is None else source.partition(":")[0].replace("/", ".")
        self.log.create(f"{service}.quarantine", [partition])
        said = {"_id": "x", **({} if source is None else {"_src": source}), "_time": TIME, "_reason": reason, **more}
        self.log.append(f"{service}.quarantine", partition, [json.dumps(said).encode()])

    def events(self, stream: str) -> list[dict[str, Any]]:
        return [json.loads(each) for each in self.log.read(stream, self.log.begin(stream)).records]


def event(speed: float, vid: str = "B1") -> dict[str, Any]:
    return {"vid": vid, "speed": speed, "time": TIME}


@pytest.fixture
def city(tmp_path: Path) -> Iterator[City]:
    world = City(tmp_path, CITY)
    with world.running():
        yield world


@pytest.fixture
def http(city: City) -> Iterator[httpx.Client]:
    with city.client() as client:
        city.await_ready(client, *SERVICES)
        yield client


@pytest.fixture(scope="module")
def anything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A gateway for many tests that need no refused events."""
    with City(tmp_path_factory.mktemp("city"), CITY).running() as world, world.client() as client:
        yield client


def refuse_one(city: City, service: str = "plain", speed: float = -1.0) -> int:
    (at,) = city.raw("taxi", event(speed))
    city.refuse(service, f"taxi/0:{at}", f"speed: {speed} violates speed >= 0", **event(speed))
    return at


def listed(http: httpx.Client, service: str = "plain", **params: Any) -> list[dict[str, Any]]:
    answer = http.get(f"/v1/services/{service}/quarantine", params=params)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["quarantined"]
    return found


def replay(http: httpx.Client, service: str, *entries: dict[str, Any], mode: str = "all") -> httpx.Response:
    url = f"/v1/services/{service}/quarantine/replay"
    return http.post(url, params={"mode": mode}, json={"events": list(entries)})


def test_quarantine_lists_events_with_reasons(city: City, http: httpx.Client) -> None:
    assert http.get("/v1/services/plain/quarantine").json() == {"quarantined": [], "cursor": None, "more": False}
    at = refuse_one(city)
    (found,) = listed(http)
    assert found == {
        "id": found["id"],
        "event_id": "x",
        "time": TIME,
        "reason": "speed: -1.0 violates speed >= 0",
        "rules": ["speed"],
        "source": f"taxi/0:{at}",
        "event": event(-1.0),
        "replayed": None,
    }
    assert found["id"].startswith("plain.quarantine:")


def test_pages_rules_and_times(city: City, http: httpx.Client) -> None:
    for n in range(5):
        refuse_one(city, speed=-1.0 - n)
    city.refuse("plain", "taxi/0:7", "expected a JSON object, not {nonsense", _raw="{nonsense")
    first = http.get("/v1/services/plain/quarantine", params={"max": 4}).json()
    second = http.get("/v1/services/plain/quarantine", params={"max": 4, "cursor": first["cursor"]}).json()
    assert (len(first["quarantined"]), first["more"], len(second["quarantined"]), second["more"]) == (4, True, 2, False)
    assert [each["raw"] for each in listed(http, rule="event")] == ["{nonsense"]
    assert len(listed(http, rule="speed")) == 5
    assert listed(http, rule="vid") == []
    assert len(listed(http, **{"from": "1h"})) == 6
    assert listed(http, to="1h") == []
    assert len(listed(http, rule="event", max=1)) == 1


@pytest.mark.parametrize(
    ("params", "detail"),
    [
        ({"from": "now"}, "from: expected beginning, a moment such as 2026-01-01T00:00:00Z, or 10m, not 'now'"),
        ({"to": "beginning"}, "to: expected a moment such as 2026-01-01T00:00:00Z, or 10m, not 'beginning'"),
        ({"cursor": "nonsense"}, "'nonsense' is no cursor"),
        ({"cursor": "WyJhIix7IjAiOjF9XQ", "from": "1h"}, "expected cursor or from, not both"),
    ],
)
def test_invalid_queries_are_refused(city: City, http: httpx.Client, params: dict[str, str], detail: str) -> None:
    refuse_one(city)
    answer = http.get("/v1/services/plain/quarantine", params=params)
    assert answer.status_code == 400
    assert detail in answer.json()["detail"]


def test_event_is_replayed_whole_patched_or_unchanged(city: City, http: httpx.Client) -> None:
    for n in range(3):
        refuse_one(city, "gps", -1.0 - n)
    a, b, c = (each["id"] for each in listed(http, "gps"))
    answer = replay(http, "gps", {"id": a, "event": event(7.0)}, {"id": b, "patch": {"speed": 8.0}}, {"id": c})
    assert answer.status_code == 200, answer.text
    assert answer.json() == {
        "replayed": 3,
        "already": 0,
        "refused": 0,
        "results": [{"id": each, "result": "replayed", "stream": "taxi"} for each in (a, b, c)],
    }
    assert city.events("taxi")[3:] == [
        {"_id": a, **event(7.0)}, {"_id": b, **event(8.0)}, {"_id": c, **event(-3.0)}
    ]  # fmt: skip
    assert [each["replayed"]["stream"] for each in listed(http, "gps")] == ["taxi"] * 3
    assert listed(http, "gps", replayed=False) == []
    assert len(listed(http, "gps", replayed=True)) == 3


def test_sent_twice_it_is_there_once(city: City, http: httpx.Client) -> None:
    refuse_one(city)
    (found,) = listed(http)
    again = [replay(http, "plain", {"id": found["id"], "patch": {"speed": n}}).json() for n in (1.0, 2.0)]
    assert [each["results"][0]["result"] for each in again] == ["replayed", "already"]
    twice = refuse_one(city), listed(http)[-1]["id"]
    both = replay(http, "plain", {"id": twice[1], "patch": {"speed": 3}}, {"id": twice[1], "patch": {"speed": 4}})
    assert [each["result"] for each in both.json()["results"]] == ["replayed", "already"]
    assert [each["speed"] for each in city.events("taxi") if "_id" in each] == [1.0, 3]


def test_replay_after_a_crash_before_the_mark_sends_nothing_twice(city: City, http: httpx.Client) -> None:
    """The marks, as a gateway leaves them that dies behind the append; and where its ids are long forgotten."""
    refuse_one(city)
    refuse_one(city)
    sent, unsent = (each["id"] for each in listed(http))
    city.log.create("plain.quarantine.replayed")
    for id_ in (sent, unsent):
        mark = {"_id": id_, "_time": TIME, "state": "begun", "stream": "taxi", "by": None}
        city.log.append("plain.quarantine.replayed", "0", [json.dumps(mark).encode()])
    city.raw("taxi", {"_id": sent, **event(1.0)})
    assert [each["replayed"] for each in listed(http)] == [None, None]
    entries = [{"id": each, "patch": {"speed": 2.0}} for each in (sent, unsent)]
    answer = replay(http, "plain", *entries)
    assert [each["result"] for each in answer.json()["results"]] == ["already", "replayed"]
    assert [each["speed"] for each in city.events("taxi") if "_id" in each] == [1.0, 2.0]


def test_all_or_nothing_and_partial(city: City, http: httpx.Client) -> None:
    refuse_one(city)
    refuse_one(city)
    a, b = (each["id"] for each in listed(http))
    entries: list[dict[str, Any]] = [{"id": a, "patch": {"speed": 1.0}}, {"id": b, "patch": {"speed": "fast"}}]
    answer = replay(http, "plain", *entries)
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:tidegate:problem:bad-replay")
    assert answer.json()["errors"] == [
        {"index": 1, "id": b, "pointer": "speed", "detail": "expected a number (float64), not 'fast'"}
    ]
    detail = answer.json()["detail"]
    assert "nothing was sent: 1 of 2 events can't be replayed: events[1]: speed: expected a number" in detail
    assert len(city.events("taxi")) == 2
    partial = replay(http, "plain", *entries, mode="partial").json()
    assert (partial["replayed"], partial["refused"]) == (1, 1)
    assert partial["results"][1]["errors"] == [
        {"pointer": "speed", "detail": "expected a number (float64), not 'fast'"}
    ]
    assert [each["replayed"] is None for each in listed(http)] == [False, True]


def test_event_that_would_be_refused_again_is_not_sent(city: City, http: httpx.Client) -> None:
    refuse_one(city)
    (found,) = listed(http)
    answer = replay(http, "plain", {"id": found["id"]})
    assert answer.status_code == 422
    assert "speed: -1.0 violates speed >= 0" in answer.json()["detail"]


def test_selection_is_replayed_after_the_constraint_changed(city: City, http: httpx.Client) -> None:
    for n in range(5):
        refuse_one(city, speed=-1.0 - n)
    city.refuse("plain", "taxi/0:0", "vid: expected string, not 7")
    changed = http.put(
        "/v1/services/plain", params={"force": True}, json={"from": "taxi", "constraints": {"speed": ">= -100"}}
    )
    assert changed.status_code == 200
    city.tell_running(*SERVICES)
    url = "/v1/services/plain/quarantine/replay"
    first = http.post(url, json={"all": {"rule": "speed", "max": 3}}).json()
    assert (first["replayed"], first["more"]) == (3, True)
    rest = http.post(url, json={"all": {"rule": "speed"}, "patch": {"vid": "B2"}}).json()
    assert (rest["replayed"], rest["already"], rest["more"]) == (2, 0, False)
    assert [each["vid"] for each in city.events("taxi") if "_id" in each] == ["B1"] * 3 + ["B2"] * 2
    assert http.post(url, json={"all": {"rule": "speed"}}).json()["results"] == []


def test_replay_of_a_derived_service_goes_to_the_raw_stream(city: City, http: httpx.Client) -> None:
    (at,) = city.raw("taxi", event(500.0))
    out = {"_id": "y", "_src": f"taxi/0:{at}", "_time": TIME, **event(500.0)}
    city.log.create("plain", ["taxi.0"])
    city.log.append("plain", "taxi.0", [json.dumps(out).encode()])
    city.refuse("fast", "plain/taxi.0:0", "speed: 500.0 violates speed < 300", **event(500.0))
    (found,) = listed(http, "fast")
    answer = replay(http, "fast", {"id": found["id"], "patch": {"speed": 50.0}})
    assert answer.json()["results"][0]["stream"] == "taxi"
    assert city.events("taxi")[-1] == {"_id": found["id"], **event(50.0)}


def test_replay_of_a_computed_event_needs_an_event_and_a_stream(city: City, http: httpx.Client) -> None:
    city.refuse("flow", None, "flow: 1 violates flow > 1", vid="B1", flow=1)
    (found,) = listed(http, "flow")
    id_ = found["id"]
    told = [
        ({"id": id_}, "stream: it was derived from several events, or its origin has expired: expected one of taxi"),
        ({"id": id_, "stream": "taxi"}, "event: expected the whole event: the original has expired from its stream"),
        ({"id": id_, "event": event(1.0), "stream": "taxis"}, "expected taxi, bus, not 'taxis'; did you mean 'taxi'?"),
    ]
    for entry, detail in told:
        answer = replay(http, "flow", entry)
        assert answer.status_code == 422
        assert detail in answer.json()["detail"]
    assert replay(http, "flow", {"id": id_, "event": event(1.0), "stream": "bus"}).json()["replayed"] == 1
    assert [each["_id"] for each in city.events("bus")] == [id_]


def test_replay_into_a_stream_with_another_source_is_refused(city: City, http: httpx.Client) -> None:
    city.refuse("plates", "seen/0:0", "n: 0 violates n > 0", n=0)
    (found,) = listed(http, "plates")
    answer = replay(http, "plates", {"id": found["id"], "event": {"n": 1}})
    assert answer.status_code == 422
    assert "'seen' is written by its source, demo, and by nothing else: correct the event there" in answer.text


def test_masked_values_are_not_shown(city: City, http: httpx.Client) -> None:
    at, other = city.raw("taxi", {"vid": 4711, "speed": 1.0, "time": TIME}, event(-1.0, "B4711"))
    city.refuse("secret", f"taxi/0:{at}", "vid: expected string, not a hidden value", _raw="4711")
    city.refuse("secret", f"taxi/0:{other}", "speed: -1.0 violates speed >= 0", **event(-1.0, "ab12"))
    shown = http.get("/v1/services/secret/quarantine").text
    assert "4711" not in shown, "the text of a record that can't be masked is shown"
    first, second = (each["id"] for each in listed(http, "secret"))
    answers = [replay(http, "secret", {"id": first}), replay(http, "secret", {"id": second})]
    assert [each.status_code for each in answers] == [422, 422]
    assert "vid: is invalid; its value is hidden by a mask" in answers[0].text
    assert not any("4711" in each.text or "-1.0" in each.text for each in answers)
    good = replay(http, "secret", {"id": first, "patch": {"vid": "B1"}}, {"id": second, "patch": {"speed": 1.0}})
    assert good.json()["replayed"] == 2
    assert city.events("taxi")[-1] == {"_id": second, **event(1.0, "B4711")}, "the rest of it was lost"


def test_raw_stream_has_a_quarantine(city: City, http: httpx.Client) -> None:
    body = b'{"vid": "B1", "speed": "fast", "time": "2026-01-01T00:00:00Z"}\n{nonsense'
    kind = {"content-type": "application/x-ndjson"}
    http.post("/v1/streams/taxi/events", params={"mode": "partial"}, content=body, headers=kind).raise_for_status()
    found = http.get("/v1/streams/taxi/quarantine").json()["quarantined"]
    assert [each["rules"] for each in found] == [["speed"], ["event"]]
    assert found[1]["raw"] == "{nonsense"
    url = "/v1/streams/taxi/quarantine/replay"
    entries = [{"id": found[0]["id"], "patch": {"speed": 1.0}}, {"id": found[1]["id"], "patch": {"speed": 2.0}}]
    refused = http.post(url, json={"events": entries})
    assert "events[1]: event: expected the whole event: the original is not a JSON object" in refused.json()["detail"]
    done = http.post(url, json={"events": [entries[0], {"id": found[1]["id"], "event": event(2.0)}]})
    assert done.json()["replayed"] == 2
    assert [each["speed"] for each in city.events("taxi")] == [1.0, 2.0]
    assert http.get("/v1/streams/taxo/quarantine").json()["detail"] == "no stream 'taxo'; did you mean 'taxi'?"


def test_ids_of_a_recreated_quarantine_are_not_found(city: City, http: httpx.Client) -> None:
    refuse_one(city)
    (old,) = listed(http)
    city.log.delete("plain.quarantine")
    refuse_one(city)
    answer = replay(http, "plain", {"id": old["id"], "event": event(1.0)})
    assert "it has expired, or never existed" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("said", "status", "detail"),
    [
        ("{", 400, "expected JSON"),
        ([], 422, "expected {'events': [...]} or {'all': {...}} with an optional patch, not []"),
        ({"events": [], "all": {}}, 422, "expected {'events': [...]} or {'all'"),
        ({"events": []}, 422, "events: expected a list of {'id': '...'}"),
        ({"events": [{"id": "x"}] * 1001}, 422, "events: expected at most 1,000, not 1,001"),
        ({"events": [{}]}, 422, "events[0].id: expected {'id': '...'} as the list shows it"),
        ({"events": [{"id": "x", "evnt": {}}]}, 422, "unknown field 'evnt'; did you mean 'event'?"),
        ({"events": [{"id": "x", "event": 1}]}, 422, "events[0].event: expected an object, not 1"),
        ({"events": [{"id": "x", "event": {}, "patch": {}}]}, 422, "expected an event or a patch, not both"),
        ({"events": [{"id": "x", "stream": 1}]}, 422, "events[0].stream: expected the name of a raw stream, not 1"),
        ({"events": [{"id": "x"}]}, 422, "which begins with plain.quarantine:, not 'x'"),
        ({"all": []}, 422, "all: expected an object, {} for everything, not []"),
        ({"all": {"rul": "x"}}, 422, "all.rul: unknown field 'rul'; did you mean 'rule'?"),
        ({"all": {"rule": 1}}, 422, "all.rule: expected a text, not 1"),
        ({"all": {"max": 0}}, 422, "all.max: expected a whole number from 1 to 1,000, not 0"),
        ({"all": {}, "patch": 1}, 422, "patch: expected an object, not 1"),
    ],
)
def test_invalid_replays_are_refused(anything: httpx.Client, said: Any, status: int, detail: str) -> None:
    content = said if isinstance(said, str) else json.dumps(said)
    answer = anything.post("/v1/services/plain/quarantine/replay", content=content)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert detail in answer.json()["detail"]


def test_quarantine_is_visible_to_providers_and_publishers_of_the_stream(tmp_path: Path) -> None:
    city = City(tmp_path, CITY)
    city.needs_keys = True
    city.tell_running(*SERVICES)
    refuse_one(city)
    with city.running(), city.client() as http:

        def as_(role: Any, services: list[str] | None) -> None:
            _, secret = city.registry.create_key(f"{role}-{services}", role, services)
            http.headers["authorization"] = f"Bearer {secret}"

        as_("consumer", None)
        assert http.get("/v1/services/plain/quarantine").status_code == 403
        as_("provider", ["plain"])
        (found,) = listed(http)
        answer = replay(http, "plain", {"id": found["id"], "event": event(1.0)})
        assert answer.status_code == 403
        assert "is for plain, not for 'taxi'" in answer.json()["detail"]
        as_("provider", ["plain", "taxi"])
        assert replay(http, "plain", {"id": found["id"], "event": event(1.0)}).status_code == 200
        assert listed(http)[0]["replayed"]["by"] == "provider-['plain', 'taxi']"


def run(city: City, *args: str) -> Result:
    return CliRunner().invoke(app, ["quarantine", *args, "--url", city.url], catch_exceptions=True)


def test_from_a_shell(city: City, http: httpx.Client) -> None:
    for n in range(3):
        refuse_one(city, speed=-1.0 - n)
    shown = run(city, "list", "plain", "--max", "2")
    assert shown.stdout.count("violates speed >= 0") == 2
    assert "there is more: --cursor " in shown.stderr
    first, *_ = json.loads(run(city, "list", "plain", "--json").stdout)["quarantined"]
    fix = ("--patch", '{"speed": 1.0}')
    assert run(city, "replay", "plain", first["id"], *fix).stdout == "1 sent again\n"
    assert run(city, "replay", "plain", first["id"], *fix).stdout == "0 sent again, 1 were already\n"
    bad = run(city, "replay", "plain", "--all", "--partial")
    assert bad.stdout == "0 sent again, 2 can't be\n"
    assert "speed: -2.0 violates speed >= 0" in bad.stderr
    assert run(city, "replay", "plain", "--all", "--rule", "speed", "--from", "1h", *fix).stdout == "2 sent again\n"
    assert [each["speed"] for each in city.events("taxi")[3:]] == [1.0] * 3


@pytest.mark.parametrize(
    ("args", "detail"),
    [
        ((), "expected ids, as `tidegate quarantine list` shows them, or --all"),
        (("x", "--all"), "expected ids, as `tidegate quarantine list` shows them, or --all"),
        (("x", "--rule", "speed"), "--rule and --from select events of --all: expected no ids with them"),
        (("--all", "--patch", "[]"), "--patch: expected a JSON object such as '{\"speed\": 0}', not '[]'"),
    ],
)
def test_command_refuses_invalid_options(args: tuple[str, ...], detail: str) -> None:
    ran = CliRunner().invoke(app, ["quarantine", "replay", "plain", *args])
    assert str(ran.exception) == detail
