"""A sink that records the events and notices it gets."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import orjson

from tidegate.delivery.batch import Events
from tidegate.delivery.encoding import Encoding
from tidegate.delivery.subscriber import DeliveryNotice, Pick, Sink, Subscriber
from tidegate.filters import Filter
from tidegate.logs import Cursor

TIMEOUT_S = 60.0

_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Recorded:
    """An event that was delivered to a subscriber."""

    subscriber: str
    id: str
    cursor: str
    """The cursor after the event."""
    data: dict[str, Any]
    """The event in plain format: id, time and the selected attributes."""


class RecordingSink(Sink):
    """Records events. After `room_for` events it is full, like the socket of a slow reader, until `make_room`.

    Several subscribers may share one sink. Use it only in the event loop in which it was created.
    """

    kind = "recording"

    def __init__(self, room_for: int | None = None) -> None:
        """`room_for` None: the sink is never full."""
        super().__init__()
        self.events: list[Recorded] = []
        """All events, oldest first."""
        self.notices: list[DeliveryNotice] = []
        self._room_for, self._held = room_for, 0
        self._free, self._came = asyncio.Event(), asyncio.Event()
        self._free.set()

    def subscriber(
        self,
        service: str,
        filter_: Filter | None = None,
        position: Cursor | None = None,
        *,
        id_: str | None = None,
        select: Sequence[str] | None = None,
    ) -> Subscriber:
        """Return a subscriber that delivers to this sink.

        Without a filter it gets all events, without a position it starts at the beginning.
        """
        encoding = Encoding("plain", None if select is None else tuple(select))
        return Subscriber(id_ or f"recording-{next(_numbers)}", service, filter_, self, encoding, position)

    async def wait_for(self, events: int, timeout_s: float = TIMEOUT_S) -> list[Recorded]:
        """Wait until at least this many events were delivered, and return all of them. Raises TimeoutError."""
        async with asyncio.timeout(timeout_s):
            while len(self.events) < events:
                self._came.clear()
                await self._came.wait()
        return list(self.events)

    def make_room(self) -> None:
        """Count all events as read, so that the sink is not full any more; `events` keeps them."""
        self._held = 0
        self._free.set()

    # The contract of a sink ------------------------------------------------------

    def render(self, batch: Events, picks: Sequence[Pick]) -> list[Recorded]:
        """Return events as they will be recorded."""
        return [
            Recorded(
                to.subscriber.id,
                batch.events[n].get("_id", ""),
                batch.cursor(n, to.skip_below),
                orjson.loads(batch.encoded(n, to.encoding)),
            )
            for n, to in picks
        ]

    def write(self, rendered: Any) -> bool:
        """Record rendered events; returns False if the sink is full now."""
        self.events += rendered
        self._held += len(rendered)
        self._came.set()
        if self._room_for is not None and self._held >= self._room_for:
            self._free.clear()
        return self._free.is_set()

    async def drain(self) -> None:
        """Wait until the sink is not full."""
        await self._free.wait()

    def send_notice(self, subscriber: Subscriber, notice: DeliveryNotice) -> None:  # noqa: ARG002 - all share one list
        """Record a notice."""
        self.notices.append(notice)
        self._came.set()
