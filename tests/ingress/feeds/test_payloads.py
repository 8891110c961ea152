"""Messages in several formats, and times in the form of their source."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import SourceError
from tidegate.ingress.feeds.payloads import PayloadDecoder, TimeConverter
from tidegate.model import Schema, timestamps
from tidegate.services.definitions import Kafka
from tidegate.services.sources.event_format import EPOCHS

SCHEMA = Schema({"vid": "string", "time": "timestamp", "n": "uint64?", "pos": {"at": "timestamp?"}}, event_time="time")


def decoded(raw: bytes, text_format: Any = "json", **settings: Any) -> list[tuple[Any, str | None]]:
    source = Kafka("t", format=text_format, **settings)
    events = PayloadDecoder(SCHEMA, source, text_format).decode(raw)
    return [(json.loads(raw) if reason is None else raw, reason) for raw, reason in events]


def time_of(value: Any, time_format: str, **settings: Any) -> str:
    ((event, reason),) = decoded(json.dumps({"time": value}).encode(), times=(("*", time_format),), **settings)
    assert reason is None, reason
    return str(event["time"])


def test_message_may_have_several_json_lines() -> None:
    raw = b'{"vid":"a"}\r\n\n {"vid":"b","n":18446744073709551615}'
    assert decoded(raw, "ndjson") == [({"vid": "a"}, None), ({"vid": "b", "n": 18446744073709551615}, None)]


def test_csv_message_has_a_header_or_the_columns_of_its_source() -> None:
    event = ({"vid": "a", "n": 7}, None)
    assert decoded(b"vid,n\na,7\n", "csv") == [event]
    assert decoded(b"a,7", "csv", columns=("vid", "n")) == [event]


@pytest.mark.parametrize(
    ("raw", "text_format", "reason"),
    [
        (b"", "ndjson", "the message has no event"),
        (b"vid,n\n", "csv", "the message has no event"),
        (b"vid,vid\n1,2", "csv", "expected a header line with names that differ from each other"),
        (b"\xff\n", "csv", "expected a header line with the names of attributes"),
    ],
)
def test_message_without_events_is_refused(raw: bytes, text_format: str, reason: str) -> None:
    ((shown, why),) = decoded(raw, text_format)
    assert shown == raw
    assert why is not None
    assert reason in why


def test_bad_row_of_a_csv_message_leaves_the_others() -> None:
    assert decoded(b"a,1\nb,x\nc,3", "csv", columns=("vid", "n")) == [
        ({"vid": "a", "n": 1}, None),
        (b"b,x", "n: expected a whole number from 0 to 18446744073709551615, not 'x'"),
        ({"vid": "c", "n": 3}, None),
    ]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1_767_225_600, "epoch_s", "2026-01-01T00:00:00.000000Z"),
        (1_767_225_600.25, "epoch_s", "2026-01-01T00:00:00.250000Z"),
        ("1767225600", "epoch_s", "2026-01-01T00:00:00.000000Z"),
        (" 1.7672256e9 ", "epoch_s", "2026-01-01T00:00:00.000000Z"),
        (-1, "epoch_s", "1969-12-31T23:59:59.000000Z"),
        (1_767_225_600_123, "epoch_ms", "2026-01-01T00:00:00.123000Z"),
        (1_767_225_600_123_456, "epoch_us", "2026-01-01T00:00:00.123456Z"),
        (1_767_225_600_123_456_789, "epoch_ns", "2026-01-01T00:00:00.123456Z"),
    ],
)
def test_epochs_become_text(value: Any, unit: str, text: str) -> None:
    assert time_of(value, unit) == text


@given(st.integers(-(10**14), 10**14), st.sampled_from(EPOCHS))
def test_whole_epochs_are_exact(number: int, unit: str) -> None:
    micros = number * 10**6 // {"epoch_s": 1, "epoch_ms": 10**3, "epoch_us": 10**6, "epoch_ns": 10**9}[unit]
    if timestamps.is_writable(micros):
        assert time_of(number, unit) == timestamps.to_text(micros)


def test_pattern_uses_its_zone() -> None:
    pattern = "%d.%m.%Y %H:%M"
    assert time_of("01.07.2026 12:00", pattern) == "2026-07-01T12:00:00.000000Z"
    assert time_of("01.07.2026 12:00", pattern, zone="Europe/Berlin") == "2026-07-01T10:00:00.000000Z"
    assert time_of("01.07.2026 12:00 +0530", pattern + " %z", zone="Europe/Berlin") == "2026-07-01T06:30:00.000000Z"


@pytest.mark.parametrize("value", ["soon", True, {}, [1], "1" * 30, 10**17, 1e300, "nan", "1e99"])
def test_time_that_does_not_fit_is_refused_with_its_reason(value: Any) -> None:
    raw = json.dumps({"vid": "a", "time": value}).encode()
    ((shown, reason),) = decoded(raw, times=(("*", "epoch_ms"),))
    assert shown == raw
    assert reason is not None
    assert reason.startswith("time: expected a ")


def test_only_named_times_are_converted_also_inside_objects() -> None:
    ((event, _),) = decoded(b'{"time":1,"pos":{"at":2000,"x":3}}', times=(("pos.at", "epoch_ms"),))
    assert event == {"time": 1, "pos": {"at": "1970-01-01T00:00:02.000000Z", "x": 3}}


def test_missing_times_and_other_json_pass() -> None:
    for raw in (b'{"vid":"a"}', b'{"time":null}', b'{"pos":7}', b"[1]", b"not json", b""):
        ((_, reason),) = PayloadDecoder(SCHEMA, Kafka("t", times=(("*", "epoch_s"),)), "json").decode(raw)
        assert reason is None


def test_long_integers_keep_their_digits_beside_a_converted_time() -> None:
    ((event, _),) = decoded(b'{"time":0,"n":18446744073709551615}', times=(("*", "epoch_s"),))
    assert event["n"] == 18446744073709551615


def test_deeply_nested_event_is_no_crash() -> None:
    raw = b'{"time":0,"a":' + b"[" * 1020 + b"]" * 1020 + b"}"
    PayloadDecoder(SCHEMA, Kafka("t", times=(("*", "epoch_s"),)), "json").decode(raw)


def test_bad_pattern_is_refused() -> None:
    with pytest.raises(SourceError, match=r"times: '%Q' is not a pattern of strptime"):
        TimeConverter(SCHEMA, Kafka("t", times=(("*", "%Q"),)))
