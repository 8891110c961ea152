"""The generators: the same again, at any rate, believable."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from threading import Event

import pytest

from tests.ingress.kit import HandClock, events
from tidegate import Filter
from tidegate.errors import SourceError
from tidegate.ingress.feeds.demo import ANPR, CAMERAS, GPS, Anpr, DemoFeed, Generator, Gps
from tidegate.ingress.raw_streams import RawStreamWriter
from tidegate.logs import SegmentLog
from tidegate.model.events import validate
from tidegate.services.definitions import Demo, Stream

START = 1_767_225_600_000_000


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SegmentLog]:
    made = SegmentLog(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("kind", [Gps, Anpr])
def test_same_seed_and_clock_produce_the_same_events(kind: type[Gps] | type[Anpr]) -> None:
    one, two, other = kind(3), kind(3), kind(4)
    asked = [(7, START), (2_500, START + 5_000), (0, START + 6_000), (1, START + 10_000_000)]
    first = [one.events(*each).records for each in asked]
    assert first == [two.events(*each).records for each in asked]
    assert first != [other.events(*each).records for each in asked]
    assert [len(records) for records in first] == [7, 2_500, 0, 1]


@pytest.mark.parametrize("made", [Gps(), Anpr()])
def test_every_event_fits_its_schema_and_names_its_entities(made: Generator) -> None:
    got = made.events(3_000, START)
    for n, record in enumerate(got.records):
        event = json.loads(record)
        validate(event, made.schema)
        assert event["time"] == "2026-01-01T00:00:00.000000Z"
        for attribute, who in got.entities.items():
            assert event[attribute] == made.names[attribute][who[n]]


def test_one_report_in_two_hundred_breaks_a_constraint() -> None:
    inside = Filter(
        "longitude BETWEEN 115.25 AND 117.30 AND latitude BETWEEN 39.26 AND 41.03 AND speed >= 0", schema=GPS
    )
    gps = Gps()
    found = [json.loads(r) for n in range(100) for r in gps.events(1_000, START + n * 500_000).records]
    wrong = [event for event in found if not inside.matches(event)]
    assert 0.004 < len(wrong) / len(found) < 0.006
    assert {(event["longitude"] == 0, event["latitude"] > 90, event["speed"] < 0) for event in wrong} == {
        (True, False, False),
        (False, True, False),
        (False, False, True),
    }


def test_taxi_moves_by_its_speed() -> None:
    gps = Gps(vehicles=50)
    rounds = [[json.loads(r) for r in gps.events(50, START + n * 2_000_000).records] for n in range(200)]
    checked = 0
    for before, after in pairwise(rounds):
        for a, b in zip(before, after, strict=True):
            assert a["vid"] == b["vid"]
            if min(a["speed"], b["speed"]) < 0 or not all(39 < e["latitude"] < 42 and e["longitude"] for e in (a, b)):
                continue
            km = ((b["longitude"] - a["longitude"]) * 85.4) ** 2 + ((b["latitude"] - a["latitude"]) * 111.2) ** 2
            assert km**0.5 == pytest.approx(b["speed"] * 2 / 3600, abs=2e-4)
            checked += 1
    assert checked > 9_000


def test_vehicles_pass_cameras_that_are_neighbours_and_parties_stay_together() -> None:
    anpr = Anpr(vehicles=600)
    seen: dict[str, list[str]] = {}
    for n in range(200):
        for record in anpr.events(50, START + n * 1_000_000).records:
            event = json.loads(record)
            seen.setdefault(event["vid"], []).append(event["cid"])
    names = list(CAMERAS)
    for way in seen.values():
        for a, b in pairwise(way):
            (ring_a, spoke_a), (ring_b, spoke_b) = (divmod(names.index(cid), 24) for cid in (a, b))
            assert abs(ring_a - ring_b) + min((spoke_a - spoke_b) % 24, (spoke_b - spoke_a) % 24) == 1
    parties = Counter(anpr.party.tolist())
    assert Counter(parties.values()) == {1: 450, 2: 30, 3: 30}
    for party in (p for p, size in parties.items() if size > 1):
        ways = [seen[anpr.names["vid"][v]] for v in (anpr.party == party).nonzero()[0]]
        shortest = min(map(len, ways))
        assert shortest > 10
        assert all(way[: shortest - 1] == ways[0][: shortest - 1] for way in ways)


def test_cameras_are_in_beijing() -> None:
    assert len(CAMERAS) == 120
    assert all(115.25 < longitude < 117.30 and 39.26 < latitude < 41.03 for longitude, latitude in CAMERAS.values())


@pytest.mark.parametrize(("rate", "seconds"), [(50_000, 2.0), (777.7, 10.0), (0.5, 20.0)])
def test_feed_appends_due_events_in_small_batches(log: SegmentLog, rate: float, seconds: float) -> None:
    clock = HandClock(end_s=seconds)
    stream = Stream("s", GPS, key="vid", source=(source := Demo("gps", rate)))
    DemoFeed(source, RawStreamWriter(log, stream, clock), clock).run(Event())
    got = events(log, "s")
    assert rate * seconds * 0.99 - 1 <= len(got) <= rate * seconds + 1
    steps = Counter(event["time"] for event in got)
    assert max(steps.values()) <= max(1, rate * 0.0051 + 1)
    assert list(steps) == sorted(steps)


def test_events_due_while_the_feed_slept_are_skipped(log: SegmentLog) -> None:
    class Sleepy(HandClock):
        def wait(self, stop: Event, seconds: float) -> bool:
            return super().wait(stop, 3_600.0 if 1 < self.monotonic() < 2 else seconds)

    clock = Sleepy(end_s=3_602.0)
    stream = Stream("s", ANPR, source=(source := Demo("anpr", 100)))
    DemoFeed(source, RawStreamWriter(log, stream, clock), clock).run(Event())
    assert 190 < len(events(log, "s")) < 320


@pytest.mark.parametrize("key", ["vid", "cid", "time", None])
def test_partitions_are_those_of_the_intake(log: SegmentLog, key: str | None) -> None:
    stream = Stream("s", ANPR, key=key, partitions=3, source=(source := Demo("anpr")))
    writer = RawStreamWriter(log, stream)
    DemoFeed(source, writer).append(900)
    read = log.read("s", log.begin("s"), 3 * 900)
    assert len(read.records) == 900
    if key is not None:
        for (partition, _), record in zip(read.places, read.records, strict=True):
            assert writer.partition_of(json.loads(record)[key]) == partition


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (Demo("gsp"), "unknown demo 'gsp'; did you mean 'gps'?; expected gps, anpr"),
        (Demo("gps", rate=0), "rate: expected events per second, above 0, not 0"),
        (Demo("gps", rate=float("nan")), "rate: expected events per second, above 0, not nan"),
    ],
)
def test_bad_source_is_refused(log: SegmentLog, source: Demo, message: str) -> None:
    with pytest.raises(SourceError) as caught:
        DemoFeed(source, RawStreamWriter(log, Stream("s", GPS)))
    assert str(caught.value) == message
