"""The operators as slow, obvious Python over lists of dicts: what Spark is held against.

An event is a dict of its attributes as they are on the wire, with `_id`, `_time`
(microseconds) and `_source`. Shares no code with `tidegate.pipelines`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any

from tidegate.model import Schema, timestamps
from tidegate.model.events import violations
from tidegate.model.types import Array, Enum, Struct, Type

Event = dict[str, Any]


def read(line: str, schema: Schema) -> Event | None:
    """Return the output of an unchanged record; None if it is refused."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or any("unknown" not in str(each) for each in violations(event, schema)):
        return None
    return {field.name: wire(event.get(field.name), field.type) for field in schema.root}


def wire(value: Any, kind: Type) -> Any:
    if value is None:
        return None
    match kind:
        case Struct():
            return {field.name: wire(value.get(field.name), field.type) for field in kind}
        case Array():
            return [wire(item, kind.item) for item in value]
    if kind.kind == "time":
        micros = timestamps.from_text(value)
        return None if micros is None else timestamps.to_text(micros)
    if kind.kind == "float":
        return float(value) if math.isfinite(value) else None
    return value


# Windows -----------------------------------------------------------------------


def in_time(events: Iterable[Event], length: int, slide: int, by: Sequence[str] = ()) -> dict[Any, list[Event]]:
    """Events by key and window, in the order of their time."""
    found: dict[Any, list[Event]] = {}
    for event in sorted(events, key=lambda e: (e["_time"], e["_source"])):
        start = event["_time"] // slide * slide
        while start > event["_time"] - length:
            found.setdefault((*(event[name] for name in by), start, start + length), []).append(event)
            start -= slide
    return found


def by_count(events: Iterable[Event], length: int, slide: int, by: Sequence[str] = ()) -> dict[Any, list[Event]]:
    """Events by key and number of the last one."""
    found = {}
    for key, all_of in by_key(events, by).items():
        for end in range(length, len(all_of) + 1, slide):
            found[(*key, end)] = all_of[end - length : end]
    return found


def by_key(events: Iterable[Event], by: Sequence[str]) -> dict[Any, list[Event]]:
    found: dict[Any, list[Event]] = {}
    for event in events:
        found.setdefault(tuple(event[name] for name in by), []).append(event)
    return found


# Aggregates --------------------------------------------------------------------


def rank(value: Any, kind: Type) -> Any:
    return kind.labels.index(value) if isinstance(kind, Enum) else value


def total(events: Iterable[Event], name: str, kind: Type) -> Any:
    values = [event[name] for event in events if event[name] is not None]
    if not values:
        return None
    if kind.kind == "float":
        return math.fsum(values)
    return sum(values) if -(2**63) <= sum(values) < 2**63 else None


def mean(events: Iterable[Event], name: str) -> float | None:
    values = [event[name] for event in events if event[name] is not None]
    return float(sum(values)) / len(values) if values else None


def extreme(events: Iterable[Event], name: str, kind: Type, pick: Callable[..., Any]) -> Event | None:
    """The whole event with the least or greatest value; of several that with the least or greatest id."""
    held = [event for event in events if event[name] is not None]
    chosen: Event | None = pick(held, key=lambda e: (rank(e[name], kind), e["_id"]), default=None)
    return chosen


# Others ------------------------------------------------------------------------


def in_order(events: Sequence[Event], by: Sequence[tuple[str, bool, Type]]) -> list[Event]:
    """Sort by each attribute, descending or not, missing values last; stable."""
    found = list(events)
    for name, descending, kind in reversed(by):
        there = [event for event in found if event[name] is not None]
        there.sort(key=lambda e: rank(e[name], kind), reverse=descending)
        if descending:  # stable: equal ones as they came
            there = [
                e
                for _, same in groupby(there, key=lambda e: rank(e[name], kind))
                for e in sorted(same, key=found.index)
            ]
        found = there + [event for event in found if event[name] is None]
    return found


def pairs(left: Sequence[Event], right: Sequence[Event], on: Sequence[str], within: int) -> list[tuple[Event, Event]]:
    return [
        (a, b)
        for a in left
        for b in right
        if abs(a["_time"] - b["_time"]) <= within and all(a[n] is not None and a[n] == b[n] for n in on)
    ]


def escaped(value: Any) -> str:
    """A key inside an id."""
    if value is None:
        return "%00"
    text = str(value)
    for mark in "%#@|":
        text = text.replace(mark, f"%{ord(mark):02X}")
    return text


def row_of(event: Event, table: Sequence[Event], on: Sequence[str]) -> Event | None:
    """The first row of a table that an event has."""
    if any(event[name] is None for name in on):
        return None
    return next((row for row in table if all(row[name] == event[name] for name in on)), None)
