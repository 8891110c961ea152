"""Parsing of bodies, and the problems of invalid ones."""

from __future__ import annotations

import io
import json
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ingress.http.kit import ARROW, CLOUD, CLOUDS, JSON, LINES
from tidegate.errors import BodyError, MediaTypeError, Violation
from tidegate.ingress.http import CONTENT_TYPES, json_spans
from tidegate.ingress.http.cloudevents import Envelope
from tidegate.ingress.http.formats import ParsedBody, parse
from tidegate.model import Schema

ANY = Schema({"n": "int64?", "x": "float64?"})


def read(content_type: str | None, body: bytes, schema: Schema = ANY, **headers: str) -> ParsedBody:
    return parse(content_type, {name.replace("_", "-"): value for name, value in headers.items()}, body, schema)


# Content types ---------------------------------------------------------------------


@pytest.mark.parametrize("content_type", [JSON, "Application/JSON", f'{JSON}; charset="UTF-8"', f"{JSON};charset=utf8"])
def test_content_type_has_several_spellings(content_type: str) -> None:
    assert read(content_type, b'{"n":1}').events == [{"n": 1}]


@pytest.mark.parametrize("content_type", [None, "", "text/plain", "application/xml; charset=utf-8"])
def test_unknown_content_type_lists_the_known_ones(content_type: str | None) -> None:
    with pytest.raises(MediaTypeError) as told:
        read(content_type, b"{}")
    assert all(each in str(told.value) for each in CONTENT_TYPES)


def test_another_charset_is_refused() -> None:
    with pytest.raises(MediaTypeError, match="charset 'latin1' of application/json; expected utf-8"):
        read(f"{JSON}; charset=latin1", b"{}")


# JSON ------------------------------------------------------------------------------


def test_object_is_one_event_with_unchanged_text() -> None:
    body = b' {"x": 1.10,\n "n": 123456789012345678}\n'
    assert read(JSON, body) == ParsedBody([body], [{"x": 1.1, "n": 123456789012345678}])


def test_array_is_several_events_with_unchanged_texts() -> None:
    parsed = read(JSON, b'\n[ {"x": 1.10} ,\n{"x": 0.100000000000000005551}, [1] ]')
    assert parsed.raws == [b'{"x": 1.10}', b'{"x": 0.100000000000000005551}', b"[1]"]
    assert parsed.events == [{"x": 1.1}, {"x": 0.1}, [1]]
    assert read(JSON, b"[]").events == []


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "expected a JSON object, or an array of objects, not an empty body"),
        (b" \n", "not an empty body"),
        (b'{"n":\n1,,}', "at line 2, column 3"),
        (b'{"n":NaN}', "at line 1, column 6"),
        (b"\xff", "expected a JSON object, or an array of objects: .* at line 1, column"),
        (b"17", "expected a JSON object, or an array of objects, not 17"),
        (b"[" * 100_000, "expected a JSON object, or an array of objects: "),
    ],
)
def test_broken_json_is_reported_with_its_position(body: bytes, message: str) -> None:
    with pytest.raises(BodyError, match=message):
        read(JSON, body)


def test_event_nested_deeper_than_python_reads_is_refused() -> None:
    """Since Python 3.12 its JSON decoder reads all that orjson reads, and the event is taken whole."""
    event = b'{"x":' * 1_000 + b"1" + b"}" * 1_000
    if sys.version_info >= (3, 12):
        assert read(JSON, b"[%s]" % event).raws == [event]
    else:
        with pytest.raises(BodyError, match="nested so deep"):
            read(JSON, b"[%s]" % event)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)
layouts = st.sampled_from([{}, {"indent": 1}, {"separators": (",", ":")}, {"ensure_ascii": False}])


@given(st.lists(json_values, max_size=4), layouts)
def test_positions_of_array_items_are_correct(values: list[Any], layout: dict[str, Any]) -> None:
    text = json.dumps(values, **layout)
    assert [json.loads(text[begin:end]) for begin, end in json_spans.items(text)] == values


@given(st.dictionaries(st.text(max_size=4), json_values, max_size=4), layouts)
def test_positions_of_object_members_are_correct(value: dict[str, Any], layout: dict[str, Any]) -> None:
    text = json.dumps(value, **layout)
    for name, each in value.items():
        place = json_spans.member(text, name)
        assert place is not None
        assert json.loads(text[place[0] : place[1]]) == each
    assert json_spans.member(text, "surely not") is None


def test_last_of_two_equal_members_counts() -> None:
    assert json_spans.member('{"a":1,"a":22}', "a") == (11, 13)


def test_number_may_be_long() -> None:
    text = f"[{'1' * 300}, {'1' * 5_000}]"
    assert [end - begin for begin, end in json_spans.items(text)] == [300, 5_000]


# NDJSON ----------------------------------------------------------------------------


@pytest.mark.parametrize("content_type", [LINES, "application/jsonl", "application/json-lines"])
def test_lines_are_events(content_type: str) -> None:
    parsed = read(content_type, b'{"n":1}\r\n{"n":2}')
    assert (parsed.raws, parsed.events) == ([b'{"n":1}', b'{"n":2}'], [{"n": 1}, {"n": 2}])
    assert parsed.lines is not None
    assert list(parsed.lines) == [1, 2]
    assert read(content_type, b"").events == []


def test_empty_lines_count_as_lines_only() -> None:
    parsed = read(LINES, b'\n{"n":1}\n \n\n{"n":2}\n\n')
    assert parsed.events == [{"n": 1}, {"n": 2}]
    assert parsed.lines == [2, 5]


def test_broken_line_affects_no_other_line() -> None:
    parsed = read(LINES, b'{"n":1}\n{"n":}\n\xff\n{"n":[{"a":1}\n{"b":2}]}\n')
    assert parsed.events == [{"n": 1}, None, None, None, None]
    assert list(parsed.problems) == [1, 2, 3, 4]
    assert "at column 6" in str(parsed.problems[1][0])
    assert parsed.raws[1] == b'{"n":}'


# CloudEvents -----------------------------------------------------------------------

ENVELOPE = {"specversion": "1.0", "id": "e1", "source": "/fleet", "type": "gps"}


def cloud(**more: Any) -> bytes:
    return json.dumps({**ENVELOPE, "data": {"n": 1}, **more}).encode()


def test_data_is_the_event_and_the_envelope_has_its_id_and_time() -> None:
    body = b'{"data": {"x": 1.10}, ' + cloud(time="2026-01-01T01:00:00+01:00").replace(b', "data": {"n": 1}', b"")[1:]
    parsed = read(CLOUD, body)
    assert (parsed.raws, parsed.events, parsed.problems) == ([b'{"x": 1.10}'], [{"x": 1.1}], {})
    assert parsed.envelopes == [Envelope("e1", "2026-01-01T00:00:00.000000Z")]


def test_cloudevents_batch_is_several_events() -> None:
    parsed = read(CLOUDS, b"[" + cloud() + b"," + cloud(id="e2", datacontenttype="application/geo+json") + b"]")
    assert parsed.events == [{"n": 1}, {"n": 1}]
    assert parsed.envelopes == [Envelope("e1"), Envelope("e2")]


@pytest.mark.parametrize(
    ("more", "path", "message"),
    [
        ({"id": None}, "id", "expected a string that is not empty, but it is missing"),
        ({"id": ""}, "id", "expected a string that is not empty, not ''"),
        ({"source": 7}, "source", "expected a string that is not empty, not 7"),
        ({"specversion": "0.3"}, "specversion", "expected '1.0', not '0.3'"),
        ({"time": "noon"}, "time", "expected an RFC 3339 timestamp, not 'noon'"),
        ({"data": [1]}, "data", "expected an object of attributes, not [1]"),
        ({"data": None}, "data", "expected an object of attributes, not None"),
        ({"datacontenttype": "text/xml"}, "datacontenttype", "expected application/json, not 'text/xml'"),
    ],
)
def test_bad_envelope_affects_its_event_only(more: dict[str, Any], path: str, message: str) -> None:
    parsed = read(CLOUDS, b"[" + cloud() + b"," + cloud(**more) + b"]")
    assert parsed.problems == {1: [Violation(path, message)]}
    assert parsed.events == [{"n": 1}, None]


def test_data_must_be_there() -> None:
    (found,) = read(CLOUD, json.dumps(ENVELOPE).encode()).problems[0]
    assert str(found) == "data: expected an object of attributes, but it is missing"
    (found,) = read(CLOUD, json.dumps({**ENVELOPE, "data_base64": "AA=="}).encode()).problems[0]
    assert str(found) == "data: expected an object of attributes, not data_base64"
    (found,) = read(CLOUDS, b"[7]").problems[0]
    assert str(found) == "event: expected a CloudEvents object, not 7"


def test_single_and_batch_are_not_confused() -> None:
    with pytest.raises(BodyError, match=r"not \[\]; more than one come as application/cloudevents-batch\+json"):
        read(CLOUD, b"[]")
    with pytest.raises(BodyError, match=r"not \{\}; a single one comes as application/cloudevents\+json"):
        read(CLOUDS, b"{}")
    with pytest.raises(BodyError, match="at line 1, column"):
        read(CLOUDS, b"[{]")


def test_headers_may_be_the_envelope() -> None:
    headers = {f"CE-{name}": value for name, value in ENVELOPE.items()}
    more = {"CE-id": "a%20b", "ce-time": "2026-01-01T00:00:00Z", "accept": "*/*"}
    parsed = parse(JSON, {**headers, **more}, b'{"n": 1}', ANY)
    assert (parsed.raws, parsed.events, parsed.problems) == ([b'{"n": 1}'], [{"n": 1}], {})
    assert parsed.envelopes == [Envelope("a b", "2026-01-01T00:00:00.000000Z")]


def test_invalid_envelope_headers_are_reported() -> None:
    parsed = read(JSON, b"{}", ce_id="1", ce_time="x", ce_specversion="1.0", ce_source="s")
    assert [each.path for each in parsed.problems[0]] == ["ce-type", "ce-time"]
    with pytest.raises(BodyError, match=r"expected a JSON object as the data of an event with ce- headers, not \[\]"):
        read(JSON, b"[]", ce_id="1")
    with pytest.raises(MediaTypeError, match="events with ce- headers carry application/json, not application/jsonl"):
        read("application/jsonl", b"{}", ce_id="1")


# Arrow -----------------------------------------------------------------------------

TYPED = Schema(
    {
        "text": "string?",
        "small": "int8?",
        "long": "int64?",
        "large": "uint64?",
        "single": "float32?",
        "double": "float64?",
        "on": "bool?",
        "time": "timestamp?",
        "kind": "enum(CAR, BUS)?",
        "pos": "{x: float64, at: timestamp?}?",
        "wheels": "int32[2]?",
    }
)


def ipc(*batches: pa.RecordBatch) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def arrow(**columns: pa.Array) -> ParsedBody:
    return read(ARROW, ipc(pa.RecordBatch.from_pydict(columns)), TYPED)


def test_rows_are_events() -> None:
    moment = datetime(2026, 11, 15, 12, 0, 0, 1, tzinfo=UTC)
    parsed = arrow(
        text=pa.array(["ä", None]),
        long=pa.array([2**63 - 1, -(2**63)]),
        large=pa.array([2**64 - 1, 0], pa.uint64()),
        time=pa.array([moment, None], pa.timestamp("us", "UTC")),
        pos=pa.array([{"x": 1.5, "at": moment}, None], pa.struct({"x": pa.float64(), "at": pa.timestamp("us", "UTC")})),
        wheels=pa.array([[1, None], []], pa.list_(pa.int32())),
        _id=pa.array(["a", "b"]),
    )
    assert parsed.raws[0] == (
        '{"text":"ä","long":9223372036854775807,"large":18446744073709551615,"time":"2026-11-15T12:00:00.000001Z",'
        '"pos":{"x":1.5,"at":"2026-11-15T12:00:00.000001Z"},"wheels":[1,null],"_id":"a"}'.encode()
    )
    assert parsed.events[1] == {"long": -(2**63), "large": 0, "wheels": [], "_id": "b"}


def test_batches_follow_each_other() -> None:
    batch = pa.RecordBatch.from_pydict({"long": [1, 2]})
    assert read(ARROW, ipc(batch, batch), TYPED).events == [{"long": 1}, {"long": 2}] * 2
    assert read(ARROW, ipc(batch.slice(0, 0)), TYPED).events == []


@pytest.mark.parametrize(
    ("name", "column", "expected"),
    [
        ("small", pa.array([1], pa.int64()), 1),
        ("small", pa.array([300], pa.int64()), 300),  # for the validator to refuse
        ("small", pa.array([3.0]), 3),
        ("long", pa.array([Decimal(12345678901234567)], pa.decimal128(20, 0)), 12345678901234567),
        ("large", pa.array([Decimal(2**64 - 1)], pa.decimal128(20, 0)), 2**64 - 1),
        ("double", pa.array([2**53 + 1]), 2**53 + 1),
        ("double", pa.array([1.5], pa.float16()), 1.5),
        ("single", pa.array([0.1]), 0.1),
        ("text", pa.array(["a"], pa.large_string()), "a"),
        ("text", pa.array(["a"], pa.string_view()), "a"),
        ("text", pa.array(["a"]).dictionary_encode(), "a"),
        ("kind", pa.array(["BUS"]).dictionary_encode(), "BUS"),
        ("time", pa.array([date(2026, 1, 1)]), "2026-01-01T00:00:00.000000Z"),
        ("time", pa.array([1_000], pa.timestamp("ns")), "1970-01-01T00:00:00.000001Z"),
        ("time", pa.array([1], pa.timestamp("s", "Asia/Shanghai")), "1970-01-01T00:00:01.000000Z"),
        ("time", pa.array([-1], pa.timestamp("us")), "1969-12-31T23:59:59.999999Z"),
        ("time", pa.array(["2026-01-01"]), "2026-01-01"),
        ("wheels", pa.array([[1, 2]], pa.list_(pa.int64(), 2)), [1, 2]),
    ],
)
def test_columns_are_cast_where_nothing_is_lost(name: str, column: pa.Array, expected: Any) -> None:
    assert arrow(**{name: column}).events == [{name: expected}]


@pytest.mark.parametrize(
    ("name", "column", "message"),
    [
        ("txt", pa.array(["a"]), "column 'txt': unknown attribute; did you mean 'text'"),
        ("text", pa.array([1]), "column 'text': expected string, not Arrow's int64"),
        ("text", pa.array([b"a"]), "column 'text': expected string, not Arrow's binary"),
        ("long", pa.array(["1"]), "column 'long': expected int64, not Arrow's string"),
        ("kind", pa.array([1]), "column 'kind': expected enum(CAR, BUS), not Arrow's int64"),
        ("on", pa.array([1]), "column 'on': expected bool, not Arrow's int64"),
        ("small", pa.array([1.5]), "column 'small': expected int8, but a value would change"),
        ("time", pa.array([1], pa.timestamp("ns")), "column 'time': expected timestamp, but a value would change"),
        ("double", pa.array([float("nan")]), "column 'double': expected numbers or null; JSON has no NaN"),
        ("pos", pa.array([{"x": float("inf")}]), "column 'pos': expected numbers or null"),
        ("pos", pa.array([{"x": "a"}]), "column 'pos': expected {x: float64, at: timestamp"),
        ("wheels", pa.array([1]), "column 'wheels': expected int32"),
    ],
)
def test_other_columns_are_refused(name: str, column: pa.Array, message: str) -> None:
    with pytest.raises(BodyError) as told:
        arrow(**{name: column})
    assert message in str(told.value)


@pytest.mark.parametrize("micros", [2**60, -(2**60), 65_536 * 31_556_952_000_000])
def test_time_out_of_range_is_refused(micros: int) -> None:
    with pytest.raises(BodyError, match="expected times of the years 1 to 9999"):
        arrow(time=pa.array([0, None, micros], pa.timestamp("us")))
    with pytest.raises(BodyError, match="expected times of the years 1 to 9999"):
        arrow(pos=pa.array([{"x": 1.0, "at": micros}], pa.struct({"x": pa.float64(), "at": pa.timestamp("us")})))


def test_missing_and_repeated_columns_are_reported() -> None:
    with pytest.raises(BodyError, match="expected columns 'n' too, beside x"):
        read(ARROW, ipc(pa.RecordBatch.from_pydict({"x": [1.0]})), Schema({"n": "int64", "x": "float64"}))
    twice = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["n", "n"])
    with pytest.raises(BodyError, match="column 'n': expected it once"):
        read(ARROW, ipc(twice))


@pytest.mark.parametrize("cut", [0, 7, 40, -20])
def test_broken_stream_is_reported(cut: int) -> None:
    body = ipc(pa.RecordBatch.from_pydict({"n": list(range(100))}))
    with pytest.raises(BodyError, match="expected an Arrow IPC stream: "):
        read(ARROW, body[:cut])
    with pytest.raises(BodyError, match="expected an Arrow IPC stream: "):
        read(ARROW, b"{}")
