"""Polling: a page of events, now or as soon as there are any."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson

from tidegate.delivery.batch import Events
from tidegate.delivery.hub import Hub
from tidegate.delivery.subscriber import Notice, Pick, Sink, Subscriber
from tidegate.errors import SubscriptionEnded

TOLD = ("gap", "latest")
"""Notices that a page shows."""


@dataclass(frozen=True, slots=True)
class Page:
    """Events, and where to go on."""

    events: list[bytes]
    cursor: str
    notices: list[Notice]

    def to_json(self) -> bytes:
        """The answer's body."""
        told = b"".join(
            b'"%s":%s,' % (each.kind.encode(), orjson.dumps(each.said)) for each in self.notices if each.kind in TOLD
        )
        return b'{%s"cursor":"%s","events":[%s]}' % (told, self.cursor.encode(), b",".join(self.events))


class PageSink(Sink):
    """Holds what came until there is enough, or something."""

    kind = "poll"
    may_conflate = False

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most
        self.events: list[tuple[str, bytes]] = []
        self.notices: list[Notice] = []
        self.filled = asyncio.Event()
        """Set as soon as there is anything."""

    def render(self, batch: Events, picks: Sequence[Pick]) -> list[tuple[str, bytes]]:
        """Cursors and events."""
        return [(batch.cursor(n, to.floor), batch.encoded(n, to.encoding)) for n, to in picks]

    def write(self, rendered: Any) -> bool:
        """Hold events; those beyond a page are read again for the next."""
        self.events += rendered
        if self.events:
            self.filled.set()
        return not self.is_full

    @property
    def is_full(self) -> bool:
        """Whether there is a page of events."""
        return len(self.events) >= self.most

    async def room(self) -> None:
        """Return while the page is not full; a full one is never emptied."""
        if self.is_full:
            await asyncio.Event().wait()

    def tell(self, subscriber: Subscriber, notice: Notice) -> None:  # noqa: ARG002 - there is just one
        """Hold a notice."""
        self.notices.append(notice)
        if notice.kind == "error":
            self.filled.set()

    def end(self) -> None:
        """Let go of whoever waits, with what there is: the gateway ends."""
        self.filled.set()


async def page(hub: Hub, make: Callable[[Sink], Subscriber], most: int, wait_s: float) -> Page:
    """Read a page from a subscriber's position on; where there is nothing, wait for something."""
    sink = PageSink(most)
    subscriber = make(sink)
    try:
        while not sink.is_full and await hub.give(subscriber) == "more":
            pass
        if not sink.events and wait_s > 0:
            hub.subscribe(subscriber)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await sink.filled.wait()
    finally:
        hub.unsubscribe(subscriber)
    errors = [each.said["detail"] for each in sink.notices if each.kind == "error"]
    if errors:
        raise SubscriptionEnded(errors[0])
    found = sink.events[:most]
    reached = subscriber.position.text if subscriber.position is not None else ""
    is_cut = len(found) < len(sink.events)
    notices = [each for each in sink.notices if each.kind != "latest"] if is_cut else sink.notices  # not all is here
    return Page([data for _, data in found], found[-1][0] if is_cut else reached, notices)
