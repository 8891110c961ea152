"""Polling: a page of events, now or as soon as there are any."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson

from tidegate.delivery.batch import Events
from tidegate.delivery.conflation import Conflation, key_of
from tidegate.delivery.hub import Hub
from tidegate.delivery.subscriber import Notice, Pick, Sink, Subscriber
from tidegate.errors import SubscriptionEnded

TOLD = ("gap", "latest")
"""Notices that a page shows."""
MOST_READ = 100
"""How often some are read for a page of which little may come: of few keys, or of a filter that hardly matches."""
NOT_CONFLATED: Conflation = (None, None)


@dataclass(frozen=True, slots=True)
class Page:
    """Events, and where to go on."""

    events: list[bytes]
    cursor: str
    notices: list[Notice]

    def to_json(self) -> bytes:
        """The answer's body."""
        told = b"".join(
            b'"%s":%s,' % (each.kind.encode(), orjson.dumps(each.details)) for each in self.notices if each.kind in TOLD
        )
        return b'{%s"cursor":"%s","events":[%s]}' % (told, self.cursor.encode(), b",".join(self.events))


class PageSink(Sink):
    """Holds what came until there is enough, or something."""

    kind = "poll"
    may_conflate = False

    def __init__(self, most: int, conflation: Conflation = NOT_CONFLATED) -> None:
        """With a `conflation` it holds just the latest event of each key."""
        super().__init__()
        self.most = most
        self._conflates, self._key = conflation[0] is not None, conflation[1]
        self._held: dict[Any, tuple[str, bytes]] = {}
        self.notices: list[Notice] = []
        self.filled, self.done = asyncio.Event(), asyncio.Event()
        """Set as soon as there is anything, and when nothing more will be."""

    @property
    def events(self) -> list[tuple[str, bytes]]:
        """Cursors and events, in the order of the log."""
        return list(self._held.values())

    def render(self, batch: Events, picks: Sequence[Pick]) -> list[tuple[Any, tuple[str, bytes]]]:
        """Cursors and events, each with what it takes the place of."""
        return [
            (
                key_of(batch.events[n], self._key) if self._conflates else None,
                (batch.cursor(n, to.skip_below), batch.encoded(n, to.encoding)),
            )
            for n, to in picks
        ]

    def write(self, rendered: Any) -> bool:
        """Hold events; those beyond a page are read again for the next."""
        for key, event in rendered:
            place = len(self._held) if key is None else key
            self._held.pop(place, None)
            self._held[place] = event
        if self._held:
            self.filled.set()
        if self.is_full:
            self.done.set()
        return not self.is_full

    @property
    def is_full(self) -> bool:
        """Whether there is a page of events."""
        return len(self._held) >= self.most

    async def drain(self) -> None:
        """Return while the page is not full; a full one is never emptied."""
        if self.is_full:
            await asyncio.Event().wait()

    def send_notice(self, subscriber: Subscriber, notice: Notice) -> None:  # noqa: ARG002 - there is just one
        """Hold a notice."""
        self.notices.append(notice)
        if notice.kind == "error":
            self.end()

    def end(self) -> None:
        """Let go of whoever waits, with what there is: the gateway ends."""
        self.filled.set()
        self.done.set()


async def page(
    hub: Hub,
    make: Callable[[Sink], Subscriber],
    most: int,
    wait_s: float,
    conflation: Conflation = NOT_CONFLATED,
) -> Page:
    """Read a page from a subscriber's position on; where there is nothing, wait for something.

    With a `conflation` a page that may wait gathers for so long: whoever asks again and again gets each key once in it.
    """
    sink = PageSink(most, conflation)
    subscriber = make(sink)
    gather_s = conflation[0] or 0.0
    begun = asyncio.get_running_loop().time()
    try:
        for _ in range(MOST_READ if gather_s else sys.maxsize):
            if sink.is_full or await hub.poll(subscriber) != "more":
                break
        if wait_s > 0 and not sink.is_full and (gather_s or not sink.filled.is_set()):
            hub.subscribe(subscriber)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(begun + wait_s):
                    await sink.filled.wait()
                    if gather_s:
                        async with asyncio.timeout_at(begun + gather_s):
                            await sink.done.wait()
    finally:
        hub.unsubscribe(subscriber)
    errors = [each.details["detail"] for each in sink.notices if each.kind == "error"]
    if errors:
        raise SubscriptionEnded(errors[0])
    held = sink.events
    found = held[:most]
    reached = subscriber.position.text if subscriber.position is not None else ""
    is_cut = len(found) < len(held)
    notices = [each for each in sink.notices if each.kind != "latest"] if is_cut else sink.notices  # not all is here
    return Page([data for _, data in found], found[-1][0] if is_cut else reached, notices)
