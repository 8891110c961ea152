"""The bridge from Kafka: each record once, wherever the feed dies."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event, Thread

import pytest
from typer.testing import CliRunner

from tests.ingress.kit import CrashError, FragileLog, events, until
from tidegate.cli.main import app
from tidegate.errors import SourceError
from tidegate.ingress.raw_streams import RawStreamWriter
from tidegate.logs import SegmentLog
from tidegate.model import Schema
from tidegate.services import load
from tidegate.services.definitions import Kafka, Stream

confluent_kafka = pytest.importorskip("confluent_kafka")
from confluent_kafka.admin import AdminClient, NewTopic  # noqa: E402

from tidegate.ingress.feeds import kafka  # noqa: E402
from tidegate.ingress.feeds.kafka import KafkaFeed  # noqa: E402

SCHEMA = Schema({"vid": "string", "n": "int64", "time": "timestamp?"}, event_time="time")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SegmentLog]:
    made = SegmentLog(tmp_path / "log")
    yield made
    made.close()


@pytest.fixture
def topic(kafka_broker: str) -> str:
    name = f"t{secrets.token_hex(4)}"
    admin = AdminClient({"bootstrap.servers": kafka_broker})
    admin.create_topics([NewTopic(name, num_partitions=2, replication_factor=1)])[name].result(30)
    return name


def produce(broker: str, topic: str, payloads: Sequence[bytes]) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker})
    for n, payload in enumerate(payloads):
        producer.produce(topic, payload, partition=n % 2)
    assert producer.flush(30) == 0


def numbered(numbers: range) -> list[bytes]:
    return [json.dumps({"vid": f"v{n % 7}", "n": n}).encode() for n in numbers]


def feed(log: SegmentLog, broker: str, topic: str, state: Path | None = None) -> KafkaFeed:
    stream = Stream("s", SCHEMA, key="vid", partitions=3)
    return KafkaFeed(Kafka(topic, broker), RawStreamWriter(log, stream), state)


def run_through(log: SegmentLog, broker: str, topic: str, state: Path | None = None) -> None:
    """Run a feed until it has come to the end of both partitions: to a record there that is new."""
    ends = [secrets.token_hex(4) for _ in range(2)]
    produce(broker, topic, [json.dumps({"vid": end, "n": -1}).encode() for end in ends])
    stop, made = Event(), feed(log, broker, topic, state)
    thread = Thread(target=made.run, args=(stop,))
    thread.start()
    try:
        until(lambda: {event["vid"] for event in events(log, "s")} >= set(ends), "events of every partition", 60)
    finally:
        stop.set()
        thread.join()


@pytest.mark.kafka
@pytest.mark.xdist_group("kafka")
@pytest.mark.parametrize("stateful", [True, False])
def test_every_record_is_appended_once_however_often_the_feed_is_killed(
    kafka_broker: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stateful: bool
) -> None:
    monkeypatch.setattr(kafka, "MAX_BATCH_RECORDS", 20)
    monkeypatch.setattr(kafka, "SAVE_INTERVAL_S", 0.0)
    produce(kafka_broker, topic, numbered(range(300)))
    state = tmp_path / "state" if stateful else None
    for fuse in (1, 2, 3, 5, 8, 4, 7):
        log = FragileLog(tmp_path / "log")
        log.fuse = fuse
        with pytest.raises(CrashError):
            feed(log, kafka_broker, topic, state).run(Event())
        log.close()
    log = FragileLog(tmp_path / "log")
    run_through(log, kafka_broker, topic, state)
    produce(kafka_broker, topic, numbered(range(300, 400)))
    for each in (state, None, state):  # None: as if the noted position was lost
        run_through(log, kafka_broker, topic, each)
    found = [event for event in events(log, "s") if event["n"] >= 0]
    assert sorted(event["n"] for event in found) == list(range(400))
    assert all(event["_id"].startswith(f"{topic}:{event['n'] % 2}:") for event in found)
    assert len({event["_id"] for event in events(log, "s")}) == len(events(log, "s"))
    log.close()


@pytest.mark.kafka
@pytest.mark.xdist_group("kafka")
def test_csv_rows_of_messages_come_once_however_often_the_feed_dies(
    kafka_broker: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka, "MAX_BATCH_RECORDS", 20)
    monkeypatch.setattr(kafka, "SAVE_INTERVAL_S", 0.0)
    messages = ["\n".join(f"v{row % 5},{row},{row}000" for row in range(n, n + 3)) for n in range(0, 120, 3)]
    produce(kafka_broker, topic, [message.encode() for message in messages])
    produce(kafka_broker, topic, [b"a,x,1\nb,-5,2", b"end,-1,", b"end,-1,"])
    stream = Stream("s", SCHEMA, key="vid", partitions=3)
    source = Kafka(topic, kafka_broker, format="csv", columns=("vid", "n", "time"), times=(("*", "epoch_ms"),))
    for fuse in (1, 2, 3, 5, 8, 4):
        log = FragileLog(tmp_path / "log")
        log.fuse = fuse
        with pytest.raises(CrashError):
            KafkaFeed(source, RawStreamWriter(log, stream), tmp_path / "state").run(Event())
        log.close()
    for state in (tmp_path / "state", None):
        log = FragileLog(tmp_path / "log")
        stop = Event()
        thread = Thread(target=KafkaFeed(source, RawStreamWriter(log, stream), state).run, args=(stop,))
        thread.start()
        try:
            until(lambda log=log: sum(e["n"] == -1 for e in events(log, "s")) == 2, "the last rows", 60)  # type: ignore[misc]
        finally:
            stop.set()
            thread.join()
        found = [event for event in events(log, "s") if event["n"] >= 0]
        assert sorted(event["n"] for event in found) == list(range(120))
        (second,) = [event for event in found if event["n"] == 1]
        assert (second["_id"], second["time"]) == (f"{topic}:0/2:0", "1970-01-01T00:00:01.000000Z")
        (refused,) = events(log, "s.quarantine")
        assert (refused["_id"], refused["_raw"]) == (f"{topic}:0:20", "a,x,1")
        assert len({event["_id"] for event in events(log, "s")}) == len(events(log, "s"))
        log.close()


@pytest.mark.kafka
@pytest.mark.xdist_group("kafka")
def test_topic_becomes_a_service_file(kafka_broker: str, topic: str, tmp_path: Path, log: SegmentLog) -> None:
    produce(kafka_broker, topic, [b"vid,n,time\nv%d,%d,%d\n" % (n % 3, n, 1_767_225_600 + n) for n in range(20)])
    output = tmp_path / "topic.yaml"
    arguments = ["init", f"kafka:{topic}", "--broker", kafka_broker, "-o", str(output), "--wait", "60s"]
    CliRunner().invoke(app, arguments, catch_exceptions=False)
    (stream,) = load(output).streams.values()
    assert stream.source == Kafka(topic, kafka_broker, format="csv", times=(("*", "epoch_s"),))
    assert (stream.schema.event_time, stream.key) == ("time", "vid")
    tried = CliRunner().invoke(app, ["validate", "--sources", str(output)], catch_exceptions=False)
    assert tried.stdout.splitlines()[-1] == f"source of {topic}: 20 events read"
    stop = Event()
    thread = Thread(target=KafkaFeed(stream.source, RawStreamWriter(log, stream)).run, args=(stop,))
    thread.start()
    try:
        until(lambda: len(events(log, topic)) == 20, "all events", 60)
    finally:
        stop.set()
        thread.join()


@pytest.mark.kafka
@pytest.mark.xdist_group("kafka")
def test_text_other_than_json_is_quarantined_under_its_offset(kafka_broker: str, topic: str, log: SegmentLog) -> None:
    produce(kafka_broker, topic, [b"no json", b'{"vid":"a","n":1,"_id":"own"}', b"", b'{"vid":"a","n":2}'])
    for _ in range(2):
        run_through(log, kafka_broker, topic)
    assert sorted(event["_id"] for event in events(log, "s") if event["n"] > 0) == ["own", f"{topic}:1:1"]
    assert [refused["_id"] for refused in events(log, "s.quarantine")] == [f"{topic}:0:0", f"{topic}:0:1"]


@pytest.mark.kafka
@pytest.mark.xdist_group("kafka")
def test_recreated_topic_is_an_error(kafka_broker: str, topic: str, log: SegmentLog, tmp_path: Path) -> None:
    produce(kafka_broker, topic, numbered(range(100)))
    run_through(log, kafka_broker, topic, tmp_path / "state")
    noted = tmp_path / "state" / "s.json"
    noted.write_text(noted.read_text().replace('"0": 51', '"0": 5100'))
    with pytest.raises(SourceError, match="ends at offset 51 of partition 0, but 5100 were read"):
        feed(log, kafka_broker, topic, tmp_path / "state").run(Event())


@pytest.mark.kafka
@pytest.mark.xdist_group("kafka")
def test_missing_topic_is_an_error(kafka_broker: str, log: SegmentLog) -> None:
    with pytest.raises(SourceError, match="nowhere"):
        feed(log, kafka_broker, "nowhere").run(Event())


def test_unreachable_broker_is_an_error(log: SegmentLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "REQUEST_TIMEOUT_S", 0.5)
    told: list[str] = []
    made = KafkaFeed(Kafka("t", "127.0.0.1:1"), RawStreamWriter(log, Stream("s", SCHEMA)), report=told.append)
    with pytest.raises(SourceError, match=r"Kafka at 127\.0\.0\.1:1: "):
        made.run(Event())


def test_topic_needs_a_name(log: SegmentLog) -> None:
    with pytest.raises(SourceError, match="topic: expected the name of a topic, not ''"):
        KafkaFeed(Kafka(""), RawStreamWriter(log, Stream("s", SCHEMA)))
