"""A sink that remembers what came."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import orjson

from tidegate.delivery.batch import Events
from tidegate.delivery.encoding import Encoding
from tidegate.delivery.subscriber import Notice, Pick, Sink, Subscriber
from tidegate.filters import Filter
from tidegate.logs import Cursor

PATIENCE_S = 60.0

_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Recorded:
    """An event as a subscriber got it."""

    subscriber: str
    id: str
    cursor: str
    """Where to go on behind it."""
    data: dict[str, Any]
    """As it is sent plain, with its id and time, and just the attributes that were selected."""


class RecordingSink(Sink):
    """Takes events until there are `room_for` that were not read yet: then it is full, as a slow reader's socket is.

    Several subscribers may share one. It belongs to the event loop that it is made in.
    """

    kind = "recording"

    def __init__(self, room_for: int | None = None) -> None:
        """`room_for` None: any number."""
        super().__init__()
        self.events: list[Recorded] = []
        """All that came, the oldest first."""
        self.notices: list[Notice] = []
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
        """Somebody who gets events here: all without a filter, from the beginning without a position."""
        encoding = Encoding("plain", None if select is None else tuple(select))
        return Subscriber(id_ or f"recording-{next(_numbers)}", service, filter_, self, encoding, position)

    async def wait_for(self, events: int, timeout_s: float = PATIENCE_S) -> list[Recorded]:
        """All that came, as soon as there are so many; `TimeoutError` where they do not come."""
        async with asyncio.timeout(timeout_s):
            while len(self.events) < events:
                self._came.clear()
                await self._came.wait()
        return list(self.events)

    def make_room(self) -> None:
        """Have read all that came: there is room again."""
        self._held = 0
        self._free.set()

    # What a sink does ------------------------------------------------------------

    def render(self, batch: Events, picks: Sequence[Pick]) -> list[Recorded]:
        """Events as they will be remembered."""
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
        """Remember them."""
        self.events += rendered
        self._held += len(rendered)
        self._came.set()
        if self._room_for is not None and self._held >= self._room_for:
            self._free.clear()
        return self._free.is_set()

    async def drain(self) -> None:
        """Return when there is room."""
        await self._free.wait()

    def send_notice(self, subscriber: Subscriber, notice: Notice) -> None:  # noqa: ARG002 - of whichever
        """Remember a notice."""
        self.notices.append(notice)
        self._came.set()
