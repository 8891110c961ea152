"""Requests, their receipts, and the appended records."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ingress.http.kit import ARROW, CLOUD, CLOUDS, GPS, JSON, LINES, NOW, PLAIN, gps, lines, send, streams
from tests.ingress.http.test_formats import ENVELOPE, ipc
from tests.ingress.kit import HandClock, events, raw
from tidegate.errors import (
    BodyError,
    IngestError,
    LogError,
    MediaTypeError,
    NotAcknowledged,
    StreamConflict,
    UnknownStream,
)
from tidegate.ingress.http import DirectIngest, EventRefusal, Ingest, IngestReceipt, IngestRequest, IngestSettings
from tidegate.logs import Cursor, SegmentLog
from tidegate.model import Schema
from tidegate.services.definitions import Demo, Stream

TIMED = Stream("s", GPS, key="vid")


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


class Unsteady(SegmentLog):
    """A log whose disk is full now and then."""

    refuses: frozenset[str] = frozenset()
    appends = 0

    def append(self, stream: str, partition: str, records: Sequence[bytes]) -> int:
        if partition in self.refuses:
            raise LogError("no space left")
        self.appends += 1
        return super().append(stream, partition, records)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Unsteady]:
    made = Unsteady(tmp_path)
    yield made
    made.close()


def over(log: SegmentLog, *of: Stream, clock: HandClock | None = None, **settings: Any) -> DirectIngest:
    made = DirectIngest(log, IngestSettings(**settings), clock)
    made.define(streams(*of))
    return made


def plain(log: SegmentLog, clock: HandClock, **settings: Any) -> DirectIngest:
    return over(log, Stream("s", PLAIN), clock=clock, **settings)


# What is appended ------------------------------------------------------------------


def test_lines_are_appended_byte_by_byte(log: Unsteady) -> None:
    body = lines([gps(1), gps(2)])
    told = send(over(log, TIMED), body)
    assert (told.accepted, told.duplicates, told.refused) == (2, 0, 0)
    assert b"".join(each + b"\n" for each in raw(log, "s")) == body


def test_cursor_is_after_the_appended_events(log: Unsteady) -> None:
    ingest = over(log, Stream("s", GPS, key="vid", partitions=3))
    send(ingest, lines(gps(n) for n in range(10)))
    told = send(ingest, lines(gps(n) for n in range(10)))
    assert told.cursor is not None
    assert Cursor.from_text(told.cursor) == log.end("s")
    assert {partition for partition, _ in log.read("s", log.begin("s")).places} == {"0", "1", "2"}


def test_stream_without_event_time_uses_the_arrival_time(log: Unsteady, clock: HandClock) -> None:
    ingest = plain(log, clock)
    send(ingest, b'{"n":1}\n{"n":2,"_time":"2020-01-01"}')
    send(ingest, b'[\n{"n":\n3}\n]', JSON)
    assert events(log, "s") == [{"_time": NOW, "n": 1}, {"n": 2, "_time": "2020-01-01"}, {"_time": NOW, "n": 3}]


def test_no_number_loses_a_digit(log: Unsteady, clock: HandClock) -> None:
    ingest = plain(log, clock)
    send(ingest, b'[{"n": 9223372036854775807, "x": 0.1000000000000000055511151231257827}]', JSON)
    send(ingest, json.dumps({**ENVELOPE, "data": {"n": 1, "x": 17}}).replace("17", "1.10").encode(), CLOUD)
    assert b'"x": 0.1000000000000000055511151231257827}' in raw(log, "s")[0]
    assert raw(log, "s")[1] == b'{"_id":"e1","_time":"%s","n": 1, "x": 1.10}' % NOW.encode()


def test_envelope_provides_missing_id_and_time(log: Unsteady, clock: HandClock) -> None:
    time = {"time": "2026-05-01T00:00:00Z"}
    body = [
        {**ENVELOPE, **time, "data": {"n": 1}},
        {**ENVELOPE, **time, "id": "e2", "data": {"n": 2, "_id": "own", "_time": "2020-01-01"}},
        {**ENVELOPE, "id": "e3", "data": {"n": 3}},
    ]
    assert send(plain(log, clock), json.dumps(body).encode(), CLOUDS).accepted == 3
    assert events(log, "s") == [
        {"_id": "e1", "_time": "2026-05-01T00:00:00.000000Z", "n": 1},
        {"n": 2, "_id": "own", "_time": "2020-01-01"},
        {"_id": "e3", "_time": NOW, "n": 3},
    ]


def test_event_with_its_own_time_needs_no_other(log: Unsteady) -> None:
    headers = {f"ce-{name}": value for name, value in ENVELOPE.items()} | {"ce-time": "2020-01-01T00:00:00Z"}
    send(over(log, TIMED), json.dumps(gps(1)).encode(), JSON, headers)
    assert events(log, "s") == [{"_id": "e1", **gps(1)}]


def test_rows_of_arrow_are_appended(log: Unsteady, clock: HandClock) -> None:
    import pyarrow as pa

    body = ipc(pa.RecordBatch.from_pydict({"n": [2**62], "x": [0.5], "_id": ["a"]}))
    assert send(plain(log, clock), body, ARROW).accepted == 1
    assert raw(log, "s") == [b'{"_time":"%s","n":4611686018427387904,"x":0.5,"_id":"a"}' % NOW.encode()]


# What is refused -------------------------------------------------------------------

BAD = b'{"n":1}\n\n{"n":"a","y":1}\n{"n":\n{"n":2}\n{"n":3,"_src":"s/0:1"}\n[1]\n'
ERRORS = (
    EventRefusal(
        1, "n", "expected a whole number from -9223372036854775808 to 9223372036854775807 (int64), not 'a'", 3
    ),
    EventRefusal(1, "y", "unknown attribute", 3),
    EventRefusal(2, "event", "expected a JSON object: unexpected end of data at column 6", 4),
    EventRefusal(4, "_src", "expected none: it is for services to say", 6),
    EventRefusal(5, "event", "expected an object of attributes, not [1]", 7),
)


def test_in_mode_all_one_bad_event_is_enough(log: Unsteady, clock: HandClock) -> None:
    told = send(plain(log, clock), BAD)
    assert told == IngestReceipt(0, 0, 4, ERRORS, 5)
    assert raw(log, "s") == raw(log, "s.quarantine") == []


def test_in_mode_partial_the_good_are_appended_and_the_bad_kept_aside(log: Unsteady, clock: HandClock) -> None:
    told = send(plain(log, clock), BAD, mode="partial")
    assert (told.accepted, told.refused, told.errors) == (2, 4, ERRORS)
    assert [event["n"] for event in events(log, "s")] == [1, 2]
    refused = events(log, "s.quarantine")
    assert [each["_raw"] for each in refused] == ['{"n":"a","y":1}', '{"n":', '{"n":3,"_src":"s/0:1"}', "[1]"]
    assert refused[0]["_reason"] == "; ".join(f"{each.path}: {each.message}" for each in ERRORS[:2])
    assert refused[0]["_time"] == NOW


def test_receipt_shows_the_first_errors_and_counts_all(log: Unsteady, clock: HandClock) -> None:
    told = send(plain(log, clock, errors=3), b"[{},{},{},{},{}]", JSON)
    assert len(told.errors) == 3
    assert told.to_json() == {
        "accepted": 0,
        "duplicates": 0,
        "refused": 5,
        "errors": [{"index": n, "pointer": "n", "detail": told.errors[0].message} for n in range(3)],
        "error_count": 5,
    }


def test_receipt_is_written_as_json(log: Unsteady) -> None:
    told = send(over(log, TIMED), lines([gps(1)]))
    assert told.to_json() == {"accepted": 1, "duplicates": 0, "refused": 0, "cursor": log.end("s").text}
    assert EventRefusal(1, "n", "bad", 3).to_json() == {"index": 1, "pointer": "n", "detail": "bad", "line": 3}


def test_unacceptable_requests_are_reported(log: Unsteady) -> None:
    ingest = over(log, TIMED, Stream("demo", GPS, source=Demo("gps")))
    with pytest.raises(StreamConflict, match="'demo' is fed by its source, demo, which is its one writer; expected"):
        send(ingest, b"{}", stream="demo")
    with pytest.raises(UnknownStream, match=r"no stream 'dem'$"):
        send(ingest, b"{}", stream="dem")
    with pytest.raises(IngestError, match="unknown mode 'some'; expected one of all, partial"):
        send(ingest, b"{}", mode="some")  # type: ignore[arg-type]
    with pytest.raises(MediaTypeError):
        send(ingest, b"{}", "text/csv")
    with pytest.raises(BodyError):
        send(ingest, b"{", JSON)
    assert log.streams() == ["s", "s.quarantine"]


def test_redefined_stream_uses_its_new_schema(log: Unsteady, clock: HandClock) -> None:
    ingest = plain(log, clock)
    assert send(ingest, b'{"n":1}').accepted == 1
    ingest.define(streams(Stream("s", Schema({"n": "string"}))))
    assert send(ingest, b'{"n":1}').refused == 1
    ingest.define({})
    with pytest.raises(UnknownStream):
        send(ingest, b'{"n":1}')


# Duplicates ------------------------------------------------------------------------


def test_id_is_appended_once(log: Unsteady) -> None:
    ingest = over(log, TIMED)
    body = lines([gps(1, _id="a"), gps(2, _id="b"), gps(3, _id="a"), gps(4), gps(4)])
    assert send(ingest, body).to_json().items() >= {"accepted": 4, "duplicates": 1}.items()
    assert send(ingest, body).to_json().items() >= {"accepted": 2, "duplicates": 3}.items()
    assert [event["vid"] for event in events(log, "s")] == ["BJ1", "BJ2", "BJ4", "BJ4", "BJ4", "BJ4"]


def test_refused_request_stores_no_ids(log: Unsteady) -> None:
    ingest = over(log, TIMED)
    assert send(ingest, lines([gps(1, _id="a"), {"vid": 7}])).refused == 1
    assert send(ingest, lines([{"_id": "a"}]), mode="partial").refused == 1
    assert send(ingest, lines([gps(1, _id="a")])).accepted == 1


def test_id_expires(log: Unsteady) -> None:
    clock = HandClock()
    ingest = over(log, TIMED, clock=clock, remembered_s=60.0)
    body = lines([gps(1, _id="a")])
    assert send(ingest, body).accepted == 1
    clock.advance(59)
    assert send(ingest, body).duplicates == 1
    clock.advance(2)
    assert send(ingest, body).accepted == 1


def test_ids_are_found_again_after_a_restart(log: Unsteady) -> None:
    partitioned = Stream("s", GPS, key="vid", partitions=3)
    send(over(log, partitioned), lines(gps(n, _id=f"i{n}") for n in range(50)))
    told = send(over(log, partitioned), lines(gps(n, _id=f"i{n}") for n in range(60)))
    assert (told.accepted, told.duplicates) == (10, 50)


requests = st.lists(
    st.lists(st.tuples(st.none() | st.integers(0, 9).map(str), st.booleans()), max_size=5), min_size=1, max_size=6
)


@given(requests, st.sampled_from(["all", "partial"]), st.integers(1, 3), st.integers(0, 6), st.booleans())
def test_deduplication_agrees_with_a_plain_set(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[list[tuple[str | None, bool]]],
    mode: Any,
    partitions: int,
    restart: int,
    together: bool,
) -> None:
    log = SegmentLog(tmp_path_factory.mktemp("log"))
    stream = Stream("s", PLAIN, key="n", partitions=partitions)
    ingest = Ingest(log)
    ingest.define(streams(stream))
    oracle, expected, told = set[str](), list[tuple[int, int, int]](), list[Any]()
    asked, kept = list[IngestRequest](), 0
    for at, batch in enumerate(batches):
        bad = sum(not good for _, good in batch)
        accepted = duplicates = 0
        for id_, good in batch if mode == "partial" or not bad else []:
            if good and id_ in oracle:
                duplicates += 1
            elif good:
                accepted += 1
                oracle |= {id_} if id_ is not None else set()
        expected.append((accepted, duplicates, bad))
        kept += accepted
        body = [{"n": n if good else "x", "_id": id_} for n, (id_, good) in enumerate(batch)]
        asked.append(IngestRequest("s", LINES, {}, lines(body), mode))
        if at == restart:
            told += ingest.process(asked)
            asked = []
            ingest = Ingest(log)
            ingest.define(streams(stream))
        elif not together:
            told += ingest.process(asked)
            asked = []
    told += ingest.process(asked)
    assert [(each.accepted, each.duplicates, each.refused) for each in told] == expected
    assert len(raw(log, "s")) == kept
    log.close()


# Groups and failures ---------------------------------------------------------------


def test_concurrent_requests_are_appended_together(log: Unsteady) -> None:
    ingest = Ingest(log)
    ingest.define(streams(TIMED, Stream("t", GPS)))
    body = lines([gps(1)])
    bad = IngestRequest("s", "text/csv", {}, body)
    asked = [
        IngestRequest("s", LINES, {}, body),
        bad,
        IngestRequest("t", LINES, {}, body),
        IngestRequest("s", LINES, {}, body),
    ]
    told = ingest.process(asked)
    assert log.appends == 2
    assert isinstance(told[1], MediaTypeError)
    assert [isinstance(each, IngestReceipt) and each.accepted for each in told] == [1, False, 1, 1]


def test_events_are_acknowledged_only_if_appended(log: Unsteady) -> None:
    ingest = Ingest(log)
    ingest.define(streams(Stream("s", GPS, key="vid", partitions=2), Stream("t", GPS)))
    body = lines(gps(n, _id=f"i{n}") for n in range(20))
    log.refuses = frozenset({"1"})
    first, duplicate, refused, other = ingest.process(
        [
            IngestRequest("s", LINES, {}, body),
            IngestRequest("s", LINES, {}, body),
            IngestRequest("s", LINES, {}, b"{}"),
            IngestRequest("t", LINES, {}, body),
        ]
    )
    assert isinstance(first, LogError)
    assert isinstance(duplicate, LogError), "a duplicate of what is not there"
    assert isinstance(refused, IngestReceipt)
    assert isinstance(other, IngestReceipt)
    log.refuses = frozenset()
    (again,) = ingest.process([IngestRequest("s", LINES, {}, body)])
    assert isinstance(again, IngestReceipt)
    assert again.accepted + again.duplicates == 20
    assert again.accepted > 0
    assert sorted(event["_id"] for event in events(log, "s")) == sorted(f"i{n}" for n in range(20))


def test_request_that_fails_in_the_middle_stores_no_ids(log: Unsteady, monkeypatch: pytest.MonkeyPatch) -> None:
    ingest = over(log, TIMED)
    monkeypatch.setattr("tidegate.ingress.http.stream_ingestor.read_recent_ids", lambda *_: 1 // 0)
    with pytest.raises(NotAcknowledged, match="ingest failed: ZeroDivisionError"):
        send(ingest, lines([gps(1), gps(2, _id="a")]))
    monkeypatch.undo()
    assert send(ingest, lines([gps(2, _id="a")])).accepted == 1
    assert len(raw(log, "s")) == 1


def test_recreated_stream_has_no_ids(log: Unsteady) -> None:
    ingest = over(log, TIMED)
    send(ingest, lines(gps(n, _id=f"i{n}") for n in range(5)))
    log.delete("s")
    log.create("s")
    assert send(ingest, lines([gps(7, _id="i7")])).cursor == log.end("s").text
    assert send(ingest, lines([gps(1, _id="i1")])).accepted == 1


def test_closed_ingest_refuses_requests(log: Unsteady) -> None:
    async def run() -> IngestReceipt:
        async with over(log, TIMED) as ingest:
            return await ingest.ingest("s", LINES, {}, lines([gps(1)]))

    assert asyncio.run(run()).accepted == 1
