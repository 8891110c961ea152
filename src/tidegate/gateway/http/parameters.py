"""Parses the query parameters of consumers. Functions raise `HttpProblem` (400) that names the wrong parameter."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tidegate.delivery.conflation import Conflation
from tidegate.delivery.encoding import Encoding
from tidegate.delivery.start import Start
from tidegate.filters import Filter
from tidegate.filters.meaning import Meaning
from tidegate.gateway.http.problems import HttpProblem, bad_parameter
from tidegate.logs import Cursor
from tidegate.model import Schema, timestamps, units

FORMATS = ("cloudevents", "plain")


def start(cursor: str | None, begin: str | None, latest: str | None = None) -> Start:
    """Return where a subscription starts: after a cursor, or at `now`, `beginning`, a time, or `10m` ago.

    With `latest` and no start, the whole stream is searched for the latest events.

    >>> start(None, "beginning")
    Start(cursor=None, since_micros=None, beginning=True)
    """
    if cursor in ("now", "beginning") and not begin:  # a cursor is never such a word
        cursor, begin = None, cursor
    if cursor and begin:
        raise HttpProblem(400, "bad-parameter", "A parameter can't be used", "expected cursor or from, not both")
    if cursor:
        return Start(cursor=Cursor.from_text(cursor))
    if not begin and latest:
        return Start(beginning=True)
    if not begin or begin == "now":
        return Start()
    if begin == "beginning":
        return Start(beginning=True)
    moment = _moment(begin)
    if moment is None:
        raise bad_parameter("from", begin, "now, beginning, a moment such as 2026-01-01T00:00:00Z, or 10m")
    if moment > time.time_ns() // 1_000:
        raise bad_parameter("from", begin, "a moment that has been")
    return Start(since_micros=moment)


def end(text: str | None, begin: Start) -> int | None:
    """Return the time in microseconds at which a history ends; None: now."""
    if not text or text == "now":
        return None
    moment = _moment(text)
    if moment is None:
        raise bad_parameter("to", text, "now, a moment such as 2026-01-01T00:00:00Z, or 10m")
    if begin.since_micros is not None and moment < begin.since_micros:
        raise bad_parameter("to", text, "a moment that is not before from")
    return None if moment > time.time_ns() // 1_000 else moment


def _moment(text: str) -> int | None:
    """Return a moment in microseconds since 1970: an RFC 3339 time, or `10m` ago. None for any other text."""
    moment = timestamps.from_text(text)
    if moment is None and (ago := units.seconds(text)) is not None:
        moment = time.time_ns() // 1_000 - round(ago * 1e6)
    return moment


def filter_(
    text: str | None, params: Sequence[str] | None, schema: Schema, meaning: Meaning | None = None
) -> Filter | None:
    """Compile a filter over the events of a service; None means all events. Raises a `FilterError` too."""
    if not (text or "").strip():
        if params:
            raise bad_parameter("param", params[0], "no parameter, as there is no filter")
        return None
    compiled = Filter(text or "", schema, list(params) if params else None, semantics=meaning)
    compiled.require_evaluable()
    return compiled


def encoding(format_: str | None, select: str | None, schema: Schema) -> Encoding:
    """Return the encoding of events: the format, and the selected attributes."""
    if format_ not in (None, *FORMATS):
        raise bad_parameter("format", format_ or "", " or ".join(FORMATS))
    names = None if not select else tuple(name.strip() for name in select.split(",") if name.strip())
    attributes = [field.name for field in schema.root]
    for name in names or ():
        if name not in attributes:
            raise bad_parameter("select", name, f"attributes of the service: {', '.join(attributes)}")
    return Encoding("plain" if format_ == "plain" else "cloudevents", names)


def conflation(every_s: float | None, key: str | None, schema: Schema, default: str | None = None) -> Conflation:
    """Return the conflation interval in seconds, and the key attribute.

    `default` is the key if `key` is None. An empty `key` conflates all events together.
    """
    if every_s is None and key:
        raise bad_parameter("key", key, "every with it: the latest event per key is sent in each interval")
    if key:
        need_attribute("key", key, schema)
    return every_s, default if key is None else key or None


def latest(text: str | None, schema: Schema, default: str | None) -> str | None:
    """Return the attribute whose latest event per value is sent first; `true` is the service's key, `default`."""
    if not text:
        return None
    if text.lower() in ("true", "1") and schema.root.get(text) is None and default is not None:
        return default
    need_attribute("latest", text, schema)
    return text


def need_attribute(name: str, value: str, schema: Schema) -> None:
    """Raise `HttpProblem` (400) unless `value` is an attribute of the schema."""
    if schema.root.get(value) is None:
        attributes = ", ".join(field.name for field in schema.root)
        raise bad_parameter(name, value, f"an attribute of the service: {attributes}")


def seconds(name: str, text: str | None, highest: float, lowest: float = 0.0) -> float | None:
    """Parse a duration into seconds; a bare number is seconds. None if there is no text.

    >>> seconds("wait", "500ms", 60)
    0.5
    """
    if text is None or text == "":
        return None
    duration_s = units.seconds_or_bare(text)
    if duration_s is None or not lowest <= duration_s <= highest:
        raise bad_parameter(
            name, text, f"a length of time from {lowest:g}{'s' if lowest else ''} to {highest:g}s, such as 500ms or 30s"
        )
    return duration_s
