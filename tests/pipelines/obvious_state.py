"""The operators with state as slow, obvious Python: what the state engine is held against.

An event is a dict of its attributes with `_id`, `_time` (microseconds), and `_n`, its number in its stream. A reading
is the list of all events that a service reads, each with its stream, in that order. Shares no code with
`tidegate.pipelines`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any
from zoneinfo import ZoneInfo

Event = dict[str, Any]
Reading = Sequence[tuple[str, Event]]
Spans = Callable[[Event], Iterable[tuple[int, int]]]
Key = tuple[Any, ...]

SECOND = 1_000_000
HOUR = 3600 * SECOND
NEVER = -(1 << 62)


def id_time(micros: int) -> str:
    """A moment as ids hold it."""
    moment = datetime.fromtimestamp(micros // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{moment}.{micros % SECOND:06d}Z"


def watched(reading: Reading) -> Iterator[tuple[str, Event, int]]:
    """Each event with the watermark that it leaves: the least of the largest times of all streams."""
    largest = dict.fromkeys({stream for stream, _ in reading}, NEVER)
    for stream, event in reading:
        largest[stream] = max(largest[stream], event["_time"])
        yield stream, event, min(largest.values())


def key_of(event: Event, by: Sequence[str]) -> Key:
    return tuple(event[name] for name in by)


def in_order(events: Iterable[Event]) -> list[Event]:
    return sorted(events, key=lambda each: (each["_time"], each["_n"]))


# Windows -----------------------------------------------------------------------


def spans(length: float, slide: float, offset: float = 0) -> Spans:
    """The windows of an event."""
    size, step, shift = (round(each * SECOND) for each in (length, slide, offset))

    def of(event: Event) -> Iterator[tuple[int, int]]:
        start = (event["_time"] - shift) // step * step + shift
        while start > event["_time"] - size:
            yield start, start + size
            start -= step

    return of


def local_days(zone: str, begin_hour: int) -> Spans:
    """The local day of an event."""
    place = ZoneInfo(zone)

    def of(event: Event) -> Iterator[tuple[int, int]]:
        local = datetime.fromtimestamp(event["_time"] / SECOND, place) - timedelta(hours=begin_hour)
        first, after = (
            datetime(day.year, day.month, day.day, begin_hour, tzinfo=place)
            for day in (local, local + timedelta(days=1))
        )
        yield round(first.timestamp()) * SECOND, round(after.timestamp()) * SECOND

    return of


class Windows:
    """The outcome of windows by time: `given` are the results in order, `late` the events in no window."""

    def __init__(
        self, reading: Reading, of: Spans, by: Sequence[str], lateness: float, *, updates: bool = False, kept: int = 0
    ) -> None:
        """`updates`: a window gives a result for each event. `kept`: it gives others so long after it was closed."""
        self.given: list[tuple[Key, int, int, list[Event]]] = []
        self.late: list[Event] = []
        inside: dict[tuple[Key, int, int], list[Event]] = {}
        closed: set[tuple[Key, int, int]] = set()
        late_by = round(lateness * SECOND)
        for _, event, watermark in watched(reading):
            taken = False
            for start, end in of(event):
                window = (key_of(event, by), start, end)
                is_over = end + late_by <= watermark
                if is_over and end + late_by + kept <= watermark:
                    continue
                taken = True
                inside.setdefault(window, []).append(event)
                if updates or is_over:
                    self.given.append((*window, list(inside[window])))
                if is_over:
                    closed.add(window)
            if not taken:
                self.late.append(event)
            for window in sorted(inside.keys() - closed, key=lambda each: each[2]):
                if window[2] + late_by <= watermark:
                    closed.add(window)
                    if not updates:
                        self.given.append((*window, list(inside[window])))


def sessions(
    reading: Reading, by: Sequence[str], gap: float, lateness: float
) -> list[tuple[Key, int, int, list[Event]]]:
    """Sessions that have ended. No event is refused: the lateness must allow for all."""
    found, size, late_by, watermark = [], round(gap * SECOND), round(lateness * SECOND), NEVER
    keys: dict[Key, list[Event]] = {}
    for _, event, watermark in watched(reading):  # noqa: B007 - the last one is what counts
        keys.setdefault(key_of(event, by), []).append(event)
    for key, events in keys.items():
        own: list[list[Event]] = []
        for event in in_order(events):
            if not own or event["_time"] > own[-1][-1]["_time"] + size:
                own.append([])
            own[-1].append(event)
        for session in own:
            if session[-1]["_time"] + size + late_by <= watermark:
                found.append((key, session[0]["_time"], session[-1]["_time"] + size, session))
    return found


def by_count(
    reading: Reading, by: Sequence[str], length: int, slide: int, *, so_far: bool = False
) -> list[tuple[Key, int, list[Event]]]:
    """Windows by count, each with the number of its last event."""
    keys: dict[Key, list[Event]] = {}
    found = []
    for _, event in reading:
        own = keys.setdefault(key_of(event, by), [])
        own.append(event)
        if len(own) >= length and (len(own) - length) % slide == 0:
            found.append((key_of(event, by), len(own), list(own if so_far else own[-length:])))
    return found


# Aggregates --------------------------------------------------------------------


def aggregate(function: str, events: Sequence[Event], name: str | None, share: float = 0.5) -> Any:
    """One aggregate of a window's events."""
    if name is None:
        return len(events)
    held = [event for event in in_order(events) if event[name] is not None]
    values = [event[name] for event in held]
    match function:
        case "count":
            return len(values)
        case "distinct" | "approx_distinct":
            return len(set(values))
        case "collect":
            return values
    if not values:
        return None
    mean = math.fsum(values) / len(values)
    match function:
        case "sum":
            return sum(values)
        case "avg":
            return mean
        case "stddev":
            return (
                math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1)) if len(values) > 1 else None
            )
        case "min":
            return min(values)
        case "max":
            return max(values)
        case "first":
            return values[0]
        case "last":
            return values[-1]
        case "percentile":
            return sorted(values)[math.ceil(share * len(values) - 1e-9) - 1]
    raise AssertionError(function)


# Joins -------------------------------------------------------------------------

Combination = tuple[Event | None, ...]


def joined(
    reading: Reading, streams: Sequence[str], on: Sequence[str], within: float, lateness: float, how: str
) -> tuple[list[Combination], list[Event]]:
    """The combinations of one event of each stream, close in time, and the late events."""
    near, late_by = round(within * SECOND), round(lateness * SECOND)
    sides: list[list[Event]] = [[] for _ in streams]
    outer = {"inner": 0, "left": 1, "full": len(streams)}[how]
    found: list[Combination] = []
    late, met = [], set()
    for stream, event, watermark in watched(reading):
        if event["_time"] + near + late_by < watermark:
            late.append(event)
        else:
            own = streams.index(stream)
            for events in product(*([event] if n == own else side for n, side in enumerate(sides))):
                times = [each["_time"] for each in events]
                if max(times) - min(times) <= near and len({key_of(each, on) for each in events}) == 1:
                    found.append(events)
                    met |= {each["_id"] for each in events}
            sides[own].append(event)
        for n, side in enumerate(sides):  # what can have no partner any more is let go of
            gone = [each for each in side if each["_time"] + near + late_by < watermark]
            side[:] = [each for each in side if each not in gone]
            alone = [each for each in gone if n < outer and each["_id"] not in met]
            found += [tuple(each if m == n else None for m in range(len(streams))) for each in alone]
    return found, late


def tuple_joined(
    reading: Reading, streams: Sequence[str], on: Sequence[str], length: int, slide: int
) -> list[Combination]:
    """After every `slide` events of a stream and key, these with the windows of the others."""
    waiting: dict[Any, list[Event]] = {}
    inside: dict[Any, list[Event]] = {}
    found: list[Combination] = []
    for stream, event in reading:
        key = key_of(event, on)
        own = waiting.setdefault((key, stream), [])
        own.append(event)
        if len(own) == slide:
            others = [own if each == stream else inside.get((key, each), []) for each in streams]
            found += product(*others)
            inside[key, stream] = [*inside.get((key, stream), []), *own][-length:]
            own.clear()
    return found


# The latest events -------------------------------------------------------------


def looked_up(reading: Reading, main: str, on: Sequence[str]) -> list[tuple[Event, Event | None]]:
    """Each event of the main stream with the newest event of the other by time."""
    latest: dict[Key, Event] = {}
    found = []
    for stream, event in reading:
        key = key_of(event, on)
        if stream == main:
            found.append((event, latest.get(key)))
        elif key not in latest or event["_time"] >= latest[key]["_time"]:
            latest[key] = event
    return found


def deduplicated(reading: Reading, by: Sequence[str], within: float) -> list[Event]:
    """The first event of each kind. One is remembered until the watermark is twice `within` ahead of it."""
    near = round(within * SECOND)
    kept: dict[Key, list[int]] = {}
    found = []
    for _, event, watermark in watched(reading):
        own = kept.setdefault(key_of(event, by), [])
        if all(abs(event["_time"] - each) > near for each in own):
            own.append(event["_time"])
            found.append(event)
        for times in kept.values():
            times[:] = [each for each in times if each + 2 * near >= watermark]
    return found
