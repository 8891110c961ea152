"""Batches: the cursor behind each event, and the encodings of events."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.delivery.batch import Batch
from tidegate.delivery.encoding import Encoding
from tidegate.logs import Cursor, SegmentLog


@given(
    appended=st.lists(st.tuples(st.sampled_from(["a.0", 'b"{0', "c"]), st.integers(1, 5)), min_size=1, max_size=8),
    start=st.integers(0, 10),
    most=st.integers(1, 30),
)
def test_cursor_behind_an_event_reads_exactly_the_events_after_it(
    appended: list[tuple[str, int]], start: int, most: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    log = SegmentLog(tmp_path_factory.mktemp("log"))
    names = {"a.0": "a.0", 'b"{0': "b_0", "c": "c"}
    log.create("s", list(names.values()))
    n = 0
    for partition, count in appended:
        log.append("s", names[partition], [b'{"_id":"%d"}' % (n + k) for k in range(count)])
        n += count
    begin = log.read("s", log.begin("s"), start).cursor if start else log.begin("s")
    read = log.read("s", begin, most)
    batch = Batch("s", begin, read)
    everything = {each["_id"] for each in map(orjson.loads, log.read("s", begin, 1_000).records)}
    for k in range(len(batch)):
        cursor = Cursor.from_text(batch.cursor(k))
        rest = {each["_id"] for each in map(orjson.loads, log.read("s", cursor, 1_000).records)}
        assert rest == everything - {each["_id"] for each in batch.events[: k + 1]}
    log.close()


def test_cursors_keep_the_marks_of_the_start(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path)
    log.create("s", ["a", "b"])
    log.append("s", "a", [b"{}", b"{}"])
    begin = Cursor(log.begin("s").generation, log.begin("s").offsets, {"gps/0": 7})
    batch = Batch("s", begin, log.read("s", begin, 10))
    assert Cursor.from_text(batch.cursor(0)) == Cursor(begin.generation, {"a": 3, "b": 0}, {"gps/0": 7})


RECORD = b'{"_id":"a:\\"0","_src":"a/0:7","_time":"2026-01-01T00:00:00Z","speed":61.50,"pos":{"x":1}}'


@pytest.mark.parametrize(
    ("encoding", "data"),
    [
        (Encoding(), b'{"speed":61.50,"pos":{"x":1}}'),
        (Encoding(select=("speed",)), b'{"speed":61.5}'),
        (Encoding(hidden=frozenset({"pos"})), b'{"speed":61.5}'),
        (Encoding(select=("speed",), hidden=frozenset({"speed"})), b"{}"),
    ],
)
def test_cloudevents_envelope_has_selected_visible_attributes(encoding: Encoding, data: bytes) -> None:
    assert encoding.encode("gps", RECORD, orjson.loads(RECORD)) == (
        b'{"specversion":"1.0","id":"a:\\"0","source":"/v1/services/gps","type":"tidegate.event",'
        b'"time":"2026-01-01T00:00:00Z","datacontenttype":"application/json","data":' + data + b"}"
    )


@pytest.mark.parametrize(
    "record",
    [
        RECORD,
        b'{"_id":"x","_time":"2026-01-01T00:00:00Z"}',
        b'{"_id":"x","_src":"a/0:1"}',
        b'{"_id":"x"}',
        b'{"n":1,"_id":"x","_src":"a/0:1","_time":null}',
        b'{"_id":"x","_time":null,"n":1}',
        b'{"_id":"x","_times":3}',
        b"{}",
    ],
)
def test_plain_encoding_is_the_record_without_its_source(record: bytes) -> None:
    event = orjson.loads(record)
    found = orjson.loads(Encoding("plain").encode("gps", record, event))
    wanted = {key: value for key, value in event.items() if key != "_src"}
    assert found == {"_id": None, "_time": None, **wanted}
