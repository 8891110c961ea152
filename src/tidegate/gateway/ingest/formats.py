"""What a body holds, by its content type: events, and what is no event."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from email.message import Message
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from tidegate.errors import BodyError, BodyTooLarge, MediaTypeError, MissingDependency, Violation
from tidegate.gateway.ingest import cloudevents, spans
from tidegate.gateway.ingest.cloudevents import Envelope
from tidegate.gateway.ingest.settings import IngestSettings
from tidegate.model import Schema
from tidegate.model.events import show

_WHITE = b" \t\r\n"
CONTAINERS_PER_EVENT = 10
"""Objects and arrays that each event of the largest request may have: each takes some sixty bytes when it is parsed."""

Headers = Mapping[str, str]


@dataclass(slots=True)
class Parsed:
    """The events of one body, in order."""

    raws: Sequence[bytes]
    """Each as it was written."""
    events: Sequence[Any]
    """Each as a JSON value; None where it is none."""
    problems: dict[int, list[Violation]] = field(default_factory=dict)
    """What is wrong with some, before their schema is asked."""
    envelopes: Sequence[Envelope] | None = None
    """Ids and times that came around the events."""
    lines: Sequence[int] | None = None
    """Which line of the body each is; None: they are no lines."""


class _Body(NamedTuple):
    """What a reader of a format is given."""

    data: bytes
    headers: Headers
    schema: Schema
    settings: IngestSettings


_DEFAULTS = IngestSettings()


def parse(
    content_type: str | None, headers: Headers, body: bytes, schema: Schema, settings: IngestSettings = _DEFAULTS
) -> Parsed:
    """Take the events out of a body.

    A body that can't be understood as a whole is a `BodyError`; a line of NDJSON,
    or an envelope, that can't be is a problem of this event.
    """
    kind = _media_type(content_type or "")
    if kind != _ARROW:
        _need_few_containers(body, settings.request_events)
    attributes = cloudevents.of_headers(headers)
    if attributes and kind not in _STRUCTURED:
        if kind != "application/json":
            raise MediaTypeError(f"events with ce- headers carry application/json, not {kind}")
        return _read_binary(attributes, body)
    return _READERS[kind](_Body(body, headers, schema, settings))


@lru_cache(maxsize=256)
def _media_type(content_type: str) -> str:
    message = Message()
    message["content-type"] = content_type
    kind = content_type.partition(";")[0].strip().lower()
    if kind not in _READERS:
        given = f"content type {kind!r:.80}" if kind else "no content type"
        raise MediaTypeError(f"{given}; expected one of {', '.join(_READERS)}")
    charset = message.get_param("charset")
    if charset is not None and str(charset).lower() not in ("utf-8", "utf8", "us-ascii"):
        raise MediaTypeError(f"charset {charset!r:.40} of {kind}; expected utf-8")
    return kind


def _need_few_containers(data: bytes, events: int) -> None:
    """Refuse what would take a hundred times its bytes when it is parsed. Brackets inside texts count, too."""
    most = events * CONTAINERS_PER_EVENT
    if len(data) > 2 * most and data.count(b"{") + data.count(b"[") > most:
        raise BodyTooLarge(f"expected at most {most:,} objects and arrays in one request: send several")


def _need_few(count: int, most: int, what: str = "events") -> None:
    if count > most:
        raise BodyTooLarge(f"expected at most {most:,} {what} in one request, not {count:,}: send several")


# JSON ----------------------------------------------------------------------------


def _read_json(body: _Body) -> Parsed:
    value = _loaded(body.data, "a JSON object, or an array of objects")
    if isinstance(value, list):
        _need_few(len(value), body.settings.request_events)
        return Parsed(_items(body.data), value)
    if not isinstance(value, dict):
        raise BodyError(f"expected a JSON object, or an array of objects, not {show(value)}")
    return Parsed([body.data], [value])


def _read_lines(body: _Body) -> Parsed:
    _need_few(body.data.count(b"\n"), body.settings.request_events, "lines")
    raws = [line.strip(_WHITE) for line in body.data.split(b"\n")]
    if raws and not raws[-1]:
        raws.pop()
    numbers: Sequence[int] = range(1, len(raws) + 1)
    if b"" in raws:
        numbers = [number for number, raw in zip(numbers, raws, strict=True) if raw]
        raws = [raw for raw in raws if raw]
    loads = orjson.loads
    try:
        return Parsed(raws, [loads(raw) for raw in raws], lines=numbers)
    except ValueError:
        return _read_broken_lines(raws, numbers)


def _read_broken_lines(raws: Sequence[bytes], numbers: Sequence[int]) -> Parsed:
    """Line by line, where at least one is no JSON."""
    events: list[Any] = []
    problems: dict[int, list[Violation]] = {}
    for n, raw in enumerate(raws):
        try:
            events.append(orjson.loads(raw))
        except orjson.JSONDecodeError as exc:
            events.append(None)
            problems[n] = [Violation("event", f"expected a JSON object: {exc.msg} at column {exc.colno}")]
    return Parsed(raws, events, problems, lines=numbers)


def _loaded(data: bytes, expected: str) -> Any:
    if not data.strip(_WHITE):
        raise BodyError(f"expected {expected}, not an empty body")
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as exc:
        raise BodyError(f"expected {expected}: {exc.msg} at line {exc.lineno}, column {exc.colno}") from exc


def _items(data: bytes) -> list[bytes]:
    """Each item of an array as it was written."""
    text = data.decode()
    try:
        return [text[begin:end].encode() for begin, end in spans.items(text)]
    except RecursionError as exc:
        raise BodyError("expected events that are objects of attributes, not ones nested so deep") from exc


# CloudEvents ---------------------------------------------------------------------


def _read_binary(attributes: Mapping[str, Any], data: bytes) -> Parsed:
    """One event, its envelope in headers."""
    value = _loaded(data, "a JSON object")
    if not isinstance(value, dict):
        raise BodyError(f"expected a JSON object as the data of an event with ce- headers, not {show(value)}")
    problems = list(cloudevents.violations(attributes, "ce-"))
    return Parsed([data], [value], {0: problems} if problems else {}, [cloudevents.envelope(attributes)])


def _read_structured(body: _Body) -> Parsed:
    value = _loaded(body.data, "a CloudEvents object")
    if not isinstance(value, dict):
        raise BodyError(f"expected a CloudEvents object, not {show(value)}; more than one come as {_BATCH}")
    return _unwrapped([body.data], [value])


def _read_batch(body: _Body) -> Parsed:
    value = _loaded(body.data, "an array of CloudEvents objects")
    if not isinstance(value, list):
        raise BodyError(f"expected an array of CloudEvents objects, not {show(value)}; a single one comes as {_SINGLE}")
    _need_few(len(value), body.settings.request_events)
    return _unwrapped(_items(body.data), value)


def _unwrapped(raws: list[bytes], values: list[Any]) -> Parsed:
    """The data of each envelope as it was written."""
    problems: dict[int, list[Violation]] = {}
    events: list[Any] = []
    envelopes: list[Envelope] = []
    for n, value in enumerate(values):
        found = list(cloudevents.problems(value))
        if found:
            problems[n] = found
            events.append(None)
            envelopes.append(Envelope())
            continue
        raws[n] = _data(raws[n])
        events.append(value["data"])
        envelopes.append(cloudevents.envelope(value))
    return Parsed(raws, events, problems, envelopes)


def _data(raw: bytes) -> bytes:
    text = raw.decode()
    try:
        place = spans.member(text, "data")
    except RecursionError as exc:
        raise BodyError("expected data that is an object of attributes, not one nested so deep") from exc
    assert place is not None
    return text[place[0] : place[1]].encode()


# Arrow ---------------------------------------------------------------------------


def _read_arrow(body: _Body) -> Parsed:
    try:
        from tidegate.gateway.ingest import arrow, ipc
    except ModuleNotFoundError as exc:
        raise MissingDependency("pyarrow", "arrow") from exc
    bounds = ipc.Bounds(body.settings.request_events, body.settings.decoded_bytes)
    raws = arrow.rows(body.data, body.schema, bounds)
    return Parsed(raws, [orjson.loads(raw) for raw in raws])


_ARROW = "application/vnd.apache.arrow.stream"
_SINGLE = "application/cloudevents+json"
_BATCH = "application/cloudevents-batch+json"
_STRUCTURED = (_SINGLE, _BATCH)

_READERS: dict[str, Callable[[_Body], Parsed]] = {
    "application/json": _read_json,
    "application/x-ndjson": _read_lines,
    "application/ndjson": _read_lines,
    "application/jsonl": _read_lines,
    "application/json-lines": _read_lines,
    _SINGLE: _read_structured,
    _BATCH: _read_batch,
    _ARROW: _read_arrow,
}

CONTENT_TYPES = tuple(_READERS)
"""What a body may be."""
