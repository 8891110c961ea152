"""What a client gives: events, notices, pages, receipts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Format = Literal["cloudevents", "plain"]


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a service."""

    id: str
    cursor: str | None
    """Go on behind it. None: an event within a page, which has just one cursor, for its end."""
    data: dict[str, Any]
    """The attributes."""
    time: str | None
    """When it happened, RFC 3339."""
    envelope: dict[str, Any] = field(default_factory=dict)
    """What CloudEvents say beside the data; empty with `format="plain"`."""
    text: str = field(default="", repr=False, compare=False)
    """All of it as it came, one line of JSON."""


def event(text: str, cursor: str | None, format_: Format | None) -> Event:
    """Read an event; where nobody has said its format, it says so itself.

    >>> event('{"_id": "a:0:7", "_time": null, "speed": 61.5}', "c", "plain")
    Event(id='a:0:7', cursor='c', data={'speed': 61.5}, time=None, envelope={})
    """
    said = json.loads(text)
    if format_ == "plain" or (format_ is None and "_id" in said):
        id_, time = said.pop("_id"), said.pop("_time", None)
        return Event(id_, cursor, said, time, {}, text)
    data = said.pop("data")
    return Event(said["id"], cursor, data, said.get("time"), said, text)


NoticeKind = Literal["gap", "changed", "idle", "latest", "lost"]


@dataclass(frozen=True, slots=True)
class Notice:
    """Something between two events."""

    kind: NoticeKind
    """Events were missed; the filter is another from here on; nothing has come for a while; all before it was the
    newest of each key; the connection was lost, and will be made again."""
    cursor: str | None
    said: Mapping[str, Any] = field(default_factory=dict)
    """The details."""


@dataclass(frozen=True, slots=True)
class Page:
    """Some events, and where to go on."""

    events: tuple[Event, ...]
    cursor: str | None
    """None: the service has no output yet, and all of it will be new: go on with `since="beginning"`."""
    gap: Mapping[str, Any] | None = None
    """Set where events before these were missed, with the reason."""
    latest: Mapping[str, Any] | None = None
    """Set where these are the last of the newest of each key: go on without `latest`."""


def page(said: Mapping[str, Any], format_: Format | None) -> Page:
    """Read a page."""
    cursor = said["cursor"] or None
    texts = [json.dumps(each, ensure_ascii=False, separators=(",", ":")) for each in said["events"]]
    last = len(texts) - 1
    events = tuple(event(text, cursor if n == last else None, format_) for n, text in enumerate(texts))
    return Page(events, cursor, said.get("gap"), said.get("latest"))


@dataclass(frozen=True, slots=True)
class Refusal:
    """One thing that is wrong with one event that was published."""

    index: int
    """Which of all that were published, from 0."""
    path: str
    message: str

    def __str__(self) -> str:
        return f"event {self.index}: {self.path}: {self.message}"


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of published events: what is accepted is in the log."""

    accepted: int = 0
    duplicates: int = 0
    """There already, by their ids."""
    refused: int = 0
    errors: tuple[Refusal, ...] = ()
    """The first of them."""
    cursor: str | None = None
    """Behind these events; None where none was appended."""
