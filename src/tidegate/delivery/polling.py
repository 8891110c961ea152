"""Reads events for subscribers that poll: pages from their cursors, without a lane."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from tidegate.delivery.batch import Batch
from tidegate.delivery.history import HistoryProvider
from tidegate.delivery.history_sender import HistorySender
from tidegate.delivery.notices import gap
from tidegate.delivery.snapshot_sender import SnapshotSender
from tidegate.delivery.start import restart_at_beginning
from tidegate.delivery.subscriber import LaneMembership, Subscriber
from tidegate.errors import CursorError, StreamNotFound
from tidegate.logs import Cursor, EventLog

PAGE_EVENTS = 1_000
"""Events that one poll reads."""

PollResult = Literal["more", "all", "absent"]
"""`more`: there may be more events. `all`: the end of the log is reached. `absent`: the stream, or the broker that has
its history, is not available now."""


class Poller:
    """Writes the next events of a subscriber to its sink, one page for each call. Runs on the event loop."""

    def __init__(
        self,
        log: EventLog,
        history: HistoryProvider,
        history_sender: HistorySender,
        snapshot_sender: SnapshotSender,
    ) -> None:
        self._log, self._history = log, history
        self._history_sender, self._snapshot_sender = history_sender, snapshot_sender

    async def poll(self, subscriber: Subscriber) -> PollResult:
        """Read from the subscriber's cursor, write the events that match to its sink, and move the cursor.

        Raises `LogUnreachable` if the log does not answer; then the cursor stays where it is.
        """
        try:
            if subscriber.latest is None and self._history.needs_history(subscriber):
                return "more" if await self._history_sender.send_page(subscriber) else "absent"
            cursor = subscriber.cursor
            if cursor is None:
                cursor = await asyncio.to_thread(self._log.begin, subscriber.service)
            if subscriber.latest is not None:
                await self._snapshot_sender.send_page(subscriber, subscriber.latest, cursor)
                return "more"
            batch, rendered = await asyncio.to_thread(self._read, subscriber, cursor)
        except CursorError:
            await restart_at_beginning(self._log, subscriber)
            return "more"
        except StreamNotFound:
            return "absent"
        if batch.gaps:
            subscriber.sink.send_notice(subscriber, gap(batch))
        subscriber.cursor = batch.end
        if rendered is not None:
            subscriber.sink.write(rendered)
        return "more" if batch.records or batch.gaps else "all"

    def _read(self, subscriber: Subscriber, cursor: Cursor) -> tuple[Batch, Any]:
        batch = Batch(subscriber.service, cursor, self._log.read(subscriber.service, cursor, PAGE_EVENTS))
        return batch, LaneMembership(subscriber).render(batch)
