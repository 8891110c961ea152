"""Rate limits: a sink that is full while its caller has used up the events of this second."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from tidegate.delivery.batch import Events
from tidegate.delivery.subscriber import DeliveryNotice, Pick, Sink, Subscriber


class Pace(Protocol):
    """A rate limit, shared by all sinks of a caller. Used on the event loop only."""

    def take(self) -> bool:
        """Count one event. Returns False if the event must wait."""

    def give_back(self) -> None:
        """Uncount an event that was not sent."""

    def wait_s(self) -> float:
        """Return how many seconds to wait before the next event; 0 if it may be sent now."""


class Pacing(Sink):
    """Wraps the sink of one subscriber, and is full while its pace allows no event.

    It holds no events: those that it does not take are read again from the log. The inner sink may have other
    subscribers.
    """

    def __init__(self, inner: Sink, pace: Pace) -> None:
        super().__init__()
        self.kind, self.caller = inner.kind, inner.caller
        self._inner, self._pace = inner, pace

    @property
    def final(self) -> Sink:
        """The innermost sink."""
        return self._inner.final

    @property
    def is_flushed(self) -> bool:
        """True if the inner sink is flushed."""
        return self._inner.is_flushed

    def render(self, batch: Events, picks: Sequence[Pick]) -> list[tuple[int, Any]]:
        """Render each event alone, as `write` decides how many of them may be sent."""
        return [(pick[0], self._inner.render(batch, [pick])) for pick in picks]

    def write(self, rendered: Any) -> bool:
        """Write as many events to the inner sink as the pace allows and the sink takes."""
        self.first_unsent, has_room = None, True
        for n, event in rendered:
            if not self._pace.take():
                self.first_unsent = n
                return False
            has_room = self._inner.write(event)
            if self._inner.first_unsent is not None:
                self._pace.give_back()
                self.first_unsent = n
                return False
        return has_room

    async def drain(self) -> None:
        """Return when the inner sink has room, and the pace allows an event."""
        await self._inner.drain()
        while (wait_s := self._pace.wait_s()) > 0:
            await asyncio.sleep(wait_s)
            await self._inner.drain()

    def send_notice(self, subscriber: Subscriber, notice: DeliveryNotice) -> None:
        """Send a notice; notices do not count."""
        self._inner.send_notice(subscriber, notice)

    def end(self) -> None:
        """End the inner sink."""
        self._inner.end()


def paced(sink: Sink, pace: Pace | None) -> Sink:
    """Return a sink that keeps a pace; the sink itself if there is none."""
    return sink if pace is None else Pacing(sink, pace)
