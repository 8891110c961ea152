"""No more events in a second than somebody may have: the rest waits in the log, as for any slow reader."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from tidegate.delivery.batch import Events
from tidegate.delivery.subscriber import Notice, Pick, Sink, Subscriber


class Pace(Protocol):
    """How many events may go out, of all sinks together that share it."""

    def take(self) -> bool:
        """Let one more go out; false: it has to wait."""

    def give_back(self) -> None:
        """One that was taken has not gone out."""

    def wait_s(self) -> float:
        """How long until it is worth to go on; 0: now."""


class Pacing(Sink):
    """Stands before another sink, and is full whenever its pace says so.

    It holds nothing: what it does not take is read again from the log. It is one subscriber's own, though the other
    sink may have several.
    """

    def __init__(self, inner: Sink, pace: Pace) -> None:
        super().__init__()
        self.kind, self.caller = inner.kind, inner.caller
        self._inner, self._pace = inner, pace

    @property
    def final(self) -> Sink:
        """The other one."""
        return self._inner.final

    @property
    def is_settled(self) -> bool:
        """As the other one is."""
        return self._inner.is_settled

    def render(self, batch: Events, picks: Sequence[Pick]) -> list[tuple[int, Any]]:
        """Each event by itself: how many of them may go out shows when they are written."""
        return [(pick[0], self._inner.render(batch, [pick])) for pick in picks]

    def write(self, rendered: Any) -> bool:
        """Pass on as many as may go out, and the other sink takes."""
        self.cut, has_room = None, True
        for n, event in rendered:
            if not self._pace.take():
                self.cut = n
                return False
            has_room = self._inner.write(event)
            if self._inner.cut is not None:
                self._pace.give_back()
                self.cut = n
                return False
        return has_room

    async def room(self) -> None:
        """Return when the other sink has room, and something may go out."""
        await self._inner.room()
        while (wait_s := self._pace.wait_s()) > 0:
            await asyncio.sleep(wait_s)
            await self._inner.room()

    def tell(self, subscriber: Subscriber, notice: Notice) -> None:
        """Pass on a notice: those are free."""
        self._inner.tell(subscriber, notice)

    def end(self) -> None:
        """End."""
        self._inner.end()


def paced(sink: Sink, pace: Pace | None) -> Sink:
    """A sink, or what stands before it; None: nothing needs to."""
    return sink if pace is None else Pacing(sink, pace)
