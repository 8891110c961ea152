"""Events as mirrors hold them: with their ids, and with their place at their origin as `_src`.

`"_src":"gps@city/1f2e3d4c/gps_taxi.0:4096"` is the record at offset 4096 of partition `gps_taxi.0` of the stream `gps`,
of that generation, at the broker `city`. However many brokers pass an event on, its place stays: each knows by it what
it has already.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from tidegate.errors import FederationError
from tidegate.logs.log import is_name
from tidegate.logs.lost import MOST_OFFSET, is_gap, read_note
from tidegate.logs.marks import source_of
from tidegate.model.hashed_ids import HashedIds

_ARRIVED = re.compile(
    rb'\{"_id":(?:"(?:[^"\\]|\\.)*"|null),"_src":"(([^"\\/]+)/([^"\\/]+)/([^"\\/]+)):([0-9]{1,19})"(?=[,}])'
)
"""A record as every broker sends it: first its id, then its place at its origin."""
_FRONT = re.compile(rb'\{"_id":("(?:[^"\\]|\\.)*")(?:,"_src":"(?:[^"\\]|\\.)*")?(?=[,}])')


def dressed(
    record: bytes, event: Mapping[str, Any] | None, source: str, hidden: frozenset[str], ids: HashedIds | None = None
) -> bytes:
    """A record as it leaves its origin; `event` is the record, parsed, where that was done before.

    Without what is `hidden`, and with its id hashed by `ids`.

    >>> dressed(b'{"_id":"a:0:7","_src":"a/0:7","speed":61.50}', None, "gps@city/1f/0:42", frozenset())
    b'{"_id":"a:0:7","_src":"gps@city/1f/0:42","speed":61.50}'
    """
    if not hidden and ids is None:
        front = _FRONT.match(record)
        if front is not None:
            return b'{"_id":%s,"_src":"%s"%s' % (front[1], source.encode(), record[front.end() :])
    event = orjson.loads(record) if event is None else event
    # What was violated tells of values.
    shown = {name: value for name, value in event.items() if name not in hidden and name not in ("_id", "_src")}
    if hidden:
        shown.pop("_violations", None)
    id_ = event.get("_id")
    if ids is not None and isinstance(id_, str):
        id_ = ids.render(id_)
    return orjson.dumps({"_id": id_, "_src": source, **shown})


def place_of(record: bytes) -> tuple[str, str, int]:
    """Where a mirror's record is at its origin: the source, its partition, and the offset.

    What stands for lost records is where the last of them was.
    """
    if is_gap(record):
        lost = read_note(record)
        return lost.source, lost.partition, lost.resumed_at - 1
    found = source_of(record)
    if found is None or not isinstance(found[1], int) or found[0].count("/") != 2:
        raise FederationError(f"expected a record with its place at its origin, not {record[:80]!r}")
    return found[0], found[0].rpartition("/")[2], found[1]


class Place(NamedTuple):
    """Where a record is at its origin."""

    source: str
    """A service, the generation of its stream, and a partition."""
    partition: str
    offset: int


def arrived(record: bytes, service: str) -> Place:
    """Return the place of a record that a neighbour has sent as one of a service; refused where it is none.

    The record is read as a whole: what is appended is one JSON object, and says once where it belongs.
    """
    if is_gap(record):
        lost = read_note(record)
        place = Place(lost.source, lost.partition, lost.resumed_at - 1)
    else:
        front = _ARRIVED.match(record)
        try:
            said = None if front is None else orjson.loads(record)
        except orjson.JSONDecodeError:
            said = None
        if front is None or not isinstance(said, dict):
            raise FederationError(f"expected a record with its id and its place at its origin, not {record[:80]!r}")
        place = Place(front[1].decode(), front[4].decode(), int(front[5]))
        if said["_src"] != f"{place.source}:{place.offset}":
            raise FederationError(f"expected a record with one place at its origin, not {record[:120]!r}")
    if place.source.partition("/")[0] != service:
        raise FederationError(f"expected a record of {service!r}, not one of {place.source!r:.120}")
    if not is_name(place.partition) or place.offset >= MOST_OFFSET:
        raise FederationError(f"expected a partition and an offset that a log can have, not {record[:120]!r}")
    return place
