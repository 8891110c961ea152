"""Turns the messages of a source into events: JSON, JSON lines or CSV, with times in the source's own form."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import orjson

from tidegate.errors import SourceError
from tidegate.expressions.zones import zone
from tidegate.ingress.feeds.file_formats import READERS, FilePosition, RecordShape
from tidegate.model import Schema, timestamps
from tidegate.services.sources.event_format import EPOCHS, OTHERS, EventFormat, TextFormat, timestamp_paths

TimeReader = Callable[[Any], int]
"""Returns the microseconds since 1970 UTC of a value. Raises ValueError."""

_DIVISORS = dict(zip(EPOCHS, (1, 10**3, 10**6, 10**9), strict=True))
_WHOLE = re.compile(r"[+-]?[0-9]{1,20}")
_NUMBER = re.compile(r"[+-]?[0-9]{1,20}(\.[0-9]{0,20})?([eE][+-]?[0-9]{1,2})?")


class Decoded(NamedTuple):
    """One event of a message."""

    raw: bytes
    """A JSON object, as far as its format says; if there is a reason, the bytes of the message."""
    reason: str | None = None
    """Why it is refused; None: it is not."""


class PayloadDecoder:
    """Decodes the messages of one source."""

    def __init__(self, schema: Schema, source: EventFormat, text_format: TextFormat) -> None:
        self._read = None if text_format == "json" else READERS[text_format]
        self._shape = RecordShape(schema, source.columns)
        self.times = TimeConverter(schema, source)

    def decode(self, raw: bytes) -> list[Decoded]:
        """Return the events of a message, at least one: an unreadable message is one that is refused."""
        if self._read is None:
            return [self.times.convert(raw)]
        records: list[Decoded] = []
        try:
            for record in self._read(io.BytesIO(raw), FilePosition(), self._shape, True):
                records.append(
                    Decoded(record.raw, record.reason) if record.reason is not None else self.times.convert(record.raw)
                )
        except SourceError as exc:
            return [Decoded(raw, str(exc))]
        return records or [Decoded(raw, "the message has no event")]


class TimeConverter:
    """Replaces the times of events by RFC 3339 text, the form on the wire."""

    def __init__(self, schema: Schema, source: EventFormat) -> None:
        """Raises SourceError for a pattern that Python can't read."""
        zone_info = None if source.zone is None else zone(source.zone)
        formats = dict(source.times)
        self._readers: list[tuple[tuple[str, ...], TimeReader]] = []
        for name, path in timestamp_paths(schema).items():
            time_format = formats.get(name, formats.get(OTHERS))
            if time_format is not None:
                self._readers.append((path, _time_reader(time_format, zone_info)))

    def convert(self, raw: bytes) -> Decoded:
        """Return an event with its times as text. Anything but a JSON object is returned unchanged."""
        if not self._readers:
            return Decoded(raw)
        try:
            if type(orjson.loads(raw)) is not dict:
                return Decoded(raw)
            event = json.loads(raw)  # unlike orjson, it keeps all digits of long integers
        except ValueError:
            return Decoded(raw)  # the writer refuses it with the reason
        except RecursionError:
            return Decoded(raw, "nested too deeply")
        for path, read in self._readers:
            try:
                _replace(event, path, read)
            except ValueError as exc:
                return Decoded(raw, f"{'.'.join(path)}: {exc}")
        return Decoded(json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode())


def _replace(event: dict[str, Any], path: tuple[str, ...], read: TimeReader) -> None:
    inner: Any = event
    for name in path[:-1]:
        inner = inner.get(name)
        if not isinstance(inner, dict):
            return
    value = inner.get(path[-1])
    if value is not None:
        micros = read(value)
        if not timestamps.is_writable(micros):
            raise ValueError(f"expected a time in the years 1 to 9999, not {value!r:.60}")
        inner[path[-1]] = timestamps.to_text(micros)


def _time_reader(time_format: str, zone_info: ZoneInfo | None) -> TimeReader:
    if time_format in _DIVISORS:
        return partial(_from_epoch, time_format)
    try:
        datetime.strptime(datetime(2026, 1, 2, tzinfo=UTC).strftime(time_format), time_format)  # noqa: DTZ007
    except (ValueError, re.error) as exc:
        raise SourceError(f"times: {time_format!r} is not a pattern of strptime: {exc}") from exc
    return partial(_from_pattern, time_format, zone_info or UTC)


def _from_epoch(unit: str, value: Any) -> int:
    divisor = _DIVISORS[unit]
    if isinstance(value, str):
        text = value.strip()
        if _WHOLE.fullmatch(text):
            value = int(text)
        elif _NUMBER.fullmatch(text):
            value = float(text)
    if isinstance(value, int) and not isinstance(value, bool):
        return value * 10**6 // divisor
    if isinstance(value, float) and math.isfinite(value):
        return round(value * (10**6 / divisor))
    raise ValueError(f"expected a number of {unit}, not {value!r:.60}")


def _from_pattern(pattern: str, zone_info: Any, value: Any) -> int:
    if not isinstance(value, str):
        raise ValueError(f"expected text such as {pattern!r}, not {value!r:.60}")
    try:
        moment = datetime.strptime(value.strip(), pattern)  # noqa: DTZ007 - it gets its zone below
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=zone_info)
        return timestamps.from_datetime(moment)
    except (ValueError, OverflowError) as exc:
        raise ValueError(f"expected text such as {pattern!r}, not {value!r:.60}") from exc


def with_numbers(decoded: list[Decoded], prefix: str, number: int) -> list[tuple[Decoded, str]]:
    """Return the events of message `number` with their ids.

    The first is `prefix:number`, the next ones `prefix/2:number` and so on. So the ids of many messages are few ranges
    of numbers (`StoredIds`).
    """
    return [
        (event, f"{prefix}:{number}" if line == 1 else f"{prefix}/{line}:{number}")
        for line, event in enumerate(decoded, 1)
    ]
