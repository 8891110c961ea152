"""A sink that records its events, and that can be full."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from tidegate.delivery.batch import Events
from tidegate.delivery.subscriber import DeliveryNotice, Pick, Sink, Subscriber

Given = tuple[str, str, str]
"""Subscriber, event and the cursor behind it."""


class Recording(Sink):
    """Is full from `room_for` events on, until `make_room`. A strict one takes no event beyond them."""

    def __init__(self, room_for: int = 1_000_000, *, strict: bool = False) -> None:
        super().__init__()
        self.given: list[Given] = []
        self.notices: list[DeliveryNotice] = []
        self.room_for, self.strict = room_for, strict
        self._held = 0
        self._free = asyncio.Event()
        self._free.set()

    def render(self, batch: Events, picks: Sequence[Pick]) -> Any:
        return [(n, (to.subscriber.id, batch.events[n]["_id"], batch.cursor(n, to.skip_below))) for n, to in picks]

    def write(self, rendered: Any) -> bool:
        self.first_unsent = None
        events = sorted({n for n, _ in rendered})
        room = max(self.room_for - self._held, 0)
        if self.strict and len(events) > room:
            self.first_unsent = events[room]
        taken = [given for n, given in rendered if self.first_unsent is None or n < self.first_unsent]
        self.given += taken
        self._held += room if self.first_unsent is not None else len(events)
        if self._held >= self.room_for:
            self._free.clear()
        return self._free.is_set()

    async def drain(self) -> None:
        await self._free.wait()

    def send_notice(self, subscriber: Subscriber, notice: DeliveryNotice) -> None:  # noqa: ARG002
        self.notices.append(notice)

    def make_room(self) -> None:
        self._held = 0
        self._free.set()

    def ids(self, subscriber: str) -> list[str]:
        return [event for to, event, _ in self.given if to == subscriber]
