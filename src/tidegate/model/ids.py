"""Event ids: a function of the input, never random.

A replay of the same input gives the same ids, so that whoever sees an event
twice can tell.
"""

from __future__ import annotations

from typing import NewType

EventId = NewType("EventId", str)


def source_id(stream: str, partition: int, position: int) -> EventId:
    """Name an event whose producer gave it no id.

    >>> source_id("gps", 0, 4096)
    'gps:0:4096'
    """
    return EventId(f"{stream}:{partition}:{position}")


def joined_id(left: EventId, right: EventId) -> EventId:
    """Name a pair of joined events."""
    return EventId(f"{left}+{right}")


def child_id(parent: EventId, ordinal: int) -> EventId:
    """Name the nth event that an operator made of one event."""
    return EventId(f"{parent}/{ordinal}")


def window_id(key: str, window_end: str, count: int | None = None) -> EventId:
    """Name an aggregate by its key and window; an update also by how many it counts."""
    return EventId(f"{key}@{window_end}" if count is None else f"{key}@{window_end}#{count}")
