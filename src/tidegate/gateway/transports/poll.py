"""Polling transport: a page of events, at once or as soon as there is one."""

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
from tidegate.delivery.subscriber import DeliveryNotice, Pick, Sink, Subscriber
from tidegate.errors import EndedSubscription

PAGE_NOTICES = ("gap", "latest")
"""Notices that a page contains."""
MAX_READS = 100
"""Reads for one conflated page, which stays small if there are few keys or few matches."""
NOT_CONFLATED: Conflation = (None, None)


@dataclass(frozen=True, slots=True)
class EventPage:
    """A page of events, and the cursor of the next page."""

    events: list[bytes]
    cursor: str
    notices: list[DeliveryNotice]

    def to_json(self) -> bytes:
        """Return the response body."""
        notices = b"".join(
            b'"%s":%s,' % (notice.kind.encode(), orjson.dumps(notice.details))
            for notice in self.notices
            if notice.kind in PAGE_NOTICES
        )
        return b'{%s"cursor":"%s","events":[%s]}' % (notices, self.cursor.encode(), b",".join(self.events))


class PageSink(Sink):
    """Collects the events of one page."""

    kind = "poll"
    may_conflate = False

    def __init__(self, limit: int, conflation: Conflation = NOT_CONFLATED) -> None:
        """With a `conflation` the sink keeps only the latest event per key."""
        super().__init__()
        self.limit = limit
        self._conflates, self._key = conflation[0] is not None, conflation[1]
        self._held: dict[Any, tuple[str, bytes]] = {}
        self.notices: list[DeliveryNotice] = []
        self.filled, self.done = asyncio.Event(), asyncio.Event()
        """Set when the page has an event; set when it is complete."""

    @property
    def events(self) -> list[tuple[str, bytes]]:
        """The cursors and events, in log order."""
        return list(self._held.values())

    def render(self, batch: Events, picks: Sequence[Pick]) -> list[tuple[Any, tuple[str, bytes]]]:
        """Return the key, cursor and event of each pick. An event replaces an earlier one with the same key."""
        return [
            (
                key_of(batch.events[n], self._key) if self._conflates else None,
                (batch.cursor(n, to.skip_below), batch.encoded(n, to.encoding)),
            )
            for n, to in picks
        ]

    def write(self, rendered: Any) -> bool:
        """Keep events. Those beyond the page are read again for the next page."""
        for key, event in rendered:
            slot = len(self._held) if key is None else key
            self._held.pop(slot, None)
            self._held[slot] = event
        if self._held:
            self.filled.set()
        if self.is_full:
            self.done.set()
        return not self.is_full

    @property
    def is_full(self) -> bool:
        """True if the page has its maximum number of events."""
        return len(self._held) >= self.limit

    async def drain(self) -> None:
        """Return while the page is not full; a full one is never emptied."""
        if self.is_full:
            await asyncio.Event().wait()

    def send_notice(self, subscriber: Subscriber, notice: DeliveryNotice) -> None:  # noqa: ARG002 - there is just one
        """Hold a notice."""
        self.notices.append(notice)
        if notice.kind == "error":
            self.end()

    def end(self) -> None:
        """Complete the page with the events it has, because the subscription or the gateway ends."""
        self.filled.set()
        self.done.set()


async def page(
    hub: Hub,
    make: Callable[[Sink], Subscriber],
    limit: int,
    wait_s: float,
    conflation: Conflation = NOT_CONFLATED,
) -> EventPage:
    """Read a page from a subscriber's position. If there is no event, wait for one up to `wait_s`.

    With a `conflation` and a wait the page collects events for the conflation interval, so that a client that
    polls continuously gets each key once per interval. Raises `EndedSubscription` if the subscription ends.
    """
    sink = PageSink(limit, conflation)
    subscriber = make(sink)
    gather_s = conflation[0] or 0.0
    begun = asyncio.get_running_loop().time()
    try:
        for _ in range(MAX_READS if gather_s else sys.maxsize):
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
    errors = [notice.details["detail"] for notice in sink.notices if notice.kind == "error"]
    if errors:
        raise EndedSubscription(errors[0])
    collected = sink.events
    events = collected[:limit]
    reached = subscriber.position.text if subscriber.position is not None else ""
    is_cut = len(events) < len(collected)
    # A cut page has only a part of the latest events.
    notices = [notice for notice in sink.notices if notice.kind != "latest"] if is_cut else sink.notices
    return EventPage([data for _, data in events], events[-1][0] if is_cut else reached, notices)
