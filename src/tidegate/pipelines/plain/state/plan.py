"""The plan of a stage with state, and the rows that it takes and gives, as the connector's `StatePlan` has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tidegate.model import timestamps

RESULT, PASSED, TICK, LATE = range(4)
"""The `kind` of a row."""

State = dict[str, Any]
"""What a key holds, as JSON values. Nothing is stored of a key whose state is empty."""


@dataclass(frozen=True)
class StatePlan:
    """The plan of a stage, as `stateful.stage` writes it. All times are microseconds."""

    service: str
    stage: str
    shape: str
    sources: Sequence[str]
    """The source partitions that send ticks. The watermark waits for all of them."""
    tick_keys: Sequence[str] = ("#@",)
    next_partitions: int = 0
    """How many state partitions the next stage has; 0: this is the last."""
    batches: bool = True
    """Always true here."""
    lateness: int = 0
    idle: int = -1
    """Silence after which a source no longer holds the watermark back; -1: never."""
    on_late: str = "quarantine"
    updates: bool = False
    windows: str = "time"
    length: int = 0
    slide: int = 1
    offset: int = 0
    zone: str = ""
    aggregates: Sequence[dict[str, Any]] = ()
    sides: int = 1
    within: int = -1
    how: str = "inner"
    required: bool = False
    back: int = 1
    steps: Sequence[dict[str, Any]] = ()
    span: int = -1
    """The index of the argument that `span_limit` bounds; -1: none."""
    span_limit: float = 0.0
    limit: int = -1
    """Most events that each window gives one by one; for the connector's counts."""

    def timing(self) -> list[int]:
        """Return what decides when timers are due; another version of a service may have other values."""
        return [self.lateness, self.within, *(each.get("for", -1) for each in self.steps)]


@dataclass(frozen=True, slots=True)
class Record:
    """A record that enters a stage."""

    key: str
    side: int = 0
    time: int = 0
    """Event time."""
    arrived: int = 0
    source: str | None = None
    tie: str = ""
    """Source and position; orders records of the same time."""
    id: str = ""
    event: str = ""
    arguments: Sequence[Any] = ()


@dataclass
class StageOutputs:
    """The rows that a stage gives, and the watermark as its shape sees it."""

    watermark: int | None = None
    """None before every source has sent an event time."""
    on_late: str = "quarantine"
    rows: list[dict[str, Any]] = field(default_factory=list)

    def has_passed(self, time: int) -> bool:
        """Return whether the watermark has reached a time."""
        return self.watermark is not None and time <= self.watermark

    def emit(
        self,
        key: str,
        start: int,
        end: int,
        *,
        revision: int = 0,
        arrived: int = 0,
        events: Sequence[str | None] | None = None,
        values: Sequence[str | None] | None = None,
    ) -> None:
        """Give the result of a window."""
        self._add(
            kind=RESULT, k=key, start=start, end=end, revision=revision, arrived=arrived, events=events, values=values
        )

    def emit_record(self, record: Record, events: Sequence[str | None] | None = None) -> None:
        """Give a record, with events that belong to it."""
        self._add(
            kind=RESULT,
            source=record.source,
            k=record.key,
            start=record.time,
            end=record.time,
            revision=0,
            arrived=record.arrived,
            event=record.event,
            events=events,
        )

    def pass_on(self, record: Record, reason: str, kind: int = PASSED) -> None:
        """Give a record that is refused."""
        self._add(
            kind=kind,
            source=record.source,
            clock=record.tie,
            k=record.id,
            start=record.time,
            revision=0,
            arrived=record.arrived,
            event=record.event,
            reason=reason,
        )

    def refuse_late(self, record: Record, what: str) -> None:
        """Refuse a record that came too late; `what` names the time that was passed."""
        if self.on_late != "drop":
            assert self.watermark is not None
            self.pass_on(record, f"late: {what}, and the watermark is {instant(self.watermark)}", LATE)

    def tick(self, partition: int, source: str, clock: str) -> None:
        """Send a tick to a partition of the next stage."""
        self._add(kind=TICK, tick=partition, source=source, clock=clock)

    def _add(self, **columns: Any) -> None:
        self.rows.append(columns)


class StateShape(Protocol):
    """One kind of state: its content for a key, and its reaction to records and timers."""

    delay: int
    """How far behind the watermark the event time of a later result may be."""

    def take(self, state: State, record: Record, out: StageOutputs) -> None:
        """Apply a record to the state of its key."""

    def due(self, state: State, key: str, out: StageOutputs) -> None:
        """Emit the results that are complete; called when the watermark has reached `timer`."""

    def timer(self, state: State) -> int | None:
        """Return the watermark at which `due` is to be called for a state."""


ShapeFactory = Callable[[StatePlan], StateShape]


def instant(micros: int) -> str:
    """Return a moment as Java writes it: with none, three or six digits after the second.

    >>> instant(1_500_000), instant(0), instant(1)
    ('1970-01-01T00:00:01.500Z', '1970-01-01T00:00:00Z', '1970-01-01T00:00:00.000001Z')
    """
    text = timestamps.to_text(micros)
    whole, _, digits = text.removesuffix("Z").partition(".")
    digits = digits.ljust(6, "0")
    if digits == "000000":
        return f"{whole}Z"
    return f"{whole}.{digits.removesuffix('000')}Z"
