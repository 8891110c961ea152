"""Event ids. An id is a function of the input, never random.

A replay of the same input gives the same ids, so that a reader can recognise an event that it gets twice.
"""

from __future__ import annotations

from typing import NewType

EventId = NewType("EventId", str)


def source_id(stream: str, partition: int, position: int) -> EventId:
    """Return the id of an event whose producer gave it none.

    >>> source_id("gps", 0, 4096)
    'gps:0:4096'
    """
    return EventId(f"{stream}:{partition}:{position}")


def joined_id(left: EventId, right: EventId) -> EventId:
    """Return the id of a pair of joined events."""
    return EventId(f"{left}+{right}")


def child_id(parent: EventId, ordinal: int) -> EventId:
    """Return the id of the nth event that an operator derived from one event."""
    return EventId(f"{parent}/{ordinal}")


def window_id(key: str, window_end: str, count: int | None = None) -> EventId:
    """Return the id of an aggregate: its key and window, and for an update also its count."""
    return EventId(f"{key}@{window_end}" if count is None else f"{key}@{window_end}#{count}")
