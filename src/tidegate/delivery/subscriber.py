"""Subscribers, their states, and the sinks that their events are written to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

from tidegate.delivery.batch import Events, ahead
from tidegate.delivery.encoding import Encoding
from tidegate.filters import Filter
from tidegate.logs import Cursor

if TYPE_CHECKING:
    from tidegate.delivery.history import HistoryReader
    from tidegate.delivery.lane import Lane
    from tidegate.delivery.latest import Latest


class SubscriberState(StrEnum):
    """Where a subscriber gets its events from. docs/subscriber-states.md draws the transitions."""

    HISTORY = "history"
    """It gets pages of events that the log does not have."""
    SNAPSHOT = "snapshot"
    """It gets the latest event of each key."""
    CATCHING_UP = "catching up"
    """It reads the log from its cursor, or waits until it can. The first state, and the only one while it polls."""
    JOINING = "joining"
    """It has reached the end of the log, or starts now, and waits to be admitted to the live lane."""
    LIVE = "live"
    """It is in the live lane: one matching pass serves it and all other live subscribers."""
    GONE = "gone"
    """It is not served any more. No other state follows."""

    @property
    def is_behind(self) -> bool:
        """True if the subscriber still reads events from before the end of the log."""
        return self in (SubscriberState.HISTORY, SubscriberState.SNAPSHOT, SubscriberState.CATCHING_UP)


def _transitions() -> dict[SubscriberState, frozenset[SubscriberState]]:
    state = SubscriberState
    # A full sink, a new filter, a new schema or a failed read sends a subscriber back to reading from any state.
    always = frozenset({state.HISTORY, state.SNAPSHOT, state.CATCHING_UP, state.GONE})
    return {
        state.HISTORY: always,
        state.SNAPSHOT: always,
        state.CATCHING_UP: always | {state.JOINING},
        state.JOINING: always | {state.JOINING, state.LIVE},
        state.LIVE: always,
        state.GONE: frozenset({state.GONE}),
    }


TRANSITIONS: Mapping[SubscriberState, frozenset[SubscriberState]] = _transitions()
"""The states that may follow each state. `Subscriber.enter` asserts it."""


@dataclass(frozen=True, slots=True)
class DeliveryNotice:
    """A message to a subscriber between two events."""

    kind: Literal["began", "latest", "gap", "changed", "error"]
    """`began`: delivery starts at the cursor. `latest`: the snapshot ends here. `gap`: events were missed. `changed`:
    another filter applies from here on. `error`: delivery has ended."""
    cursor: str
    details: Mapping[str, Any] = field(default_factory=dict)


class Sink(ABC):
    """Where the events of subscribers are written: a socket, a page, the queue of a push worker.

    Several subscribers may share a sink. `render` runs on the thread of a worker, all other methods on the event loop.
    """

    kind = "other"
    """The name in metrics: `sse`, `websocket`, `webhook`."""
    may_conflate = True
    """True if a conflation may be put before this sink."""

    def __init__(self) -> None:
        self.epoch = 0
        """Grows when the sink is full. Output that was rendered in an earlier epoch is dropped and read again."""
        self.subscribers: set[Subscriber] = set()
        self.first_unsent: int | None = None
        """Index of the first event of the last batch that `write` did not take; it is read again. None: it took all."""
        self.caller: Any = None
        """The caller who reads from the sink. The gateway sets and reads it; delivery does not."""

    @abstractmethod
    def render(self, batch: Events, picks: Sequence[Pick]) -> Any:
        """Return what `write` takes for these events. `picks` is in the order of the events. Runs on any thread."""

    @abstractmethod
    def write(self, rendered: Any) -> bool:
        """Take the result of `render`, all of it or the events before `first_unsent`. Returns False if it is full."""

    @abstractmethod
    async def drain(self) -> None:
        """Return when there is room for more events."""

    @abstractmethod
    def send_notice(self, subscriber: Subscriber, notice: DeliveryNotice) -> None:
        """Take a notice, also when the sink is full."""

    @property
    def final(self) -> Sink:
        """The sink that writes to the reader: the innermost of a chain of sinks."""
        return self

    @property
    def is_flushed(self) -> bool:
        """True if every event that was written has been sent on, so that a later cursor may be announced."""
        return True

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Stop timers and tasks, and drop the events that are still held."""

    def end(self) -> None:  # noqa: B027 - some end by themselves
        """Send the remaining events and end, because the process is about to stop."""


class Subscriber:
    """A filter, a cursor and a sink.

    The event loop owns it. The thread of a worker reads `filter` and `sink` only through a `LaneMembership`.
    """

    __slots__ = (
        *("cursor", "encoding", "filter", "history", "id", "latest", "membership", "service", "sink", "starts_now"),
        "state",
    )

    def __init__(
        self, id_: str, service: str, filter_: Filter | None, sink: Sink, encoding: Encoding, position: Cursor | None
    ) -> None:
        """Create a subscriber that is not served yet.

        `filter_` None matches everything. `position` None is the beginning of a stream that does not exist yet.
        """
        self.id, self.service, self.filter, self.sink, self.encoding = id_, service, filter_, sink, encoding
        self.cursor = position
        """Where to continue while it is in no lane; `position` is valid in every state."""
        self.starts_now = False
        """True until it is live, if it has no cursor and starts with the next event."""
        self.latest: Latest | None = None
        """The progress of its snapshot; None: no snapshot is requested, or it was sent."""
        self.history: HistoryReader | None = None
        """The reader of the history that is being sent; None: none is open."""
        self.state = SubscriberState.CATCHING_UP
        self.membership: LaneMembership | None = None
        """What the current state's work is done for. Work for an earlier membership is void."""
        sink.subscribers.add(self)

    def enter(self, state: SubscriberState, membership: LaneMembership | None = None) -> None:
        """Change the state, and void all work for the previous membership. Runs on the event loop.

        The state must be one of `TRANSITIONS`.
        """
        assert state in TRANSITIONS[self.state], f"no transition from {self.state.name} to {state.name}"
        self.state, self.membership = state, membership

    @property
    def position(self) -> Cursor | None:
        """The cursor up to which every matching event was written to the sink."""
        if self.membership is None or self.membership.lane is None:
            return self.cursor
        delivered, skip_below = self.membership.lane.delivered, self.membership.skip_below
        return ahead(delivered, skip_below) if skip_below else delivered

    def wants(self, event: Mapping[str, Any]) -> bool:
        """Return True if an event matches the filter."""
        return self.filter is None or self.filter.matches(event)


class LaneMembership:
    """One stay of a subscriber in a lane, or one attempt to enter a lane. Each state gets a new one."""

    __slots__ = ("encoding", "epoch", "lane", "sink", "skip_below", "subscriber")

    def __init__(self, subscriber: Subscriber) -> None:
        self.subscriber, self.encoding = subscriber, subscriber.encoding
        self.sink, self.epoch = subscriber.sink, subscriber.sink.epoch
        """The subscriber's sink at the start of the stay, and its epoch then."""
        self.skip_below: Mapping[str, int] | None = None
        """Offsets already delivered when the subscriber joined the lane; lower ones are skipped. None: none are."""
        self.lane: Lane | None = None
        """The lane, once the event loop knows that it has admitted the subscriber."""

    @property
    def is_current(self) -> bool:
        """True while the subscriber has not left, and has not started another stay."""
        return self.subscriber.membership is self

    def render(self, batch: Events) -> Any:
        """Match a batch for this subscriber alone, and render the events; None if none matches. Runs on any thread."""
        picks = [(n, self) for n, event in enumerate(batch.events) if self.subscriber.wants(event)]
        return self.sink.render(batch, picks) if picks else None


Pick = tuple[int, LaneMembership]
"""The index of an event in a batch, and a membership that gets it."""
