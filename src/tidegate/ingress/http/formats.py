"""Parses the body of a request by its content type: JSON, NDJSON, CloudEvents or Arrow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from email.message import Message
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from tidegate.errors import BodyError, BodyTooLarge, MediaTypeError, MissingDependency, Violation
from tidegate.ingress.http import cloudevents, json_spans
from tidegate.ingress.http.cloudevents import Envelope
from tidegate.ingress.http.settings import IngestSettings
from tidegate.model import Schema
from tidegate.model.events import show

_WHITESPACE = b" \t\r\n"
MAX_CONTAINERS_PER_EVENT = 10
"""Average number of objects and arrays per event in a request of maximum size; each takes about 60 bytes in memory."""

Headers = Mapping[str, str]


@dataclass(slots=True)
class ParsedBody:
    """The events of one body, in order."""

    raws: Sequence[bytes]
    """The bytes of each event."""
    events: Sequence[Any]
    """Each event as a JSON value; None if it could not be parsed."""
    problems: dict[int, list[Violation]] = field(default_factory=dict)
    """Violations by index of the event, found before the check of the schema."""
    envelopes: Sequence[Envelope] | None = None
    """Ids and times of CloudEvents envelopes; None for other formats."""
    lines: Sequence[int] | None = None
    """Line number of each event; None if events are not lines."""


class _Body(NamedTuple):
    """The input of a format's parser."""

    data: bytes
    headers: Headers
    schema: Schema
    settings: IngestSettings


_DEFAULTS = IngestSettings()


def parse(
    content_type: str | None, headers: Headers, body: bytes, schema: Schema, settings: IngestSettings = _DEFAULTS
) -> ParsedBody:
    """Parse the events of a body. Raises MediaTypeError for a content type that is not supported.

    Raises BodyError if the body as a whole can't be parsed. A bad line of NDJSON, or a bad envelope, is a problem of
    its event only.
    """
    kind = _media_type(content_type or "")
    if kind != _ARROW:
        _need_few_containers(body, settings.request_events)
    attributes = cloudevents.attributes_of_headers(headers)
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
        shown = f"content type {kind!r:.80}" if kind else "no content type"
        raise MediaTypeError(f"{shown}; expected one of {', '.join(_READERS)}")
    charset = message.get_param("charset")
    if charset is not None and str(charset).lower() not in ("utf-8", "utf8", "us-ascii"):
        raise MediaTypeError(f"charset {charset!r:.40} of {kind}; expected utf-8")
    return kind


def _need_few_containers(data: bytes, events: int) -> None:
    """Refuse bodies that would take a hundred times their size in memory. Also counts brackets inside of strings."""
    max_containers = events * MAX_CONTAINERS_PER_EVENT
    if len(data) > 2 * max_containers and data.count(b"{") + data.count(b"[") > max_containers:
        raise BodyTooLarge(f"expected at most {max_containers:,} objects and arrays in one request: send several")


def _need_few(count: int, max_count: int, unit: str = "events") -> None:
    if count > max_count:
        raise BodyTooLarge(f"expected at most {max_count:,} {unit} in one request, not {count:,}: send several")


# JSON ----------------------------------------------------------------------------


def _read_json(body: _Body) -> ParsedBody:
    value = _load_json(body.data, "a JSON object, or an array of objects")
    if isinstance(value, list):
        _need_few(len(value), body.settings.request_events)
        return ParsedBody(_items(body.data), value)
    if not isinstance(value, dict):
        raise BodyError(f"expected a JSON object, or an array of objects, not {show(value)}")
    return ParsedBody([body.data], [value])


def _read_lines(body: _Body) -> ParsedBody:
    _need_few(body.data.count(b"\n"), body.settings.request_events, "lines")
    raws = [line.strip(_WHITESPACE) for line in body.data.split(b"\n")]
    if raws and not raws[-1]:
        raws.pop()
    numbers: Sequence[int] = range(1, len(raws) + 1)
    if b"" in raws:
        numbers = [number for number, raw in zip(numbers, raws, strict=True) if raw]
        raws = [raw for raw in raws if raw]
    loads = orjson.loads
    try:
        return ParsedBody(raws, [loads(raw) for raw in raws], lines=numbers)
    except ValueError:
        return _read_broken_lines(raws, numbers)


def _read_broken_lines(raws: Sequence[bytes], numbers: Sequence[int]) -> ParsedBody:
    """Parse line by line if at least one line is not JSON."""
    events: list[Any] = []
    problems: dict[int, list[Violation]] = {}
    for n, raw in enumerate(raws):
        try:
            events.append(orjson.loads(raw))
        except orjson.JSONDecodeError as exc:
            events.append(None)
            problems[n] = [Violation("event", f"expected a JSON object: {exc.msg} at column {exc.colno}")]
    return ParsedBody(raws, events, problems, lines=numbers)


def _load_json(data: bytes, expected: str) -> Any:
    if not data.strip(_WHITESPACE):
        raise BodyError(f"expected {expected}, not an empty body")
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as exc:
        raise BodyError(f"expected {expected}: {exc.msg} at line {exc.lineno}, column {exc.colno}") from exc


def _items(data: bytes) -> list[bytes]:
    """Return the bytes of each item of an array."""
    text = data.decode()
    try:
        return [text[begin:end].encode() for begin, end in json_spans.items(text)]
    except RecursionError as exc:
        raise BodyError("expected events that are objects of attributes, not ones nested so deep") from exc


# CloudEvents ---------------------------------------------------------------------


def _read_binary(attributes: Mapping[str, Any], data: bytes) -> ParsedBody:
    """Parse one event with its envelope in headers."""
    value = _load_json(data, "a JSON object")
    if not isinstance(value, dict):
        raise BodyError(f"expected a JSON object as the data of an event with ce- headers, not {show(value)}")
    problems = list(cloudevents.violations(attributes, "ce-"))
    return ParsedBody([data], [value], {0: problems} if problems else {}, [cloudevents.envelope(attributes)])


def _read_structured(body: _Body) -> ParsedBody:
    value = _load_json(body.data, "a CloudEvents object")
    if not isinstance(value, dict):
        raise BodyError(f"expected a CloudEvents object, not {show(value)}; more than one come as {_BATCH}")
    return _unwrap([body.data], [value])


def _read_batch(body: _Body) -> ParsedBody:
    value = _load_json(body.data, "an array of CloudEvents objects")
    if not isinstance(value, list):
        raise BodyError(f"expected an array of CloudEvents objects, not {show(value)}; a single one comes as {_SINGLE}")
    _need_few(len(value), body.settings.request_events)
    return _unwrap(_items(body.data), value)


def _unwrap(raws: list[bytes], values: list[Any]) -> ParsedBody:
    """Return the data of each envelope, as bytes and as values."""
    problems: dict[int, list[Violation]] = {}
    events: list[Any] = []
    envelopes: list[Envelope] = []
    for n, value in enumerate(values):
        violations = list(cloudevents.structured_violations(value))
        if violations:
            problems[n] = violations
            events.append(None)
            envelopes.append(Envelope())
            continue
        raws[n] = _data(raws[n])
        events.append(value["data"])
        envelopes.append(cloudevents.envelope(value))
    return ParsedBody(raws, events, problems, envelopes)


def _data(raw: bytes) -> bytes:
    text = raw.decode()
    try:
        span = json_spans.member(text, "data")
    except RecursionError as exc:
        raise BodyError("expected data that is an object of attributes, not one nested so deep") from exc
    assert span is not None
    return text[span[0] : span[1]].encode()


# Arrow ---------------------------------------------------------------------------


def _read_arrow(body: _Body) -> ParsedBody:
    try:
        from tidegate.ingress.http import arrow, arrow_bounds
    except ModuleNotFoundError as exc:
        raise MissingDependency("pyarrow", "arrow") from exc
    bounds = arrow_bounds.ArrowBounds(body.settings.request_events, body.settings.decoded_bytes)
    raws = arrow.rows(body.data, body.schema, bounds)
    return ParsedBody(raws, [orjson.loads(raw) for raw in raws])


_ARROW = "application/vnd.apache.arrow.stream"
_SINGLE = "application/cloudevents+json"
_BATCH = "application/cloudevents-batch+json"
_STRUCTURED = (_SINGLE, _BATCH)

_READERS: dict[str, Callable[[_Body], ParsedBody]] = {
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
"""Content types that `parse` supports."""
