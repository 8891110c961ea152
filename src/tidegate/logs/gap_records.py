"""Records in a mirror that are not events: gap records and sync records.

A gap record takes the place of records that were lost before they reached the mirror:

    {"_gap":["gps@city/1f2e3d4c/0",4096,9000]}

says that of partition `0` of `gps` at the broker `city` the records from offset 4096 up to 9000 are lost. Since it is
stored in the mirror, each reader gets the gap once, whenever it reads.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import orjson

from tidegate.errors import LogError
from tidegate.logs.log import Gap, Read

SYNC_RECORD = b'{"_joint":1}'
"""A record without content. It separates the cursors before it from those after it where no event lies between."""
MAX_OFFSET = 1 << 63
"""Offsets are below this: they fit a signed 64-bit integer."""
_PREFIX = b'{"_gap":'


class GapRecord(NamedTuple):
    """A range of lost records of a source partition."""

    source: str
    """`service/generation/partition`."""
    missed_from: int
    resumed_at: int

    @property
    def partition(self) -> str:
        """The partition of the source, and of the mirror that holds this record."""
        return self.source.rpartition("/")[2]

    def encode(self) -> bytes:
        """Return the bytes of the record in the log.

        >>> GapRecord("gps@city/1f/0", 4096, 9000).encode()
        b'{"_gap":["gps@city/1f/0",4096,9000]}'
        """
        return orjson.dumps({"_gap": list(self)})


def is_gap_record(record: bytes) -> bool:
    """True if a stored record is a gap record. Events never match: their first key is `_id`."""
    return bytes(record[: len(_PREFIX)]) == _PREFIX


def is_control_record(record: bytes) -> bool:
    """True if a stored record is a gap record or a sync record, not an event."""
    return is_gap_record(record) or record == SYNC_RECORD


def parse_gap_record(record: bytes) -> GapRecord:
    """Return the content of a gap record. Raises LogError if it is not one."""
    try:
        source, missed_from, resumed_at = orjson.loads(record)["_gap"]
        is_source = isinstance(source, str) and source.count("/") == 2
        if is_source and type(missed_from) is type(resumed_at) is int and 0 <= missed_from <= resumed_at < MAX_OFFSET:
            return GapRecord(source, missed_from, resumed_at)
    except (ValueError, TypeError, KeyError) as exc:
        raise _not_a_gap_record(record) from exc
    raise _not_a_gap_record(record)


def _not_a_gap_record(record: bytes) -> LogError:
    return LogError(f"expected a gap record, not {bytes(record[:80])!r}")


def with_gaps(read: Read) -> Read:
    """Return a read without control records; each gap record becomes a `Gap` at the origin."""
    if not any(map(is_control_record, read.records)):
        return read
    events = [n for n, record in enumerate(read.records) if not is_control_record(record)]
    lost = [parse_gap_record(record) for record in read.records if is_gap_record(record)]
    gaps = (Gap(gap.partition, gap.missed_from, gap.resumed_at, at_origin=True) for gap in lost)
    return replace(
        read,
        records=tuple(read.records[n] for n in events),
        places=tuple(read.places[n] for n in events),
        gaps=(*read.gaps, *gaps),
    )
