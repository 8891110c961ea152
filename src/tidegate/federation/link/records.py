"""Records as mirrors hold them: with their id, and with their position at the origin as `_src`.

`"_src":"gps@city/1f2e3d4c/gps_taxi.0:4096"` is the record at offset 4096 of partition `gps_taxi.0` of the stream `gps`,
generation `1f2e3d4c`, at the broker `city`. It stays the same over all links: each broker recognises by it the records
that it has. Everything before the colon is called the *source*.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from tidegate.errors import FederationError
from tidegate.logs.gap_records import MAX_OFFSET, is_gap_record, parse_gap_record
from tidegate.logs.log import is_name
from tidegate.logs.marks import source_of
from tidegate.model.hashed_ids import HashedIds

_RECEIVED = re.compile(
    rb'\{"_id":(?:"(?:[^"\\]|\\.)*"|null),"_src":"(([^"\\/]+)/([^"\\/]+)/([^"\\/]+)):([0-9]{1,19})"(?=[,}])'
)
"""The start of a record as every broker sends it: its id, then its position at the origin."""
_FRONT = re.compile(rb'\{"_id":("(?:[^"\\]|\\.)*")(?:,"_src":"(?:[^"\\]|\\.)*")?(?=[,}])')


class OriginPosition(NamedTuple):
    """The position of a record at its origin."""

    source: str
    """`service@origin/generation/partition`"""
    partition: str
    offset: int


def with_metadata(
    record: bytes, event: Mapping[str, Any] | None, source: str, hidden: frozenset[str], ids: HashedIds | None = None
) -> bytes:
    """Return a record as it leaves its origin: `_id` first, then `_src`, without the `hidden` attributes.

    `event` is the parsed record, if the caller has it. `ids` hashes the id. The record is parsed only if necessary.

    >>> with_metadata(b'{"_id":"a:0:7","_src":"a/0:7","speed":61.50}', None, "gps@city/1f/0:42", frozenset())
    b'{"_id":"a:0:7","_src":"gps@city/1f/0:42","speed":61.50}'
    """
    if not hidden and ids is None:
        front = _FRONT.match(record)
        if front is not None:
            return b'{"_id":%s,"_src":"%s"%s' % (front[1], source.encode(), record[front.end() :])
    event = orjson.loads(record) if event is None else event
    shown = {name: value for name, value in event.items() if name not in hidden and name not in ("_id", "_src")}
    if hidden:
        shown.pop("_violations", None)  # violated constraints reveal hidden values
    id_ = event.get("_id")
    if ids is not None and isinstance(id_, str):
        id_ = ids.render(id_)
    return orjson.dumps({"_id": id_, "_src": source, **shown})


def origin_position(record: bytes) -> OriginPosition:
    """Return the position of a mirror's record at its origin. A gap record has that of the last lost record.

    For records of our own log. Raises a `FederationError` if there is no position.
    """
    if is_gap_record(record):
        lost = parse_gap_record(record)
        return OriginPosition(lost.source, lost.partition, lost.resumed_at - 1)
    position = source_of(record)
    if position is None or not isinstance(position[1], int) or position[0].count("/") != 2:
        raise FederationError(f"expected a record with its position at its origin, not {record[:80]!r}")
    return OriginPosition(position[0], position[0].rpartition("/")[2], position[1])


def check_received(record: bytes, service: str) -> OriginPosition:
    """Return the position of a record that a neighbour has sent. Raises a `FederationError` if it is malformed.

    The whole record is parsed: it must be one JSON object with exactly one position, in this service, and with a
    partition and an offset that a log can have.
    """
    if is_gap_record(record):
        lost = parse_gap_record(record)
        position = OriginPosition(lost.source, lost.partition, lost.resumed_at - 1)
    else:
        front = _RECEIVED.match(record)
        try:
            event = None if front is None else orjson.loads(record)
        except orjson.JSONDecodeError:
            event = None
        if front is None or not isinstance(event, dict):
            raise FederationError(f"expected a record with its id and its position at its origin, not {record[:80]!r}")
        position = OriginPosition(front[1].decode(), front[4].decode(), int(front[5]))
        if event["_src"] != f"{position.source}:{position.offset}":
            raise FederationError(f"expected a record with one position at its origin, not {record[:120]!r}")
    if position.source.partition("/")[0] != service:
        raise FederationError(f"expected a record of {service!r}, not one of {position.source!r:.120}")
    if not is_name(position.partition) or position.offset >= MAX_OFFSET:
        raise FederationError(f"expected a partition and an offset that a log can have, not {record[:120]!r}")
    return position
