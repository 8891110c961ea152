"""Matches the few filters of the delta one by one, against few events."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tidegate.matching.events import EventBatch
from tidegate.matching.index import owner_names
from tidegate.matching.part import PendingFilter
from tidegate.matching.result import MatchPiece, SubscriptionTable
from tidegate.matching.rows import MISTYPED, Axes, IndexRow, Point
from tidegate.model.schema import Schema


def scan_delta(items: Sequence[PendingFilter], events: EventBatch, axes: Axes, schema: Schema | None) -> MatchPiece:
    """Match events against filters of the delta, row by row."""
    points = _PointsByAxis(events, axes)
    owners: dict[int, range] = {}
    ids: list[str] = []
    of: list[PendingFilter] = []
    index: list[int] = []
    offsets = [0]
    for event in range(events.size):
        for n, item in enumerate(items):
            if not _matches(item, points, event, events, schema):
                continue
            if n not in owners:
                who = owner_names(item.owners)
                owners[n] = range(len(ids), len(ids) + len(who))
                ids += who
                of += [item] * len(who)
            index += owners[n]
        offsets.append(len(index))

    def grades(slot: int) -> Callable[[Any], Any] | None:
        item = of[slot]
        return (lambda chosen: events.degrees(item.filter(schema), chosen)) if item.whole else None

    numbers = np.array([item.number for item in of], np.int64)
    return MatchPiece(
        np.array(offsets), np.array(index, np.int64), SubscriptionTable(np.array(ids, dtype=object), numbers, grades)
    )


class _PointsByAxis(dict[int, list[Point]]):
    """The events' values by axis, read on first use."""

    def __init__(self, events: EventBatch, axes: Axes) -> None:
        self.events, self.axes = events, axes

    def __missing__(self, axis: int) -> list[Point]:
        self[axis] = points = self.events.points(self.axes.paths[axis])
        return points


def _matches(
    item: PendingFilter, points: Mapping[int, Sequence[Point]], event: int, events: EventBatch, schema: Schema | None
) -> bool:
    for row in item.rows:
        inside = holds(row, points, event)
        if inside and row.checks == ():
            return True
        if inside is not False:  # the filter itself decides
            return bool(events.mask(item.filter(schema), np.array([event]))[0])
    return False


def holds(row: IndexRow, points: Mapping[int, Sequence[Point]], event: int) -> bool | None:
    """Return True if an event's values lie in the spans of a row.

    Returns None if one value is mistyped, so that the filter must decide.
    """
    flat = row.flat
    sure, inside, before, own, value = True, True, -1, 0, None
    for n in range(0, len(flat), 4):
        if flat[n] != before:
            if not inside:
                return False
            before = flat[n]
            own, value = points[before][event]
            inside = own == MISTYPED
            sure = sure and not inside
        if own == flat[n + 1]:
            low, high = flat[n + 2], flat[n + 3]
            inside = inside or ((low is None or value >= low) and (high is None or value < high))
    return None if inside and not sure else inside
