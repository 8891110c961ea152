"""Runs one stage over the rows of a batch: records in the order in which they came, then ticks."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from tidegate.pipelines.plain.state.joins import DistinctShape, JoinShape, LookupShape, PreviousShape, TupleJoinShape
from tidegate.pipelines.plain.state.pattern import PatternShape
from tidegate.pipelines.plain.state.plan import (
    PASSED,
    TICK,
    Record,
    ShapeFactory,
    StageOutputs,
    State,
    StatePlan,
    StateShape,
)
from tidegate.pipelines.plain.state.watermark import Watermark
from tidegate.pipelines.plain.state.windows import CountShape, WindowShape

SHAPES: Mapping[str, ShapeFactory] = {
    "windows": WindowShape,
    "count": CountShape,
    "join": JoinShape,
    "tuple_join": TupleJoinShape,
    "latest": LookupShape,
    "previous": PreviousShape,
    "distinct": DistinctShape,
    "pattern": PatternShape,
}


class Row(Protocol):
    """A row with the columns that `stateful.stage` makes."""

    k: str
    kind: int
    source: str | None
    clock: str | None
    side: int
    time: int | None
    arrived: int | None
    tie: str
    event: str
    id: str
    arguments: Mapping[str, Any] | None


class StateStore(Protocol):
    """The stored state of one partition, as texts."""

    def load(self, key: str) -> str | None:
        """Return the state of a key."""

    def save(self, key: str, text: str | None) -> None:
        """Set the state of a key; None removes it."""

    def timers(self) -> Iterable[tuple[str, int]]:
        """Return the keys that have a timer, each with its time."""

    def save_timer(self, key: str, time: int | None) -> None:
        """Set the timer of a key; None removes it."""

    def load_marks(self) -> str | None:
        """Return what `save_marks` has set."""

    def save_marks(self, text: str) -> None:
        """Set the marks of the watermark."""


class Timers:
    """The timer of each key. Stored ones are loaded when the watermark may have reached the first of them."""

    def __init__(self, store: StateStore, first: int | None) -> None:
        """`first` is not after the first stored timer; None: there is none."""
        self._store, self._first = store, first
        self._known: dict[str, int | None] = {}
        self._heap: list[tuple[int, str]] = []

    def set(self, key: str, time: int | None) -> None:
        """Set the timer of a key."""
        if self._known.get(key, -1) == time:
            return
        self._known[key] = time
        self._store.save_timer(key, time)
        if time is not None:
            heapq.heappush(self._heap, (time, key))

    def pop(self, watermark: int) -> str | None:
        """Return the key whose timer is due first, if any. Its timer stays until it is set."""
        if self._first is not None and self._first <= watermark:
            self._first = None
            for key, time in self._store.timers():
                if key not in self._known:
                    self._known[key] = time
                    heapq.heappush(self._heap, (time, key))
        while self._heap and self._heap[0][0] <= watermark:
            time, key = heapq.heappop(self._heap)
            if self._known[key] == time:
                return key
        return None

    def first(self) -> int | None:
        """Return a time that is not after the first timer; None if there is none."""
        times = [time for time in (self._first, *self._known.values()) if time is not None]
        return min(times, default=None)


class Stage:
    """One state partition of a stage, for one batch."""

    def __init__(self, plan: StatePlan, number: int, store: StateStore) -> None:
        self._plan, self._number, self._store = plan, number, store
        self._shape: StateShape = SHAPES[plan.shape](plan)
        self._states: dict[str, tuple[State, str | None]] = {}
        """The states of keys, each with its stored text."""
        marks = json.loads(store.load_marks() or "null") or {}
        self._watermark = Watermark(plan.sources, plan.idle, marks.get("watermark"))
        self._timers = Timers(store, marks.get("timer"))
        self._out = StageOutputs(self._watermark.value, plan.on_late)
        if marks and marks.get("timing") != plan.timing():
            for key, _ in store.timers():
                self._timers.set(key, self._shape.timer(self._state(key)))

    def run(self, rows: Iterable[Row]) -> list[dict[str, Any]]:
        """Return what the stage gives for the rows of a batch, and store its state."""
        ticks, records = [], []
        for row in rows:
            if row.kind == TICK:
                ticks.append(row)
            elif row.kind == PASSED:
                self._out.pass_on(_record(row), str(row.clock))
            else:
                records.append(row)
        # A batch that is repeated gives the same: Spark does not promise the order of a shuffle.
        records.sort(key=lambda row: ("", row.tie) if row.clock is None else ("/", ""))
        for row in records:
            self._take(row)
        for row in ticks:
            self._watermark.tick(str(row.source), str(row.clock))
        self._fire()
        if ticks and self._watermark.value is not None:
            clock = f"={self._watermark.value - self._shape.delay}"
            for partition in range(self._plan.next_partitions):
                self._out.tick(partition, f"{self._plan.stage}/{self._number}", clock)
        self._save()
        return self._out.rows

    def _take(self, row: Row) -> None:
        record = _record(row)
        if row.clock is None:
            self._watermark.record(record.source, record.time)
            self._out.watermark = self._watermark.value
        state = self._state(record.key)
        self._shape.take(state, record, self._out)
        self._timers.set(record.key, self._shape.timer(state))
        self._fire()

    def _fire(self) -> None:
        """Pass the keys whose timers are due to the shape, earliest first."""
        watermark = self._out.watermark = self._watermark.value
        if watermark is None:
            return
        while (key := self._timers.pop(watermark)) is not None:
            state = self._state(key)
            self._shape.due(state, key, self._out)
            self._timers.set(key, self._shape.timer(state))

    def _state(self, key: str) -> State:
        if key not in self._states:
            text = self._store.load(key)
            self._states[key] = (json.loads(text) if text else {}), text
        return self._states[key][0]

    def _save(self) -> None:
        for key, (state, stored) in self._states.items():
            text = json.dumps(state, separators=(",", ":")) if any(state.values()) else None
            if text != stored:
                self._store.save(key, text)
        marks = {"watermark": self._watermark.save(), "timer": self._timers.first(), "timing": self._plan.timing()}
        self._store.save_marks(json.dumps(marks))


def _record(row: Row) -> Record:
    return Record(
        row.k,
        row.side,
        row.time or 0,
        row.arrived or 0,
        row.source,
        row.tie,
        row.id,
        row.event,
        list(row.arguments.values()) if row.arguments is not None else (),
    )
