"""Encodes events for subscribers: the bytes of a record in an envelope, without parsing and serialising it again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from tidegate.model.hashed_ids import HashedIds
from tidegate.subscriptions import Format, SubscriptionRecord

# The reserved keys that our writers put first in every record.
_TEXT = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_FRONT = re.compile(
    rb'\{"_id":(%s)(?:,"_src":%s)?(?:,"_sig":"[^"\\]*")?(?:,"_time":("[^"\\]*"|null))?(?:,(?=")|(?=\}))'
    % (_TEXT, _TEXT)
)

RESERVED = ("_id", "_src", "_sig", "_time")
"""The keys that are not attributes: an envelope has them elsewhere, or they are internal."""


@dataclass(frozen=True)
class Encoding:
    """How events are written: equal for all subscribers that select and may see the same attributes."""

    format: Format = "cloudevents"
    select: tuple[str, ...] | None = None
    """The attributes that are sent; None: all."""
    hidden: frozenset[str] = frozenset()
    """Attributes that a policy hides."""
    ids: HashedIds | None = None
    """How event ids are hashed; None: they are not hashed."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.format, self.select, self.hidden, self.ids)))

    def __hash__(self) -> int:
        """Return the hash, which is computed once: every event is looked up by its encoding."""
        hash_: int = self._hash  # type: ignore[attr-defined]  # set in __post_init__, as the class is frozen
        return hash_

    def encode(self, service: str, record: bytes, event: Mapping[str, Any]) -> bytes:
        """Return one event of a service in the form for the wire. `event` is the parsed record. Runs on any thread.

        >>> record = b'{"_id":"a:0:7","_src":"a/0:7","_time":"2026-01-01T00:00:00Z","speed":61.50}'
        >>> Encoding("plain").encode("gps", record, orjson.loads(record))
        b'{"_id":"a:0:7","_time":"2026-01-01T00:00:00Z","speed":61.50}'
        """
        id_, time, data = self._parts(record, event)
        if self.format == "plain":
            front = b'{"_id":%s,"_time":%s' % (id_, time)
            return front + data[1:] if data == b"{}" else front + b"," + data[1:]
        time_field = b"" if time == b"null" else b',"time":%s' % time
        return (
            b'{"specversion":"1.0","id":%s,"source":"/v1/services/%s","type":"tidegate.event"%s,'
            b'"datacontenttype":"application/json","data":%s}' % (id_, service.encode(), time_field, data)
        )

    def _parts(self, record: bytes, event: Mapping[str, Any]) -> tuple[bytes, bytes, bytes]:
        """Return the JSON texts of an event's id, time and attributes."""
        if self.select is None and not self.hidden:
            front = _FRONT.match(record)
            if front is not None:
                return self._id(front[1]), front[2] or b"null", b"{" + record[front.end() :]
        data = {name: value for name, value in event.items() if name not in RESERVED and self._shows(name)}
        if self.hidden:
            data.pop("_violations", None)  # violations contain values of hidden attributes
        return self._id(orjson.dumps(event.get("_id"))), orjson.dumps(event.get("_time")), orjson.dumps(data)

    def _id(self, written: bytes) -> bytes:
        """Return an id as JSON, hashed if ids are."""
        if self.ids is None or written == b"null":
            return written
        return orjson.dumps(self.ids.render(str(orjson.loads(written))))

    def _shows(self, name: str) -> bool:
        return name not in self.hidden and (self.select is None or name in self.select)


def encoding_of(subscription: SubscriptionRecord) -> Encoding:
    """Return the encoding that a subscription asks for, without the restrictions of a policy."""
    return Encoding(subscription.format, subscription.select)
