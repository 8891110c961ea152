"""Records that stand for others, which were lost before they came: whoever reads on is told of a gap.

    {"_gap":["gps@city/1f2e3d4c/0",4096,9000]}

says that of partition `0` of `gps` at the broker `city` what was from 4096 on is lost, up to 9000. Such a note lies in
a mirror where those records would, so that each reader meets it once, whenever and wherever it reads.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import orjson

from tidegate.errors import LogError
from tidegate.logs.log import Gap, Read

JOINT = b'{"_joint":1}'
"""A record that stands for nothing: places before it are told from those behind it, where nothing else lies between."""
MOST_OFFSET = 1 << 63
"""No log has as many records: whatever keeps an offset has room for it."""
_FRONT = b'{"_gap":'


class Lost(NamedTuple):
    """A stretch of a source that is gone."""

    source: str
    """A service, the generation of its stream and a partition."""
    missed_from: int
    resumed_at: int

    @property
    def partition(self) -> str:
        """Of the source, and of what stands for it."""
        return self.source.rpartition("/")[2]

    def note(self) -> bytes:
        """The record that stands for it.

        >>> Lost("gps@city/1f/0", 4096, 9000).note()
        b'{"_gap":["gps@city/1f/0",4096,9000]}'
        """
        return orjson.dumps({"_gap": list(self)})


def is_gap(record: bytes) -> bool:
    """Whether a record stands for others: events begin with their id."""
    return bytes(record[: len(_FRONT)]) == _FRONT


def is_note(record: bytes) -> bool:
    """Whether a record is no event."""
    return is_gap(record) or record == JOINT


def read_note(record: bytes) -> Lost:
    """What a note says."""
    try:
        source, missed_from, resumed_at = orjson.loads(record)["_gap"]
        is_said = isinstance(source, str) and source.count("/") == 2
        if is_said and type(missed_from) is type(resumed_at) is int and 0 <= missed_from <= resumed_at < MOST_OFFSET:
            return Lost(source, missed_from, resumed_at)
    except (ValueError, TypeError, KeyError) as exc:
        raise LogError(f"expected a note of what was lost, not {bytes(record[:80])!r}") from exc
    raise LogError(f"expected a note of what was lost, not {bytes(record[:80])!r}")


def told(read: Read) -> Read:
    """What was read, with gaps in place of notes."""
    if not any(map(is_note, read.records)):
        return read
    kept = [n for n, record in enumerate(read.records) if not is_note(record)]
    lost = [read_note(record) for record in read.records if is_gap(record)]
    return replace(
        read,
        records=tuple(read.records[n] for n in kept),
        places=tuple(read.places[n] for n in kept),
        gaps=(*read.gaps, *(Gap(each.partition, each.missed_from, each.resumed_at, at_origin=True) for each in lost)),
    )
