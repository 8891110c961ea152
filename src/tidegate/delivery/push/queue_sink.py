"""The queue between the hub and a push worker."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any

import structlog

from tidegate.delivery.batch import Events
from tidegate.delivery.push.transport import PendingEvent
from tidegate.delivery.subscriber import DeliveryNotice, Pick, Sink, Subscriber

_log = structlog.get_logger("tidegate.delivery")


class QueueSink(Sink):
    """Holds the events of one subscription until its worker takes them."""

    def __init__(self, kind: str, max_events: int) -> None:
        """`kind` is that of the push target. The queue is full from `max_events` on, but takes whole batches."""
        super().__init__()
        self.kind = kind
        self._max_events = max_events
        self._events: deque[PendingEvent] = deque()
        self._has_events, self._has_room = asyncio.Event(), asyncio.Event()
        self._has_room.set()
        self.error: str | None = None
        """Why the hub has ended delivery; None: it has not."""

    def render(self, batch: Events, picks: Sequence[Pick]) -> list[PendingEvent]:
        """Return each event with the cursor behind it."""
        return [
            PendingEvent(
                batch.cursor(n, to.skip_below), batch.encoded(n, to.encoding), bytes(batch.records[n]), to.encoding
            )
            for n, to in picks
        ]

    def write(self, rendered: Any) -> bool:
        """Add events. Returns False if the queue is full."""
        self._events += rendered
        self._has_events.set()
        if len(self._events) >= self._max_events:
            self._has_room.clear()
        return self._has_room.is_set()

    @property
    def is_flushed(self) -> bool:
        """True if the queue is empty."""
        return not self._events

    async def drain(self) -> None:
        """Return when at least half of the queue is free."""
        await self._has_room.wait()

    def send_notice(self, subscriber: Subscriber, notice: DeliveryNotice) -> None:
        """Log a gap, and end the queue on an error. Push targets get events only, no notices."""
        if notice.kind == "gap":
            _log.warning("a push target has missed events", subscription=subscriber.id, **notice.details)
        if notice.kind == "error":
            self.error = str(notice.details.get("detail"))
            self._has_events.set()

    async def take(self, max_events: int) -> list[PendingEvent]:
        """Wait for events and remove them from the queue; an empty list if delivery has ended."""
        await self._has_events.wait()
        events = [self._events.popleft() for _ in range(min(max_events, len(self._events)))]
        if not self._events and self.error is None:
            self._has_events.clear()
        if len(self._events) <= self._max_events // 2:
            self._has_room.set()
        return events
