"""The log on Kafka against a real broker: the contract of a log, and the properties of Kafka."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.logs.contract import LogContract, all_of, read_all, record, waiting
from tests.logs.test_marks import record_from
from tests.polling import until
from tidegate.errors import CursorError, LogError, MissingDependency
from tidegate.logs import Cursor, EventLog, KafkaLog, RetentionLimits

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("kafka")]


@pytest.fixture
def log(kafka: str) -> Iterator[KafkaLog]:
    log = make(kafka)
    yield log
    for stream in log.streams():
        log.delete(stream)
    log.close()


def make(address: str, prefix: str | None = None) -> KafkaLog:
    return KafkaLog(address, prefix=prefix or f"t{secrets.token_hex(4)}.", check_s=0.1)


class TestKafka(LogContract):
    @pytest.fixture
    def log(self, kafka: str) -> Iterator[EventLog]:
        small = {"segment.bytes": "4000", "file.delete.delay.ms": "0"}
        log = KafkaLog(kafka, prefix=f"c{secrets.token_hex(4)}.", check_s=0.1, topic_settings=small)
        yield log
        log.close()

    def offset_step(self, record: bytes) -> int:  # noqa: ARG002 - Kafka counts records
        return 1

    def let_expire(self, log: EventLog, stream: str, retention: RetentionLimits) -> None:
        before = log.begin(stream)
        assert log.expire(stream, retention) == 0
        until(lambda: log.begin(stream) != before, "records to expire", 60)  # the broker deletes them in its own time


def test_records_of_a_keyed_partition_stay_in_order(log: KafkaLog) -> None:
    names = [f"gps_taxi_{n}.0" for n in range(9)]
    log.create("gps", names)
    start = log.begin("gps")
    assert list(start.offsets) == list(map(str, range(9)))
    for n in range(5):
        for name in names:
            log.append("gps", name, [b'{"of":"%s","n":%d}' % (name.encode(), n)])
    log.create("gps", [*names, "gps_bus.0"])  # does not add Kafka partitions
    assert log.end("gps").offsets.keys() == start.offsets.keys()
    read = read_all(log, "gps", start)
    for name in names:
        places = zip(read.records, read.places, strict=True)
        by_partition = [(partition, text) for text, (partition, _) in places if name.encode() in text]
        assert len({partition for partition, _ in by_partition}) == 1
        assert [text for _, text in by_partition] == [b'{"of":"%s","n":%d}' % (name.encode(), n) for n in range(5)]
    assert len({partition for partition, _ in read.places}) > 1
    assert log.append("gps", names[0], []) == 0


def test_record_that_was_written_again_is_read_once(log: KafkaLog) -> None:
    log.create("out", ["gps.0", "gps.1"])
    start = log.begin("out")
    for name in ("gps.0", "gps.1"):
        source = name.replace(".", "/")
        for first, last in ((0, 10), (4, 12), (0, 15), (0, 15)):
            log.append("out", name, [record_from(source, n) for n in range(first, last)])
    records, end = all_of(log, "out", start)
    assert sorted(records) == sorted(record_from(source, n) for source in ("gps/0", "gps/1") for n in range(15))
    assert end.marks == {"gps/0": 14, "gps/1": 14}
    # The marks are part of the text of the cursor. If only repeats follow it, the reader is at the end.
    again = Cursor.from_text(end.text)
    log.append("out", "gps.0", [record_from("gps/0", n) for n in range(13, 15)])
    read = log.read("out", again)
    assert read.records == ()
    assert read.cursor.offsets == log.end("out").offsets
    log.append("out", "gps.0", [record_from("gps/0", 14), record_from("gps/0", 15), record_from("gps/0", 16, 0)])
    assert all_of(log, "out", read.cursor)[0] == [record_from("gps/0", 15), record_from("gps/0", 16, 0)]


def test_since_finds_records_by_append_time(log: KafkaLog) -> None:
    log.create("gps")
    moments = []
    for n in range(5):
        moments.append(time.time_ns() // 1_000)
        log.append("gps", "0", [record(n)])
        while time.time_ns() // 1_000_000 == moments[-1] // 1_000:
            pass  # wait for the next millisecond
    assert log.since("gps", 0) == log.begin("gps")
    assert log.since("gps", time.time_ns() // 1_000 + 10**9) == log.end("gps")
    for n, moment in enumerate(moments):
        assert n - 1 <= log.since("gps", moment).offsets["0"] <= n


def test_new_generation_and_new_partitions_of_another_process_are_noticed(log: KafkaLog, kafka: str) -> None:
    other = make(kafka, log.topic(""))
    other.create("gps")
    log.append("gps", "0", [record(1)])
    old = log.read("gps", log.begin("gps")).cursor
    other.create("gps", ["0", "1"])
    other.append("gps", "1", [record(2)])
    assert log.wait("gps", old, 60)
    assert log.read("gps", old).records == (record(2),)
    assert log.read("gps", other.end("gps")).records == ()
    errors: list[str] = []

    def wait() -> None:
        try:
            log.wait("gps", log.end("gps"), 60)
        except LogError as exc:
            errors.append(str(exc))

    waiter = threading.Thread(target=wait)
    waiter.start()
    other.delete("gps")
    waiter.join()
    assert errors[0].startswith("no stream 'gps'")
    other.create("gps")
    log.append("gps", "0", [record(3)])
    with pytest.raises(CursorError, match="deleted and created again"):
        log.read("gps", old)
    assert log.read("gps", log.begin("gps")).records == (record(3),)
    other.close()


def test_more_readers_than_the_pool_keeps_read_independently(kafka: str) -> None:
    log = KafkaLog(kafka, prefix=f"r{secrets.token_hex(4)}.", readers=3)
    log.create("gps")
    log.append("gps", "0", [record(n) for n in range(300)])
    cursors = [log.begin("gps").moved("0", n * 10) for n in range(6)]
    records_by_reader: list[list[bytes]] = [[] for _ in cursors]
    for _ in range(8):
        for n, cursor in enumerate(cursors):
            read = log.read("gps", cursor, 5)
            records_by_reader[n] += read.records
            cursors[n] = read.cursor
    for n, records in enumerate(records_by_reader):
        assert records == [record(k) for k in range(n * 10, n * 10 + 40)]
    log.close()


def test_concurrent_appends_each_return_their_own_end_offset(log: KafkaLog) -> None:
    log.create("gps")
    ends: list[tuple[int, int]] = []

    def go(thread: int) -> None:
        for n in range(20):
            ends.append((log.append("gps", "0", [record(thread * 1_000 + n), record(-1)]), thread * 1_000 + n))

    threads = [threading.Thread(target=go, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    read = read_all(log, "gps", log.begin("gps"))
    at = {offset: text for text, (_, offset) in zip(read.records, read.places, strict=True)}
    assert len(at) == 160
    assert all(at[end - 2] == record(n) and at[end - 1] == record(-1) for end, n in ends)


def test_record_that_is_too_long_is_refused_before_any_is_sent(log: KafkaLog) -> None:
    log.create("gps")
    with pytest.raises(LogError, match="record 1: 2000016 bytes; expected at most 1000000"):
        log.append("gps", "0", [record(1), record(2, 2_000_000)])
    log.append("gps", "0", [record(3, 900_000)])
    assert log.read("gps", log.begin("gps")).records == (record(3, 900_000),)


def test_cursor_with_unknown_partitions_is_refused(log: KafkaLog) -> None:
    log.create("gps")
    with pytest.raises(CursorError, match=r"the cursor has a partition 'gps\.0' that 'gps' does not have"):
        log.read("gps", log.end("gps").moved("gps.0", 4))


def test_wait_at_the_end_requests_no_offsets(log: KafkaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log.create("gps")
    log.append("gps", "0", [record(1)])
    cursor = log.read("gps", log.begin("gps")).cursor
    with monkeypatch.context() as patched:
        patched.setattr(log._topics, "offsets", None)
        assert not log.wait("gps", cursor, 0.05)
        with waiting(log, "gps", cursor) as results:
            log.append("gps", "0", [record(2)])
        assert results == [True]
        assert log.read("gps", cursor).records == (record(2),)


def test_repeated_waits_use_one_reader(log: KafkaLog) -> None:
    log.create("gps", ["0", "1"])
    unread = Cursor(log.begin("gps").generation, {})
    for _ in range(30):
        assert not log.wait("gps", unread, 0.001)
    assert len(log._readers) == 1
    log.append("gps", "1", [record(1)])
    assert log.wait("gps", unread, 60)
    assert log.read("gps", unread).records == (record(1),)
    assert len(log._readers) == 1


def test_log_is_usable_after_a_failed_append(log: KafkaLog, kafka: str) -> None:
    small = KafkaLog(kafka, prefix=log.topic(""), topic_settings={"max.message.bytes": "2000"})
    small.create("gps")
    small.append("gps", "0", [record(1)])
    with pytest.raises(LogError, match=f"Kafka at {kafka} refuses: Broker: Message size too large"):
        small.append("gps", "0", [record(2, 5_000)])
    assert small.append("gps", "0", [record(3)]) == 2
    assert all_of(small, "gps", small.begin("gps"))[0] == [record(1), record(3)]
    small.close()


def test_error_names_a_broker_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        log = KafkaLog(address, timeout_s=0.5)
        for use in (
            log.streams,
            lambda: log.create("gps"),
            lambda: log.begin("gps"),
            lambda: log.append("gps", "0", []),
        ):
            with pytest.raises(LogError, match=f"no answer from Kafka at {address} within 0.5 s; check that it runs"):
                use()
        log.close()


def test_error_names_the_missing_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "confluent_kafka", None)
    with pytest.raises(MissingDependency, match=r"confluent-kafka is not installed: pip install 'tidegate\[kafka\]'"):
        KafkaLog("127.0.0.1:9092")
