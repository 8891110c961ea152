"""The health of services on a Spark cluster that has too few workers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.runner import Feed, up
from tests.cluster.spark import SparkCluster
from tests.conftest import LENGTH
from tests.kafka_broker import Broker
from tests.polling import until
from tidegate.logs import KafkaLog

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.xdist_group("broker"),
    pytest.mark.skipif(LENGTH != "soak", reason="starts and ends four workers: in make soak"),
]

SERVICES = """
streams: {raw: {schema: {n: int64, kind: string, time: timestamp}, event_time: time, partitions: 2}}
services:
  all: {from: raw, pipeline: [{filter: n >= 0}]}
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path) as cluster:
        yield cluster


def test_service_says_which_slots_it_lacks_and_goes_on_when_they_are_there(
    cluster: SparkCluster, broker: Broker, tmp_path: Path
) -> None:
    log = KafkaLog(broker.address)
    profile = f"{cluster.profile}\nlog: {{kafka: '{broker.address}'}}\n"
    with up(tmp_path, profile, SERVICES, tmp_path / "data") as runner:
        runner.wait_for("service waits for slots")
        status = wait_for(log, lambda status: status["error"] is not None)
        assert status["state"] == "starting"
        assert "it has 2 real-time tasks, and of Spark's 0 slots 0 are free, so 2 are missing" in status["error"]
        small = cluster.add_worker(1)
        wait_for(log, lambda status: "of Spark's 1 slots 1 are free, so 1 are missing" in str(status["error"]))
        large = cluster.add_worker(2)
        wait_for(log, lambda status: status["state"] == "running" and status["error"] is None)
        with Feed(log, "raw", ("0", "1")) as feed:
            until(lambda: sum(log.end("all").offsets.values()) > 20, "events", 120)
            cluster.kill_worker(large)
            cluster.kill_worker(small)
            status = wait_for(log, lambda status: status["state"] == "restarting")
            assert "2 of its 2 real-time tasks do not run: no executor has a slot for them" in status["error"]
            wait_for(log, lambda status: status["behind_bytes"] > 20)
            cluster.add_worker(2)
            wait_for(log, lambda status: status["state"] == "running" and status["error"] is None)
            count = feed.stop()
        until(lambda: sum(log.end("all").offsets.values()) >= count, "all events", 120)
        runner.stop()
    log.close()


def wait_for(log: KafkaLog, condition: Any) -> dict[str, Any]:
    """Wait until the newest status of the service meets a condition, and return it."""
    cursor = log.end("_status")
    newest: dict[str, Any] = {}

    def is_met() -> bool:
        nonlocal cursor, newest
        read = log.read("_status", cursor, 1_000)
        cursor = read.cursor
        found = [status for status in map(json.loads, read.records) if status["service"] == "all"]
        newest = found[-1] if found else newest
        return bool(newest) and bool(condition(newest))

    try:
        until(is_met, "a status", 120, 0.2)
    except BaseException:
        print(newest)
        raise
    return newest
