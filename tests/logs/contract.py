"""The tests that every log backend must pass."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import LARGE_EXAMPLES
from tidegate.errors import CursorError, LogError
from tidegate.logs import Cursor, EventLog, Read, RetentionLimits, tail


def record(n: int, padding: int = 0) -> bytes:
    return b'{"n":%d,"pad":"%s"}' % (n, b"x" * padding)


def all_of(log: EventLog, stream: str, cursor: Cursor, max_records: int = 7) -> tuple[list[bytes], Cursor]:
    """Read to the end, at most `max_records` at a time, and return the records and the cursor after them."""
    read = read_all(log, stream, cursor, max_records)
    return list(read.records), read.cursor


def read_all(log: EventLog, stream: str, cursor: Cursor, max_records: int = 1_000) -> Read:
    """Read to the end, and return all reads as one: a single read may return fewer records than requested."""
    whole = Read((), (), cursor)
    while True:
        read = log.read(stream, whole.cursor, max_records)
        assert len(read.records) == len(read.places) <= max_records
        whole = Read(whole.records + read.records, whole.places + read.places, read.cursor, whole.gaps + read.gaps)
        if not read.records:
            return whole


@contextmanager
def waiting(log: EventLog, stream: str, cursor: Cursor) -> Iterator[list[bool]]:
    """Call `wait` in a thread while the block runs; the list has its result after the block."""
    results: list[bool] = []
    started = threading.Event()

    def wait() -> None:
        started.set()
        results.append(log.wait(stream, cursor, 60.0))

    waiter = threading.Thread(target=wait)
    waiter.start()
    started.wait()
    yield results
    waiter.join()


class LogContract:
    """Subclassed once per backend. The fixture `log` creates a log with small segments."""

    @pytest.fixture
    def log(self) -> Iterator[EventLog]:
        raise NotImplementedError

    def offset_step(self, record: bytes) -> int:
        """Return by how much a record increases the offset."""
        return len(record) + 1

    def let_expire(self, log: EventLog, stream: str, retention: RetentionLimits) -> None:
        """Apply a retention, and return when records have expired."""
        assert log.expire(stream, retention) > 0

    def test_appended_records_are_read_in_order(self, log: EventLog) -> None:
        log.create("gps")
        start = log.begin("gps")
        for n in range(0, 50, 5):
            log.append("gps", "0", [record(n + k) for k in range(5)])
        records, end = all_of(log, "gps", start)
        assert records == [record(n) for n in range(50)]
        assert end == log.end("gps")
        assert log.read("gps", end).records == ()

    @given(st.integers(0, 2**32).map(Random))
    @settings(
        max_examples=LARGE_EXAMPLES // 5,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
    )
    def test_any_sequence_of_appends_is_read_back_from_any_cursor(self, log: EventLog, rng: Random) -> None:
        stream = f"s{rng.getrandbits(60)}"
        partitions = ["0", "1"]
        log.create(stream, partitions)
        model: dict[str, list[tuple[bytes, int]]] = {name: [] for name in partitions}
        cursors = [log.begin(stream)]
        for n in range(rng.randint(1, 25)):
            name = rng.choice(partitions)
            batch = [record(n * 100 + k, rng.choice([0, 3, 200])) for k in range(rng.randint(0, 6))]
            end = log.append(stream, name, batch)
            for appended in reversed(batch):
                end -= self.offset_step(appended)
                model[name].append((appended, end))
            model[name].sort(key=lambda pair: pair[1])
            if rng.random() < 0.3:
                cursors.append(log.end(stream))
        for cursor in cursors:
            read = read_all(log, stream, cursor, rng.choice([3, 10_000]))
            for name in partitions:
                expected = [(text, offset) for text, offset in model[name] if offset >= cursor.offsets[name]]
                places = zip(read.records, read.places, strict=True)
                assert [(text, offset) for text, (partition, offset) in places if partition == name] == expected

    def test_cursor_from_its_text_reads_the_same(self, log: EventLog) -> None:
        log.create("gps")
        log.append("gps", "0", [record(n) for n in range(10)])
        half = log.read("gps", log.begin("gps"), 4).cursor
        assert all_of(log, "gps", Cursor.from_text(half.text))[0] == [record(n) for n in range(4, 10)]

    def test_partition_added_later_is_read_from_its_first_record(self, log: EventLog) -> None:
        log.create("gps")
        log.append("gps", "0", [record(1)])
        cursor = log.end("gps")
        log.create("gps", ["0", "1"])
        log.append("gps", "1", [record(2)])
        assert log.read("gps", cursor).records == (record(2),)

    def test_concurrent_readers_see_complete_records_in_order(self, log: EventLog) -> None:
        log.create("gps")
        cursor = log.begin("gps")
        writer = threading.Thread(target=lambda: [log.append("gps", "0", [record(n, n % 50)]) for n in range(400)])
        writer.start()
        records: list[bytes] = []
        while len(records) < 400:
            read = log.read("gps", cursor, 50)
            records += read.records
            cursor = read.cursor
        writer.join()
        assert records == [record(n, n % 50) for n in range(400)]

    def test_busy_partition_does_not_hold_up_the_others(self, log: EventLog) -> None:
        log.create("gps", ["0", "1"])
        cursor = log.begin("gps")
        log.append("gps", "0", [record(n) for n in range(100)])
        log.append("gps", "1", [record(-1)])
        for n in range(40):
            log.append("gps", "0", [record(1_000 + n * 20 + k) for k in range(20)])
            read = log.read("gps", cursor, 10)
            if record(-1) in read.records:
                return
            cursor = read.cursor
        pytest.fail("the quiet partition was never read")

    def test_wait_returns_when_a_record_is_after_the_cursor(self, log: EventLog) -> None:
        log.create("gps")
        assert not log.wait("gps", log.begin("gps"), 0.01)
        for n in range(40):
            cursor = log.end("gps")
            with waiting(log, "gps", cursor) as results:
                log.append("gps", "0", [record(n)])
            assert results == [True]
            assert log.wait("gps", cursor, 60.0)
            assert log.read("gps", cursor).records == (record(n),)
        assert not log.wait("gps", log.end("gps"), 0.01)
        assert log.wait("gps", Cursor(cursor.generation, {}), 60.0)

    def test_wait_returns_for_a_record_in_a_partition_added_later(self, log: EventLog) -> None:
        log.create("gps")
        with waiting(log, "gps", log.end("gps")) as results:
            log.create("gps", ["0", "1"])
            log.append("gps", "1", [record(1)])
        assert results == [True]

    def test_wait_raises_the_same_errors_as_read(self, log: EventLog) -> None:
        log.create("gps")
        with pytest.raises(CursorError, match="deleted and created again"):
            log.wait("gps", Cursor("x", {}), 0.01)
        with pytest.raises(LogError, match="no stream 'gsp'; did you mean 'gps'"):
            log.wait("gsp", log.end("gps"), 0.01)

    def test_tail_yields_new_records_until_it_is_stopped(self, log: EventLog) -> None:
        log.create("gps", ["0", "1"])
        log.append("gps", "0", [record(n) for n in range(20)])
        stop = threading.Event()

        def write(partition: str) -> None:
            for n in range(20, 150):
                log.append("gps", partition, [record(n, n % 40)])

        writers = [threading.Thread(target=write, args=(name,)) for name in ("0", "1")]
        records: dict[str, list[bytes]] = {"0": [], "1": []}
        for read in tail(log, "gps", log.begin("gps"), stop, max_records=16):
            if not writers[0].ident:
                for writer in writers:
                    writer.start()
            assert len(read.records) <= 16
            for text, (partition, _) in zip(read.records, read.places, strict=True):
                records[partition].append(text)
            if sum(map(len, records.values())) == 280:
                stop.set()
        for writer in writers:
            writer.join()
        assert records["0"] == [record(n) for n in range(20)] + [record(n, n % 40) for n in range(20, 150)]
        assert records["1"] == [record(n, n % 40) for n in range(20, 150)]

    def test_expired_records_are_reported_as_a_gap(self, log: EventLog) -> None:
        log.create("gps")
        start = log.begin("gps")
        for n in range(60):
            log.append("gps", "0", [record(n, 100)])
        self.let_expire(log, "gps", RetentionLimits(size_bytes=2_000))
        read = read_all(log, "gps", start)
        (gap,) = read.gaps
        assert (gap.partition, gap.missed_from, gap.resumed_at) == (
            "0",
            start.offsets["0"],
            log.begin("gps").offsets["0"],
        )
        assert read.records == tuple(record(n, 100) for n in range(60 - len(read.records), 60))
        assert 0 < len(read.records) < 60

    def test_partitions_have_the_names_that_cursors_use(self, log: EventLog) -> None:
        log.create("gps", ["0", "1"])
        assert log.partitions("gps") == ["0", "1"] == sorted(log.end("gps").offsets)
        log.create("gps", ["0", "1", "2"])
        assert log.partitions("gps") == ["0", "1", "2"]
        with pytest.raises(LogError, match="no stream 'gsp'; did you mean 'gps'"):
            log.partitions("gsp")

    def test_streams_are_listed_and_deleted(self, log: EventLog) -> None:
        log.create("a")
        log.create("b")
        log.append("a", "0", [record(1)])
        cursor = log.end("a")
        assert {"a", "b"} <= set(log.streams())
        log.delete("a")
        assert "a" not in log.streams()
        log.create("a")
        log.append("a", "0", [record(1), record(2)])
        with pytest.raises(CursorError, match="deleted and created again"):
            log.read("a", cursor)

    def test_errors_name_the_wrong_value(self, log: EventLog) -> None:
        log.create("station")
        with pytest.raises(LogError, match="no stream 'staton'; did you mean 'station'"):
            log.read("staton", Cursor("x", {}))
        with pytest.raises(LogError, match="'station' has no partition '7'"):
            log.append("station", "7", [record(1)])
        with pytest.raises(LogError, match=r"invalid name '../up'"):
            log.create("../up")
        for invalid in (b'{"a":\n1}', b"[1]", b""):
            with pytest.raises(LogError, match="record 1: expected one JSON object on one line"):
                log.append("station", "0", [record(1), invalid])
        assert log.read("station", log.begin("station")).records == ()
        beyond = log.end("station").moved("0", 10**9)
        log.append("station", "0", [record(1)])
        with pytest.raises(CursorError, match="beyond its end"):
            log.read("station", beyond)
