"""Several processes append to one stream: the ids of each are known to the others, from the log."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.ingress.http.kit import LINES, PLAIN, lines, streams
from tests.ingress.kit import HandClock
from tidegate.errors import LogError
from tidegate.ingress.http import IngestReceipt, IngestSettings
from tidegate.ingress.http.core import Ingest, IngestRequest
from tidegate.logs import Cursor, EventLog, Read, SegmentLog
from tidegate.services.definitions import Stream
from tidegate.testing import MemoryLog

STREAM = Stream("s", PLAIN, key="n", partitions=2)
ONE = Stream("s", PLAIN)


def ingest_over(
    log: EventLog, stream: Stream = STREAM, remembered_ids: int = 1_000, clock: HandClock | None = None
) -> Ingest:
    ingest = Ingest(log, IngestSettings(remembered_ids, has_other_writers=True), clock)
    ingest.define(streams(stream))
    return ingest


def publish(ingest: Ingest, *ids: int | None) -> IngestReceipt:
    body = lines({"n": n or 0} | ({} if n is None else {"_id": f"i{n}"}) for n in ids)
    (outcome,) = ingest.process([IngestRequest("s", LINES, {}, body)])
    assert isinstance(outcome, IngestReceipt), outcome
    return outcome


def stored(log: EventLog) -> list[str]:
    records = [json.loads(record) for record in log.read("s", log.begin("s"), 10_000).records]
    return sorted(record["_id"] for record in records if "_id" in record)


REQUESTS = st.lists(
    st.tuples(st.integers(0, 2), st.lists(st.none() | st.integers(0, 12), max_size=6)), min_size=1, max_size=25
)


@given(REQUESTS, st.sampled_from([STREAM, ONE]))
def test_each_id_is_appended_once_whichever_process_gets_it(
    requests: list[tuple[int, list[int | None]]], stream: Stream
) -> None:
    log = MemoryLog()
    ingests = [ingest_over(log, stream) for _ in range(3)]
    seen: set[int] = set()
    for which, ids in requests:
        known = [n for n in ids if n is not None]
        new = set(known) - seen
        receipt = publish(ingests[which], *ids)
        assert receipt.accepted == len(new) + ids.count(None)
        assert receipt.duplicates == len(known) - len(new)
        seen |= new
    assert stored(log) == sorted(f"i{n}" for n in seen)


def test_ids_are_shared_in_a_log_whose_offsets_are_not_numbers_of_records(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path)
    one, other = ingest_over(log), ingest_over(log)
    assert publish(one, 1, 2).accepted == 2
    assert publish(other, 2, 3).accepted == 1
    assert publish(one, 1, 2, 3, 4).accepted == 1
    assert publish(other, 4).duplicates == 1
    assert stored(log) == ["i1", "i2", "i3", "i4"]
    log.close()


def test_own_records_are_not_read_again() -> None:
    class Counting(MemoryLog):
        reads = 0

        def read(self, stream: str, cursor: Cursor, max_records: int = 1_000) -> Read:
            self.reads += 1
            return super().read(stream, cursor, max_records)

    log = Counting()
    ingest = ingest_over(log, ONE)
    for n in range(10):
        publish(ingest, n)
    assert log.reads == 0
    publish(ingest_over(log, ONE), 100)
    before = log.reads
    assert publish(ingest, 100).duplicates == 1
    assert log.reads == before + 1


def test_ids_are_found_after_more_records_than_are_remembered() -> None:
    clock = HandClock()
    log = MemoryLog(clock)
    one, other = (ingest_over(log, ONE, remembered_ids=10, clock=clock) for _ in range(2))
    publish(one, 0)
    for n in range(1, 40):
        clock.advance(0.5)
        publish(other, n)
    assert publish(one, *range(36, 40)).duplicates == 4
    assert publish(one, 40).accepted == 1
    assert publish(other, 40).duplicates == 1


def test_stream_that_is_made_again_begins_anew_for_all() -> None:
    log = MemoryLog()
    one, other = ingest_over(log, ONE), ingest_over(log, ONE)
    publish(one, 1, 2)
    publish(other, 3)
    log.delete("s")
    log.create("s")
    assert publish(one, 2).accepted == 1
    assert publish(other, 2).duplicates == 1
    assert publish(other, 3).accepted == 1


def test_append_that_failed_reads_the_ids_again() -> None:
    class Failing(MemoryLog):
        fails = False

        def append(self, stream: str, partition: str, records: Sequence[bytes]) -> int:
            end = super().append(stream, partition, records)
            if self.fails:
                raise LogError("no answer")
            return end

    log = Failing()
    one, other = ingest_over(log, ONE), ingest_over(log, ONE)
    publish(one, 1)
    log.fails = True
    (outcome,) = one.process([IngestRequest("s", LINES, {}, lines([{"n": 2, "_id": "i2"}]))])
    assert isinstance(outcome, LogError)
    log.fails = False
    assert publish(other, 2).duplicates == 1, "it was in the log all the same"
    assert publish(one, 2).duplicates == 1
