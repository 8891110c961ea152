"""From where on a mirror has what a filter matches, and where a place in a mirror is at its origin.

A mirror has what was asked for while it was. The origin says, for each filter, from where on it looks for it: what is
before that is history. Where both meet is a joint, in both streams: from one at or before a place in the mirror it can
be counted where that place is at the origin, and so history be read from there on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from tidegate.errors import LogError
from tidegate.federation.link.forwarder import reaches
from tidegate.federation.link.history import BEGINNING, MOST, SIGN
from tidegate.federation.link.records import place_of
from tidegate.logs import Cursor, EventLog
from tidegate.logs.lost import JOINT, is_gap

KEPT = 16
"""Joints of one mirror: the first, from which all others can be counted, and the newest, from which it takes least."""


@dataclass(frozen=True, slots=True)
class Joint:
    """A place in a mirror and at its origin: what is before the one is before the other, and what is behind, behind."""

    here: Cursor
    there: Cursor | None
    """None: there was no stream yet."""

    def said(self) -> list[str | None]:
        """As it is kept."""
        return [self.here.text, None if self.there is None else self.there.text]

    @classmethod
    def of(cls, said: Sequence[Any]) -> Joint:
        """As it was kept."""
        here, there = said
        return cls(Cursor.from_text(here), None if there is None else Cursor.from_text(there))

    def is_before(self, place: Cursor) -> bool:
        """Whether a place in the mirror is this one or behind it."""
        return self.here.generation == place.generation and reaches(place, self.here)


class Joints:
    """Some joints of one mirror, the oldest first."""

    def __init__(self, joints: Sequence[Joint] = ()) -> None:
        self._joints = list(joints)

    def add(self, joint: Joint) -> bool:
        """Take one more; say whether it is another than the last."""
        if self._joints and self._joints[-1].here == joint.here:
            return False
        if self._joints and self._joints[-1].here.generation != joint.here.generation:
            self._joints.clear()
        self._joints.append(joint)
        del self._joints[1:-KEPT]
        return True

    def before(self, place: Cursor) -> Joint | None:
        """The newest that is not behind a place in the mirror."""
        return next((each for each in reversed(self._joints) if each.is_before(place)), None)

    def to_json(self) -> str:
        """As they are kept."""
        return orjson.dumps([each.said() for each in self._joints]).decode()

    @classmethod
    def from_json(cls, text: str) -> Joints:
        """As they were kept."""
        return cls([Joint.of(said) for said in orjson.loads(text)])


def at_origin(log: EventLog, mirror: str, joint: Joint | None, place: Cursor) -> Cursor | None:
    """The place in history of a place in a mirror, counted from a joint before it; None: nobody can tell.

    That is so where a part of the mirror in between has expired, and nothing behind it tells how far it was.
    """
    if joint is None:
        return None
    generation = "" if joint.there is None else joint.there.generation
    offsets = {} if joint.there is None else dict(joint.there.offsets)
    marks: dict[str, int] = {}
    unknown: set[str] = set()
    at = joint.here
    try:
        while not reaches(at, place):
            read = log.read(mirror, at, MOST)
            unknown.update(each.partition for each in read.gaps)
            for record, (partition, offset) in zip(read.records, read.places, strict=True):
                if offset >= place.offsets.get(partition, 0) or record == JOINT:
                    continue
                source, part, reached = place_of(record)
                if source.split("/")[1] != generation:  # the origin's stream was made anew
                    generation, offsets, marks = source.split("/")[1], {}, {}
                offsets[part], marks[part] = reached + 1, reached
                if is_gap(record):  # which may end anywhere
                    del marks[part]
                unknown.discard(partition)
            if not read.records and not read.gaps:
                break
            at = read.cursor
    except LogError:
        return None
    if unknown:
        return None
    return Cursor(SIGN + generation, offsets, marks) if generation else BEGINNING
