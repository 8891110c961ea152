"""Joins by time and by tuple windows, the latest events of a key, and duplicates."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from itertools import product
from typing import Any

from tidegate.pipelines.plain.state.plan import Record, StageOutputs, State, StatePlan, instant

Held = list[Any]
"""An event that is held: side, time, tie, whether it was joined, JSON."""
_SIDE, _TIME, _TIE, _JOINED, _EVENT = range(5)


class JoinShape:
    """Joins events of several inputs whose times are at most `within` apart.

    A combination is given when its last event arrives. An outer join gives an event that is in no combination when none
    can come any more.
    """

    def __init__(self, plan: StatePlan) -> None:
        self._plan = plan
        self.delay = plan.lateness + plan.within + (plan.how != "inner")

    def take(self, state: State, record: Record, out: StageOutputs) -> None:
        """Give the combinations of a record, and hold it."""
        if out.has_passed(self._expiry(record.time) + 1):
            out.refuse_late(record, f"its time is {instant(record.time)}")
            return
        held: list[Held] = state.setdefault("events", [])
        own: Held = [record.side, record.time, record.tie, False, record.event]
        sides = [
            [own]
            if side == record.side
            else [each for each in held if each[_SIDE] == side and self._is_near(each, own)]
            for side in range(self._plan.sides)
        ]
        for chosen in product(*sides):
            times = [each[_TIME] for each in chosen]
            if max(times) - min(times) > self._plan.within:
                continue
            for each in chosen:
                each[_JOINED] = True
            events = [each[_EVENT] for each in chosen]
            out.emit(record.key, record.time, record.time, arrived=record.arrived, events=events)
        insort(held, own, key=lambda each: each[: _TIE + 1])

    def due(self, state: State, key: str, out: StageOutputs) -> None:
        """Remove events that can no longer be joined."""
        plan = self._plan
        left = []
        for each in state.get("events", []):
            if not out.has_passed(self._expiry(each[_TIME]) + 1):
                left.append(each)
            elif not each[_JOINED] and (plan.how == "full" or (plan.how == "left" and each[_SIDE] == 0)):
                events = [each[_EVENT] if side == each[_SIDE] else None for side in range(plan.sides)]
                out.emit(key, each[_TIME], each[_TIME], events=events)
        _keep(state, left)

    def timer(self, state: State) -> int | None:
        """Return when the first event can no longer be joined."""
        return min((self._expiry(each[_TIME]) + 1 for each in state.get("events", [])), default=None)

    def _expiry(self, time: int) -> int:
        return time + self._plan.within + self._plan.lateness

    def _is_near(self, event: Held, other: Held) -> bool:
        return bool(abs(event[_TIME] - other[_TIME]) <= self._plan.within)


def _keep(state: State, left: list[Any]) -> None:
    """Store the events that are left; a key without events has no state."""
    if left:
        state["events"] = left
    else:
        state.pop("events", None)


class TupleJoinShape:
    """Joins the last `length` events of each input, in windows that move by `slide`; each combination comes once."""

    delay = 0

    def __init__(self, plan: StatePlan) -> None:
        self._plan = plan

    def take(self, state: State, record: Record, out: StageOutputs) -> None:
        """Let a record wait until its window moves, then give the combinations of those that waited."""
        plan = self._plan
        windows: list[list[str]] = state.setdefault("windows", [[] for _ in range(plan.sides)])
        waiting: list[list[str]] = state.setdefault("waiting", [[] for _ in range(plan.sides)])
        waiting[record.side].append(record.event)
        if len(waiting[record.side]) < plan.slide:
            return
        for event in waiting[record.side]:
            sides = [[event] if side == record.side else windows[side] for side in range(plan.sides)]
            for chosen in product(*sides):
                out.emit(record.key, record.time, record.time, arrived=record.arrived, events=list(chosen))
        windows[record.side] = [*windows[record.side], *waiting[record.side]][-plan.length :]
        waiting[record.side] = []

    def due(self, state: State, key: str, out: StageOutputs) -> None:
        """Do nothing: there are no timers."""

    def timer(self, state: State) -> int | None:  # noqa: ARG002 - of the protocol
        """Return None: time has no effect."""
        return None


class LookupShape:
    """Gives each event of side 0 with the newest event by time of side 1, the table."""

    delay = 0

    def __init__(self, plan: StatePlan) -> None:
        self._plan = plan

    def take(self, state: State, record: Record, out: StageOutputs) -> None:
        """Give a record with the latest event of the table, or replace that."""
        if record.side == 0:
            if state or not self._plan.required:
                out.emit_record(record, [state.get("event")])
        elif not state or record.time >= state["time"]:
            state.update(time=record.time, event=record.event)

    def due(self, state: State, key: str, out: StageOutputs) -> None:
        """Do nothing: there are no timers."""

    def timer(self, state: State) -> int | None:  # noqa: ARG002 - of the protocol
        """Return None: time has no effect."""
        return None


class PreviousShape:
    """Gives each event with the one `back` before it."""

    delay = 0

    def __init__(self, plan: StatePlan) -> None:
        self._back = plan.back

    def take(self, state: State, record: Record, out: StageOutputs) -> None:
        """Give a record with an earlier one, and remember it."""
        events: list[str] = state.setdefault("events", [])
        out.emit_record(record, [events[-self._back] if len(events) >= self._back else None])
        state["events"] = [*events, record.event][-self._back :]

    def due(self, state: State, key: str, out: StageOutputs) -> None:
        """Do nothing: there are no timers."""

    def timer(self, state: State) -> int | None:  # noqa: ARG002 - of the protocol
        """Return None: time has no effect."""
        return None


class DistinctShape:
    """Gives an event unless one of its key was given at most `within` before or after it."""

    delay = 0

    def __init__(self, plan: StatePlan) -> None:
        self._within = plan.within

    def take(self, state: State, record: Record, out: StageOutputs) -> None:
        """Give a record if it is the first."""
        times: list[int] = state.setdefault("events", [])
        if all(abs(time - record.time) > self._within for time in times):
            times.append(record.time)
            out.emit_record(record)

    def due(self, state: State, key: str, out: StageOutputs) -> None:  # noqa: ARG002 - of the protocol
        """Forget events that none can repeat any more."""
        _keep(state, [time for time in self._times(state) if not out.has_passed(self._forgotten(time))])

    def timer(self, state: State) -> int | None:
        """Return when the first event is forgotten."""
        return min(map(self._forgotten, self._times(state)), default=None)

    def _times(self, state: State) -> Sequence[int]:
        times: list[int] = state.get("events", [])
        return times

    def _forgotten(self, time: int) -> int:
        """An event that is late by up to `within` still finds it."""
        return time + 2 * self._within + 1
