"""The watermark of one state partition: the smallest mark of all its sources. It never goes back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_MAX_LIVE_DELAY = 60_000_000
"""An event with a larger delay is not live: then the wall clock does not move the watermark."""
_DECAY = 0.01
"""How much of the largest delay each later record takes away."""


@dataclass(frozen=True)
class TickClock:
    """What the tick of a batch tells about a source partition, as `clock.source_clock` writes it."""

    largest: int | None
    """The largest event time of the batch."""
    delay: int | None
    """The largest difference between arrival and event time in the batch."""
    count: int
    """Number of records with an event time."""
    arrived: int | None
    """When the newest record came."""
    caught_up: int | None
    """When everything was read, if so."""

    def text(self) -> str:
        """Return the clock as a text.

        >>> TickClock(5, None, 1, 7, None).text()
        '5,,1,7,'
        """
        values = (self.largest, self.delay, self.count, self.arrived, self.caught_up)
        return ",".join("" if value is None else str(value) for value in values)

    @classmethod
    def of(cls, text: str) -> TickClock:
        """Read what `text` wrote."""
        largest, delay, count, arrived, caught_up = (int(part) if part else None for part in text.split(","))
        return cls(largest, delay, count or 0, arrived, caught_up)


@dataclass
class _Source:
    mark: int | None = None
    delay: int | None = None
    last: int | None = None
    """When its last record came, or its first tick."""

    def follow(self, clock: TickClock, idle: int) -> int | None:
        """Take a clock in. Returns the mark that it gives."""
        if clock.arrived is not None:
            self.last = max(clock.arrived, self.last or clock.arrived)
        if clock.delay is not None:
            kept = (1 - _DECAY) ** clock.count
            older = clock.delay if self.delay is None else clock.delay + (self.delay - clock.delay) * kept
            self.delay = max(clock.delay, round(older))
        if clock.caught_up is None:
            return clock.largest
        marks = [] if clock.largest is None else [clock.largest]
        if self.delay is not None and self.delay <= _MAX_LIVE_DELAY:
            marks.append(clock.caught_up - self.delay)
        if self.last is None:
            self.last = clock.caught_up
        if 0 <= idle <= clock.caught_up - self.last:
            marks.append(clock.caught_up)
        return max(marks, default=None)


class Watermark:
    """The marks of the sources, and the watermark that they give.

    The mark of a source is the largest event time of its records. If everything of the source was read, the wall clock
    moves the mark too: behind by the largest recent delay if events are live, and with no delay if the source was
    silent for `idle`. The mark of an earlier stage is that stage's own watermark.
    """

    def __init__(self, sources: Sequence[str], idle: int, saved: Any = None) -> None:
        """`saved` is what `save` returned, if anything."""
        known = saved or {"value": None, "sources": {}}
        self._idle = idle
        self._sources = {name: _Source(*known["sources"].get(name, ())) for name in sources}
        self.value: int | None = known["value"]

    def record(self, source: str | None, time: int) -> None:
        """Take a record's time in; only of a record that comes from a source, not from an earlier stage."""
        self._advance(str(source), time)

    def tick(self, source: str, clock: str) -> None:
        """Take a tick's clock in: that of a source, or `=` and the watermark of an earlier stage."""
        if clock.startswith("="):
            self._advance(source, int(clock[1:]))
        else:
            mark = self._sources.setdefault(source, _Source()).follow(TickClock.of(clock), self._idle)
            if mark is not None:
                self._advance(source, mark)

    def _advance(self, name: str, mark: int) -> None:
        source = self._sources.setdefault(name, _Source())
        if source.mark is None or mark > source.mark:
            source.mark = mark
            marks = [each.mark for each in self._sources.values()]
            least = None if None in marks else min(each for each in marks if each is not None)
            if least is not None and (self.value is None or least > self.value):
                self.value = least

    def save(self) -> Any:
        """Return the marks as JSON values."""
        sources = {name: [each.mark, each.delay, each.last] for name, each in self._sources.items()}
        return {"value": self.value, "sources": sources}
