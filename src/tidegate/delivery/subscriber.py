"""Who gets events, and where they go."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from tidegate.delivery.batch import Events, ahead
from tidegate.delivery.encoding import Encoding
from tidegate.filters import Filter
from tidegate.logs import Cursor

if TYPE_CHECKING:
    from tidegate.delivery.lane import Lane
    from tidegate.delivery.latest import Latest
    from tidegate.delivery.past import Past

State = Literal["behind", "joining", "live", "gone"]
"""Reading, or waiting to read, at its own pace; at the end, on its way to those who are live; one of them; away."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that a subscriber is told between two events."""

    kind: Literal["began", "latest", "gap", "changed", "error"]
    """Whatever comes from here on is served; what is before was the newest of each key; events were missed; the filter
    is another from here on; it can't go on."""
    cursor: str
    said: Mapping[str, Any] = field(default_factory=dict)


class Sink(ABC):
    """Where subscribers' events go: a socket, a page, a request's body.

    `render` runs in any thread; all else in the event loop. Several subscribers
    may share one.
    """

    kind = "other"
    """What whoever watches calls it: sse, websocket, webhook."""
    may_conflate = True
    """Whether just the latest event of each key may be wanted of it."""

    def __init__(self) -> None:
        self.epoch = 0
        """Grows when it is full: what is on its way for those who were live before is dropped, and read again."""
        self.subscribers: set[Subscriber] = set()
        self.cut: int | None = None
        """The first event of the batch last written that was not taken: it is read again. None: all were."""
        self.caller: Any = None
        """Who reads it, as whoever lets them in knows them; nothing in here asks."""

    @abstractmethod
    def render(self, batch: Events, picks: Sequence[Pick]) -> Any:
        """Make what is written of some events, each with who gets it, in the order of the events."""

    @abstractmethod
    def write(self, rendered: Any) -> bool:
        """Take what `render` made, all of it or up to `cut`; say whether there is room for more."""

    @abstractmethod
    async def room(self) -> None:
        """Return when there is room."""

    @abstractmethod
    def tell(self, subscriber: Subscriber, notice: Notice) -> None:
        """Take a notice, between two events."""

    @property
    def final(self) -> Sink:
        """What writes in the end: this, unless it stands before another."""
        return self

    @property
    def is_settled(self) -> bool:
        """Whether all that was taken is on its way to the reader: its position may be told."""
        return True

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Let go of what is held."""

    def end(self) -> None:  # noqa: B027 - what ends by itself need not
        """Take nothing more: the process is about to end."""


class Subscriber:
    """A filter, a position and a sink.

    In a lane its position is that of all who are in it; else its own.
    """

    __slots__ = (
        *("begins_now", "encoding", "filter", "id", "latest", "member", "past", "place", "service", "sink", "state"),
    )

    def __init__(
        self, id_: str, service: str, filter_: Filter | None, sink: Sink, encoding: Encoding, position: Cursor | None
    ) -> None:
        """`filter_` None is everything; `position` None is the beginning of a stream that is not there yet."""
        self.id, self.service, self.filter, self.sink, self.encoding = id_, service, filter_, sink, encoding
        self.place = position
        """Where it goes on, while it is in no lane."""
        self.begins_now = False
        """It has no place yet: it begins with what comes when it is live."""
        self.latest: Latest | None = None
        """What it is given of the newest event of each key, before it is served from its place on."""
        self.past: Past | None = None
        """What it is given of what is not in the log, before that."""
        self.state: State = "behind"
        self.member: Member | None = None
        """Its place in a lane, or on its way to one: what was under way for another is void."""
        sink.subscribers.add(self)

    @property
    def position(self) -> Cursor | None:
        """How far it was served: whatever matched before was written to its sink."""
        if self.member is None or self.member.lane is None:
            return self.place
        delivered, floor = self.member.lane.delivered, self.member.floor
        return ahead(delivered, floor) if floor else delivered

    def wants(self, event: Mapping[str, Any]) -> bool:
        """Whether an event matches its filter."""
        return self.filter is None or self.filter.matches(event)


class Member:
    """A subscriber in a lane, once: when it comes again, it is another."""

    __slots__ = ("encoding", "epoch", "floor", "lane", "sink", "subscriber")

    def __init__(self, subscriber: Subscriber) -> None:
        self.subscriber, self.encoding = subscriber, subscriber.encoding
        self.sink, self.epoch = subscriber.sink, subscriber.sink.epoch
        """Where its events go, also when its subscriber has another by then."""
        self.floor: Mapping[str, int] | None = None
        """What it had seen, when it came, of what the lane still had before it."""
        self.lane: Lane | None = None
        """Set by the event loop, when it is in."""

    @property
    def is_current(self) -> bool:
        """Whether the subscriber is still to be here."""
        return self.subscriber.member is self

    def render(self, batch: Events) -> Any:
        """What its sink makes of all that it wants of a batch, matched for it alone; None: it wants nothing."""
        picks = [(n, self) for n, event in enumerate(batch.events) if self.subscriber.wants(event)]
        return self.sink.render(batch, picks) if picks else None


Pick = tuple[int, Member]
"""An event of a batch, and who gets it."""
