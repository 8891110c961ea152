"""Inputs are appended to a raw stream, or quarantined with a reason."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ingress.kit import HandClock, events, raw
from tidegate.ingress.raw_streams import MAX_RAW_BYTES, Input, RateMeter, RawStreamWriter, WriteCounts, with_metadata
from tidegate.logs import SegmentLog
from tidegate.model import Schema
from tidegate.services.definitions import Stream

TIMED = Schema({"vid": "string", "time": "timestamp"}, event_time="time")
PLAIN = Schema({"vid": "string"})
NOW = "2026-01-01T00:00:00.000000Z"


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SegmentLog]:
    log = SegmentLog(tmp_path)
    yield log
    log.close()


def test_json_object_is_appended_byte_by_byte(log: SegmentLog) -> None:
    raw_input = b'{"vid": "a", "n": 123456789012345678901234567890, "x": 1.10}'
    assert RawStreamWriter(log, Stream("s", TIMED)).append_inputs([Input(raw_input)]) == WriteCounts(1, 0)
    assert raw(log, "s") == [raw_input]


def test_id_and_arrival_time_are_added_in_front(log: SegmentLog) -> None:
    writer = RawStreamWriter(log, Stream("s", PLAIN), HandClock())
    writer.append_inputs([Input(b' {"vid":\r\n"a"}\n', "f:1"), Input(b"{ }", "f:2"), Input(b"{}")])
    assert events(log, "s") == [
        {"_id": "f:1", "_time": NOW, "vid": "a"},
        {"_id": "f:2", "_time": NOW},
        {"_time": NOW},
    ]


def test_id_and_time_of_the_producer_are_kept(log: SegmentLog) -> None:
    writer = RawStreamWriter(log, Stream("s", PLAIN), HandClock())
    writer.append_inputs([Input(b'{"_id":"mine","_time":"2020-01-01"}', "f:1"), Input(b'{"_id":null}', "f:2")])
    assert events(log, "s") == [{"_id": "mine", "_time": "2020-01-01"}, {"_id": "f:2", "_time": NOW}]


@pytest.mark.parametrize(
    ("raw_input", "reason"),
    [
        (b"", "not JSON"),
        (b'{"a":', "not JSON"),
        (b'{"a":NaN}', "not JSON"),
        (b"[1]", "expected a JSON object, not an array"),
        (b"12", "expected a JSON object, not a number"),
        (b'"x"', "expected a JSON object, not a string"),
        (b"null", "expected a JSON object, not null"),
        (b"true", "expected a JSON object, not a truth value"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_input_that_is_not_an_object_is_quarantined_with_a_reason(
    log: SegmentLog, raw_input: bytes, reason: str
) -> None:
    writer = RawStreamWriter(log, Stream("s", TIMED), HandClock())
    assert writer.append_inputs([Input(raw_input, "f:9"), Input(b'{"vid":"a"}')]) == WriteCounts(1, 1)
    (refused,) = events(log, "s.quarantine")
    assert refused.pop("_reason").startswith(reason)
    assert refused == {"_id": "f:9", "_time": NOW, "_raw": raw_input.decode()}
    assert writer.meter.refused == writer.meter.events == 1


def test_bytes_that_are_not_utf8_are_quarantined_as_base64(log: SegmentLog) -> None:
    RawStreamWriter(log, Stream("s", TIMED)).append_inputs([Input(b"\xff\x00{")])
    (refused,) = events(log, "s.quarantine")
    assert base64.b64decode(refused["_raw64"]) == b"\xff\x00{"
    assert "_id" not in refused


def test_long_refused_input_is_cut(log: SegmentLog) -> None:
    RawStreamWriter(log, Stream("s", TIMED)).append_inputs([Input(b"x" * (MAX_RAW_BYTES + 5))])
    (refused,) = events(log, "s.quarantine")
    assert len(refused["_raw"]) == MAX_RAW_BYTES
    assert f"of {MAX_RAW_BYTES + 5} bytes" in refused["_reason"]


def test_key_always_has_the_same_partition(log: SegmentLog) -> None:
    writer = RawStreamWriter(log, Stream("s", TIMED, key="vid", partitions=4))
    keys = [f"BJ{n}" for n in range(100)]
    writer.append_inputs(Input(json.dumps({"vid": key, "n": n}).encode()) for n in range(3) for key in keys)
    read = log.read("s", log.begin("s"))
    places: dict[str, list[tuple[str, int]]] = {}
    for (partition, _), record in zip(read.places, read.records, strict=True):
        event = json.loads(record)
        places.setdefault(event["vid"], []).append((partition, event["n"]))
    for key, places_of_key in places.items():
        assert places_of_key == [(writer.partition_of(key), n) for n in range(3)]
    assert {partition for partition, _ in read.places} == {"0", "1", "2", "3"}
    for key_, text in [("BJ0", b'"BJ0"'), (7, b"7"), (None, b"null"), ("京K", '"京K"'.encode())]:
        assert writer.partition_of(key_) == str(zlib.crc32(text) % 4)


def test_events_without_a_key_go_to_partitions_in_turn(log: SegmentLog) -> None:
    RawStreamWriter(log, Stream("s", TIMED, partitions=3)).append_inputs(Input(b"{}") for _ in range(9))
    places = [partition for partition, _ in log.read("s", log.begin("s")).places]
    assert sorted(places) == ["0"] * 3 + ["1"] * 3 + ["2"] * 3


def test_append_to_a_known_partition_adds_the_arrival_time(log: SegmentLog) -> None:
    RawStreamWriter(log, Stream("s", PLAIN, partitions=2), HandClock()).append_to("1", [b'{"vid":"a"}'])
    assert events(log, "s") == [{"_time": NOW, "vid": "a"}]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@given(
    st.dictionaries(st.text(max_size=5) | st.sampled_from(["_id", "_time"]), values, max_size=4),
    st.none() | st.text(st.characters(codec="utf-8")),
    st.booleans(),
    st.sampled_from([None, 0, 2]),
)
def test_record_keeps_all_values_of_its_input(
    event: dict[str, object], id_: str | None, stamped: bool, indent: int | None
) -> None:
    raw_input = json.dumps(event, indent=indent).encode()
    record = with_metadata(raw_input, json.loads(raw_input), id_, b'"_time":"now",' if stamped else b"")
    assert b"\n" not in record
    expected = dict(event)
    if id_ is not None and event.get("_id") is None:
        expected["_id"] = id_
    if stamped:
        expected.setdefault("_time", "now")
    assert json.loads(record) == expected


def test_rate_covers_the_last_ten_seconds() -> None:
    clock = HandClock()
    meter = RateMeter(clock)
    for _ in range(100):
        clock.advance(0.2)
        meter.add(50)
    assert meter.events == 5_000
    assert meter.rate == pytest.approx(250, rel=0.05)
    clock.advance(11)
    assert meter.rate == 0
