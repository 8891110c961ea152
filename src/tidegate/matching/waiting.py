"""The few filters that wait to be indexed, matched one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tidegate.matching.events import Events
from tidegate.matching.index import names
from tidegate.matching.part import Item
from tidegate.matching.result import Piece, Table
from tidegate.matching.rows import ODD, Axes, Point, Row
from tidegate.model.schema import Schema


def scanned(items: Sequence[Item], events: Events, axes: Axes, schema: Schema | None) -> Piece:
    """Match a few events against a few filters, row by row."""
    points = _Points(events, axes)
    owners: dict[int, range] = {}
    ids: list[str] = []
    of: list[Item] = []
    index: list[int] = []
    offsets = [0]
    for event in range(events.size):
        for n, item in enumerate(items):
            if not _matches(item, points, event, events, schema):
                continue
            if n not in owners:
                who = names(item.owners)
                owners[n] = range(len(ids), len(ids) + len(who))
                ids += who
                of += [item] * len(who)
            index += owners[n]
        offsets.append(len(index))

    def grades(slot: int) -> Callable[[Any], Any] | None:
        item = of[slot]
        return (lambda chosen: events.degrees(item.filter(schema), chosen)) if item.whole else None

    numbers = np.array([item.number for item in of], np.int64)
    return Piece(np.array(offsets), np.array(index, np.int64), Table(np.array(ids, dtype=object), numbers, grades))


class _Points(dict[int, list[Point]]):
    """The events' values by axis, each read when it is first asked for."""

    def __init__(self, events: Events, axes: Axes) -> None:
        self.events, self.axes = events, axes

    def __missing__(self, axis: int) -> list[Point]:
        self[axis] = found = self.events.points(self.axes.paths[axis])
        return found


def _matches(
    item: Item, points: Mapping[int, Sequence[Point]], event: int, events: Events, schema: Schema | None
) -> bool:
    for row in item.rows:
        held = holds(row, points, event)
        if held and row.checks == ():
            return True
        if held is not False:  # what is left is for the filter to say
            return bool(events.mask(item.filter(schema), np.array([event]))[0])
    return False


def holds(row: Row, points: Mapping[int, Sequence[Point]], event: int) -> bool | None:
    """Say whether an event's values are in the spans of a row; None where one is odd, and spans can't tell."""
    flat = row.flat
    sure, inside, before, own, value = True, True, -1, 0, None
    for n in range(0, len(flat), 4):
        if flat[n] != before:
            if not inside:
                return False
            before = flat[n]
            own, value = points[before][event]
            inside = own == ODD
            sure = sure and not inside
        if own == flat[n + 1]:
            low, high = flat[n + 2], flat[n + 3]
            inside = inside or ((low is None or value >= low) and (high is None or value < high))
    return None if inside and not sure else inside
