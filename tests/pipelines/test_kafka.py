"""Services on real Spark and a real Kafka: the laws of the engine, and the behaviour of Kafka."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

import pytest

from tests.pipelines.running import World, until
from tests.pipelines.test_engine import (  # noqa: F401 - laws that hold here too
    MADE,
    MERGED,
    STREAMS,
    gps,
    test_filter_in_python_resumes_at_the_end_of_its_output,
    test_final_values_once_each_after_a_restart,
    test_flagged_and_dropped,
    test_late_started_service_gets_all_events_since_it_was_applied,
    test_latency_includes_the_wait_in_the_log_and_processing_does_not,
    test_merged_filtered_judged_masked,
    test_new_service_begins_now_and_with_backfill_at_the_beginning,
    test_service_reads_another_service,
    test_stateless_service_resumes_at_the_end_of_its_output,
    test_updates_of_a_window_after_a_restart,
)
from tests.pipelines.test_matching import PAST, check_past
from tidegate.errors import ServiceError
from tidegate.logs import KafkaLog
from tidegate.registry import ServiceRun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
]


@pytest.fixture
def prefix() -> str:
    return f"t{secrets.token_hex(4)}."


@pytest.fixture
def world(spark: SparkSession, kafka: str, prefix: str, tmp_path: Path) -> Iterator[MADE]:
    made: list[World] = []

    def make(services: str) -> World:
        made.append(World(spark, tmp_path, STREAMS + services, kafka, prefix))
        return made[-1]

    yield make
    for each in made:
        for name in list(each.jobs):
            each.stop(name)
        for stream in each.log.streams():
            each.log.delete(stream)
        each.close()


def kafka_log(here: World) -> KafkaLog:
    assert isinstance(here.log, KafkaLog)
    return here.log


def raw(here: World, stream: str) -> list[bytes]:
    """All that a stream's topic holds, repeats too."""
    from confluent_kafka import Consumer, TopicPartition

    log = kafka_log(here)
    consumer = Consumer({"bootstrap.servers": log._brokers, "group.id": "raw", "enable.auto.commit": False})
    found = []
    for name, end in log.end(stream).offsets.items():
        consumer.assign([TopicPartition(log.topic(stream), int(name), 0)])
        for _ in range(end):
            message = consumer.poll(10)
            assert message is not None
            found.append(message.value() or b"")
    consumer.close()
    return found


def test_filter_matches_past_events(spark: SparkSession, kafka: str, prefix: str, tmp_path: Path) -> None:
    here = World(spark, tmp_path, PAST, kafka, prefix)
    check_past(here)
    here.log.delete("a")
    here.close()


def test_restart_writes_nothing_twice(world: MADE) -> None:
    here = world(MERGED)
    for restart in range(3):
        here.start("gps")
        here.append("a", [gps(n) for n in range(restart * 3 + 20, restart * 3 + 23)])
        here.append("b", [b"{nonsense", gps(1, speed=-1.0)])
        here.await_events("gps", restart * 3 + 3)
        here.await_events("gps.quarantine", restart * 2 + 2)
        here.stop("gps")
    assert len(raw(here, "gps")) == 9
    assert len(raw(here, "gps.quarantine")) == 6


def test_filtered_events_are_not_read_again(world: MADE) -> None:
    from tidegate.pipelines.kafka import KafkaStreams

    here = world(MERGED)
    here.start("gps")
    here.append("a", [gps(n, speed=13.0) for n in range(50)])
    streams = here.engine._streams
    assert isinstance(streams, KafkaStreams)
    until(lambda: streams.resume("gps", "a", ["0"]) == {"0": 50}, "the note to follow")
    here.stop("gps")
    before = here.engine.metrics("gps")["read"]
    here.start("gps")
    here.append("a", [gps(1)])
    here.await_events("gps", 1)
    assert here.engine.metrics("gps")["read"] == before + 1


def test_source_that_was_silent_for_long_is_still_found(world: MADE) -> None:
    here = world(MERGED)
    here.start("gps")
    here.append("b", [gps(1)])
    here.await_events("gps", 1)
    here.append("a", [gps(n) for n in range(100, 400)])
    here.await_events("gps", 301)
    here.stop("gps")
    here.start("gps")
    here.append("b", [gps(2)])
    here.await_events("gps", 302)
    assert len(raw(here, "gps")) == 302


def test_added_partition_is_read_after_a_restart(world: MADE) -> None:
    here = world("services: {slow: {from: a, pipeline: [{filter: speed < 50}]}}")
    here.start("slow")
    here.append("a", [gps(1)])
    here.await_events("slow", 1)
    here.log.create("a", ["0", "1", "2"])
    for partition in ("1", "2"):
        here.append("a", [gps(int(partition) + 1)], partition)
    here.stop("slow")
    here.start("slow")
    assert {e["_src"] for e in here.await_events("slow", 3)} == {"a/0:0", "a/1:0", "a/2:0"}


def test_each_partition_of_an_input_has_a_partition_of_the_output_and_keeps_it(world: MADE) -> None:
    here = world("services: {slow: {from: a, pipeline: [{filter: speed < 50}]}}")
    here.log.create("a", list(map(str, range(3))))
    here.start("slow")
    for partition in range(3):
        here.append("a", [gps(partition + 1)], str(partition))
    here.await_events("slow", 3)
    assert here.log.end("slow").offsets == {"0": 1, "1": 1, "2": 1}
    here.stop("slow")
    before = places(here, "slow")
    here.log.create("a", list(map(str, range(5))))
    here.start("slow")
    for partition in range(5):
        here.append("a", [gps(partition + 1)], str(partition))
    here.await_events("slow", 8)
    after = places(here, "slow")
    assert {source: after[source] for source in before} == before
    assert all(len(found) == 1 for found in after.values())


def places(here: World, stream: str) -> dict[str, set[str]]:
    """The partitions of a stream that have records of each source partition."""
    found: dict[str, set[str]] = {}
    cursor = here.log.begin(stream)
    while (read := here.log.read(stream, cursor, 1_000)).records:
        cursor = read.cursor
        for record, (partition, _) in zip(read.records, read.places, strict=True):
            found.setdefault(json.loads(record)["_src"].rpartition(":")[0], set()).add(partition)
    return found


def test_repeats_in_an_input_are_read_once(world: MADE) -> None:
    here = world(
        """
services:
  slow: {from: a, pipeline: [{filter: speed < 50}]}
  kmh: {from: slow, pipeline: [{project: {vid: vid, kmh: speed * 3.6, time: time}}]}
"""
    )
    here.start("slow")
    here.start("kmh")
    here.append("a", [gps(n) for n in range(5)])
    here.await_events("kmh", 5)
    here.stop("slow")
    here.log.append("slow", "a.0", raw(here, "slow")[2:])  # as a writer that had lost its way would
    assert len([at for at in here.log.end("slow").offsets.values() if at]) == 1, "a key has two partitions"
    here.append("a", [gps(5)])
    here.start("slow")
    here.await_events("kmh", 6)
    assert len(raw(here, "slow")) == 9
    assert len(raw(here, "kmh")) == 6


def test_too_long_record_ends_only_its_service(world: MADE) -> None:
    here = world(
        """
services:
  doubled: {from: a, pipeline: [{project: {vid: vid, again: vid, time: time}}]}
  slow: {from: a, pipeline: [{project: {speed: speed, time: time}}]}
"""
    )
    here.start("slow")
    job = here.start("doubled")
    here.append("a", [gps(1, vid="x" * 600_000), gps(2)])
    until(lambda: job.failure() is not None, "the service to fail")
    assert "expected at most 1000000" in str(job.failure())
    here.stop("doubled")
    assert [e["speed"] for e in here.await_events("slow", 2)] == [1.0, 2.0]


def test_nothing_is_written_behind_a_record_that_failed(world: MADE) -> None:
    here = world("services: {slow: {from: a, pipeline: [{filter: speed < 50}]}}")
    job = here.start("slow")
    longest(here, "slow", 20_000)
    sent = [gps(n % 40, vid="x" * (30_000 if n == 150 else 1)) for n in range(400)]
    for n in range(0, 400, 10):
        here.append("a", sent[n : n + 10])
    until(lambda: job.failure() is not None, "the service to fail")
    here.stop("slow")
    written = here.events("slow")
    assert [e["_src"] for e in written] == [f"a/0:{n}" for n in range(len(written))]
    assert len(written) <= 150
    longest(here, "slow", 1_000_000)
    here.start("slow")
    assert [e["_src"] for e in here.await_events("slow", 400)] == [f"a/0:{n}" for n in range(400)]


def longest(here: World, stream: str, size_bytes: int) -> None:
    """Set the largest record that the broker of a topic accepts."""
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    log = kafka_log(here)
    entry = ConfigEntry("max.message.bytes", str(size_bytes), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, log.topic(stream), incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": log._brokers})
    admin.incremental_alter_configs([resource])[resource].result()


def elsewhere(here: World, spark: SparkSession, folder: Path) -> World:
    """The same log and services, with another folder for checkpoints."""
    log = kafka_log(here)
    other = World(spark, folder, "", log._brokers, log.topic(""))
    other.definitions, other.schemas = here.definitions, here.schemas
    return other


def test_stateless_service_without_its_folder_goes_on_where_its_output_ends(
    world: MADE, spark: SparkSession, tmp_path: Path
) -> None:
    here = world(MERGED)
    here.start("gps", backfill=True)
    here.append("a", [gps(n) for n in range(20, 40)])
    here.await_events("gps", 20)
    here.stop("gps")
    here.append("a", [gps(n) for n in range(40, 45)])
    other = elsewhere(here, spark, tmp_path / "other")
    service, inputs = here.definitions.services["gps"], {name: here.schemas[name] for name in ("a", "b")}
    run = ServiceRun(1, here.engine.checkpoints.place)
    other.jobs["gps"] = other.engine.start(service, 1, inputs, backfill=True, run=run)
    assert len(other.await_events("gps", 25)) == 25
    assert len(raw(here, "gps")) == 25
    other.close()


def test_service_with_state_is_not_started_without_its_state(world: MADE, spark: SparkSession, tmp_path: Path) -> None:
    here = world(BOTH)
    other = elsewhere(here, spark, tmp_path / "other")
    service, inputs = here.definitions.services["flow"], {"a": here.schemas["a"]}
    with pytest.raises(ServiceError, match=r"its state is in one:/data, and this process keeps states in .*/other/"):
        other.engine.start(service, 2, inputs, run=ServiceRun(1, "one:/data"))
    other.close()


CHILD = """
import sys
from pathlib import Path
from tests.pipelines.running import World
from tests.pipelines.test_engine import STREAMS
from tidegate.pipelines.session import service_session

folder, kafka, prefix, text, *names = sys.argv[1:]
world = World(service_session("child", kafka=True), Path(folder), STREAMS + text, kafka, prefix)
for name in names:
    world.start(name)
print("ready", flush=True)
sys.stdin.read()
"""

BOTH = (
    MERGED
    + """
  flow:
    from: a
    pipeline: [{aggregate: {count: n, by: [vid], window: {length: 60s}, emit: updates}}]
"""
)
NAMES = ("gps", "flow")


def test_nothing_is_lost_or_written_twice_when_the_jvm_is_killed(
    world: MADE, kafka: str, prefix: str, tmp_path: Path
) -> None:
    here = world(BOTH)
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path), kafka, prefix, BOTH, *NAMES],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        start_new_session=True,
    )
    enough = Event()
    sent: list[int] = []

    def feed() -> None:
        while not enough.wait(0.01):
            here.append("a", [gps(len(sent) + 20, second=len(sent) % 60)])
            sent.append(len(sent))

    feeding = Thread(target=feed)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        feeding.start()
        until(lambda: all(len(here.events(name)) > 200 for name in NAMES), "the first events", interval_s=0.5)
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        enough.set()
        child.communicate()
    feeding.join()
    for name in NAMES:
        here.start(name)
    here.append("a", [gps(0, second=3)])
    for name in NAMES:
        events = here.await_events(name, len(sent) + 1)
        assert len({e["_id"] for e in events}) == len(events) == len(sent) + 1
        records = [json.loads(each)["_id"] for each in raw(here, name)]
        assert len(set(records)) == len(records)
