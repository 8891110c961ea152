"""Filters by meaning at a real gateway: all ways of delivery, themes, explanations, who sees what; no semantics."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from tests.gateway.receiver import Receiver
from tests.gateway.routes.test_subscriptions import until
from tests.gateway.running import World
from tests.gateway.transports.test_websocket import opened
from tests.semantics.spaces import CITY, make, narrow
from tidegate import Client
from tidegate.services import loads

HOUSE = """
streams:
  readings:
    schema: {device: string, topic: string, level: float64, time: timestamp}
    event_time: time
    key: device
services:
  house: {from: readings}
  debates: {from: readings, themes: [politics]}
  private: {from: readings, access: {fields: {topic: [owner]}}}
"""
MOMENT = "2026-01-01T00:00:00.000000Z"
COMPUTERS = "device~ = 'computer'~"
ENERGY = "device~ = 'computer'~ AND topic~ = 'energy'~ AND level > 5"
EVENTS: list[dict[str, Any]] = [
    {"device": "laptop", "topic": "power", "level": 9.0},
    {"device": "garage", "topic": "power", "level": 9.0},
    {"device": "laptop", "topic": "power", "level": 1.0},
    {"device": "computer", "topic": "parking", "level": 9.0},
    {"device": "laptop", "topic": "power", "level": 9.0, "_themes": ["politics"]},
    {"device": "computer", "topic": "energy", "level": 9.0, "_themes": ["politics"]},
]


class House(World):
    """A gateway that knows a small space."""

    def __init__(self, folder: Path, *, knows: bool = True) -> None:
        super().__init__(folder, HOUSE)
        self.semantics = narrow(make(folder / "space", CITY)) if knows else None

    def put(self, *events: dict[str, Any], service: str = "house") -> None:
        for each in events:
            event = {
                "_id": f"readings:0:{self.sent}",
                "_src": f"readings/0:{self.sent}",
                "_time": MOMENT,
                "time": MOMENT,
            }
            self.log.append(service, "gps_taxi.0", [json.dumps({**event, **each}).encode()])
            self.sent += 1

    def page(self, filter_: str, service: str = "house", **more: Any) -> list[int]:
        with self.client() as http:
            query = {"filter": filter_, "from": "beginning", "format": "plain"}
            answer = http.get(f"/v1/services/{service}/events", params=query, **more)
        assert answer.status_code == 200, answer.text
        return numbers(answer.json()["events"])


def got(events: Iterable[Any], last: int) -> list[int]:
    """The numbers of events, up to one that comes in any case."""
    found = []
    for each in events:
        found.append(int(each.id.rpartition(":")[2]))
        if found[-1] >= last:
            break
    return found


def numbers(events: list[dict[str, Any]]) -> list[int]:
    return [int(str(each["_id"]).rpartition(":")[2]) for each in events]


AT_ONCE = """
import sys
from pathlib import Path
from tests.gateway.routes.test_semantics import House
from tidegate.matching import meaning_kernels

with House(Path(sys.argv[1])).running():
    print(len(meaning_kernels.match.signatures), len(meaning_kernels.similar_rows.signatures))
"""


def test_no_subscriber_waits_for_a_compiler(tmp_path: Path) -> None:
    """A lane's matcher needs these: the first who subscribes to anything must not wait until they are compiled."""
    ran = subprocess.run([sys.executable, "-c", AT_ONCE, str(tmp_path)], capture_output=True, text=True, check=True)
    assert ran.stdout == "1 1\n"


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    found = House(tmp_path)
    with found.running():
        yield found


@pytest.fixture
def http(house: House) -> Iterator[httpx.Client]:
    with house.client() as client:
        yield client


# Delivery -----------------------------------------------------------------------------------


def test_pages_sse_websockets_and_webhooks_bring_what_is_meant(house: House, http: httpx.Client) -> None:
    with (
        Receiver().running() as receiver,
        Client(house.url) as client,
        client.subscribe("house", ENERGY, since="beginning") as events,
        opened(house) as socket,
    ):
        webhook = {"filter": ENERGY, "deliver": {"webhook": {"url": receiver.url}}, "from": "beginning"}
        assert http.post("/v1/services/house/subscriptions", json=webhook).status_code == 201
        socket.ask("subscribe", id="a", service="house", filter=ENERGY, **{"from": "beginning"})
        house.put(*EVENTS, *EVENTS)
        assert house.page(ENERGY) == [0, 5, 6, 11]
        assert got(events, 11) == [0, 5, 6, 11]
        assert [each["event"]["id"].rpartition(":")[2] for each in socket.take(4)] == ["0", "5", "6", "11"]
        until(lambda: receiver.numbers == [0, 5, 6, 11], "four messages")


def test_live_and_catching_up_subscribers_get_the_same_events(house: House) -> None:
    """Filters of others must not take events away: `laptop` is nearer to a laptop than `computer` is."""
    with (
        Client(house.url) as client,
        client.subscribe("house", COMPUTERS) as live,
        client.subscribe("house", "device~ = 'laptop'~ OR level = 9") as rival,
    ):
        until(lambda: house.counts().get("house", {}).get("live") == 2, "two who are live")
        house.put(*EVENTS)
        assert got(live, 5) == [0, 2, 3, 4, 5]
        assert got(rival, 5) == [0, 1, 2, 3, 4, 5]
        with client.subscribe("house", COMPUTERS, since="beginning") as late:
            assert got(late, 5) == [0, 2, 3, 4, 5]
    assert house.page(COMPUTERS) == [0, 2, 3, 4, 5]


def test_threshold_limits_relatedness(house: House) -> None:
    house.put(*EVENTS)
    assert house.page(f"{COMPUTERS} THRESHOLD 1") == [3, 5]
    assert house.page(f"{COMPUTERS} THRESHOLD 0.001") == [0, 1, 2, 3, 4, 5]


def test_event_has_its_own_themes_and_those_of_its_service(house: House) -> None:
    """In politics power is influence: nothing there says that it is energy."""
    about_energy = "topic~ = 'energy'~"
    house.put(EVENTS[0], EVENTS[4])
    house.put(EVENTS[0], service="debates")
    assert house.page(about_energy) == [0]
    assert house.page(about_energy, "debates") == []
    assert house.page("topic~ = 'president'~ WITH THEME ('politics')", "debates") == [2]


def test_added_themes_of_a_service_apply_to_subscribers(house: House, http: httpx.Client) -> None:
    with Client(house.url) as client, client.subscribe("house", "topic~ = 'energy'~") as events:
        until(lambda: house.counts().get("house", {}).get("live") == 1, "one who is live")
        house.put(EVENTS[0])
        assert got(events, 0) == [0]
        house.registry.apply(
            loads(HOUSE.replace("house: {from: readings}", "house: {from: readings, themes: [politics]}"))
        )
        until(lambda: "themes" in http.get("/v1/services/house").json()["definition"], "the new definition")
        house.put(EVENTS[0], EVENTS[5])
        assert got(events, 2) == [2]


def test_durable_filter_changes_between_two_events(house: House, http: httpx.Client) -> None:
    made = http.post(
        "/v1/services/house/subscriptions", json={"filter": "device~ = %0~", "params": ["computer"]}
    ).json()
    address = f"/v1/subscriptions/{made['id']}"
    house.put(EVENTS[0], EVENTS[1])
    first = http.get(f"{address}/events").json()
    assert [each["id"] for each in first["events"]] == ["readings:0:0"]
    assert http.patch(address, json={"params": ["parking"]}).status_code == 200
    assert [each["id"] for each in http.get(f"{address}/events").json()["events"]] == ["readings:0:1"]
    refused = http.patch(address, json={"filter": "device~ = 'x'~ THRESHOLD 2"})
    assert refused.status_code == 400
    assert "THRESHOLD from 0 to 1" in refused.json()["detail"]


def test_hidden_attribute_never_matches_by_meaning(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.needs_keys = True
    keys = {name: house.registry.create_key(name, "consumer", None)[1] for name in ("owner", "guest")}
    headers = {name: {"authorization": f"Bearer {key}"} for name, key in keys.items()}
    filter_, expected = "topic~ = 'energy'~ OR level = 7", {"owner": [0, 1, 2], "guest": [2]}
    with house.running(), house.client() as http, ExitStack() as stack:
        clients = {name: stack.enter_context(Client(house.url, key=key)) for name, key in keys.items()}
        live = {name: stack.enter_context(each.subscribe("private", filter_)) for name, each in clients.items()}
        until(lambda: house.counts().get("private", {}).get("live") == 2, "two who are live")
        for topic, level in (("power", 1.0), ("energy", 1.0), ("parking", 7.0)):
            house.put({"device": "nothing", "topic": topic, "level": level}, service="private")
        assert {name: house.page(filter_, "private", headers=each) for name, each in headers.items()} == expected
        assert {name: got(each, 2) for name, each in live.items()} == expected
        for name, each in headers.items():
            asked = {"filter": filter_, "from": "beginning"}
            made = http.post("/v1/services/private/subscriptions", json=asked, headers=each).json()["id"]
            events = http.get(f"/v1/subscriptions/{made}/events", headers=each).json()["events"]
            assert [int(event["id"].rpartition(":")[2]) for event in events] == expected[name]
            said = http.get(f"/v1/subscriptions/{made}/explain?event=readings:0:0", headers=each).json()["event"]
            assert (said["matches"], "power" in json.dumps(said)) == ((name == "owner"),) * 2


# What is said of it ---------------------------------------------------------------------------


def test_explanation_shows_mapping_relatedness_and_concepts(house: House, http: httpx.Client) -> None:
    house.put(*EVENTS)
    made = http.post("/v1/services/house/subscriptions", json={"filter": ENERGY}).json()
    said = http.get(f"/v1/subscriptions/{made['id']}/explain", params={"event": "readings:0:0"}).json()["event"]
    assert (said["matches"], said["truth"]) == (True, "true")
    best = said["mappings"][0]
    assert best["degree"] == pytest.approx(said["degree"])
    assert {pair["predicate"]: pair["attribute"] for pair in best["pairs"]} == {
        "device~ = 'computer'~": "device",
        "topic~ = 'energy'~": "topic",
    }
    by_value = {pair["predicate"]: pair["by_value"] for pair in best["pairs"]}["device~ = 'computer'~"]
    assert (by_value["to"], by_value["relatedness"] > 0.9) == ("laptop", True)
    assert {each["concept"] for each in by_value["concepts"]} == {"Laptop", "Computer"}
    assert sum(each["share"] for each in by_value["concepts"]) == pytest.approx(1)
    truths = {each["predicate"]: each["truth"] for each in said["predicates"]}
    assert truths == {"device~ = 'computer'~": "true", "topic~ = 'energy'~": "true", "level > 5": "true"}


def test_term_is_described(http: httpx.Client) -> None:
    query: dict[str, Any] = {"term": "power", "to": ["energy", "garage"], "theme": "politics", "to_theme": "energy"}
    said = http.get("/v1/semantics", params=query).raise_for_status().json()
    assert (said["words"], said["basis"], said["documents"], said["threshold"]) == (["power"], 1, 6, 0.62)
    assert [each["concept"] for each in said["concepts"]] == ["Politics"]
    assert {each["to"]: each["relatedness"] > 0.5 for each in said["related"]} == {"energy": False, "garage": False}
    everywhere = http.get("/v1/semantics", params={"term": "power", "to": "energy"}).json()
    assert everywhere["related"][0]["relatedness"] > 0.9
    assert {"Power station", "Laptop"} <= {each["concept"] for each in everywhere["related"][0]["concepts"]}
    assert everywhere["nearest"]
    assert http.get("/v1/semantics").status_code == 422


def test_services_are_found_by_names_that_mean_the_same(house: House, http: httpx.Client) -> None:
    house.registry.apply(
        loads("""
streams:
  lots: {schema: {garage: string, time: timestamp}, event_time: time}
services:
  lots_free: {from: lots}
""")
    )
    found = until(
        lambda: http.post("/v1/discover", json={"attributes": ["parking"], "names": "meaning"}).json()["results"],
        "the new service",
    )
    assert [each["name"] for each in found] == ["lots_free"]
    assert http.post("/v1/discover", json={"attributes": ["parking"]}).json()["results"] == []
    refused = http.post("/v1/discover", json={"attributes": ["parking"], "names": "meening"}).json()
    assert "did you mean 'meaning'?" in refused["detail"]


def test_webhook_by_meaning_waits_for_a_gateway_with_semantics(tmp_path: Path) -> None:
    house = House(tmp_path)
    knows = house.semantics
    with Receiver().running() as receiver:
        asked = {"filter": COMPUTERS, "deliver": {"webhook": {"url": receiver.url}}}
        with house.running(), house.client() as http:
            made = http.post("/v1/services/house/subscriptions", json=asked).json()
        house.semantics = None
        with house.running(), house.client() as http, capture_logs() as logged:
            house.put(*EVENTS)
            until(lambda: any("can't start" in each["event"] for each in logged), "a warning")
            assert http.get(f"/v1/subscriptions/{made['id']}").json()["state"] == "active"
            refused = http.get(f"/v1/subscriptions/{made['id']}/explain")
            assert (refused.status_code, refused.json()["type"]) == (400, "urn:tidegate:problem:bad-filter")
        house.semantics = knows
        with house.running():
            until(lambda: receiver.numbers == [0, 2, 3, 4, 5], "what came meanwhile")


# Where nothing knows what words mean ------------------------------------------------------------


def test_missing_semantics_names_what_to_install_or_build(tmp_path: Path) -> None:
    house = House(tmp_path, knows=False)
    needed = "install an embedding (pip install 'tidegate[embedding]'), or build a space (tidegate semantics build"
    with house.running(), house.client() as http, opened(house) as socket:
        adhoc = http.get("/v1/services/house/events", params={"filter": COMPUTERS})
        durable = http.post("/v1/services/house/subscriptions", json={"filter": COMPUTERS})
        for answer in (adhoc, durable):
            assert (answer.status_code, answer.json()["type"]) == (400, "urn:tidegate:problem:bad-filter")
            assert needed in answer.json()["detail"]
            assert answer.json()["errors"][0]["text"] == COMPUTERS
        assert needed in socket.ask("subscribe", id="a", service="house", filter=COMPUTERS)["problem"]["detail"]
        looked = http.get("/v1/semantics?term=power")
        assert (looked.status_code, looked.json()["type"]) == (404, "urn:tidegate:problem:no-semantics")
        assert needed in looked.json()["detail"]
        found = http.post("/v1/discover", json={"attributes": ["device"], "names": "meaning"})
        assert found.status_code == 422
        assert needed in found.json()["detail"]
