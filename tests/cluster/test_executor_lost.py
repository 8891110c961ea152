"""An executor of Spark dies: its services go on elsewhere, and write nothing twice."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.runner import Feed, raw, up
from tests.cluster.spark import SparkCluster
from tests.conftest import LENGTH
from tests.kafka_broker import Broker
from tests.polling import until
from tidegate.logs import KafkaLog

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.xdist_group("broker")]

KILLS = 10 if LENGTH == "soak" else 1
PARTITIONS = ("0", "1")
SERVICES = """
streams: {raw: {schema: {n: int64, kind: string, time: timestamp}, event_time: time, partitions: 2}}
services:
  all: {from: raw, pipeline: [{filter: n >= 0}]}
  counted: {from: raw, pipeline: [{aggregate: {count: n, by: [kind], window: {length: 60s}, emit: updates}}]}
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path) as cluster:
        for _ in range(2):
            cluster.add_worker(6)
        yield cluster


def test_lost_executor_repeats_and_loses_nothing(cluster: SparkCluster, broker: Broker, tmp_path: Path) -> None:
    profile = f"{cluster.profile}\nlog: {{kafka: '{broker.address}'}}\n"
    log = KafkaLog(broker.address)
    with up(tmp_path, profile, SERVICES, tmp_path / "data") as runner:
        runner.wait_for("^ready: ")
        with Feed(log, "raw", PARTITIONS) as feed:
            for _ in range(KILLS):
                before = feed.count
                until(lambda before=before: _written(log) > before + 100, "events to be written", 120)  # type: ignore[misc]
                cluster.kill_executor(secrets.choice(cluster.executors()))
                until(lambda: len(cluster.executors()) == 2, "another executor", 60)
            count = feed.stop()
        until(lambda: _written(log) >= count, "all events", 120)
        until(lambda: len(log_records(log, "counted")) >= count, "all counts", 120)
        runner.stop()
    assert sorted(event["n"] for event in raw(log, "all")) == list(range(count))
    counts = [(event["kind"], event["n"]) for event in raw(log, "counted")]
    assert sorted(counts) == sorted((f"k{n % 2}", n // 2 + 1) for n in range(count))
    log.close()


def _written(log: KafkaLog) -> int:
    return sum(log.end("all").offsets.values())


def log_records(log: KafkaLog, stream: str) -> list[bytes]:
    return list(log.read(stream, log.begin(stream), 100_000).records)
