"""Windows by time, sessions, and all events so far, with running aggregates."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from tidegate.pipelines.plain.state import aggregates
from tidegate.pipelines.plain.state.plan import Record, StageOutputs, State, StatePlan, instant

KEPT = 3_600_000_000
"""How long a closed window can still be updated by late records, with `on_late: update`."""
_ALL = "all"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Window = dict[str, Any]


def new_window(end: int | None) -> Window:
    """Return a window without records. Its aggregates are stored under their names, for a new version to find them."""
    return {"end": end, "count": 0, "first": None, "last": None, "arrived": 0, "closed": False, "values": {}}


def add(plan: StatePlan, window: Window, record: Record) -> None:
    """Add a record to a window."""
    window["count"] += 1
    window["first"] = record.time if window["first"] is None else min(window["first"], record.time)
    window["last"] = record.time if window["last"] is None else max(window["last"], record.time)
    window["arrived"] = max(window["arrived"], record.arrived)
    values = window["values"]
    for name, aggregate in _named(plan):
        values[name] = aggregates.add(aggregate, values.get(name), record)


def merge(plan: StatePlan, window: Window, other: Window) -> None:
    """Add the records of another window."""
    window["count"] += other["count"]
    window["arrived"] = max(window["arrived"], other["arrived"])
    window["first"] = min((t for t in (window["first"], other["first"]) if t is not None), default=None)
    window["last"] = max((t for t in (window["last"], other["last"]) if t is not None), default=None)
    values = window["values"]
    for name, aggregate in _named(plan):
        values[name] = aggregates.merge(aggregate, values.get(name), other["values"].get(name))


def values(plan: StatePlan, window: Window) -> list[str | None]:
    """Return the results of all aggregates as texts, in the order of the plan."""
    return [aggregates.result(each, window["values"].get(each["name"])) for each in plan.aggregates]


def _named(plan: StatePlan) -> Iterator[tuple[str, Any]]:
    """Aggregates of the same name share a state."""
    return iter({each["name"]: each for each in plan.aggregates}.items())


class WindowShape:
    """Keeps the open windows of a key, by their start, and the total of `windows: running`."""

    def __init__(self, plan: StatePlan) -> None:
        self._plan = plan
        self._zone = ZoneInfo(plan.zone) if plan.zone else None
        self._is_kept = plan.on_late == "update" and plan.windows == "time"
        self.delay = plan.lateness

    def take(self, state: State, record: Record, out: StageOutputs) -> None:
        """Add a record to its windows."""
        open_windows: dict[str, Window] = state.setdefault("open", {})
        if self._plan.windows == "all":
            self._add(open_windows, state, record, None, None, out)
        elif self._plan.windows == "session":
            self._take_session(open_windows, record, out)
        else:
            self._take_timed(open_windows, state, record, out)

    def due(self, state: State, key: str, out: StageOutputs) -> None:
        """Close the windows that the watermark has passed, in the order of their ends."""
        open_windows: dict[str, Window] = state.get("open", {})
        ends = sorted(
            (window["end"], start)
            for start, window in open_windows.items()
            if window["end"] is not None and out.has_passed(window["end"] + self._plan.lateness)
        )
        for end, start in ends:
            window = open_windows[start]
            if not window["closed"]:
                self._close(state, key, start, window, out)
            if not self._is_kept or out.has_passed(end + self._plan.lateness + KEPT):
                del open_windows[start]
        if not open_windows and "total" not in state:
            state.clear()

    def timer(self, state: State) -> int | None:
        """Return when the first window closes, or is forgotten."""
        return min(
            (
                window["end"] + self._plan.lateness + (KEPT if window["closed"] else 0)
                for window in state.get("open", {}).values()
                if window["end"] is not None
            ),
            default=None,
        )

    # Windows by time -------------------------------------------------------------

    def _take_timed(self, open_windows: dict[str, Window], state: State, record: Record, out: StageOutputs) -> None:
        plan = self._plan
        local = self._local(record.time)
        begin = (local - plan.offset) // plan.slide * plan.slide + plan.offset
        is_taken, end = False, record.time
        while begin > local - plan.length:
            end = self._utc(begin + plan.length)
            closing = end + plan.lateness
            if not out.has_passed(closing) or (self._is_kept and not out.has_passed(closing + KEPT)):
                self._add(open_windows, state, record, self._utc(begin), end, out)
                is_taken = True
            begin -= plan.slide
        if not is_taken:
            _refuse(record, end, out)

    def _add(
        self,
        open_windows: dict[str, Window],
        state: State,
        record: Record,
        start: int | None,
        end: int | None,
        out: StageOutputs,
    ) -> None:
        name = _ALL if start is None else str(start)
        window = open_windows.setdefault(name, new_window(end))
        add(self._plan, window, record)
        is_late = self._is_kept and end is not None and out.has_passed(end + self._plan.lateness)
        if is_late and not window["closed"]:
            self._close(state, record.key, name, window, out)
        elif self._plan.updates or is_late:
            self._emit(record.key, name, window, record.arrived, out)

    def _local(self, time: int) -> int:
        """Return a moment as local time."""
        if self._zone is None:
            return time
        offset = (_EPOCH + timedelta(microseconds=time)).astimezone(self._zone).utcoffset()
        assert offset is not None
        return time + offset // timedelta(microseconds=1)

    def _utc(self, local: int) -> int:
        """Return the moment of a local time; of a time that the clocks skip, the moment after as much of the gap."""
        if self._zone is None:
            return local
        moment = (_EPOCH + timedelta(microseconds=local)).replace(tzinfo=self._zone)
        return (moment.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)

    # Sessions --------------------------------------------------------------------

    def _take_session(self, open_windows: dict[str, Window], record: Record, out: StageOutputs) -> None:
        plan = self._plan
        end = record.time + plan.length
        near = [
            start
            for start, window in open_windows.items()
            if not window["closed"] and int(start) <= end and window["end"] >= record.time
        ]
        if not near and out.has_passed(end + plan.lateness):
            _refuse(record, end, out)
            return
        session = new_window(end)
        for start in near:
            other = open_windows.pop(start)
            session["end"] = max(session["end"], other["end"])
            merge(plan, session, other)
        add(plan, session, record)
        name = str(min([record.time, *map(int, near)]))
        open_windows[name] = session
        if plan.updates:
            self._emit(record.key, name, session, record.arrived, out)

    # Results ---------------------------------------------------------------------

    def _close(self, state: State, key: str, start: str, window: Window, out: StageOutputs) -> None:
        window["closed"] = True
        if self._plan.windows == "running":
            total: Window = state.setdefault("total", new_window(None))
            merge(self._plan, total, window)
            end = window["end"]
            out.emit(key, int(start), end, arrived=total["arrived"], values=values(self._plan, total))
        elif not self._plan.updates:
            self._emit(key, start, window, window["arrived"], out)

    def _emit(self, key: str, start: str, window: Window, arrived: int, out: StageOutputs) -> None:
        by_events = start == _ALL or self._plan.windows == "session"
        out.emit(
            key,
            window["first"] if by_events else int(start),
            window["last"] if start == _ALL else window["end"],
            revision=window["count"] if self._plan.updates or self._is_kept else 0,
            arrived=arrived,
            values=values(self._plan, window),
        )


def _refuse(record: Record, end: int, out: StageOutputs) -> None:
    out.refuse_late(record, f"its window ended at {instant(end)}")


class CountShape:
    """Gives the last `length` events of a key at every `slide`; with `windows: running` aggregates over all so far."""

    delay = 0

    def __init__(self, plan: StatePlan) -> None:
        self._plan = plan

    def take(self, state: State, record: Record, out: StageOutputs) -> None:
        """Count a record, and give a window if it is complete."""
        plan = self._plan
        count = state["count"] = state.get("count", 0) + 1
        is_end = count >= plan.length and (count - plan.length) % plan.slide == 0
        if plan.windows == "running":
            total: Window = state.setdefault("total", new_window(None))
            add(plan, total, record)
            if is_end:
                out.emit(
                    record.key,
                    total["first"],
                    total["last"],
                    revision=count,
                    arrived=total["arrived"],
                    values=values(plan, total),
                )
            return
        events: list[str] = state.setdefault("events", [])
        events.append(record.event)
        if is_end:
            out.emit(record.key, 0, 0, revision=count, arrived=record.arrived, events=list(events))
            del events[: max(0, len(events) - (plan.length - plan.slide))]

    def due(self, state: State, key: str, out: StageOutputs) -> None:
        """Do nothing: there are no timers."""

    def timer(self, state: State) -> int | None:  # noqa: ARG002 - of the protocol
        """Return None: time has no effect."""
        return None
