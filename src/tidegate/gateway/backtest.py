"""Tests a filter on the newest events of a service: which it would have matched, and how attributes are distributed.

It reads only the newest events, with pauses for delivery, and answers while the author of a filter waits.
`tidegate backtest` reads the whole history, with Spark.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import orjson

from tidegate.delivery.batch import Batch, reaches
from tidegate.delivery.encoding import Encoding
from tidegate.delivery.latest import PAUSE_S, stretch
from tidegate.errors import StreamNotFound
from tidegate.filters import Filter
from tidegate.filters.nodes import Path, paths, predicates
from tidegate.filters.render import path_text
from tidegate.filters.values import raw_reader
from tidegate.logs import Cursor, EventLog
from tidegate.model import Schema, timestamps
from tidegate.model.types import Scalar, Struct

READ = 200
"""Events per read, which take one or two milliseconds. A pause follows."""
BINS = 24
"""Bins of a distribution of numbers."""
SPANS = 60
"""Spans of the timeline."""
MAX_VALUES = 12
"""Most common values in a distribution of values that are not numbers."""
MAX_ATTRIBUTES = 8
"""Attributes with a distribution in the result."""
MAX_TEXT = 200
"""Characters of a value in the result."""

_MOMENT = Scalar("timestamp")


@dataclass(frozen=True, slots=True)
class BacktestResult:
    """The result of a backtest, as JSON values."""

    events: int
    """Number of events that were read."""
    matched: int
    complete: bool
    """True if the stream has no more events in the requested time."""
    first: str | None
    """The event time of the first match."""
    last: str | None
    timeline: list[dict[str, Any]]
    """Spans of event time, each with its events and matches."""
    attributes: list[dict[str, Any]]
    sample: list[Any]
    """The newest matches, in the plain format."""


def backtest(
    log: EventLog,
    service: str,
    schema: Schema,
    filter_: Filter | None,
    since_micros: int | None,
    max_events: int,
    encoding: Encoding,
    sample: int = 5,
) -> BacktestResult:
    """Apply a filter to about the newest `most` events, of the whole stream or since a time.

    Blocks for up to a second: call it in a thread.
    """
    seen = _Seen([_Attribute(path) for path in named(filter_, schema)], deque(maxlen=sample or 0))
    matches = (lambda _: True) if filter_ is None else filter_.matches
    is_complete = True
    try:
        begin = log.begin(service) if since_micros is None else log.since(service, since_micros)
        end = log.end(service)
        start = stretch(log, service, begin, end, max_events)
        is_complete = start == begin
        for batch in _batches(log, service, start, end):
            seen.take(batch, matches)
    except StreamNotFound:
        pass  # the service has no output yet
    return seen.result(service, encoding, is_complete)


def named(filter_: Filter | None, schema: Schema) -> list[Path]:
    """Return the attributes that a filter names; without a filter, the first attributes that are not objects."""
    if filter_ is not None:
        attributes = dict.fromkeys(path for predicate in predicates(filter_.tree.root) for path in paths(predicate))
    else:
        plain = (field_ for field_ in schema.root if not isinstance(field_.type, Struct))
        attributes = dict.fromkeys(Path((field_.name,), field_.type) for field_ in plain)
    by_text = {path_text(path): path for path in attributes}
    return list(by_text.values())[:MAX_ATTRIBUTES]


def _batches(log: EventLog, service: str, position: Cursor, end: Cursor) -> Iterator[Batch]:
    while not reaches(position, end):
        started = time.perf_counter()
        batch = Batch(service, position, log.read(service, position, READ))
        if not batch.records and not batch.gaps:
            return
        yield batch
        position = batch.end
        time.sleep(max(PAUSE_S, time.perf_counter() - started))  # leave half of the time to delivery


class _Attribute:
    """The values of one attribute in all events that were read."""

    def __init__(self, path: Path) -> None:
        self.path, self._read = path, raw_reader(path)
        self.values: list[Any] = []

    def take(self, event: Mapping[str, Any]) -> None:
        self.values.append(self._read(event))

    def distribution(self, flags: Sequence[bool]) -> dict[str, Any]:
        """Return the distribution of the values; `flags` says which events match."""
        kind = self.path.type
        document: dict[str, Any] = {"name": path_text(self.path), "type": "" if kind is None else str(kind)}
        present = [(value, flag) for value, flag in zip(self.values, flags, strict=True) if value is not None]
        document["missing"] = len(flags) - len(present)
        numbers = [(float(value), flag) for value, flag in present if _is_number(value)]
        if present and len(numbers) == len(present):
            return {**document, "bins": _bins(numbers)}
        moments = _moments(present) if kind == _MOMENT else []
        if present and len(moments) == len(present):
            return {**document, "bins": _moment_bins(moments)}
        return {**document, "values": _values(present)}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _bins(numbers: Sequence[tuple[float, bool]]) -> list[dict[str, Any]]:
    """Return a histogram of numbers with bins of equal width.

    >>> _bins([(1.0, True), (1.0, False)])
    [{'from': 1.0, 'to': 1.0, 'events': 2, 'matched': 1}]
    """
    lowest, greatest = min(numbers)[0], max(numbers)[0]
    if not isfinite(greatest - lowest):  # the range overflows a double
        quarters = _bins([(value / 4, flag) for value, flag in numbers])
        return [{**quarter, "from": quarter["from"] * 4, "to": quarter["to"] * 4} for quarter in quarters]
    count = BINS if greatest > lowest else 1
    width = (greatest - lowest) / count
    counts = [[0, 0] for _ in range(count)]
    for value, flag in numbers:
        bin_ = counts[min(count - 1, int((value - lowest) / width)) if width else 0]
        bin_[0] += 1
        bin_[1] += flag
    edges = [lowest + n * width for n in range(count)] + [greatest]
    return [
        {"from": edges[n], "to": edges[n + 1], "events": events, "matched": matched}
        for n, (events, matched) in enumerate(counts)
    ]


def _moments(present: Sequence[tuple[Any, bool]]) -> list[tuple[int, bool]]:
    read = ((timestamps.from_text(value) if isinstance(value, str) else None, flag) for value, flag in present)
    return [(micros, flag) for micros, flag in read if micros is not None]


def _moment_bins(moments: Sequence[tuple[int, bool]]) -> list[dict[str, Any]]:
    """Return a histogram of times in microseconds, with its edges as text.

    >>> _moment_bins([(1_500_000, True)])[0]["from"]
    '1970-01-01T00:00:01.500000Z'
    """
    earliest, greatest = min(moments)[0], max(moments)[0]
    bins = _bins([(float(at - earliest), flag) for at, flag in moments])

    def text(edge: float) -> str:
        return timestamps.to_text(min(greatest, earliest + round(edge)))  # rounding must not exceed the last time

    return [{**bin_, "from": text(bin_["from"]), "to": text(bin_["to"])} for bin_ in bins]


def _values(present: Sequence[tuple[Any, bool]]) -> list[dict[str, Any]]:
    """Return the most common values, with one row, named `null`, for all others."""
    texts = [(_text(value), flag) for value, flag in present]
    events = Counter(text for text, _ in texts)
    matched = Counter(text for text, flag in texts if flag)
    common: list[dict[str, Any]] = [
        {"value": text, "events": count, "matched": matched.pop(text, 0)}
        for text, count in events.most_common(MAX_VALUES)
    ]
    left = len(texts) - sum(row["events"] for row in common)
    return [*common, {"value": None, "events": left, "matched": matched.total()}] if left else common


def _text(value: Any) -> str:
    return (value if isinstance(value, str) else orjson.dumps(value).decode())[:MAX_TEXT]


@dataclass(slots=True)
class _Seen:
    """The events that were read so far."""

    attributes: list[_Attribute]
    sample: deque[tuple[bytes, Mapping[str, Any]]]
    flags: list[bool] = field(default_factory=list)
    moments: list[int | None] = field(default_factory=list)

    def take(self, batch: Batch, matches: Callable[[Mapping[str, Any]], bool]) -> None:
        for record, event in zip(batch.records, batch.events, strict=True):
            flag = matches(event)
            self.flags.append(flag)
            self.moments.append(timestamps.from_text(str(event.get("_time") or "")))
            for attribute in self.attributes:
                attribute.take(event)
            if flag:
                self.sample.append((bytes(record), event))

    def result(self, service: str, encoding: Encoding, is_complete: bool) -> BacktestResult:
        matched = [at for at, flag in zip(self.moments, self.flags, strict=True) if flag and at is not None]
        return BacktestResult(
            events=len(self.flags),
            matched=sum(self.flags),
            complete=is_complete,
            first=timestamps.to_text(min(matched)) if matched else None,
            last=timestamps.to_text(max(matched)) if matched else None,
            timeline=_timeline(self.moments, self.flags),
            attributes=[attribute.distribution(self.flags) for attribute in self.attributes],
            sample=[orjson.loads(encoding.encode(service, *event)) for event in reversed(self.sample)],
        )


def _timeline(moments: Sequence[int | None], flags: Sequence[bool]) -> list[dict[str, Any]]:
    timed = [(at, flag) for at, flag in zip(moments, flags, strict=True) if at is not None]
    if not timed:
        return []
    earliest, greatest = min(timed)[0], max(timed)[0]
    count = SPANS if greatest - earliest >= SPANS else 1
    width = (greatest - earliest) // count + 1
    counts = [[0, 0] for _ in range(count)]
    for at, flag in timed:
        span = counts[(at - earliest) // width]
        span[0] += 1
        span[1] += flag
    return [
        {"at": timestamps.to_text(earliest + n * width), "events": events, "matched": matched}
        for n, (events, matched) in enumerate(counts)
    ]
