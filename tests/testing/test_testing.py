"""The test doubles of `tidegate.testing` keep the contracts of the real log, clock and sink."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tests.logs.contract import LogContract, record
from tidegate.delivery.hub import Hub
from tidegate.filters import Filter
from tidegate.ingress.http import DirectIngest
from tidegate.logs import EventLog, RetentionLimits
from tidegate.model import Schema
from tidegate.services import loads
from tidegate.testing import ManualClock, MemoryLog, RecordingSink

SCHEMA = Schema({"n": "int64"})


class TestMemory(LogContract):
    @pytest.fixture
    def log(self) -> EventLog:
        return MemoryLog()

    def offset_step(self, record: bytes) -> int:  # noqa: ARG002 - offsets count records
        return 1


def test_append_times_and_ages_follow_the_clock() -> None:
    clock = ManualClock()
    log = MemoryLog(clock)
    log.create("gps")
    moments = []
    for n in range(5):
        moments.append(clock.now())
        log.append("gps", "0", [record(n)])
        clock.advance(10.0)
    assert [log.since("gps", moment).offsets["0"] for moment in moments] == [0, 1, 2, 3, 4]
    assert log.since("gps", clock.now()) == log.end("gps")
    assert log.expire("gps", RetentionLimits(age_s=25.0)) == 3 * (len(record(0)) + 1)
    assert log.begin("gps").offsets == {"0": 3}


def test_wait_ends_when_a_memory_stream_is_deleted() -> None:
    log = MemoryLog()
    log.create("gps")
    problems: list[str] = []
    begun = threading.Event()

    def wait() -> None:
        begun.set()
        try:
            log.wait("gps", end, 60.0)
        except Exception as error:
            problems.append(str(error))

    end = log.end("gps")
    waiter = threading.Thread(target=wait)
    waiter.start()
    begun.wait()
    log.delete("gps")
    waiter.join()
    assert problems == ["no stream 'gps'"]


def test_wait_returns_at_once_and_time_does_not_go_back() -> None:
    clock, stop = ManualClock(), threading.Event()
    assert not clock.wait(stop, 3600.0)
    stop.set()
    assert clock.wait(stop, -1.0)
    assert (clock.monotonic(), clock.waits) == (3600.0, [3600.0, -1.0])
    with pytest.raises(ValueError, match=r"expected seconds from 0 on, not -1: time does not go back"):
        clock.advance(-1)


def test_ingested_events_reach_a_slow_subscriber() -> None:
    async def run() -> None:
        log = MemoryLog()
        ingest = DirectIngest(log)
        ingest.define(loads("streams: {raw: {schema: {n: int64}}}\nservices: {all: {from: raw}}\n").streams)
        body = b"\n".join(b'{"n":%d}' % n for n in range(100))
        receipt = await ingest.ingest("raw", "application/x-ndjson", {}, body)
        assert receipt.accepted == 100
        hub = Hub(log)
        hub.serve({"raw": SCHEMA})
        sink = RecordingSink(room_for=1)
        hub.subscribe(
            sink.subscriber("raw", Filter("n >= %0", SCHEMA, [90]), log.begin("raw"), id_="mine", select=["n"])
        )
        recorded = await sink.wait_for(10)
        sink.make_room()
        assert [(event.subscriber, event.data["n"]) for event in recorded] == [("mine", n) for n in range(90, 100)]
        log.publish("raw", {"_id": "last", "n": 100})
        assert (await sink.wait_for(11))[-1].id == "last"
        with pytest.raises(TimeoutError):
            await sink.wait_for(12, timeout_s=0.01)
        hub.serve({})
        assert [notice.kind for notice in sink.notices] == ["error"]
        await hub.close()
        await ingest.close()

    asyncio.run(run())
