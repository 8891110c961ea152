"""The values that a client returns: events, notices, pages, receipts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Format = Literal["cloudevents", "plain"]
HistoryFormat = Literal["arrow", "parquet"]


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a service."""

    id: str
    cursor: str | None
    """The position after this event. None inside a page: only the last event of a page has a cursor."""
    data: dict[str, Any]
    """The attributes."""
    time: str | None
    """The event time, RFC 3339."""
    envelope: dict[str, Any] = field(default_factory=dict)
    """The CloudEvents attributes without the data; empty with `format="plain"`."""
    text: str = field(default="", repr=False, compare=False)
    """The whole event as it was received, one line of JSON."""


def parse_event(text: str, cursor: str | None, format_: Format | None) -> Event:
    """Parse an event. If `format_` is None, an event with an `_id` is plain and any other is a CloudEvent.

    Raises ValueError, KeyError, TypeError or AttributeError if the text is not an event.

    >>> parse_event('{"_id": "a:0:7", "_time": null, "speed": 61.5}', "c", "plain")
    Event(id='a:0:7', cursor='c', data={'speed': 61.5}, time=None, envelope={})
    """
    fields = json.loads(text)
    if format_ == "plain" or (format_ is None and "_id" in fields):
        id_, time = fields.pop("_id"), fields.pop("_time", None)
        return Event(id_, cursor, fields, time, {}, text)
    data = fields.pop("data")
    return Event(fields["id"], cursor, data, fields.get("time"), fields, text)


NoticeKind = Literal["gap", "changed", "idle", "latest", "lost"]


@dataclass(frozen=True, slots=True)
class Notice:
    """A message about a subscription, at its position between two events."""

    kind: NoticeKind
    """`gap`: retention has removed events that the cursor pointed to. `changed`: the following events are those of
    another filter. `idle`: no event has come for the time that was asked for. `latest`: the newest event of each key
    has been delivered, all events follow. `lost`: the connection was lost and will be made again."""
    cursor: str | None
    said: Mapping[str, Any] = field(default_factory=dict)
    """The details, which depend on the kind."""


@dataclass(frozen=True, slots=True)
class Page:
    """Consecutive events and the cursor for the next page."""

    events: tuple[Event, ...]
    cursor: str | None
    """None if the service has no output yet; then continue with `since="beginning"`."""
    gap: Mapping[str, Any] | None = None
    """The reason, if events before this page were missed."""
    latest: Mapping[str, Any] | None = None
    """Set on the last page of the newest events of each key; then continue without `latest`."""


def parse_page(document: Mapping[str, Any], format_: Format | None) -> Page:
    """Parse the answer to a request for a page. Raises as `parse_event` does."""
    cursor = document["cursor"] or None
    texts = [json.dumps(event, ensure_ascii=False, separators=(",", ":")) for event in document["events"]]
    last = len(texts) - 1
    events = tuple(parse_event(text, cursor if n == last else None, format_) for n, text in enumerate(texts))
    return Page(events, cursor, document.get("gap"), document.get("latest"))


@dataclass(frozen=True, slots=True)
class Refusal:
    """One problem with one published event."""

    index: int
    """Index of the event among all events of the call, from 0."""
    path: str
    message: str

    def __str__(self) -> str:
        return f"event {self.index}: {self.path}: {self.message}"


@dataclass(frozen=True, slots=True)
class Receipt:
    """The result of publishing."""

    accepted: int = 0
    """Events that were appended to the log."""
    duplicates: int = 0
    """Events whose id was in the log already."""
    refused: int = 0
    """Events that are not valid."""
    errors: tuple[Refusal, ...] = ()
    """The problems of the first refused events."""
    cursor: str | None = None
    """The position after the appended events; None if none was appended."""
