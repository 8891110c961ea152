"""Patterns as slow, obvious Python: what the state engine is held against."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.pipelines.obvious_state import NEVER, SECOND, Event, Reading, in_order, key_of, watched

FOREVER = 1 << 62


@dataclass(frozen=True)
class Step:
    """One step: `lasting` in seconds, or -1."""

    name: str
    holds: Callable[[Event], bool]
    least: int = 1
    most: int = 1
    lasting: float = -1
    is_absent: bool = False

    @property
    def micros(self) -> int:
        return round(self.lasting * SECOND)


@dataclass(frozen=True)
class Match:
    """A match: `place` is the number of the event that completed it, or before which time did, and which of these."""

    place: tuple[int, int]
    start: int
    end: int
    events: tuple[tuple[Event, ...], ...]


@dataclass
class Pattern:
    """A pattern by one key."""

    steps: Sequence[Step]
    by: Sequence[str]
    within: float = FOREVER / SECOND
    span: tuple[str, float] | None = None
    lateness: float = 90

    def search(self, reading: Reading) -> list[tuple[tuple[object, ...], Match]]:
        """Find the matches of all keys. No event is refused: the lateness must allow for all."""
        keys: dict[tuple[object, ...], list[Event]] = {}
        watermark = NEVER
        for _, event, watermark in watched(reading):  # noqa: B007 - the last one is what counts
            keys.setdefault(key_of(event, self.by), []).append(event)
        until = watermark - round(self.lateness * SECOND)
        return [
            (key, match)
            for key, events in keys.items()
            for match in self._matches([e for e in in_order(events) if e["_time"] <= until], until)
        ]

    def _matches(self, events: Sequence[Event], until: int) -> list[Match]:
        """Return the matches: the one that completes first, the oldest of several, then those after it."""
        found: list[Match] = []
        first = 0
        while True:
            alone = [self._begun(events, n, until) for n in range(first, len(events)) if self._begins(events, n)]
            complete = [match for match in alone if match is not None]
            if not complete:
                return found
            best = min(complete, key=lambda match: (match.place, match.start))
            found.append(best)
            first = best.place[0] + best.place[1]

    def _begins(self, events: Sequence[Event], n: int) -> bool:
        """Return True if the first step begins; one with a duration begins only if it was not satisfied before."""
        step = self.steps[0]
        was_inside = n > 0 and step.holds(events[n - 1])
        return step.holds(events[n]) and not (step.lasting >= 0 and was_inside)

    def _begun(self, events: Sequence[Event], begin: int, until: int) -> Match | None:
        """The match that begins with one event, if the rest comes: each step takes the first event that it can."""
        start, steps = events[begin]["_time"], self.steps
        taken: list[list[Event]] = [[] for _ in steps]
        taken[0].append(events[begin])
        at, since = 0, start
        for n in range(begin, len(events) + 1):
            now = events[n]["_time"] if n < len(events) else until
            while steps[at].lasting >= 0 and (steps[at].is_absent or taken[at]) and since + steps[at].micros <= now:
                since += steps[at].micros
                if since - start > self.within * SECOND:
                    return None
                if at == len(steps) - 1:
                    return Match((n, 0), start, since, tuple(map(tuple, taken)))
                at += 1
            if n == len(events) or now - start > self.within * SECOND:
                return None
            event, step = events[n], steps[at]
            if n > begin:
                if step.is_absent:
                    if self._is_longer(at, event, taken):
                        taken[at - 1].append(event)
                        since = now
                        continue
                    if step.holds(event):
                        return None
                    if step.lasting >= 0 or not self._takes(at + 1, event, events[begin]):
                        continue
                    at += 1
                elif step.lasting >= 0:
                    if not step.holds(event):
                        if taken[at]:
                            return None
                        continue
                elif (
                    len(taken[at]) >= step.least
                    and at + 1 < len(steps)
                    and not steps[at + 1].is_absent
                    and self._takes(at + 1, event, events[begin])
                ):
                    at += 1
                elif not self._takes(at, event, events[begin]):
                    continue
                if steps[at].lasting >= 0 and not taken[at]:
                    since = now
                taken[at].append(event)
            step = steps[at]
            if step.lasting < 0:
                if at == len(steps) - 1 and len(taken[at]) >= step.least:
                    return Match((n, 1), start, now, tuple(map(tuple, taken)))
                is_enough = at < len(steps) - 1 and steps[at + 1].is_absent
                if at < len(steps) - 1 and len(taken[at]) >= (step.least if is_enough else step.most):
                    at, since = at + 1, now
        return None

    def _is_longer(self, at: int, event: Event, taken: Sequence[Sequence[Event]]) -> bool:
        """Return True if the step before an absent one takes the event: not if the step after the absent one can."""
        before, first = self.steps[at - 1], taken[0][0]
        if before.is_absent or before.lasting >= 0 or len(taken[at - 1]) >= before.most:
            return False
        is_next = self.steps[at].lasting < 0 and self._takes(at + 1, event, first)
        return not is_next and self._takes(at - 1, event, first)

    def _takes(self, at: int, event: Event, first: Event) -> bool:
        if not self.steps[at].holds(event) or event["_time"] - first["_time"] > self.within * SECOND:
            return False
        if self.span is None:
            return True
        name, limit = self.span
        return event[name] is not None and first[name] is not None and abs(event[name] - first[name]) <= limit
