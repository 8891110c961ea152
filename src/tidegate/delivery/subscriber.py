"""Who gets events, and where they go."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tidegate.delivery.batch import Batch
from tidegate.delivery.encoding import Encoding
from tidegate.filters import Filter
from tidegate.logs import Cursor

State = Literal["behind", "joining", "live", "gone"]


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that a subscriber is told between two events."""

    kind: Literal["gap", "changed", "error"]
    """Events were missed; the filter is another from here on; it can't go on."""
    cursor: str
    said: Mapping[str, Any] = field(default_factory=dict)


class Sink(ABC):
    """Where subscribers' events go: a socket, a page, a request's body.

    `render` runs in any thread; all else in the event loop. Several subscribers
    may share one.
    """

    def __init__(self) -> None:
        self.epoch = 0
        """Grows when it is full: what is on its way for those who were live before is dropped, and read again."""
        self.subscribers: set[Subscriber] = set()

    @abstractmethod
    def render(self, batch: Batch, picks: Sequence[Pick]) -> Any:
        """Make what is written of some events, each with who gets it, in the order of the events."""

    @abstractmethod
    def write(self, rendered: Any) -> bool:
        """Take what `render` made, all of it; say whether there is room for more."""

    @abstractmethod
    async def room(self) -> None:
        """Return when there is room."""

    @abstractmethod
    def tell(self, subscriber: Subscriber, notice: Notice) -> None:
        """Take a notice, between two events."""


class Subscriber:
    """A filter, a position and a sink.

    Live, its position is that of all who are; behind, its own.
    """

    __slots__ = ("encoding", "epoch", "filter", "floor", "id", "position", "service", "sink", "state")

    def __init__(
        self, id_: str, service: str, filter_: Filter | None, sink: Sink, encoding: Encoding, position: Cursor | None
    ) -> None:
        """`filter_` None is everything; `position` None is the beginning of a stream that is not there yet."""
        self.id, self.service, self.filter, self.sink, self.encoding = id_, service, filter_, sink, encoding
        self.position = position
        self.state: State = "behind"
        self.epoch = 0
        """Of its sink, when it asked to come live; set by the thread that serves it."""
        self.floor: Mapping[str, int] | None = None
        """What it had seen, when it came live, of what all others still had before them."""
        sink.subscribers.add(self)

    def wants(self, event: Mapping[str, Any]) -> bool:
        """Whether an event matches its filter."""
        return self.filter is None or self.filter.matches(event)


Pick = tuple[int, Subscriber]
"""An event of a batch, and who gets it."""
