"""The matcher inside Spark, a filter over the past, and the example of a custom operator."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.pipelines.running import World
from tests.semantics.spaces import CITY, make, narrow
from tidegate import Filter, Schema
from tidegate.filters.meaning import Meaning
from tidegate.model import timestamps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
]

SCHEMA = Schema({"n": "int64", "speed": "float64?", "vid": "string"})
FILTERS = {
    "fast": "speed > 60",
    "plates": "vid LIKE 'B%' AND n < 50",
    "near": "vid STRLIKE 'B17' WITHIN 1 EDITS",
    "rather": "FUZZY(speed IS S(40, 80)) >= 0.3",
    "none": "speed IS NULL",
}


def events(count: int) -> list[dict[str, Any]]:
    chance = random.Random(7)
    return [
        {
            "n": n,
            "speed": None if n % 17 == 0 else chance.uniform(0, 120),
            "vid": f"{chance.choice('BC')}{chance.randrange(30)}",
        }
        for n in range(count)
    ]


def test_matched_in_spark_as_one_by_one(spark: SparkSession) -> None:
    from tidegate.pipelines.matching import match
    from tidegate.pipelines.types import to_spark

    given = events(300)
    filters = {name: Filter(text, SCHEMA) for name, text in FILTERS.items()}
    rows = [(each["n"], each["speed"], each["vid"]) for each in given]
    frame = spark.createDataFrame(rows, to_spark(SCHEMA)).repartition(3)
    found = {(row["_subscription"], row["n"]): row["_degree"] for row in match(frame, filters).collect()}
    expected = {
        (name, event["n"]): filter_.degree(event)
        for name, filter_ in filters.items()
        for event in given
        if filter_.matches(event)
    }
    assert found.keys() == expected.keys()
    assert found == pytest.approx(expected)


PAST = "streams: {a: {schema: {n: int64, speed: 'float64?', vid: string}, partitions: 2}}"


@pytest.mark.parametrize("plain", [False, True])
def test_filter_matches_past_events(plain: bool, spark: SparkSession, tmp_path: Path) -> None:
    here = World(spark, tmp_path, PAST, plain=plain)
    check_past(here)
    here.close()


def check_past(here: World) -> None:
    """Count past events of a stream in two partitions by filters."""
    from tidegate.pipelines.backtest import backtest

    moments = [timestamps.to_text(1_767_225_600_000_000 + n * 1_000_000) for n in range(100)]
    past = [{**event, "_time": moments[event["n"]]} for event in events(100)]
    here.append("a", past[:40])
    here.append("a", past[40:], partition="1")
    here.append("a", [b'{"n": "no number"}'])
    for text in FILTERS.values():
        filter_ = Filter(text, here.schemas["a"])
        matched = [event for event in events(100) if filter_.matches(event)]
        found = backtest(here.streams, "a", filter_, sample=2)
        assert (found.events, found.matched) == (100, len(matched))
        assert (found.first, found.last) == (moments[matched[0]["n"]], moments[matched[-1]["n"]])
        assert [each["n"] for each in found.sample] == [each["n"] for each in matched[:-3:-1]]
    late = backtest(here.streams, "a", Filter("n >= 0", here.schemas["a"]), 1_767_225_690_000_000)
    assert (late.events, late.matched) == (10, 10)


def test_filter_by_meaning_matches_past_events(spark: SparkSession, tmp_path: Path) -> None:
    from tidegate.pipelines.backtest import backtest
    from tidegate.pipelines.matching import match

    here = World(spark, tmp_path, "streams: {a: {schema: {n: int64, device: string, topic: string}}}")
    said = [("laptop", "power"), ("garage", "power"), ("computer", "parking"), ("laptop", "energy")]
    given = [{"n": n, "device": device, "topic": topic} for n, (device, topic) in enumerate(said)]
    tagged = {**given[0], "n": 4, "_themes": ["politics"]}
    moment = "2026-01-01T00:00:00.000000Z"
    here.append("a", [{**event, "_time": moment} for event in (*given, tagged)])
    schema = here.schemas["a"]
    semantics = narrow(make(tmp_path / "space", CITY))
    for themes, expected in (((), [0, 3]), (("politics",), [3])):  # of laptops politics says nothing
        filter_ = Filter("gadget~ = 'x' OR device~ = 'computer'~ AND topic~ = 'energy'~", schema)
        filter_ = filter_.with_semantics(Meaning.of(semantics, themes=themes))
        found = backtest(here.streams, "a", filter_)
        assert (found.events, sorted(each["n"] for each in found.sample)) == (5, expected)
    frame = spark.createDataFrame([(event["n"], event["device"]) for event in given], "n long, device string")
    computers = Filter("device~ = 'computer'~", semantics=semantics)
    rows = match(frame, {"all": Filter("n >= 0"), "computers": computers}).collect()
    assert sorted(row["n"] for row in rows if row["_subscription"] == "computers") == [0, 2, 3]
    here.close()


def test_companions_of_the_paper_are_found(spark: SparkSession, tmp_path: Path) -> None:
    here = World(
        spark,
        tmp_path,
        """
streams: {anpr: {schema: {cid: string, vid: string, time: timestamp}, event_time: time, key: cid}}
services:
  companions:
    from: anpr
    pipeline:
      - custom:
          function: examples.companions:companions
          schema: {a: string, b: string, cameras: int32, first: timestamp, last: timestamp}
          window: {length: 60s}
          options: {together: 3, within_s: 5}
""",
    )
    here.start("companions")

    def seen(camera: int, vid: str, second: float) -> dict[str, str]:
        moment = timestamps.to_text(1_767_225_600_000_000 + round(second * 1e6))
        return {"cid": f"C{camera}", "vid": vid, "time": moment}

    here.append("anpr", [seen(n, vid, 10 * n + late) for n in range(4) for vid, late in (("X", 0), ("Y", 2))])
    here.append("anpr", [seen(0, "Z", 1), seen(1, "Z", 12), seen(9, "W", 100)])
    events = here.await_events("companions", 1)
    assert [(e["a"], e["b"], e["cameras"]) for e in events] == [("X", "Y", 4)]
    here.close()
